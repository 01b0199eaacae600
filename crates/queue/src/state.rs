//! How queues lie in rows.
//!
//! ```text
//!   kind  after machine, kind and tenant      value
//!   'q'   name                                Queue: number, version, secret, settings
//!   'c'   queue                               Counts: what changes with every command
//!   'l'   queue, lane, position               message, or the name of a group that is ready
//!   'h'   queue, until, sequence              message that is hidden until then
//!   'x'   queue, sequence                     until when a lease was extended
//!   'w'   queue, group, sequence              message of a queue with order, waiting
//!   'g'   queue, group                        Group
//!   'a'   queue, place by age                 since when a message is visible that waits
//!   'k'   queue, digest                       what was sent under a deduplication key
//!   'e'   queue, until, digest                when to forget it
//!   't'   topic's name                        Topic: number, subscriptions and their filters
//!   'u'   topic                               the sequence of its last message
//!   'r'   queue, job                          Job: messages that are moved to another queue
//!   'b'   number                              a body that is reserved in the archive
//!   'o'   holder, sequence                    where the body of that message lies in the archive
//! ```
//!
//! A queue is its number from 'c' on: eight bytes, never used again, so that nothing of a deleted
//! queue shows in one that has its name later.

use bytes::{BufMut, Bytes};
use kernel::codec::{read_versioned, unpack, versioned, versioned_as};
use kernel::machine::machine_key;
use kernel::{TenantId, TimerId, Unreadable};
use serde::{Deserialize, Serialize};

use crate::MACHINE;
use crate::command::{Settings, Story};
use crate::deliver::came_back;
use crate::parcel::ArchivedBody;
use crate::query::Definition;

/// Names a message for ever, wherever it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageId {
    /// The shard it was sent to.
    pub shard: u16,
    /// The number of the queue it was sent to.
    pub queue: u64,
    /// Its place there.
    pub sequence: u64,
}

/// What a queue is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) number: u64,
    /// Grows with every change of the settings.
    pub(crate) version: u64,
    /// Of its receipts.
    pub(crate) secret: [u8; 16],
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    pub(crate) settings: Settings,
}

impl Queue {
    pub(crate) fn encode(&self) -> Bytes {
        versioned_as(2, self).into()
    }

    /// Reads a row of this machine's.
    pub(crate) fn decode(row: &[u8]) -> Queue {
        let newest = match row {
            [1, body @ ..] => &Settings::in_version_2(body),
            [2, body @ ..] => body,
            _ => panic!("a queue of a version that this binary is too old for"),
        };
        unpack("a queue", newest).expect("rows are this machine's alone")
    }
}

/// What has happened in a queue since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Messages taken.
    pub sent: u64,
    /// Leases given.
    pub received: u64,
    /// Messages acked.
    pub acked: u64,
    /// Leases that ended without an ack.
    pub failed: u64,
    /// Messages sent to the dead-letter queue.
    pub dead: u64,
    /// Messages dropped because of their age.
    pub expired: u64,
    /// Messages moved to another queue.
    pub moved: u64,
}

/// What is in a queue now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Ready to be received.
    pub visible: u64,
    /// Waiting for their time: delayed, or to be tried again.
    pub delayed: u64,
    /// Leased.
    pub leased: u64,
    /// Of all of them.
    pub bytes: u64,
    /// Since the queue was made.
    pub totals: Totals,
    pub(crate) last_sequence: u64,
    /// Those that are not empty, and those that have been.
    pub(crate) lanes: Vec<Lane>,
    /// Fires when the first hidden row is due, or before.
    pub(crate) sweep: Option<(u64, u64)>,
    /// Fires when the oldest message may be too old.
    pub(crate) retention: Option<(u64, u64)>,
    /// No row is hidden until this or before.
    pub(crate) swept_ms: u64,
    /// Where the search for old messages of a queue with order goes on.
    pub(crate) age_cursor: Vec<u8>,
    /// Totals at the beginnings of this minute and of one before it, to tell rates by.
    pub(crate) minutes: [(u64, Totals); 2],
    /// The job that moves messages away, and its timer.
    pub(crate) redrive: Option<(u64, (u64, u64))>,
    /// Of all of them, those whose bodies lie in the archive.
    pub archived: u64,
    /// Where the search for hidden rows that are due goes on, until none is left: nothing is hidden
    /// until a time that has come, so none is put before it.
    pub(crate) hidden_cursor: Vec<u8>,
    /// The same of deduplication keys to be forgotten.
    pub(crate) forget_cursor: Vec<u8>,
    /// The last place by age that a message of a queue with order was given.
    pub(crate) ages_last: u64,
    /// None that is visible has a place before this one.
    pub(crate) ages_from: u64,
    /// Messages that have gone since that was looked for.
    pub(crate) ages_gone: u64,
    /// As many are leased as may be.
    pub full: bool,
    /// A bit for each priority: the next turn is that of its new messages, not of those that came back.
    pub(crate) turns_of_new: u16,
    /// Bodies in the archive are held under this number, and under another after each purge: what comes
    /// back while those of before are deleted is not among them. 0 stands for the queue's own.
    pub(crate) holder: u64,
}

