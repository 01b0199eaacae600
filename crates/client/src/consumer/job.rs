//! The life of one message: its handler, its lease, its end.

use std::any::Any;
use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Delivery;
use super::settle::{LAST_TRY, Tries};
use super::shift::Shift;
use crate::message::Message;

/// A lease that is held.
struct Held {
    handle: String,
    /// When it ends, as it was renewed last.
    ends: Mutex<Instant>,
    lost: CancellationToken,
}

impl Held {
    fn ends(&self) -> Instant {
        *self.ends.lock().expect("nothing panics with it held")
    }
}

/// How a handler ended.
enum End {
    Done,
    Failed(String),
    /// It has not begun.
    Unbegun,
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
        let lost = CancellationToken::new();
        let held = Held {
            handle: message.receipt_handle.clone(),
            ends: Mutex::new(since + self.settings.visibility),
            lost: lost.clone(),
        };
        let delivery = Delivery { message, lost, unbegun: CancellationToken::new() };
        let lease = self.hold(&held);
        tokio::pin!(lease);
        let end = tokio::select! {
            end = self.handle(delivery) => end,
            () = &mut lease => unreachable!("a lease is held until somebody settles it"),
        };
        match end {
            End::Done => self.ack(&held).await,
            End::Failed(reason) => {
                self.tally.failed();
                if self.settings.until_empty {
                    // It is held until the end; meanwhile another takes its place.
                    drop(place);
                    tokio::select! {
                        () = self.drained.cancelled() => {}
                        () = &mut lease => unreachable!("a lease is held until it is settled"),
                    }
                }
                self.nack(&held, None, &reason).await;
            }
            End::Unbegun => {
                self.tally.given_back(1);
                self.give_back_one(&held).await;
            }
            End::Aborted => {
                self.tally.given_back(1);
                let reason = "the consumer was stopped before it was done";
                self.nack(&held, Some(Duration::ZERO), reason).await;
            }
        }
    }

    /// Runs the handler, in a task of its own: its panics end there.
    async fn handle(&self, delivery: Delivery) -> End {
        let mut work = JoinSet::new();
        let handler = Arc::clone(&self.handler);
        let unbegun = delivery.unbegun.clone();
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
            _ if unbegun.is_cancelled() => End::Unbegun,
            Ok(Ok(())) => End::Done,
            Ok(Err(error)) => End::Failed(error.to_string()),
            Err(error) => End::Failed(format!("panicked: {}", said(error))),
        }
    }

    /// Renews the lease at half time, again and again; says so if that fails until it has ended.
    async fn hold(&self, held: &Held) {
        let (queue, visibility) = (&self.settings.queue, self.settings.visibility);
        let once = |limit| queue.try_extend(&held.handle, visibility, limit);
        loop {
            let ends = held.ends();
            tokio::time::sleep_until(ends - visibility / 2).await;
            // Of the first try: which of them has renewed it is not known.
            let asked = Instant::now();
            if let Err(error) = self.tries(ends).renew(once).await {
                tracing::warn!(%error, "a lease could not be renewed; another may have it");
                held.lost.cancel();
                return pending().await;
            }
            *held.ends.lock().expect("nothing panics with it held") = asked + visibility;
        }
    }

    fn tries(&self, ends: Instant) -> Tries<'_> {
        Tries::until(ends, &self.settings.queue.client, &self.stopper.abort)
    }

    /// Until its lease ends, whatever is to be done to it. One that is over is tried for a while.
    fn tries_to_settle(&self, held: &Held) -> Tries<'_> {
        self.tries(held.ends().max(Instant::now() + LAST_TRY))
    }

    async fn ack(&self, held: &Held) {
        let once = |limit| self.acks.try_ack(held.handle.clone(), limit);
        match self.tries_to_settle(held).settle(once).await {
            Ok(()) => self.tally.done(),
            Err(error) => {
                self.tally.lost();
                tracing::warn!(%error, "done, but not known to be acked: it may come again");
            }
        }
    }

    async fn nack(&self, held: &Held, delay: Option<Duration>, reason: &str) {
        let once = |limit| self.settings.queue.try_nack(&held.handle, delay, reason, limit);
        if let Err(error) = self.tries_to_settle(held).settle(once).await {
            // It comes back all the same, when the lease ends.
            tracing::warn!(%error, "not done, and not known to be nacked");
        }
    }

    async fn give_back_one(&self, held: &Held) {
        let once = |limit| self.settings.queue.try_give_back(&held.handle, limit);
        if let Err(error) = self.tries_to_settle(held).settle(once).await {
            tracing::warn!(%error, "not begun, and not known to be given back");
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
