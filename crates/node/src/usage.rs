//! What each tenant uses, as the shards last published it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::machine::Usage;
use kernel::{ShardId, TenantId};
use parking_lot::RwLock;

/// What one shard says of one tenant.
#[derive(Default)]
struct Counters {
    bytes: AtomicI64,
    entities: AtomicI64,
    queues: AtomicI64,
    leased: AtomicI64,
}

/// Of every tenant, counters for each shard.
pub(crate) struct UsageBoard {
    shard_count: u16,
    tenants: RwLock<HashMap<TenantId, Arc<[Counters]>>>,
}

impl UsageBoard {
    pub(crate) fn new(shard_count: u16) -> UsageBoard {
        UsageBoard { shard_count, tenants: RwLock::default() }
    }

    pub(crate) fn publish(&self, shard: ShardId, tenant: TenantId, usage: Usage) {
        // Bound to a name, so that the lock for reading is gone before the one for writing.
        let known = self.tenants.read().get(&tenant).map(Arc::clone);
        let row = known.unwrap_or_else(|| {
            Arc::clone(self.tenants.write().entry(tenant).or_insert_with(|| self.row()))
        });
        let counters = &row[usize::from(shard.0)];
        counters.bytes.store(usage.bytes, Ordering::Relaxed);
        counters.entities.store(usage.entities, Ordering::Relaxed);
        counters.queues.store(usage.queues, Ordering::Relaxed);
        counters.leased.store(usage.leased, Ordering::Relaxed);
    }

    fn row(&self) -> Arc<[Counters]> {
        (0..self.shard_count).map(|_| Counters::default()).collect()
    }

    /// The sum over all shards.
    pub(crate) fn of(&self, tenant: TenantId) -> Usage {
        let tenants = self.tenants.read();
        let Some(row) = tenants.get(&tenant) else { return Usage::default() };
        let mut sum = Usage::default();
        for counters in row.iter() {
            sum.bytes += counters.bytes.load(Ordering::Relaxed);
            sum.entities += counters.entities.load(Ordering::Relaxed);
            sum.queues += counters.queues.load(Ordering::Relaxed);
            sum.leased += counters.leased.load(Ordering::Relaxed);
        }
        sum
    }
}
