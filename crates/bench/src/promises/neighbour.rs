//! What a tenant with a light load feels of another that publishes as fast as it can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::task::{JoinSet, LocalSet};

use crate::proc::Setup;
use crate::queue::peer::{Producer, body};
use crate::queue::stampede::Stampede;
use crate::server::binary;
use crate::stats::{median, micros, percentile, short};
use crate::table::{Figure, Line, Target};

/// Queues of the light tenant: enough that every shard has some.
const QUEUES: u64 = 16;
/// Its messages a second.
const PER_SECOND: u32 = 200;

fn queue(number: u64) -> String {
    format!("q{number}")
}

/// Publishes one message after another when they are due, and gives p99 in microseconds, counted
/// from when they were due.
async fn light_load(ours: &Stampede, headers: &str, lasts: Duration) -> Result<f64> {
    let began = Instant::now();
    let mut calls = JoinSet::new();
    let mut idle = Vec::new();
    let mut taken = Vec::new();
    let mut due = began;
    for number in 0.. {
        due += Duration::from_secs(1) / PER_SECOND;
        if due > began + lasts {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        while let Some(ended) = calls.try_join_next() {
            let (conn, took) = ended.context("a call panicked")??;
            idle.push(conn);
            taken.push(took);
        }
        let mut conn = match idle.pop() {
            Some(conn) => conn,
            None => ours.conn_of(headers, "", 1).await?,
        };
        conn.turn_to(&queue(number % QUEUES));
        calls.spawn_local(async move {
            conn.publish(&[body(number, 1024)]).await?;
            anyhow::Ok((conn, micros(due.elapsed())))
        });
    }
    while let Some(ended) = calls.join_next().await {
        taken.push(ended.context("a call panicked")??.1);
    }
    Ok(f64::from(percentile(&mut taken, 990)))
}

/// Publishes over one connection as fast as it goes until it is told to stop: messages published.
async fn flood_one(ours: &Stampede, queue: &str, done: &AtomicBool) -> Result<u64> {
    let mut conn = ours.conn(queue, 10).await?;
    let bodies: Vec<String> = (0..10).map(|number| body(number, 1024)).collect();
    let mut published = 0;
    while !done.load(Ordering::Relaxed) {
        conn.publish(&bodies).await?;
        published += bodies.len() as u64;
    }
    Ok(published)
}

/// Publishes as fast as it goes, in a thread of its own: whoever measures is not in its way.
fn flood(ours: &Stampede, connections: usize, done: &AtomicBool) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let queues: Vec<String> = (0..connections as u64).map(|n| queue(n % QUEUES)).collect();
    let all = queues.iter().map(|queue| flood_one(ours, queue, done));
    let published = runtime.block_on(futures_util::future::try_join_all(all))?;
    Ok(published.into_iter().sum())
}

/// p99 of the light load beside a flood, and how many messages a second the flood was.
fn beside_flood(
    ours: &Stampede,
    connections: usize,
    light: impl FnOnce() -> Result<f64>,
) -> Result<(f64, f64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let started = Instant::now();
        let flood = scope.spawn(|| flood(ours, connections, &done));
        let light = light();
        done.store(true, Ordering::Relaxed);
        let published = flood.join().map_err(|_| anyhow!("the flood panicked"))??;
        Ok((light?, published as f64 / started.elapsed().as_secs_f64()))
    })
}

pub(super) fn run(setup: &Setup) -> Result<Vec<Line>> {
    let scratch = setup.scratch("neighbour")?;
    let ours = Stampede::start(&binary(setup)?, scratch.path())?;
    let light = ours.new_tenant("light")?;
    let lasts = setup.size(Duration::from_secs(10), Duration::from_millis(500));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = |load| LocalSet::new().block_on(&runtime, load);
    runtime.block_on(async {
        for headers in [&light, &ours.headers] {
            for number in 0..QUEUES {
                ours.conn_of(headers, &queue(number), 1).await?.create().await?;
            }
        }
        anyhow::Ok(())
    })?;
    let (mut alone, mut beside, mut flooded) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=setup.size(5, 1) {
        let quiet = run(light_load(&ours, &light, lasts))?;
        let light = || run(light_load(&ours, &light, lasts));
        let (busy, rate) = beside_flood(&ours, setup.connections, light)?;
        // The first one warms up.
        if round > 0 {
            alone.push(quiet);
            beside.push(busy);
            flooded.push(rate);
        }
    }
    let ratios: Vec<f64> = beside.iter().zip(&alone).map(|(b, a)| b / a).collect();
    let line = Line::ratio(
        "neighbour",
        Target::AtMost(2.0),
        median(&ratios),
        Figure::new(median(&beside), " µs"),
        Figure::new(median(&alone), " µs"),
        "p99 of one tenant's publishes beside another that publishes as fast as it can, against p99 \
         without",
    );
    let line = line.note(format!(
        "{PER_SECOND} publishes a second of the one, {} a second of the other, batches of 10",
        short(median(&flooded))
    ));
    Ok(vec![line])
}
