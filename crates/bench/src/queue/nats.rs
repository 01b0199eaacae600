//! NATS JetStream: a work queue in files, synced before each answer.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::child::{self, Child};
use super::peer::{Consumer, Later, NotInstalled, Peer, Producer, Received, Subject};
use super::wire::Wire;
use crate::proc::Setup;
use crate::server::free_address;

pub(crate) const SUBJECT: Subject = Subject {
    name: "nats",
    usual: true,
    peer: true,
    settings: "JetStream, sync_interval always, file storage, work-queue retention; publishes with \
               their answers, a pull consumer, explicit acknowledgements with answers (double \
               ack); a batch is one write",
    find,
    start,
};

/// What the only consumer of a stream is called; connections share it.
const CONSUMER: &str = "workers";
/// `sync_interval: always` came with 2.10.
const VERSION_MIN: (u32, u32) = (2, 10);

/// The one that `cargo xtask bench-setup` fetched, or else one that is new enough.
fn find(_setup: &Setup) -> Result<Result<PathBuf, NotInstalled>> {
    let own = std::env::current_exe().context("this program's own path")?;
    let fetched = own.ancestors().nth(2).map(|target| target.join("bench-peers/bin/nats-server"));
    let fetched = fetched.filter(|path| path.is_file());
    let Some(path) = fetched.or_else(|| child::find("nats-server")) else {
        return Ok(Err(NotInstalled("nats-server".to_owned())));
    };
    let version = version(&path);
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < VERSION_MIN {
        return Ok(Err(NotInstalled(format!("nats-server {version} cannot sync always"))));
    }
    Ok(Ok(path))
}

fn version(program: &Path) -> String {
    child::version(program, &["--version"]).replace("nats-server: v", "")
}

struct Nats {
    addr: SocketAddr,
    version: String,
    _child: Child,
}

fn start(program: &Path, folder: &Path) -> Result<Box<dyn Peer>> {
    let addr = free_address()?;
    let config = folder.join("nats.conf");
    let text = format!(
        "listen: \"{addr}\"\njetstream {{ store_dir: {:?}, sync_interval: always }}\n",
        folder.join("data")
    );
    std::fs::write(&config, text).context("a configuration")?;
    let mut child = Child::start(program, None, Signal::KILL, folder, |command| {
        command.arg("--config").arg(&config);
    })?;
    child.wait_until_listening(addr)?;
    Ok(Box::new(Nats { addr, version: version(program), _child: child }))
}

/// A message as the server delivers it.
struct Delivered {
    /// Where an acknowledgement goes.
    reply: String,
    /// A status instead of a message.
    status: Option<u16>,
    body: Vec<u8>,
}

struct Conn {
    wire: Wire,
    queue: String,
    batch: usize,
    /// Everything that is answered to this connection comes there.
    inbox: String,
    out: Vec<u8>,
}

impl Conn {
    fn publish(&mut self, subject: &str, body: &str) {
        // Writing to a vector does not fail.
        let _ = write!(self.out, "PUB {subject} {} {}\r\n{body}\r\n", self.inbox, body.len());
    }

    async fn flush(&mut self) -> Result<()> {
        self.wire.send(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    async fn next(&mut self) -> Result<Delivered> {
        loop {
            let line = self.wire.line().await?;
            let words: Vec<&str> = line.split(' ').collect();
            let (reply, head, total) = match words.as_slice() {
                ["MSG", _, _, total] => (String::new(), 0, total.parse::<usize>()?),
                ["MSG", _, _, reply, total] => ((*reply).to_owned(), 0, total.parse()?),
                ["HMSG", _, _, head, total] => (String::new(), head.parse()?, total.parse()?),
                ["HMSG", _, _, reply, head, total] => {
                    ((*reply).to_owned(), head.parse::<usize>()?, total.parse()?)
                }
                ["PING"] => {
                    self.wire.send(b"PONG\r\n").await?;
                    continue;
                }
                ["PONG" | "+OK"] | ["INFO", ..] => continue,
                _ => bail!("the server said {line}"),
            };
            let bytes = self.wire.take(total + 2).await?;
            // `NATS/1.0 404 No Messages`
            let status = std::str::from_utf8(&bytes[..head]).ok();
            let status = status.and_then(|text| text.split([' ', '\r']).nth(1)?.parse().ok());
            let body = bytes[head..total].to_vec();
            return Ok(Delivered { reply, status, body });
        }
    }

    /// Asks the server's own services.
    async fn ask(&mut self, subject: &str, body: &Value) -> Result<Value> {
        self.publish(subject, &body.to_string());
        self.flush().await?;
        let answer = self.next().await?;
        ensure!(answer.status.is_none(), "{subject}: status {:?}", answer.status);
        let value: Value = serde_json::from_slice(&answer.body).context("not JSON")?;
        ensure!(value.get("error").is_none(), "{subject}: {value}");
        Ok(value)
    }
}

impl Nats {
    async fn conn(&self, queue: &str, batch: usize) -> Result<Conn> {
        let mut wire = Wire::connect(self.addr).await?;
        let info = wire.line().await?;
        ensure!(info.starts_with("INFO "), "not NATS: {info}");
        let id: Value = serde_json::from_str(&info["INFO ".len()..]).context("INFO")?;
        let inbox = format!("_INBOX.{}", id["client_id"]);
        let options = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "lang": "rust", "version": "0", "protocol": 1,
        });
        let hello = format!("CONNECT {options}\r\nSUB {inbox} 1\r\nPING\r\n");
        wire.send(hello.as_bytes()).await?;
        ensure!(wire.line().await? == "PONG", "no PONG");
        Ok(Conn { wire, queue: queue.to_owned(), batch, inbox, out: Vec::new() })
    }
}

