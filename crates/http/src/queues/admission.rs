//! Whether so many messages may be sent: there is room, and they are within the rates of their tenant and
//! of their queue.

use kernel::{IdempotencyKey, VirtualShard};

use crate::app::Edge;
use crate::auth::Caller;
use crate::problem::Problem;

/// Messages that may be sent, and what was charged for them.
#[must_use = "what is not sent is not charged"]
pub(crate) struct Admitted<'a> {
    caller: &'a Caller,
    /// That has a bound of what it may be sent in a second.
    queue: Option<(&'a str, u32)>,
    /// None of those of a request that was answered before.
    charged: usize,
}

/// Admits messages to a place, all of them or none; to a queue, if that may be sent only so many in a
/// second. What was answered before is admitted however full it is.
pub(crate) async fn admit<'a>(
    edge: &Edge,
    caller: &'a Caller,
    at: VirtualShard,
    queue: Option<(&'a str, u32)>,
    idempotency: Option<IdempotencyKey>,
    count: usize,
) -> Result<Admitted<'a>, Problem> {
    let Err(refused) = charge(caller, queue, count) else {
        return Ok(Admitted { caller, queue, charged: count });
    };
    // It is looked up where it makes a difference, and nowhere else: that takes a row to be read.
    if edge.node.is_answered(at, idempotency).await? {
        return Ok(Admitted { caller, queue, charged: 0 });
    }
    Err(refused)
}

fn charge(caller: &Caller, queue: Option<(&str, u32)>, count: usize) -> Result<(), Problem> {
    caller.check_room(false)?;
    // The queue first: who floods one that takes few uses up nothing of the tenant's rate.
    if let Some((name, per_second)) = queue {
        caller.charge_queue(name, per_second, count)?;
    }
    caller.charge_messages(count).inspect_err(|_| caller.give_back_to_queue(queue, count))
}

impl Admitted<'_> {
    /// Gives back what was charged for those that were not sent, but for those that their queue refused:
    /// they were as much work as what it takes.
    pub(crate) fn settle<T, E, F>(
        self,
        sent: &Result<Vec<Result<T, E>>, F>,
        is_refused: impl Fn(&E) -> bool,
    ) {
        let is_charged = |sent: &&Result<T, E>| sent.as_ref().err().is_none_or(&is_refused);
        let count = sent.iter().flatten().filter(is_charged).count();
        let left = self.charged.saturating_sub(count);
        self.caller.give_back_messages(left);
        self.caller.give_back_to_queue(self.queue, left);
    }
}
