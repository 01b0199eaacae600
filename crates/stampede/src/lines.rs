//! Lines of stdin or a file, each a thing to be sent: those that are refused are named, and the rest
//! is sent.

use std::io::{self, BufRead, BufReader, Read};

use anyhow::Context;
use client::Error;
use tokio::sync::mpsc;

use crate::output::{Report, tell};
use crate::remote::in_flags;

/// Lines in one request, at most; a slow stdin sends what it has.
const LINES_AT_ONCE: usize = 500;
/// Bytes of lines in one request, unless one line alone has more. The client would make two requests
/// of many more, of which the second could fail when the first is done.
const BYTES_AT_ONCE: usize = 512 << 10;
/// The status of a request that is too large as a whole.
const TOO_LARGE: u16 = 413;

type Line = io::Result<Vec<u8>>;

/// Lines as they come, read by a thread that may wait for them.
struct Lines {
    ready: mpsc::Receiver<Line>,
    /// One that was too long for the request before.
    held: Option<Line>,
    /// Of the last line that was taken.
    number: u64,
}

impl Lines {
    fn of(input: impl Read + Send + 'static) -> Lines {
        let (sender, ready) = mpsc::channel(LINES_AT_ONCE);
        let input = BufReader::new(input);
        tokio::task::spawn_blocking(move || {
            for line in input.split(b'\n') {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Lines { ready, held: None, number: 0 }
    }

    /// Those that are at hand with their numbers, at least one; none at the end.
    async fn some(&mut self) -> Vec<(u64, Line)> {
        let (mut some, mut bytes) = (Vec::new(), 0);
        let mut next = match self.held.take() {
            Some(held) => Some(held),
            None => self.ready.recv().await,
        };
        while let Some(line) = next {
            bytes += line.as_ref().map_or(0, Vec::len);
            if bytes > BYTES_AT_ONCE && !some.is_empty() {
                self.held = Some(line);
                break;
            }
            self.number += 1;
            some.push((self.number, line));
            next = if some.len() < LINES_AT_ONCE { self.ready.try_recv().ok() } else { None };
        }
        some
    }
}

/// What came of all lines.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    pub(crate) refused: u64,
    /// Those that were read, also if they are nothing to send.
    pub(crate) read: u64,
}

impl Tally {
    fn refuse(&mut self, number: u64, why: &str) {
        self.refused += 1;
        tell(format_args!("stampede: line {number}: {why}"));
    }
}

/// Sends each line of `input` that `make` makes something of, and prints what came of it. `word` is the
/// word for what was sent.
pub(crate) async fn each<M, T>(
    input: impl Read + Send + 'static,
    word: &str,
    make: impl Fn(&str) -> anyhow::Result<Option<M>>,
    send: impl AsyncFn(&[M]) -> Result<Vec<Result<T, Error>>, Error>,
    shown: impl Fn(T) -> anyhow::Result<String>,
    report: &mut Report,
) -> anyhow::Result<Tally> {
    let mut lines = Lines::of(input);
    let mut tally = Tally::default();
    loop {
        let some = lines.some().await;
        if some.is_empty() {
            tally.read = lines.number;
            return Ok(tally);
        }
        let (mut numbers, mut things, mut unread) = (Vec::new(), Vec::new(), None);
        for (number, line) in some {
            match line.map(String::from_utf8) {
                Ok(Ok(text)) => {
                    if let Some(thing) = make(text.strip_suffix('\r').unwrap_or(&text))? {
                        numbers.push(number);
                        things.push(thing);
                    }
                }
                Ok(Err(_)) => tally.refuse(number, "it is not text, which is UTF-8"),
                // What was read before it is sent.
                Err(error) => {
                    unread = Some((number, error));
                    break;
                }
            }
        }
        if let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) {
            let place = || format!("lines {first} to {last}, after {} were {word}", tally.done);
            let results = match send(&things).await {
                // A line that is so large is alone in its request, and refused as others are.
                Err(Error::Problem(problem)) if first == last && problem.status == TOO_LARGE => {
                    vec![Err(Error::Problem(problem))]
                }
                results => results.with_context(place)?,
            };
            let mut text = String::new();
            for (number, result) in numbers.into_iter().zip(results) {
                match result {
                    Ok(one) => {
                        tally.done += 1;
                        text.push_str(&shown(one)?);
                    }
                    Err(error) => tally.refuse(number, &in_flags(&error.to_string())),
                }
            }
            report.print(&text);
        }
        if let Some((number, error)) = unread {
            let place = format!("line {number}, after {} were {word}", tally.done);
            return Err(error).context(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_bounded_in_lines_and_in_bytes() {
        let long = "x".repeat(BYTES_AT_ONCE / 2);
        let input = format!("{long}\n{long}\n{long}\n{}", "y\n".repeat(2 * LINES_AT_ONCE));
        let mut lines = Lines::of(io::Cursor::new(input));
        let mut all = 0;
        loop {
            let some = lines.some().await;
            let Some(first) = some.first() else { break };
            assert_eq!(first.0, all + 1, "none is left out");
            all += some.len() as u64;
            let bytes: usize = some.iter().map(|(_, line)| line.as_ref().map_or(0, Vec::len)).sum();
            assert!(some.len() <= LINES_AT_ONCE && bytes <= BYTES_AT_ONCE, "{bytes}");
        }
        assert_eq!(all, 3 + 2 * LINES_AT_ONCE as u64);
    }
}
