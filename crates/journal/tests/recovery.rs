//! The rows of the decision table that a crash test may not reach by chance.

mod common;

use bytes::Bytes;
use common::{Rig, bytes_of, dir, replay, segment, small};
use journal::conformance::Heard;
use journal::disk::Faults;
use journal::inspect::{Verdict, entries_on, inspect_on};
use journal::{Event, Kind, Log, OpenError, Record, SimDisk, SimLog};
use kernel::{Epoch, Index};

const ENTRIES_AT: usize = 4096;
const HEADER: usize = 48;

/// A log with entries of these payload lengths, each committed on its own.
fn log_of(lengths: &[usize]) -> Rig {
    let mut rig = Rig::new(7);
    rig.reopen();
    for (n, length) in lengths.iter().enumerate() {
        rig.append(Bytes::from(vec![u8::try_from(n).expect("few"); *length]));
        rig.handle().step();
    }
    rig.note_durable();
    rig
}

/// The same, but all in flight at once: no entry proves another.
fn in_flight(lengths: &[usize]) -> Rig {
    let mut rig = Rig::new(7);
    rig.reopen();
    for (n, length) in lengths.iter().enumerate() {
        rig.append(Bytes::from(vec![u8::try_from(n).expect("few"); *length]));
    }
    rig.handle().complete(usize::MAX);
    rig
}

fn open(disk: &SimDisk) -> Result<Vec<Record>, OpenError> {
    disk.restart();
    let (log, _) = SimLog::open(disk, &dir(), &small(), Heard::new().sink())?;
    Ok(replay(&log))
}

fn wipe(disk: &SimDisk, path: &std::path::Path, from: usize, count: usize) {
    let mut bytes = bytes_of(disk, path);
    bytes[from..from + count].fill(0);
    disk.put(path, &bytes);
}

fn shape(records: &[Record]) -> Vec<(u64, u64, Kind)> {
    records.iter().map(|record| (record.index.0, record.epoch.0, record.kind)).collect()
}

#[test]
fn a_bad_entry_that_a_later_one_proves_durable_is_corruption() {
    let rig = log_of(&[100, 100, 100]);
    let second_at = ENTRIES_AT + HEADER + (HEADER + 104);
    for (from, count) in [(second_at, HEADER + 104), (second_at + 60, 1), (second_at, 1)] {
        let disk = SimDisk::new(0);
        disk.put(&segment(1), &bytes_of(&rig.disk, &segment(1)));
        let mut bytes = bytes_of(&disk, &segment(1));
        bytes[from..from + count].iter_mut().for_each(|byte| *byte ^= 0x55);
        disk.put(&segment(1), &bytes);
        match open(&disk) {
            Err(OpenError::Corrupt { file, offset, .. }) => {
                assert!(file.ends_with("00000000000000000001.log"));
                assert_eq!(offset, second_at as u64);
            }
            other => panic!("opened: {other:?}"),
        }
    }
}

#[test]
fn a_bad_entry_among_those_in_flight_is_cut() {
    let rig = in_flight(&[100, 100, 100]);
    let second_at = ENTRIES_AT + HEADER + (HEADER + 104);
    wipe(&rig.disk, &segment(1), second_at, 512);
    let report = inspect_on(&rig.disk, &dir()).expect("it can be read");
    assert!(matches!(report.verdict, Verdict::Sound), "{report:?}");
    let records = open(&rig.disk).expect("it opens");
    assert_eq!(shape(&records), [(1, 1, Kind::Barrier), (2, 1, Kind::Data), (3, 2, Kind::Barrier)]);
}

