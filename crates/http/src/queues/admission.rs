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
/// second. What was answered before is admitted, however full it is, and costs nothing again.
pub(crate) async fn admit<'a>(
    edge: &Edge,
    caller: &'a Caller,
    at: VirtualShard,
    queue: Option<(&'a str, u32)>,
    idempotency: Option<IdempotencyKey>,
    count: usize,
) -> Result<Admitted<'a>, Problem> {
    let room = caller.check_room(false);
    // It is looked up where it makes a difference, and nowhere else.
    let has_rate = queue.is_some() || caller.has_message_rate();
    if (has_rate || room.is_err()) && edge.node.is_answered(at, idempotency).await? {
        return Ok(Admitted { caller, queue, charged: 0 });
    }
    room?;
    // The queue first: who floods one that takes few uses up nothing of the tenant's rate.
    if let Some((name, per_second)) = queue {
        caller.charge_queue(name, per_second, count)?;
    }
    if let Err(refused) = caller.charge_messages(count) {
        caller.give_back_to_queue(queue, count);
        return Err(refused);
    }
    Ok(Admitted { caller, queue, charged: count })
}

impl Admitted<'_> {
    /// Gives back what was charged for those that were not sent.
    pub(crate) fn settle<T, E, F>(self, sent: &Result<Vec<Result<T, E>>, F>) {
        let count = sent.iter().flatten().filter(|sent| sent.is_ok()).count();
        let left = self.charged.saturating_sub(count);
        self.caller.give_back_messages(left);
        self.caller.give_back_to_queue(self.queue, left);
    }
}
