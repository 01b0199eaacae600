//! Executors: what machines ask of the outside world.
//!
//! The rows are the queue: an effect stays there until the machine has been told that it is done.
//! So a crash asks again, and an executor must bear being asked twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kernel::ShardId;
use kernel::machine::{Effect, pending_effects};

use crate::node::Inner;
use crate::registry;

/// Effects under way at a time, a shard.
const EFFECTS_AT_ONCE: usize = 16;
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Why an effect was not done; it will be tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EffectError {
    #[error("the archive: {0}")]
    Archive(#[from] object_store::Error),
    #[error("the shard: {0}")]
    Shard(#[from] crate::node::Refusal),
    #[error("an effect that this binary cannot read: {0}")]
    Unreadable(#[from] kernel::Unreadable),
    #[error("reading rows: {0}")]
    Rows(#[from] tokio::task::JoinError),
}

/// Does what one shard asks for, for ever.
pub(crate) async fn execute(node: Arc<Inner>, shard: ShardId) {
    let mut after = 0;
    let mut failed = false;
    let mut retry = RETRY_MIN;
    loop {
        let batch = pending(&node, shard, after).await;
        let Some(last) = batch.last() else {
            if failed {
                // Everything was tried once; what failed waits before the next round.
                tokio::select! {
                    () = tokio::time::sleep(retry) => {}
                    () = node.boards.effects[usize::from(shard.0)].notified() => {}
                }
                retry = (retry * 2).min(RETRY_MAX);
            } else if after == 0 {
                node.boards.effects[usize::from(shard.0)].notified().await;
            }
            (after, failed) = (0, false);
            continue;
        };
        after = last.number;
        for (effect, result) in join_all(batch.into_iter().map(|e| one(&node, shard, e))).await {
            match result {
                Ok(()) => retry = RETRY_MIN,
                Err(error) => {
                    failed = true;
                    tracing::warn!(%error, number = effect.number, "effect failed; trying again");
                }
            }
        }
    }
}

async fn one(
    node: &Arc<Inner>,
    shard: ShardId,
    effect: Effect,
) -> (Effect, Result<(), EffectError>) {
    let result = registry::execute(node, shard, &effect).await;
    (effect, result)
}

async fn pending(node: &Arc<Inner>, shard: ShardId, after: u64) -> Vec<Effect> {
    let reader = node.reader(shard);
    let read = move || pending_effects(&reader, after, EFFECTS_AT_ONCE);
    // A panic there means that rows are lost: the shard itself has stopped and says why.
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}
