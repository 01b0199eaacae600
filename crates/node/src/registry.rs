//! Every machine there is. A new one is a line here, a route file, a model and a page.
//!
//! | number | machine | |
//! |---|---|---|
//! | 0 | — | keys that begin so are the row store's own |
//! | 1 | kernel | timers, mail, answers, usage |
//! | 2 | tenants | tenants, keys, quotas |
//! | 3 | recents | recent searches |
//! | 4 | queue | queues and what is in them |
//! | 5 | streams | retained logs and their groups |
//!
//! Numbers are in every log and are never used again, not even for a machine that is gone.

use std::sync::Arc;

use kernel::ShardId;
use kernel::machine::Effect;
use shard::Machines;

use crate::effects::EffectError;
use crate::node::Inner;
use crate::{queue_bodies, recents_archive};

/// Fresh machines for one shard.
#[must_use]
pub fn machines() -> Machines {
    Machines::default()
        .with(Box::<tenants::Tenants>::default())
        .with(Box::<recents::Recents>::default())
        .with(Box::<queue::Queues>::default())
        .with(Box::<streams::Streams>::default())
}

/// Does what a machine asks for.
pub(crate) async fn execute(
    node: &Arc<Inner>,
    shard: ShardId,
    effect: &Effect,
) -> Result<(), EffectError> {
    match effect.machine {
        recents::MACHINE => recents_archive::execute(node, shard, effect).await,
        queue::MACHINE => queue_bodies::execute(node, shard, effect).await,
        other => Err(kernel::Unreadable::Machine(other).into()),
    }
}
