//! Publishing and consuming side by side for a time, on a queue that need not be empty.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::{JoinSet, LocalSet};

use crate::queue::peer::{Consumer, Peer, Producer, body};
use crate::stats::per_second;

/// Bytes of a message.
const BYTES: usize = 1024;
/// Messages in a call.
const BATCH: usize = 10;

/// What has moved so far.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) published: Cell<u64>,
    pub(super) acked: Cell<u64>,
    /// The next message's number: no two that lie side by side are alike.
    next: Cell<u64>,
    done: Cell<bool>,
}

impl Moved {
    /// Messages a second, each counted half when it is published and half when it is gone: a
    /// queue with something in it may do more of the one than of the other.
    pub(super) fn rate(&self, took: Duration) -> f64 {
        per_second(self.published.get() + self.acked.get(), took) / 2.0
    }
}

/// How fast is published.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// A call after the other.
    AsFastAsItGoes,
    /// So many messages a second, by all connections.
    PerSecond(f64),
}

async fn produce(
    moved: Rc<Moved>,
    mut producer: Box<dyn Producer>,
    between: Option<Duration>,
) -> Result<()> {
    let mut due = Instant::now();
    while !moved.done.get() {
        if let Some(between) = between {
            // Due times do not move when a call is late: the load stays what it is.
            due += between;
            tokio::time::sleep_until(due.into()).await;
        }
        let first = moved.next.get();
        moved.next.set(first + BATCH as u64);
        let bodies: Vec<String> = (first..moved.next.get()).map(|n| body(n, BYTES)).collect();
        producer.publish(&bodies).await?;
        moved.published.set(moved.published.get() + BATCH as u64);
    }
    Ok(())
}

async fn consume(moved: Rc<Moved>, mut consumer: Box<dyn Consumer>) -> Result<()> {
    while !moved.done.get() {
        let received = consumer.receive().await?;
        if !received.is_empty() {
            consumer.ack(&received).await?;
            moved.acked.set(moved.acked.get() + received.len() as u64);
        }
    }
    Ok(())
}

/// Lets messages flow through a queue for a time, and calls `each` every second with what has
/// moved by then. Connections are cut at the end, in the middle of whatever they do.
pub(super) fn run(
    peer: &dyn Peer,
    queue: &str,
    connections: usize,
    pace: Pace,
    lasts: Duration,
    mut each: impl FnMut(&Moved) -> Result<()>,
) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let moved = Rc::new(Moved::default());
        let mut tasks = JoinSet::new();
        let between = match pace {
            Pace::AsFastAsItGoes => None,
            Pace::PerSecond(rate) => {
                Some(Duration::from_secs_f64((connections * BATCH) as f64 / rate))
            }
        };
        for _ in 0..connections {
            let consumer = peer.consumer(queue, BATCH).await.context("a consumer")?;
            tasks.spawn_local(consume(Rc::clone(&moved), consumer));
            let producer = peer.producer(queue, BATCH).await.context("a producer")?;
            tasks.spawn_local(produce(Rc::clone(&moved), producer, between));
        }
        let started = Instant::now();
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.tick().await;
        while started.elapsed() < lasts {
            tokio::select! {
                _ = seconds.tick() => each(&moved)?,
                () = tokio::time::sleep(lasts.saturating_sub(started.elapsed())) => {}
                ended = tasks.join_next() => {
                    ended.context("no connection is left")?.context("a connection panicked")??;
                }
            }
        }
        let rate = moved.rate(started.elapsed());
        moved.done.set(true);
        tasks.shutdown().await;
        Ok(rate)
    })
}

/// Fills a queue with messages.
pub(super) fn fill(peer: &dyn Peer, queue: &str, connections: usize, count: u64) -> Result<()> {
    const FILL_BATCH: usize = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let next = Rc::new(Cell::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            let mut producer = peer.producer(queue, FILL_BATCH).await.context("a producer")?;
            let next = Rc::clone(&next);
            tasks.spawn_local(async move {
                while next.get() < count {
                    let first = next.get();
                    let end = count.min(first + FILL_BATCH as u64);
                    next.set(end);
                    let bodies: Vec<String> = (first..end).map(|n| body(n, BYTES)).collect();
                    producer.publish(&bodies).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.context("a connection panicked")??;
        }
        Ok(())
    })
}

/// Makes a queue.
pub(super) fn create(peer: &dyn Peer, queue: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(peer.create(queue))
}

/// How many messages a queue has.
pub(super) fn left(peer: &dyn Peer, queue: &str) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(peer.left(queue))
}
