//! A disk that remembers what the log wrote, to be written once more without the log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use journal::RealDisk;
use journal::disk::{Access, Disk, DiskFile, Lock};
use parking_lot::Mutex;

/// What the thread that commits did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// It wrote so many bytes.
    Write(usize),
    /// It synced.
    Sync,
}

/// The thread that writes and syncs entries, which is the shard's. What the log's own does (making the
/// next segment) is no part of the floor.
pub(crate) const SHARD_THREAD: &str = "shard-0";

/// The ops since they were last taken.
#[derive(Clone, Default)]
pub(crate) struct Tape(Arc<Mutex<Vec<Op>>>);

impl Tape {
    fn record(&self, op: Op) {
        if std::thread::current().name() == Some(SHARD_THREAD) {
            self.0.lock().push(op);
        }
    }

    pub(crate) fn take(&self) -> Vec<Op> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The real disk, and a tape.
pub(crate) struct TapedDisk {
    real: RealDisk,
    tape: Tape,
}

impl TapedDisk {
    pub(crate) fn new(tape: Tape) -> TapedDisk {
        TapedDisk { real: RealDisk, tape }
    }

    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(TapedFile { real: file, tape: self.tape.clone() })
    }
}

impl Disk for TapedDisk {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.real.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.real.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.real.create(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.real.open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.real.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.real.sync_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.real.free_bytes(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.real.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.real.is_locked(path)
    }

    fn random(&self) -> io::Result<u64> {
        self.real.random()
    }

    fn wall_ms(&self) -> u64 {
        self.real.wall_ms()
    }
}

struct TapedFile {
    real: Arc<dyn DiskFile>,
    tape: Tape,
}

impl DiskFile for TapedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let count = self.real.write_at(offset, bytes)?;
        self.tape.record(Op::Write(count));
        Ok(count)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.real.read_at(offset, into)
    }

    fn sync(&self) -> io::Result<()> {
        self.tape.record(Op::Sync);
        self.real.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.real.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }
}

/// The floor: a file whose every block was written before, as a segment's are.
pub(crate) struct Floor {
    file: File,
    zeros: Vec<u8>,
    at: u64,
}

/// As large as a segment.
const FLOOR_BYTES: u64 = 64 << 20;
/// The largest write of the log: what may wait in its queue.
const WRITE_BYTES_MAX: usize = 40 << 20;

impl Floor {
    pub(crate) fn new(path: &Path) -> io::Result<Floor> {
        let file = File::create(path)?;
        let zeros = vec![0; WRITE_BYTES_MAX];
        let mut at = 0;
        while at < FLOOR_BYTES {
            file.write_all_at(&zeros[..1 << 20], at)?;
            at += 1 << 20;
        }
        file.sync_all()?;
        Ok(Floor { file, zeros, at: 0 })
    }

    /// Writes and syncs as the tape says, and says how long that took.
    pub(crate) fn play(&mut self, tape: &[Op]) -> io::Result<Duration> {
        let started = Instant::now();
        for op in tape {
            match *op {
                Op::Sync => self.file.sync_data()?,
                Op::Write(count) => {
                    if self.at + count as u64 > FLOOR_BYTES {
                        self.at = 0;
                    }
                    self.file.write_all_at(&self.zeros[..count], self.at)?;
                    self.at += count as u64;
                }
            }
        }
        Ok(started.elapsed())
    }
}

/// Syncs, and bytes a sync, of a tape.
pub(crate) fn summary(tape: &[Op]) -> (u64, f64) {
    let syncs = tape.iter().filter(|op| **op == Op::Sync).count() as u64;
    let bytes: usize =
        tape.iter().map(|op| if let Op::Write(count) = op { *count } else { 0 }).sum();
    (syncs, bytes as f64 / (syncs.max(1) as f64))
}
