//! Rows: the ordered map that machines write to.
//!
//! ```text
//!   get / scan                 put / delete
//!       │                           │
//!       ▼                           ▼
//!   active layer   ── newest, changed by every apply
//!   frozen layer   ── being moved to the base by a checkpoint, unchanged
//!   base           ── durable, as of its applied index
//! ```
//!
//! A reader sees the newest layer that knows a key. What is written and deleted again within one
//! layer, and was new to begin with, leaves no trace ([`Rows::put_new`]).

mod merge;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::base::{Base, Row};
use crate::id::Index;
use merge::merge;

/// What a layer knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A value for a key that no layer below has ever held: deleting it leaves no tombstone.
    Fresh(Bytes),
    /// A value that may hide one below.
    Put(Bytes),
    /// Deleted; hides what is below.
    Gone,
}

impl Slot {
    /// The value, unless it is a deletion.
    #[must_use]
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Slot::Fresh(value) | Slot::Put(value) => Some(value),
            Slot::Gone => None,
        }
    }
}

/// A key in a layer. Most lie in the tree's own nodes: a walk down the tree then compares
/// neighbours in memory, where keys of their own would each be a cache miss.
type Key = SmallVec<[u8; KEY_INLINE_BYTES]>;

/// Machine, kind, tenant, a name of some twenty bytes and a number.
const KEY_INLINE_BYTES: usize = 40;

/// Changes since the layer below, in key order.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    rows: BTreeMap<Key, Slot>,
    /// Prefixes whose rows below this layer are all deleted. No element is a prefix of another.
    dropped: BTreeSet<Bytes>,
    bytes: usize,
}

/// What a row costs in memory besides a long key and its value: its place in a map node that is
/// two thirds full, and a reference count.
const ROW_OVERHEAD_BYTES: usize = 160;

fn row_bytes(key: &[u8], slot: &Slot) -> usize {
    let key_bytes = if key.len() > KEY_INLINE_BYTES { key.len() } else { 0 };
    key_bytes + slot.value().map_or(0, Bytes::len) + ROW_OVERHEAD_BYTES
}

impl Layer {
    /// Approximate memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changed keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the layer changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.dropped.is_empty()
    }

    /// The changed keys, ascending. A row here wins over [`Layer::dropped`].
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Slot)> {
        self.rows.iter().map(|(key, slot)| (key.as_slice(), slot))
    }

    /// Prefixes, ascending, below which the base must forget every row not in this layer.
    pub fn dropped(&self) -> impl Iterator<Item = &Bytes> {
        self.dropped.iter()
    }

    /// Frees it row by row, with a word after each.
    pub fn free(self, mut freed: impl FnMut()) {
        for row in self.rows {
            drop(row);
            freed();
        }
    }

    /// Whether this layer hides `key` of the layers below.
    fn drops(&self, key: &[u8]) -> bool {
        self.dropped_over(key).is_some()
    }

    /// The prefix by which this layer hides `key` of the layers below.
    fn dropped_over(&self, key: &[u8]) -> Option<&Bytes> {
        // The set is an antichain, so only the greatest element not after `key` can cover it.
        let upto = (Bound::Unbounded, Bound::Included(key));
        let last = if self.dropped.is_empty() {
            None
        } else {
            self.dropped.range::<[u8], _>(upto).next_back()
        };
        last.filter(|prefix| key.starts_with(prefix))
    }

    fn put_new(&mut self, key: &[u8], value: Bytes) {
        let slot = Slot::Fresh(value);
        self.bytes += row_bytes(key, &slot);
        if let Some(old) = self.rows.insert(Key::from_slice(key), slot) {
            self.bytes -= row_bytes(key, &old);
        }
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.change(key, |old| match old {
            // New to the layers below it stays, whatever its value.
            Some(Slot::Fresh(_)) => Some(Slot::Fresh(value)),
            Some(Slot::Put(_) | Slot::Gone) | None => Some(Slot::Put(value)),
        });
    }

    fn delete(&mut self, key: &[u8]) {
        self.change(key, |old| match old {
            Some(Slot::Fresh(_)) => None,
            Some(Slot::Put(_) | Slot::Gone) | None => Some(Slot::Gone),
        });
    }

    /// Puts what `make` makes of the slot in its place, in one walk of the tree.
    fn change(&mut self, key: &[u8], make: impl FnOnce(Option<&Slot>) -> Option<Slot>) {
        match self.rows.entry(Key::from_slice(key)) {
            Entry::Vacant(place) => {
                if let Some(slot) = make(None) {
                    self.bytes += row_bytes(key, &slot);
                    place.insert(slot);
                }
            }
            Entry::Occupied(mut place) => {
                self.bytes -= row_bytes(key, place.get());
                match make(Some(place.get())) {
                    Some(slot) => {
                        self.bytes += row_bytes(key, &slot);
                        place.insert(slot);
                    }
                    None => {
                        place.remove();
                    }
                }
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.rows.remove(key) {
            self.bytes -= row_bytes(key, &old);
        }
    }

    fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> LayerIter<'_> {
        if is_empty_range(from, to) {
            return Box::new(std::iter::empty());
        }
        let range = self.rows.range::<[u8], _>((from, to));
        if reverse { Box::new(range.rev()) } else { Box::new(range) }
    }
}

