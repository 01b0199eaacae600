//! Acks of many handlers in one request: while one is under way, the next gather.
//!
//! Each request is a single try, and what came of it is for those who asked: whether to ask again is
//! theirs to say, because each has a lease of its own.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::error::Error;
use crate::queue::Queue;
use crate::retry::LEASE_REST;

/// Handles in one request.
const BATCH_MAX: usize = 1000;
/// How long a request holds up the next: one that is not answered holds up nobody else.
const HELD_UP_MAX: Duration = Duration::from_secs(1);
/// Requests under way; more than one only while they are not answered.
const UNDER_WAY_MAX: usize = 32;

struct Ask {
    handle: String,
    /// How long whoever asked waits.
    limit: Duration,
    answer: oneshot::Sender<Result<(), Error>>,
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

    /// Tries once to ack. Whoever does not wait for the outcome is not asked for, if there is time.
    pub(super) async fn try_ack(&self, handle: String, limit: Duration) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask { handle, limit, answer };
        assert!(self.0.send(ask).await.is_ok(), "it gathers as long as somebody asks");
        answered.await.expect("every ask is answered")
    }
}

async fn gather(queue: Queue, mut asks: mpsc::Receiver<Ask>) {
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() >= UNDER_WAY_MAX {
            under_way.join_next().await;
        }
        let mut open = Vec::new();
        if asks.recv_many(&mut open, BATCH_MAX).await == 0 {
            return;
        }
        open.retain(|ask| !ask.answer.is_closed());
        if open.is_empty() {
            continue;
        }
        // Those that have ended meanwhile hold up nobody.
        while under_way.try_join_next().is_some() {}
        under_way.spawn(request(queue.clone(), open));
        if let Ok(Some(ended)) = timeout(HELD_UP_MAX, under_way.join_next()).await
            && ended.expect("a request does not panic")
        {
            // Those who were refused come again, one by one: a request for each would be a storm.
            sleep(LEASE_REST).await;
        }
    }
}

/// Tries once for all of them. Whether any of them was refused for now.
async fn request(queue: Queue, asks: Vec<Ask>) -> bool {
    let limit = asks.iter().map(|ask| ask.limit).max().expect("there is one");
    let handles: Vec<_> = asks.iter().map(|ask| ask.handle.as_str()).collect();
    let results = queue.try_acks(&handles, limit).await;
    let refused = results.iter().any(|result| result.as_ref().is_err_and(Error::is_passing));
    for (ask, result) in asks.into_iter().zip(results) {
        // Whoever asked may have gone.
        let _ = ask.answer.send(result);
    }
    refused
}
