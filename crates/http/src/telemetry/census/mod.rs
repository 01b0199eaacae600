//! What is looked at, not counted as it happens: every queue and stream, and the disk.
//!
//! A census reads rows, on a thread that may block and never on a shard's. One is taken when somebody
//! asks and the last is old; whoever asks meanwhile gets the last. So asking often costs no more, and
//! a hundred thousand queues make a census old, not slow to ask for.
//!
//! To tell of something else, add a file with a `write` beside `queues` and its line in `take`.

mod disk;
mod queues;
mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::page::{Kind, Page};
use crate::app::EdgeState;

/// A census younger than this is good enough.
const YOUNG: Duration = Duration::from_secs(1);
/// After a census there is a pause of this many times what it took.
const PAUSE_TIMES: u32 = 9;
/// Whoever asks waits this long for a new one.
const PATIENCE: Duration = Duration::from_secs(2);

/// The census of a node.
pub(crate) struct Census {
    latest: watch::Sender<Option<Arc<Taken>>>,
    turn: Mutex<Turn>,
}

/// What was seen.
struct Taken {
    text: String,
    at: Instant,
    took: Duration,
}

enum Turn {
    /// The next may be taken from then on.
    Idle(Instant),
    /// One is being taken.
    Running,
}

impl Census {
    pub(crate) fn new() -> Census {
        let latest = watch::Sender::new(None);
        Census { latest, turn: Mutex::new(Turn::Idle(Instant::now())) }
    }

    /// Whether whoever asks is to take one, and whether one is being taken.
    fn begin(&self) -> (bool, bool) {
        let mut turn = self.turn.lock();
        match *turn {
            Turn::Running => (false, true),
            Turn::Idle(from) if Instant::now() < from => (false, false),
            Turn::Idle(_) => {
                *turn = Turn::Running;
                (true, true)
            }
        }
    }

    fn end(&self, began: Instant, text: Option<String>) {
        let took = began.elapsed();
        *self.turn.lock() = Turn::Idle(Instant::now() + YOUNG.max(took * PAUSE_TIMES));
        if let Some(text) = text {
            self.latest.send_replace(Some(Arc::new(Taken { text, at: began, took })));
        }
    }
}

/// The metrics of the last census, of a new one if it is old and does not take too long.
pub(crate) async fn text(edge: &EdgeState) -> String {
    let census = &edge.census;
    let mut latest = census.latest.subscribe();
    latest.mark_unchanged();
    let (begins, running) = census.begin();
    if begins {
        let edge = Arc::clone(edge);
        // Goes on when whoever asked is gone.
        tokio::spawn(async move {
            let (node, queues_max) = (edge.node.clone(), edge.limits.metrics_queues_max);
            let began = Instant::now();
            let text = edge.node.read(move || take(&node, queues_max)).await;
            if let Err(refusal) = &text {
                tracing::warn!(%refusal, "no census for metrics");
            }
            edge.census.end(began, text.ok());
        });
    }
    if running {
        // Too late, or never: the last will do.
        let _ = tokio::time::timeout(PATIENCE, latest.changed()).await;
    }
    let taken = latest.borrow().clone();
    let mut page = Page::default();
    let help = "How old the figures of queues, of streams and of the disk are";
    page.metric("stampede_census_age_seconds", Kind::Gauge, help);
    if let Some(taken) = &taken {
        page.sample(&[], taken.at.elapsed().as_secs_f64());
    }
    page.metric("stampede_census_seconds", Kind::Gauge, "What it took to gather them");
    if let Some(taken) = &taken {
        page.sample(&[], taken.took.as_secs_f64());
    }
    let help = "Receives that wait, and groups and partitions of fetches that wait";
    page.metric("stampede_waiters", Kind::Gauge, help).sample(&[], edge.node.waiting());
    taken.map_or(String::new(), |taken| taken.text.clone()) + &page.into_text()
}

/// Looks at everything. Blocks.
fn take(node: &node::Node, queues_max: usize) -> String {
    let mut page = Page::default();
    queues::write(&mut page, node, queues_max);
    streams::write(&mut page, node, queues_max);
    disk::write(&mut page, node);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_taken_at_a_time_and_the_longer_it_took_the_later_the_next() {
        let census = Census::new();
        assert_eq!(census.begin(), (true, true));
        assert_eq!(census.begin(), (false, true), "it is being taken");
        let began = Instant::now()
            .checked_sub(Duration::from_secs(60))
            .expect("the machine has been up for a minute");
        census.end(began, Some("seen".to_owned()));
        assert_eq!(census.begin(), (false, false), "there is a pause of nine minutes");
        let taken = census.latest.borrow().clone().expect("one was taken");
        assert!(taken.text == "seen" && taken.took >= Duration::from_secs(60));
    }

    #[test]
    fn one_that_fails_leaves_the_last() {
        let census = Census::new();
        for text in [Some("seen".to_owned()), None] {
            *census.turn.lock() = Turn::Running;
            census.end(Instant::now(), text);
        }
        assert_eq!(census.latest.borrow().clone().expect("the last stays").text, "seen");
    }
}
