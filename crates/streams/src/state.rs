//! How streams lie in rows.
//!
//! ```text
//!   kind  after machine, kind and tenant      value
//!   'd'   name                                Stream: id, version, settings
//!   'g'   stream, group                       Group: epoch, who owns what
//!   'm'   stream, group, member               Seen: when a member was last heard of, and told
//!   'o'   stream, group, partition            the next offset, as committed
//!   'e'   nothing                             the last epoch of deleted streams
//!   'p'   stream, partition                   Partition: start, next, retention
//!   'r'   stream, partition, first offset     run of records, loose or a chunk
//!   'h'   stream, partition, first offset     Chunk: what there is to know to drop it
//!   'i'   stream, partition, last time,       nothing: a chunk, to be found by time
//!         first offset
//!   'x'   stream, partition                   nothing: the stream is deleted
//! ```
//!
//! 'd', 'g', 'm', 'o' and 'e' are at the stream's home, the others where the partition is. A stream is its
//! id from 'g' on: never used again, so that nothing of a deleted stream shows in one that has its
//! name later.

use std::collections::BTreeMap;

use bytes::BufMut;
use kernel::codec::{read_versioned, unpack, versioned, versioned_as};
use kernel::machine::machine_key;
use kernel::{TenantId, TimerId, Unreadable};
use serde::{Deserialize, Serialize};

use crate::MACHINE;
use crate::command::{Retention, Settings, StreamId};
use crate::query::Member;

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Grows with every change of the settings.
    pub(crate) version: u64,
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    pub(crate) settings: Settings,
    pub(crate) groups: u32,
    /// No group that is gone has had a later epoch.
    pub(crate) last_epoch: u64,
}

/// What a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partition {
    /// Of the stream's settings.
    pub(crate) version: u64,
    pub(crate) retention: Retention,
    /// The offset of the first record that is kept.
    pub(crate) start: u64,
    /// The offset of the next record to come.
    pub(crate) next: u64,
    /// Of all rows of records, as the tenant's quota counts them.
    pub(crate) bytes: u64,
    /// Of these, the chunks.
    pub(crate) chunk_bytes: u64,
    /// The offset of the first record that is in no chunk.
    pub(crate) loose_first: u64,
    pub(crate) loose_rows: u32,
    /// Of their records, unpacked.
    pub(crate) loose_bytes: u64,
    /// When the last record came.
    pub(crate) last_ms: u64,
    /// Fires when the oldest run may be too old, or before.
    pub(crate) sweep: Option<(u64, u64)>,
}

/// What is known of a chunk without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    /// The offset after its last record.
    pub(crate) next: u64,
    /// When its last record came.
    pub(crate) last_ms: u64,
    /// As the tenant's quota counts it.
    pub(crate) bytes: u64,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupRow {
    /// Of a group that was made anew, later than any that the group of its name had before, of this
    /// stream or of a deleted one: a commit that was long under way is not taken for one of its own.
    pub(crate) epoch: u64,
    /// The epoch of the last seek; the first one when there was none.
    pub(crate) sought: u64,
    pub(crate) created_ms: u64,
    /// Those of the stream when they were last dealt out.
    pub(crate) partitions: u16,
    /// The partitions of each member, ascending, and since which epoch.
    pub(crate) owners: BTreeMap<String, Vec<(u16, u64)>>,
    /// Fires when the first member may be lost, or before.
    pub(crate) watch: Option<(u64, u64)>,
    /// The last epoch that a member was told; 0 when there never was one, here or in a group of the stream
    /// that was deleted.
    pub(crate) told: u64,
}

impl GroupRow {
    pub(crate) fn encode(&self) -> Vec<u8> {
        versioned_as(2, self)
    }

    /// Reads a row of this machine's.
    pub(crate) fn decode(row: &[u8]) -> GroupRow {
        read_second("a group of a stream", row)
    }
}

/// When a member was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) session_ms: u64,
    pub(crate) seen_ms: u64,
    /// The epoch that it was told then: it knows of no seek that is later.
    pub(crate) told: u64,
}

impl Seen {
    pub(crate) fn encode(&self) -> Vec<u8> {
        versioned_as(2, self)
    }

    /// Reads a row of this machine's.
    pub(crate) fn decode(row: &[u8]) -> Seen {
        read_second("a member of a group", row)
    }

    pub(crate) fn member(&self) -> Member {
        Member { seen_ms: self.seen_ms, session_ms: self.session_ms }
    }
}

