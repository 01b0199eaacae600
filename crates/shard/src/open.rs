//! Opening a shard: the base, and the log replayed on top of it.

use std::sync::Arc;

use bytes::Bytes;
use journal::{Kind, Log, LogError};
use kernel::codec::Reader;
use kernel::limits::OVERLAY_BYTES_MAX;
use kernel::machine::{Ground, Output, Place, kernel_key, pending_effects};
use kernel::rows::Scan;
use kernel::{Base, BaseError, Entry, Index, Rows, ShardId, Unreadable};
use parking_lot::RwLock;

use crate::apply::{Apply, clock_key, stamp_of};
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
}

impl<T> Shard<T> {
    /// Opens a shard from its base and its log, which the caller has opened: its barrier is the
    /// last entry.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing was changed on disk.
    pub fn open(
        place: Place,
        log: Box<dyn Log>,
        base: Arc<dyn Base>,
        machines: Machines,
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
            failed: None,
        };
        let last = Index(log.next_index().0 - 1);
        log.replay(applied.next(), &mut |record| {
            let applied = replay.record(record.index, record.kind, record.payload);
            progress(Progress { at: record.index, last });
            applied
        })?;
        if let Some(error) = replay.failed {
            return Err(error);
        }
        let Replay { rows, ground, machines, applied, commands, .. } = replay;
        let outputs = left_to_do(&rows, &ground, place);
        let at_ms = rows
            .get(&clock_key())
            .map_or(0, |value| Reader::new(value).u64().expect("the clock is eight bytes"));
        let shard = Shard::new(place, log, Arc::new(RwLock::new(rows)), machines, ground, applied);
        Ok(Opened { shard: shard.at(at_ms), outputs, replayed_commands: commands })
    }
}

struct Replay {
    rows: Rows,
    ground: Ground,
    machines: Machines,
    applied: Index,
    commands: u64,
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
        let entry = Entry::decode(payload).map_err(unreadable)?;
        self.commands += entry.commands.len() as u64;
        Apply {
            rows: &mut self.rows,
            ground: &mut self.ground,
            machines: &mut self.machines,
            stamp: stamp_of(&entry, index),
        }
        .entry(&entry)
        .map_err(unreadable)?;
        // Nobody is listening yet, and what is left to do is read from rows at the end.
        self.ground.outputs.clear();
        self.bound_memory(index)
    }

    /// A log longer than memory may hold is moved to the base on the way.
    fn bound_memory(&mut self, index: Index) -> Result<(), OpenError> {
        if self.rows.active_bytes() > OVERLAY_BYTES_MAX {
            let layer = self.rows.freeze();
            self.rows.base().ingest(&layer, index, &|| {})?;
            self.rows.thaw();
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
