//! One driver for all: publish everything, then receive and acknowledge everything, then both at
//! once. Every message is numbered, and none may be missing, come twice, or be left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet};

use super::peer::{Consumer, Peer, Producer, Received, body};
use crate::load::thread_time;
use crate::stats::{micros, per_second, percentile};

/// So long may nothing happen before a run is given up.
const STUCK_MAX: Duration = Duration::from_secs(30);

/// What a message is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) bytes: usize,
    pub(crate) batch: usize,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// Producers, and as many consumers.
    pub(crate) connections: usize,
    /// How long is published.
    pub(crate) lasts: Duration,
    /// At most so many messages.
    pub(crate) messages_max: u64,
}

/// What one kind of call took.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Latency {
    fn of(mut calls: Vec<u32>) -> Latency {
        let mut at = |permille| f64::from(percentile(&mut calls, permille));
        Latency { p50_us: at(500), p99_us: at(990) }
    }
}

/// What came of a case; rates are messages a second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) messages: f64,
    pub(crate) publish: f64,
    pub(crate) publish_call: Latency,
    /// Receive and acknowledge.
    pub(crate) consume: f64,
    pub(crate) receive_call: Latency,
    pub(crate) ack_call: Latency,
    /// Both at the same time, until all are published, received and acknowledged.
    pub(crate) whole: f64,
    /// From before the call that publishes a message until after the one that acknowledges it.
    pub(crate) message: Latency,
    /// Processor time of the driver a message of the whole, in microseconds.
    pub(crate) driver_us: f64,
}

/// What producers and consumers of one run share.
struct Shared {
    case: Case,
    started: Instant,
    until: Instant,
    messages_max: u64,
    /// The next message's number.
    next: Cell<u64>,
    published: Cell<u64>,
    /// Whether `published` is final.
    all_published: Cell<bool>,
    acked: Cell<u64>,
    last_ack: Cell<Instant>,
    /// When each message was published, and whether it has come.
    messages: RefCell<Vec<(Instant, bool)>>,
    done: Cell<bool>,
    wake: Notify,
    /// In microseconds, of calls; of messages in the last one.
    publish_calls: RefCell<Vec<u32>>,
    receive_calls: RefCell<Vec<u32>>,
    ack_calls: RefCell<Vec<u32>>,
    lives: RefCell<Vec<u32>>,
}

impl Shared {
    fn new(case: Case, amount: &Amount) -> Rc<Shared> {
        let started = Instant::now();
        Rc::new(Shared {
            case,
            started,
            until: started + amount.lasts,
            messages_max: amount.messages_max,
            next: Cell::new(0),
            published: Cell::new(0),
            all_published: Cell::new(false),
            acked: Cell::new(0),
            last_ack: Cell::new(started),
            messages: RefCell::default(),
            done: Cell::new(false),
            wake: Notify::new(),
            publish_calls: RefCell::default(),
            receive_calls: RefCell::default(),
            ack_calls: RefCell::default(),
            lives: RefCell::default(),
        })
    }

    /// The next batch, or none if it is time to stop.
    fn next_batch(&self, now: Instant) -> Option<Vec<String>> {
        let first = self.next.get();
        if now >= self.until || first >= self.messages_max {
            return None;
        }
        let end = first + self.case.batch as u64;
        self.next.set(end);
        self.messages.borrow_mut().extend((first..end).map(|_| (now, false)));
        Some((first..end).map(|number| body(number, self.case.bytes)).collect())
    }

    fn mark(&self, received: &[Received]) -> Result<()> {
        for Received { number, .. } in received {
            let mut messages = self.messages.borrow_mut();
            let place = usize::try_from(*number).ok().and_then(|place| messages.get_mut(place));
            let (_, seen) = place.with_context(|| format!("message {number} was never sent"))?;
            ensure!(!std::mem::replace(seen, true), "message {number} came twice");
        }
        Ok(())
    }

    fn acked(&self, received: &[Received], now: Instant) {
        let messages = self.messages.borrow();
        let took = |received: &Received| {
            let place = usize::try_from(received.number).unwrap_or(usize::MAX);
            messages.get(place).map(|(published, _)| micros(now - *published))
        };
        self.lives.borrow_mut().extend(received.iter().filter_map(took));
        self.acked.set(self.acked.get() + received.len() as u64);
        self.last_ack.set(now);
        self.look();
    }

    /// Ends the run when everything is acknowledged.
    fn look(&self) {
        if self.all_published.get() && self.acked.get() >= self.published.get() {
            self.done.set(true);
            self.wake.notify_waiters();
        }
    }
}

async fn produce(shared: Rc<Shared>, mut producer: Box<dyn Producer>) -> Result<()> {
    let mut now = Instant::now();
    while let Some(bodies) = shared.next_batch(now) {
        // Making bodies is not the server's time.
        let started = Instant::now();
        producer.publish(&bodies).await?;
        now = Instant::now();
        shared.publish_calls.borrow_mut().push(micros(now - started));
        shared.published.set(shared.published.get() + bodies.len() as u64);
    }
    Ok(())
}

