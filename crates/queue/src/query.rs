//! How queues are read: from rows, on any thread, without entering the shard.

use bytes::Bytes;
use kernel::rows::{ReadRows, Scan};
use kernel::{TenantId, VirtualShard};

use crate::MACHINE;
use crate::command::{Mode, Settings, Story};
use crate::fifo::{self, READY};
use crate::large::held_key;
use crate::parcel::ArchivedBody;
use crate::state::{
    Counts, Described, Head, Hidden, Message, MessageId, Queue, key, lane_key, queue_key,
};

/// Where a queue lives.
#[must_use]
pub fn place(tenant: TenantId, queue: &str) -> VirtualShard {
    VirtualShard::of(tenant, MACHINE, queue.as_bytes())
}

/// What a queue is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its number.
    pub number: u64,
    /// Of its settings.
    pub version: u64,
    /// When it was made.
    pub created_ms: u64,
    /// When its settings were last changed.
    pub updated_ms: u64,
    /// How it behaves.
    pub settings: Settings,
}

/// The key of the row and view that say what a queue is.
#[must_use]
pub fn definition_row(tenant: TenantId, name: &str) -> Vec<u8> {
    queue_key(tenant, name)
}

/// Reads the value of [`definition_row`].
#[must_use]
pub fn definition(value: &[u8]) -> Definition {
    let Queue { number, version, created_ms, updated_ms, settings, .. } = Queue::decode(value);
    Definition { number, version, created_ms, updated_ms, settings }
}

/// The key of the row and view that say what is in a queue.
#[must_use]
pub fn counts_row(tenant: TenantId, queue: u64) -> Vec<u8> {
    key(tenant, b'c', queue)
}

/// Reads the value of [`counts_row`].
#[must_use]
pub fn counts(value: &[u8]) -> Counts {
    Counts::decode(value)
}

/// What a view of this machine's has ready for those who wait for it: of [`counts_row`], and of
/// no other. Nothing while as many are leased as may be.
#[must_use]
pub fn ready(view_key: &[u8], value: &[u8]) -> u64 {
    if view_key.get(2) != Some(&b'c') {
        return 0;
    }
    let counts = counts(value);
    if counts.full { 0 } else { counts.ready() }
}

/// Definitions that are read at a time.
const NAMES_AT_ONCE: usize = 100;

/// The names of a tenant's queues in a shard: those that begin with `beginning`, come after `after`
/// and are wanted, at most `limit`.
#[must_use]
pub fn names(
    rows: &impl ReadRows,
    tenant: TenantId,
    beginning: &str,
    after: &str,
    limit: usize,
    wanted: impl Fn(&Definition) -> bool,
) -> Vec<String> {
    let prefix = queue_key(tenant, "");
    let mut after = queue_key(tenant, after);
    let mut names = Vec::new();
    loop {
        let scan = Scan::prefix(&queue_key(tenant, beginning)).after(&after).limit(NAMES_AT_ONCE);
        let found = rows.scan(&scan);
        for (key, row) in &found {
            if names.len() < limit && wanted(&definition(row)) {
                let name = String::from_utf8(key[prefix.len()..].to_vec());
                names.push(name.expect("put from a string"));
            }
        }
        match found.last() {
            Some((last, _)) if names.len() < limit && found.len() == NAMES_AT_ONCE => {
                after = last.to_vec();
            }
            _ => return names,
        }
    }
}

/// A queue of whatever tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: String,
    /// What it is and holds.
    pub described: Described,
}

/// The queues of a shard after one, of all tenants, at most `limit`; and the last that was looked
/// at, to go on after, if there may be more.
#[must_use]
pub fn queues(
    rows: &impl ReadRows,
    after: Option<(TenantId, String)>,
    limit: usize,
) -> (Vec<Found>, Option<(TenantId, String)>) {
    const TENANT_BYTES: usize = size_of::<u32>();
    let first = queue_key(TenantId(0), "");
    let prefix = &first[..first.len() - TENANT_BYTES];
    let after = after.map_or(prefix.to_vec(), |(tenant, name)| queue_key(tenant, &name));
    let rows_found = rows.scan(&Scan::prefix(prefix).after(&after).limit(limit));
    let whole = rows_found.len() == limit;
    let named = rows_found.iter().map(|(key, row)| {
        let (tenant, name) = key[prefix.len()..].split_first_chunk().expect("as queue_key puts it");
        let name = std::str::from_utf8(name).expect("put from a string").to_owned();
        (TenantId(u32::from_be_bytes(*tenant)), name, definition(row))
    });
    let named: Vec<_> = named.collect();
    let last = named.last().filter(|_| whole).map(|(tenant, name, _)| (*tenant, name.clone()));
    let found = named.into_iter().filter_map(|(tenant, name, definition)| {
        // Deleted meanwhile, perhaps.
        Some(Found { tenant, name, described: describe(rows, tenant, definition)? })
    });
    (found.collect(), last)
}

