//! beanstalkd with its log, synced before each answer.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::child::{self, Child};
use super::peer::{Consumer, Later, NotInstalled, Peer, Producer, Received, Subject};
use super::wire::Wire;
use crate::proc::Setup;
use crate::server::free_address;

pub(crate) const SUBJECT: Subject = Subject {
    name: "beanstalkd",
    usual: true,
    peer: true,
    settings: "-b DIR -f 0; put, reserve, delete; a batch is one write, but it syncs each command",
    find,
    start,
};

fn find(_setup: &Setup) -> Result<Result<PathBuf, NotInstalled>> {
    Ok(child::find("beanstalkd").ok_or(NotInstalled("beanstalkd".to_owned())))
}

struct Beanstalkd {
    addr: SocketAddr,
    version: String,
    _child: Child,
}

fn start(program: &Path, folder: &Path) -> Result<Box<dyn Peer>> {
    let addr = free_address()?;
    let mut child = Child::start(program, None, Signal::KILL, folder, |command| {
        command.args(["-l", "127.0.0.1", "-p", &addr.port().to_string(), "-f", "0"]);
        command.arg("-b").arg(folder);
    })?;
    child.wait_until_listening(addr)?;
    let version = child::version(program, &["-v"]).replace("beanstalkd ", "");
    Ok(Box::new(Beanstalkd { addr, version, _child: child }))
}

struct Conn {
    wire: Wire,
    batch: usize,
    out: String,
}

impl Beanstalkd {
    async fn conn(&self, queue: &str, batch: usize) -> Result<Conn> {
        let mut conn = Conn { wire: Wire::connect(self.addr).await?, batch, out: String::new() };
        let hello = format!("use {queue}\r\nwatch {queue}\r\nignore default\r\n");
        conn.wire.send(hello.as_bytes()).await?;
        for expected in ["USING ", "WATCHING 2", "WATCHING 1"] {
            let line = conn.wire.line().await?;
            ensure!(line.starts_with(expected), "answered {line} to {hello}");
        }
        Ok(conn)
    }
}

impl Peer for Beanstalkd {
    fn version(&self) -> String {
        self.version.clone()
    }

    /// A tube is there when somebody names it.
    fn create<'a>(&'a self, _queue: &'a str) -> Later<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn producer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Producer>> {
        Box::pin(async move { Ok(Box::new(self.conn(queue, batch).await?) as _) })
    }

    fn consumer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Consumer>> {
        Box::pin(async move { Ok(Box::new(self.conn(queue, batch).await?) as _) })
    }

    fn left<'a>(&'a self, queue: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let mut wire = self.conn(queue, 1).await?.wire;
            wire.send(format!("stats-tube {queue}\r\n").as_bytes()).await?;
            let line = wire.line().await?;
            let length = line.strip_prefix("OK ").and_then(|length| length.parse().ok());
            let length: usize = length.with_context(|| format!("answered {line}"))?;
            let stats = String::from_utf8_lossy(wire.take(length).await?).into_owned();
            Ok(jobs(&stats))
        })
    }
}

/// Jobs of all states. Urgent ones are ready as well.
fn jobs(stats: &str) -> u64 {
    let states = ["ready", "reserved", "delayed", "buried"].map(|s| format!("current-jobs-{s}: "));
    let of = |line: &str| -> Option<u64> {
        states.iter().find_map(|s| line.strip_prefix(s)?.trim().parse().ok())
    };
    stats.lines().filter_map(of).sum()
}

impl Producer for Conn {
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()> {
        Box::pin(async move {
            self.out.clear();
            for body in bodies {
                // Priority, delay, seconds to run. Writing to a string does not fail.
                let _ = write!(self.out, "put 1024 0 120 {}\r\n{body}\r\n", body.len());
            }
            self.wire.send(self.out.as_bytes()).await?;
            for _ in bodies {
                let line = self.wire.line().await?;
                ensure!(line.starts_with("INSERTED "), "answered {line} to put");
            }
            Ok(())
        })
    }
}

impl Consumer for Conn {
    fn receive(&mut self) -> Later<'_, Vec<Received>> {
        Box::pin(async move {
            // Waits for the first; the others come along if they are there.
            self.out.clear();
            self.out.push_str("reserve\r\n");
            for _ in 1..self.batch {
                self.out.push_str("reserve-with-timeout 0\r\n");
            }
            self.wire.send(self.out.as_bytes()).await?;
            let mut received = Vec::with_capacity(self.batch);
            for _ in 0..self.batch {
                let line = self.wire.line().await?;
                let mut words = line.split(' ');
                match (words.next(), words.next(), words.next()) {
                    (Some("RESERVED"), Some(id), Some(length)) => {
                        let (id, length) = (id.to_owned(), length.parse::<usize>()?);
                        let body = self.wire.take(length + 2).await?;
                        received.push(Received::new(&body[..length], id)?);
                    }
                    (Some("TIMED_OUT"), None, None) => {}
                    _ => bail!("answered {line} to reserve"),
                }
            }
            Ok(received)
        })
    }

    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()> {
        Box::pin(async move {
            self.out.clear();
            for Received { handle, .. } in received {
                let _ = write!(self.out, "delete {handle}\r\n");
            }
            self.wire.send(self.out.as_bytes()).await?;
            for _ in received {
                let line = self.wire.line().await?;
                ensure!(line == "DELETED", "answered {line} to delete");
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::jobs;

    #[test]
    fn jobs_of_all_states_are_counted_once() {
        let stats = "---\nname: q\ncurrent-jobs-urgent: 5\ncurrent-jobs-ready: 5\n\
                     current-jobs-reserved: 2\ncurrent-jobs-delayed: 0\ncurrent-jobs-buried: 1\n";
        assert_eq!(jobs(stats), 8);
    }
}
