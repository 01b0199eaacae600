//! Latency of durable commands while rows move to the store, against latency without.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kernel::{Envelope, VirtualShard};
use node::{Node, NodeConfig};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::machines::search;
use crate::proc::{Child, Setup, child_args, say, wait_until_quiet};
use crate::stats::{median, micros, percentile};
use crate::table::{Figure, Line, Target};
use crate::watch::{Watch, Window};

const TARGET: Target = Target::AtMost(2.0);
const WHAT: &str = "p99 of durable searches of 100 bytes at 40 % of the most that is possible, \
                    while a checkpoint runs, against the same load just before it";
/// Rows that one steady command leaves in memory, about.
const STEADY_ROW_BYTES: u64 = 800;
/// Rows that one command of the filling leaves in memory, about; less than that, so that filling
/// comes near its goal from below.
const FILL_ROW_BYTES: f64 = 3000.0;
const CLIENTS: u64 = 512;

#[derive(Serialize, Deserialize)]
struct CheckpointArgs {
    data: PathBuf,
    /// Rows in memory at which the node checkpoints.
    checkpoint_bytes: usize,
    /// Steady load before each checkpoint.
    quiet_ms: u64,
    rounds: u32,
}

/// One round.
#[derive(Debug, Serialize, Deserialize)]
struct Round {
    rate: u64,
    without_p99: u32,
    with_p99: u32,
    without_p50: u32,
    with_p50: u32,
    with_count: usize,
    checkpoint_ms: u64,
    refused: u64,
}

/// A command of the steady load: when it was due, and how long its answer took from then.
struct Sample {
    due: Instant,
    took: Duration,
}

struct Bench {
    node: Node,
    runtime: Runtime,
    watch: Watch,
    numbers: Arc<AtomicU64>,
    checkpoint_bytes: usize,
}

impl Bench {
    /// Does `count` commands as fast as possible, and says how long that took.
    fn flood(&self, count: u64, make: fn(u64) -> Envelope) -> Result<Duration> {
        let left = Arc::new(AtomicU64::new(count));
        let started = Instant::now();
        let tasks: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (node, left) = (self.node.clone(), Arc::clone(&left));
                let numbers = Arc::clone(&self.numbers);
                self.runtime.spawn(async move {
                    let take = |left: u64| left.checked_sub(1);
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                        let number = numbers.fetch_add(1, Ordering::Relaxed);
                        node.submit(VirtualShard(0), make(number)).await?;
                    }
                    Ok::<(), node::Refusal>(())
                })
            })
            .collect();
        for task in tasks {
            self.runtime.block_on(task).context("a client panicked")??;
        }
        Ok(started.elapsed())
    }

    /// Fills rows in memory up to `goal`, and no further.
    fn fill(&self, goal: f64) -> Result<()> {
        loop {
            // Longer than the node's gauges take to be refreshed.
            std::thread::sleep(Duration::from_millis(1100));
            let missing = goal - self.watch.overlay_bytes();
            if missing <= goal * 0.02 {
                return Ok(());
            }
            let count = Duration::try_from_secs_f64(missing / FILL_ROW_BYTES)?.as_secs();
            self.flood(count.max(1), |number| search(1024, u64::MAX, number))?;
        }
    }

    /// Steady load until the next checkpoint has ended. The load does not wait for answers, and
    /// time is counted from when a command was due.
    fn steady(&self, rate: u64, samples: &Arc<Mutex<Vec<Sample>>>) -> Result<(Window, u64)> {
        let before = self.watch.checkpoints().len();
        let started = Instant::now();
        let refused = Arc::new(AtomicU64::new(0));
        let mut issued = 0;
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let elapsed = started.elapsed();
            let due_count = rate * u64::try_from(elapsed.as_micros())? / 1_000_000;
            while issued < due_count {
                let due = started + Duration::from_micros(issued * 1_000_000 / rate);
                self.issue(due, samples, &refused);
                issued += 1;
            }
            if let Some(window) = self.watch.checkpoints().get(before) {
                return Ok((*window, refused.load(Ordering::Relaxed)));
            }
            ensure!(elapsed < Duration::from_secs(300), "no checkpoint came to its end");
        }
    }

    fn issue(&self, due: Instant, samples: &Arc<Mutex<Vec<Sample>>>, refused: &Arc<AtomicU64>) {
        let (node, samples) = (self.node.clone(), Arc::clone(samples));
        let refused = Arc::clone(refused);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.runtime.spawn(async move {
            let envelope = search(100, 100_000, number);
            match node.submit(VirtualShard(0), envelope).await {
                Ok(_) => samples.lock().push(Sample { due, took: due.elapsed() }),
                Err(_) => _ = refused.fetch_add(1, Ordering::Relaxed),
            }
        });
    }

    fn round(&self, rate: u64, quiet_ms: u64) -> Result<Round> {
        let margin = (rate * quiet_ms / 1000 * STEADY_ROW_BYTES) as f64;
        let limit = self.checkpoint_bytes as f64;
        self.fill((limit - margin).max(limit / 4.0))?;
        wait_until_quiet(Duration::from_secs(60))?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        let started = Instant::now();
        let (window, refused) = self.steady(rate, &samples)?;
        // What is still under way at the end of the checkpoint belongs to it.
        std::thread::sleep(Duration::from_millis(500));
        let samples = samples.lock();
        let part = |from: Instant, to: Instant| -> Vec<u32> {
            let inside = samples.iter().filter(|s| s.due >= from && s.due < to);
            inside.map(|sample| micros(sample.took)).collect()
        };
        // The first moments warm up.
        let warm = started + Duration::from_millis(quiet_ms.min(4000) / 4);
        let mut without = part(warm, window.from);
        let mut with = part(window.from, window.to);
        ensure!(!without.is_empty() && !with.is_empty(), "the checkpoint came too early");
        Ok(Round {
            rate,
            without_p99: percentile(&mut without, 990),
            with_p99: percentile(&mut with, 990),
            without_p50: percentile(&mut without, 500),
            with_p50: percentile(&mut with, 500),
            with_count: with.len(),
            checkpoint_ms: u64::try_from((window.to - window.from).as_millis())?,
            refused,
        })
    }
}