/// What timers carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Alarm {
    /// A partition may have something too old.
    Sweep { id: StreamId, partition: u16 },
    /// Nobody appends to what was deleted so long ago.
    Forget { id: StreamId, partition: u16 },
    /// A group may have lost a member.
    Watch { stream: String, id: StreamId, group: String },
}

pub(crate) fn stream_key(tenant: TenantId, name: &str) -> Vec<u8> {
    let mut key = machine_key(MACHINE, b'd', tenant);
    key.put_slice(name.as_bytes());
    key
}

/// No group of a deleted stream has had a later epoch. There only if time had not caught up with the
/// epochs when a stream was deleted: a stream that is made later begins with the time.
pub(crate) fn past_epoch_key(tenant: TenantId) -> Vec<u8> {
    machine_key(MACHINE, b'e', tenant)
}

/// The beginning of a stream's keys of one kind.
pub(crate) fn key(tenant: TenantId, kind: u8, id: StreamId) -> Vec<u8> {
    let mut key = machine_key(MACHINE, kind, tenant);
    key.put_u16(id.shard);
    key.put_u64(id.number);
    key
}

/// The beginning of a partition's keys of one kind.
pub(crate) fn part_key(tenant: TenantId, kind: u8, id: StreamId, partition: u16) -> Vec<u8> {
    let mut key = key(tenant, kind, id);
    key.put_u16(partition);
    key
}

pub(crate) fn run_key(tenant: TenantId, id: StreamId, partition: u16, first: u64) -> Vec<u8> {
    let mut key = part_key(tenant, b'r', id, partition);
    key.put_u64(first);
    key
}

pub(crate) fn chunk_key(tenant: TenantId, id: StreamId, partition: u16, first: u64) -> Vec<u8> {
    let mut key = part_key(tenant, b'h', id, partition);
    key.put_u64(first);
    key
}

pub(crate) fn index_key(
    tenant: TenantId,
    id: StreamId,
    partition: u16,
    last_ms: u64,
    first: u64,
) -> Vec<u8> {
    let mut key = part_key(tenant, b'i', id, partition);
    key.put_u64(last_ms);
    key.put_u64(first);
    key
}

/// Last time and first offset of an [`index_key`].
pub(crate) fn of_index_key(key: &[u8]) -> (u64, u64) {
    let both = key.last_chunk::<16>().expect("as index_key puts it");
    let (last_ms, first) = both.split_at(8);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    (number(last_ms), number(first))
}

pub(crate) fn group_key(tenant: TenantId, id: StreamId, group: &str) -> Vec<u8> {
    let mut key = key(tenant, b'g', id);
    key.put_slice(group.as_bytes());
    key
}

/// The beginning of a group's rows of a kind. A name is its length and its bytes, so that no group's
/// keys are a prefix of another's.
pub(crate) fn of_group_key(tenant: TenantId, kind: u8, id: StreamId, group: &str) -> Vec<u8> {
    let mut key = key(tenant, kind, id);
    key.put_u16(u16::try_from(group.len()).expect("no group with a longer name is made"));
    key.put_slice(group.as_bytes());
    key
}

pub(crate) fn member_key(tenant: TenantId, id: StreamId, group: &str, member: &str) -> Vec<u8> {
    let mut key = of_group_key(tenant, b'm', id, group);
    key.put_slice(member.as_bytes());
    key
}

pub(crate) fn offset_key(tenant: TenantId, id: StreamId, group: &str, partition: u16) -> Vec<u8> {
    let mut key = of_group_key(tenant, b'o', id, group);
    key.put_u16(partition);
    key
}

pub(crate) fn row<T: Serialize>(value: &T) -> Vec<u8> {
    versioned(value)
}

/// Reads a row of this machine's.
pub(crate) fn read<'a, T: Deserialize<'a>>(row: &'a [u8]) -> T {
    let read: Result<T, Unreadable> = read_versioned("a row of a stream", row);
    read.expect("rows are this machine's alone")
}

/// Reads a row of a kind whose second version has one number more, at its end. In the first nobody was
/// told anything.
fn read_second<T: for<'a> Deserialize<'a>>(what: &'static str, row: &[u8]) -> T {
    let newest = match row {
        [1, body @ ..] => &[body, &[0]].concat(),
        [2, body @ ..] => body,
        _ => panic!("{what} of a version that this binary is too old for"),
    };
    unpack(what, newest).expect("rows are this machine's alone")
}

pub(crate) fn timer(fields: (u64, u64)) -> TimerId {
    TimerId { deadline_ms: fields.0, number: fields.1 }
}
