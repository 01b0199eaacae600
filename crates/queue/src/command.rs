//! What can be asked of queues, and what they answer.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::Unreadable;
use kernel::codec::{pack, read_versioned, split_command, unpack, versioned};
use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::parcel::ArchivedBody;
use crate::receipt::Receipt;
use crate::state::MessageId;

/// A command. The comment on each gives its tag, which is never reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// 1: make a queue.
    Create(Create),
    /// 2: change a queue's settings.
    Update(Update),
    /// 3: remove a queue and everything in it.
    Delete {
        /// Which.
        queue: String,
    },
    /// 4: remove everything in a queue.
    Purge {
        /// Which.
        queue: String,
    },
    /// 5: put messages into a queue.
    Send(Send),
    /// 6: lease messages.
    Receive(Receive),
    /// 7: the work is done.
    Ack(Ack),
    /// 8: the work is not done: give the messages back.
    Nack(Nack),
    /// 9: the work takes longer.
    Extend(Extend),
    /// 10: move messages to another queue, little by little.
    StartRedrive(StartRedrive),
    /// 11: move no more.
    CancelRedrive {
        /// From which queue.
        queue: String,
        /// Which job.
        job: u64,
    },
    /// 12: make a topic.
    CreateTopic {
        /// Its name.
        topic: String,
    },
    /// 13: remove a topic. The queues of its subscriptions stay.
    DeleteTopic {
        /// Which.
        topic: String,
    },
    /// 14: have a queue get what is published.
    Subscribe(Subscribe),
    /// 15: have it get no more.
    Unsubscribe {
        /// Of which topic.
        topic: String,
        /// Which.
        queue: String,
    },
    /// 16: send messages to every subscription that wants them.
    Publish(Publish),
    /// 17: keep a place for a body that goes to the archive.
    ReserveBody(ReserveBody),
    /// 18: a body is no longer in the archive.
    BodyDeleted {
        /// The effect that asked for it.
        effect: u64,
    },
    /// 19: nobody has seen the messages: give them back as if they had not been received.
    Release(Release),
}

/// Whether a queue keeps order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Any consumer gets any message.
    #[default]
    Standard,
    /// The messages of a group are handed out in the order of their sending.
    Fifo,
}

/// How long a message waits before it is tried again when nobody says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// After the first failure; doubles with each further one. 0 for at once.
    pub base_ms: u64,
    /// At most.
    pub max_ms: u64,
    /// Anything between half of it and all of it, so that failures spread.
    pub jitter: bool,
}

/// Bytes of a body and its attributes that a queue itself holds, at most.
pub const BODY_BYTES_MAX: u64 = 256 << 10;

/// Bytes of a body that goes to the archive, and its attributes, at most.
pub const LARGE_BODY_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a parcel, at most: with what is told of it on its way it still fits into a letter.
pub const PARCEL_BYTES_MAX: usize = 512 << 10;

/// How a queue behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Never changes.
    pub mode: Mode,
    /// A message older than this is dropped.
    pub retention_ms: u64,
    /// How long a lease lasts when the receiver does not say.
    pub visibility_ms: u64,
    /// How long a message is hidden at first when the sender does not say.
    pub delay_ms: u64,
    /// Receives after which a message is dead. Without a dead-letter queue it is tried for ever.
    pub max_receive_count: Option<u32>,
    /// Where dead messages go: another queue of the tenant.
    pub dead_letter_queue: Option<String>,
    /// When failed messages are tried again.
    pub backoff: Backoff,
    /// How long a deduplication key is remembered.
    pub dedup_ms: u64,
    /// Messages in the queue, at most.
    pub max_messages: Option<u64>,
    /// Bytes in the queue, at most.
    pub max_bytes: Option<u64>,
    /// Messages leased at the same time, at most.
    pub max_inflight: u64,
    /// How long a receive waits for messages when the receiver does not say.
    pub wait_ms: u64,
    /// Bytes of a body and its attributes, at most.
    pub max_body_bytes: u64,
    /// Whether a message without a deduplication key has that of its body.
    pub dedup_by_body: bool,
    /// Whether bodies of more than [`BODY_BYTES_MAX`] go to the archive instead of being refused.
    pub large_bodies: bool,
    /// What people and other programs note on it; without meaning here.
    pub tags: BTreeMap<String, String>,
    /// What another dialect keeps on it; without meaning here.
    pub notes: BTreeMap<String, String>,
    /// Messages a second that may be sent to it, which is watched before they come here.
    pub max_publish_per_second: Option<u32>,
    /// Nothing is taken while the oldest message that can be received has been visible for longer.
    pub max_age_ms: Option<u64>,
}