/// Runs a node, and says what each round gave.
pub(crate) fn child(args: &str) -> Result<()> {
    let args: CheckpointArgs = child_args(args)?;
    let watch = Watch::install()?;
    let config = NodeConfig {
        data_dir: args.data,
        shards: Some(1),
        checkpoint_bytes: args.checkpoint_bytes,
        ..NodeConfig::default()
    };
    let bench = Bench {
        node: Node::start(config)?,
        runtime: tokio::runtime::Builder::new_multi_thread().enable_all().build()?,
        watch,
        numbers: Arc::new(AtomicU64::new(0)),
        checkpoint_bytes: args.checkpoint_bytes,
    };
    let small = |number| search(100, 100_000, number);
    bench.flood(2_000, small)?;
    let count = if args.quiet_ms < 5000 { 5_000 } else { 200_000 };
    let took = bench.flood(count, small)?;
    let rate = (u128::from(count) * 400 / took.as_millis().max(1)).max(100);
    for _ in 0..args.rounds {
        say(&bench.round(u64::try_from(rate)?, args.quiet_ms)?)?;
    }
    // The data is thrown away; nobody needs a last checkpoint.
    std::process::exit(0);
}

pub(crate) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let scratch = setup.scratch("checkpoint")?;
    let rounds = setup.size(5, 1);
    let checkpoint_bytes = setup.size(240 << 20, 64 << 20);
    let args = CheckpointArgs {
        data: scratch.path().to_owned(),
        checkpoint_bytes,
        quiet_ms: setup.size(8000, 500),
        rounds,
    };
    let mut child = Child::start("checkpoint", &args)?;
    let mut seen: Vec<Round> = Vec::new();
    for _ in 0..rounds {
        seen.push(child.next()?);
    }
    child.finish()?;
    let of = |value: fn(&Round) -> f64| median(&seen.iter().map(value).collect::<Vec<f64>>());
    let ratio = of(|r| f64::from(r.with_p99) / f64::from(r.without_p99.max(1)));
    let ours = Figure::new(of(|r| f64::from(r.with_p99) / 1e3), " ms");
    let without = Figure::new(of(|r| f64::from(r.without_p99) / 1e3), " ms");
    let mut line = Line::ratio("checkpoint", TARGET, ratio, ours, without, WHAT).note(format!(
        "{rounds} checkpoints of {} MiB each, because a shard holds at most {} MiB of rows in \
         memory before it takes no more",
        checkpoint_bytes >> 20,
        kernel::limits::OVERLAY_BYTES_MAX >> 20
    ));
    for round in &seen {
        line = line.note(format!(
            "{}/s; checkpoint {} ms, {} samples in it; p50 {} → {} µs, p99 {} → {} µs; {} refused",
            round.rate,
            round.checkpoint_ms,
            round.with_count,
            round.without_p50,
            round.with_p50,
            round.without_p99,
            round.with_p99,
            round.refused
        ));
    }
    Ok(vec![line])
}
