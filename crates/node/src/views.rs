//! Read views: what shards publish, served without entering them.
//!
//! Bounded by bytes: what has not been read lately leaves first, and is read from rows again when
//! asked for. Only the shard publishes. A reader that has fetched a row may *fill* a gap with it,
//! but only if nothing was published or dropped there since it began to look: otherwise a slow
//! reader could put an old value back after a new one had come and gone.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

/// What readers see of a key.
#[derive(Debug)]
pub struct View {
    /// As the machine encoded it.
    pub value: Bytes,
    /// Another number for each value published: equal tags, equal values.
    pub etag: u64,
    rendered: OnceLock<Bytes>,
    tag: OnceLock<Bytes>,
    /// Read since the last time around; kept for another round.
    touched: AtomicBool,
}

impl View {
    /// Ready to send: made by `render` the first time, and kept.
    pub fn rendered(&self, render: impl FnOnce(&Bytes) -> Bytes) -> Bytes {
        self.rendered.get_or_init(|| render(&self.value)).clone()
    }

    /// The tag as an HTTP header has it, quotes included; made the first time, and kept.
    pub fn quoted_etag(&self) -> Bytes {
        self.tag.get_or_init(|| format!("\"{:x}\"", self.etag).into()).clone()
    }
}

/// Locks, so that readers of different keys do not meet.
const SEGMENTS: usize = 64;
/// Map entry, queue entry, two reference counts.
const VIEW_OVERHEAD_BYTES: usize = 200;

#[derive(Default)]
struct Segment {
    views: HashMap<Bytes, Arc<View>, RandomState>,
    /// Keys in the order in which they are looked at for eviction.
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// Grows whenever a view is dropped, or would be if there were one.
    dropped: u64,
}

/// A gap seen by a reader, to be filled if nothing has happened to it meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    dropped: u64,
}

/// All views of a shard.
pub(crate) struct Views {
    segments: Vec<RwLock<Segment>>,
    hasher: RandomState,
    segment_bytes_max: usize,
    next_etag: AtomicU64,
}

fn cost(key: &Bytes, value: &Bytes) -> usize {
    key.len() + value.len() + VIEW_OVERHEAD_BYTES
}

impl Views {
    pub(crate) fn new(bytes_max: usize, first_etag: u64) -> Views {
        let segments = (0..SEGMENTS).map(|_| RwLock::default()).collect();
        Views {
            segments,
            hasher: RandomState::default(),
            segment_bytes_max: bytes_max / SEGMENTS,
            next_etag: AtomicU64::new(first_etag),
        }
    }

    fn segment(&self, key: &[u8]) -> &RwLock<Segment> {
        let hash = self.hasher.hash_one(key);
        let number = usize::try_from(hash % SEGMENTS as u64).expect("less than 64");
        &self.segments[number]
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<View>> {
        let segment = self.segment(key).read();
        let view = segment.views.get(key)?;
        // A plain load first: a store by every reader would bounce the cache line.
        if !view.touched.load(Ordering::Relaxed) {
            view.touched.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(view))
    }

    /// To be asked for before reading the rows.
    pub(crate) fn gap(&self, key: &[u8]) -> Gap {
        Gap { dropped: self.segment(key).read().dropped }
    }

    /// The shard has a new value, or drops one.
    pub(crate) fn publish(&self, key: Bytes, value: Option<Bytes>) {
        let mut segment = self.segment(&key).write();
        match value {
            Some(value) => {
                self.insert(&mut segment, key, value);
            }
            // Also where there is none: who is reading its row now has an old one.
            None => {
                segment.dropped += 1;
                segment.remove(&key);
            }
        }
    }

    /// A reader has read a row where there was a gap.
    pub(crate) fn fill(&self, key: Bytes, value: Bytes, gap: Gap) -> Arc<View> {
        let mut segment = self.segment(&key).write();
        if let Some(view) = segment.views.get(&key) {
            return Arc::clone(view);
        }
        if segment.dropped != gap.dropped {
            return Arc::new(self.view(value));
        }
        self.insert(&mut segment, key, value)
    }

    fn view(&self, value: Bytes) -> View {
        let etag = self.next_etag.fetch_add(1, Ordering::Relaxed);
        let (rendered, tag) = (OnceLock::new(), OnceLock::new());
        View { value, etag, rendered, tag, touched: AtomicBool::new(false) }
    }

    fn insert(&self, segment: &mut Segment, key: Bytes, value: Bytes) -> Arc<View> {
        segment.bytes += cost(&key, &value);
        let view = Arc::new(self.view(value));
        match segment.views.insert(key.clone(), Arc::clone(&view)) {
            Some(old) => segment.bytes -= cost(&key, &old.value),
            None => segment.queue.push_back(key),
        }
        segment.shrink_to(self.segment_bytes_max);
        view
    }

    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.read().bytes).sum()
    }
}