/// What a queue is and holds; `None` when there is none of this name.
#[must_use]
pub fn queue(rows: &impl ReadRows, tenant: TenantId, name: &str) -> Option<Described> {
    describe(rows, tenant, definition(&rows.get(&queue_key(tenant, name))?))
}

fn describe(rows: &impl ReadRows, tenant: TenantId, definition: Definition) -> Option<Described> {
    let number = definition.number;
    let counts = counts(&rows.get(&counts_row(tenant, number))?);
    let (mode, looks) = (definition.settings.mode, usize::MAX);
    let oldest_visible_ms = oldest_visible_ms(rows, (tenant, number), mode, &counts, looks);
    Some(Described { definition, counts, oldest_visible_ms })
}

/// Since when the oldest message is visible that counts as visible; where there is order, if it is found
/// in so many looks.
pub(crate) fn oldest_visible_ms(
    rows: &impl ReadRows,
    (tenant, queue): (TenantId, u64),
    mode: Mode,
    counts: &Counts,
    looks: usize,
) -> Option<u64> {
    if mode == Mode::Fifo {
        return fifo::oldest_visible_ms(rows, (tenant, queue), counts, looks);
    }
    let lanes = counts.lanes.iter().filter(|lane| lane.len > 0);
    let heads = lanes.filter_map(|lane| {
        let from = lane_key(tenant, queue, lane.number, lane.head);
        let to = lane_key(tenant, queue, lane.number, lane.next);
        let (_, row) = rows.scan(&Scan::between(&from, &to).limit(1)).pop()?;
        Some(Message::decode(&row).head.visible_ms)
    });
    heads.min()
}

/// Whether a queue has the body of this message, which lies in the archive.
#[must_use]
pub fn holds_body(rows: &impl ReadRows, tenant: TenantId, queue: u64, sequence: u64) -> bool {
    let Some(counts) = rows.get(&key(tenant, b'c', queue)) else { return false };
    let holder = Counts::decode(&counts).holder_of(queue);
    rows.get(&held_key(tenant, holder, sequence)).is_some()
}

/// Which messages to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeekState {
    /// Those that can be received.
    Visible,
    /// Those whose time has not come.
    Delayed,
    /// Those that somebody works on.
    Leased,
}

/// A message that was looked at, and not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Its name.
    pub id: MessageId,
    /// Its place in the queue's order.
    pub sequence: u64,
    /// When it was sent.
    pub sent_ms: u64,
    /// How often it has been received.
    pub receives: u32,
    /// What was last said of it.
    pub reason: Option<String>,
    /// Of a queue with order.
    pub group: Option<String>,
    /// Of a dead letter.
    pub story: Option<Story>,
    /// As sent.
    pub parcel: Bytes,
}

/// A message that was looked at, and when that changes which receivers cannot get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The message.
    pub peeked: Peeked,
    /// When its time comes, or the lease ends that somebody has of it; `None` of one that is visible.
    pub until_ms: Option<u64>,
}

/// Rows that one look goes through at most, and how many at a time.
const PEEK_ROWS_MAX: usize = 10_000;
const PEEK_ROWS_AT_ONCE: usize = 64;
/// Bytes after which it shows no more.
const PEEK_BYTES_MAX: u64 = 4 << 20;

/// Looks at all messages of a state without taking them, however many bytes they have: for those who
/// check, not for those who ask.
#[must_use]
pub fn peek_all(
    rows: &impl ReadRows,
    tenant: TenantId,
    queue: u64,
    state: PeekState,
) -> Vec<Peeked> {
    let mut all = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = peek_after(rows, tenant, queue, state, after.as_deref(), usize::MAX);
        let (looked, next) = page.expect("it goes on where the last page ended");
        all.extend(looked.into_iter().map(|looked| looked.peeked));
        if next.is_none() {
            return all;
        }
        after = next;
    }
}