impl Settings {
    /// As a queue of this mode has them when nothing is said.
    #[must_use]
    pub fn usual(mode: Mode) -> Settings {
        Settings {
            mode,
            retention_ms: 4 * 24 * 60 * 60 * 1000,
            visibility_ms: 30_000,
            delay_ms: 0,
            max_receive_count: None,
            dead_letter_queue: None,
            backoff: Backoff::default(),
            dedup_ms: 5 * 60 * 1000,
            max_messages: None,
            max_bytes: None,
            max_inflight: 120_000,
            wait_ms: 0,
            max_body_bytes: BODY_BYTES_MAX,
            dedup_by_body: false,
            large_bodies: false,
            tags: BTreeMap::new(),
            notes: BTreeMap::new(),
            max_publish_per_second: None,
            max_age_ms: None,
        }
    }

    /// What ends with settings and was written in version 1, as it is in version 2: there were neither
    /// of the two last fields then.
    pub(crate) fn in_version_2(body: &[u8]) -> Vec<u8> {
        [body, &[0, 0]].concat()
    }
}

/// Make a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Create {
    /// Its name, which the edge has checked.
    pub queue: String,
    /// How it behaves.
    pub settings: Settings,
}

/// Change a queue's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// Which.
    pub queue: String,
    /// The version that the change was made from; another one is refused.
    pub version: u64,
    /// All of them.
    pub settings: Settings,
}

/// Put messages into a queue: each is taken or refused by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// Which.
    pub queue: String,
    /// In this order.
    pub messages: Vec<NewMessage>,
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMessage {
    /// Hidden for so long; the queue's own delay when not given.
    pub delay_ms: Option<u64>,
    /// 0 to 9; higher goes first. Without meaning in a queue with order.
    pub priority: u8,
    /// The group in which order is kept; needed by a queue with order, and by no other.
    pub group: Option<String>,
    /// Of the deduplication key, or of the body: a second one within the window is not sent again.
    pub dedup: Option<[u8; 16]>,
    /// Body and attributes, in the edge's encoding.
    pub parcel: Bytes,
}

/// Lease messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// From which.
    pub queue: String,
    /// So many, or as many as there are.
    pub max: u16,
    /// For so long; the queue's own time when not given.
    pub visibility_ms: Option<u64>,
}

/// The work is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// In which.
    pub queue: String,
    /// Of what.
    pub receipts: Vec<Receipt>,
}

/// Give messages back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nack {
    /// In which.
    pub queue: String,
    /// What.
    pub receipts: Vec<Receipt>,
    /// When they may be tried again; as the queue's backoff says when not given.
    pub delay_ms: Option<u64>,
    /// Why, for whoever looks at it later.
    pub reason: Option<String>,
}

/// Give messages back that were not handed out: what was leased does not count as received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// In which.
    pub queue: String,
    /// What.
    pub receipts: Vec<Receipt>,
    /// When they may be received again.
    pub delay_ms: u64,
}

/// Hold messages for longer, counted from now. 0 gives them back at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extend {
    /// In which.
    pub queue: String,
    /// What.
    pub receipts: Vec<Receipt>,
    /// For so long.
    pub visibility_ms: u64,
}

/// Move messages that can be received to another queue, little by little, as a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRedrive {
    /// From which.
    pub queue: String,
    /// To which; when not given, each dead letter to the queue it died in.
    pub target: Option<String>,
    /// At most.
    pub per_second: Option<u32>,
    /// At most, in all.
    pub limit: Option<u64>,
    /// Which; all when not given.
    pub filter: Option<Filter>,
    /// Only count them.
    pub dry_run: bool,
}

/// Have a queue get what is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// To which topic.
    pub topic: String,
    /// Which; the subscription has its name.
    pub queue: String,
    /// Which messages; all when not given.
    pub filter: Option<Filter>,
}

/// Send messages to every subscription that wants them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    /// To which topic.
    pub topic: String,
    /// In this order.
    pub messages: Vec<NewMessage>,
}

