//! The log in memory. It outlives its owner in a [`MemoryStore`], and a second owner may take it
//! from the first, as on a replicated log.

use std::sync::Arc;

use bytes::Bytes;
use kernel::{Epoch, Index};
use parking_lot::Mutex;

use crate::log::{
    AppendError, Event, EventSink, Kind, Log, LogError, LostCause, OpenError, Record,
};

/// Where the entries are. Clones are the same store.
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Everything that was appended and not trimmed, stale entries included.
    entries: Vec<Record>,
    /// Entries that were trimmed, which all stood before `entries`.
    trimmed: u64,
    epoch: Epoch,
    owner: Option<EventSink>,
}

impl State {
    fn next(&self) -> Index {
        Index(self.trimmed + self.entries.len() as u64 + 1)
    }

    fn push(&mut self, epoch: Epoch, kind: Kind, payload: Bytes) -> Index {
        let index = self.next();
        self.entries.push(Record { index, epoch, kind, payload });
        index
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// Lands an entry of an older owner, as a replicated log may accept one that was under way
    /// when the owner changed. Readers must skip it.
    pub fn land_stale(&self, epoch: Epoch, payload: Bytes) -> Index {
        let mut state = self.state.lock();
        assert!(epoch < state.epoch, "an entry of the owner is not stale");
        state.push(epoch, Kind::Data, payload)
    }
}

/// The log in memory. Every append is durable at once; the event is told before it returns.
pub struct MemoryLog {
    store: MemoryStore,
    epoch: Epoch,
    sink: EventSink,
}

impl MemoryLog {
    /// Opens the log in `store`. An owner that has it open is fenced.
    ///
    /// # Errors
    /// None; the type is that of every provider.
    pub fn open(store: &MemoryStore, sink: EventSink) -> Result<MemoryLog, OpenError> {
        let mut state = store.state.lock();
        state.epoch = Epoch(state.epoch.0 + 1);
        let epoch = state.epoch;
        state.push(epoch, Kind::Barrier, Bytes::new());
        // Under the lock, as every event, so that none follows this one.
        if let Some(older) = state.owner.replace(sink.clone()) {
            older(Event::Lost(LostCause::Fenced));
        }
        drop(state);
        Ok(MemoryLog { store: store.clone(), epoch, sink })
    }
}

impl Log for MemoryLog {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn next_index(&self) -> Index {
        self.store.state.lock().next()
    }

    fn first_index(&self) -> Index {
        Index(self.store.state.lock().trimmed + 1)
    }

    fn append(&mut self, payload: Bytes) -> Result<Index, AppendError> {
        let mut state = self.store.state.lock();
        if state.epoch != self.epoch {
            return Err(AppendError::Lost(LostCause::Fenced));
        }
        let index = state.push(self.epoch, Kind::Data, payload);
        (self.sink)(Event::Durable(index));
        Ok(index)
    }

    /// Nothing: an append is durable at once.
    fn commit(&mut self) {}

    fn replay(&self, from: Index, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError> {
        let entries = {
            let state = self.store.state.lock();
            let first = Index(state.trimmed + 1);
            if from < first {
                return Err(LogError::Trimmed { first });
            }
            state.entries.clone()
        };
        let mut epoch = Epoch(0);
        for record in entries {
            // Stale: an owner with a greater epoch had put its barrier before it.
            if record.epoch < epoch {
                continue;
            }
            epoch = record.epoch;
            if record.index >= from && !visit(record) {
                break;
            }
        }
        Ok(())
    }

    fn trim(&mut self, before: Index) -> Result<(), LogError> {
        let mut state = self.store.state.lock();
        // The newest barrier stays in force for readers, so entries behind it are kept with it.
        let barrier = state.entries.iter().rposition(|record| record.kind == Kind::Barrier);
        let wanted = before.0.saturating_sub(state.trimmed + 1);
        let count = usize::try_from(wanted).unwrap_or(usize::MAX).min(state.entries.len());
        let stale_after = state.entries[count..].iter().any(|record| record.epoch < state.epoch);
        let count = if stale_after { count.min(barrier.unwrap_or(0)) } else { count };
        state.entries.drain(..count);
        state.trimmed += count as u64;
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        0
    }
}

/// Lets go, so that the next owner fences nobody.
impl Drop for MemoryLog {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        if state.epoch == self.epoch {
            state.owner = None;
        }
    }
}
