//! Opening a shard: the base, and the log replayed on top of it.

use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use journal::{Kind, Log, LogError};
use kernel::codec::Reader;
use kernel::machine::{Ground, Output, Place, kernel_key, pending_effects};
use kernel::rows::Scan;
use kernel::{Base, BaseError, Entry, Index, Rows, ShardId, Unreadable};
use parking_lot::RwLock;

use crate::apply::{Apply, clock_key, stamp_of};
use crate::checkpoint::CheckpointJob;
use crate::machines::Machines;
use crate::shard::Shard;

/// Why a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log starts after the point that the rows stand at: entries in between are lost.
    #[error("the rows stand at entry {applied}, but the log begins at {first}")]
    Gap {
        /// Where the rows stand.
        applied: Index,
        /// Where the log begins.
        first: Index,
    },
    /// The log ends before the point that the rows stand at: it is not the log of these rows.
    #[error("the rows stand at entry {applied}, but the log ends before {next}")]
    Behind {
        /// Where the rows stand.
        applied: Index,
        /// Where the log would go on.
        next: Index,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The rows cannot be read or written.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// An entry means nothing to this binary.
    #[error("entry {index}: {source}")]
    Entry {
        /// Which.
        index: Index,
        /// Why.
        source: Unreadable,
    },
}

/// How far replay has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The entry just applied.
    pub at: Index,
    /// The last entry there is.
    pub last: Index,
}

/// An opened shard, and what was left to do when it was last closed or killed.
pub struct Opened<T> {
    /// The shard, with everything applied that is in the log.
    pub shard: Shard<T>,
    /// One of the effects not done, a word for each shard with mail not collected, and usage: to be
    /// published as if just produced. Executors read the rest from rows.
    pub outputs: Vec<Output>,
    /// Commands applied by replay.
    pub replayed_commands: u64,
    /// A checkpoint that replay began and the disk had no room for: to be run again later.
    pub unfinished: Option<CheckpointJob>,
}

impl<T> Shard<T> {
    /// Opens a shard from its base and its log, which the caller has opened: its barrier is the
    /// last entry. Rows that replay leaves in memory are moved to the base whenever they come to
    /// `overlay_bytes`, on a thread that has ended when this returns.
    ///
    /// # Errors
    /// See [`OpenError`]. The log is as it was; the base may have come further.
    pub fn open(
        place: Place,
        mut log: Box<dyn Log>,
        base: Arc<dyn Base>,
        machines: Machines,
        overlay_bytes: usize,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Opened<T>, OpenError> {
        let applied = base.applied();
        if log.first_index() > applied.next() {
            return Err(OpenError::Gap { applied, first: log.first_index() });
        }
        if log.next_index() <= applied {
            return Err(OpenError::Behind { applied, next: log.next_index() });
        }
        let rows = Rows::new(base);
        let mut replay = Replay {
            ground: Ground::new(place, &rows),
            rows,
            machines,
            applied,
            commands: 0,
            overlay_bytes,
            uncovered_bytes: 0,
            moving: None,
            unfinished: None,
            failed: None,
        };
        let last = Index(log.next_index().0 - 1);
        let read = log.replay(applied.next(), &mut |record| {
            let applied = replay.record(record.index, record.kind, record.payload);
            progress(Progress { at: record.index, last });
            applied
        });
        let moved = replay.moved();
        replay.failed.take().map_or(moved, Err)?;
        read?;
        // What the base has needs no log: a crash may have come between the two, and replay itself
        // may have moved rows.
        log.trim(replay.rows.checkpointed().next())?;
        let Replay { rows, ground, machines, applied, commands, uncovered_bytes, .. } = replay;
        let outputs = left_to_do(&rows, &ground, place);
        let at_ms = rows
            .get(&clock_key())
            .map_or(0, |value| Reader::new(value).u64().expect("the clock is eight bytes"));
        let rows = Arc::new(RwLock::new(rows));
        let shard = Shard::new(place, log, rows, machines, ground);
        let shard = shard.at(applied, uncovered_bytes, at_ms);
        let unfinished = replay.unfinished;
        Ok(Opened { shard, outputs, replayed_commands: commands, unfinished })
    }
}

/// Rows on their way to the base, on another thread.
struct Moving {
    job: CheckpointJob,
    thread: Option<JoinHandle<Result<(), BaseError>>>,
}

impl Moving {
    fn start(job: CheckpointJob) -> Moving {
        let run = job.clone();
        Moving { job, thread: Some(std::thread::spawn(move || run.run(&|| {}))) }
    }