type LayerIter<'a> = Box<dyn Iterator<Item = (&'a Key, &'a Slot)> + 'a>;

/// `BTreeMap::range` panics on a start after its end; a scan of nothing is not an error.
fn is_empty_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b))
        | (Bound::Excluded(a), Bound::Included(b)) => a >= b,
        _ => false,
    }
}

/// The first key after all that start with `prefix`; `None` when there is no such key.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// Which rows to look at.
#[derive(Clone, Debug)]
pub struct Scan {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reverse: bool,
    limit: usize,
    bytes: usize,
}

impl Scan {
    /// All rows whose key starts with `prefix`, ascending.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Scan {
        Scan {
            from: Bound::Included(prefix.to_vec()),
            to: prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded),
            reverse: false,
            limit: usize::MAX,
            bytes: usize::MAX,
        }
    }

    /// All rows from one key up to, and without, another.
    #[must_use]
    pub fn between(from: &[u8], to: &[u8]) -> Scan {
        Scan {
            from: Bound::Included(from.to_vec()),
            to: Bound::Excluded(to.to_vec()),
            reverse: false,
            limit: usize::MAX,
            bytes: usize::MAX,
        }
    }

    /// Every row there is.
    #[must_use]
    pub fn all() -> Scan {
        Scan::prefix(&[])
    }

    /// Leaves out rows at or before `key`. Never widens the scan: a cursor from outside may say
    /// anything.
    #[must_use]
    pub fn after(mut self, key: &[u8]) -> Scan {
        let narrows = match &self.from {
            Bound::Included(from) | Bound::Excluded(from) => key >= from.as_slice(),
            Bound::Unbounded => true,
        };
        if narrows {
            self.from = Bound::Excluded(key.to_vec());
        }
        self
    }

    /// Leaves out rows at or after `key`. Never widens the scan.
    #[must_use]
    pub fn before(mut self, key: &[u8]) -> Scan {
        let narrows = match &self.to {
            Bound::Included(to) | Bound::Excluded(to) => key <= to.as_slice(),
            Bound::Unbounded => true,
        };
        if narrows {
            self.to = Bound::Excluded(key.to_vec());
        }
        self
    }

    /// From the last row to the first.
    #[must_use]
    pub fn reversed(mut self) -> Scan {
        self.reverse = true;
        self
    }

    /// At most so many rows.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Scan {
        self.limit = rows;
        self
    }

    /// No more rows once their values have so many bytes: the last may go beyond it, and if there is a
    /// row there is one.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Scan {
        self.bytes = bytes;
        self
    }

    /// Whether a bound may have kept others out of what it found.
    #[must_use]
    pub fn is_cut(&self, found: &[Row]) -> bool {
        let full = !found.is_empty() && value_bytes(found) >= self.bytes;
        found.len() >= self.limit || full
    }

    fn from(&self) -> Bound<&[u8]> {
        self.from.as_ref().map(Vec::as_slice)
    }

    fn to(&self) -> Bound<&[u8]> {
        self.to.as_ref().map(Vec::as_slice)
    }
}

