//! What is measured of requests to queues: by action, not by queue, so that it stays small.

use std::time::Instant;

use metrics::Histogram;
use queue::{Command, Delivery};

use super::metrics::{MESSAGE_AGE, QUEUE_REQUEST};

const ACTIONS: [&str; 7] = ["send", "receive", "ack", "nack", "extend", "publish", "other"];

/// Handles made once.
pub(crate) struct QueueMeters {
    /// As [`ACTIONS`].
    seconds: [Histogram; ACTIONS.len()],
    age_seconds: Histogram,
}

/// A request on its way to a shard and back.
pub(crate) struct Measured<'a> {
    seconds: &'a Histogram,
    began: Instant,
}

impl Measured<'_> {
    /// It was answered, if only by a refusal of the machine.
    pub(crate) fn end(self) {
        self.seconds.record(self.began.elapsed());
    }
}

fn action(command: &Command) -> &'static str {
    match command {
        Command::Send(_) => "send",
        Command::Receive(_) => "receive",
        Command::Ack(_) => "ack",
        Command::Nack(_) => "nack",
        Command::Extend(_) => "extend",
        Command::Publish(_) => "publish",
        _ => "other",
    }
}

impl QueueMeters {
    pub(crate) fn new() -> QueueMeters {
        let seconds = ACTIONS.map(|action| metrics::histogram!(QUEUE_REQUEST, "action" => action));
        QueueMeters { seconds, age_seconds: metrics::histogram!(MESSAGE_AGE) }
    }

    /// Begins to measure. A receive that waits begins when it is called, not when it came.
    pub(crate) fn begin(&self, command: &Command) -> Measured<'_> {
        let action = action(command);
        let number =
            ACTIONS.iter().position(|known| *known == action).expect("it is a list of all");
        Measured { seconds: &self.seconds[number], began: Instant::now() }
    }

    /// Messages were received: how far behind the consumers are.
    pub(crate) fn received(&self, deliveries: &[Delivery], now_ms: u64) {
        for delivery in deliveries {
            let age_ms = now_ms.saturating_sub(delivery.sent_ms);
            self.age_seconds.record(age_ms as f64 / 1000.0);
        }
    }
}