/// Keep a place for a body that goes to the archive, until it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveBody {
    /// The queue that it will be sent to.
    pub queue: String,
    /// Of the body.
    pub sha256: [u8; 32],
    /// How many it has.
    pub bytes: u64,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The queue is there: new, or made before with the very same settings.
    Created {
        /// Its number.
        number: u64,
        /// Whether this made it.
        new: bool,
    },
    /// The settings are in force.
    Updated,
    /// The queue is gone.
    Deleted,
    /// The queue is empty.
    Purged,
    /// What came of each message, in order.
    Sent(Vec<Result<Sent, SendRefusal>>),
    /// Leased.
    Received(Vec<Delivery>),
    /// What came of each receipt, in order.
    Settled(Vec<Settled>),
    /// Nothing was done.
    Refused(Refusal),
    /// The job has begun.
    Redriving {
        /// Its number, in its queue.
        job: u64,
    },
    /// The job is at its end.
    RedriveEnded,
    /// The subscription is as asked.
    Subscribed {
        /// Whether this made it.
        new: bool,
    },
    /// The subscription is no more.
    Unsubscribed,
    /// What came of each message, in order.
    Published(Vec<Published>),
    /// The body is to be put there, and then to be sent.
    BodyReserved(ArchivedBody),
    /// It is known that the body is gone.
    BodyGone,
}

/// A message that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its name, the same in every subscription.
    pub id: MessageId,
    /// Its place in the topic's order.
    pub sequence: u64,
    /// Subscriptions that it goes to.
    pub subscriptions: u32,
}

/// A message that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its name.
    pub id: MessageId,
    /// Its place in the queue's order.
    pub sequence: u64,
    /// It had been sent before, within the window: these are that one's.
    pub duplicate: bool,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendRefusal {
    /// The queue holds as many messages as it may.
    Messages,
    /// The queue holds as many bytes as it may.
    Bytes,
    /// A queue with order needs a group.
    GroupMissing,
    /// A queue without order has no groups.
    GroupUnexpected,
    /// The parcel has more than [`PARCEL_BYTES_MAX`].
    TooLarge,
    /// No place is kept for the body in the archive, or no longer.
    NotReserved,
    /// The oldest message that can be received has waited for longer than the queue lets.
    Age,
}

/// A leased message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its name.
    pub id: MessageId,
    /// Its place in the queue's order.
    pub sequence: u64,
    /// What acks it.
    pub receipt: Receipt,
    /// How often it has been received, this time included.
    pub receives: u32,
    /// When it was sent.
    pub sent_ms: u64,
    /// When it was first received.
    pub first_received_ms: u64,
    /// Of a queue with order.
    pub group: Option<String>,
    /// As sent.
    pub parcel: Bytes,
    /// Of a dead letter.
    pub story: Option<Story>,
}

/// What became of a message before it came to a dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Story {
    /// The queue it was sent to.
    pub queue: String,
    /// Its name there.
    pub id: MessageId,
    /// How often it was received there.
    pub receives: u32,
    /// When it first failed.
    pub first_failed_ms: u64,
    /// When it last failed.
    pub last_failed_ms: u64,
    /// What a consumer last said of it; else how its last lease ended.
    pub reason: Option<String>,
    /// When it came to the dead-letter queue that it is in.
    pub moved_ms: u64,
    /// Of a queue with order: a dead-letter queue may have none.
    pub group: Option<String>,
}

/// What came of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// As asked.
    Done,
    /// The lease is no longer in force.
    Stale,
    /// This queue never gave it out.
    Forged,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such queue.
    NoQueue,
    /// There is such a queue, with other settings.
    Exists,
    /// The settings have been changed meanwhile.
    Version,
    /// The mode of a queue does not change.
    Mode,
    /// As many messages are leased as may be.
    Inflight,
    /// Messages of this queue are being moved already.
    Redriving,
    /// There is no such job.
    NoJob,
    /// A queue is not moved to itself.
    SameQueue,
    /// There is no such topic.
    NoTopic,
    /// There is no such subscription.
    NoSubscription,
    /// The topic has as many subscriptions as it may.
    Subscriptions,
    /// So much at once would be too many letters, or too large ones.
    FanOut,
}

const NAME: &str = "queue";

