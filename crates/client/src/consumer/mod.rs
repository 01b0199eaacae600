//! A handler run for each message, with everything around it.
//!
//! ```text
//!   receive ──▶ handler ──┬─ Ok ────▶ ack (many at once)
//!   as many     lease     ├─ Err ───▶ nack with its text
//!   as are      renewed   ├─ panic ─▶ nack with its text
//!   free        at half   └─ asked to stop, grace over ─▶ nack, at once for another
//! ```
//!
//! A message is received only when there is a place for it, so nothing waits here while its lease
//! runs out. `shift` receives and spawns, `job` is the life of one message, `settle` tries what ends it
//! again and again, `acks` gathers acks.

mod acks;
mod job;
mod settle;
mod shift;

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::message::Message;
use crate::queue::Queue;
use shift::Shift;

/// Settings of a [`Consumer`]. From [`Queue::consumer`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ConsumerBuilder {
    queue: Queue,
    concurrency: u16,
    wait: Duration,
    visibility: Duration,
    grace: Option<Duration>,
    linger: Duration,
    until_empty: bool,
    must_connect: bool,
    stopper: Stopper,
}

impl ConsumerBuilder {
    pub(crate) fn new(queue: Queue) -> ConsumerBuilder {
        ConsumerBuilder {
            queue,
            concurrency: 8,
            wait: Duration::from_secs(20),
            visibility: Duration::from_secs(30),
            grace: Some(Duration::from_secs(30)),
            linger: Duration::from_secs(1),
            until_empty: false,
            must_connect: false,
            stopper: Stopper::default(),
        }
    }

    /// Handlers that run at the same time; 8 when not set. Of one group of a FIFO queue there is one
    /// at a time, in order.
    pub fn concurrency(mut self, concurrency: u16) -> ConsumerBuilder {
        self.concurrency = concurrency.max(1);
        self
    }

    /// How long one receive waits for messages; 20 s, which is the most, when not set.
    pub fn wait(mut self, wait: Duration) -> ConsumerBuilder {
        self.wait = wait;
        self
    }

    /// How long a lease lasts before it is renewed or ends, in whole seconds; 30 s when not set. A
    /// consumer that dies holds its messages up to so long. Handlers may take longer.
    pub fn visibility(mut self, visibility: Duration) -> ConsumerBuilder {
        self.visibility = Duration::from_secs(crate::message::seconds(visibility).max(1));
        self
    }

    /// How long handlers may go on after [`Consumer::shutdown`]; 30 s when not set. `None` waits
    /// for them however long they take.
    pub fn grace(mut self, grace: impl Into<Option<Duration>>) -> ConsumerBuilder {
        self.grace = grace.into();
        self
    }

    /// How long a receive that is under way is waited for when stopping, so that what it brings can
    /// be given back; 1 s when not set. A server with messages answers sooner; one without has none
    /// to lose. What is on its way when this is over comes back when its lease ends.
    pub fn linger(mut self, linger: Duration) -> ConsumerBuilder {
        self.linger = linger;
        self
    }

    /// Ends by itself when the queue is empty and no handler runs. Each message is tried once: one
    /// that fails is held until the end, and then given back with its reason. After a thousand
    /// failures, or as many as the queue's `maxInflight` lets be held, nothing more is received.
    pub fn until_empty(mut self) -> ConsumerBuilder {
        self.until_empty = true;
        self
    }

    /// Ends with an error when the server cannot be reached at first. Otherwise, and later on, it
    /// is waited for.
    pub fn must_connect(mut self) -> ConsumerBuilder {
        self.must_connect = true;
        self
    }

    /// Is stopped by this one, which may be known before it starts: a handler that has seen that
    /// none can succeed stops its consumer, and nothing more is received when it returns.
    pub fn stopper(mut self, stopper: Stopper) -> ConsumerBuilder {
        self.stopper = stopper;
        self
    }

