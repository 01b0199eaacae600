//! What every queue under test can do, in words that fit them all.

use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};

use crate::proc::Setup;
use crate::stats::Scramble;

/// An answer that comes later. One thread asks all questions, so nothing need be `Send`.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// Why a subject cannot be measured here.
#[derive(Debug)]
pub(crate) struct NotInstalled(pub(crate) String);

/// A kind of server that can be measured.
pub(crate) struct Subject {
    /// Short, the same in every run.
    pub(crate) name: &'static str,
    /// Measured unless others are named.
    pub(crate) usual: bool,
    /// Whether it is what the others are compared with. Ours is not.
    pub(crate) peer: bool,
    /// How it is set up, for people.
    pub(crate) settings: &'static str,
    /// Where its program is.
    pub(crate) find: fn(&Setup) -> Result<Result<PathBuf, NotInstalled>>,
    /// Starts it in an empty folder; it ends when it is dropped.
    pub(crate) start: fn(program: &Path, folder: &Path) -> Result<Box<dyn Peer>>,
}

/// A running server.
pub(crate) trait Peer {
    /// Its version.
    fn version(&self) -> String;

    /// Makes an empty queue.
    fn create<'a>(&'a self, queue: &'a str) -> Later<'a, ()>;

    /// A connection that publishes.
    fn producer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Producer>>;

    /// A connection that receives and acknowledges.
    fn consumer<'a>(&'a self, queue: &'a str, batch: usize) -> Later<'a, Box<dyn Consumer>>;

    /// How many messages the queue still has, in whatever state.
    fn left<'a>(&'a self, queue: &'a str) -> Later<'a, u64>;
}

/// A connection that publishes.
pub(crate) trait Producer {
    /// Done when the server has said of each that it is safe on the disk.
    fn publish<'a>(&'a mut self, bodies: &'a [String]) -> Later<'a, ()>;
}

/// A connection that receives and acknowledges.
pub(crate) trait Consumer {
    /// Waits for a message, and takes as many as are there, at most a batch. Dropped when no
    /// message will come any more; only `close` follows then.
    fn receive(&mut self) -> Later<'_, Vec<Received>>;

    /// Done when the server has said of each that it is gone for good, if it ever says so.
    fn ack<'a>(&'a mut self, received: &'a [Received]) -> Later<'a, ()>;

    /// Waits until nothing of this connection is on its way, for those that must ask.
    fn close(self: Box<Self>) -> Later<'static, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A message, and what acknowledges it.
#[derive(Debug)]
pub(crate) struct Received {
    /// Read from its body.
    pub(crate) number: u64,
    /// In the server's own words.
    pub(crate) handle: String,
}

/// Hexadecimal digits of a message's number.
const DIGITS: usize = 16;

/// A message of so many bytes, which are text: all can carry it as it is.
pub(crate) fn body(number: u64, bytes: usize) -> String {
    let mut body = String::with_capacity(bytes.max(DIGITS));
    // Writing to a string does not fail.
    let _ = write!(body, "{number:0DIGITS$x}");
    for_each_piece(number, bytes.saturating_sub(DIGITS), |piece| body.push_str(piece));
    body
}

/// What is behind the digits of a message, in pieces: what all drivers do for every message shall
/// cost next to nothing.
fn for_each_piece(number: u64, mut count: usize, mut each: impl FnMut(&str)) {
    let start = number.wrapping_mul(count as u64) % NOISE.len() as u64;
    let mut start = usize::try_from(start).expect("it is within the text");
    while count > 0 {
        let end = NOISE.len().min(start + count);
        each(&NOISE[start..end]);
        count -= end - start;
        start = 0;
    }
}

/// Text that cannot be compressed, and is not repeated within what compressors look at: who keeps
/// bodies as they are and who compresses them have the same to write.
static NOISE: LazyLock<String> = LazyLock::new(|| {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut random = Scramble(1);
    (0..1 << 20).map(|_| char::from(LETTERS[(random.next() % 64) as usize])).collect()
});

impl Received {
    pub(crate) fn new(body: &[u8], handle: impl Into<String>) -> Result<Received> {
        let digits = body.get(..DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let number = number.context("a message that nobody sent")?;
        let (mut rest, mut whole) = (&body[DIGITS..], true);
        for_each_piece(number, rest.len(), |piece| {
            let (found, more) = rest.split_at(piece.len());
            whole &= found == piece.as_bytes();
            rest = more;
        });
        ensure!(whole, "message {number} is damaged");
        Ok(Received { number, handle: handle.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::{NOISE, Received, body};

    #[test]
    fn a_message_carries_its_number() {
        for (number, bytes) in [(77, 100), (1 << 40, 1024), (3, 3 * NOISE.len()), (5, 16)] {
            let text = body(number, bytes);
            assert_eq!(text.len(), bytes);
            assert_eq!(Received::new(text.as_bytes(), "").unwrap().number, number);
        }
        assert!(Received::new(b"hello", "").is_err());
        let mut other = body(77, 100);
        other.replace_range(99.., ".");
        assert!(Received::new(other.as_bytes(), "").is_err());
    }

    #[test]
    fn messages_do_not_get_smaller_by_compression() {
        let many: String = (0..1000).map(|number| body(number, 1024)).collect();
        let compressed = lz4_flex::compress(many.as_bytes());
        assert!(compressed.len() * 100 > many.len() * 97, "{} of {}", compressed.len(), many.len());
    }
}
