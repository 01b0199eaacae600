//! What can be chosen when a store is opened.

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{CompressionType, KeyspaceCreateOptions};

const MIB: u64 = 1024 * 1024;

/// How a [`FjallBase`](crate::FjallBase) uses memory, files and disk.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Decompressed blocks, index and filter partitions kept in memory.
    pub cache_bytes: u64,
    /// Open table files kept. At least 10.
    pub open_files_max: usize,
    /// Room that a checkpoint must leave on the file system, for compaction and for the log.
    pub reserve_bytes: u64,
    /// Runs in level 0 at which a checkpoint waits for compaction: 9 to 254.
    pub level0_runs_max: usize,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            cache_bytes: 64 * MIB,
            open_files_max: 128,
            reserve_bytes: 64 * MIB,
            level0_runs_max: 20,
        }
    }
}

/// Tables in level 0 at which compaction merges them into the next level.
pub(crate) const LEVEL0_MERGED_AT: u8 = 8;

/// Bytes of a table. Level 1 holds [`LEVEL0_MERGED_AT`] of them before they move on, and is written
/// anew whenever level 0 is merged into it, because a checkpoint has some of all kinds of rows: the
/// smaller it is beside what is merged into it, the less is written twice.
const TABLE_BYTES: u64 = 16 * MIB;

/// What the largest usual merge writes: all that level 0 may have, and level 1.
pub(crate) fn merge_bytes_max(options: &StoreOptions) -> u64 {
    /// Rows at which a checkpoint is usually made.
    const CHECKPOINT_BYTES: u64 = 64 * MIB;
    options.level0_runs_max as u64 * CHECKPOINT_BYTES + u64::from(LEVEL0_MERGED_AT) * TABLE_BYTES
}

/// How tables are merged. Not kept with the keyspace: a change is in force when a store is opened.
pub(crate) fn merging() -> Leveled {
    Leveled::default().with_l0_threshold(LEVEL0_MERGED_AT).with_table_target_size(TABLE_BYTES)
}

/// Bytes of a data block before compression. A row of 200 bytes is found by reading this much.
const BLOCK_BYTES: u32 = 8 * 1024;

/// Bloom filter bits per row: about one needless block read in a hundred missing keys.
const FILTER_BITS: f32 = 10.0;

/// The layout of tables. fjall keeps it with the keyspace: a change is for new stores only.
pub(crate) fn layout() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
            BloomConstructionPolicy::BitsPerKey(FILTER_BITS),
        )))
        // Memory must not grow with the number of rows: index and filters are cut into blocks
        // that come and go with the cache, and only an index of those blocks stays.
        .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(false))
}
