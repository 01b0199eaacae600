//! How near the log comes to a bare loop of write and sync, and how fast it is read back.
//!
//! `cargo run --release -p journal --example commit_rate -- <folder> [seconds]`
//!
//! The log runs first, with so many entries in flight, and trimmed as it goes, so that segments
//! are used again; the batches it made are then written by the bare loop, byte for byte as large,
//! into a file that was written before.

#![allow(clippy::print_stdout, reason = "it reports to a person")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{AppendError, Event, FileLog, Log, Options, RealDisk};
use kernel::Index;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("the folder to write in");
    let seconds = arguments.next().map_or(3, |text| text.parse().expect("a number of seconds"));
    let folder = Path::new(&folder);
    for (payload_bytes, in_flight) in [(200, 1), (200, 64), (200, 4096), (16384, 1), (16384, 64)] {
        let dir = folder.join(format!("log-{payload_bytes}-{in_flight}"));
        // Alternating, because a shared disk is not the same from one second to the next.
        let mut ratios = Vec::new();
        for _ in 0..3 {
            let time = Duration::from_secs(seconds);
            let (batches, took) = run_log(&dir, payload_bytes, in_flight, time);
            let bare = run_bare(&folder.join("bare"), payload_bytes, &batches);
            let entries: u64 = batches.iter().sum();
            println!(
                "{payload_bytes:>6} B, {in_flight:>4} in flight: {:>9.0} entries/s, {:>6.0} syncs/s, \
                 {:>6.1} MB/s, {:.2} of bare",
                entries as f64 / took.as_secs_f64(),
                batches.len() as f64 / took.as_secs_f64(),
                (entries * payload_bytes as u64) as f64 / took.as_secs_f64() / 1e6,
                bare.as_secs_f64() / took.as_secs_f64()
            );
            ratios.push(bare.as_secs_f64() / took.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        println!("        median {:.2} of bare", ratios[1]);
        std::fs::remove_dir_all(&dir).expect("the log can be removed");
    }
    for payload_bytes in [50, 200, 16384] {
        let dir = folder.join("read");
        fill(&dir, payload_bytes);
        read_back(&dir, payload_bytes);
        std::fs::remove_dir_all(&dir).expect("the log can be removed");
    }
    std::fs::remove_file(folder.join("bare")).expect("the file can be removed");
}

fn open(dir: &Path) -> (FileLog, Receiver<Event>) {
    let (sender, receiver) = channel();
    let sink = Arc::new(move |event| {
        // The receiver is gone only at the end.
        let _ = sender.send(event);
    });
    let log = FileLog::open(Arc::new(RealDisk), dir, &Options::default(), sink);
    (log.expect("the log opens"), receiver)
}

/// Keeps `in_flight` entries in flight; says how many entries each sync covered.
fn run_log(
    dir: &Path,
    payload_bytes: usize,
    in_flight: u64,
    time: Duration,
) -> (Vec<u64>, Duration) {
    let (mut log, events) = open(dir);
    let payload = Bytes::from(vec![0x5a; payload_bytes]);
    let mut durable = Index(log.next_index().0 - 1);
    let mut batches = Vec::new();
    let began = Instant::now();
    loop {
        let running = began.elapsed() < time;
        let mut no_room = false;
        while running && !no_room && log.next_index().0 - 1 - durable.0 < in_flight {
            match log.append(payload.clone()) {
                Ok(_) => {}
                Err(AppendError::NoRoom) => no_room = true,
                Err(e) => panic!("{e}"),
            }
        }
        if !running && durable.next() == log.next_index() {
            return (batches, began.elapsed());
        }
        match events.recv().expect("the log is open") {
            Event::Durable(last) => {
                batches.push(last.0 - durable.0);
                durable = last;
                if batches.len() % 64 == 0 {
                    log.trim(durable).expect("the log can be trimmed");
                }
            }
            Event::Room => {}
            Event::Lost(cause) => panic!("{cause}"),
        }
    }
}

/// Writes and syncs the same batches, over bytes that were written before, as the log does.
fn run_bare(path: &Path, payload_bytes: usize, batches: &[u64]) -> Duration {
    let entry_bytes = (payload_bytes + 48).next_multiple_of(8);
    let file_bytes = 64 << 20;
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path);
    let file = file.expect("the file can be made");
    file.write_all_at(&vec![0; file_bytes], 0).expect("it can be filled");
    file.sync_all().expect("it can be synced");
    let most = usize::try_from(*batches.iter().max().expect("some")).expect("few");
    let buffer = vec![0x5a; most * entry_bytes];
    let mut at = 0;
    let began = Instant::now();
    for batch in batches {
        let bytes = usize::try_from(*batch).expect("few") * entry_bytes;
        if at + bytes > file_bytes {
            at = 0;
        }
        file.write_all_at(&buffer[..bytes], at as u64).expect("it can be written");
        file.sync_data().expect("it can be synced");
        at += bytes;
    }
    began.elapsed()
}

/// A quarter of a gigabyte of entries.
fn fill(dir: &Path, payload_bytes: usize) {
    let (mut log, events) = open(dir);
    let payload = Bytes::from(vec![0x5a; payload_bytes]);
    let mut left = (256 << 20) / (payload_bytes + 48);
    while left > 0 {
        match log.append(payload.clone()) {
            Ok(_) => left -= 1,
            Err(AppendError::NoRoom) => {
                while events.recv().expect("the log is open") != Event::Room {}
            }
            Err(e) => panic!("{e}"),
        }
    }
}

fn read_back(dir: &Path, payload_bytes: usize) {
    let began = Instant::now();
    let (log, _events) = open(dir);
    let opened = began.elapsed();
    let mut count = 0u64;
    let mut bytes = 0u64;
    let began = Instant::now();
    log.replay(log.first_index(), &mut |record| {
        count += 1;
        bytes += 48 + record.payload.len() as u64;
        true
    })
    .expect("the log can be read");
    let took = began.elapsed().as_secs_f64();
    println!(
        "{payload_bytes:>6} B: replay {:.2} million entries/s, {:.2} GB/s ({count} entries); opened in {opened:?}",
        count as f64 / took / 1e6,
        bytes as f64 / took / 1e9
    );
}
