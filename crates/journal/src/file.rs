//! The log in a folder of a local disk.
//!
//! ```text
//!   owner's thread                                         upkeep, when needed
//!   append ── bytes ──▶ queue                              make the next segment
//!   commit ── take all ─ write ─ sync ─ tell               retire trimmed ones
//! ```
//!
//! Group commit without a linger: while the owner syncs one batch, whoever asks it for more fills
//! the next one. A thread of the log's own would let the owner do something else meanwhile, and
//! costs two wakes for every sync: `docs/decisions/010-waking-less.md` has the figures.
//!
//! # Invariants
//!
//! - An append never waits for the disk, a commit does.
//! - Entries are written in order. A segment is synced before the next one is written to.
//! - The identity of a segment is durable before the file has its name, the name is durable before
//!   an entry in it is acknowledged, and neither is ever written again in this use of the file.
//! - After the first failed write or sync nothing is written: only opening again helps.
//!
//! What opening makes of a folder is the table in `recovery.rs`, and with the byte format in
//! `docs/journal-format.md`.

pub(crate) mod format;
mod front;
mod open;
mod reader;
pub(crate) mod recovery;
pub(crate) mod segment;
mod shared;
mod upkeep;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kernel::{Epoch, Index};

use crate::disk::Disk;
use crate::log::{AppendError, EventSink, Log, LogError, OpenError, Record};
pub(crate) use front::Front;
pub(crate) use open::open as open_front;
pub(crate) use shared::Shared;
pub(crate) use upkeep::run as run_upkeep;

/// How large things are.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a segment; a multiple of 4096, from 8192 on.
    pub segment_bytes: u64,
    /// Largest payload of an entry. A segment's size is also a limit.
    pub entry_bytes_max: usize,
    /// Appends are refused with `NoRoom` while this much waits to be written.
    pub queued_bytes_max: usize,
    /// Left free on the disk: a segment is made only if this much remains after it.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            entry_bytes_max: 16 << 20,
            queued_bytes_max: 32 << 20,
            reserve_bytes: 64 << 20,
        }
    }
}

impl Options {
    /// # Panics
    /// If the size of a segment is none.
    fn segment_bytes_checked(&self) -> u64 {
        let bytes = self.segment_bytes;
        assert!(bytes >= 8192 && bytes.is_multiple_of(4096), "{bytes} is no size for a segment");
        bytes
    }
}

/// The log in a folder of a local disk.
pub struct FileLog {
    front: Front,
}

impl FileLog {
    /// Opens the log in the folder `dir`, or makes a new one there. Every entry in it has been
    /// read and checked, and the barrier of the new epoch is durable, when this returns.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when somebody has it open, [`OpenError::Corrupt`] and
    /// [`OpenError::Foreign`] when what is there must not be written to.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: &Options,
        sink: EventSink,
    ) -> Result<FileLog, OpenError> {
        let front = open::open(disk, dir, options, sink, true)?;
        upkeep::kick(&front.shared);
        Ok(FileLog { front })
    }
}

impl Log for FileLog {
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

    fn commit(&mut self) {
        self.front.shared.commit(usize::MAX);
    }

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

/// Writes what is queued, then lets go of the folder.
impl Drop for FileLog {
    fn drop(&mut self) {
        self.commit();
        let shared = &self.front.shared;
        shared.closing.store(true, Ordering::Release);
        let upkeep = shared.rooms.lock().upkeep.take();
        if let Some(thread) = upkeep {
            // A panic there has been reported there.
            let _ = thread.join();
        }
    }
}
