//! Ten thousand long polls, each on a queue of its own: what they cost while nothing happens, and
//! how long a message takes to the one who waits for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::{JoinSet, LocalSet};

use super::due::publish_when_due;
use crate::proc::{Setup, cpu_ticks, status_kib_of};
use crate::queue::peer::{Consumer, Peer, body};
use crate::queue::stampede::Stampede;
use crate::server::binary;
use crate::stats::{Scramble, micros, percentile};
use crate::table::{Figure, Line, Target};

/// Messages a second that go out to those who wait.
const PER_SECOND: u32 = 200;

#[derive(Default)]
struct Seen {
    /// From when the message was due until its waiter had it.
    woken: Vec<u32>,
    /// From then until its publish was answered.
    published: Vec<u32>,
}

fn queue(number: u64) -> String {
    format!("q{number}")
}

async fn create_queues(ours: &Stampede, connections: usize, count: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for first in 0..connections as u64 {
        let mut conn = ours.conn("", 1).await?;
        tasks.spawn_local(async move {
            for number in (first..count).step_by(connections) {
                conn.turn_to(&queue(number));
                conn.create().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a connection panicked")??;
    }
    Ok(())
}

/// Waits for messages; a body's number is when it was due, in microseconds.
async fn wait(
    mut waiter: Box<dyn Consumer>,
    began: Instant,
    seen: Rc<RefCell<Seen>>,
) -> Result<()> {
    loop {
        let received = waiter.receive().await?;
        let now = began.elapsed();
        for message in &received {
            let took = now.saturating_sub(Duration::from_micros(message.number));
            seen.borrow_mut().woken.push(micros(took));
        }
        if !received.is_empty() {
            waiter.ack(&received).await?;
        }
    }
}

struct Outcome {
    seen: Seen,
    /// Of one processor, while nothing happened.
    idle_percent: f64,
    resident_mib: f64,
}

async fn measure(setup: &Setup, ours: &Stampede) -> Result<Outcome> {
    let count = setup.size(10_000, 100);
    create_queues(ours, setup.connections, count).await?;
    let began = Instant::now();
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut waiters = JoinSet::new();
    for number in 0..count {
        let waiter = ours.consumer(&queue(number), 1).await?;
        waiters.spawn_local(wait(waiter, began, Rc::clone(&seen)));
    }
    // Time for the last one to be asleep; long polls last 20 seconds and none may end in between.
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(began.elapsed() < Duration::from_secs(10), "it took {:?} to begin", began.elapsed());
    let idle = setup.size(Duration::from_secs(5), Duration::from_secs(1));
    let before = cpu_ticks(ours.server.process())?;
    tokio::time::sleep(idle).await;
    let ticks = cpu_ticks(ours.server.process())? - before;
    let idle_percent = ticks as f64 / idle.as_secs_f64();
    let resident_mib = status_kib_of(ours.server.process(), "VmRSS")? as f64 / 1024.0;

    let mut random = Scramble(1);
    let lasts = Duration::from_secs(setup.size(20, 1));
    let message = |_, due: Instant| {
        let at = u64::try_from((due - began).as_micros()).expect("a run is no age");
        (queue(random.below(count)), body(at, 100))
    };
    let published = publish_when_due(ours, &ours.headers, PER_SECOND, lasts, message).await?;
    let messages = published.len();
    seen.borrow_mut().published = published;
    let deadline = Instant::now() + Duration::from_secs(10);
    while seen.borrow().woken.len() < messages {
        // A waiter never ends by itself; one that has, has failed.
        if let Some(ended) = waiters.try_join_next() {
            ended.context("a waiter panicked")??;
        }
        ensure!(Instant::now() < deadline, "{} of {messages} came", seen.borrow().woken.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    waiters.shutdown().await;
    Ok(Outcome { seen: seen.take(), idle_percent, resident_mib })
}

pub(super) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let scratch = setup.scratch("waiters")?;
    let ours = Stampede::start(&binary(setup)?, scratch.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = LocalSet::new().block_on(&runtime, measure(setup, &ours))?;
    let Outcome { mut seen, idle_percent, resident_mib } = outcome;
    let ms = |values: &mut [u32], permille| f64::from(percentile(values, permille)) / 1000.0;
    let woken = Line::figure(
        "waiters-woken",
        Target::AtMost(10.0),
        Figure::new(ms(&mut seen.woken, 990), " ms"),
        Figure::new(ms(&mut seen.published, 990), " ms"),
        "p99 from when a message was due until its waiter has it, against the publish itself",
    )
    .note(format!(
        "p50 {:.2} ms, of the publish {:.2} ms; {} messages, {PER_SECOND} a second, to waiters at random",
        ms(&mut seen.woken, 500),
        ms(&mut seen.published, 500),
        seen.woken.len()
    ));
    let idle = Line::figure(
        "waiters-idle",
        Target::AtMost(1.0),
        Figure::new(idle_percent, " %"),
        Figure::new(100.0, " %"),
        "processor time of the server while all wait, of one processor",
    )
    .note(format!(
        "{} waiters on as many queues; {resident_mib:.0} MiB resident",
        setup.size(10_000, 100)
    ));
    Ok(vec![woken, idle])
}
