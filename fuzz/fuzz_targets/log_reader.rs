//! Any bytes in a segment file are opened or refused, never a panic, never an endless loop; and
//! what opens once opens again with the same entries.
//!
//! The first byte says what the rest is: a segment as it stands, or patches on a sound log, which
//! get past the checksums.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use journal::inspect::{Verdict, inspect_on};
use journal::{Log, Options, SimDisk, SimLog};
use libfuzzer_sys::fuzz_target;

const SEGMENT_BYTES: u64 = 8192;

fn options() -> Options {
    Options { segment_bytes: SEGMENT_BYTES, reserve_bytes: 0, ..Options::default() }
}

fn dir() -> &'static Path {
    Path::new("/log")
}

fn segment(number: u64) -> PathBuf {
    dir().join(format!("{number:020}.log"))
}

/// Three segments, two epochs, entries of many lengths, some of them in flight together.
fn sound() -> &'static [Vec<u8>] {
    static SOUND: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let disk = SimDisk::new(11);
        for epoch in 0..2u8 {
            let (mut log, handle) =
                SimLog::open(&disk, dir(), &options(), Arc::new(|_| {})).expect("a new log opens");
            handle.upkeep();
            for length in [0usize, 5, 700, 0, 1200, 64, 900] {
                log.append(Bytes::from(vec![epoch; length])).expect("there is room");
                if length != 0 {
                    handle.step();
                }
            }
            handle.step();
        }
        (1..).map_while(|number| disk.get(&segment(number))).collect()
    })
}

/// Writes patches over the files: number of the file, offset, length, bytes.
fn patch(files: &mut [Vec<u8>], mut patches: &[u8]) {
    while let [file, low, high, length, rest @ ..] = patches {
        let count = files.len();
        let bytes = &mut files[usize::from(*file) % count];
        let offset = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
        let length = usize::from(*length).min(rest.len()).min(bytes.len() - offset);
        bytes[offset..offset + length].copy_from_slice(&rest[..length]);
        patches = &rest[length..];
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else { return };
    let disk = SimDisk::new(1);
    if mode % 2 == 0 {
        let mut bytes = rest.to_vec();
        // Half of them long enough to get past the check of the length.
        if mode % 4 == 0 {
            bytes.resize(bytes.len().max(8192), 0);
        }
        disk.put(&segment(1), &bytes);
    } else {
        let mut files = sound().to_vec();
        patch(&mut files, rest);
        for (number, bytes) in (1..).zip(&files) {
            disk.put(&segment(number), bytes);
        }
    }
    check(&disk);
});

fn check(disk: &SimDisk) {
    let report = inspect_on(disk, dir()).expect("the simulated disk can be read");
    let opens = matches!(report.verdict, Verdict::Sound | Verdict::TornTail { .. });
    let opened = SimLog::open(disk, dir(), &options(), Arc::new(|_| {}));
    assert_eq!(opens, opened.is_ok(), "the report says what opening does");
    let Ok((mut log, handle)) = opened else { return };
    let first = entries(&log);
    assert_eq!(first.len() as u64, report.entry_count + 1);
    handle.upkeep();
    let appended = log.append(Bytes::from_static(b"one more")).is_ok();
    handle.step();
    drop(log);
    let (log, _) =
        SimLog::open(disk, dir(), &options(), Arc::new(|_| {})).expect("it opened before");
    let again = entries(&log);
    assert_eq!(again[..first.len()], first);
    assert_eq!(again.len(), first.len() + 1 + usize::from(appended));
}

fn entries(log: &SimLog) -> Vec<journal::Record> {
    let mut records = Vec::new();
    log.replay(log.first_index(), &mut |record| {
        records.push(record);
        true
    })
    .expect("an opened log can be read");
    records
}
