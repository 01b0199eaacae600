//! Those who wait for something under a key: in line, first come first served.
//!
//! ```text
//!   join ──▶ waiting ──── call ────▶ called ── got something ──▶ gone
//!               ▲                      │
//!               └──── got nothing ─────┘   (to the very place it had)
//! ```
//!
//! Nobody polls: a shard that publishes says how much there is, and as many are called as can have
//! some of it. Who is called and goes away without having tried passes the call on.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use bytes::Bytes;
use foldhash::fast::RandomState;
use kernel::ShardId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Locks, so that lines do not hold each other up.
const SEGMENTS: usize = 64;

/// Under which those wait who wait for a key of a shard's: another shard may have the same.
pub(crate) fn line_key(shard: ShardId, key: &[u8]) -> Bytes {
    [&shard.0.to_be_bytes(), key].concat().into()
}

/// All lines of a node.
pub(crate) struct Waiters {
    segments: Vec<Mutex<HashMap<Bytes, Line, RandomState>>>,
    hasher: RandomState,
    /// Places in all lines: a shard that publishes looks no further when there are none.
    count: AtomicUsize,
}

#[derive(Default)]
struct Line {
    /// By the order of their coming.
    waiting: BTreeMap<u64, Arc<Notify>>,
    /// Called, and not yet back.
    called: u64,
    /// For how many there is something, as was last said.
    ready: u64,
    next: u64,
}

impl Line {
    fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.called == 0
    }

    /// Calls those who are first, as many as can have something.
    fn call_ready(&mut self) {
        while self.called < self.ready
            && let Some((_, first)) = self.waiting.pop_first()
        {
            self.called += 1;
            first.notify_one();
        }
    }
}

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters {
            segments: (0..SEGMENTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            count: AtomicUsize::new(0),
        }
    }

    fn segment(&self, key: &[u8]) -> &Mutex<HashMap<Bytes, Line, RandomState>> {
        let hash = self.hasher.hash_one(key);
        let number = usize::try_from(hash % SEGMENTS as u64).expect("less than 64");
        &self.segments[number]
    }

    /// Whether somebody came before.
    pub(crate) fn has_line(&self, key: &[u8]) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.segment(key).lock().contains_key(key)
    }

    /// In one line, those who were called and are not back included.
    pub(crate) fn count_of(&self, key: &[u8]) -> usize {
        let segment = self.segment(key).lock();
        let called = |line: &Line| usize::try_from(line.called).unwrap_or(usize::MAX);
        segment.get(key).map_or(0, |line| line.waiting.len() + called(line))
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether anybody waits. To be asked after publishing: whoever joins after the answer sees
    /// what was published.
    pub(crate) fn are_there(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::SeqCst) > 0
    }

    /// There is something for so many: those are called who are first in line, besides those who
    /// were called and are not back. When one is back and something is left, the next is called.
    pub(crate) fn call(&self, key: &[u8], ready: u64) {
        let mut segment = self.segment(key).lock();
        let Some(line) = segment.get_mut(key) else { return };
        line.ready = ready;
        line.call_ready();
    }

    /// There is something for everybody, however many take of it: all are called, once.
    pub(crate) fn call_all(&self, key: &[u8]) {
        let mut segment = self.segment(key).lock();
        let Some(line) = segment.get_mut(key) else { return };
        for waiting in std::mem::take(&mut line.waiting).into_values() {
            line.called += 1;
            waiting.notify_one();
        }
    }

    /// As [`Waiters::call`], by one who only looked: what they saw may be older than what the shard
    /// has said since, so it never makes it less. Too much is put right by whoever tries.
    pub(crate) fn call_at_least(&self, key: &[u8], ready: u64) {
        let mut segment = self.segment(key).lock();
        let Some(line) = segment.get_mut(key) else { return };
        line.ready = line.ready.max(ready);
        line.call_ready();
    }
}

/// Places of one who waits, counted until dropped.
struct Counted {
    waiters: Arc<Waiters>,
    places: usize,
}