    /// Waits for its end.
    fn end(mut self) -> (CheckpointJob, Result<(), BaseError>) {
        let thread = self.thread.take().expect("it is taken once");
        let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (self.job.clone(), result)
    }
}

/// Whatever ends a replay, a panic included, nobody writes to the base any more afterwards.
impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _second_to_what_brought_us_here = thread.join();
        }
    }
}

struct Replay {
    rows: Rows,
    ground: Ground,
    machines: Machines,
    applied: Index,
    commands: u64,
    overlay_bytes: usize,
    /// See [`Shard::uncovered_bytes`].
    uncovered_bytes: u64,
    moving: Option<Moving>,
    /// Rows that found the disk full.
    unfinished: Option<CheckpointJob>,
    failed: Option<OpenError>,
}

impl Replay {
    /// Applies one record. False when replay must stop.
    fn record(&mut self, index: Index, kind: Kind, payload: Bytes) -> bool {
        let result = match kind {
            Kind::Barrier => Ok(()),
            Kind::Data => self.entry(index, payload),
        };
        self.applied = index;
        if let Err(error) = result {
            self.failed = Some(error);
            return false;
        }
        true
    }

    fn entry(&mut self, index: Index, payload: Bytes) -> Result<(), OpenError> {
        let unreadable = |source| OpenError::Entry { index, source };
        self.uncovered_bytes += payload.len() as u64;
        let entry = Entry::decode(payload).map_err(unreadable)?;
        self.commands += entry.commands.len() as u64;
        Apply {
            rows: &mut self.rows,
            ground: &mut self.ground,
            machines: &mut self.machines,
            stamp: stamp_of(&entry, index),
        }
        .entry(&entry, |_, _| {})
        .map_err(unreadable)?;
        // Nobody is listening yet, and what is left to do is read from rows at the end.
        self.ground.outputs.clear();
        self.bound_memory(index)
    }

    /// Rows of a long log are moved to the base on the way, while replay goes on. As much at a time
    /// as memory allows: the more, the fewer times a row that changes often is written and merged.
    ///
    /// On a full disk they stay in memory after all: the log is bounded, and a shard that opens can
    /// be read, and written to once there is room.
    fn bound_memory(&mut self, index: Index) -> Result<(), OpenError> {
        if self.rows.active_bytes() <= self.overlay_bytes || self.unfinished.is_some() {
            return Ok(());
        }
        self.moved()?;
        if self.unfinished.is_some() {
            return Ok(());
        }
        self.uncovered_bytes = 0;
        self.moving = Some(Moving::start(CheckpointJob::new(&mut self.rows, index)));
        Ok(())
    }

    /// Waits for the rows on their way to the base, if there are any.
    fn moved(&mut self) -> Result<(), OpenError> {
        let Some(moving) = self.moving.take() else { return Ok(()) };
        match moving.end() {
            (_, Ok(())) => drop(self.rows.thaw()),
            (job, Err(BaseError::Full { .. })) => self.unfinished = Some(job),
            (_, Err(error)) => return Err(error.into()),
        }
        Ok(())
    }
}

/// What was asked of the world outside and is not done, as outputs.
fn left_to_do(rows: &Rows, ground: &Ground, place: Place) -> Vec<Output> {
    let mut outputs: Vec<Output> =
        pending_effects(rows, 0, 1).into_iter().map(Output::Effect).collect();
    for shard in (0..place.shard_count).map(ShardId) {
        let mut prefix = kernel_key(b'o');
        prefix.extend_from_slice(&shard.0.to_be_bytes());
        if !rows.scan(&Scan::prefix(&prefix).limit(1)).is_empty() {
            outputs.push(Output::Mail(shard));
        }
    }
    for (tenant, usage) in ground.usage() {
        outputs.push(Output::Usage { tenant: *tenant, usage: *usage });
    }
    outputs
}
