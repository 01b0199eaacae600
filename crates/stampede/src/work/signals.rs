//! What signals ask a worker for.

use std::future::pending;
use std::io;
use std::sync::Arc;

use client::Stopper;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::relay::Relay;

/// What was asked for so far.
#[derive(Clone, Default)]
pub(super) struct Asked {
    pub(super) to_stop: CancellationToken,
    pub(super) to_kill: CancellationToken,
}

/// Signals that are listened to.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where it is ignored.
    hangup: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Signals> {
        // To be looked at first: who listens ignores no more.
        let ignored = ignores_hangup();
        let hangup = if ignored { None } else { Some(signal(SignalKind::hangup())?) };
        let terminate = signal(SignalKind::terminate())?;
        Ok(Signals { terminate, interrupt: signal(SignalKind::interrupt())?, hangup })
    }

    /// The first signal stops, the second kills.
    pub(super) async fn obey(mut self, stopper: Stopper, asked: Asked, relay: Arc<Relay>) {
        loop {
            let is_hangup = self.next().await;
            if !asked.to_stop.is_cancelled() {
                stopper.stop();
                asked.to_stop.cancel();
                relay.tell("stampede: waiting for running commands; once more kills them");
            } else if !is_hangup {
                asked.to_kill.cancel();
                stopper.abort();
            }
        }
    }

    /// Whether the next is that the terminal is gone. That often comes twice, from the shell and from
    /// the system, and nobody means to kill by it.
    async fn next(&mut self) -> bool {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => false,
            _ = self.interrupt.recv() => false,
            _ = hangup => true,
        }
    }
}

/// Whether whoever started us wants us to outlive the terminal: `nohup`.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is signal 1, which it is.
    mask.is_some_and(|mask| mask & 1 == 1)
}