impl Counted {
    /// Before joining a line: a shard that does not see it published before.
    fn new(waiters: &Arc<Waiters>, places: usize) -> Counted {
        waiters.count.fetch_add(places, Ordering::SeqCst);
        Counted { waiters: Arc::clone(waiters), places }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.waiters.count.fetch_sub(self.places, Ordering::SeqCst);
    }
}

/// A place in a line. Dropping it leaves the line.
pub struct WaitingPlace {
    waiters: Arc<Waiters>,
    /// Unless it is one of several of somebody's.
    _counted: Option<Counted>,
    key: Bytes,
    number: u64,
    notify: Arc<Notify>,
}

impl WaitingPlace {
    /// Whoever joins looks at what is published once more, and then waits.
    pub(crate) fn join(waiters: &Arc<Waiters>, key: Bytes) -> WaitingPlace {
        let counted = Some(Counted::new(waiters, 1));
        WaitingPlace::join_with(waiters, key, Arc::new(Notify::new()), counted)
    }

    fn join_with(
        waiters: &Arc<Waiters>,
        key: Bytes,
        notify: Arc<Notify>,
        counted: Option<Counted>,
    ) -> WaitingPlace {
        let mut segment = waiters.segment(&key).lock();
        let line = segment.entry(key.clone()).or_default();
        let number = line.next;
        line.next += 1;
        line.waiting.insert(number, Arc::clone(&notify));
        drop(segment);
        fence(Ordering::SeqCst);
        WaitingPlace { waiters: Arc::clone(waiters), _counted: counted, key, number, notify }
    }

    /// Waits to be called. Whoever is, tries at once and says how it went: by dropping the place,
    /// or with [`WaitingPlace::back_in_line`].
    pub async fn called(&self) {
        self.notify.notified().await;
    }

    /// Nothing was left: waits again, where it stood.
    pub fn back_in_line(&mut self) {
        let mut segment = self.waiters.segment(&self.key).lock();
        let line = segment.get_mut(&self.key).expect("it has one that was called");
        line.called -= 1;
        line.waiting.insert(self.number, Arc::clone(&self.notify));
        line.call_ready();
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut segment = self.waiters.segment(&self.key).lock();
        let line = segment.get_mut(&self.key).expect("a line lasts as long as its places");
        if line.waiting.remove(&self.number).is_none() {
            line.called -= 1;
            line.call_ready();
        }
        if line.is_over() {
            segment.remove(&self.key);
        }
    }
}

/// Places in several lines, for one who looks again when called in any of them. Dropping them leaves
/// the lines.
pub struct WaitingPlaces {
    _places: Vec<WaitingPlace>,
    _counted: Counted,
    notify: Arc<Notify>,
}

impl WaitingPlaces {
    /// Whoever joins looks at what is published once more, and then waits.
    pub(crate) fn join(waiters: &Arc<Waiters>, keys: Vec<Bytes>) -> WaitingPlaces {
        let notify = Arc::new(Notify::new());
        let counted = Counted::new(waiters, keys.len());
        let join = |key| WaitingPlace::join_with(waiters, key, Arc::clone(&notify), None);
        let places = keys.into_iter().map(join).collect();
        WaitingPlaces { _places: places, _counted: counted, notify }
    }

