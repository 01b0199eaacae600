//! Topics: what is published goes to every subscription that wants it, and a subscription is a
//! queue.
//!
//! A topic decides and sends its letters in the entry of the command, so a message reaches every
//! subscription that there was at that moment, once. A topic keeps nothing itself.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use kernel::machine::machine_key;
use kernel::rows::{ReadRows, Scan};
use kernel::{TenantId, Turn, VirtualShard};
use serde::{Deserialize, Serialize};

use crate::MACHINE;
use crate::apply::Desk;
use crate::command::{
    Mode, NewMessage, PARCEL_BYTES_MAX, Publish, Published, Refusal, Reply, Subscribe,
};
use crate::filter::Filter;
use crate::parcel::{ArchivedBody, Parcel};
use crate::post::{Fanned, Post};
use crate::query::place;
use crate::state::{MessageId, key, read, row};

/// Subscriptions of a topic: each is a letter for each message.
pub const SUBSCRIPTIONS_MAX: usize = 100;
/// Letters of one publish, and their bytes: one message of any size always fits, and no command
/// makes more than a shard can take in one entry.
pub const FAN_OUT_LETTERS_MAX: usize = 4096;
/// See [`FAN_OUT_LETTERS_MAX`].
pub const FAN_OUT_BYTES_MAX: usize = SUBSCRIPTIONS_MAX * PARCEL_BYTES_MAX;

/// What a topic is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// Its number, never used again.
    pub number: u64,
    /// When it was made.
    pub created_ms: u64,
    /// The queues that get what is published, and which of it; all when there is no filter.
    pub subscriptions: BTreeMap<String, Option<Filter>>,
}

/// Where a topic lives. A slash is in no queue's name.
#[must_use]
pub fn topic_place(tenant: TenantId, topic: &str) -> VirtualShard {
    VirtualShard::of(tenant, MACHINE, [b"topic/", topic.as_bytes()].concat().as_slice())
}

/// The key of the row and view that say what a topic is.
#[must_use]
pub fn topic_row(tenant: TenantId, topic: &str) -> Vec<u8> {
    let mut key = machine_key(MACHINE, b't', tenant);
    key.put_slice(topic.as_bytes());
    key
}

/// Reads the value of [`topic_row`].
#[must_use]
pub fn topic(value: &[u8]) -> Topic {
    read(value)
}

/// The names of a tenant's topics in a shard: those after `after`, at most `limit`.
#[must_use]
pub fn topic_names(
    rows: &impl ReadRows,
    tenant: TenantId,
    after: &str,
    limit: usize,
) -> Vec<String> {
    let prefix = topic_row(tenant, "");
    let scan = Scan::prefix(&prefix).after(&topic_row(tenant, after)).limit(limit);
    let name = |key: &Bytes| String::from_utf8(key[prefix.len()..].to_vec());
    rows.scan(&scan).iter().map(|(key, _)| name(key).expect("put from a string")).collect()
}

fn find(turn: &Turn<'_>, name: &str) -> Option<Topic> {
    turn.rows().get(&topic_row(turn.tenant(), name)).map(|row| read(&row))
}

fn show(turn: &mut Turn<'_>, name: &str, topic: &Topic) {
    let row = Bytes::from(row(topic));
    let key = topic_row(turn.tenant(), name);
    turn.put(key.clone(), row.clone());
    turn.publish(key, Some(row));
}

pub(crate) fn create(turn: &mut Turn<'_>, name: &str) -> Reply {
    if let Some(topic) = find(turn, name) {
        return Reply::Created { number: topic.number, new: false };
    }
    let (number, created_ms) = (turn.unique(), turn.now_ms());
    show(turn, name, &Topic { number, created_ms, subscriptions: BTreeMap::new() });
    turn.count(0, 1);
    Reply::Created { number, new: true }
}

pub(crate) fn delete(turn: &mut Turn<'_>, name: &str) -> Reply {
    let Some(topic) = find(turn, name) else { return Reply::Refused(Refusal::NoTopic) };
    let tenant = turn.tenant();
    turn.delete(&key(tenant, b'u', topic.number));
    turn.delete(&topic_row(tenant, name));
    turn.publish(topic_row(tenant, name), None);
    turn.count(0, -1);
    Reply::Deleted
}

