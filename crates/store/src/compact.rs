//! The thread that merges the runs that checkpoints leave behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use fjall::{AbstractTree, Database, Keyspace};
use kernel::BaseError;
use parking_lot::{Condvar, Mutex};

use crate::failure::{StoreFault, failed, is_full};
use crate::options::{StoreOptions, merge_bytes_max, merging};
use crate::space::free_bytes;
use crate::trickle::Trickle;
use crate::views::Views;

/// What the store's threads share.
pub(crate) struct Shared {
    pub(crate) db: Database,
    pub(crate) keyspace: Keyspace,
    pub(crate) dir: PathBuf,
    pub(crate) options: StoreOptions,
    pub(crate) views: Arc<Views>,
    /// After a write of unknown outcome nothing more is written: memory and disk may disagree.
    pub(crate) poisoned: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// There may be something to merge.
    due: bool,
    stop: bool,
    /// The last attempt found too little room: bytes wanted and free.
    cramped: Option<(u64, u64)>,
}

impl Shared {
    pub(crate) fn new(
        db: Database,
        keyspace: Keyspace,
        dir: PathBuf,
        options: StoreOptions,
    ) -> Shared {
        Shared {
            db,
            keyspace,
            dir,
            options,
            views: Arc::default(),
            poisoned: AtomicBool::new(false),
            // A store may be opened with work left over from its last life.
            state: Mutex::new(State { due: true, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    /// Fails if an earlier write failed.
    pub(crate) fn check_sound(&self) -> Result<(), BaseError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(failed("taking a checkpoint", StoreFault::Poisoned));
        }
        Ok(())
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// Has the thread look for something to merge.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        state.due = true;
        state.cramped = None;
        self.changed.notify_all();
    }

    /// Waits until level 0 has room for one more run.
    pub(crate) fn wait_for_level0(&self) -> Result<(), BaseError> {
        if self.level0_runs() < self.options.level0_runs_max {
            return Ok(());
        }
        self.wake();
        let mut state = self.state.lock();
        while self.level0_runs() >= self.options.level0_runs_max {
            self.check_sound()?;
            if let Some((wanted_bytes, free_bytes)) = state.cramped {
                return Err(BaseError::Full { wanted_bytes, free_bytes });
            }
            self.changed.wait(&mut state);
        }
        Ok(())
    }

    /// The folder that the store writes its tables to.
    pub(crate) fn tables(&self) -> PathBuf {
        self.keyspace.path().join("tables")
    }

    pub(crate) fn level0_runs(&self) -> usize {
        self.keyspace.tree.l0_run_count()
    }

    /// Merges until nothing is left to merge.
    fn compact_all(&self) {
        while !self.poisoned.load(Ordering::Acquire) && !self.state.lock().stop {
            let done = match self.compact_once() {
                Ok(done) => done,
                Err(BaseError::Full { wanted_bytes, free_bytes }) => {
                    self.state.lock().cramped = Some((wanted_bytes, free_bytes));
                    true
                }
                Err(BaseError::Failed { .. }) => {
                    self.poison();
                    true
                }
            };
            let _state = self.state.lock();
            self.changed.notify_all();
            if done {
                return;
            }
        }
    }

    /// One merge, if there is one to be done. Says whether there was none.
    fn compact_once(&self) -> Result<bool, BaseError> {
        const DOING: &str = "compacting";
        // A merge that runs out of room leaves its half-written tables behind until the store is
        // opened anew, so it is not begun without room for the largest usual one.
        let tree = &self.keyspace.tree;
        let merge_bytes = self.keyspace.disk_space().min(merge_bytes_max(&self.options));
        let free_bytes = free_bytes(&self.dir).map_err(|e| failed(DOING, e))?;
        if free_bytes < merge_bytes {
            return Err(BaseError::Full { wanted_bytes: merge_bytes, free_bytes });
        }
        let before = tree.current_version().id();
        let strategy = Arc::new(merging());
        let trickle = Trickle::new(self.tables()).map_err(|e| failed(DOING, e))?;
        let merge = || tree.compact(strategy, self.views.oldest(&self.db));
        let (merged, synced) = trickle.beside(merge);
        match merged {
            Ok(()) => {
                synced.map_err(|e| failed(DOING, e))?;
                Ok(tree.current_version().id() == before)
            }
            Err(error) if is_full(&error) => {
                Err(BaseError::Full { wanted_bytes: merge_bytes, free_bytes })
            }
            Err(error) => Err(failed(DOING, error)),
        }
    }

    fn run(&self) {
        // Else a checkpoint would wait for a thread that is gone.
        let _guard = PoisonOnPanic(self);
        loop {
            {
                let mut state = self.state.lock();
                while !state.due && !state.stop {
                    self.changed.wait(&mut state);
                }
                if state.stop {
                    return;
                }
                state.due = false;
            }
            self.compact_all();
        }
    }
}

/// Fails what waits for compaction when compaction has died.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison();
        }
    }
}

/// The running thread. Dropping it waits for the merge under way.
pub(crate) struct Compactor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Compactor {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Compactor, BaseError> {
        let thread = std::thread::Builder::new()
            .name("store:compact".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run()
            })
            .map_err(|e| failed("starting the compaction thread", e))?;
        Ok(Compactor { shared, thread: Some(thread) })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.stop = true;
            self.shared.changed.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook; the store is closing anyway.
            let _ = thread.join();
        }
    }
}
