//! How streams are read: from rows, on any thread, without entering a shard.
//!
//! What is at the stream's home ([`place`]) and what is at a partition ([`partition_place`]) are read
//! from the rows of different shards.

use std::collections::BTreeMap;

use kernel::id::digest;
use kernel::rows::{ReadRows, Scan};
use kernel::{TenantId, VirtualShard};

use crate::MACHINE;
use crate::command::{Owned, Retention, Settings, Standing, StreamId};
use crate::partition::LOOSE_ROWS_MAX;
use crate::run::{Record, Run};
use crate::state::{
    GroupRow, Partition, Seen, Stream, group_key, index_key, key, member_key, of_group_key,
    of_index_key, offset_key, part_key, read, run_key, stream_key,
};

/// Where a stream's definition and groups live.
#[must_use]
pub fn place(tenant: TenantId, stream: &str) -> VirtualShard {
    VirtualShard::of(tenant, MACHINE, stream.as_bytes())
}

/// Where a partition's records live. A slash is in no stream's name.
#[must_use]
pub fn partition_place(tenant: TenantId, id: StreamId, partition: u16) -> VirtualShard {
    let name = format!("{}/{}/{partition}", id.shard, id.number);
    VirtualShard::of(tenant, MACHINE, name.as_bytes())
}

/// The partition of a key. The same for ever, as long as there are so many partitions.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u16) -> u16 {
    let [a, b, c, d, e, f, g, h, ..] = digest(&[key]);
    let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % u64::from(partitions);
    u16::try_from(number).expect("less than there are partitions")
}

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its id.
    pub id: StreamId,
    /// Of its settings.
    pub version: u64,
    /// When it was made.
    pub created_ms: u64,
    /// When its settings were last changed.
    pub updated_ms: u64,
    /// How it behaves.
    pub settings: Settings,
    /// How many groups it has.
    pub groups: u32,
}

/// The key of the row and view that say what a stream is. At its home.
#[must_use]
pub fn definition_row(tenant: TenantId, name: &str) -> Vec<u8> {
    stream_key(tenant, name)
}

/// Reads the value of [`definition_row`].
#[must_use]
pub fn definition(value: &[u8]) -> Definition {
    let Stream { id, version, created_ms, updated_ms, settings, groups, .. } = read(value);
    Definition { id, version, created_ms, updated_ms, settings, groups }
}

/// What a stream is; `None` when there is none of this name. At its home.
#[must_use]
pub fn stream(rows: &impl ReadRows, tenant: TenantId, name: &str) -> Option<Definition> {
    rows.get(&stream_key(tenant, name)).map(|row| definition(&row))
}

/// The names of a tenant's streams in a shard: those that begin with `beginning` and come after
/// `after`, at most `limit`.
#[must_use]
pub fn names(
    rows: &impl ReadRows,
    tenant: TenantId,
    beginning: &str,
    after: &str,
    limit: usize,
) -> Vec<String> {
    let prefix = stream_key(tenant, beginning);
    let scan = Scan::prefix(&prefix).after(&stream_key(tenant, after)).limit(limit);
    last_names(rows, &scan, stream_key(tenant, "").len())
}

fn last_names(rows: &impl ReadRows, scan: &Scan, prefix_bytes: usize) -> Vec<String> {
    let name = |key: &[u8]| String::from_utf8(key[prefix_bytes..].to_vec());
    rows.scan(scan).iter().map(|(key, _)| name(key).expect("put from a string")).collect()
}

/// What a partition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionInfo {
    /// The offset of the first record that is kept; [`PartitionInfo::next`] when none is.
    pub start: u64,
    /// The offset of the next record to come.
    pub next: u64,
    /// As they are stored.
    pub bytes: u64,
    /// When the last record came; 0 when none ever did.
    pub last_ms: u64,
    /// The version of the settings that it knows.
    pub version: u64,
    /// What it keeps.
    pub retention: Retention,
}

impl PartitionInfo {
    /// Records that a group has before it which has committed this.
    #[must_use]
    pub fn lag(&self, committed: Option<u64>) -> u64 {
        self.next.saturating_sub(self.from(committed))
    }

    /// Where a group goes on which has committed this.
    #[must_use]
    pub fn from(&self, committed: Option<u64>) -> u64 {
        committed.unwrap_or(0).max(self.start)
    }
}

/// The key of the row and view that say what a partition holds, at the partition. Whoever waits for
/// records waits for it. A partition without an append may have none: it is as the default one.
#[must_use]
pub fn partition_row(tenant: TenantId, id: StreamId, partition: u16) -> Vec<u8> {
    part_key(tenant, b'p', id, partition)
}

