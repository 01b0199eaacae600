//! Tables go to the disk as they are written, not all at their end.
//!
//! The store syncs a table when it is whole, up to 64 MiB of a checkpoint at once, and whatever else wants the disk
//! then waits: the shard's log above all. Syncing the part that is there every half a megabyte keeps
//! each wait short.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that a table has at most that are not on the disk, about.
const TRICKLE_BYTES: u64 = 512 << 10;
/// On a disk that takes its time for each sync, however small: checkpoints must keep up with the log.
const TRICKLE_BYTES_MAX: u64 = 8 << 20;
/// A sync that takes longer is worth more bytes.
const SLOW: Duration = Duration::from_millis(5);
/// How often the tables of a merge are looked at, which does not say how much it has written.
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// Tables are numbered one by one. So many in a row may have come and gone between two looks; were it
/// more, the rest would be synced when they are whole.
const GONE_MAX: u64 = 32;

/// Syncs the tables of a checkpoint or a merge now and then.
pub(crate) struct Trickle {
    tables: PathBuf,
    /// Tables are named by their numbers, which grow: no table with this one or a greater was seen.
    next: u64,
    /// Bytes of rows written since tables were looked at.
    bytes: u64,
    /// When there are so many, tables are synced.
    part_bytes: u64,
    /// The tables that came since it began, and how long each was when it was synced. Some are
    /// somebody else's.
    young: BTreeMap<u64, u64>,
}

/// Says that something is over when it is dropped, however it ended.
struct Over<'a>(&'a AtomicBool, std::thread::Thread);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}

impl Trickle {
    /// For the tables that come into this folder from now on.
    pub(crate) fn new(tables: PathBuf) -> io::Result<Trickle> {
        let mut next = 0;
        // Once: a folder has thousands of tables, and is looked at every few milliseconds.
        for entry in std::fs::read_dir(&tables)? {
            let number = entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            next = next.max(number.map_or(0, |number| number + 1));
        }
        let young = BTreeMap::new();
        Ok(Trickle { tables, next, bytes: 0, part_bytes: TRICKLE_BYTES, young })
    }

    /// So many bytes of rows have been written.
    pub(crate) fn wrote(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes += bytes as u64;
        if self.bytes < self.part_bytes {
            return Ok(());
        }
        self.bytes = 0;
        let began = Instant::now();
        self.sync_grown(1)?;
        self.took(began.elapsed());
        Ok(())
    }

    fn took(&mut self, took: Duration) {
        let bytes = if took > SLOW { self.part_bytes * 2 } else { self.part_bytes / 2 };
        self.part_bytes = bytes.clamp(TRICKLE_BYTES, TRICKLE_BYTES_MAX);
    }

    /// Does something that writes tables, and syncs them meanwhile, from a thread beside it.
    pub(crate) fn beside<T>(mut self, work: impl FnOnce() -> T) -> (T, io::Result<()>) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    std::thread::park_timeout(LOOK_EVERY);
                    self.sync_grown(TRICKLE_BYTES)?;
                }
                Ok(())
            });
            let is_over = Over(&over, thread.thread().clone());
            let done = work();
            drop(is_over);
            (done, thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))))
        })
    }

    /// Syncs the tables that have grown by so much since they were synced.
    fn sync_grown(&mut self, bytes_min: u64) -> io::Result<()> {
        self.look_for_young()?;
        let Trickle { tables, young, .. } = self;
        let mut gone = Vec::new();
        for (number, synced) in young.iter_mut() {
            match length(tables, *number)? {
                Some(length) if length >= *synced + bytes_min => {
                    match File::open(tables.join(number.to_string())) {
                        Ok(table) => table.sync_data()?,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                    *synced = length;
                }
                Some(_) => {}
                // A merge of it is done already.
                None => gone.push(*number),
            }
        }
        for number in gone {
            young.remove(&number);
        }
        Ok(())
    }

    fn look_for_young(&mut self) -> io::Result<()> {
        let mut number = self.next;
        while number < self.next + GONE_MAX {
            if length(&self.tables, number)?.is_some() {
                self.young.insert(number, 0);
                self.next = number + 1;
            }
            number += 1;
        }
        Ok(())
    }
}

