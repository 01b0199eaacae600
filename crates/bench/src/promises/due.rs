//! An open load: messages are published when they are due, whatever has become of those before.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::queue::peer::Producer;
use crate::queue::stampede::Stampede;
use crate::stats::micros;

/// Publishes so many messages a second for a time, each with a call of its own over as many connections as it
/// takes. Gives how long each took from when it was due, in microseconds: a server that stalls is
/// late with all that was due meanwhile.
///
/// `message` is told the number of a message and when it is due, and gives its queue and body.
pub(super) async fn publish_when_due(
    ours: &Stampede,
    headers: &str,
    per_second: u32,
    lasts: Duration,
    mut message: impl FnMut(u64, Instant) -> (String, String),
) -> Result<Vec<u32>> {
    let mut calls = JoinSet::new();
    let mut idle = Vec::new();
    let mut taken = Vec::new();
    let began = Instant::now();
    let mut due = began;
    for number in 0.. {
        due += Duration::from_secs(1) / per_second;
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
        let (queue, body) = message(number, due);
        conn.turn_to(&queue);
        calls.spawn_local(async move {
            conn.publish(&[body]).await?;
            anyhow::Ok((conn, micros(due.elapsed())))
        });
    }
    while let Some(ended) = calls.join_next().await {
        taken.push(ended.context("a call panicked")??.1);
    }
    Ok(taken)
}
