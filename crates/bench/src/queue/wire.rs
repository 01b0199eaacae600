//! A connection that reads what it needs and keeps the rest: all clients of this folder are
//! thin, and cost about the same, because the generator shares the machine with the server.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection with what was read and not yet used.
pub(crate) struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of the input that were used.
    used: usize,
}

impl Wire {
    pub(crate) async fn connect(addr: SocketAddr) -> Result<Wire> {
        let stream = TcpStream::connect(addr).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, input: Vec::with_capacity(32 << 10), used: 0 })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await.context("cannot write")
    }

    /// What was read and not yet used.
    pub(crate) fn unused(&self) -> &[u8] {
        &self.input[self.used..]
    }

    /// Reads more, at least one byte. Nothing is lost if this is dropped.
    pub(crate) async fn more(&mut self) -> Result<()> {
        self.input.drain(..self.used);
        self.used = 0;
        let count = self.stream.read_buf(&mut self.input).await.context("cannot read")?;
        ensure!(count > 0, "the server hung up");
        Ok(())
    }

    /// Uses the next `count` bytes.
    pub(crate) async fn take(&mut self, count: usize) -> Result<&[u8]> {
        while self.unused().len() < count {
            self.more().await?;
        }
        let from = self.used;
        self.used += count;
        Ok(&self.input[from..from + count])
    }

    /// Uses a line, and gives it without its end, which is CR LF.
    pub(crate) async fn line(&mut self) -> Result<&str> {
        let mut looked = 0;
        let length = loop {
            let rest = &self.unused()[looked..];
            if let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
                break looked + at;
            }
            looked = self.unused().len().saturating_sub(1);
            self.more().await?;
        };
        let line = self.take(length + 2).await?;
        std::str::from_utf8(&line[..length]).context("a line that is not text")
    }
}