async fn consume(shared: Rc<Shared>, mut consumer: Box<dyn Consumer>) -> Result<()> {
    while !shared.done.get() {
        let started = Instant::now();
        let received = tokio::select! {
            received = consumer.receive() => received?,
            () = shared.wake.notified() => break,
        };
        let got = Instant::now();
        if received.is_empty() {
            continue;
        }
        shared.mark(&received)?;
        consumer.ack(&received).await?;
        let acked = Instant::now();
        shared.receive_calls.borrow_mut().push(micros(got - started));
        shared.ack_calls.borrow_mut().push(micros(acked - got));
        shared.acked(&received, acked);
    }
    consumer.close().await
}

/// Waits for all tasks; gives up when nothing moves any more.
async fn join(shared: &Shared, tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    let mut seen = (0, 0);
    loop {
        match tokio::time::timeout(STUCK_MAX, tasks.join_next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(task)) => task.context("a connection panicked")??,
            Err(_) => {
                let now = (shared.published.get(), shared.acked.get());
                if now == seen {
                    bail!("stuck with {} published and {} acknowledged", now.0, now.1);
                }
                seen = now;
            }
        }
    }
}

async fn producers(
    peer: &dyn Peer,
    queue: &str,
    amount: &Amount,
    batch: usize,
) -> Result<Vec<Box<dyn Producer>>> {
    let mut all = Vec::with_capacity(amount.connections);
    for _ in 0..amount.connections {
        all.push(peer.producer(queue, batch).await.context("a producer")?);
    }
    Ok(all)
}

async fn consumers(
    peer: &dyn Peer,
    queue: &str,
    amount: &Amount,
    batch: usize,
) -> Result<Vec<Box<dyn Consumer>>> {
    let mut all = Vec::with_capacity(amount.connections);
    for _ in 0..amount.connections {
        all.push(peer.consumer(queue, batch).await.context("a consumer")?);
    }
    Ok(all)
}

/// Everything published was received once, and the server has nothing left.
async fn check(shared: &Shared, peer: &dyn Peer, queue: &str) -> Result<()> {
    let (published, acked) = (shared.published.get(), shared.acked.get());
    ensure!(published > 0, "nothing was published");
    ensure!(published == acked, "{published} published, {acked} acknowledged");
    let seen = shared.messages.borrow().iter().filter(|(_, seen)| *seen).count() as u64;
    ensure!(seen == published, "{published} published, {seen} different ones received");
    let left = peer.left(queue).await.context("what is left")?;
    ensure!(left == 0, "{left} messages are left");
    Ok(())
}

/// First all is published, then all is received and acknowledged.
async fn in_turn(
    peer: &dyn Peer,
    queue: &str,
    case: Case,
    amount: &Amount,
    out: &mut Outcome,
) -> Result<()> {
    let all = producers(peer, queue, amount, case.batch).await?;
    let shared = Shared::new(case, amount);
    let mut tasks = JoinSet::new();
    for producer in all {
        tasks.spawn_local(produce(Rc::clone(&shared), producer));
    }
    join(&shared, &mut tasks).await.context("publish")?;
    out.publish = per_second(shared.published.get(), shared.started.elapsed());
    out.publish_call = Latency::of(shared.publish_calls.take());
    out.messages = shared.published.get() as f64;
    shared.all_published.set(true);

    let all = consumers(peer, queue, amount, case.batch).await?;
    let started = Instant::now();
    for consumer in all {
        tasks.spawn_local(consume(Rc::clone(&shared), consumer));
    }
    join(&shared, &mut tasks).await.context("receive and acknowledge")?;
    out.consume = per_second(shared.acked.get(), shared.last_ack.get() - started);
    out.receive_call = Latency::of(shared.receive_calls.take());
    out.ack_call = Latency::of(shared.ack_calls.take());
    check(&shared, peer, queue).await
}

/// Both at the same time.
async fn at_once(
    peer: &dyn Peer,
    queue: &str,
    case: Case,
    amount: &Amount,
    out: &mut Outcome,
) -> Result<()> {
    let receiving = consumers(peer, queue, amount, case.batch).await?;
    let publishing = producers(peer, queue, amount, case.batch).await?;
    let used_before = thread_time()?;
    let shared = Shared::new(case, amount);
    let (mut tasks, mut publishers) = (JoinSet::new(), JoinSet::new());
    for consumer in receiving {
        tasks.spawn_local(consume(Rc::clone(&shared), consumer));
    }
    for producer in publishing {
        publishers.spawn_local(produce(Rc::clone(&shared), producer));
    }
    join(&shared, &mut publishers).await.context("publish")?;
    shared.all_published.set(true);
    shared.look();
    join(&shared, &mut tasks).await.context("receive and acknowledge")?;
    out.whole = per_second(shared.acked.get(), shared.last_ack.get() - shared.started);
    out.message = Latency::of(shared.lives.take());
    let used = thread_time()?.saturating_sub(used_before);
    out.driver_us = used.as_secs_f64() * 1e6 / shared.acked.get().max(1) as f64;
    check(&shared, peer, queue).await
}

/// Measures a case on a queue of its own.
pub(crate) fn run(peer: &dyn Peer, queue: &str, case: Case, amount: &Amount) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut out = Outcome::default();
        peer.create(queue).await.context("a new queue")?;
        in_turn(peer, queue, case, amount, &mut out).await?;
        at_once(peer, queue, case, amount, &mut out).await?;
        Ok(out)
    })
}
