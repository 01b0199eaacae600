//! As much of AMQP 0-9-1 as the bench needs: one channel a connection, methods and messages.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use super::wire::Wire;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;
/// A method's class and number.
pub(crate) type Name = (u16, u16);

pub(crate) const QUEUE_DECLARE: Name = (50, 10);
pub(crate) const QUEUE_DECLARE_OK: Name = (50, 11);
pub(crate) const BASIC_QOS: Name = (60, 10);
pub(crate) const BASIC_QOS_OK: Name = (60, 11);
pub(crate) const BASIC_CONSUME: Name = (60, 20);
pub(crate) const BASIC_CONSUME_OK: Name = (60, 21);
const BASIC_PUBLISH: Name = (60, 40);
pub(crate) const BASIC_DELIVER: Name = (60, 60);
pub(crate) const BASIC_ACK: Name = (60, 80);
pub(crate) const CONFIRM_SELECT: Name = (85, 10);
pub(crate) const CONFIRM_SELECT_OK: Name = (85, 11);
pub(crate) const CHANNEL_CLOSE: Name = (20, 40);
pub(crate) const CHANNEL_CLOSE_OK: Name = (20, 41);
const CHANNEL_OPEN: Name = (20, 10);
const CHANNEL_OPEN_OK: Name = (20, 11);
const CONNECTION_START: Name = (10, 10);
const CONNECTION_START_OK: Name = (10, 11);
const CONNECTION_TUNE: Name = (10, 30);
const CONNECTION_TUNE_OK: Name = (10, 31);
const CONNECTION_OPEN: Name = (10, 40);
const CONNECTION_OPEN_OK: Name = (10, 41);
const CONNECTION_CLOSE: Name = (10, 50);

/// Arguments of a method, one after the other.
#[derive(Default)]
pub(crate) struct Args(Vec<u8>);

impl Args {
    pub(crate) fn octet(mut self, value: u8) -> Args {
        self.0.push(value);
        self
    }

