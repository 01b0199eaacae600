//! Receiving: as much as there are places for, until somebody says stop.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::acks::Acks;
use super::{ConsumerBuilder, Delivery, Stopper, Summary};
use crate::error::Error;
use crate::message::Message;
use crate::queue::Receive;

/// Messages of one receive.
const RECEIVE_MAX: u16 = 100;
/// Between receives that fail, beyond the tries that the client makes by itself.
const RECEIVE_AGAIN: Duration = Duration::from_secs(1);
/// Failures that are held until the queue is empty.
const HELD_MAX: u64 = 1000;

/// A consumer while it runs.
pub(super) struct Shift<H> {
    pub(super) settings: ConsumerBuilder,
    pub(super) stopper: Stopper,
    pub(super) handler: Arc<H>,
    pub(super) acks: Acks,
    pub(super) tally: Tally,
    /// Nothing more is received: failures that were held are given back.
    pub(super) drained: CancellationToken,
    places: Arc<Semaphore>,
}

impl<H, F, E> Shift<H>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    pub(super) fn new(settings: ConsumerBuilder, handler: H) -> Arc<Shift<H>> {
        Arc::new(Shift {
            acks: Acks::start(settings.queue.clone()),
            places: Arc::new(Semaphore::new(settings.concurrency.into())),
            stopper: settings.stopper.clone(),
            settings,
            handler: Arc::new(handler),
            tally: Tally::default(),
            drained: CancellationToken::new(),
        })
    }

    pub(super) async fn run(self: Arc<Shift<H>>) -> Result<Summary, Error> {
        let mut jobs = JoinSet::new();
        let outcome = self.receive_all(&mut jobs).await;
        self.drained.cancel();
        self.finish(&mut jobs).await;
        outcome.map(|()| self.tally.summary())
    }

    async fn receive_all(self: &Arc<Shift<H>>, jobs: &mut JoinSet<()>) -> Result<(), Error> {
        let mut connected = !self.settings.must_connect;
        let mut was_idle = false;
        // One receive may bring several of a group, and what is behind one that fails must not be
        // begun: where there are groups, and until that is known, one message is taken at a time.
        let mut in_groups = true;
        while let Some(places) = self.free_places().await {
            while jobs.try_join_next().is_some() {}
            let max = if in_groups { 1 } else { places.len() };
            // Whether there is such a queue is to be known at once, not when a message comes.
            let wait = if connected { self.settings.wait } else { Duration::ZERO };
            let messages = match self.receive(max, wait).await {
                None => return Ok(()),
                Some(Ok(messages)) => messages,
                // Failures that are held until the end fill up what the queue lets be leased: there is no
                // more to get, as after an empty answer.
                Some(Err(error)) if self.holds_failures() && error.is_of_inflight() => Vec::new(),
                Some(Err(error)) if error.is_passing() && connected => {
                    tracing::warn!(%error, "nothing received; trying again");
                    self.pause().await;
                    continue;
                }
                Some(Err(error)) => return Err(error),
            };
            connected = true;
            if self.stopper.stop.is_cancelled() {
                // A job like others, which is waited for no longer than they are.
                jobs.spawn(Arc::clone(self).give_back(messages));
                return Ok(());
            }
            if messages.is_empty() && self.settings.until_empty {
                if was_idle {
                    return Ok(());
                }
                // Handlers that run may send more, or make room in their group.
                drop(places);
                self.all_idle().await;
                was_idle = true;
                continue;
            }
            was_idle = false;
            if !messages.is_empty() {
                in_groups = messages.iter().any(|message| message.message_group_id.is_some());
            }
            let since = Instant::now();
            for (message, place) in messages.into_iter().zip(places) {
                jobs.spawn(Arc::clone(self).job(message, since, place));
            }
        }
        Ok(())
    }

    fn holds_failures(&self) -> bool {
        self.settings.until_empty && self.tally.summary().failed > 0
    }

    /// All places that are free, once there is one; `None` when it is time to stop.
    async fn free_places(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        let first = tokio::select! {
            biased;
            () = self.stopper.stop.cancelled() => return None,
            place = Arc::clone(&self.places).acquire_owned() => place.expect("never closed"),
        };
        if self.settings.until_empty && self.tally.summary().failed >= HELD_MAX {
            return None;
        }
        let more = || Arc::clone(&self.places).try_acquire_owned().ok();
        let others = std::iter::from_fn(more).take(usize::from(RECEIVE_MAX) - 1);
        Some(std::iter::once(first).chain(others).collect())
    }

    async fn receive(&self, max: usize, wait: Duration) -> Option<Result<Vec<Message>, Error>> {
        let max = u16::try_from(max).unwrap_or(RECEIVE_MAX);
        let wait = if self.settings.until_empty { Duration::ZERO } else { wait };
        let ask = Receive::up_to(max).wait(wait).visibility(self.settings.visibility);
        let receive = self.settings.queue.receive(ask);
        tokio::pin!(receive);
        tokio::select! {
            biased;
            received = &mut receive => Some(received),
            () = self.stopper.stop.cancelled() => {
                tokio::select! {
                    received = timeout(self.settings.linger, receive) => received.ok(),
                    // What it brings comes back when its lease ends: the time is for what is settled.
                    () = self.stopper.abort.cancelled() => None,
                }
            }
        }
    }

    async fn pause(&self) {
        tokio::select! {
            () = tokio::time::sleep(RECEIVE_AGAIN) => {}
            () = self.stopper.stop.cancelled() => {}
        }
    }

    async fn all_idle(&self) {
        tokio::select! {
            all = self.places.acquire_many(self.settings.concurrency.into()) => {
                drop(all.expect("never closed"));
            }
            () = self.stopper.stop.cancelled() => {}
        }
    }

    async fn give_back(self: Arc<Shift<H>>, messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        let handles: Vec<_> = messages.iter().map(|m| m.receipt_handle.clone()).collect();
        self.tally.given_back(handles.len() as u64);
        // They come back all the same, when their leases end.
        tokio::select! {
            outcome = self.settings.queue.give_back(&handles) => {
                if let Err(error) = outcome {
                    tracing::warn!(%error, "not given back");
                }
            }
            () = self.stopper.too_late() => tracing::warn!("not known to be given back"),
        }
    }

    /// Waits for handlers as long as it may, then for their messages to be given back.
    async fn finish(&self, jobs: &mut JoinSet<()>) {
        let grace = async {
            match self.settings.grace {
                Some(grace) => tokio::time::sleep(grace).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = all_of(jobs) => {}
            () = grace => self.stopper.abort(),
            () = self.stopper.abort.cancelled() => {}
        }
        all_of(jobs).await;
    }
}

async fn all_of(jobs: &mut JoinSet<()>) {
    while let Some(job) = jobs.join_next().await {
        job.expect("jobs do not panic: handlers have tasks of their own");
    }
}

/// What was done so far.
#[derive(Default)]
pub(super) struct Tally {
    done: AtomicU64,
    failed: AtomicU64,
    given_back: AtomicU64,
    lost: AtomicU64,
}

impl Tally {
    pub(super) fn done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn given_back(&self, count: u64) {
        self.given_back.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn summary(&self) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            done: read(&self.done),
            failed: read(&self.failed),
            given_back: read(&self.given_back),
            lost: read(&self.lost),
        }
    }
}
