//! Reopening: how many commands a second come back from the log.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use journal::RealDisk;
use kernel::Envelope;
use recents::Recents;
use shard::Machines;

use crate::engine::{EngineOptions, open_only};
use crate::filler::{BATCH, Filler};
use crate::machines::{self, Counter};
use crate::proc::Setup;
use crate::stats::{median, per_second};
use crate::table::{Figure, Line, Target};

const TARGET: Target = Target::AtLeast(1e6);
const COMMAND_BYTES: usize = 100;
const USERS: u64 = 50_000;

/// Reads so many bytes of a log's segments once and sums them up: the least that opening it can
/// do.
pub(crate) fn read_and_sum(dir: &Path, bytes: u64) -> Result<Duration> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut buffer = vec![0; 1 << 20];
    let started = Instant::now();
    let (mut sum, mut left) = (0, bytes);
    for path in paths {
        let mut file = File::open(path)?.take(left);
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            sum = crc32c::crc32c_append(sum, &buffer[..count]);
            left -= count as u64;
        }
    }
    std::hint::black_box(sum);
    Ok(started.elapsed())
}

struct Subject {
    name: &'static str,
    what: &'static str,
    machines: fn() -> Machines,
    make: fn(u64) -> Envelope,
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "replay",
        what: "commands of 100 bytes that a machine counts, a second of Shard::open, against \
               reading and checksumming the log's files",
        machines: || Machines::default().with(Box::new(Counter)),
        make: |number| machines::count(COMMAND_BYTES, number),
    },
    Subject {
        name: "replay-recents",
        what: "the same with searches of 50 000 users: four rows each",
        machines: || Machines::default().with(Box::<Recents>::default()),
        make: |number| machines::search(COMMAND_BYTES, USERS, number),
    },
];

fn measure(setup: &Setup, subject: &Subject) -> Result<Line> {
    let scratch = setup.scratch(subject.name)?;
    let log = scratch.path().join("log");
    let count: u64 = setup.size(1_000_000, 20_000);
    let mut filler = Filler::open(&log)?;
    let mut number = 0;
    while filler.commands < count {
        filler.append((number..).take(BATCH).map(subject.make).collect())?;
        number += BATCH as u64;
    }
    filler.settle()?;
    let (commands, bytes) = (filler.commands, filler.bytes);
    drop(filler);
    let (mut rates, mut floors, mut log_ms) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..setup.size(5, 1) {
        let machines = (subject.machines)();
        let disk = Arc::new(RealDisk);
        let options = EngineOptions { machines, disk, checkpoint_bytes: usize::MAX };
        // Replay itself moves rows to the store when they outgrow memory: each round starts anew.
        let rows = scratch.path().join("rows");
        if rows.exists() {
            std::fs::remove_dir_all(&rows).context("emptying the rows")?;
        }
        let opening = open_only(scratch.path(), options)?;
        ensure!(opening.commands == commands, "replay saw {} commands", opening.commands);
        rates.push(per_second(commands, opening.replay));
        log_ms.push(opening.log.as_secs_f64() * 1e3);
        floors.push(per_second(commands, read_and_sum(&log, bytes)?));
    }
    let figure = |values: &[f64]| Figure::new(median(values), "/s");
    let line = Line::figure(subject.name, TARGET, figure(&rates), figure(&floors), subject.what);
    Ok(line.note(format!(
        "{commands} commands, {BATCH} an entry; FileLog::open before it, which reads and checks \
         everything once, took {:.0} ms",
        median(&log_ms)
    )))
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    SUBJECTS.iter().map(|subject| measure(setup, subject)).collect()
}