/// What rates are told over: the last minute that is over, and this one.
const MINUTE_MS: u64 = 60_000;

impl Counts {
    pub(crate) fn encode(&self) -> Bytes {
        versioned_as(5, self).into()
    }

    /// Reads a row of this machine's. No release has written version 1; version 2 lacks the last six
    /// fields, version 3 the last two, version 4 the last.
    pub(crate) fn decode(row: &[u8]) -> Counts {
        let newest = match row {
            [2, body @ ..] => &[body, &[0; 6]].concat(),
            [3, body @ ..] => &[body, &[0; 2]].concat(),
            [4, body @ ..] => &[body, &[0]].concat(),
            [5, body @ ..] => body,
            _ => panic!("counts of a version that this binary cannot read"),
        };
        unpack("counts of a queue", newest).expect("rows are this machine's alone")
    }

    /// Messages, or groups with messages, that nobody works on and whose time has come.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.len).sum()
    }

    /// What happened a second, lately. In the order of [`Totals`].
    #[must_use]
    pub fn rates(&self, now_ms: u64) -> Rates {
        // Nothing has happened since this minute began that is not in the totals.
        let begun = self.minutes.iter().rev().find(|(at, _)| now_ms < at + 2 * MINUTE_MS);
        let Some((began_ms, then)) = begun else { return Rates::default() };
        let seconds = now_ms.saturating_sub(*began_ms).max(1000) as f64 / 1000.0;
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Rates {
            sent: rate(self.totals.sent, then.sent),
            received: rate(self.totals.received, then.received),
            acked: rate(self.totals.acked, then.acked),
            failed: rate(self.totals.failed, then.failed),
        }
    }

    /// Under which number the bodies of a queue with this number are held.
    pub(crate) fn holder_of(&self, queue: u64) -> u64 {
        if self.holder == 0 { queue } else { self.holder }
    }

    /// Whether a lane goes before the other of its priority.
    pub(crate) fn is_turn_of(&self, lane: u8) -> bool {
        let new_ones = self.turns_of_new & (1 << (lane / 2)) != 0;
        new_ones != came_back(lane)
    }

    /// Something was taken from a lane: the other of its priority is next.
    pub(crate) fn had_turn(&mut self, lane: u8) {
        let bit = 1 << (lane / 2);
        if came_back(lane) {
            self.turns_of_new |= bit;
        } else {
            self.turns_of_new &= !bit;
        }
    }

    /// To be called before the totals change.
    pub(crate) fn mark_minute(&mut self, now_ms: u64) {
        if now_ms >= self.minutes[0].0 + MINUTE_MS {
            self.minutes = [(now_ms, self.totals), self.minutes[0]];
        }
    }
}

/// What happens in a queue, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Messages taken.
    pub sent: f64,
    /// Leases given.
    pub received: f64,
    /// Messages acked.
    pub acked: f64,
    /// Leases that ended without an ack.
    pub failed: f64,
}

/// Rows from `head` on, at positions below `next`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lane {
    pub(crate) number: u8,
    pub(crate) head: u64,
    pub(crate) next: u64,
    pub(crate) len: u64,
}

/// A queue as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// What it is.
    pub definition: Definition,
    /// What is in it.
    pub counts: Counts,
    /// Since when the oldest message is visible that counts as visible.
    pub oldest_visible_ms: Option<u64>,
}

/// Why a message is hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hidden {
    /// It is not: it is in a lane.
    #[default]
    No,
    /// Its time has not come.
    Delayed,
    /// Somebody works on it.
    Leased,
    /// It failed, and waits to be tried again.
    Retry,
    /// No message at all: that of this sequence, in its group, is looked at when this is due.
    Group,
    /// Somebody works on it, and has asked for more time: an 'x' row says until when.
    Extended,
}

impl Hidden {
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Hidden::Leased | Hidden::Extended)
    }
}

/// What is known of a message besides what was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) id: MessageId,
    pub(crate) sequence: u64,
    pub(crate) sent_ms: u64,
    /// When it could first be received: its age counts from then.
    pub(crate) visible_ms: u64,
    pub(crate) priority: u8,
    pub(crate) group: Option<String>,
    pub(crate) hidden: Hidden,
    /// When it can be received again, or could, after it failed; in a group not before this.
    pub(crate) due_ms: u64,
    /// Each has another number, or the receipt of one would be good for another.
    pub(crate) leases: u32,
    pub(crate) first_received_ms: u64,
    pub(crate) first_failed_ms: u64,
    pub(crate) last_failed_ms: u64,
    pub(crate) reason: Option<String>,
    pub(crate) story: Option<Story>,
    /// Its place among those of a queue with order that are visible, by age; 0 before it has one.
    pub(crate) listed: u64,
}