/// Reads the value of [`partition_row`].
#[must_use]
pub fn partition(value: &[u8]) -> PartitionInfo {
    let Partition { version, retention, start, next, bytes, last_ms, .. } = read(value);
    PartitionInfo { start, next, bytes, last_ms, version, retention }
}

/// Whether those who wait for a view of this machine's are to look again when it is published: of
/// [`partition_row`] and of [`group_row`].
#[must_use]
pub fn wakes(view_key: &[u8]) -> bool {
    matches!(view_key.get(2), Some(b'p' | b'g'))
}

/// What was read of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// What the partition held when the reading began.
    pub info: PartitionInfo,
    /// From the offset asked for, or from the first that is kept, without a gap.
    pub records: Vec<Record>,
}

/// Runs that are looked at in one step, at most.
const RUNS_AT_ONCE: usize = 64;

/// Reads records of a partition from `from` on: at most `max_records`, and no more after `max_bytes`
/// of keys and values; at least one, if there is one. At the partition.
#[must_use]
pub fn fetch(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    number: u16,
    from: u64,
    (max_records, max_bytes): (usize, usize),
) -> Fetched {
    let row = rows.get(&partition_row(tenant, id, number));
    let info = row.map_or_else(PartitionInfo::default, |row| partition(&row));
    let mut records = Vec::new();
    let mut next = from.max(info.start);
    let mut bytes = 0;
    // The first run of a look is the one that `next` is in, wherever it begins: between two looks
    // loose runs may have become a chunk. One is often enough; who finds little looks at more.
    let mut more = 0;
    while next < info.next {
        let runs = runs_from(rows, tenant, id, number, next, more);
        more = (2 * more + 1).min(RUNS_AT_ONCE);
        let before = next;
        for (_, row) in runs {
            let run = Run::decode(&row);
            if run.head.next() <= next {
                continue;
            }
            if run.head.first > next {
                break;
            }
            let from = next;
            for record in run.records().skip_while(|record| record.offset < from) {
                if records.len() >= max_records || !records.is_empty() && bytes >= max_bytes {
                    return Fetched { info, records };
                }
                bytes += record.value.len() + record.key.as_ref().map_or(0, |key| key.len());
                next = record.offset + 1;
                records.push(record);
            }
        }
        if next == before {
            // Dropped, or deleted, since the reading began.
            break;
        }
    }
    Fetched { info, records }
}

type Row = (bytes::Bytes, bytes::Bytes);

/// The run that holds `offset`, if one does, and so many after it.
fn runs_from(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    number: u16,
    offset: u64,
    more: usize,
) -> Vec<Row> {
    let prefix = part_key(tenant, b'r', id, number);
    let here = run_key(tenant, id, number, offset);
    let upto = Scan::prefix(&prefix).before(&run_key(tenant, id, number, offset + 1));
    let mut runs = rows.scan(&upto.reversed().limit(1));
    runs.extend(rows.scan(&Scan::prefix(&prefix).after(&here).limit(more)));
    runs
}

/// The offset of the first record that came at `at_ms` or later; that of the next record to come
/// when none did. At the partition.
#[must_use]
pub fn offset_at(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    number: u16,
    at_ms: u64,
) -> u64 {
    let Some(row) = rows.get(&partition_row(tenant, id, number)) else { return 0 };
    let Partition { start, next, loose_first, .. } = read(&row);
    let within = |run: &Run| {
        let found = run.records().find(|record| record.at_ms >= at_ms);
        found.expect("the last one did").offset
    };
    // Below it the index may be full of what was dropped.
    if let Some(row) = rows.get(&run_key(tenant, id, number, start))
        && let run = Run::decode(&row)
        && run.head.last_ms >= at_ms
    {
        return within(&run);
    }
    let before = index_key(tenant, id, number, at_ms.saturating_sub(1), u64::MAX);
    let scan = Scan::prefix(&part_key(tenant, b'i', id, number)).after(&before).limit(1);
    let chunk = rows.scan(&scan).pop().map(|(key, _)| of_index_key(&key).1);
    // Loose runs are few, and if they have become chunks since, these begin at the same offset.
    let from = chunk.unwrap_or(loose_first);
    let mut scan = Scan::prefix(&part_key(tenant, b'r', id, number));
    if from > 0 {
        scan = scan.after(&run_key(tenant, id, number, from - 1));
    }
    let limit = if chunk.is_some() { 1 } else { 2 * LOOSE_ROWS_MAX };
    let runs = rows.scan(&scan.limit(limit)).into_iter().map(|(_, row)| Run::decode(&row));
    let found = runs.into_iter().find(|run| run.head.last_ms >= at_ms);
    found.map_or(next, |run| within(&run))
}

