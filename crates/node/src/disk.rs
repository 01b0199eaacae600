//! What is on the disk, for whoever watches it.

use std::io;

use kernel::ShardId;

use crate::Node;

/// The disk of the data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes of the whole file system.
    pub size_bytes: u64,
    /// Bytes of it that this process may still write.
    pub free_bytes: u64,
    /// What each shard takes, by number.
    pub shards: Vec<ShardDisk>,
}

/// What a shard takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardDisk {
    /// Its log.
    pub log_bytes: u64,
    /// Its rows.
    pub store_bytes: u64,
}

impl Node {
    /// What is on the disk. It goes through the shards' folders, so it is for a thread that may
    /// block.
    ///
    /// # Errors
    /// What the system says when they cannot be looked at.
    pub fn disk_use(&self) -> io::Result<DiskUse> {
        let folder = &self.inner.folder;
        let stat = rustix::fs::statvfs(folder.path())?;
        let shard = |shard: ShardId| {
            Ok(ShardDisk {
                log_bytes: store::used_bytes(&folder.log_dir(shard))?,
                store_bytes: store::used_bytes(&folder.rows_dir(shard))?,
            })
        };
        Ok(DiskUse {
            size_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            shards: (0..self.shard_count()).map(ShardId).map(shard).collect::<io::Result<_>>()?,
        })
    }
}
