//! Tables go to the disk as they are written, not all at their end.
//!
//! The store syncs a table when it is whole, up to 64 MiB at once, and whatever else wants the disk
//! then waits: the shard's log above all. Syncing the part that is there every few megabytes keeps
//! each wait short.

use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Bytes of rows after which the newest table is synced.
const TRICKLE_BYTES: usize = 2 << 20;

/// Syncs the tables of a checkpoint now and then.
pub(crate) struct Trickle {
    tables: PathBuf,
    /// Tables are named by their numbers, which grow: this is the greatest when it began. A merge
    /// may be making others meanwhile, and they are synced as well.
    since: u64,
    bytes: usize,
}

impl Trickle {
    /// For the tables that come into this folder from now on.
    pub(crate) fn new(tables: PathBuf) -> io::Result<Trickle> {
        let mut trickle = Trickle { tables, since: 0, bytes: 0 };
        trickle.since = trickle.numbers()?.into_iter().max().map_or(0, |newest| newest + 1);
        Ok(trickle)
    }

    /// So many bytes of rows have been written.
    pub(crate) fn wrote(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes += bytes;
        if self.bytes < TRICKLE_BYTES {
            return Ok(());
        }
        self.bytes = 0;
        for number in self.young()? {
            match File::open(self.tables.join(number.to_string())) {
                Ok(table) => table.sync_data()?,
                // A merge of it is done already.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn young(&self) -> io::Result<Vec<u64>> {
        let mut numbers = self.numbers()?;
        numbers.retain(|number| *number >= self.since);
        Ok(numbers)
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.tables)? {
            numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        Ok(numbers)
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
        let mut trickle = Trickle::new(base.tables()).expect("a folder of tables");
        let seen = parking_lot::Mutex::new(0_u64);
        let layer = rows.freeze();
        let look = || *seen.lock() += trickle.young().expect("listed").len() as u64;
        base.ingest(&layer, Index(1), &look).expect("taken");
        assert!(*seen.lock() > 0, "no table is being written where they are looked for");
        trickle.wrote(TRICKLE_BYTES).expect("synced");
    }
}
