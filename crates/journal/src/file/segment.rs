//! Segment files: their names, how they are made and used again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernel::Index;

use super::format::{HEADER_BYTES, Identity};
use crate::disk::{Access, Disk, DiskFile, write_all};

/// Suffix of a segment that belongs to the log.
const SEGMENT: &str = ".log";
/// Suffix of a segment that was retired: its bytes count for nothing, but its room is durable.
const SCRAP: &str = ".old";
/// Suffix of a file that is being made. Never used again if that did not end well: after a failed
/// sync it may look whole and not be.
const UNFINISHED: &str = ".new";
/// The file whose lock says that the log is in use.
pub(crate) const LOCK_NAME: &str = "lock";

/// Zeros written between two syncs: few, so that the commits of the log, which share the disk, are not
/// held up behind a long flush.
const ZERO_BYTES: usize = 512 << 10;

/// A segment in use.
pub(crate) struct Segment {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) identity: Identity,
    /// The index of its first entry.
    pub(crate) first: Index,
}

/// A segment that is ready to be used: named, synced, empty.
pub(crate) struct Blank {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) identity: Identity,
}

impl Blank {
    pub(crate) fn start(self, first: Index) -> Arc<Segment> {
        Arc::new(Segment { file: self.file, identity: self.identity, first })
    }
}

pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}{SEGMENT}")
}

pub(crate) fn scrap_name(number: u64) -> String {
    format!("{number:020}{SCRAP}")
}

/// The number of a segment, if this is the name of one.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SEGMENT)?;
    is_digits(digits).then(|| digits.parse().ok()).flatten()
}

pub(crate) fn is_scrap(name: &str) -> bool {
    name.strip_suffix(SCRAP).is_some_and(is_digits)
}

pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).is_some_and(is_digits)
}

fn is_digits(text: &str) -> bool {
    text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit())
}

/// Where segments are made.
pub(crate) struct Yard {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) log_id: [u8; 16],
    pub(crate) segment_bytes: u64,
    /// Left free for others on the same disk.
    pub(crate) reserve_bytes: u64,
}

impl Yard {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes segment `number`, out of `scrap` if there is one.
    ///
    /// The order is what recovery relies on: the identity is durable before the file has the
    /// name of a segment, and the name is durable before anything in it can be acknowledged.
    pub(crate) fn make(
        &self,
        number: u64,
        scrap: Option<&str>,
        stop: &AtomicBool,
    ) -> io::Result<Blank> {
        let (path, file) = match scrap {
            Some(name) => {
                let path = self.path(name);
                let file = self.disk.open(&path, Access::ReadWrite)?;
                (path, file)
            }
            None => {
                let path = self.path(&format!("{number:020}{UNFINISHED}"));
                let file = self.make_zeros(&path, stop)?;
                (path, file)
            }
        };
        let salt = self.disk.random()?;
        let identity =
            Identity { log_id: self.log_id, number, salt, segment_bytes: self.segment_bytes };
        let mut head = vec![0; usize::try_from(HEADER_BYTES).expect("a small constant")];
        let encoded = identity.encode();
        head[..encoded.len()].copy_from_slice(&encoded);
        write_all(&*file, 0, &head)?;
        file.sync()?;
        self.disk.rename(&path, &self.path(&segment_name(number)))?;
        self.disk.sync_dir(&self.dir)?;
        Ok(Blank { file, identity })
    }

    /// Zeros are really written: a sync into extents that were written before is clearly cheaper
    /// than one that must also mark them as written.
    fn make_zeros(&self, path: &Path, stop: &AtomicBool) -> io::Result<Arc<dyn DiskFile>> {
        let free_bytes = self.disk.free_bytes(&self.dir)?;
        if free_bytes < self.segment_bytes.saturating_add(self.reserve_bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = self.disk.create(path)?;
        let filled = self.fill(&*file, stop);
        if filled.is_err() {
            // What is left behind by a failure here is taken up by the next opening.
            let _ = self.disk.remove(path);
        }
        filled.map(|()| file)
    }

    fn fill(&self, file: &dyn DiskFile, stop: &AtomicBool) -> io::Result<()> {
        file.allocate(self.segment_bytes)?;
        let zeros = vec![0; ZERO_BYTES];
        let mut at = 0;
        while at < self.segment_bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = (self.segment_bytes - at).min(ZERO_BYTES as u64);
            write_all(file, at, &zeros[..usize::try_from(count).expect("at most ZERO_BYTES")])?;
            at += count;
            file.sync()?;
        }
        Ok(())
    }

    /// Takes a segment out of the log. Its bytes stay, as scrap, if `keep`.
    pub(crate) fn retire(&self, number: u64, keep: bool) -> io::Result<Option<String>> {
        let path = self.path(&segment_name(number));
        let scrap = scrap_name(number);
        if keep {
            self.disk.rename(&path, &self.path(&scrap))?;
        } else {
            self.disk.remove(&path)?;
        }
        // Before the next one goes, and before these bytes are written over: the log must never
        // show a gap, nor a segment with another's bytes.
        self.disk.sync_dir(&self.dir)?;
        Ok(keep.then_some(scrap))
    }
}
