//! The file-system calls that the file log makes, and nothing more.
//!
//! [`RealDisk`] passes them to the operating system. [`SimDisk`] keeps files in memory, forgets
//! what was not synced when it is told to crash, and fails on demand: so every path of the file
//! log, and above all its recovery, is tested by running it.

mod real;
mod sim;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use real::RealDisk;
pub use sim::{Faults, SimDisk};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For looking only.
    Read,
    /// For reading and writing.
    ReadWrite,
}

/// Holds a lock for as long as it lives.
pub trait Lock: Send + Sync {}

/// A file system, with its sources of randomness and time.
pub trait Disk: Send + Sync {
    /// Makes a folder and those above it, durably. No error if it is there.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a folder, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes an empty file, or empties the one that is there. Its name is durable only after
    /// [`Disk::sync_dir`].
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that is there.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name. Durable only after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a file away. Durable only after [`Disk::sync_dir`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that can still be written in the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Takes an exclusive lock on the file `path`, which is made if need be. `None` when
    /// someone else has it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// Whether someone has the lock on `path`. Writes nothing.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// A number nobody can guess; in the simulator, the next one of the seed.
    fn random(&self) -> io::Result<u64>;

    /// Milliseconds since 1970, for people who read a dump. Nothing is decided by it.
    fn wall_ms(&self) -> u64;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Writes at `offset` and says how many bytes were taken, which may be fewer than given.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Reads at `offset` and says how many bytes came; 0 at the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Makes every write so far durable, with the length of the file.
    fn sync(&self) -> io::Result<()>;

    /// Takes up room for `len` bytes, so that later writes within it cannot find the disk full.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// The length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Writes all of `bytes`, going on after short writes.
pub(crate) fn write_all(file: &dyn DiskFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads until `into` is full or the file ends; says how many bytes came.
pub(crate) fn read_full(file: &dyn DiskFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(offset + done as u64, &mut into[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Whether an error says that there is no room, rather than that something is broken.
pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