#[test]
fn entries_behind_a_cut_never_come_back() {
    // Empty payloads: the barrier takes exactly the place of the entry that was lost, and the
    // old entry behind it has exactly the next index.
    let rig = in_flight(&[0, 0, 0, 0, 0]);
    let third_at = ENTRIES_AT + 2 * HEADER;
    wipe(&rig.disk, &segment(1), third_at, HEADER);
    let torn = inspect_on(&rig.disk, &dir()).expect("it can be read");
    assert_eq!(
        torn.verdict,
        Verdict::TornTail {
            file: "00000000000000000001.log".into(),
            offset: third_at as u64,
            bytes: 4 * HEADER as u64,
        }
    );
    let records = open(&rig.disk).expect("it opens");
    assert_eq!(shape(&records), [(1, 1, Kind::Barrier), (2, 1, Kind::Data), (3, 2, Kind::Barrier)]);
    // Nothing was appended after the barrier, so the old entry 4 of epoch 1 follows it directly.
    let records = open(&rig.disk).expect("it opens");
    assert_eq!(shape(&records)[2..], [(3, 2, Kind::Barrier), (4, 3, Kind::Barrier)]);
    let records = open(&rig.disk).expect("it opens");
    assert_eq!(
        shape(&records)[2..],
        [(3, 2, Kind::Barrier), (4, 3, Kind::Barrier), (5, 4, Kind::Barrier)]
    );
}

#[test]
fn a_later_segment_proves_the_earlier_one() {
    let rig = log_of(&[1500, 1500, 1500, 1500, 1500]);
    assert!(rig.disk.get(&segment(2)).is_some());
    let second_at = ENTRIES_AT + HEADER + HEADER + 1504;
    wipe(&rig.disk, &segment(1), second_at, HEADER + 1504);
    match open(&rig.disk) {
        Err(OpenError::Corrupt { file, offset, .. }) => {
            assert!(file.ends_with("00000000000000000001.log"));
            assert_eq!(offset, second_at as u64);
        }
        other => panic!("opened: {other:?}"),
    }
}

#[test]
fn a_missing_segment_is_corruption() {
    let rig = log_of(&[1500; 8]);
    rig.disk.take(&segment(2));
    match open(&rig.disk) {
        Err(OpenError::Corrupt { file, .. }) => {
            assert!(file.ends_with("00000000000000000002.log"));
        }
        other => panic!("opened: {other:?}"),
    }
}

