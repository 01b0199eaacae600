//! Pending timers: memory must not depend on how many there are.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use journal::RealDisk;
use kernel::limits::CHECKPOINT_BYTES;
use serde::{Deserialize, Serialize};
use shard::Machines;

use crate::engine::{Engine, EngineOptions};
use crate::machines::{Alarm, set_timer};
use crate::proc::{Child, Setup, child_args, say, status_kib, wait_until_quiet, wall_ms};
use crate::stats::{Scramble, median, per_second};
use crate::table::{Figure, Line, Target};

/// With the row's key and the kernel's own fields this makes rows of 200 bytes.
const PAYLOAD_BYTES: usize = 175;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const BATCH: u64 = 512;

#[derive(Serialize, Deserialize)]
struct TimersArgs {
    dir: PathBuf,
    /// Timers of the first half, and of the second.
    half: u64,
    checkpoint_bytes: usize,
}

/// Memory while the last tenth of a half was set, and when nothing was left to do.
#[derive(Serialize, Deserialize)]
struct Half {
    pending: u64,
    rss_mib: f64,
    peak_mib: f64,
    settled_mib: f64,
    disk_mib: f64,
    per_second: f64,
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Looks at this process's memory, ten times a second.
fn watch_memory(
    pending: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<Result<Vec<(u64, u64)>>> {
    std::thread::spawn(move || {
        let mut seen = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            seen.push((pending.load(Ordering::Relaxed), status_kib("VmRSS")?));
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(seen)
    })
}

/// Sets timers, and says what that took.
pub(crate) fn child(args: &str) -> Result<()> {
    let args: TimersArgs = child_args(args)?;
    let fired = Arc::new(AtomicU64::new(0));
    let options = EngineOptions {
        machines: Machines::default().with(Box::new(Alarm { fired: Arc::clone(&fired) })),
        disk: Arc::new(RealDisk),
        checkpoint_bytes: args.checkpoint_bytes,
    };
    let engine = Engine::start(&args.dir, options)?;
    let pending = Arc::new(AtomicU64::new(0));
    let mut random = Scramble(7);
    let first_ms = wall_ms() + DAY_MS / 24;
    for half in 1..=2 {
        let stop = Arc::new(AtomicBool::new(false));
        let memory = watch_memory(Arc::clone(&pending), Arc::clone(&stop));
        let started = Instant::now();
        while pending.load(Ordering::Relaxed) < half * args.half {
            let from = pending.load(Ordering::Relaxed);
            let batch = (from..from + BATCH)
                .map(|n| set_timer(first_ms + random.below(30 * DAY_MS), n, PAYLOAD_BYTES))
                .collect();
            engine.feed(batch)?;
            pending.fetch_add(BATCH, Ordering::Relaxed);
        }
        let took = started.elapsed();
        stop.store(true, Ordering::Relaxed);
        let seen = memory.join().map_err(|_| anyhow!("the watcher panicked"))??;
        let last_tenth = half * args.half - args.half / 10;
        let rss: Vec<f64> = seen
            .iter()
            .filter(|(pending, _)| *pending >= last_tenth)
            .map(|(_, kib)| mib(*kib))
            .collect();
        let rss_mib = if rss.is_empty() { mib(status_kib("VmRSS")?) } else { median(&rss) };
        wait_until_quiet(Duration::from_secs(120))?;
        say(&Half {
            pending: pending.load(Ordering::Relaxed),
            rss_mib,
            peak_mib: mib(status_kib("VmHWM")?),
            settled_mib: mib(status_kib("VmRSS")?),
            disk_mib: mib(folder_bytes(&args.dir)? / 1024),
            per_second: per_second(args.half, took),
        })?;
    }
    std::process::exit(0);
}

fn folder_bytes(dir: &std::path::Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // A file may go while it is looked at: a merge has ended.
        let size = entry.metadata().map_or(0, |meta| meta.len());
        bytes += if kind.is_dir() { folder_bytes(&entry.path())? } else { size };
    }
    Ok(bytes)
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let scratch = setup.scratch("timers")?;
    let args = TimersArgs {
        dir: scratch.path().to_owned(),
        half: setup.size(10_000_000, 50_000),
        checkpoint_bytes: setup.size(CHECKPOINT_BYTES, 4 << 20),
    };
    let mut child = Child::start("timers", &args)?;
    let first: Half = child.next()?;
    let second: Half = child.next()?;
    child.finish()?;
    let mib = |value| Figure::new(value, " MiB");
    let growth = Line::ratio(
        "timers",
        Target::AtMost(1.1),
        second.rss_mib / first.rss_mib,
        mib(second.rss_mib),
        mib(first.rss_mib),
        "resident memory with twice as many timers pending, against half of them, in one process; \
         the median over the last tenth of setting them, checkpoints and merges running",
    )
    .note(format!("{} pending, then {}; rows of 200 bytes", first.pending, second.pending))
    .note(format!("{:.0} set a second, then {:.0}", first.per_second, second.per_second))
    .note(format!(
        "when all is done: {:.0} MiB resident and {:.0} MiB on disk, then {:.0} and {:.0}",
        first.settled_mib, first.disk_mib, second.settled_mib, second.disk_mib
    ));
    let peak = Line::figure(
        "timers-peak",
        Target::AtMost(1.0),
        Figure::new(second.peak_mib / 1024.0, " GiB"),
        Figure::new(1.0, " GiB"),
        "the most memory that this ever took, against 1 GiB",
    );
    Ok(vec![growth, peak])
}
