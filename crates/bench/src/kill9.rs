//! The real server under load, killed at a random moment, again and again.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::history::{Fate, Sent, Tally, audit};
use crate::http1::Client;
use crate::proc::Setup;
use crate::server::{Server, binary, free_address};
use crate::stats::Scramble;

/// Users of one connection: it writes to them in turn.
const USERS: usize = 4;
/// The server may be killed this long after the load began.
const LOAD_MS_MAX: u64 = 1500;
/// One write in so many carries an `Idempotency-Key` and is sent twice.
const REPEATED: usize = 5;

fn key_line(query: &str) -> String {
    format!("Idempotency-Key: {}\r\n", query.replace(' ', "-"))
}

/// One connection's writes, until the server is gone.
fn write(addr: SocketAddr, round: u32, number: usize, stop: &AtomicBool) -> Result<Vec<Sent>> {
    let mut users: Vec<Sent> = (0..USERS)
        .map(|user| Sent { user: format!("r{round}c{number}u{user}"), writes: Vec::new() })
        .collect();
    let mut client = Client::connect(addr, "")?;
    for count in 0.. {
        let sent = &mut users[count % USERS];
        let query = format!("query {count} of {number} in round {round}");
        let path = format!("/v1/users/{}/searches", sent.user);
        let body = format!("{{\"q\":\"{query}\"}}");
        let repeated = count % REPEATED == 0;
        let key = if repeated { key_line(&query) } else { String::new() };
        let answered = client.ask_with("POST", &path, &key, &body);
        let fate = match &answered {
            Ok(answer) => {
                let text = String::from_utf8_lossy(&answer.body).into_owned();
                ensure!(answer.status == 201, "a write was answered {}: {text}", answer.status);
                Fate::Acknowledged
            }
            Err(_) => Fate::Unknown,
        };
        sent.writes.push((query, fate));
        if fate == Fate::Acknowledged && repeated {
            repeat(&mut client, &path, &key, &body, &answered?.body)?;
        }
        if fate == Fate::Unknown || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(users)
}

/// The same request again must get the same answer; a server that is gone gives none.
fn repeat(client: &mut Client, path: &str, key: &str, body: &str, first: &[u8]) -> Result<()> {
    if let Ok(again) = client.ask_with("POST", path, key, body) {
        ensure!(again.status == 201, "a repeated write was answered {}", again.status);
        ensure!(again.body == first, "a repeated write was answered differently");
    }
    Ok(())
}

/// Writes whose answer never came are sent again with their key: then they are there, once.
fn retry_unknown(addr: SocketAddr, users: &mut [Sent]) -> Result<u64> {
    let mut client = Client::connect(addr, "")?;
    let mut retried = 0;
    for sent in users {
        let Some((query, fate)) = sent.writes.last_mut() else { continue };
        let is_keyed = query.split(' ').nth(1).and_then(|count| count.parse::<usize>().ok());
        if *fate == Fate::Unknown && is_keyed.is_some_and(|count| count % REPEATED == 0) {
            let path = format!("/v1/users/{}/searches", sent.user);
            let key = key_line(query);
            let body = format!("{{\"q\":\"{query}\"}}");
            let status = client.ask_with("POST", &path, &key, &body)?.status;
            ensure!(status == 201, "a write sent again was answered {status}");
            *fate = Fate::Acknowledged;
            retried += 1;
        }
    }
    Ok(retried)
}

struct Kill9 {
    binary: std::path::PathBuf,
    connections: usize,
    random: Scramble,
    /// Everything ever sent.
    sent: Vec<Sent>,
    retried: u64,
    killed_in_start: u32,
    ready_max: Duration,
}

impl Kill9 {
    /// Starts the server; now and then it is killed while it starts, and started again.
    fn start(&mut self, data: &Path) -> Result<Server> {
        if self.random.below(4) == 0 {
            let server = Server::spawn(&self.binary, data, free_address()?, &["--dev"])?;
            std::thread::sleep(Duration::from_millis(self.random.below(150)));
            server.kill()?;
            self.killed_in_start += 1;
        }
        let mut server = Server::spawn(&self.binary, data, free_address()?, &["--dev"])?;
        let ready = server.wait_until_ready()?;
        self.ready_max = self.ready_max.max(ready);
        Ok(server)
    }

    /// Load, and the end of the server.
    fn round(&mut self, data: &Path, round: u32) -> Result<Vec<Sent>> {
        let server = self.start(data)?;
        let (addr, stop) = (server.addr, Arc::new(AtomicBool::new(false)));
        let writers: Vec<_> = (0..self.connections)
            .map(|number| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || write(addr, round, number, &stop))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20 + self.random.below(LOAD_MS_MAX)));
        server.kill()?;
        stop.store(true, Ordering::Relaxed);
        let mut sent = Vec::new();
        for writer in writers {
            sent.extend(writer.join().map_err(|_| anyhow!("a writer panicked"))??);
        }
        Ok(sent)
    }

    fn audit(&self, addr: SocketAddr, sent: &[Sent]) -> Result<Tally> {
        let mut client = Client::connect(addr, "")?;
        let mut tally = Tally::default();
        for user in sent {
            tally.add(audit(&mut client, user)?);
        }
        Ok(tally)
    }

    fn rounds(&mut self, data: &Path, rounds: u32) -> Result<Tally> {
        for round in 1..=rounds {
            let mut sent = self.round(data, round)?;
            // Opened twice: what the first opening made of the log, the second must read.
            let server = self.start(data)?;
            let tally = self.audit(server.addr, &sent)?;
            self.retried += retry_unknown(server.addr, &mut sent)?;
            self.audit(server.addr, &sent)?;
            server.kill()?;
            eprintln!("round {round}: {tally:?}");
            self.sent.extend(sent);
        }
        let server = self.start(data)?;
        let tally = self.audit(server.addr, &self.sent)?;
        server.kill()?;
        Ok(tally)
    }
}

pub(crate) fn run(setup: &Setup, rounds: Option<u32>) -> Result<()> {
    let rounds = rounds.unwrap_or(setup.size(50, 3));
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).context("randomness")?;
    let mut kill9 = Kill9 {
        binary: binary(setup)?,
        connections: setup.connections,
        random: Scramble(u64::from_be_bytes(seed)),
        sent: Vec::new(),
        retried: 0,
        killed_in_start: 0,
        ready_max: Duration::ZERO,
    };
    let scratch = setup.scratch("kill9")?;
    let started = Instant::now();
    let tally = kill9.rounds(scratch.path(), rounds)?;
    ensure!(tally.acknowledged > 0, "nothing was acknowledged, so nothing was tested");
    println!(
        "kill9: {rounds} rounds, {} more kills during a start; {} writes acknowledged, all there \
         once and in order; of {} unanswered {} are there, once; {} retried with their key; lists \
         agree with histories; slowest start {} ms; {:.0} s",
        kill9.killed_in_start,
        tally.acknowledged,
        tally.unknown,
        tally.unknown_there,
        kill9.retried,
        kill9.ready_max.as_millis(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
