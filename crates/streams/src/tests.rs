//! What must hold, one sentence a test.

mod format;
mod groups;
mod partitions;

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::TenantId;
use kernel::machine::machine_key;
use kernel::rig::Rig;
use kernel::rows::Scan;

use crate::partition::ROW_BYTES;
use crate::run::Run;
use crate::state::{Partition, part_key, read};
use crate::*;

const TENANT: TenantId = TenantId(7);
const START_MS: u64 = 1_000_000_000;
const CLICKS: &str = "clicks";
const MANY: (usize, usize) = (usize::MAX, usize::MAX);
const HOUR_MS: u64 = 60 * 60 * 1000;

struct Bench {
    rig: Rig<Streams>,
}

fn settings(partitions: u16) -> Settings {
    Settings { partitions, retention: Retention { age_ms: Some(HOUR_MS), bytes: None } }
}

/// A stream with so many partitions, which keeps records for an hour.
fn bench(partitions: u16) -> Bench {
    kept(partitions, settings(partitions).retention)
}

fn kept(partitions: u16, retention: Retention) -> Bench {
    let mut bench = Bench { rig: Rig::new(Streams, START_MS) };
    let created = bench.create(CLICKS, Settings { partitions, retention });
    assert!(matches!(created, Reply::Created { new: true, .. }));
    bench
}

fn record(value: impl Into<Bytes>) -> NewRecord {
    NewRecord { key: None, value: value.into() }
}

fn values(records: &[Record]) -> Vec<String> {
    records.iter().map(|r| String::from_utf8(r.value.to_vec()).expect("sent as text")).collect()
}

impl Bench {
    fn apply(&mut self, command: &Command) -> Reply {
        let reply = self.rig.apply(TENANT, &command.encode()).expect("readable");
        self.check();
        Reply::decode(&reply).expect("a reply")
    }

    fn create(&mut self, name: &str, settings: Settings) -> Reply {
        self.apply(&Command::Create(Create { stream: name.into(), settings }))
    }

    fn delete(&mut self) -> Reply {
        self.apply(&Command::Delete { stream: CLICKS.into() })
    }

    fn update(&mut self, settings: Settings) -> Reply {
        let version = self.definition().version;
        self.apply(&Command::Update(Update { stream: CLICKS.into(), version, settings }))
    }

    fn definition(&self) -> Definition {
        stream(&self.rig.rows, TENANT, CLICKS).expect("it is there")
    }

    fn append_to(&mut self, id: StreamId, partition: u16, records: Vec<NewRecord>) -> Reply {
        let known = stream(&self.rig.rows, TENANT, CLICKS);
        let (version, retention) =
            known.map_or((1, Retention::default()), |d| (d.version, d.settings.retention));
        self.apply(&Command::Append(Append { id, partition, version, retention, records }))
    }

    /// Appends to the first partition.
    fn append(&mut self, records: Vec<NewRecord>) -> Appended {
        match self.append_to(self.definition().id, 0, records) {
            Reply::Appended(appended) => appended,
            other => panic!("{other:?}"),
        }
    }

    fn info(&self, id: StreamId, number: u16) -> PartitionInfo {
        let row = self.rig.rows.get(&partition_row(TENANT, id, number));
        row.map_or_else(PartitionInfo::default, |row| partition(&row))
    }

    /// Of the first partition.
    fn ends(&self) -> (u64, u64) {
        let info = self.info(self.definition().id, 0);
        (info.start, info.next)
    }

    fn fetch(&self, from: u64) -> Vec<Record> {
        fetch(&self.rig.rows, TENANT, self.definition().id, 0, from, MANY).records
    }

    /// Of the first partition: chunks and loose rows.
    fn runs(&self) -> (usize, usize) {
        let prefix = part_key(TENANT, b'r', self.definition().id, 0);
        let runs = self.rig.rows.scan(&Scan::prefix(&prefix));
        let chunks = runs.iter().filter(|(_, row)| Run::decode(row).head.packed).count();
        (chunks, runs.len() - chunks)
    }

    fn advance(&mut self, ms: u64) {
        self.rig.advance(ms);
        self.check();
    }

    /// What is counted is what rows hold, and offsets have no gap.
    fn check(&self) {
        let of_kind = |kind| self.rig.rows.scan(&Scan::prefix(&machine_key(MACHINE, kind, TENANT)));
        let mut bytes = 0;
        let mut chunks = 0;
        for (key, row) in of_kind(b'p') {
            let partition: Partition = read(&row);
            let mut prefix = key.to_vec();
            prefix[2] = b'r';
            let runs = self.rig.rows.scan(&Scan::prefix(&prefix));
            let (mut next, mut last_ms) = (partition.start, 0);
            let (mut loose_rows, mut loose_bytes, mut stored, mut packed) = (0, 0, 0, 0);
            for (key, row) in runs {
                let run = Run::decode(&row);
                assert_eq!(key[prefix.len()..], run.head.first.to_be_bytes());
                assert_eq!((run.head.first, run.head.first_ms >= last_ms), (next, true));
                assert_eq!(run.records().count(), run.head.count as usize);
                assert_eq!(run.records().last().map(|r| r.at_ms), Some(run.head.last_ms));
                (next, last_ms) = (run.head.next(), run.head.last_ms);
                stored += row.len() as u64 + ROW_BYTES;
                if run.head.packed {
                    chunks += 1;
                    packed += row.len() as u64 + ROW_BYTES;
                    assert_eq!(loose_rows, 0, "chunks are first");
                } else {
                    loose_rows += 1;
                    loose_bytes += u64::from(run.head.raw_bytes);
                }
            }
            assert_eq!(next, partition.next);
            let counted = (partition.loose_rows, partition.loose_bytes, partition.bytes);
            assert_eq!((loose_rows, loose_bytes, stored), counted);
            assert_eq!(packed, partition.chunk_bytes);
            bytes += stored;
        }
        assert_eq!(of_kind(b'i').len(), chunks, "each chunk is found by time");
        assert_eq!(of_kind(b'h').len(), chunks, "each chunk can be dropped");
        let usage = self.rig.ground.usage()[&TENANT];
        let entities = of_kind(b'd').len() + of_kind(b'g').len();
        assert_eq!((usage.bytes, usage.entities), (bytes.cast_signed(), entities as i64));
        for (key, view) in &self.rig.views {
            let row = self.rig.rows.get(key);
            // Who watches for lost members is nothing to look at.
            if key[2] == b'g' {
                assert_eq!(row.map(|row| group(&row)), Some(group(view)));
            } else {
                assert_eq!(row.as_ref(), Some(view));
            }
        }
        self.check_groups();
    }

