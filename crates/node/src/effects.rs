//! Executors: what machines ask of the outside world.
//!
//! The rows are the queue: an effect stays there until the machine has been told that it is done.
//! So a crash asks again, and an executor must bear being asked twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Which effects are looked at next, and when those that failed are.
#[derive(Debug, PartialEq)]
struct Round {
    /// Effects up to this number were tried.
    after: u64,
    /// When all are tried again, if one of them has failed.
    again_at: Option<Instant>,
    /// How long whoever fails next waits.
    retry: Duration,
}

impl Round {
    const FIRST: Round = Round { after: 0, again_at: None, retry: RETRY_MIN };

    fn failed(&mut self, now: Instant) {
        if self.again_at.is_none() {
            self.again_at = Some(now + self.retry);
            self.retry = (self.retry * 2).min(RETRY_MAX);
        }
    }

    /// Everything was tried, and nothing failed or it is time to try again.
    fn begin_again(&mut self) {
        *self = match self.again_at {
            Some(_) => Round { after: 0, again_at: None, retry: self.retry },
            None => Round::FIRST,
        };
    }
}

/// Does what one shard asks for, for ever.
pub(crate) async fn execute(node: Arc<Inner>, shard: ShardId) {
    let asked = || node.boards.effects[usize::from(shard.0)].notified();
    let mut round = Round::FIRST;
    loop {
        let batch = pending(&node, shard, round.after).await;
        let Some(last) = batch.last() else {
            match round.again_at {
                // What is asked meanwhile is done; what failed waits for its time all the same.
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => round.begin_again(),
                    () = asked() => {}
                },
                None if round.after == 0 => asked().await,
                None => round.begin_again(),
            }
            continue;
        };
        round.after = last.number;
        for (effect, result) in join_all(batch.into_iter().map(|e| one(&node, shard, e))).await {
            if let Err(error) = result {
                round.failed(Instant::now());
                tracing::warn!(%error, number = effect.number, "effect failed; trying again");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_waits_longer_each_time_whatever_is_done_meanwhile() {
        let now = Instant::now();
        let mut round = Round::FIRST;
        for wait in [RETRY_MIN, RETRY_MIN * 2, RETRY_MIN * 4] {
            round.after = 16;
            round.failed(now);
            // Of those that are asked meanwhile one fails as well.
            round.after = 17;
            round.failed(now + RETRY_MIN / 2);
            assert_eq!(round.again_at, Some(now + wait));
            round.begin_again();
            assert_eq!((round.after, round.again_at), (0, None));
        }
        round.begin_again();
        assert_eq!(round, Round::FIRST, "nothing has failed since");
        for _ in 0..20 {
            round.failed(now);
            round.begin_again();
        }
        assert_eq!(round.retry, RETRY_MAX);
    }
}
