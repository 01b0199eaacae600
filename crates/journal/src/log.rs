//! The contract of a log.
//!
//! # Index, epoch, barrier
//!
//! A log is a sequence of entries with consecutive indexes, from 1. Each entry carries the
//! *epoch* of the owner that wrote it. Opening a log takes a new epoch, greater than any in it,
//! and writes a *barrier*: an entry without a payload that says "from here on, this epoch".
//!
//! ```text
//!   index   1    2    3    4    5    6    7
//!   epoch   1    1    1    2    2    1    2
//!           B    x    x    B    x    ~    x
//!                               barrier ┘    └ index 6 is a stale owner's: it landed after the
//!                                              barrier of epoch 2, so every reader skips it
//! ```
//!
//! A reader skips an entry whose epoch is lower than that of a barrier before it. On a local disk
//! this cannot happen, because the folder is locked. On a replicated log it can: a stale owner's
//! pipelined append may be accepted because the number it expected happened to match. The stale
//! entry takes up an index, so indexes of the entries that count need not be consecutive *for a
//! reader*; they are always increasing.
//!
//! # What is acknowledged
//!
//! Only the contiguous prefix of an owner's appends counts. [`Event::Durable`] names the last
//! index of that prefix. The first failure among the appends in flight ends the ownership with
//! [`Event::Lost`]: nothing after the durable prefix is acknowledged by this owner, ever.
//!
//! # What is unknown
//!
//! After [`Event::Lost`], entries past the durable prefix may or may not be in the log. The
//! outcome is settled by opening the log again and reading it, never by guessing: what the next
//! owner reads is what happened.

use std::sync::Arc;

use bytes::Bytes;
use kernel::{Epoch, Index};

/// What an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first entry of an owner. Its payload is empty.
    Barrier,
    /// An entry of the owner's.
    Data,
}

/// An entry as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it stands.
    pub index: Index,
    /// Who wrote it.
    pub epoch: Epoch,
    /// What it is for.
    pub kind: Kind,
    /// What it carries; the log does not look inside.
    pub payload: Bytes,
}

/// What the log tells its owner, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every append up to and including this index is durable. Never goes back.
    Durable(Index),
    /// The ownership has ended. No event follows. Entries after the last [`Event::Durable`] may or
    /// may not be in the log; reopening tells.
    Lost(LostCause),
    /// After [`AppendError::NoRoom`]: appending is worth another try.
    Room,
}

/// Why an ownership ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostCause {
    /// Another owner has taken the log with a greater epoch.
    #[error("another owner has taken the log")]
    Fenced,
    /// A write or a sync failed. The log is poisoned: the kernel may have dropped the dirty pages,
    /// so a later sync that succeeds would prove nothing.
    #[error("the log is poisoned: {0}")]
    Poisoned(String),
}

/// Why an append was not taken. In each case it is certain that nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The ownership has ended.
    #[error("{0}")]
    Lost(LostCause),
    /// There is no room yet, but the log is making some; wait for [`Event::Room`].
    #[error("the next segment is not ready")]
    NoRoom,
    /// The disk is full. Appending again later tries for room again.
    #[error("the disk is full")]
    DiskFull,
    /// The payload is larger than an entry may be.
    #[error("an entry of {bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge {
        /// What was to be appended.
        bytes: usize,
        /// What is allowed.
        limit_bytes: usize,
    },
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the log open.
    #[error("{path} is in use by another process")]
    InUse {
        /// The folder.
        path: String,
    },
    /// The log is damaged in a place where entries were acknowledged.
    #[error("{file} is corrupt at offset {offset}: {what}")]
    Corrupt {
        /// The file with the damage.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The folder holds something that this version does not understand.
    #[error("{file} is not of this log: {what}")]
    Foreign {
        /// The file.
        file: String,
        /// How that shows.
        what: String,
    },
    /// The operating system said no.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried, as an infinitive with its object.
        doing: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// Why entries could not be read or trimmed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The entries before this index have been trimmed.
    #[error("entries before {first} have been trimmed")]
    Trimmed {
        /// The first index that is still there.
        first: Index,
    },
    /// The log is damaged.
    #[error("{file} is corrupt at offset {offset}: {what}")]
    Corrupt {
        /// The file with the damage.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// The operating system said no.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// Where events go. Called from inside the owner's calls or from threads of the log's own; must not
/// block, nor call the log.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// A log, opened by its owner. See the module for the terms.
///
/// Opening is the provider's own function, because each needs something else for it. It must
/// have written its barrier durably before it returns, and must pass every entry that counts
/// to a reader from then on.
pub trait Log: Send {
    /// This owner's epoch: greater than every other in the log when it was opened.
    fn epoch(&self) -> Epoch;

    /// The index that the next append will get.
    fn next_index(&self) -> Index;

    /// The first index that has not been trimmed away. Equal to `next_index` when the log holds
    /// nothing.
    fn first_index(&self) -> Index;

    /// Queues an entry, without waiting for the disk, and says which index it has.
    ///
    /// Many appends may be in flight. They become durable in order, at the latest after
    /// [`Log::commit`], and [`Event::Durable`] says how far.
    ///
    /// # Errors
    /// See [`AppendError`]: whenever one is returned, nothing was written, and the index is not
    /// used up.
    fn append(&mut self, payload: Bytes) -> Result<Index, AppendError>;

    /// Sees to it that what was appended becomes durable. The owner calls it when it has appended
    /// what there was to append; one sync covers all of it. A log may do the work in here, and tell
    /// its events before this returns.
    fn commit(&mut self);

    /// Passes every entry that counts, from index `from` on and up to the last one known durable,
    /// to `visit`, in order, barriers included, stale entries left out.
    ///
    /// Sees what a crash at this moment would leave and an owner after it would read, except that
    /// entries still in flight are not shown.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] when `from` lies before [`Log::first_index`]; [`LogError::Corrupt`] and
    /// [`LogError::Io`] when it cannot be read. An error of `visit` cannot be: it stops by
    /// returning `false`.
    fn replay(&self, from: Index, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError>;

    /// Allows the log to forget entries before `before`. It may keep them for longer.
    ///
    /// Trimming is not awaited: it may happen later, or, after a crash, not at all.
    ///
    /// # Errors
    /// [`LogError::Io`]; the log is then still whole, and the call may be made again.
    fn trim(&mut self, before: Index) -> Result<(), LogError>;

    /// Bytes that the log takes up on disk.
    fn disk_bytes(&self) -> u64;
}
