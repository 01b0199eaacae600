//! Frozen views of the store, and how old the oldest one is.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fjall::{Database, Keyspace, Readable, SeqNo, Snapshot};
use kernel::base::BaseIter;
use kernel::rows::RowsLost;
use kernel::{Base, BaseError, Index, Layer};
use parking_lot::Mutex;

use crate::failure::{StoreFault, failed};
use crate::keys::{APPLIED_KEY, detach, is_machines, machines_range};

/// The views in use, by the moment they show.
///
/// fjall keeps such a list too, but looks at it only when a checkpoint ends; ours lets every
/// compaction give back the tables that no view needs any more.
#[derive(Default)]
pub(crate) struct Views(Mutex<BTreeMap<SeqNo, usize>>);

impl Views {
    /// A view of the store as it is now.
    pub(crate) fn open(self: &Arc<Views>, db: &Database, keyspace: &Keyspace) -> View {
        let mut open = self.0.lock();
        // Under the lock, so that `oldest` cannot pass by a moment that is being taken.
        let snapshot = db.snapshot();
        *open.entry(snapshot.seqno()).or_default() += 1;
        drop(open);
        let ticket = Ticket { moment: snapshot.seqno(), views: Arc::clone(self) };
        View { snapshot, keyspace: keyspace.clone(), _ticket: ticket, applied: OnceLock::new() }
    }

    /// Versions before this moment are in nobody's sight.
    pub(crate) fn oldest(&self, db: &Database) -> SeqNo {
        let open = self.0.lock();
        let moment = open.keys().next().copied().unwrap_or_else(|| db.visible_seqno());
        moment.saturating_sub(1)
    }
}

/// Keeps a moment in the list.
struct Ticket {
    moment: SeqNo,
    views: Arc<Views>,
}

impl Clone for Ticket {
    fn clone(&self) -> Ticket {
        *self.views.0.lock().entry(self.moment).or_default() += 1;
        Ticket { moment: self.moment, views: Arc::clone(&self.views) }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut open = self.views.0.lock();
        let count = open.get_mut(&self.moment).expect("a ticket is listed until it is dropped");
        *count -= 1;
        if *count == 0 {
            open.remove(&self.moment);
        }
    }
}

/// The store at one moment. The folder cannot be opened again while a view is held.
#[derive(Clone)]
pub(crate) struct View {
    snapshot: Snapshot,
    keyspace: Keyspace,
    _ticket: Ticket,
    applied: OnceLock<Index>,
}

impl View {
    /// The applied index, from its row.
    pub(crate) fn read_applied(&self) -> Result<Index, BaseError> {
        const DOING: &str = "reading the applied index";
        let row = self.snapshot.get(&self.keyspace, APPLIED_KEY).map_err(|e| failed(DOING, e))?;
        let Some(row) = row else { return Ok(Index(0)) };
        let bytes =
            <[u8; 8]>::try_from(&*row).map_err(|_| failed(DOING, StoreFault::AppliedDamaged))?;
        Ok(Index(u64::from_be_bytes(bytes)))
    }

    /// The keys between two keys, ascending. Values are not copied out.
    pub(crate) fn keys(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = Result<Bytes, BaseError>> + use<> {
        machines_range(from, to)
            .map(|range| self.snapshot.range::<&[u8], _>(&self.keyspace, range))
            .into_iter()
            .flatten()
            .map(|row| row.key().map(Bytes::from).map_err(|e| failed("scanning keys", e)))
    }
}

impl Base for View {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        if !is_machines(key) {
            return Ok(None);
        }
        let value =
            self.snapshot.get(&self.keyspace, key).map_err(|e| failed("reading a row", e))?;
        Ok(value.map(detach))
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        let range = machines_range(from, to);
        rows(range.map(|range| self.snapshot.range::<&[u8], _>(&self.keyspace, range)), reverse)
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        Arc::new(self.clone())
    }

    fn applied(&self) -> Index {
        *self.applied.get_or_init(|| {
            self.read_applied().unwrap_or_else(|error| std::panic::panic_any(RowsLost(error)))
        })
    }

    fn ingest(&self, _: &Layer, _: Index, _: &dyn Fn()) -> Result<(), BaseError> {
        Err(failed("taking a checkpoint", StoreFault::ReadOnly))
    }

    fn disk_bytes(&self) -> u64 {
        self.keyspace.disk_space()
    }
}

/// fjall's rows as the kernel wants them.
pub(crate) fn rows(rows: Option<fjall::Iter>, reverse: bool) -> BaseIter<'static> {
    let Some(rows) = rows else { return Box::new(std::iter::empty()) };
    let row = |row: fjall::Guard| match row.into_inner() {
        Ok((key, value)) => Ok((detach(key), detach(value))),
        Err(error) => Err(failed("scanning rows", error)),
    };
    if reverse { Box::new(rows.rev().map(row)) } else { Box::new(rows.map(row)) }
}
