//! Room on the file system, and what the store takes of it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that this process may still write to the file system of `dir`.
pub(crate) fn free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes of disk that the files below `dir` take, holes left out.
///
/// # Errors
/// What the system says when a folder cannot be listed.
pub fn used_bytes(dir: &Path) -> io::Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut total = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => total += used_bytes(&entry.path())?,
            Ok(meta) => total += meta.blocks() * BLOCK_BYTES,
            // Compaction removes tables while we look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}
