//! What is said on stderr while commands run.
//!
//! A thread of its own writes it: a stderr that nobody reads, or that a terminal holds back (`| less`,
//! ctrl-s), must hold up no renewals, acks and signals. What does not fit before it is dropped, and told.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Chunks that wait to be written.
const CHUNKS_MAX: usize = 64;
/// A stderr that has taken nothing for so long is not waited for.
pub(super) const STALLED: Duration = Duration::from_secs(1);

enum Chunk {
    Bytes(Vec<u8>),
    /// All before it is written.
    Mark(oneshot::Sender<()>),
}

/// The way to stderr.
pub(super) struct Relay {
    chunks: mpsc::Sender<Chunk>,
    /// Bytes that were, since that was last told.
    dropped: Arc<AtomicU64>,
}

impl Relay {
    pub(super) fn start(mut out: impl Write + Send + 'static) -> Arc<Relay> {
        let (chunks, mut ready) = mpsc::channel(CHUNKS_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let relay = Relay { chunks, dropped: Arc::clone(&dropped) };
        std::thread::spawn(move || {
            while let Some(chunk) = ready.blocking_recv() {
                // Whoever read it may have gone.
                match chunk {
                    Chunk::Bytes(bytes) => drop(out.write_all(&bytes)),
                    Chunk::Mark(written) => drop(written.send(())),
                }
                let dropped = dropped.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let _ = writeln!(out, "stampede: {dropped} bytes of stderr were dropped");
                }
            }
        });
        Arc::new(relay)
    }

    /// Says a line, and waits for nothing.
    pub(super) fn tell(&self, line: impl Display) {
        self.put(format!("{line}\n").into_bytes());
    }

    /// Passes bytes on. A stderr that is slow is waited for, and one that is stalled is not.
    pub(super) async fn pass(&self, bytes: Vec<u8>) {
        let is_stalled = self.dropped.load(Ordering::Relaxed) > 0;
        if !is_stalled && let Ok(Ok(room)) = timeout(STALLED, self.chunks.reserve()).await {
            room.send(Chunk::Bytes(bytes));
            return;
        }
        self.put(bytes);
    }

    fn put(&self, bytes: Vec<u8>) {
        let count = bytes.len() as u64;
        if self.chunks.try_send(Chunk::Bytes(bytes)).is_err() {
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Waits until all of it is written.
    pub(super) async fn flush(&self) {
        let (mark, written) = oneshot::channel();
        if self.chunks.send(Chunk::Mark(mark)).await.is_ok() {
            // The thread never ends before.
            let _ = written.await;
        }
    }
}

/// For lines of the log.
pub(super) struct Lines(pub(super) Arc<Relay>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing before it is told to, and then all.
    struct Held {
        go_on: std::sync::mpsc::Receiver<()>,
        taken: std::sync::mpsc::Sender<Vec<u8>>,
    }

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Told for good once the other end is gone.
            let _ = self.go_on.recv();
            let _ = self.taken.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_a_stalled_stderr_does_not_take_is_dropped_and_told() {
        let (release, go_on) = std::sync::mpsc::channel();
        let (taken, written) = std::sync::mpsc::channel();
        let relay = Relay::start(Held { go_on, taken });
        // Some may be with the writer already, and no more than one.
        let count = 2 * CHUNKS_MAX;
        for _ in 0..count {
            relay.pass(b"0123456789".to_vec()).await;
        }
        let dropped = relay.dropped.load(Ordering::Relaxed);
        assert!(dropped >= 10 * (count - CHUNKS_MAX - 1) as u64, "{dropped}");
        drop(release);
        relay.flush().await;
        relay.tell("all is well");
        relay.flush().await;
        drop(relay);
        let text: Vec<u8> = written.iter().flatten().collect();
        let text = String::from_utf8(text).expect("text");
        let note = format!("stampede: {dropped} bytes of stderr were dropped\n");
        assert!(text.contains(&note), "{text}");
        assert!(text.ends_with("all is well\n"), "{text}");
        assert_eq!(text.matches("0123456789").count() as u64, count as u64 - dropped / 10);
    }
}