/// Thrown, not returned, when the base cannot be read: apply is infallible, so a shard whose
/// rows cannot be read stops as a whole rather than apply half an entry. The shard's loop
/// catches it and reports the shard as stopped.
#[derive(Debug)]
pub struct RowsLost(pub crate::base::BaseError);

/// Reading, the same from inside the shard ([`Rows`]) and from outside ([`RowsReader`]).
pub trait ReadRows {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Option<Bytes>;

    /// The rows that `scan` asks for, in its order.
    fn scan(&self, scan: &Scan) -> Vec<Row>;
}

impl ReadRows for Rows {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        Rows::get(self, key)
    }

    fn scan(&self, scan: &Scan) -> Vec<Row> {
        Rows::scan(self, scan)
    }
}

impl ReadRows for RowsReader {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        RowsReader::get(self, key)
    }

    fn scan(&self, scan: &Scan) -> Vec<Row> {
        RowsReader::scan(self, scan)
    }
}

/// The ordered map of a shard. See the module's drawing.
pub struct Rows {
    active: Layer,
    frozen: Option<Arc<Layer>>,
    base: Arc<dyn Base>,
}

impl Rows {
    /// Rows as the base has them.
    #[must_use]
    pub fn new(base: Arc<dyn Base>) -> Rows {
        Rows { active: Layer::default(), frozen: None, base }
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        if let Some(known) = self.in_memory(key) {
            return known;
        }
        self.base.get(key).unwrap_or_else(|error| std::panic::panic_any(RowsLost(error)))
    }

    /// What the layers in memory know of `key`: its value, that it is deleted (`Some(None)`), or
    /// nothing, and the base must be asked.
    #[must_use]
    pub fn in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        for layer in [Some(&self.active), self.frozen.as_deref()].into_iter().flatten() {
            if let Some(slot) = layer.rows.get(key) {
                return Some(slot.value().cloned());
            }
            if layer.drops(key) {
                return Some(None);
            }
        }
        None
    }

    /// Writes a row.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        self.active.put(key.as_ref(), value.into());
    }

    /// Writes a row whose key was never used before, not even by a row deleted since.
    ///
    /// The promise lets a row that is written and deleted between two checkpoints cost nothing
    /// but the log. Keys made of an entry's index and ordinal keep it.
    pub fn put_new(&mut self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        let key = key.as_ref();
        debug_assert!(self.get(key).is_none(), "a key given to put_new is not new");
        self.active.put_new(key, value.into());
    }

    /// Deletes a row, if it is there.
    pub fn delete(&mut self, key: &[u8]) {
        self.active.delete(key);
    }

    /// Deletes every row whose key starts with `prefix`.
    ///
    /// Costs what the active layer holds under it; the base is cleaned by the checkpoint.
    pub fn delete_prefix(&mut self, prefix: &[u8]) {
        assert!(!prefix.is_empty(), "deleting everything is never meant");
        let doomed: Vec<Key> = self
            .active
            .range(
                Bound::Included(prefix),
                prefix_end(prefix).as_deref().map_or(Bound::Unbounded, Bound::Excluded),
                false,
            )
            .map(|(key, _)| key.clone())
            .collect();
        for key in doomed {
            self.active.remove(&key);
        }
        if self.active.drops(prefix) {
            return;
        }
        let nested: Vec<Bytes> = self
            .active
            .dropped
            .range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|inner| inner.starts_with(prefix))
            .cloned()
            .collect();
        for inner in nested {
            self.active.dropped.remove(&inner);
        }
        self.active.bytes += prefix.len() + ROW_OVERHEAD_BYTES;
        self.active.dropped.insert(Bytes::copy_from_slice(prefix));
    }

    /// The rows that `scan` asks for, in its order.
    #[must_use]
    pub fn scan(&self, scan: &Scan) -> Vec<Row> {
        merge(&self.active, self.frozen.as_deref(), &*self.base, scan)
    }

    /// Approximate memory of the active layer.
    #[must_use]
    pub fn active_bytes(&self) -> usize {
        self.active.bytes
    }

    /// Whether a checkpoint is under way.
    #[must_use]
    pub fn is_freezing(&self) -> bool {
        self.frozen.is_some()
    }

    /// Starts a checkpoint: what is active now becomes the frozen layer, to be ingested.
    ///
    /// # Panics
    /// If the last frozen layer has not been thawed.
    pub fn freeze(&mut self) -> Arc<Layer> {
        assert!(self.frozen.is_none(), "one checkpoint at a time");
        let layer = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(Arc::clone(&layer));
        layer
    }

    /// Ends a checkpoint whose layer the base now holds. The layer is returned so that the
    /// caller can free a gigabyte of it elsewhere.
    pub fn thaw(&mut self) -> Option<Arc<Layer>> {
        self.frozen.take()
    }

    /// The store beneath.
    #[must_use]
    pub fn base(&self) -> &Arc<dyn Base> {
        &self.base
    }

    /// The entry that the base stands at.
    #[must_use]
    pub fn checkpointed(&self) -> Index {
        self.base.applied()
    }
}