impl Segment {
    /// The key stays in the queue until its turn comes: finding it there would be a search.
    fn remove(&mut self, key: &Bytes) {
        if let Some(old) = self.views.remove(key) {
            self.bytes -= cost(key, &old.value);
            self.dropped += 1;
        }
        // Keys of removed views must not pile up in the queue where nothing presses on it.
        if self.queue.len() > 64 + 2 * self.views.len() {
            let views = &self.views;
            let mut seen = std::collections::HashSet::new();
            self.queue.retain(|key| views.contains_key(key) && seen.insert(key.clone()));
        }
    }

    fn shrink_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some(key) = self.queue.pop_front() else { break };
            match self.views.get(&key) {
                Some(view) if view.touched.swap(false, Ordering::Relaxed) => {
                    self.queue.push_back(key);
                }
                Some(_) => self.remove(&key),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Bytes {
        Bytes::from(format!("key {n}"))
    }

    fn value(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn shown(views: &Views, key: &Bytes) -> Option<Bytes> {
        views.get(key).map(|view| view.value.clone())
    }

    #[test]
    fn slow_reader_does_not_put_an_old_value_over_a_new_one() {
        let views = Views::new(1 << 20, 0);
        let gap = views.gap(&key(1));
        views.publish(key(1), Some(value("new")));
        assert_eq!(views.fill(key(1), value("old"), gap).value, "new");
        assert_eq!(shown(&views, &key(1)), Some(value("new")));
    }

    #[test]
    fn slow_reader_does_not_put_an_old_value_where_a_new_one_came_and_went() {
        let views = Views::new(1 << 20, 0);
        let gap = views.gap(&key(1));
        views.publish(key(1), Some(value("new")));
        views.publish(key(1), None);
        views.fill(key(1), value("old"), gap);
        assert_eq!(shown(&views, &key(1)), None, "the next reader reads the row again");
    }

    #[test]
    fn slow_reader_does_not_put_a_value_back_that_was_deleted_while_nobody_had_it() {
        let views = Views::new(1 << 20, 0);
        let gap = views.gap(&key(1));
        views.publish(key(1), None);
        views.fill(key(1), value("deleted"), gap);
        assert_eq!(shown(&views, &key(1)), None);
    }

    #[test]
    fn reader_fills_a_gap_and_the_next_finds_it() {
        let views = Views::new(1 << 20, 0);
        let gap = views.gap(&key(1));
        views.fill(key(1), value("row"), gap);
        assert_eq!(shown(&views, &key(1)), Some(value("row")));
    }

    #[test]
    fn memory_stays_within_its_bound_and_what_is_read_stays_longest() {
        let bytes_max = 64 * 4096;
        let views = Views::new(bytes_max, 0);
        views.publish(key(0), Some(value("read all the time")));
        for n in 1..5000 {
            views.publish(key(n), Some(value("written once")));
            assert!(views.get(&key(0)).is_some(), "lost at {n}");
        }
        assert!(views.bytes() <= bytes_max, "{}", views.bytes());
    }

    #[test]
    fn each_value_has_its_own_tag_and_is_rendered_once() {
        let views = Views::new(1 << 20, 0);
        views.publish(key(1), Some(value("a")));
        let first = views.get(&key(1)).expect("published");
        views.publish(key(1), Some(value("b")));
        let second = views.get(&key(1)).expect("published");
        assert_ne!(first.etag, second.etag);
        assert_eq!(second.rendered(|_| value("once")), "once");
        assert_eq!(second.rendered(|_| value("twice")), "once");
    }

    #[test]
    fn keys_that_come_and_go_do_not_pile_up() {
        let views = Views::new(1 << 20, 0);
        for _ in 0..10_000 {
            views.publish(key(1), Some(value("a")));
            views.publish(key(1), None);
        }
        let queued: usize = views.segments.iter().map(|s| s.read().queue.len()).sum();
        assert!(queued <= 128, "{queued}");
        assert_eq!(views.bytes(), 0);
    }
}
