//! The store itself.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fjall::Database;
use kernel::base::BaseIter;
use kernel::{Base, BaseError, Index, Layer};
use parking_lot::Mutex;

use crate::breath::Breathing;
use crate::compact::{Compactor, Shared};
use crate::create::{KEYSPACE, ensure_created};
use crate::failure::failed;
use crate::ingest::changes;
use crate::keys::{APPLIED_KEY, detach, is_machines, machines_range};
use crate::options::{LEVEL0_MERGED_AT, StoreOptions, layout};
use crate::space::{free_bytes, used_bytes};
use crate::trickle::Trickle;
use crate::views::{View, rows};

/// Rows between two calls of `pace`: some ten microseconds of work.
const ROWS_PER_PACE: usize = 16;

/// The rows of one shard on disk.
///
/// Reads never wait for a checkpoint's rows to be written, only for the manifest to be switched.
/// Dropping it waits for the compaction under way. A snapshot keeps the folder locked.
pub struct FjallBase {
    /// Declared first, so that its thread has ended when the store closes.
    _compactor: Compactor,
    pub(crate) shared: Arc<Shared>,
    applied: AtomicU64,
    /// One checkpoint at a time: the next must see what the last one took.
    ingesting: Mutex<()>,
}

impl FjallBase {
    /// Opens the store in `dir`, or creates it there.
    ///
    /// What a crash left of an unfinished checkpoint or compaction is removed.
    ///
    /// # Errors
    /// [`BaseError::Failed`] if the folder cannot be read or written, holds something else, is
    /// open already, or a table that the manifest names is missing or damaged.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<FjallBase, BaseError> {
        const DOING: &str = "opening the store";
        assert!(
            (usize::from(LEVEL0_MERGED_AT) + 1..255).contains(&options.level0_runs_max),
            "more than starts a merge, and the manifest counts runs in a byte"
        );
        ensure_created(dir)?;
        let db = Database::builder(dir)
            .cache_size(options.cache_bytes)
            .max_cached_files(Some(options.open_files_max))
            // None: see the crate's invariants.
            .worker_threads_unchecked(0)
            .with_compaction_filter_factories(Arc::new(|_| Some(Arc::new(Breathing))))
            .open()
            .map_err(|e| failed(DOING, e))?;
        let keyspace = db.keyspace(KEYSPACE, layout).map_err(|e| failed(DOING, e))?;
        let shared = Arc::new(Shared::new(db, keyspace, dir.to_owned(), options));
        let applied = shared.views.open(&shared.db, &shared.keyspace).read_applied()?;
        Ok(FjallBase {
            _compactor: Compactor::start(Arc::clone(&shared))?,
            shared,
            applied: AtomicU64::new(applied.0),
            ingesting: Mutex::new(()),
        })
    }

    /// Runs in level 0: how far compaction is behind.
    #[must_use]
    pub fn level0_runs(&self) -> usize {
        self.shared.level0_runs()
    }

    fn view(&self) -> View {
        self.shared.views.open(&self.shared.db, &self.shared.keyspace)
    }

    /// Refuses a layer that the file system may have no room for.
    fn check_room(&self, layer: &Layer) -> Result<(), BaseError> {
        let layer_bytes = u64::try_from(layer.bytes()).expect("memory fits in 64 bits");
        let wanted_bytes = layer_bytes.saturating_mul(2) + self.shared.options.reserve_bytes;
        let free_bytes =
            free_bytes(&self.shared.dir).map_err(|e| failed("looking for free space", e))?;
        if free_bytes < wanted_bytes {
            return Err(BaseError::Full { wanted_bytes, free_bytes });
        }
        Ok(())
    }

    fn write(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        const DOING: &str = "writing a checkpoint";
        let view = self.view();
        let mut trickle = Trickle::new(self.shared.tables()).map_err(|e| failed(DOING, e))?;
        let mut ingestion = self.shared.keyspace.start_ingestion().map_err(|e| failed(DOING, e))?;
        ingestion.write(APPLIED_KEY, through.0.to_be_bytes()).map_err(|e| failed(DOING, e))?;
        for (number, change) in changes(layer, &view).enumerate() {
            let (key, value) = change?;
            assert!(is_machines(&key), "a machine's key begins with its number, which is not 0");
            let row_bytes = key.len() + value.as_ref().map_or(0, Bytes::len);
            match value {
                Some(value) => ingestion.write(key, value),
                None => ingestion.write_tombstone(key),
            }
            .map_err(|e| failed(DOING, e))?;
            trickle.wrote(row_bytes).map_err(|e| failed(DOING, e))?;
            if number % ROWS_PER_PACE == ROWS_PER_PACE - 1 {
                pace();
            }
        }
        ingestion.finish().map_err(|e| failed("switching to a checkpoint", e))
    }
}

impl Base for FjallBase {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BaseError> {
        if !is_machines(key) {
            return Ok(None);
        }
        let value = self.shared.keyspace.get(key).map_err(|e| failed("reading a row", e))?;
        Ok(value.map(detach))
    }

    fn range<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> BaseIter<'a> {
        let range = machines_range(from, to);
        rows(range.map(|range| self.shared.keyspace.range::<&[u8], _>(range)), reverse)
    }

    fn snapshot(&self) -> Arc<dyn Base> {
        Arc::new(self.view())
    }

    fn applied(&self) -> Index {
        Index(self.applied.load(Ordering::Acquire))
    }

    /// After [`BaseError::Failed`] reads go on, but no checkpoint is taken until the store has
    /// been opened anew. [`BaseError::Full`] is known before anything is written.
    fn ingest(&self, layer: &Layer, through: Index, pace: &dyn Fn()) -> Result<(), BaseError> {
        let _one = self.ingesting.lock();
        assert!(through >= self.applied(), "a checkpoint never goes back");
        self.shared.check_sound()?;
        self.check_room(layer)?;
        self.shared.wait_for_level0()?;
        if let Err(error) = self.write(layer, through, pace) {
            self.shared.poison();
            return Err(error);
        }
        self.applied.store(through.0, Ordering::Release);
        self.shared.wake();
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        // A number for people: a folder that cannot be listed is reported by whoever needs it.
        used_bytes(&self.shared.dir).unwrap_or_default()
    }
}