/// Bytes of what rows hold, without their keys.
#[must_use]
pub fn value_bytes(rows: &[Row]) -> usize {
    rows.iter().map(|(_, value)| value.len()).sum()
}

/// The rows of a shard as another thread reads them, without entering the shard.
///
/// The lock is held only while memory is looked at, never while the base is read.
#[derive(Clone)]
pub struct RowsReader(Arc<parking_lot::RwLock<Rows>>);

impl RowsReader {
    /// A reader of rows that the shard changes under the same lock, one whole entry at a time.
    #[must_use]
    pub fn new(rows: Arc<parking_lot::RwLock<Rows>>) -> RowsReader {
        RowsReader(rows)
    }

    /// The value of `key`, with every entry applied so far and none in half.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        let base = {
            let rows = self.0.read();
            if let Some(known) = rows.in_memory(key) {
                return known;
            }
            rows.base.snapshot()
        };
        base.get(key).unwrap_or_else(|error| std::panic::panic_any(RowsLost(error)))
    }

    /// The rows that `scan` asks for, with every entry applied so far and none in half.
    #[must_use]
    pub fn scan(&self, scan: &Scan) -> Vec<Row> {
        let (active, frozen, base) = {
            let rows = self.0.read();
            (rows.active.excerpt(scan), rows.frozen.clone(), rows.base.snapshot())
        };
        merge(&active, frozen.as_deref(), &*base, scan)
    }
}

impl Layer {
    /// The part of this layer that can show in `scan`: once it has as many live rows as the scan
    /// wants, rows further on cannot.
    fn excerpt(&self, scan: &Scan) -> Layer {
        let mut rows = BTreeMap::new();
        let mut live = 0;
        for (key, slot) in self.range(scan.from(), scan.to(), scan.reverse) {
            if live == scan.limit {
                break;
            }
            live += usize::from(slot.value().is_some());
            rows.insert(key.clone(), slot.clone());
        }
        // Dropped prefixes that can cover a key of the scan: those inside it, and the one that its
        // first key lies under.
        let from = match scan.from() {
            Bound::Included(from) | Bound::Excluded(from) => from,
            Bound::Unbounded => &[],
        };
        let upto = (Bound::Unbounded, Bound::Included(from));
        let over = self.dropped.range::<[u8], _>(upto).next_back();
        let mut dropped: BTreeSet<Bytes> = over.into_iter().cloned().collect();
        if !is_empty_range(Bound::Excluded(from), scan.to()) {
            let inside = self.dropped.range::<[u8], _>((Bound::Excluded(from), scan.to()));
            dropped.extend(inside.cloned());
        }
        Layer { rows, dropped, bytes: 0 }
    }
}
