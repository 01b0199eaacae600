//! Acks of many handlers in one request: while one is under way, the next gather.

use tokio::sync::{mpsc, oneshot};

use crate::error::Error;
use crate::queue::Queue;

/// Handles in one request.
const BATCH_MAX: usize = 1000;

type Ask = (String, oneshot::Sender<Result<(), Error>>);

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

    pub(super) async fn ack(&self, handle: String) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.0.send((handle, answer)).await.expect("it gathers as long as somebody asks");
        answered.await.expect("every ask is answered")
    }
}

async fn gather(queue: Queue, mut asks: mpsc::Receiver<Ask>) {
    let mut batch = Vec::new();
    while asks.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let (handles, answers): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let mut results = match queue.ack_batch(&handles).await {
            Ok(results) => results.into_iter(),
            Err(error) => {
                let each = handles.iter().map(|_| Err(error.for_another()));
                each.collect::<Vec<_>>().into_iter()
            }
        };
        for answer in answers {
            // Whoever asked may have been dropped.
            let _ = answer.send(results.next().expect("there is a result for each"));
        }
    }
}
