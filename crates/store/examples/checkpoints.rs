//! Measures checkpoints of many rows, with a reader beside them.
//!
//! `cargo run --release -p store --example checkpoints -- <folder> <random|timers> <layers> <MiB>`
//!
//! `random` writes rows under keys without order, `timers` under rising 5-minute buckets.

#![allow(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kernel::base::MemoryBase;
use kernel::{Base, Index, Layer, Rows};
use store::{FjallBase, StoreOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE_BYTES: usize = 184;
const KEY_BYTES: usize = 18;

/// Well-mixed bits of a number: row `n` has the same key each time it is asked for.
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn key(timers: bool, number: u64) -> Vec<u8> {
    // A timer's bucket is one of a month's; within it the identity is without order.
    let first = if timers { mix(number) % 8_640 } else { mix(number) };
    [&[0, 1][..], &first.to_be_bytes(), &mix(number ^ 0xff00).to_be_bytes()].concat()
}

fn layer(timers: bool, from: u64, count: u64) -> Arc<Layer> {
    let mut rows = Rows::new(Arc::new(MemoryBase::new()));
    for number in from..from + count {
        let half: Vec<u8> = (0..VALUE_BYTES as u64 / 16)
            .flat_map(|word| mix(number ^ word << 40).to_le_bytes())
            .collect();
        rows.put_new(key(timers, number), [half, vec![b'x'; VALUE_BYTES / 2]].concat());
    }
    rows.freeze()
}

fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4
        / 1024
}

/// Reads at random all the while, and keeps how long each read took.
struct Reader {
    base: Arc<FjallBase>,
    timers: bool,
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Reader {
    fn run(&self) -> [Vec<Duration>; 3] {
        let mut took = [const { Vec::new() }; 3];
        let mut draw = 1;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(500));
            let written = self.written.load(Ordering::Acquire).max(1);
            draw = mix(draw);
            let there = key(self.timers, draw % written);
            let missing = key(self.timers, u64::MAX - draw % written);
            let begun = Instant::now();
            let found = self.base.get(&there).expect("readable");
            took[0].push(begun.elapsed());
            assert!(found.is_some() || written == 1, "a row is lost");
            let begun = Instant::now();
            assert!(self.base.get(&missing).expect("readable").is_none());
            took[1].push(begun.elapsed());
            let begun = Instant::now();
            let from = std::ops::Bound::Included(&there[..]);
            let rows = self.base.range(from, std::ops::Bound::Unbounded, false).take(100);
            assert!(rows.count() > 0 || written == 1);
            took[2].push(begun.elapsed());
        }
        took
    }
}

fn report(name: &str, took: &mut [Duration]) {
    took.sort_unstable();
    let at = |per_mille: usize| took[(took.len() - 1) * per_mille / 1000];
    println!(
        "  {name}: {} reads, p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
        took.len(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, pattern, layers, mib] = &args[..] else { panic!("four arguments are wanted") };
    let timers = pattern == "timers";
    let layers: u64 = layers.parse().expect("a number of layers");
    let mib: u64 = mib.parse().expect("MiB of a layer");
    let rows_per_layer = mib * 1024 * 1024 / (VALUE_BYTES + KEY_BYTES) as u64;
    let base = Arc::new(FjallBase::open(Path::new(dir), StoreOptions::default()).expect("opened"));
    let (written, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let reader = Reader {
        base: Arc::clone(&base),
        timers,
        written: Arc::clone(&written),
        stop: Arc::clone(&stop),
    };
    let reader = std::thread::spawn(move || reader.run());
    let begun = Instant::now();
    let (mut ingesting, mut slowest) = (Duration::ZERO, Duration::ZERO);
    for number in 0..layers {
        let layer = layer(timers, number * rows_per_layer, rows_per_layer);
        let at = Instant::now();
        base.ingest(&layer, Index(number + 1), &|| {}).expect("taken");
        ingesting += at.elapsed();
        slowest = slowest.max(at.elapsed());
        written.store((number + 1) * rows_per_layer, Ordering::Release);
        drop(layer);
        if (number + 1) % (layers / 10).max(1) == 0 {
            println!(
                "{} layers, {:.1} M rows: {:.0} s, ingest {:.0} MiB/s, slowest {slowest:?}, \
                 {} MiB resident, {} MiB on disk, {} runs in level 0",
                number + 1,
                ((number + 1) * rows_per_layer) as f64 / 1e6,
                begun.elapsed().as_secs_f64(),
                ((number + 1) * mib) as f64 / ingesting.as_secs_f64(),
                resident_mib(),
                base.disk_bytes() / 1024 / 1024,
                base.level0_runs(),
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    let [mut there, mut missing, mut scans] = reader.join().expect("the reader saw what it should");
    report("row that is there ", &mut there);
    report("row that is not   ", &mut missing);
    report("scan of 100 rows  ", &mut scans);
}
