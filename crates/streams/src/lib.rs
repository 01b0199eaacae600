//! Streams: a log that is kept, and read by many at their own pace.
//!
//! ```text
//!             home (the shard of the name)             partitions (each on a shard of its own)
//!   create ─▶ definition                               append ─▶ ┌─────┬─────┬─────┬───┬─┬─┐
//!   join   ─▶ group ── members own partitions                    │chunk│chunk│chunk│loose  │
//!   commit ─▶   └───── offsets                       old ones ◀─ └─────┴─────┴─────┴───┴─┴─┘
//!   seek   ─▶                                         dropped    start              next
//! ```
//!
//! A partition is a row of *runs* of records under their offsets. An append writes a *loose* run;
//! when many are loose they become a *chunk*, compressed, in the place of the first of them. So a
//! small record costs a few bytes at rest, and a reader finds any offset with one look.
//!
//! A group's members own its partitions, each partition one owner, and may commit what they own.
//! Whenever members come or go the partitions are dealt out again, as few as can be move, and the
//! *epoch* grows: who commits what was fetched before a partition changed hands is refused. The
//! home and the partitions are on different shards, and need nothing of each other: an append
//! carries the settings, and the edge looks offsets up before it commits or seeks.
//!
//! Invariants:
//! - The records of a partition have the offsets from `start` up to `next`, without a gap, in the
//!   order of their appends; their times never go back.
//! - A record is dropped only when all of its run are too old, or when [`Retention::bytes`] of chunks
//!   are after it.
//! - A partition of a group with members has exactly one owner; two members' counts differ by one at
//!   most.
//! - A commit never moves an offset back; a seek does, and makes commits of before it stale: those that
//!   name an earlier epoch, and those that name none of a member who was not told of the seek.
//!
//! `command.rs` says what can be asked and answered, `state.rs` how it lies in rows, `run.rs` how
//! records lie in a run, `apply.rs` what is done to streams, `partition.rs` what is done to
//! partitions, `group.rs` what is done to groups, `deal.rs` who owns what, `query.rs` how it is read
//! without entering the shard.

mod apply;
mod command;
mod deal;
mod group;
mod partition;
mod query;
mod run;
mod state;
#[cfg(test)]
mod tests;

pub use apply::Streams;
pub use command::{
    APPEND_RECORDS_MAX, Append, Appended, Command, Commit, Create, GROUPS_MAX, Join, MEMBERS_MAX,
    NewRecord, Owned, PARTITIONS_MAX, Refusal, Reply, Retention, Seek, Settings, Standing,
    StreamId, Update,
};
pub use partition::GONE_KEPT_MS;
pub use query::{
    Definition, Fetched, Group, Member, PartitionInfo, committed, definition, definition_row,
    fetch, group, group_names, group_row, members, names, offset_at, oldest_ms, partition,
    partition_of, partition_place, partition_row, place, standing, stream, wakes,
};
pub use run::Record;

use kernel::MachineId;

/// This machine's number in every log.
pub const MACHINE: MachineId = MachineId(5);