/// When the oldest record that is kept came. At the partition.
#[must_use]
pub fn oldest_ms(rows: &impl ReadRows, tenant: TenantId, id: StreamId, number: u16) -> Option<u64> {
    let start = partition(&rows.get(&partition_row(tenant, id, number))?).start;
    let front = rows.get(&run_key(tenant, id, number, start))?;
    Some(Run::decode(&front).head.first_ms)
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Grows whenever partitions get other owners, and with every seek.
    pub epoch: u64,
    /// When it was made.
    pub created_ms: u64,
    /// The stream's when they were last dealt out.
    pub partitions: u16,
    /// The partitions of each member, ascending, and since which epoch.
    pub owners: BTreeMap<String, Vec<(u16, u64)>>,
}

/// The key of the row and view of a group. At the stream's home.
#[must_use]
pub fn group_row(tenant: TenantId, id: StreamId, group: &str) -> Vec<u8> {
    group_key(tenant, id, group)
}

/// Reads the value of [`group_row`].
#[must_use]
pub fn group(value: &[u8]) -> Group {
    let GroupRow { epoch, created_ms, partitions, owners, .. } = GroupRow::decode(value);
    Group { epoch, created_ms, partitions, owners }
}

/// The names of a stream's groups after `after`, at most `limit`. At the stream's home.
#[must_use]
pub fn group_names(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    after: &str,
    limit: usize,
) -> Vec<String> {
    let prefix = key(tenant, b'g', id);
    let scan = Scan::prefix(&prefix).after(&group_key(tenant, id, after)).limit(limit);
    last_names(rows, &scan, prefix.len())
}

/// A member, as it was last heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// When.
    pub seen_ms: u64,
    /// Without word for so long it is lost, or a third later.
    pub session_ms: u64,
}

impl Member {
    /// Whether a join now would only say again what is known: for a third of the session.
    #[must_use]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.seen_ms.saturating_add(self.session_ms / 3)
    }

    /// When it is lost. A third of the session later than it was last seen to be there, as it may have
    /// been there since without a join: it has its whole session after that. *(frozen)*
    pub(crate) fn lost_ms(&self) -> u64 {
        let Member { seen_ms, session_ms } = *self;
        seen_ms.saturating_add(session_ms).saturating_add(session_ms.div_ceil(3))
    }
}

/// The members of a group. At the stream's home.
#[must_use]
pub fn members(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    group: &str,
) -> BTreeMap<String, Member> {
    let prefix = of_group_key(tenant, b'm', id, group);
    let found = rows.scan(&Scan::prefix(&prefix)).into_iter().map(|(key, row)| {
        let name = String::from_utf8(key[prefix.len()..].to_vec()).expect("put from a string");
        (name, member(&row))
    });
    found.collect()
}

fn member(row: &[u8]) -> Member {
    Seen::decode(row).member()
}

/// What a group has committed: the next offset of each partition of which it has done anything. At
/// the stream's home.
#[must_use]
pub fn committed(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    group: &str,
) -> BTreeMap<u16, u64> {
    let prefix = of_group_key(tenant, b'o', id, group);
    let found = rows.scan(&Scan::prefix(&prefix)).into_iter().map(|(key, row)| {
        let partition = key.last_chunk().expect("as offset_key puts it");
        (u16::from_be_bytes(*partition), read(&row))
    });
    found.collect()
}

/// What a member has to do, when that can be told without a [`Join`](crate::Join): it was heard of
/// lately, with the session that it has now, its group knows all partitions, and none of its own was
/// sought, or came to it, since it last joined: a commit without an epoch counts as one of then. At the
/// stream's home.
#[must_use]
pub fn standing(
    rows: &impl ReadRows,
    tenant: TenantId,
    stream: &Definition,
    group_name: &str,
    (member_name, session_ms): (&str, u64),
    now_ms: u64,
) -> Option<Standing> {
    let id = stream.id;
    let seen = Seen::decode(&rows.get(&member_key(tenant, id, group_name, member_name))?);
    let known = group(&rows.get(&group_key(tenant, id, group_name))?);
    let is_said = seen.session_ms == session_ms && seen.member().is_fresh(now_ms);
    if !is_said || known.partitions != stream.settings.partitions {
        return None;
    }
    let owned = known.owners.get(member_name)?;
    if owned.iter().any(|(_, since)| *since > seen.told) {
        return None;
    }
    Some(stand(rows, tenant, id, group_name, known.epoch, owned))
}

/// What a member who owns these has to do.
pub(crate) fn stand(
    rows: &impl ReadRows,
    tenant: TenantId,
    id: StreamId,
    group: &str,
    epoch: u64,
    owned: &[(u16, u64)],
) -> Standing {
    let owned = owned.iter().map(|&(partition, since)| {
        let row = rows.get(&offset_key(tenant, id, group, partition));
        Owned { partition, since, committed: row.map(|row| read(&row)) }
    });
    Standing { epoch, owned: owned.collect() }
}