/// How long a table is, if there is one of this number.
fn length(tables: &Path, number: u64) -> io::Result<Option<u64>> {
    match std::fs::metadata(tables.join(number.to_string())) {
        Ok(table) => Ok(Some(table.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use kernel::{Base, Index, Rows};
    use std::sync::Arc;

    use super::*;
    use crate::{FjallBase, StoreOptions};

    #[test]
    fn the_table_being_written_is_among_those_that_came_since() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = Arc::new(FjallBase::open(folder.path(), StoreOptions::default()).expect("open"));
        let mut rows = Rows::new(Arc::clone(&base) as Arc<dyn Base>);
        for number in 0..20_000_u32 {
            rows.put([&[0, 9][..], &number.to_be_bytes()].concat(), vec![7; 100]);
        }
        let trickle = Trickle::new(base.shared.tables()).expect("a folder of tables");
        let trickle = parking_lot::Mutex::new(trickle);
        let seen = parking_lot::Mutex::new(0);
        let layer = rows.freeze();
        let look = || {
            let mut trickle = trickle.lock();
            trickle.look_for_young().expect("looked for");
            *seen.lock() += trickle.young.len();
        };
        base.ingest(&layer, Index(1), &look).expect("taken");
        assert!(*seen.lock() > 0, "no table is being written where they are looked for");
        trickle.lock().wrote(3 << 20).expect("synced");
    }

    #[test]
    fn a_table_is_synced_beside_the_work_that_writes_it_as_far_as_it_has_grown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("7");
        let trickle = Trickle::new(folder.path().to_owned()).expect("a folder of tables");
        let (done, synced) = trickle.beside(|| std::fs::write(&path, vec![7; 3 << 20]));
        done.expect("written");
        synced.expect("synced");
        let mut trickle = Trickle::new(folder.path().to_owned()).expect("a folder of tables");
        assert_eq!(trickle.next, 8, "it was there before");
        trickle.next = 0;
        trickle.sync_grown(TRICKLE_BYTES).expect("synced");
        assert_eq!(trickle.young, BTreeMap::from([(7, 3 << 20)]));
        let grow = |bytes| std::fs::write(&path, vec![7; (3 << 20) + bytes]).expect("written");
        let part = usize::try_from(TRICKLE_BYTES).expect("a small constant");
        grow(part - 1);
        trickle.sync_grown(TRICKLE_BYTES).expect("not yet");
        assert_eq!(trickle.young, BTreeMap::from([(7, 3 << 20)]));
        grow(part);
        trickle.sync_grown(TRICKLE_BYTES).expect("synced");
        assert_eq!(trickle.young, BTreeMap::from([(7, (3 << 20) + TRICKLE_BYTES)]));
    }

    #[test]
    fn a_table_is_found_behind_some_that_are_gone_and_forgotten_when_it_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut trickle = Trickle::new(folder.path().to_owned()).expect("a folder of tables");
        let path = |number: u64| folder.path().join(number.to_string());
        for number in [GONE_MAX - 1, 2 * GONE_MAX - 1] {
            std::fs::write(path(number), [7]).expect("written");
        }
        trickle.sync_grown(1).expect("synced");
        assert_eq!(trickle.young, BTreeMap::from([(GONE_MAX - 1, 1), (2 * GONE_MAX - 1, 1)]));
        std::fs::remove_file(path(GONE_MAX - 1)).expect("removed");
        trickle.sync_grown(1).expect("synced");
        assert_eq!(trickle.young, BTreeMap::from([(2 * GONE_MAX - 1, 1)]));
    }

    #[test]
    fn parts_grow_while_the_disk_is_slow_and_shrink_when_it_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut trickle = Trickle::new(folder.path().to_owned()).expect("a folder of tables");
        let mut after = |took: &[Duration]| {
            took.iter().for_each(|took| trickle.took(*took));
            trickle.part_bytes
        };
        assert_eq!(after(&[SLOW]), TRICKLE_BYTES);
        assert_eq!(after(&[SLOW * 2; 2]), TRICKLE_BYTES * 4);
        assert_eq!(after(&[SLOW * 2; 9]), TRICKLE_BYTES_MAX);
        assert_eq!(after(&[SLOW; 9]), TRICKLE_BYTES);
    }

    #[test]
    fn work_that_panics_ends_what_goes_on_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let trickle = Trickle::new(folder.path().to_owned()).expect("a folder of tables");
        let work = std::panic::AssertUnwindSafe(|| trickle.beside(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(work).is_err());
    }
}
