//! The life of one message: its handler, its lease, its end.

use std::any::Any;
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Delivery;
use super::shift::Shift;
use crate::error::Error;
use crate::message::Message;

/// Between tries of a renewal, beyond those that the client makes by itself.
const RENEW_AGAIN: Duration = Duration::from_millis(200);

/// How a handler ended.
enum End {
    Done,
    Failed(String),
    /// It was given up when the grace time was over.
    Aborted,
}

impl<H, F, E> Shift<H>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    /// Works on a message that was received at `since`.
    pub(super) async fn job(
        self: Arc<Shift<H>>,
        message: Message,
        since: Instant,
        place: OwnedSemaphorePermit,
    ) {
        let handle = message.receipt_handle.clone();
        let lost = CancellationToken::new();
        let delivery = Delivery { message, lost: lost.clone() };
        let lease = self.hold(&handle, since, &lost);
        tokio::pin!(lease);
        let end = tokio::select! {
            end = self.handle(delivery) => end,
            () = &mut lease => unreachable!("a lease is held until somebody settles it"),
        };
        match end {
            End::Done => self.acked(handle.clone()).await,
            End::Failed(reason) => {
                self.tally.failed();
                // The handler is through; while its message is held, another takes its place.
                drop(place);
                if self.settings.until_empty {
                    tokio::select! {
                        () = self.drained.cancelled() => {}
                        () = &mut lease => unreachable!("a lease is held until it is settled"),
                    }
                }
                self.nacked(&handle, None, &reason).await;
            }
            End::Aborted => {
                self.tally.given_back(1);
                let reason = "the consumer was stopped before it was done";
                self.nacked(&handle, Some(Duration::ZERO), reason).await;
            }
        }
    }

    /// Runs the handler, in a task of its own: its panics end there.
    async fn handle(&self, delivery: Delivery) -> End {
        let mut work = JoinSet::new();
        let handler = Arc::clone(&self.handler);
        work.spawn(async move { handler(delivery).await });
        let joined = tokio::select! {
            joined = work.join_next() => joined.expect("one was spawned"),
            () = self.stopper.abort.cancelled() => {
                // Until it is dropped: what it holds must be let go before another begins.
                work.shutdown().await;
                return End::Aborted;
            }
        };
        match joined {
            Ok(Ok(())) => End::Done,
            Ok(Err(error)) => End::Failed(error.to_string()),
            Err(error) => End::Failed(format!("panicked: {}", said(error))),
        }
    }

    /// Renews the lease at half time, again and again; says so if that fails for too long.
    async fn hold(&self, handle: &str, since: Instant, lost: &CancellationToken) {
        let visibility = self.settings.visibility;
        let mut ends = since + visibility;
        let mut next = since + visibility / 2;
        loop {
            tokio::time::sleep_until(next).await;
            let asked = Instant::now();
            let renewed = self.settings.queue.extend_until(handle, visibility, Some(ends)).await;
            match renewed {
                Ok(()) => {
                    ends = asked + visibility;
                    next = asked + visibility / 2;
                }
                Err(error) if error.is_passing() && Instant::now() + RENEW_AGAIN < ends => {
                    next = Instant::now() + RENEW_AGAIN;
                }
                Err(error) => {
                    tracing::warn!(%error, "a lease could not be renewed; another may have it");
                    lost.cancel();
                    return pending().await;
                }
            }
        }
    }

    async fn acked(&self, handle: String) {
        match self.acks.ack(handle).await {
            Ok(()) => self.tally.done(),
            Err(error) => {
                self.tally.lost();
                match error {
                    Error::Unknown(_) => tracing::warn!(%error, "done, but perhaps not acked"),
                    _ => tracing::warn!(%error, "done, but not acked: it may come again"),
                }
            }
        }
    }

    async fn nacked(&self, handle: &str, delay: Option<Duration>, reason: &str) {
        if let Err(error) = self.settings.queue.nack_handle(handle, delay, reason).await {
            // It comes back all the same, when the lease ends.
            tracing::warn!(%error, "not done, and not nacked");
        }
    }
}

/// What a panic said.
fn said(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "cancelled".to_owned() };
    let panic: &(dyn Any + Send) = &*panic;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