/// A story as rows of versions 1 and 2 have it.
#[derive(Deserialize)]
struct StoryV1 {
    queue: String,
    id: MessageId,
    receives: u32,
    first_failed_ms: u64,
    last_failed_ms: u64,
    reason: Option<String>,
}

impl From<StoryV1> for Story {
    fn from(old: StoryV1) -> Story {
        let StoryV1 { queue, id, receives, first_failed_ms, last_failed_ms, reason } = old;
        let (moved_ms, group) = (last_failed_ms, None);
        Story { queue, id, receives, first_failed_ms, last_failed_ms, reason, moved_ms, group }
    }
}

/// A head as rows of versions 1 and 2 have it.
#[derive(Deserialize)]
struct HeadV1 {
    id: MessageId,
    sequence: u64,
    sent_ms: u64,
    visible_ms: u64,
    priority: u8,
    group: Option<String>,
    hidden: Hidden,
    due_ms: u64,
    leases: u32,
    first_received_ms: u64,
    first_failed_ms: u64,
    last_failed_ms: u64,
    reason: Option<String>,
    story: Option<StoryV1>,
}

impl From<HeadV1> for Head {
    fn from(old: HeadV1) -> Head {
        Head {
            visible_ms: old.visible_ms,
            priority: old.priority,
            hidden: old.hidden,
            due_ms: old.due_ms,
            leases: old.leases,
            first_received_ms: old.first_received_ms,
            first_failed_ms: old.first_failed_ms,
            last_failed_ms: old.last_failed_ms,
            reason: old.reason,
            story: old.story.map(Story::from),
            ..Head::new(old.id, old.sequence, old.sent_ms, old.group)
        }
    }
}

impl Head {
    /// Of a message to which nothing has happened yet.
    pub(crate) fn new(id: MessageId, sequence: u64, sent_ms: u64, group: Option<String>) -> Head {
        Head {
            id,
            sequence,
            sent_ms,
            visible_ms: sent_ms,
            priority: 0,
            group,
            hidden: Hidden::No,
            due_ms: 0,
            leases: 0,
            first_received_ms: 0,
            first_failed_ms: 0,
            last_failed_ms: 0,
            reason: None,
            story: None,
            listed: 0,
        }
    }
}

/// A row that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) head: Head,
    /// Of its leases, those whose message nobody has seen.
    pub(crate) unseen: u32,
    pub(crate) parcel: Bytes,
}

/// What a message counts besides its parcel.
const MESSAGE_BYTES: u64 = 100;

/// What a message with this parcel counts, with what of it lies in the archive.
#[must_use]
pub fn message_bytes(parcel: &Bytes) -> u64 {
    let archived = ArchivedBody::of(parcel).map_or(0, |body| body.bytes);
    parcel.len() as u64 + MESSAGE_BYTES + archived
}

impl Message {
    pub(crate) fn bytes(&self) -> u64 {
        message_bytes(&self.parcel)
    }

    /// How often it has been received, as far as anybody knows.
    pub(crate) fn receives(&self) -> u32 {
        self.head.leases - self.unseen
    }

    /// `[3][head][parcel]`, or `[4][unseen][head][parcel]` of the few that have such leases.
    pub(crate) fn encode(&self) -> Bytes {
        let mut row = Vec::with_capacity(self.parcel.len() + 64);
        if self.unseen == 0 {
            row.push(3);
        } else {
            row.push(4);
            row = postcard::to_extend(&self.unseen, row).expect("plain data serialises");
        }
        let mut row = postcard::to_extend(&self.head, row).expect("plain data serialises");
        row.put_slice(&self.parcel);
        row.into()
    }

    /// Reads a row of this machine's, sharing its bytes. 1 and 2 were 3 and 4, with less in the head.
    pub(crate) fn decode(row: &Bytes) -> Message {
        const OURS: &str = "rows are this machine's alone";
        let (unseen, rest): (u32, &[u8]) = match row[0] {
            1 | 3 => (0, &row[1..]),
            2 | 4 => postcard::take_from_bytes(&row[1..]).expect(OURS),
            _ => panic!("a message of a version that this binary is too old for"),
        };
        let (head, parcel): (Head, &[u8]) = if row[0] > 2 {
            postcard::take_from_bytes(rest).expect(OURS)
        } else {
            let (old, parcel): (HeadV1, _) = postcard::take_from_bytes(rest).expect(OURS);
            (old.into(), parcel)
        };
        Message { head, unseen, parcel: row.slice_ref(parcel) }
    }
}

