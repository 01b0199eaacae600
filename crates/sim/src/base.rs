//! The simulated store beneath rows: what it has taken survives every crash, what it was taking
//! is there as a whole or not at all.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use kernel::base::{BaseIter, MemoryBase};
use kernel::{Base, BaseError, Index, Layer};
use parking_lot::Mutex;

/// How the next checkpoint ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ingest {
    /// Well.
    #[default]
    Done,
    /// There is no room; nothing is taken.
    Full,
    /// The store fails before it has switched over.
    FailedBefore,
    /// The store fails after it has switched over.
    FailedAfter,
}

impl Ingest {
    /// Whether the store must be opened anew.
    #[must_use]
    pub fn fails(self) -> bool {
        matches!(self, Ingest::FailedBefore | Ingest::FailedAfter)
    }
}

/// A base in memory that fails on demand. Clones are the same base.
#[derive(Clone, Default)]
pub struct SimBase {
    held: MemoryBase,
    next: Arc<Mutex<Ingest>>,
}

impl SimBase {
    /// Decides how the next checkpoint ends.
    pub fn set_next(&self, next: Ingest) {
        *self.next.lock() = next;
    }

    /// Whether what was decided has come to pass.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        *self.next.lock() == Ingest::Done
    }
}

impl Base for SimBase {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        self.held.get(key)
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        self.held.range(from, to, reverse)
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        self.held.snapshot()
    }

    fn applied(&self) -> Index {
        self.held.applied()
    }

    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        let failed = || BaseError::Failed {
            doing: "taking a checkpoint",
            source: "the simulator said so".into(),
        };
        match std::mem::take(&mut *self.next.lock()) {
            Ingest::Done => self.held.ingest(layer, through, pace),
            Ingest::Full => Err(BaseError::Full { wanted_bytes: 2, free_bytes: 1 }),
            Ingest::FailedBefore => Err(failed()),
            Ingest::FailedAfter => {
                self.held.ingest(layer, through, pace)?;
                Err(failed())
            }
        }
    }

    fn disk_bytes(&self) -> u64 {
        self.held.disk_bytes()
    }
}
