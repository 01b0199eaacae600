//! What a tenant with a light load feels of another that publishes as fast as it can.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tokio::task::LocalSet;

use super::due::publish_when_due;
use crate::proc::Setup;
use crate::queue::peer::{Producer, body};
use crate::queue::stampede::Stampede;
use crate::server::binary;
use crate::stats::{median, percentile, short};
use crate::table::{Figure, Line, Target};

/// Queues of the light tenant: enough that every shard has some.
const QUEUES: u64 = 16;
/// Its messages a second.
const PER_SECOND: u32 = 200;

fn queue(number: u64) -> String {
    format!("q{number}")
}

/// p99 of the light load in microseconds, counted from when each message was due.
async fn light_load(ours: &Stampede, headers: &str, lasts: Duration) -> Result<f64> {
    let message = |number, _| (queue(number % QUEUES), body(number, 1024));
    let mut taken = publish_when_due(ours, headers, PER_SECOND, lasts, message).await?;
    Ok(f64::from(percentile(&mut taken, 990)))
}

/// Publishes over one connection as fast as it goes until it is told to stop. `begun` counts the
/// messages of all connections.
async fn flood_one(
    ours: &Stampede,
    queue: &str,
    begun: &Cell<u64>,
    done: &AtomicBool,
) -> Result<()> {
    let mut conn = ours.conn(queue, 10).await?;
    while !done.load(Ordering::Relaxed) {
        let first = begun.get();
        begun.set(first + 10);
        let bodies: Vec<String> = (first..first + 10).map(|number| body(number, 1024)).collect();
        conn.publish(&bodies).await?;
    }
    Ok(())
}

/// Publishes as fast as it goes, in a thread of its own: whoever measures is not in its way. Gives
/// how many messages.
fn flood(ours: &Stampede, connections: usize, done: &AtomicBool) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let queues: Vec<String> = (0..connections as u64).map(|n| queue(n % QUEUES)).collect();
    let begun = Cell::new(0);
    let all = queues.iter().map(|queue| flood_one(ours, queue, &begun, done));
    runtime.block_on(futures_util::future::try_join_all(all))?;
    Ok(begun.get())
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