/// Looks at messages without taking them, at most `limit`, after the row that an earlier look
/// ended with; and the row that this one ended with, if there may be more. `None` when no look of
/// this state ends so.
#[must_use]
pub fn peek_after(
    rows: &impl ReadRows,
    tenant: TenantId,
    queue: u64,
    state: PeekState,
    after: Option<&[u8]>,
    limit: usize,
) -> Option<(Vec<Looked>, Option<Vec<u8>>)> {
    let kinds: &[u8] = if state == PeekState::Visible { b"lw" } else { b"hw" };
    // The kind of the row, and what follows the queue in its key.
    let (first, mut rest) = match after {
        None => (0, &[][..]),
        Some(after) => {
            let (kind, rest) = after.split_first()?;
            (kinds.iter().position(|known| known == kind)?, rest)
        }
    };
    let mut looked = Vec::new();
    let (mut bytes, mut rows_left) = (0, PEEK_ROWS_MAX);
    for kind in &kinds[first..] {
        let prefix = key(tenant, *kind, queue);
        let mut last = [prefix.as_slice(), rest].concat();
        rest = &[];
        let mut parts = parts(rows, tenant, queue, *kind).into_iter();
        let mut part = parts.next();
        while let Some(scan) = &part {
            let found = rows.scan(&scan.clone().after(&last).limit(PEEK_ROWS_AT_ONCE));
            for (row_key, row) in &found {
                if looked.len() == limit || bytes > PEEK_BYTES_MAX || rows_left == 0 {
                    let next = [&[*kind][..], &last[prefix.len()..]].concat();
                    return Some((looked, Some(next)));
                }
                rows_left -= 1;
                last = row_key.to_vec();
                if let Some(message) = in_state(row, state) {
                    bytes += message.parcel.len() as u64;
                    bytes += ArchivedBody::of(&message.parcel).map_or(0, |body| body.bytes);
                    let until_ms = hidden_until(&message.head, *kind, &row_key[prefix.len()..]);
                    looked.push(Looked { peeked: shown(message), until_ms });
                }
            }
            if found.len() < PEEK_ROWS_AT_ONCE {
                part = parts.next();
            }
        }
    }
    Some((looked, None))
}

/// Where messages are among rows of a kind, in their order. Of lanes what lies before their heads is
/// left out: it is gone, and until the next checkpoint who looks would pass all of it while the shard
/// waits. These counts may be older than the rows that are read next: a head only moves on, and between
/// the lanes that are known here is room for those that are new.
fn parts(rows: &impl ReadRows, tenant: TenantId, queue: u64, kind: u8) -> Vec<Scan> {
    if kind != b'l' {
        return vec![Scan::prefix(&key(tenant, kind, queue))];
    }
    let Some(counts) = rows.get(&counts_row(tenant, queue)) else { return Vec::new() };
    let mut lanes = Counts::decode(&counts).lanes;
    lanes.sort_unstable_by_key(|lane| lane.number);
    let key_of = |lane, position| lane_key(tenant, queue, lane, position);
    let mut parts = Vec::with_capacity(lanes.len() + 1);
    let mut from = key_of(0, 0);
    // The last lane is that of groups that are ready, which are no messages.
    for lane in lanes.iter().filter(|lane| lane.number < READY) {
        parts.push(Scan::between(&from, &key_of(lane.number, 0)));
        from = key_of(lane.number, lane.head);
    }
    parts.push(Scan::between(&from, &key_of(READY, 0)));
    parts
}

/// Until when a message in a row of this kind is hidden: an 'h' row has it in its key, whose rest this is,
/// and of one that waits in a group its head says it.
fn hidden_until(head: &Head, kind: u8, rest: &[u8]) -> Option<u64> {
    match head.hidden {
        Hidden::No | Hidden::Group => None,
        _ if kind == b'w' => Some(head.due_ms),
        _ => rest.first_chunk().map(|until| u64::from_be_bytes(*until)),
    }
}

/// The message of a row, if it is in this state.
fn in_state(row: &Bytes, state: PeekState) -> Option<Message> {
    let message = Message::decode(row);
    let is = match message.head.hidden {
        Hidden::No => PeekState::Visible,
        Hidden::Delayed | Hidden::Retry => PeekState::Delayed,
        Hidden::Leased | Hidden::Extended => PeekState::Leased,
        Hidden::Group => return None,
    };
    (is == state).then_some(message)
}

fn shown(message: Message) -> Peeked {
    let receives = message.receives();
    let Message { head, parcel, .. } = message;
    Peeked {
        id: head.id,
        sequence: head.sequence,
        sent_ms: head.sent_ms,
        receives,
        reason: head.reason,
        group: head.group,
        story: head.story,
        parcel,
    }
}
