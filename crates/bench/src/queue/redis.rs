//! Redis Streams: every command synced before it is answered.

use std::io::Write as _;
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
    name: "redis",
    usual: true,
    peer: true,
    settings: "appendonly yes, appendfsync always, save \"\"; XADD, XREADGROUP … >, XACK and XDEL; \
               a batch is one write",
    find,
    start,
};

const GROUP: &str = "workers";

fn find(_setup: &Setup) -> Result<Result<PathBuf, NotInstalled>> {
    Ok(child::find("redis-server").ok_or(NotInstalled("redis-server".to_owned())))
}

struct Redis {
    addr: SocketAddr,
    version: String,
    _child: Child,
}

fn start(program: &Path, folder: &Path) -> Result<Box<dyn Peer>> {
    let addr = free_address()?;
    let mut child = Child::start(program, None, Signal::KILL, folder, |command| {
        command.args(["--bind", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        command.arg("--dir").arg(folder);
    })?;
    child.wait_until_listening(addr)?;
    let version = child::version(program, &["--version"]);
    let version = version.split_whitespace().nth(2).unwrap_or(&version).replace("v=", "");
    Ok(Box::new(Redis { addr, version, _child: child }))
}

/// An answer.
#[derive(Debug, PartialEq)]
enum Value {
    Null,
    Integer(u64),
    Text(Vec<u8>),
    Array(Vec<Value>),
}

impl Value {
    fn array(self) -> Result<Vec<Value>> {
        match self {
            Value::Array(values) => Ok(values),
            other => bail!("not a list: {other:?}"),
        }
    }

    fn text(self) -> Result<Vec<u8>> {
        match self {
            Value::Text(text) => Ok(text),
            other => bail!("not a text: {other:?}"),
        }
    }

    fn integer(&self) -> Result<u64> {
        match self {
            Value::Integer(number) => Ok(*number),
            other => bail!("not a number: {other:?}"),
        }
    }
}

/// Reads a value at the front of `bytes`; `None` while it is not all there.
fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let line = std::str::from_utf8(&bytes[1..end]).context("an answer that is not text")?;
    let mut used = end + 2;
    let value = match bytes[0] {
        b'+' => Value::Text(line.as_bytes().to_vec()),
        b'-' => bail!("refused: {line}"),
        b':' => Value::Integer(line.parse().context("a number")?),
        b'$' | b'*' if line == "-1" => Value::Null,
        b'$' => {
            let length: usize = line.parse().context("a length")?;
            let Some(text) = bytes.get(used..used + length + 2) else { return Ok(None) };
            used += length + 2;
            Value::Text(text[..length].to_vec())
        }
        b'*' => {
            let mut values = Vec::new();
            for _ in 0..line.parse().context("a length")? {
                let Some((value, length)) = parse(&bytes[used..])? else { return Ok(None) };
                used += length;
                values.push(value);
            }
            Value::Array(values)
        }
        other => bail!("an answer begins with {other}"),
    };
    Ok(Some((value, used)))
}

fn command(out: &mut Vec<u8>, words: &[&str]) {
    // Writing to a vector does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

struct Conn {
    wire: Wire,
    queue: String,
    batch: String,
    name: String,
    out: Vec<u8>,
}

impl Conn {
    async fn value(&mut self) -> Result<Value> {
        loop {
            let found = parse(self.wire.unused())?;
            if let Some((value, used)) = found {
                self.wire.take(used).await?;
                return Ok(value);
            }
            self.wire.more().await?;
        }
    }

    async fn ask(&mut self, words: &[&str]) -> Result<Value> {
        self.out.clear();
        command(&mut self.out, words);
        self.wire.send(&self.out).await?;
        self.value().await
    }
}

impl Redis {
    async fn conn(&self, queue: &str, batch: usize) -> Result<Conn> {
        let mut wire = Wire::connect(self.addr).await?;
        let mut out = Vec::new();
        command(&mut out, &["CLIENT", "ID"]);
        wire.send(&out).await?;
        let (batch, name) = (batch.to_string(), String::new());
        let mut conn = Conn { wire, queue: queue.to_owned(), batch, name, out };
        // Every consumer has a name of its own.
        conn.name = conn.value().await?.integer()?.to_string();
        Ok(conn)
    }
}

impl Peer for Redis {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn create<'a>(&'a self, queue: &'a str) -> Later<'a, ()> {
        Box::pin(async move {
            let mut conn = self.conn(queue, 1).await?;
            conn.ask(&["XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM"]).await?;
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
            let pending = conn.ask(&["XPENDING", queue, GROUP]).await?.array()?;
            let pending = pending.first().context("a count")?.integer()?;
            Ok(conn.ask(&["XLEN", queue]).await?.integer()?.max(pending))
        })
    }
}

impl Producer for Conn {
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()> {
        Box::pin(async move {
            self.out.clear();
            for body in bodies {
                command(&mut self.out, &["XADD", &self.queue, "*", "b", body]);
            }
            self.wire.send(&self.out).await?;
            for _ in bodies {
                self.value().await?.text()?;
            }
            Ok(())
        })
    }
}

impl Consumer for Conn {
    fn receive(&mut self) -> Later<'_, Vec<Received>> {
        Box::pin(async move {
            let Conn { queue, batch, name, out, .. } = self;
            out.clear();
            #[rustfmt::skip]
            command(out, &[
                "XREADGROUP", "GROUP", GROUP, name, "COUNT", batch, "BLOCK", "0", "STREAMS", queue, ">",
            ]);
            self.wire.send(&self.out).await?;
            // [[queue, [[id, [field, body]], …]]]
            let stream = self.value().await?.array()?.pop().context("a stream")?;
            let entries = stream.array()?.pop().context("entries")?.array()?;
            entries.into_iter().map(received).collect()
        })
    }

    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()> {
        Box::pin(async move {
            let ids = received.iter().map(|received| received.handle.as_str());
            let ack: Vec<&str> =
                ["XACK", &self.queue, GROUP].into_iter().chain(ids.clone()).collect();
            let delete: Vec<&str> = ["XDEL", &self.queue].into_iter().chain(ids).collect();
            self.out.clear();
            command(&mut self.out, &ack);
            command(&mut self.out, &delete);
            self.wire.send(&self.out).await?;
            for _ in ["XACK", "XDEL"] {
                let count = self.value().await?.integer()?;
                ensure!(count == received.len() as u64, "acknowledged only {count}");
            }
            Ok(())
        })
    }
}

fn received(entry: Value) -> Result<Received> {
    let mut entry = entry.array()?;
    let body = entry.pop().context("fields")?.array()?.pop().context("a body")?.text()?;
    let id = String::from_utf8(entry.pop().context("an id")?.text()?).context("an id")?;
    Received::new(&body, id)
}

#[cfg(test)]
mod tests {
    use super::{Value, command, parse};

    #[test]
    fn an_answer_is_read_when_it_is_all_there() {
        let bytes = b"*2\r\n$3\r\nabc\r\n:7\r\n+OK";
        let expected = Value::Array(vec![Value::Text(b"abc".to_vec()), Value::Integer(7)]);
        assert_eq!(parse(bytes).unwrap(), Some((expected, bytes.len() - 3)));
        for end in 0..bytes.len() - 3 {
            assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(parse(b"*-1\r\n").unwrap(), Some((Value::Null, 5)));
        assert!(parse(b"-ERR no\r\n").is_err());
    }

    #[test]
    fn a_command_is_its_words_with_their_lengths() {
        let mut out = Vec::new();
        command(&mut out, &["XLEN", "q"]);
        assert_eq!(out, b"*2\r\n$4\r\nXLEN\r\n$1\r\nq\r\n");
    }
}
