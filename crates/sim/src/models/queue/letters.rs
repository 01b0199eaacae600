//! What queues write to each other, and in which order.

use std::collections::BTreeMap;

use bytes::Bytes;
use kernel::ShardId;
use kernel::codec::pack;
use kernel::machine::Place;
use queue::{DeadLetter, JobState, MACHINE, MessageId, NewMessage, Peeked, Story};
use serde::{Deserialize, Serialize};

use super::ledger::Name;
use super::{QueueModel, look};
use crate::naive::Scene;
use crate::subject::Difference;

/// A message on its way from queue to queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) queue: String,
    pub(super) id: MessageId,
    pub(super) priority: u8,
    pub(super) group: Option<String>,
    pub(super) parcel: Bytes,
    pub(super) from: MovedFrom,
}

/// Where it is moved from, and what it is there again if it comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MovedFrom {
    pub(super) queue: String,
    pub(super) number: u64,
    pub(super) job: u64,
    pub(super) sequence: u64,
    pub(super) sent_ms: u64,
    pub(super) visible_ms: u64,
    pub(super) leases: u32,
    pub(super) unseen: u32,
    pub(super) first_received_ms: u64,
    pub(super) first_failed_ms: u64,
    pub(super) last_failed_ms: u64,
    pub(super) reason: Option<String>,
    pub(super) story: Option<Story>,
}

/// That it is where it was to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrived {
    pub(super) queue: String,
    pub(super) number: u64,
    pub(super) job: u64,
    pub(super) group: Option<String>,
}

impl Moved {
    pub(super) fn arrival_letter(&self) -> Bytes {
        let MovedFrom { queue, number, job, .. } = self.from.clone();
        pack(5, 2, &Arrived { queue, number, job, group: self.group.clone() })
    }

    /// Its group, or the one it had where it died.
    pub(super) fn any_group(&self) -> Option<&str> {
        let lost = || self.from.story.as_ref()?.group.as_deref();
        self.group.as_deref().or_else(lost)
    }

    pub(super) fn return_letter(&self, why: JobState) -> Bytes {
        pack(4, 1, &(self, why))
    }
}

/// A message on its way from a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fanned {
    pub(super) queue: String,
    pub(super) id: MessageId,
    pub(super) message: NewMessage,
}

/// What is written when time passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Post {
    Dead(DeadLetter),
    Moved(Moved),
}

impl Post {
    fn queue(&self) -> &str {
        match self {
            Post::Dead(letter) => &letter.queue,
            Post::Moved(moved) => &moved.queue,
        }
    }

    fn encode(&self) -> Bytes {
        match self {
            Post::Dead(letter) => pack(1, 2, letter),
            Post::Moved(moved) => pack(2, 2, moved),
        }
    }

    /// What it is known by where it has arrived.
    fn story(&self) -> (MessageId, Option<&Story>, Option<&str>) {
        match self {
            Post::Dead(letter) => {
                (letter.story.id, Some(&letter.story), letter.story.group.as_deref())
            }
            Post::Moved(moved) => (moved.id, None, moved.any_group()),
        }
    }

    pub(super) fn send(&self, scene: &mut Scene<'_>) {
        let to = queue::place(scene.tenant(), self.queue());
        scene.send(to, MACHINE, self.encode());
    }
}

/// A letter that is written because some time was over, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    pub(super) from: Name,
    pub(super) post: Post,
}

impl Parting {
    pub(super) fn to(&self) -> Name {
        (self.from.0, self.post.queue().to_owned())
    }

    /// Whether it is sent back within the entry in which it is sent.
    pub(super) fn comes_back_here(&self, model: &QueueModel, scene: &Scene<'_>) -> bool {
        let Post::Moved(moved) = &self.post else { return false };
        let here = shard_of(&self.to(), scene.place()) == scene.place().shard;
        here && model.why_unfit(self.from.0, moved).is_some()
    }

