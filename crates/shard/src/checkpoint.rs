//! Checkpoints: rows move from memory to the base, in the background, and the log is trimmed.
//!
//! ```text
//!   begin   active layer becomes frozen, at the applied index       (shard, microseconds)
//!   run     the base ingests the frozen layer and the index          (any thread, seconds)
//!   finish  the frozen layer is dropped, the log trimmed behind it   (shard, microseconds)
//! ```
//!
//! A crash before the base has switched over leaves the old base and the untrimmed log: the same
//! state. A crash after it leaves the new base and a log that is longer than needed: the same
//! state too.

use std::sync::Arc;

use kernel::{Base, BaseError, Index, Layer, Rows};

use crate::shard::Shard;

/// The slow part of a checkpoint, to be run anywhere but on the shard's thread.
#[derive(Clone)]
pub struct CheckpointJob {
    layer: Arc<Layer>,
    through: Index,
    base: Arc<dyn Base>,
}

impl CheckpointJob {
    /// Freezes rows as they are after the entry `through`.
    pub(crate) fn new(rows: &mut Rows, through: Index) -> CheckpointJob {
        CheckpointJob { layer: rows.freeze(), through, base: Arc::clone(rows.base()) }
    }

    /// Moves the frozen layer to the base. May be run again after [`BaseError::Full`].
    ///
    /// # Errors
    /// What the base says; see [`Base::ingest`].
    pub fn run(&self, pace: &dyn Fn()) -> Result<(), BaseError> {
        if self.through <= self.base.applied() {
            return Ok(());
        }
        self.base.ingest(&self.layer, self.through, pace)
    }

    /// Bytes to be moved, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.layer.bytes()
    }

    /// The last entry it contains.
    #[must_use]
    pub fn through(&self) -> Index {
        self.through
    }
}

impl<T> Shard<T> {
    /// Starts a checkpoint at the applied index. `None` when one is under way, or when nothing has
    /// been applied since the last.
    pub fn begin_checkpoint(&mut self) -> Option<CheckpointJob> {
        let mut rows = self.rows.write();
        if rows.is_freezing() || self.applied <= rows.checkpointed() {
            return None;
        }
        self.uncovered_bytes = 0;
        Some(CheckpointJob::new(&mut rows, self.applied))
    }

    /// Ends a checkpoint whose job has run without an error, and lets the log forget what the base
    /// now has. What is to be freed comes back, for another thread to free.
    ///
    /// # Errors
    /// [`journal::LogError`] when the log could not be trimmed; the checkpoint stands all the same.
    pub fn finish_checkpoint(
        &mut self,
        job: CheckpointJob,
    ) -> Result<Option<Arc<Layer>>, journal::LogError> {
        assert!(job.base.applied() >= job.through, "the base holds what it took");
        let layer = self.rows.write().thaw();
        self.log.trim(job.through.next())?;
        Ok(layer)
    }
}
