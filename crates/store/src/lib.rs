//! Rows on disk: [`FjallBase`], the base under the overlay, on the LSM store `fjall`.
//!
//! ```text
//!   one folder per shard
//!   └── keyspace "rows"
//!         [0,0] 'a'            the applied index, 8 bytes big-endian
//!         [0,1] … [255,255] …  machines' rows: keys begin with the machine's number, 1 or more
//! ```
//!
//! # Invariants
//!
//! - A checkpoint is one bulk ingestion: its rows and the applied index become visible, and
//!   durable, by the switch of one manifest. There is no state in between, on disk or in memory.
//! - When [`ingest`](kernel::Base::ingest) returns, table files, manifest and their folders are
//!   synced: the log may be trimmed.
//! - fjall's own journal and memtables are never written. Nothing here is acknowledged to a
//!   client; what a crash takes, the shard's log brings back.
//! - fjall's worker threads do not run. One thread of ours compacts: theirs ends at its first
//!   error, a full disk included, and ingestion would go on without it.
//! - Level 0 is bounded: a checkpoint waits for compaction rather than let runs pile up, since
//!   reads slow down with each run and the manifest counts them in one byte.

mod base;
mod breath;
mod compact;
mod create;
mod failure;
mod ingest;
mod keys;
mod options;
mod space;
mod trickle;
mod views;

pub use base::FjallBase;
pub use breath::{BREATH, Breath};
pub use failure::StoreFault;
pub use options::StoreOptions;
pub use space::used_bytes;