/// A group of a queue with order. It has a row while it has messages, here or on their way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) waiting: u64,
    pub(crate) leased: u64,
    /// It is in the lane of groups that are ready.
    pub(crate) listed: bool,
    /// A hidden row will look at it then.
    pub(crate) wake_ms: Option<u64>,
    /// No message before this one waits: what was taken is not looked through again.
    pub(crate) first: u64,
    /// Where it is listed. Version 1 had none, and such a group stays listed until a receive comes to it.
    pub(crate) place: Option<u64>,
    /// Messages that a job has sent elsewhere and that may come back: until it is known, nobody receives
    /// what was behind them. The last field; versions 1 and 2 had none.
    pub(crate) away: u64,
}

impl Group {
    pub(crate) fn encode(&self) -> Vec<u8> {
        versioned_as(3, self)
    }

    /// Reads a row of this machine's.
    pub(crate) fn decode(row: &[u8]) -> Group {
        let newest = match row {
            [1, body @ ..] => &[body, &[0; 2]].concat(),
            [2, body @ ..] => &[body, &[0]].concat(),
            [3, body @ ..] => body,
            _ => panic!("a group of a version that this binary is too old for"),
        };
        unpack("a group of a queue", newest).expect("rows are this machine's alone")
    }
}

/// What was sent under a deduplication key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) id: MessageId,
    pub(crate) sequence: u64,
    pub(crate) until_ms: u64,
}

pub(crate) fn queue_key(tenant: TenantId, name: &str) -> Vec<u8> {
    let mut key = machine_key(MACHINE, b'q', tenant);
    key.put_slice(name.as_bytes());
    key
}

/// The beginning of a queue's keys of one kind.
pub(crate) fn key(tenant: TenantId, kind: u8, queue: u64) -> Vec<u8> {
    let mut key = machine_key(MACHINE, kind, tenant);
    key.put_u64(queue);
    key
}

pub(crate) fn lane_key(tenant: TenantId, queue: u64, lane: u8, position: u64) -> Vec<u8> {
    let mut key = key(tenant, b'l', queue);
    key.put_u8(lane);
    key.put_u64(position);
    key
}

pub(crate) fn hidden_key(tenant: TenantId, queue: u64, until_ms: u64, sequence: u64) -> Vec<u8> {
    let mut key = key(tenant, b'h', queue);
    key.put_u64(until_ms);
    key.put_u64(sequence);
    key
}

pub(crate) fn extended_key(tenant: TenantId, queue: u64, sequence: u64) -> Vec<u8> {
    let mut key = key(tenant, b'x', queue);
    key.put_u64(sequence);
    key
}

/// Of a group's rows of a kind. A name is its length and its bytes, so that no group's keys are a
/// prefix of another's.
pub(crate) fn group_key(tenant: TenantId, kind: u8, queue: u64, group: &str) -> Vec<u8> {
    let mut key = key(tenant, kind, queue);
    key.put_u16(u16::try_from(group.len()).expect("the edge bounds the names of groups"));
    key.put_slice(group.as_bytes());
    key
}

pub(crate) fn waiting_key(tenant: TenantId, queue: u64, group: &str, sequence: u64) -> Vec<u8> {
    let mut key = group_key(tenant, b'w', queue, group);
    key.put_u64(sequence);
    key
}

pub(crate) fn age_key(tenant: TenantId, queue: u64, listed: u64) -> Vec<u8> {
    let mut key = key(tenant, b'a', queue);
    key.put_u64(listed);
    key
}

pub(crate) fn dedup_key(tenant: TenantId, queue: u64, digest: &[u8; 16]) -> Vec<u8> {
    let mut key = key(tenant, b'k', queue);
    key.put_slice(digest);
    key
}

pub(crate) fn forget_key(
    tenant: TenantId,
    queue: u64,
    until_ms: u64,
    digest: &[u8; 16],
) -> Vec<u8> {
    let mut key = key(tenant, b'e', queue);
    key.put_u64(until_ms);
    key.put_slice(digest);
    key
}

/// Kinds of rows that a queue has many of.
pub(crate) const CONTENTS: [u8; 8] = *b"lhxwgake";

pub(crate) fn row<T: Serialize>(value: &T) -> Vec<u8> {
    versioned(value)
}

/// Reads a row of this machine's.
pub(crate) fn read<'a, T: Deserialize<'a>>(row: &'a [u8]) -> T {
    let read: Result<T, Unreadable> = read_versioned("a row of a queue", row);
    read.expect("rows are this machine's alone")
}

pub(crate) fn timer(fields: (u64, u64)) -> TimerId {
    TimerId { deadline_ms: fields.0, number: fields.1 }
}