    /// Of one source letters are in order: the dead of a queue, or what a job moves.
    fn source(&self) -> (&Name, bool) {
        (&self.from, matches!(self.post, Post::Dead(_)))
    }
}

pub(super) fn shard_of(name: &Name, place: Place) -> ShardId {
    queue::place(name.0, &name.1).shard(place.shard_count)
}

/// What has come to queues of this shard in an entry, or has left for others: each is the place of
/// one letter.
#[derive(Default)]
pub(super) struct Arrivals {
    here: BTreeMap<Name, Vec<Peeked>>,
    outbox: BTreeMap<ShardId, Vec<(u64, Bytes)>>,
}

impl Arrivals {
    /// The place of a letter, which then is taken. None when it was not sent, or when what it
    /// brought was removed, or came back, in the same entry.
    pub(super) fn take(
        &mut self,
        model: &QueueModel,
        scene: &Scene<'_>,
        parting: &Parting,
    ) -> Option<u64> {
        let (to, place) = (parting.to(), scene.place());
        let shard = shard_of(&to, place);
        if shard != place.shard {
            let outbox = self.outbox.entry(shard).or_insert_with(|| {
                let letters = scene.new_letters(shard).into_iter();
                letters.enumerate().map(|(at, letter)| (at as u64, letter.body)).collect()
            });
            let body = parting.post.encode();
            let at = outbox.iter().position(|(_, other)| *other == body)?;
            return Some(outbox.remove(at).0);
        }
        if parting.comes_back_here(model, scene) {
            return None;
        }
        let here = self.here.entry(to.clone()).or_insert_with(|| {
            let known = model.queues.iter().find(|queue| queue.name == to);
            let last = known.map_or(0, |queue| queue.last_sequence);
            look::newer_than(scene.rows, &to, last)
        });
        let (id, story, group) = parting.post.story();
        let at = here.iter().position(|peeked| {
            let grouped = peeked.group.as_deref().is_none_or(|g| g == group.unwrap_or_default());
            (peeked.id, peeked.story.as_ref(), grouped) == (id, story, true)
        })?;
        Some(here.remove(at).sequence)
    }
}

impl QueueModel {
    /// Whether a letter has been sent back, before one of the dead made the queue that was not there.
    fn is_back(&self, scene: &Scene<'_>, parting: &Parting) -> bool {
        let Post::Moved(moved) = &parting.post else { return false };
        let sequence = moved.from.sequence;
        let still = || look::newer_than(scene.rows, &parting.from, sequence - 1);
        parting.comes_back_here(self, scene) && still().iter().any(|p| p.sequence == sequence)
    }

    /// Letters as they were sent. Of one source they are in order; which source's time came first,
    /// the machine decides.
    pub(super) fn in_order(
        &self,
        scene: &Scene<'_>,
        partings: Vec<Parting>,
    ) -> Result<Vec<Parting>, Difference> {
        if partings.windows(2).all(|pair| pair[0].source() == pair[1].source()) {
            return Ok(partings);
        }
        let mut arrivals = Arrivals::default();
        let mut placed = Vec::new();
        for (number, parting) in partings.into_iter().enumerate() {
            let to = shard_of(&parting.to(), scene.place());
            let last = if self.is_back(scene, &parting) { 0 } else { u64::MAX };
            let position = arrivals.take(self, scene, &parting).unwrap_or(last);
            placed.push((to, position, number, parting));
        }
        placed.sort_by_key(|(to, position, number, _)| (*to, *position, *number));
        for (at, (to, _, number, parting)) in placed.iter().enumerate() {
            // Here places are those of one queue.
            let same_line = |other: &Parting| {
                *to != scene.place().shard || other.post.queue() == parting.post.queue()
            };
            let mut later = placed[at..].iter();
            if later.any(|(other, _, n, p)| {
                (other, p.source()) == (to, parting.source()) && n < number && same_line(p)
            }) {
                return Err(format!("letters of {} are out of order", parting.from.1));
            }
        }
        Ok(placed.into_iter().map(|(_, _, _, parting)| parting).collect())
    }
}