    /// Waits to be called in any of the lines. Whoever is, and finds nothing, joins anew before
    /// looking: a place is called once.
    pub async fn called(&self) {
        self.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(waiters: &Arc<Waiters>) -> WaitingPlace {
        WaitingPlace::join(waiters, Bytes::from_static(b"line"))
    }

    /// Whether a call has come, taking it.
    fn is_called(place: &mut WaitingPlace) -> bool {
        let mut called = std::pin::pin!(place.called());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        called.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn the_first_in_line_are_called_and_no_more_than_there_is() {
        let waiters = Arc::new(Waiters::new());
        let mut places: Vec<_> = (0..4).map(|_| join(&waiters)).collect();
        waiters.call(b"line", 2);
        let called: Vec<_> = places.iter_mut().map(is_called).collect();
        assert_eq!(called, [true, true, false, false]);
        assert_eq!((waiters.count_of(b"line"), waiters.count_of(b"another")), (4, 0));
        // The two are still trying: the same two messages are no reason to call others.
        waiters.call(b"line", 2);
        assert!(!is_called(&mut places[2]));
        waiters.call(b"line", 3);
        assert!(is_called(&mut places[2]));
    }

    #[test]
    fn who_got_nothing_keeps_the_place() {
        let waiters = Arc::new(Waiters::new());
        let (mut first, mut second) = (join(&waiters), join(&waiters));
        waiters.call(b"line", 1);
        assert!(is_called(&mut first));
        first.back_in_line();
        waiters.call(b"line", 1);
        assert!(is_called(&mut first) && !is_called(&mut second));
    }

    #[test]
    fn who_leaves_with_a_call_unheard_passes_it_on() {
        let waiters = Arc::new(Waiters::new());
        let (first, mut second) = (join(&waiters), join(&waiters));
        waiters.call(b"line", 1);
        drop(first);
        assert!(is_called(&mut second));
        drop(second);
        assert!(!waiters.has_line(b"line") && waiters.count() == 0);
    }

    #[test]
    fn who_took_the_last_of_it_does_not_call_the_next() {
        let waiters = Arc::new(Waiters::new());
        let (mut first, mut second) = (join(&waiters), join(&waiters));
        waiters.call(b"line", 1);
        assert!(is_called(&mut first));
        // The shard says what is left before it answers.
        waiters.call(b"line", 0);
        drop(first);
        assert!(!is_called(&mut second));
    }

    #[test]
    fn what_came_while_somebody_was_called_is_for_the_next() {
        let waiters = Arc::new(Waiters::new());
        let (mut first, mut second) = (join(&waiters), join(&waiters));
        waiters.call(b"line", 1);
        assert!(is_called(&mut first));
        // The first takes its message, and another comes, before the first hears of it.
        waiters.call(b"line", 0);
        waiters.call(b"line", 1);
        assert!(!is_called(&mut second), "the first may still take it");
        drop(first);
        assert!(is_called(&mut second));
    }

    #[test]
    fn an_old_look_does_not_undo_what_the_shard_has_said() {
        let waiters = Arc::new(Waiters::new());
        let (mut first, mut second) = (join(&waiters), join(&waiters));
        waiters.call(b"line", 1);
        assert!(is_called(&mut first));
        waiters.call(b"line", 0);
        waiters.call(b"line", 1);
        // Somebody who looked between the two comes to say so.
        waiters.call_at_least(b"line", 0);
        drop(first);
        assert!(is_called(&mut second));
    }

    #[test]
    fn what_is_for_everybody_calls_all_once_and_nobody_who_comes_later() {
        let waiters = Arc::new(Waiters::new());
        let (mut first, mut second) = (join(&waiters), join(&waiters));
        waiters.call_all(b"line");
        assert!(is_called(&mut first) && is_called(&mut second));
        let mut later = join(&waiters);
        drop((first, second));
        assert!(!is_called(&mut later), "nothing has come since");
    }

    #[test]
    fn who_waits_in_several_lines_is_called_in_any_of_them() {
        let waiters = Arc::new(Waiters::new());
        let keys = vec![Bytes::from_static(b"line"), Bytes::from_static(b"another")];
        for key in &keys {
            let places = WaitingPlaces::join(&waiters, keys.clone());
            assert_eq!(waiters.count(), 2, "each line takes memory");
            waiters.call_all(key);
            let mut called = std::pin::pin!(places.called());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(called.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(waiters.count(), 0);
    }

    #[test]
    fn lines_do_not_mix_and_leave_nothing_behind() {
        let waiters = Arc::new(Waiters::new());
        let mut place = join(&waiters);
        waiters.call(b"another", 5);
        assert!(!is_called(&mut place));
        drop(place);
        assert!(waiters.segments.iter().all(|segment| segment.lock().is_empty()));
    }
}
