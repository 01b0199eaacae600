//! Acks of many handlers in one request: while one is under way, the next gather.
//!
//! What the server does not answer, or refuses for now, is asked for again until its lease ends, with
//! whatever has come meanwhile.

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::Error;
use crate::queue::{Lease, Queue};
use crate::retry::LEASE_REST;

/// Handles in one request.
const BATCH_MAX: usize = 1000;

struct Ask {
    lease: Lease,
    /// Until then it is tried.
    ends: Instant,
    answer: oneshot::Sender<Result<(), Error>>,
}

impl Ask {
    /// Tells the outcome of a try if it is the last; otherwise it is to be tried again.
    fn unless_settled(self) -> Option<Ask> {
        let passing = self.lease.result.as_ref().is_err_and(Error::is_passing);
        if passing && Instant::now() + LEASE_REST < self.ends {
            return Some(self);
        }
        // Whoever asked may have been dropped.
        let _ = self.answer.send(self.lease.result);
        None
    }
}

/// Where handlers leave their acks.
#[derive(Clone)]
pub(super) struct Acks(mpsc::Sender<Ask>);

impl Acks {
    pub(super) fn start(queue: Queue) -> Acks {
        let (asks, receiver) = mpsc::channel(BATCH_MAX);
        // It ends when the last handler has left.
        tokio::spawn(gather(queue, receiver));
        Acks(asks)
    }

    /// Acks what is leased until `ends`.
    pub(super) async fn ack(&self, handle: String, ends: Instant) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask { lease: Lease::new(handle), ends, answer };
        assert!(self.0.send(ask).await.is_ok(), "it gathers as long as somebody asks");
        answered.await.expect("every ask is answered")
    }
}

async fn gather(queue: Queue, mut asks: mpsc::Receiver<Ask>) {
    let (mut open, mut failures) = (Vec::new(), 0);
    loop {
        if open.is_empty() {
            failures = 0;
            if asks.recv_many(&mut open, BATCH_MAX).await == 0 {
                return;
            }
        }
        while open.len() < BATCH_MAX
            && let Ok(ask) = asks.try_recv()
        {
            open.push(ask);
        }
        let latest = open.iter().map(|ask| ask.ends).max().expect("there is one");
        let mut leases: Vec<_> = open.iter_mut().map(|ask| &mut ask.lease).collect();
        queue.try_acks(&mut leases, latest).await;
        open = open.into_iter().filter_map(Ask::unless_settled).collect();
        failures += 1;
        let errors = open.iter().filter_map(|ask| ask.lease.result.as_ref().err());
        let error = errors.max_by_key(|error| error.retry_after_ms());
        let soonest = open.iter().map(|ask| ask.ends).min();
        if let (Some(error), Some(soonest)) = (error, soonest) {
            queue.pause(failures, error, soonest).await;
        }
    }
}
