//! A lean load generator: one thread, keep-alive connections, each with one request on the way.
//!
//! It must be much cheaper than the server, since both share the machine, and cost the same for
//! every kind of request: requests are bytes made beforehand, and of an answer only the status and
//! the length are read.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

use crate::http1::{Head, parse_head};
use crate::stats::{micros, percentile};

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Answers with the status expected.
    pub(crate) good: u64,
    /// Answers with another one.
    pub(crate) other: u64,
    /// The first of those.
    pub(crate) sample: Option<String>,
    /// Of all answers, in microseconds.
    pub(crate) latencies: Vec<u32>,
    /// From the first request to the last answer.
    pub(crate) took: Duration,
    /// Processor time of the generator.
    pub(crate) generator: Duration,
}

impl Outcome {
    pub(crate) fn per_second(&self) -> f64 {
        crate::stats::per_second(self.good + self.other, self.took)
    }

    pub(crate) fn percentile(&mut self, permille: usize) -> u32 {
        percentile(&mut self.latencies, permille)
    }

    fn add(&mut self, part: Outcome) {
        self.good += part.good;
        self.other += part.other;
        self.sample = self.sample.take().or(part.sample);
        self.latencies.extend(part.latencies);
    }
}

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").context("schedstat")?;
    let nanos = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Ok(Duration::from_nanos(nanos.context("schedstat")?))
}

/// One connection's part.
async fn connection(
    mut stream: TcpStream,
    number: usize,
    requests: Rc<[Vec<u8>]>,
    expected: u16,
    until: Instant,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut buffer = vec![0; 16 << 10];
    // Each connection begins elsewhere, and no two go the same way.
    let mut next = number * 7919;
    let mut started = Instant::now();
    while started < until {
        stream.write_all(&requests[next % requests.len()]).await?;
        next += 1 + number % 97;
        let status = answer(&mut stream, &mut buffer, &mut outcome.sample, expected).await?;
        let ended = Instant::now();
        outcome.latencies.push(micros(ended - started));
        started = ended;
        if status == expected {
            outcome.good += 1;
        } else {
            outcome.other += 1;
        }
    }
    Ok(outcome)
}

/// Reads one answer, and keeps it as a sample if it is not the one expected.
async fn answer(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    sample: &mut Option<String>,
    expected: u16,
) -> Result<u16> {
    let mut filled = 0;
    let mut known: Option<Head> = None;
    loop {
        if filled == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            bail!("the server hung up");
        }
        filled += count;
        if known.is_none() {
            known = parse_head(&buffer[..filled])?;
        }
        let Some(Head { status, head, body }) = known else { continue };
        if filled < head + body {
            continue;
        }
        if filled > head + body {
            bail!("the server answered what nobody asked");
        }
        if status != expected && sample.is_none() {
            *sample = Some(String::from_utf8_lossy(&buffer[..filled]).into_owned());
        }
        return Ok(status);
    }
}

/// Loads the server for a while.
pub(crate) fn run(
    addr: SocketAddr,
    connections: usize,
    lasts: Duration,
    expected: u16,
    requests: Rc<[Vec<u8>]>,
) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut streams = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(addr).await.context("cannot connect")?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let used_before = thread_time()?;
        let started = Instant::now();
        let until = started + lasts;
        let mut tasks = JoinSet::new();
        for (number, stream) in streams.into_iter().enumerate() {
            let requests = Rc::clone(&requests);
            tasks.spawn_local(connection(stream, number, requests, expected, until));
        }
        let mut outcome = Outcome::default();
        while let Some(done) = tasks.join_next().await {
            outcome.add(done.context("a connection panicked")??);
        }
        outcome.took = started.elapsed();
        outcome.generator = thread_time()?.saturating_sub(used_before);
        Ok(outcome)
    })
}
