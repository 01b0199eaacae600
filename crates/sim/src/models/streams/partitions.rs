//! Partitions, plainly: a list of records.

use kernel::TenantId;
use streams::{APPEND_RECORDS_MAX, Append, Appended, Record, Refusal, Reply, Retention};

use super::{PartitionName, StreamsModel};

/// A list of records, from the first that was seen to be kept.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) name: PartitionName,
    pub(super) version: u64,
    pub(super) retention: Retention,
    pub(super) next: u64,
    pub(super) last_ms: u64,
    pub(super) records: Vec<Record>,
    /// The least that was to be kept at any time since the rows were last looked at.
    pub(super) age_ms: Option<u64>,
    pub(super) bytes: Option<u64>,
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Partition {
    fn new(name: PartitionName, version: u64, retention: Retention) -> Partition {
        Partition {
            name,
            version,
            retention,
            next: 0,
            last_ms: 0,
            records: Vec::new(),
            age_ms: retention.age_ms,
            bytes: retention.bytes,
        }
    }

    pub(super) fn take_settings(&mut self, version: u64, retention: Retention) {
        if version > self.version {
            (self.version, self.retention) = (version, retention);
            self.age_ms = least(self.age_ms, retention.age_ms);
            self.bytes = least(self.bytes, retention.bytes);
        }
    }

    /// The rows were looked at: what was to be kept before does not matter any more.
    pub(super) fn looked_at(&mut self) {
        (self.age_ms, self.bytes) = (self.retention.age_ms, self.retention.bytes);
    }
}

impl StreamsModel {
    /// Settings by letter; they open a partition that was not open.
    pub(super) fn take_settings(
        &mut self,
        name: PartitionName,
        version: u64,
        retention: Retention,
    ) {
        if let Some(partition) = self.partition(name) {
            partition.take_settings(version, retention);
        } else if !self.gone.iter().any(|(gone, _)| *gone == name) {
            self.partitions.push(Partition::new(name, version, retention));
        }
    }

    pub(super) fn append(&mut self, tenant: TenantId, append: Append) -> Reply {
        if append.records.len() > APPEND_RECORDS_MAX {
            return Reply::Refused(Refusal::TooMany);
        }
        let Append { id, partition, version, retention, records } = append;
        let (name, now_ms) = ((tenant, id, partition), self.now_ms);
        if self.partition(name).is_none() {
            if self.gone.iter().any(|(gone, _)| *gone == name) {
                return Reply::Refused(Refusal::Gone);
            }
            let mut ledger = self.ledger.borrow_mut();
            if !ledger.is_live(tenant, id) {
                ledger.reopened.insert(id);
            }
            self.partitions.push(Partition::new(name, version, retention));
        }
        let partition = self.partition(name).expect("made above");
        partition.take_settings(version, retention);
        let first = partition.next;
        for new in records {
            let (offset, at_ms) = (partition.next, now_ms);
            partition.records.push(Record { offset, at_ms, key: new.key, value: new.value });
            partition.next += 1;
            partition.last_ms = now_ms;
        }
        let count = u32::try_from(partition.next - first).expect("few");
        Reply::Appended(Appended { first, count, at_ms: now_ms })
    }
}
