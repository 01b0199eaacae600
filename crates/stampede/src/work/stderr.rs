//! The stderr of a command: passed on, and its last line kept.

use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

use super::relay::Relay;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 8 << 10;
/// Bytes of the last line that become part of a reason.
const LAST_LINE_BYTES_MAX: usize = 900;

/// Passes stderr on in whole lines, as far as they are not too long, so that those of several commands
/// do not mix.
pub(super) async fn pass_on(
    mut stderr: ChildStderr,
    relay: Arc<Relay>,
    last: Arc<Mutex<LastLine>>,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut held = 0;
    while let Ok(read @ 1..) = stderr.read(&mut buffer[held..]).await {
        last.lock().expect("nothing panics with it held").take(&buffer[held..held + read]);
        held += read;
        let whole = match buffer[..held].iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if held == buffer.len() => held,
            None => continue,
        };
        relay.pass(buffer[..whole].to_vec()).await;
        buffer.copy_within(whole..held, 0);
        held -= whole;
    }
    if held > 0 {
        relay.pass(buffer[..held].to_vec()).await;
    }
}

/// The last line that is not blank, or its beginning.
#[derive(Default)]
pub(super) struct LastLine {
    /// The one that is being written, from the first byte that is no space on.
    line: Vec<u8>,
    /// The one before it.
    before: String,
}

impl LastLine {
    fn take(&mut self, bytes: &[u8]) {
        // A character that begins within the bound may end behind it.
        const KEPT_BYTES_MAX: usize = LAST_LINE_BYTES_MAX + 3;
        for byte in bytes {
            match byte {
                b'\n' => {
                    self.before = self.shown();
                    self.line.clear();
                }
                byte if self.line.is_empty() && byte.is_ascii_whitespace() => {}
                byte if self.line.len() < KEPT_BYTES_MAX => self.line.push(*byte),
                _ => {}
            }
        }
    }

    pub(super) fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.line);
        let text = text[..text.floor_char_boundary(LAST_LINE_BYTES_MAX)].trim();
        if text.is_empty() { self.before.clone() } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(parts: &[&[u8]]) -> String {
        let mut last = LastLine::default();
        parts.iter().for_each(|part| last.take(part));
        last.shown()
    }

    #[test]
    fn the_last_line_that_is_not_blank_is_kept_however_it_comes() {
        for (parts, kept) in [
            (&[&b"one\ntwo\n"[..]][..], "two"),
            (&[b"one\n  tw", b"o  \n", b"\n \t\r\n"], "two"),
            (&[b"one\n", b"not ended"], "not ended"),
            (&[b"one\n", b"  "], "one"),
            (&[b"\xff\n"], "\u{fffd}"),
            (&[], ""),
        ] {
            assert_eq!(last(parts), kept, "{parts:?}");
        }
    }

    #[test]
    fn of_a_line_that_does_not_end_the_beginning_is_kept() {
        let mut endless = LastLine::default();
        for _ in 0..10_000 {
            endless.take("ü".repeat(1000).as_bytes());
        }
        assert!(endless.line.capacity() < 4 * LAST_LINE_BYTES_MAX);
        assert_eq!(endless.shown(), "ü".repeat(LAST_LINE_BYTES_MAX / 2));
    }
}
