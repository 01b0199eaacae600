//! One book for all shards of a run: where each message is, and what clients have heard.
//!
//! The models write into it as they go, and it takes no step that a message must not take. So it
//! is here that a message lost between two shards, or come twice, is found.

use std::collections::BTreeMap;

use kernel::TenantId;
use queue::{MessageId, Mode, Receipt};

use crate::subject::{Difference, same};

/// A queue: names are a tenant's own.
pub(super) type Name = (TenantId, String);

/// Where a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Where {
    In(Name),
    /// A dead letter to there.
    OnTheWay(Name),
    /// Acked, expired, purged or deleted.
    Gone(&'static str),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    messages: BTreeMap<(u16, u64, u64), Where>,
    /// Every receipt that was given out, the latest last.
    pub(super) receipts: Vec<(Name, Receipt)>,
    /// The queues that there are: mode and version.
    pub(super) queues: BTreeMap<Name, (Mode, u64)>,
}

fn key(id: MessageId) -> (u16, u64, u64) {
    (id.shard, id.queue, id.sequence)
}

impl Ledger {
    fn step(&mut self, id: MessageId, from: Option<Where>, to: Where) -> Result<(), Difference> {
        let was = self.messages.insert(key(id), to);
        same(&format!("where {id:?} is"), &from, &was)
    }

    /// A message was accepted; its name is new.
    pub(super) fn sent(&mut self, id: MessageId, queue: &Name) -> Result<(), Difference> {
        self.step(id, None, Where::In(queue.clone()))
    }

    /// A message was handed out.
    pub(super) fn delivered(&mut self, id: MessageId, queue: &Name) -> Result<(), Difference> {
        let here = Where::In(queue.clone());
        self.step(id, Some(here.clone()), here)
    }

    /// A message has come to its end.
    pub(super) fn gone(
        &mut self,
        id: MessageId,
        queue: &Name,
        why: &'static str,
    ) -> Result<(), Difference> {
        self.step(id, Some(Where::In(queue.clone())), Where::Gone(why))
    }

    /// A message has died.
    pub(super) fn posted(
        &mut self,
        id: MessageId,
        from: &Name,
        to: &Name,
    ) -> Result<(), Difference> {
        self.step(id, Some(Where::In(from.clone())), Where::OnTheWay(to.clone()))
    }

    /// A dead letter has come.
    pub(super) fn arrived(&mut self, id: MessageId, to: &Name) -> Result<(), Difference> {
        self.step(id, Some(Where::OnTheWay(to.clone())), Where::In(to.clone()))
    }

    /// When everything pending has been done, and years have passed, no message is on its way, and
    /// none is in any of these queues.
    pub(super) fn check_healed(&self, mine: impl Fn(&Name) -> bool) -> Result<(), Difference> {
        let is_left = |place: &Where| match place {
            Where::In(name) => mine(name),
            Where::OnTheWay(_) => true,
            Where::Gone(_) => false,
        };
        let left = self.messages.iter().find(|(_, place)| is_left(place));
        same("message that has not come to its end", &None, &left)
    }
}