    pub(crate) fn short(mut self, value: u16) -> Args {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: u32) -> Args {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long_long(mut self, value: u64) -> Args {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// A name, of at most 255 bytes.
    pub(crate) fn name(self, text: &str) -> Args {
        let mut args = self.octet(u8::try_from(text.len()).unwrap_or(u8::MAX));
        args.0.extend_from_slice(text.as_bytes());
        args
    }

    pub(crate) fn text(self, text: &str) -> Args {
        let mut args = self.long(u32::try_from(text.len()).unwrap_or(u32::MAX));
        args.0.extend_from_slice(text.as_bytes());
        args
    }

    /// A table with texts.
    pub(crate) fn table(self, entries: &[(&str, &str)]) -> Args {
        let table = entries
            .iter()
            .fold(Args::default(), |table, (key, value)| table.name(key).octet(b'S').text(value));
        let mut args = self.long(u32::try_from(table.0.len()).unwrap_or(u32::MAX));
        args.0.extend(table.0);
        args
    }
}

/// Arguments that came.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().context("a short method")?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn octet(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }

    pub(crate) fn short(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    pub(crate) fn long(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    pub(crate) fn long_long(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    pub(crate) fn name(&mut self) -> Result<String> {
        let length = usize::from(self.octet()?);
        let (name, rest) = self.0.split_at_checked(length).context("a short method")?;
        let name = String::from_utf8_lossy(name).into_owned();
        self.0 = rest;
        Ok(name)
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    out.push(kind);
    out.extend(channel.to_be_bytes());
    out.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(payload);
    out.push(FRAME_END);
}

fn method(out: &mut Vec<u8>, channel: u16, (class, number): Name, args: &Args) {
    let payload = Args::default().short(class).short(number);
    frame(out, METHOD, channel, &[payload.0, args.0.clone()].concat());
}

/// A connection with its only channel.
pub(crate) struct Channel {
    wire: Wire,
    out: Vec<u8>,
}

impl Channel {
    pub(crate) async fn open(addr: SocketAddr) -> Result<Channel> {
        let mut channel = Channel { wire: Wire::connect(addr).await?, out: Vec::new() };
        channel.wire.send(b"AMQP\0\0\x09\x01").await?;
        channel.expect(CONNECTION_START).await?;
        let login = Args::default().table(&[]).name("PLAIN").text("\0guest\0guest").name("en_US");
        channel.say_on(0, CONNECTION_START_OK, login);
        channel.flush().await?;
        let tune = channel.expect(CONNECTION_TUNE).await?;
        let mut tune = Fields(&tune);
        let (channels, frame_max) = (tune.short()?, tune.long()?);
        // No heartbeats: runs are short.
        let tuned = Args::default().short(channels).long(frame_max).short(0);
        channel.say_on(0, CONNECTION_TUNE_OK, tuned);
        channel.say_on(0, CONNECTION_OPEN, Args::default().name("/").name("").octet(0));
        channel.flush().await?;
        channel.expect(CONNECTION_OPEN_OK).await?;
        channel.ask(CHANNEL_OPEN, Args::default().name(""), CHANNEL_OPEN_OK).await?;
        Ok(channel)
    }

    fn say_on(&mut self, channel: u16, name: Name, args: Args) {
        method(&mut self.out, channel, name, &args);
    }

    /// Adds a method to what is sent next.
    pub(crate) fn say(&mut self, name: Name, args: Args) {
        self.say_on(1, name, args);
    }

    /// Adds a persistent message for a queue to what is sent next.
    pub(crate) fn publish(&mut self, queue: &str, body: &str) {
        self.say(BASIC_PUBLISH, Args::default().short(0).name("").name(queue).octet(0));
        let length = u64::try_from(body.len()).unwrap_or(u64::MAX);
        // The only property is the delivery mode, which is 2.
        let header = Args::default().short(60).short(0).long_long(length).short(0x1000).octet(2);
        frame(&mut self.out, HEADER, 1, &header.0);
        frame(&mut self.out, BODY, 1, body.as_bytes());
    }

    pub(crate) async fn flush(&mut self) -> Result<()> {
        self.wire.send(&self.out).await?;
        self.out.clear();
        Ok(())
    }

    /// Says something and waits for the answer to it.
    pub(crate) async fn ask(&mut self, name: Name, args: Args, answer: Name) -> Result<Vec<u8>> {
        self.say(name, args);
        self.flush().await?;
        self.expect(answer).await
    }

    /// The arguments of the next method, which must be this one.
    async fn expect(&mut self, expected: Name) -> Result<Vec<u8>> {
        let (name, args) = self.method().await?;
        ensure!(name == expected, "method {name:?} instead of {expected:?}");
        Ok(args)
    }

    /// Whether a frame is here already.
    pub(crate) fn is_more_here(&self) -> bool {
        let unused = self.wire.unused();
        let length = unused.get(3..7).and_then(|length| Fields(length).long().ok());
        length.is_some_and(|length| unused.len() as u64 >= u64::from(length) + 8)
    }

    async fn frame(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            let mut head = Fields(self.peek(7).await?);
            let (kind, _channel, length) = (head.octet()?, head.short()?, head.long()?);
            let length = usize::try_from(length).context("a long frame")?;
            // Taken at once, so that nothing is lost if this is dropped.
            let bytes = self.wire.take(7 + length + 1).await?;
            ensure!(bytes.last() == Some(&FRAME_END), "a frame without its end");
            if kind != HEARTBEAT {
                return Ok((kind, bytes[7..7 + length].to_vec()));
            }
        }
    }

    async fn peek(&mut self, count: usize) -> Result<&[u8]> {
        while self.wire.unused().len() < count {
            self.wire.more().await?;
        }
        Ok(&self.wire.unused()[..count])
    }

    /// The next method.
    pub(crate) async fn method(&mut self) -> Result<(Name, Vec<u8>)> {
        let (kind, payload) = self.frame().await?;
        ensure!(kind == METHOD, "a frame of kind {kind} instead of a method");
        let mut fields = Fields(&payload);
        let name = (fields.short()?, fields.short()?);
        if name == CHANNEL_CLOSE || name == CONNECTION_CLOSE {
            bail!("refused: {} {}", fields.short()?, fields.name()?);
        }
        Ok((name, fields.0.to_vec()))
    }

    /// The message that follows a delivery.
    pub(crate) async fn content(&mut self) -> Result<Vec<u8>> {
        let (kind, header) = self.frame().await?;
        ensure!(kind == HEADER, "a frame of kind {kind} instead of a header");
        let mut header = Fields(&header);
        header.long()?;
        let length = usize::try_from(header.long_long()?).context("a long message")?;
        let mut body = Vec::with_capacity(length);
        while body.len() < length {
            let (kind, part) = self.frame().await?;
            ensure!(kind == BODY, "a frame of kind {kind} instead of a body");
            body.extend(part);
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Fields, method};

    #[test]
    fn a_method_is_framed() {
        let mut out = Vec::new();
        method(&mut out, 1, (20, 10), &Args::default().name("a"));
        assert_eq!(out, b"\x01\0\x01\0\0\0\x06\0\x14\0\x0a\x01a\xce");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let args = Args::default().octet(1).short(2).name("abc").long(4).long_long(5);
        let mut fields = Fields(&args.0);
        assert_eq!((fields.octet().unwrap(), fields.short().unwrap()), (1, 2));
        assert_eq!(fields.name().unwrap(), "abc");
        assert_eq!((fields.long().unwrap(), fields.long_long().unwrap()), (4, 5));
        assert!(fields.octet().is_err());
    }
}
