//! Two logs of the simulator's own: one that listens in on another, one on paper.

use std::sync::Arc;

use bytes::Bytes;
use journal::{AppendError, Kind, Log, LogError, Record};
use kernel::{Epoch, Index};
use parking_lot::Mutex;

/// Every append that a log has taken: index and payload.
pub(crate) type Taken = Arc<Mutex<Vec<(Index, Bytes)>>>;

/// Between a shard and its log; writes down what the log has taken.
pub(crate) struct Tap {
    pub(crate) log: Box<dyn Log>,
    pub(crate) taken: Taken,
}

impl Log for Tap {
    fn epoch(&self) -> Epoch {
        self.log.epoch()
    }

    fn next_index(&self) -> Index {
        self.log.next_index()
    }

    fn first_index(&self) -> Index {
        self.log.first_index()
    }

    fn append(&mut self, payload: Bytes) -> Result<Index, AppendError> {
        let index = self.log.append(payload.clone())?;
        self.taken.lock().push((index, payload));
        Ok(index)
    }

    fn commit(&mut self) {
        self.log.commit();
    }

    fn replay(&self, from: Index, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError> {
        self.log.replay(from, visit)
    }

    fn trim(&mut self, before: Index) -> Result<(), LogError> {
        self.log.trim(before)
    }

    fn disk_bytes(&self) -> u64 {
        self.log.disk_bytes()
    }
}

/// Every record that was ever durable, to be replayed from any point. What is appended to it is
/// taken, and kept nowhere.
pub(crate) struct PaperLog(pub(crate) Vec<Record>);

impl Log for PaperLog {
    fn epoch(&self) -> Epoch {
        self.0.last().map_or(Epoch(0), |record| record.epoch)
    }

    fn next_index(&self) -> Index {
        Index(self.0.len() as u64 + 1)
    }

    fn first_index(&self) -> Index {
        Index(1)
    }

    fn append(&mut self, _payload: Bytes) -> Result<Index, AppendError> {
        Ok(self.next_index())
    }

    fn commit(&mut self) {}

    fn replay(&self, from: Index, visit: &mut dyn FnMut(Record) -> bool) -> Result<(), LogError> {
        for record in self.0.iter().filter(|record| record.index >= from) {
            if !visit(record.clone()) {
                break;
            }
        }
        Ok(())
    }

    fn trim(&mut self, _before: Index) -> Result<(), LogError> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        let data = self.0.iter().filter(|record| record.kind == Kind::Data);
        data.map(|record| record.payload.len() as u64).sum()
    }
}