#[test]
fn a_foreign_file_is_left_alone() {
    let rig = log_of(&[1500; 8]);
    let other = {
        let mut other = Rig::new(99);
        other.reopen();
        bytes_of(&other.disk, &segment(1))
    };
    let good = bytes_of(&rig.disk, &segment(1));
    let renamed = bytes_of(&rig.disk, &segment(2));
    let mut version = good.clone();
    version[8] = 9;
    version[12..16].fill(0);
    let crc = crc32c::crc32c(&version[..64]);
    version[12..16].copy_from_slice(&crc.to_le_bytes());
    for foreign in [b"# notes\n".to_vec(), renamed, version, vec![0; 8192]] {
        rig.disk.put(&segment(1), &foreign);
        assert!(matches!(open(&rig.disk), Err(OpenError::Foreign { .. })));
        assert_eq!(bytes_of(&rig.disk, &segment(1)), foreign, "nothing was written");
    }
    rig.disk.put(&segment(1), &good);
    rig.disk.put(&segment(2), &{
        // The other log's bytes, under the number that is expected here.
        let mut bytes = other;
        bytes[32..40].copy_from_slice(&2u64.to_le_bytes());
        bytes[12..16].fill(0);
        let crc = crc32c::crc32c(&bytes[..64]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    });
    assert!(matches!(open(&rig.disk), Err(OpenError::Foreign { .. })));
}

#[test]
fn any_flipped_bit_is_found_or_harmless() {
    let rig = log_of(&[700, 10, 900, 1300, 0, 40, 2000, 500, 600]);
    let mut whole = Vec::new();
    let report = entries_on(&rig.disk, &dir(), &mut |entry| whole.push(entry.clone()))
        .expect("it can be read");
    assert_eq!(report.verdict, Verdict::Sound);
    for number in 1..=3 {
        let good = bytes_of(&rig.disk, &segment(number));
        for at in 0..good.len() {
            rig.disk.flip_bit(&segment(number), at, u8::try_from(at % 8).expect("small"));
            let mut seen = Vec::new();
            let report = entries_on(&rig.disk, &dir(), &mut |entry| seen.push(entry.clone()))
                .expect("it can be read");
            let refused =
                matches!(report.verdict, Verdict::Corrupt { .. } | Verdict::Foreign { .. });
            // Only the last entry has nothing after it that proves it.
            assert!(refused || seen.len() + 1 >= whole.len(), "segment {number}, byte {at}");
            assert_eq!(seen[..], whole[..seen.len()]);
            rig.disk.flip_bit(&segment(number), at, u8::try_from(at % 8).expect("small"));
        }
    }
}

#[test]
fn a_recycled_segment_shows_nothing_of_its_earlier_life() {
    let mut rig = log_of(&[1500; 6]);
    for round in 0..20u8 {
        let before = rig.log().next_index();
        rig.trim(before);
        rig.handle().step();
        rig.append(Bytes::from(vec![round; 1500]));
        rig.handle().step();
        rig.note_durable();
    }
    let held = rig.log().disk_bytes();
    assert!(held <= 8 * 8192, "trimmed segments are used again: {held}");
    rig.kill();
    rig.reopen();
}

#[test]
fn replay_refuses_an_entry_that_went_bad_since_it_was_opened() {
    let mut rig = log_of(&[100, 100, 100]);
    rig.disk.flip_bit(&segment(1), ENTRIES_AT + HEADER + 90, 3);
    let read = rig.log().replay(Index(1), &mut |_| true);
    assert!(matches!(read, Err(journal::LogError::Corrupt { offset, .. })
        if offset == (ENTRIES_AT + HEADER) as u64));
}

#[test]
fn inspecting_says_whether_it_is_in_use_and_writes_nothing() {
    let mut rig = log_of(&[100, 200]);
    let changes = rig.disk.change_count();
    let report = inspect_on(&rig.disk, &dir()).expect("it can be read");
    assert!(report.in_use);
    assert_eq!((report.first, report.last, report.epoch), (Index(1), Index(3), Epoch(1)));
    assert_eq!((report.entry_count, report.payload_bytes), (3, 300));
    rig.kill();
    assert!(!inspect_on(&rig.disk, &dir()).expect("it can be read").in_use);
    assert_eq!(rig.disk.change_count(), changes);
}

#[test]
fn room_follows_no_room_even_if_the_disk_is_full_by_then() {
    let mut rig = Rig::new(5);
    rig.reopen();
    rig.disk.set_free_bytes(0);
    while rig.log().append(Bytes::from(vec![1; 1000])).is_ok() {}
    assert_eq!(rig.log().append(Bytes::from(vec![1; 1000])), Err(journal::AppendError::NoRoom));
    rig.handle().upkeep();
    assert_eq!(rig.heard().all(), [Event::Room]);
    for _ in 0..3 {
        let refused = rig.log().append(Bytes::from(vec![1; 1000]));
        assert_eq!(refused, Err(journal::AppendError::DiskFull));
        rig.handle().upkeep();
        assert_eq!(rig.heard().all().len(), 1, "no news while it stays full");
    }
    rig.disk.set_free_bytes(1 << 20);
    assert!(rig.log().append(Bytes::from(vec![1; 1000])).is_err());
    rig.handle().upkeep();
    assert_eq!(rig.heard().all(), [Event::Room, Event::Room]);
    rig.log().append(Bytes::from(vec![1; 1000])).expect("there is room");
}

#[test]
fn short_writes_are_completed() {
    let mut rig = Rig::new(6);
    rig.reopen();
    rig.disk.set_faults(Faults { short_write_bytes: Some(100), ..Faults::default() });
    for n in 0..10 {
        rig.append(Bytes::from(vec![n; 700]));
        rig.handle().step();
    }
    rig.note_durable();
    assert_eq!(rig.sure.len(), 10);
    rig.crash(1);
    rig.reopen();
}