impl Command {
    /// `[tag][version][body]`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Command::Create(create) => pack(1, 2, create),
            Command::Update(update) => pack(2, 2, update),
            Command::Delete { queue } => pack(3, 1, queue),
            Command::Purge { queue } => pack(4, 1, queue),
            Command::Send(send) => pack(5, 1, send),
            Command::Receive(receive) => pack(6, 1, receive),
            Command::Ack(ack) => pack(7, 1, ack),
            Command::Nack(nack) => pack(8, 1, nack),
            Command::Extend(extend) => pack(9, 1, extend),
            Command::StartRedrive(start) => pack(10, 1, start),
            Command::CancelRedrive { queue, job } => pack(11, 1, &(queue, job)),
            Command::CreateTopic { topic } => pack(12, 1, topic),
            Command::DeleteTopic { topic } => pack(13, 1, topic),
            Command::Subscribe(subscribe) => pack(14, 1, subscribe),
            Command::Unsubscribe { topic, queue } => pack(15, 1, &(topic, queue)),
            Command::Publish(publish) => pack(16, 1, publish),
            Command::ReserveBody(reserve) => pack(17, 1, reserve),
            Command::BodyDeleted { effect } => pack(18, 1, effect),
            Command::Release(release) => pack(19, 1, release),
        }
    }

    /// Reads every version there ever was.
    ///
    /// # Errors
    /// [`Unreadable`] for anything else.
    pub fn decode(command: &[u8]) -> Result<Command, Unreadable> {
        let (tag, version, body) = split_command(command)?;
        Ok(match (tag, version) {
            (1, 1) => Command::Create(unpack(NAME, &Settings::in_version_2(body))?),
            (1, 2) => Command::Create(unpack(NAME, body)?),
            (2, 1) => Command::Update(unpack(NAME, &Settings::in_version_2(body))?),
            (2, 2) => Command::Update(unpack(NAME, body)?),
            (3, 1) => Command::Delete { queue: unpack(NAME, body)? },
            (4, 1) => Command::Purge { queue: unpack(NAME, body)? },
            (5, 1) => Command::Send(unpack(NAME, body)?),
            (6, 1) => Command::Receive(unpack(NAME, body)?),
            (7, 1) => Command::Ack(unpack(NAME, body)?),
            (8, 1) => Command::Nack(unpack(NAME, body)?),
            (9, 1) => Command::Extend(unpack(NAME, body)?),
            (10, 1) => Command::StartRedrive(unpack(NAME, body)?),
            (11, 1) => {
                let (queue, job) = unpack(NAME, body)?;
                Command::CancelRedrive { queue, job }
            }
            (12, 1) => Command::CreateTopic { topic: unpack(NAME, body)? },
            (13, 1) => Command::DeleteTopic { topic: unpack(NAME, body)? },
            (14, 1) => Command::Subscribe(unpack(NAME, body)?),
            (15, 1) => {
                let (topic, queue) = unpack(NAME, body)?;
                Command::Unsubscribe { topic, queue }
            }
            (16, 1) => Command::Publish(unpack(NAME, body)?),
            (17, 1) => Command::ReserveBody(unpack(NAME, body)?),
            (18, 1) => Command::BodyDeleted { effect: unpack(NAME, body)? },
            (19, 1) => Command::Release(unpack(NAME, body)?),
            _ => return Err(Unreadable::Command { machine: NAME, tag, version }),
        })
    }
}

impl Reply {
    /// Whether nothing was done, because there was no room, nothing to receive, or a job in the way, which
    /// may be otherwise later.
    pub(crate) fn may_be_another_later(&self) -> bool {
        let full = |sent: &Result<Sent, SendRefusal>| {
            use SendRefusal::{Age, Bytes, Messages, NotReserved};
            matches!(sent, Err(Messages | Bytes | NotReserved | Age))
        };
        match self {
            Reply::Refused(Refusal::Inflight | Refusal::Redriving) => true,
            Reply::Sent(sent) => !sent.is_empty() && sent.iter().all(full),
            Reply::Received(deliveries) => deliveries.is_empty(),
            _ => false,
        }
    }

    /// As it is answered and remembered.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        versioned(self).into()
    }

    /// Reads [`Reply::encode`] back.
    ///
    /// # Errors
    /// [`Unreadable`] when it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Reply, Unreadable> {
        read_versioned("a reply of a queue", bytes)
    }
}
