//! How each shard is doing, for `/readyz` and for refusals at the edge.

use kernel::ShardId;
use parking_lot::RwLock;
use serde::Serialize;

/// The state of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum ShardState {
    /// Reads and writes.
    Serving,
    /// Reads; writes are refused until there is room on the disk.
    DiskFull,
    /// Reads what it last had; only a restart helps.
    Stopped {
        /// What happened.
        why: String,
    },
}

/// Whether the node can serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// True when every shard takes writes.
    pub ready: bool,
    /// Set while the node drains before it ends.
    #[serde(rename = "shuttingDown")]
    pub shutting_down: bool,
    /// By number.
    pub shards: Vec<ShardState>,
}

impl Readiness {
    /// Whether traffic should be sent here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }
}

/// The board that shards write and the edge reads.
pub(crate) struct StatusBoard {
    shards: Vec<RwLock<ShardState>>,
}

impl StatusBoard {
    pub(crate) fn new(shard_count: u16) -> StatusBoard {
        let shards = (0..shard_count).map(|_| RwLock::new(ShardState::Serving)).collect();
        StatusBoard { shards }
    }

    pub(crate) fn set(&self, shard: ShardId, state: ShardState) {
        let mut slot = self.shards[usize::from(shard.0)].write();
        if *slot != state {
            tracing::warn!(shard = shard.0, ?state, "shard state changed");
            *slot = state;
        }
    }

    pub(crate) fn get(&self, shard: ShardId) -> ShardState {
        self.shards[usize::from(shard.0)].read().clone()
    }

    pub(crate) fn readiness(&self, shutting_down: bool) -> Readiness {
        let shards: Vec<ShardState> = self.shards.iter().map(|s| s.read().clone()).collect();
        let serving = shards.iter().all(|state| *state == ShardState::Serving);
        Readiness { ready: serving && !shutting_down, shutting_down, shards }
    }
}
