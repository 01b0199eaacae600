//! What [`Rows`](crate::Rows) need from the store beneath them.
//!
//! A base is an ordered map that changes only by whole checkpoints: a sorted [`Layer`] and the
//! log index it stands for arrive together or not at all.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::id::Index;
use crate::rows::Layer;

/// A row as it lies in the base.
pub type Row = (Bytes, Bytes);

/// Rows in key order, ascending or descending.
pub type BaseIter<'a> = Box<dyn Iterator<Item = Result<Row, BaseError>> + 'a>;

/// Why the base could not answer.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The disk has no room for the checkpoint. Nothing of it was taken; trying again can help.
    #[error("no room for a checkpoint of {wanted_bytes} bytes: {free_bytes} are free")]
    Full {
        /// What the checkpoint needs, generously.
        wanted_bytes: u64,
        /// What the file system has.
        free_bytes: u64,
    },
    /// The store failed. Only reopening it can help.
    #[error("the row store failed while {doing}: {source}")]
    Failed {
        /// What it was doing, as a participle.
        doing: &'static str,
        /// What the store said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The durable map beneath the overlay.
pub trait Base: Send + Sync {
    /// The value of `key` as of the last finished checkpoint.
    ///
    /// # Errors
    /// [`BaseError::Failed`] when the store cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError>;

    /// The rows between two keys, in ascending order, or descending when `reverse`.
    ///
    /// Lazy: rows that the caller does not take are not read.
    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a>;

    /// This base as it is now, unmoved by later checkpoints. Cheap.
    fn snapshot(&self) -> Arc<dyn Base>;

    /// The index of the last log entry that is contained. 0 for an empty base.
    fn applied(&self) -> Index;

    /// Takes a layer and the index it stands for: all of it, durably, or nothing.
    ///
    /// Runs on a background thread and may be slow. `pace` is called every few rows, and may
    /// block, so that a checkpoint can be slowed down when it would disturb the shard.
    ///
    /// # Errors
    /// [`BaseError::Full`] when nothing was taken and a later try may succeed;
    /// [`BaseError::Failed`] when the outcome is unknown until the store is opened anew.
    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError>;

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;
}

/// A base in memory, for tests and the simulator. Clones share their rows.
#[derive(Clone, Debug, Default)]
pub struct MemoryBase(Arc<RwLock<Arc<Held>>>);

/// What a [`MemoryBase`] holds after some checkpoint.
#[derive(Clone, Debug, Default)]
struct Held {
    rows: BTreeMap<Bytes, Bytes>,
    applied: Index,
}

impl MemoryBase {
    /// A base without rows.
    #[must_use]
    pub fn new() -> MemoryBase {
        MemoryBase::default()
    }

    fn held(&self) -> Arc<Held> {
        Arc::clone(&self.0.read())
    }
}

impl Base for MemoryBase {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        Ok(self.held().rows.get(key).cloned())
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        let from = from.map(Bytes::copy_from_slice);
        let to = to.map(Bytes::copy_from_slice);
        Box::new(HeldRange { held: self.held(), from, to, reverse }.map(Ok))
    }

    /// A copy that shares nothing with this base from now on.
    fn snapshot(&self) -> Arc<dyn Base> {
        Arc::new(MemoryBase(Arc::new(RwLock::new(self.held()))))
    }

    fn applied(&self) -> Index {
        self.0.read().applied
    }

    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        let mut held = Held::clone(&self.held());
        for prefix in layer.dropped() {
            held.rows.retain(|key, _| !key.starts_with(prefix));
        }
        for (number, (key, slot)) in layer.iter().enumerate() {
            match slot.value() {
                Some(value) => held.rows.insert(Bytes::copy_from_slice(key), value.clone()),
                None => held.rows.remove(key),
            };
            if number % 4096 == 4095 {
                pace();
            }
        }
        assert!(through >= held.applied, "a checkpoint never goes back");
        held.applied = through;
        *self.0.write() = Arc::new(held);
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        let held = self.held();
        held.rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

/// A range that owns its rows: each step finds the next key anew.
struct HeldRange {
    held: Arc<Held>,
    from: Bound<Bytes>,
    to: Bound<Bytes>,
    reverse: bool,
}

impl Iterator for HeldRange {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        // `BTreeMap::range` panics on a start after its end.
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to)) =
            (&self.from, &self.to)
            && from > to
        {
            return None;
        }
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) =
            (&self.from, &self.to)
            && from >= to
        {
            return None;
        }
        let mut range = self.held.rows.range::<Bytes, _>((self.from.as_ref(), self.to.as_ref()));
        let row = if self.reverse { range.next_back() } else { range.next() };
        let (key, value) = row.map(|(key, value)| (key.clone(), value.clone()))?;
        let done = Bound::Excluded(key.clone());
        if self.reverse {
            self.to = done
        } else {
            self.from = done
        }
        Some((key, value))
    }
}
