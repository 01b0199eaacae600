//! RabbitMQ: durable queues, persistent messages, publisher confirms.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::amqp::{
    Args, BASIC_ACK, BASIC_CONSUME, BASIC_CONSUME_OK, BASIC_DELIVER, BASIC_QOS, BASIC_QOS_OK,
    CHANNEL_CLOSE, CHANNEL_CLOSE_OK, CONFIRM_SELECT, CONFIRM_SELECT_OK, Channel, Fields,
    QUEUE_DECLARE, QUEUE_DECLARE_OK,
};
use super::child::{self, Child};
use super::peer::{Consumer, Later, NotInstalled, Peer, Producer, Received, Subject};
use crate::proc::Setup;
use crate::server::free_address;

pub(crate) const QUORUM: Subject = Subject {
    name: "rabbitmq",
    usual: true,
    peer: true,
    settings: "quorum queue of one member, persistent messages, publisher confirms; push consumers \
               with as much prefetch as a batch, one acknowledgement for a batch (never confirmed)",
    find,
    start: |program, folder| start(program, folder, "quorum"),
};

pub(crate) const CLASSIC: Subject = Subject {
    name: "rabbitmq-classic",
    usual: false,
    peer: true,
    settings: "durable classic queue, otherwise as rabbitmq",
    find,
    start: |program, folder| start(program, folder, "classic"),
};

const PASSIVE: u8 = 1;
const DURABLE: u8 = 2;
/// How long the plugins and the listener may take after the port is open.
const READY_MAX: Duration = Duration::from_secs(30);

