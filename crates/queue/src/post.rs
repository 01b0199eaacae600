//! What queues write to each other.

use bytes::Bytes;
use kernel::Unreadable;
use kernel::codec::{pack, split_command, unpack};
use serde::{Deserialize, Serialize};

use crate::command::{Mode, NewMessage, Story};
use crate::redrive::JobState;
use crate::state::MessageId;

const NAME: &str = "queue";

/// A dead message on its way. The body of a letter, tag 1. No release has written version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Where to.
    pub queue: String,
    /// Of the queue it comes from; a dead-letter queue that is not there is made so.
    pub mode: Mode,
    /// What happened.
    pub story: Story,
    /// When it was first sent.
    pub sent_ms: u64,
    /// As sent.
    pub priority: u8,
    /// As sent.
    pub parcel: Bytes,
}

/// A message on its way from queue to queue. The body of a letter, tag 2; of tag 4 when it comes back,
/// because it could not be taken. No release has written version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) queue: String,
    pub(crate) id: MessageId,
    pub(crate) priority: u8,
    pub(crate) group: Option<String>,
    pub(crate) parcel: Bytes,
    pub(crate) from: MovedFrom,
}

/// Where a message is moved from, and what it must be there again if it comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MovedFrom {
    pub(crate) queue: String,
    pub(crate) number: u64,
    pub(crate) job: u64,
    pub(crate) sequence: u64,
    pub(crate) sent_ms: u64,
    pub(crate) visible_ms: u64,
    pub(crate) leases: u32,
    pub(crate) unseen: u32,
    pub(crate) first_received_ms: u64,
    pub(crate) first_failed_ms: u64,
    pub(crate) last_failed_ms: u64,
    pub(crate) reason: Option<String>,
    pub(crate) story: Option<Story>,
}

impl Moved {
    /// The group that it has where there is order: its own, or the one that it had where it died.
    pub(crate) fn group_in_order(&self) -> Option<&String> {
        let lost = || self.from.story.as_ref()?.group.as_ref();
        self.group.as_ref().or_else(lost)
    }
}

/// A message on its way from a topic to a subscription. The body of a letter, tag 3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fanned {
    pub(crate) queue: String,
    pub(crate) id: MessageId,
    pub(crate) message: NewMessage,
}

/// What machines of queues write to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    Dead(DeadLetter),
    Moved(Moved),
    Fanned(Fanned),
    /// Why it could not be taken: a state that its job ends in.
    Returned(Moved, JobState),
    Arrived(Arrived),
}

/// That a message which a job moved is where it was to go. The body of a letter, tag 5. Version 1 lacks
/// the last field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    pub(crate) queue: String,
    pub(crate) number: u64,
    pub(crate) job: u64,
    /// The one that it had there.
    pub(crate) group: Option<String>,
}

impl Post {
    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Post::Dead(letter) => pack(1, 2, letter),
            Post::Moved(moved) => pack(2, 2, moved),
            Post::Fanned(fanned) => pack(3, 1, fanned),
            Post::Returned(moved, why) => pack(4, 1, &(moved, why)),
            Post::Arrived(arrived) => pack(5, 2, arrived),
        }
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Post, Unreadable> {
        match split_command(body)? {
            (1, 2, body) => Ok(Post::Dead(unpack(NAME, body)?)),
            (2, 2, body) => Ok(Post::Moved(unpack(NAME, body)?)),
            (3, 1, body) => Ok(Post::Fanned(unpack(NAME, body)?)),
            (4, 1, body) => {
                let (moved, why) = unpack(NAME, body)?;
                Ok(Post::Returned(moved, why))
            }
            (5, 1, body) => Ok(Post::Arrived(unpack(NAME, &[body, &[0]].concat())?)),
            (5, 2, body) => Ok(Post::Arrived(unpack(NAME, body)?)),
            (tag, version, _) => Err(Unreadable::Command { machine: NAME, tag, version }),
        }
    }
}
