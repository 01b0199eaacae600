//! The file log without threads, on a simulated disk: nothing happens until it is told to.
//!
//! It is the same code as [`crate::file`], down to the bytes. A simulator that draws every
//! decision from a seed can so run it, crash it at any change of the disk, and run it again.

use std::path::Path;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use kernel::{Epoch, Index};

use crate::disk::SimDisk;
use crate::file::{Front, Options, Shared, open_front, run_upkeep};
use crate::log::{AppendError, EventSink, Log, LogError, OpenError, Record};

/// The file log on a simulated disk. Appends are queued; a [`SimHandle`] completes them.
pub struct SimLog {
    front: Front,
}

/// What commits and upkeep of the file log do, done on demand. Does nothing once the log is dropped.
#[derive(Clone)]
pub struct SimHandle {
    shared: Weak<Shared>,
}

impl SimLog {
    /// Opens the log in the folder `dir` of the disk. The handle does its work.
    ///
    /// # Errors
    /// As [`crate::FileLog::open`].
    pub fn open(
        disk: &SimDisk,
        dir: &Path,
        options: &Options,
        sink: EventSink,
    ) -> Result<(SimLog, SimHandle), OpenError> {
        let front = open_front(Arc::new(disk.clone()), dir, options, sink, false)?;
        let handle = SimHandle { shared: Arc::downgrade(&front.shared) };
        Ok((SimLog { front }, handle))
    }
}

impl SimHandle {
    /// Makes everything queued durable, in one batch, then does the upkeep.
    pub fn step(&self) {
        self.complete(usize::MAX);
        self.upkeep();
    }

    /// Makes the oldest `count` queued entries durable, in one batch.
    pub fn complete(&self, count: usize) {
        if let Some(shared) = self.shared.upgrade() {
            shared.commit(count);
        }
    }

    /// Makes the next segment if there is none, retires trimmed ones.
    pub fn upkeep(&self) {
        if let Some(shared) = self.shared.upgrade() {
            run_upkeep(&shared);
        }
    }

    /// Whether a step would do something.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let queued = !shared.queue.lock().runs.is_empty();
        let rooms = shared.rooms.lock();
        queued || !rooms.retiring.is_empty() || (rooms.spare.is_none() && rooms.spare_wanted)
    }
}

impl Log for SimLog {
    fn epoch(&self) -> Epoch {
        self.front.epoch
    }

    fn next_index(&self) -> Index {
        self.front.next
    }

    fn first_index(&self) -> Index {
        self.front.first_index()
    }

    fn append(&mut self, payload: Bytes) -> Result<Index, AppendError> {
        self.front.append(&payload)
    }

    /// Nothing: when it is durable is for the handle to say.
    fn commit(&mut self) {}

    fn replay(&self, from: Index, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError> {
        self.front.replay(from, visit)
    }

    fn trim(&mut self, before: Index) -> Result<(), LogError> {
        self.front.trim(before);
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.front.disk_bytes()
    }
}