/// Not the wrapper on the `PATH`, which changes to a user of its own.
fn find(_setup: &Setup) -> Result<Result<PathBuf, NotInstalled>> {
    let script = Some(PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server"));
    let script = script.filter(|path| path.is_file()).or_else(|| child::find("rabbitmq-server"));
    Ok(match (script, child::find("epmd")) {
        (Some(script), Some(_)) => Ok(script),
        _ => Err(NotInstalled("rabbitmq-server".to_owned())),
    })
}

struct Rabbit {
    addr: SocketAddr,
    version: String,
    kind: &'static str,
    // Ended in this order.
    _server: Child,
    _names: Child,
}

fn start(program: &Path, folder: &Path, kind: &'static str) -> Result<Box<dyn Peer>> {
    // Erlang would start its name server as a daemon that outlives everything: ours is a child.
    let names_addr = free_address()?;
    let names_port = names_addr.port().to_string();
    let epmd = child::find("epmd").context("epmd")?;
    let mut names = Child::start(&epmd, None, Signal::KILL, folder, |command| {
        command.args(["-address", "127.0.0.1", "-port", &names_port]);
    })?;
    names.wait_until_listening(names_addr)?;

    let addr = free_address()?;
    let dist = free_address()?;
    let config = folder.join("rabbitmq.conf");
    std::fs::write(&config, format!("listeners.tcp.default = {addr}\n"))?;
    let plugins = folder.join("plugins");
    std::fs::write(&plugins, "[].\n")?;
    let mut server = Child::start(program, None, Signal::KILL, folder, |command| {
        // Then the script becomes the server, instead of a parent whose end would not be its end.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        command.env("ERL_EPMD_PORT", &names_port).env("HOME", folder);
        command.env("RABBITMQ_NODENAME", format!("bench{}@localhost", addr.port()));
        command.env("RABBITMQ_DIST_PORT", dist.port().to_string());
        command.env("RABBITMQ_CONFIG_FILE", &config).env("RABBITMQ_ENABLED_PLUGINS_FILE", &plugins);
        command.env("RABBITMQ_MNESIA_BASE", folder.join("data"));
        command.env("RABBITMQ_LOG_BASE", folder.join("log"));
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    })?;
    server.wait_until_listening(addr)?;
    let version = version(folder).unwrap_or_else(|| "unknown version".to_owned());
    Ok(Box::new(Rabbit { addr, version, kind, _server: server, _names: names }))
}

/// As its log says: ` Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]`.
fn version(folder: &Path) -> Option<String> {
    let logs = std::fs::read_dir(folder.join("log")).ok()?.flatten();
    let texts = logs.filter_map(|log| std::fs::read_to_string(log.path()).ok());
    texts.into_iter().find_map(|text| {
        let rest = text.split_once("Starting RabbitMQ ")?.1;
        Some(rest.split(" [").next()?.lines().next()?.to_owned())
    })
}

impl Rabbit {
    async fn channel(&self) -> Result<Channel> {
        let started = Instant::now();
        loop {
            // It listens before it lets anybody in.
            match Channel::open(self.addr).await {
                Err(_) if started.elapsed() < READY_MAX => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                done => return done,
            }
        }
    }
}

impl Peer for Rabbit {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn create<'a>(&'a self, queue: &'a str) -> Later<'a, ()> {
        Box::pin(async move {
            let args = Args::default().short(0).name(queue).octet(DURABLE);
            let args = args.table(&[("x-queue-type", self.kind)]);
            self.channel().await?.ask(QUEUE_DECLARE, args, QUEUE_DECLARE_OK).await?;
            Ok(())
        })
    }

    fn producer<'a>(&'a self, queue: &'a str, _batch: usize) -> Later<'a, Box<dyn Producer>> {
        Box::pin(async move {
            let mut channel = self.channel().await?;
            channel.ask(CONFIRM_SELECT, Args::default().octet(0), CONFIRM_SELECT_OK).await?;
            Ok(Box::new(Publishing { channel, queue: queue.to_owned(), sent: 0 }) as _)
        })
    }

    fn consumer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Consumer>> {
        Box::pin(async move {
            let mut channel = self.channel().await?;
            let prefetch = u16::try_from(batch).context("a large batch")?;
            let qos = Args::default().long(0).short(prefetch).octet(0);
            channel.ask(BASIC_QOS, qos, BASIC_QOS_OK).await?;
            let queue = queue.to_owned();
            Ok(Box::new(Consuming { channel, queue, batch, is_consuming: false }) as _)
        })
    }

    /// Messages that are not delivered to anybody: none is, once all consumers are closed.
    fn left<'a>(&'a self, queue: &'a str) -> Later<'a, u64> {
        Box::pin(async move {
            let args = Args::default().short(0).name(queue).octet(PASSIVE | DURABLE).table(&[]);
            let answer = self.channel().await?.ask(QUEUE_DECLARE, args, QUEUE_DECLARE_OK).await?;
            let mut fields = Fields(&answer);
            fields.name()?;
            Ok(u64::from(fields.long()?))
        })
    }
}

struct Publishing {
    channel: Channel,
    queue: String,
    /// Messages of this channel, which confirms are about.
    sent: u64,
}

impl Producer for Publishing {
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()> {
        Box::pin(async move {
            for body in bodies {
                self.channel.publish(&self.queue, body);
            }
            self.channel.flush().await?;
            let first = self.sent + 1;
            self.sent += bodies.len() as u64;
            // One confirm may stand for many, and they come in any order.
            let mut open: Vec<u64> = (first..=self.sent).collect();
            while !open.is_empty() {
                let (name, args) = self.channel.method().await?;
                ensure!(name == BASIC_ACK, "method {name:?} instead of a confirm");
                let mut args = Fields(&args);
                let (tag, multiple) = (args.long_long()?, args.octet()? & 1 == 1);
                open.retain(|sent| if multiple { *sent > tag } else { *sent != tag });
            }
            Ok(())
        })
    }
}

struct Consuming {
    channel: Channel,
    queue: String,
    batch: usize,
    is_consuming: bool,
}

impl Consumer for Consuming {
    fn receive(&mut self) -> Later<'_, Vec<Received>> {
        Box::pin(async move {
            if !self.is_consuming {
                // Only now, because from now on messages are pushed.
                let args = Args::default().short(0).name(&self.queue).name("").octet(0).table(&[]);
                self.is_consuming = true;
                self.channel.ask(BASIC_CONSUME, args, BASIC_CONSUME_OK).await?;
            }
            let mut received = Vec::with_capacity(self.batch);
            while received.is_empty() || received.len() < self.batch && self.channel.is_more_here()
            {
                let (name, args) = self.channel.method().await?;
                if name != BASIC_DELIVER {
                    bail!("method {name:?} instead of a delivery");
                }
                let mut args = Fields(&args);
                args.name()?;
                let tag = args.long_long()?;
                received.push(Received::new(&self.channel.content().await?, tag.to_string())?);
            }
            Ok(received)
        })
    }

    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()> {
        Box::pin(async move {
            let Some(Received { handle, .. }) = received.last() else { return Ok(()) };
            // The last and all before it, which are all of the batch.
            let args = Args::default().long_long(handle.parse()?).octet(1);
            self.channel.say(BASIC_ACK, args);
            self.channel.flush().await
        })
    }

    fn close(mut self: Box<Self>) -> Later<'static, ()> {
        Box::pin(async move {
            let args = Args::default().short(200).name("").short(0).short(0);
            self.channel.say(CHANNEL_CLOSE, args);
            self.channel.flush().await?;
            while self.channel.method().await?.0 != CHANNEL_CLOSE_OK {}
            Ok(())
        })
    }
}