impl Peer for Nats {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn create<'a>(&'a self, queue: &'a str) -> Later<'a, ()> {
        Box::pin(async move {
            let mut conn = self.conn(queue, 1).await?;
            let stream = json!({
                "name": queue, "subjects": [queue], "retention": "workqueue", "storage": "file",
                "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
                "num_replicas": 1, "discard": "old",
            });
            conn.ask(&format!("$JS.API.STREAM.CREATE.{queue}"), &stream).await?;
            let consumer = json!({
                "stream_name": queue,
                "config": {
                    "durable_name": CONSUMER, "ack_policy": "explicit", "deliver_policy": "all",
                    "replay_policy": "instant", "ack_wait": 120_000_000_000_u64,
                    "max_ack_pending": 100_000, "max_waiting": 1000,
                },
            });
            let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{queue}.{CONSUMER}");
            conn.ask(&subject, &consumer).await?;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Producer>> {
        Box::pin(async move { Ok(Box::new(self.conn(queue, batch).await?) as _) })
    }

    fn consumer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Consumer>> {
        Box::pin(async move { Ok(Box::new(self.conn(queue, batch).await?) as _) })
    }

    fn left<'a>(&'a self, queue: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let mut conn = self.conn(queue, 1).await?;
            let info = conn.ask(&format!("$JS.API.STREAM.INFO.{queue}"), &json!({})).await?;
            info["state"]["messages"].as_u64().context("a count of messages")
        })
    }
}

impl Producer for Conn {
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()> {
        Box::pin(async move {
            let queue = self.queue.clone();
            for body in bodies {
                Conn::publish(self, &queue, body);
            }
            self.flush().await?;
            for _ in bodies {
                let answer = self.next().await?;
                let stored = answer.body.windows(6).any(|six| six == b"\"seq\":");
                let text = || String::from_utf8_lossy(&answer.body).into_owned();
                ensure!(stored && answer.status.is_none(), "not stored: {}", text());
            }
            Ok(())
        })
    }
}

impl Consumer for Conn {
    fn receive(&mut self) -> Later<'_, Vec<Received>> {
        Box::pin(async move {
            // With both, the server gives what is there, and waits only if there is nothing.
            let ask =
                format!("{{\"batch\":{},\"no_wait\":true,\"expires\":60000000000}}", self.batch);
            let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{CONSUMER}", self.queue);
            Conn::publish(self, &subject, &ask);
            self.flush().await?;
            let mut received = Vec::with_capacity(self.batch);
            while received.len() < self.batch {
                let Delivered { reply, status, body } = self.next().await?;
                match status {
                    None => received.push(Received::new(&body, reply)?),
                    // Nothing more now.
                    Some(404 | 408) => break,
                    Some(status) => bail!("the server's status is {status}"),
                }
            }
            Ok(received)
        })
    }

    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()> {
        Box::pin(async move {
            for Received { handle, .. } in received {
                Conn::publish(self, handle, "+ACK");
            }
            self.flush().await?;
            for _ in received {
                let answer = self.next().await?;
                let is_good = answer.status.is_none() && answer.body.is_empty();
                ensure!(is_good, "not acknowledged: {:?}", answer.status);
            }
            Ok(())
        })
    }
}