    /// Every partition of a group with members has one owner, and counts differ by one at most.
    fn check_groups(&self) {
        let groups = self.rig.rows.scan(&Scan::prefix(&machine_key(MACHINE, b'g', TENANT)));
        for (_, row) in groups {
            let Group { owners, partitions, epoch, .. } = group(&row);
            let mut owned: Vec<u16> = owners.values().flatten().map(|(p, _)| *p).collect();
            owned.sort_unstable();
            let all = if owners.is_empty() { 0 } else { partitions };
            assert_eq!(owned, (0..all).collect::<Vec<_>>());
            let counts = || owners.values().map(Vec::len);
            assert!(counts().max().unwrap_or(0) - counts().min().unwrap_or(0) <= 1);
            assert!(owners.values().flatten().all(|(_, since)| *since <= epoch));
        }
    }
}

#[test]
fn a_stream_is_made_once_and_again_with_the_same_settings_is_the_same() {
    let mut bench = bench(3);
    let id = bench.definition().id;
    assert_eq!(bench.create(CLICKS, settings(3)), Reply::Created { id, new: false });
    assert_eq!(bench.create(CLICKS, settings(4)), Reply::Refused(Refusal::Exists));
    assert_eq!(names(&bench.rig.rows, TENANT, "", "", 10), [CLICKS]);
    assert_eq!(names(&bench.rig.rows, TENANT, "x", "", 10), [""; 0]);
    assert_eq!(names(&bench.rig.rows, TENANT, "", CLICKS, 10), [""; 0]);
}

#[test]
fn settings_change_from_the_version_they_were_read_in_and_partitions_only_grow() {
    let mut bench = bench(3);
    assert_eq!(bench.update(settings(5)), Reply::Updated { version: 2 });
    assert_eq!(bench.update(settings(4)), Reply::Refused(Refusal::FewerPartitions));
    let stale = Update { stream: CLICKS.into(), version: 1, settings: settings(9) };
    assert_eq!(bench.apply(&Command::Update(stale)), Reply::Refused(Refusal::Version));
    let nothing = Update { stream: "nothing".into(), version: 1, settings: settings(9) };
    assert_eq!(bench.apply(&Command::Update(nothing)), Reply::Refused(Refusal::NoStream));
    assert_eq!(bench.definition().settings.partitions, 5);
}

#[test]
fn a_deleted_stream_leaves_nothing_and_one_of_its_name_is_another() {
    let mut bench = bench(2);
    let id = bench.definition().id;
    for partition in 0..2 {
        for _ in 0..300 {
            bench.append_to(id, partition, vec![record("x")]);
        }
    }
    bench.rig.checkpoint();
    bench.append(vec![record("y")]);
    assert_eq!(bench.delete(), Reply::Deleted);
    assert_eq!(bench.delete(), Reply::Refused(Refusal::NoStream));
    // Whoever looked the stream up before it was deleted does not bring it back.
    for partition in 0..2 {
        let late = bench.append_to(id, partition, vec![record("late")]);
        assert_eq!(late, Reply::Refused(Refusal::Gone));
    }
    assert!(matches!(bench.create(CLICKS, settings(2)), Reply::Created { new: true, .. }));
    assert_ne!(bench.definition().id, id);
    assert_eq!((bench.ends(), bench.fetch(0).len()), ((0, 0), 0));
    bench.delete();
    bench.advance(2 * GONE_KEPT_MS);
    let left = bench.rig.rows.scan(&Scan::prefix(&MACHINE.0.to_be_bytes()));
    assert_eq!(left, [], "no row is left");
    assert!(bench.rig.views.is_empty());
}

#[test]
fn keys_are_spread_and_stay_where_they_are() {
    let mut counts = BTreeMap::new();
    for number in 0..10_000_u32 {
        let key = number.to_be_bytes();
        assert_eq!(partition_of(&key, 1), 0);
        *counts.entry(partition_of(&key, 16)).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 16);
    assert!(counts.values().all(|count| (500..750).contains(count)), "{counts:?}");
    // Frozen: another partition for a key would put its records out of order.
    assert_eq!((partition_of(b"ann", 16), partition_of(b"", 1024)), (7, 458));
}
