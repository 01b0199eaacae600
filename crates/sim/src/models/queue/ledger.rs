//! One book for all shards of a run: where each message is, and what clients have heard.
//!
//! The models write into it as they go, and it takes no step that a message must not take. So it
//! is here that a message lost between two shards, or come twice, is found.

use std::collections::{BTreeMap, BTreeSet};

use kernel::TenantId;
use queue::parcel::ArchivedBody;
use queue::{MessageId, Mode, Receipt};

use crate::subject::{Difference, same};

/// A queue: names are a tenant's own.
pub(super) type Name = (TenantId, String);

/// Where a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Where {
    In(Name),
    /// A letter to there.
    OnTheWay(Name),
    /// Acked, expired, purged, deleted, or not wanted where it came.
    Gone(&'static str),
}

/// A body in the archive.
pub(super) type BodyOf = (TenantId, ArchivedBody);

/// What a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    /// Reserved, or some message's.
    Needed,
    /// Nobody's any more: it is to be deleted.
    Ended,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What is sent to a queue is in one place. What is published is in as many as wanted it then:
    /// they share a name, and each goes its own way.
    messages: BTreeMap<(u16, u64, u64), Vec<Where>>,
    bodies: BTreeMap<BodyOf, BodyState>,
    body_of: BTreeMap<(u16, u64, u64), BodyOf>,
    /// Those that an executor has deleted.
    deleted: BTreeSet<BodyOf>,
    /// Bodies that were reserved, for clients to send, the latest last.
    pub(super) reserved: Vec<(Name, ArchivedBody)>,
    /// Every receipt that was given out, the latest last.
    pub(super) receipts: Vec<(Name, Receipt)>,
    /// The queues that there are: mode and version.
    pub(super) queues: BTreeMap<Name, (Mode, u64)>,
    /// Every job that was begun, the latest last.
    pub(super) jobs: Vec<(Name, u64)>,
    /// Topics and queues that ever subscribed, the latest last.
    pub(super) subscriptions: Vec<(Name, String)>,
}

fn key(id: MessageId) -> (u16, u64, u64) {
    (id.shard, id.queue, id.sequence)
}

impl Ledger {
    fn step(&mut self, id: MessageId, from: &Where, to: Where) -> Result<(), Difference> {
        let places = self.messages.entry(key(id)).or_default();
        match places.iter_mut().find(|place| *place == from) {
            Some(place) => *place = to,
            None => return Err(format!("where {id:?} is: expected {from:?}, actual {places:?}")),
        }
        Ok(())
    }

    /// A message was accepted; its name is new.
    pub(super) fn sent(&mut self, id: MessageId, queue: &Name) -> Result<(), Difference> {
        let was = self.messages.insert(key(id), vec![Where::In(queue.clone())]);
        same(&format!("where {id:?} is"), &None, &was)
    }

    /// A message was published, and goes to these; its name is new.
    pub(super) fn published(
        &mut self,
        id: MessageId,
        to: impl Iterator<Item = Name>,
    ) -> Result<(), Difference> {
        let was = self.messages.insert(key(id), to.map(Where::OnTheWay).collect());
        same(&format!("where {id:?} is"), &None, &was)
    }

    /// A message was handed out.
    pub(super) fn delivered(&mut self, id: MessageId, queue: &Name) -> Result<(), Difference> {
        if let Some(body) = self.body_of.get(&key(id)).filter(|body| self.deleted.contains(body)) {
            return Err(format!("{id:?} is handed out, and its body was deleted: {body:?}"));
        }
        let here = Where::In(queue.clone());
        self.step(id, &here, here.clone())
    }

    /// A place is kept for a body; it never was before.
    pub(super) fn reserve(&mut self, queue: &Name, body: ArchivedBody) -> Result<(), Difference> {
        self.reserved.push((queue.clone(), body));
        let was = self.bodies.insert((queue.0, body), BodyState::Needed);
        same(&format!("what {body:?} was"), &None, &was)
    }

    /// A message was accepted with this body.
    pub(super) fn sent_with(&mut self, id: MessageId, body: BodyOf) {
        self.body_of.insert(key(id), body);
    }

    /// Nobody has a body any more.
    pub(super) fn end_body(&mut self, body: BodyOf) -> Result<(), Difference> {
        let was = self.bodies.insert(body, BodyState::Ended);
        same(&format!("what {body:?} was"), &Some(BodyState::Needed), &was)
    }

    /// An executor has deleted a body.
    pub(super) fn deleted(&mut self, body: BodyOf) {
        self.deleted.insert(body);
    }

    /// Of one shard: what is to be deleted is nobody's any more, and what is needed is there.
    pub(super) fn check_bodies(
        &self,
        asked: &[BodyOf],
        mut needed: impl Iterator<Item = BodyOf>,
    ) -> Result<(), Difference> {
        for body in asked {
            let state = self.bodies.get(body);
            same(&format!("what {body:?} is"), &Some(&BodyState::Ended), &state)?;
        }
        let lost = needed.find(|body| self.deleted.contains(body));
        same("body that is needed, and deleted", &None, &lost)
    }

    /// A message has come to its end.
    pub(super) fn gone(
        &mut self,
        id: MessageId,
        queue: &Name,
        why: &'static str,
    ) -> Result<(), Difference> {
        self.step(id, &Where::In(queue.clone()), Where::Gone(why))?;
        self.body_of.remove(&key(id)).map_or(Ok(()), |body| self.end_body(body))
    }

    /// A message has died, or was moved.
    pub(super) fn posted(
        &mut self,
        id: MessageId,
        from: &Name,
        to: &Name,
    ) -> Result<(), Difference> {
        self.step(id, &Where::In(from.clone()), Where::OnTheWay(to.clone()))
    }

    /// A letter has come.
    pub(super) fn arrived(&mut self, id: MessageId, to: &Name) -> Result<(), Difference> {
        self.step(id, &Where::OnTheWay(to.clone()), Where::In(to.clone()))
    }

    /// A letter is sent back.
    pub(super) fn sent_back(
        &mut self,
        id: MessageId,
        from: &Name,
        to: &Name,
    ) -> Result<(), Difference> {
        self.step(id, &Where::OnTheWay(from.clone()), Where::OnTheWay(to.clone()))
    }

    /// A letter has come to where nobody wants it.
    pub(super) fn unwanted(
        &mut self,
        id: MessageId,
        to: &Name,
        why: &'static str,
    ) -> Result<(), Difference> {
        self.step(id, &Where::OnTheWay(to.clone()), Where::Gone(why))?;
        self.body_of.remove(&key(id)).map_or(Ok(()), |body| self.end_body(body))
    }

    /// When everything pending has been done, and years have passed, no message is on its way, and
    /// none is in any of these queues.
    pub(super) fn check_healed(&self, mine: impl Fn(&Name) -> bool) -> Result<(), Difference> {
        let is_left = |place: &Where| match place {
            Where::In(name) => mine(name),
            Where::OnTheWay(_) => true,
            Where::Gone(_) => false,
        };
        let left = self.messages.iter().find(|(_, places)| places.iter().any(is_left));
        same("message that has not come to its end", &None, &left)?;
        let mut kept = self.bodies.keys().filter(|body| !self.deleted.contains(body));
        same("body that is left in the archive", &None, &kept.next())
    }
}