    /// Begins to receive, on the present runtime.
    ///
    /// `Ok` of the handler acks its message, `Err` nacks it with the error as the reason, and so
    /// does a panic.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start<H, F, E>(self, handler: H) -> Consumer
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let stopper = self.stopper.clone();
        let task = tokio::spawn(Shift::new(self, handler).run());
        Consumer { stopper, task }
    }
}

/// A message with its lease, as a handler gets it.
#[derive(Clone, Debug)]
pub struct Delivery {
    message: Message,
    lost: CancellationToken,
    /// Nothing was done with it, says its handler.
    unbegun: CancellationToken,
}

impl Delivery {
    /// Cancelled when the lease could not be renewed in time, so that somebody else may have the
    /// message: whatever cannot be done twice should not be done any more.
    #[must_use]
    pub fn lease_lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Nothing was done with the message, and nothing will be: when its handler returns, whatever that
    /// is, it goes back at once and does not count as received. The next receive gets it, so a handler
    /// that could do no better then stops its consumer ([`ConsumerBuilder::stopper`]).
    pub fn give_back(&self) {
        self.unbegun.cancel();
    }

    /// The message alone.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }
}

impl Deref for Delivery {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

/// A consumer at work. When it is dropped, it stops as by [`Consumer::shutdown`], with nobody
/// watching.
#[derive(Debug)]
#[must_use = "it stops when it is dropped"]
pub struct Consumer {
    stopper: Stopper,
    task: JoinHandle<Result<Summary, Error>>,
}

impl Consumer {
    /// Something that stops it from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Receives no more, lets handlers finish within the grace time, and gives back what was
    /// received and not begun. What was still being worked on after that is given up and nacked.
    ///
    /// A receive that is under way is waited for ([`ConsumerBuilder::linger`]): what it brings is
    /// given back. What was handled within the grace time is acked or nacked, within the grace time
    /// and two seconds more. So it takes linger, grace and two seconds at most, and as long as handlers
    /// take to be dropped.
    ///
    /// # Errors
    /// Why it had ended before.
    pub async fn shutdown(self) -> Result<Summary, Error> {
        self.stopper.stop();
        self.ended().await
    }

    /// Waits until it ends by itself or is stopped.
    ///
    /// # Errors
    /// A refusal that trying again cannot help: there is no such queue, the key does not open it.
    ///
    /// # Panics
    /// If the consumer itself has: a defect. Panics of handlers are nacks.
    pub async fn ended(mut self) -> Result<Summary, Error> {
        (&mut self.task).await.expect("only handlers panic")
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// Stops a [`Consumer`] from elsewhere: a signal, another task.
#[derive(Clone, Debug, Default)]
pub struct Stopper {
    stop: CancellationToken,
    abort: CancellationToken,
}

impl Stopper {
    /// As [`Consumer::shutdown`], without waiting.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Does not wait for handlers either: they are dropped and their messages nacked. Nor for a receive
    /// that is under way: what it brings comes back when its lease ends.
    ///
    /// Acks and nacks, also those that are under way, are tried for two seconds from then on. What
    /// is not settled by then comes back when its lease ends; what was done and is not known to be
    /// acked is [`Summary::lost`].
    pub fn abort(&self) {
        self.stop.cancel();
        self.abort.cancel();
    }

    /// When nothing is waited for any more.
    async fn too_late(&self) {
        self.abort.cancelled().await;
        tokio::time::sleep(settle::LAST_TRY).await;
    }
}

/// What a consumer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Messages that were handled and acked.
    pub done: u64,
    /// Messages whose handler failed or panicked.
    pub failed: u64,
    /// Messages that were not begun, or given up when the grace time was over. Those whose nack the
    /// server did not get come back when their lease ends.
    pub given_back: u64,
    /// Messages that were handled, and may be handled again: the lease had ended, or an ack was not
    /// answered. One whose answer got lost, and whose next try was refused, may well be acked.
    pub lost: u64,
}
