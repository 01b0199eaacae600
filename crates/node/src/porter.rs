//! The porter stands between the crowd and the shards' threads: it rings for those who ask, and
//! carries the answers back.
//!
//! Waking another thread costs microseconds, and on a busy machine the woken thread takes the
//! processor from the one that woke it. A shard that wakes somebody for every answer, and is woken
//! for every request, is interrupted twice a request. So a porter, who is tasks among those who
//! ask, rings once for all that are about to ask, and is handed all answers of an entry at once.
//!
//! Without a porter on duty everybody is woken at once: nothing depends on there being one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use shard::Answer;
use tokio::sync::Notify;

use crate::runner::{NodeInbox, Ticket};

/// So many requests are rung for at once, whoever else may be about to ask.
const RING_AT: usize = 16;

/// See the module.
pub(crate) struct Porter {
    answers: Mutex<Answers>,
    handed_over: Notify,
    bells: Vec<Bell>,
}

#[derive(Default)]
struct Answers {
    /// Somebody carries them.
    carried: bool,
    waiting: Vec<(Ticket, Answer)>,
}

/// Of one shard.
#[derive(Default)]
struct Bell {
    /// Somebody rings it.
    rung: AtomicBool,
    /// Requests that it has not been rung for.
    wanted_by: AtomicUsize,
    wanted: Notify,
}

impl Porter {
    pub(crate) fn new(shard_count: u16) -> Porter {
        Porter {
            answers: Mutex::default(),
            handed_over: Notify::new(),
            bells: (0..shard_count).map(|_| Bell::default()).collect(),
        }
    }

    /// A request was put into this inbox, which is that of the shard with this number.
    pub(crate) fn ring(&self, shard: usize, inbox: &NodeInbox) {
        let bell = &self.bells[shard];
        if !bell.rung.load(Ordering::Acquire) {
            inbox.wake_for_requests();
            return;
        }
        // Each who finds it at nought has it rung, so that none is passed over.
        match bell.wanted_by.fetch_add(1, Ordering::AcqRel) {
            0 => bell.wanted.notify_one(),
            waiting if waiting + 1 >= RING_AT => bell.ring(inbox),
            _ => {}
        }
    }

    /// Tells whoever waits for these.
    pub(crate) fn hand_over(&self, mut answers: Vec<(Ticket, Answer)>) {
        if answers.is_empty() {
            return;
        }
        let mut waiting = self.answers.lock();
        if waiting.carried {
            waiting.waiting.append(&mut answers);
            drop(waiting);
            self.handed_over.notify_one();
        } else {
            drop(waiting);
            give(answers);
        }
    }

    /// Rings the bell of a shard for as long as this is polled.
    pub(crate) async fn ring_bell(self: Arc<Porter>, shard: usize, inbox: Arc<NodeInbox>) {
        let bell = &self.bells[shard];
        // Whoever rang it before may have left in the middle.
        bell.wanted_by.store(0, Ordering::Release);
        bell.rung.store(true, Ordering::Release);
        let _until = Finally(|| {
            bell.rung.store(false, Ordering::Release);
            inbox.wake_for_requests();
        });
        loop {
            bell.wanted.notified().await;
            // Not a linger: those who are ready to ask do so first, and then it is rung.
            tokio::task::yield_now().await;
            bell.ring(&inbox);
        }
    }

    /// Carries answers for as long as this is polled.
    pub(crate) async fn carry(self: Arc<Porter>) {
        self.answers.lock().carried = true;
        let _until = Finally(|| {
            let mut answers = self.answers.lock();
            answers.carried = false;
            give(std::mem::take(&mut answers.waiting));
        });
        loop {
            self.handed_over.notified().await;
            let waiting = std::mem::take(&mut self.answers.lock().waiting);
            give(waiting);
        }
    }
}

impl Bell {
    fn ring(&self, inbox: &NodeInbox) {
        // Before the inbox is looked into: who comes after this has it rung again.
        self.wanted_by.swap(0, Ordering::AcqRel);
        inbox.wake_for_requests();
    }
}

fn give(answers: Vec<(Ticket, Answer)>) {
    for (ticket, answer) in answers {
        // The client may have gone away; its command stands all the same.
        let _gone = ticket.send(answer);
    }
}

/// Does something when it is dropped, as tasks are at the end of their runtime.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