pub(crate) fn subscribe(turn: &mut Turn<'_>, subscribe: Subscribe) -> Reply {
    let Subscribe { topic: name, queue, filter } = subscribe;
    let Some(mut topic) = find(turn, &name) else { return Reply::Refused(Refusal::NoTopic) };
    let new = !topic.subscriptions.contains_key(&queue);
    if new && topic.subscriptions.len() >= SUBSCRIPTIONS_MAX {
        return Reply::Refused(Refusal::Subscriptions);
    }
    topic.subscriptions.insert(queue, filter);
    show(turn, &name, &topic);
    Reply::Subscribed { new }
}

pub(crate) fn unsubscribe(turn: &mut Turn<'_>, name: &str, queue: &str) -> Reply {
    let Some(mut topic) = find(turn, name) else { return Reply::Refused(Refusal::NoTopic) };
    if topic.subscriptions.remove(queue).is_none() {
        return Reply::Refused(Refusal::NoSubscription);
    }
    show(turn, name, &topic);
    Reply::Unsubscribed
}

pub(crate) fn publish(turn: &mut Turn<'_>, publish: Publish) -> Reply {
    let Some(topic) = find(turn, &publish.topic) else { return Reply::Refused(Refusal::NoTopic) };
    let count = topic.subscriptions.len();
    let bytes: usize = publish.messages.iter().map(|message| message.parcel.len()).sum();
    // A body in the archive is one message's alone.
    let too_large = publish.messages.iter().any(|message| {
        message.parcel.len() > PARCEL_BYTES_MAX || ArchivedBody::of(&message.parcel).is_some()
    });
    let too_many = publish.messages.len() * count > FAN_OUT_LETTERS_MAX;
    if too_large || too_many || bytes * count > FAN_OUT_BYTES_MAX {
        return Reply::Refused(Refusal::FanOut);
    }
    let tenant = turn.tenant();
    let sequence_key = key(tenant, b'u', topic.number);
    let mut sequence: u64 = turn.rows().get(&sequence_key).map_or(0, |row| read(&row));
    let mut published = Vec::with_capacity(publish.messages.len());
    for message in publish.messages {
        sequence += 1;
        let id = MessageId { shard: turn.shard().0, queue: topic.number, sequence };
        let subscriptions = fan_out(turn, &topic, id, &message);
        published.push(Published { id, sequence, subscriptions });
    }
    turn.put(sequence_key, row(&sequence));
    Reply::Published(published)
}

/// Sends a message to whoever wants it; how many those are.
fn fan_out(turn: &mut Turn<'_>, topic: &Topic, id: MessageId, message: &NewMessage) -> u32 {
    // Only read when somebody asks.
    let mut parcel = None;
    let mut count = 0;
    for (queue, filter) in &topic.subscriptions {
        let wants = filter.as_ref().is_none_or(|filter| {
            let parcel = parcel.get_or_insert_with(|| Parcel::read(&message.parcel).ok());
            parcel.as_ref().is_some_and(|parcel| filter.passes(parcel, None))
        });
        if wants {
            let fanned = Fanned { queue: queue.clone(), id, message: message.clone() };
            let to = place(turn.tenant(), queue);
            turn.send(to, MACHINE, Post::Fanned(fanned).encode());
            count += 1;
        }
    }
    count
}

impl Desk<'_, '_> {
    /// A message arrives from a topic, whatever the queue's bounds say: it was accepted there.
    pub(crate) fn take_fanned(&mut self, fanned: Fanned) {
        let Fanned { id, message: new, .. } = fanned;
        if new.dedup.as_ref().is_some_and(|digest| self.is_known(digest)) {
            return;
        }
        let group = match self.settings().mode {
            Mode::Fifo => Some(new.group.unwrap_or_default()),
            Mode::Standard => None,
        };
        let now_ms = self.turn.now_ms();
        let due_ms = now_ms.saturating_add(new.delay_ms.unwrap_or(self.settings().delay_ms));
        let mut message = self.new_message(now_ms, new.priority, group, &new.parcel);
        message.head.visible_ms = due_ms;
        message.head.id = id;
        if let Some(digest) = &new.dedup {
            self.remember(digest, id, message.head.sequence);
        }
        self.counts.totals.sent += 1;
        self.put_in(message, due_ms);
    }
}
