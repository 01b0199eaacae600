//! How much may be sent to a queue that has a bound of it, `maxPublishPerSecond`.

use std::collections::HashMap;

use kernel::TenantId;
use parking_lot::Mutex;

use super::quota::{Bucket, Rate, used_up};
use crate::problem::Problem;

/// Queues that are counted at the same time.
const QUEUES_MAX: usize = 100_000;

/// What is counted of such queues, on one node.
#[derive(Default)]
pub(super) struct QueueRates {
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    of_tenants: HashMap<TenantId, HashMap<String, Bucket>>,
    /// In all of them.
    count: usize,
}

impl QueueRates {
    /// Charges messages that are to be sent together: all of them or none.
    pub(super) fn charge(
        &self,
        now_ns: u64,
        (tenant, queue): (TenantId, &str),
        per_second: u32,
        count: u32,
    ) -> Result<(), Problem> {
        let mut buckets = self.buckets.lock();
        if buckets.count >= QUEUES_MAX {
            buckets.make_room(now_ns);
        }
        let bucket = buckets.of_queue(tenant, queue);
        bucket.take(now_ns, Rate::of_queue(per_second), count).map_err(|wait_ns| {
            let why =
                "as many messages a second are sent as the queue's maxPublishPerSecond allows";
            used_up("maxPublishPerSecond", why).retry_after_ms(wait_ns.div_ceil(1_000_000))
        })
    }

    /// Takes back the charge of messages that are not sent after all.
    pub(super) fn give_back(&self, (tenant, queue): (TenantId, &str), per_second: u32, count: u32) {
        let buckets = self.buckets.lock();
        let bucket = buckets.of_tenants.get(&tenant).and_then(|queues| queues.get(queue));
        if let Some(bucket) = bucket {
            bucket.give_back(Rate::of_queue(per_second), count);
        }
    }
}

impl Buckets {
    fn of_queue(&mut self, tenant: TenantId, queue: &str) -> &Bucket {
        let queues = self.of_tenants.entry(tenant).or_default();
        queues.entry(queue.to_owned()).or_insert_with(|| {
            self.count += 1;
            Bucket::default()
        })
    }

    /// A bucket that is full again is as none. Where most are not, those begin anew whose tenants have
    /// the most of them: rather a second's worth too many than memory without end. Half of the room is
    /// free afterwards, so this is done once for as many queues as that.
    fn make_room(&mut self, now_ns: u64) {
        for queues in self.of_tenants.values_mut() {
            queues.retain(|_, bucket| !bucket.is_full(now_ns));
        }
        self.of_tenants.retain(|_, queues| !queues.is_empty());
        self.count = self.of_tenants.values().map(HashMap::len).sum();
        let mut sizes: Vec<_> =
            self.of_tenants.iter().map(|(tenant, queues)| (queues.len(), *tenant)).collect();
        sizes.sort_unstable();
        while self.count > QUEUES_MAX / 2
            && let Some((size, tenant)) = sizes.pop()
        {
            self.of_tenants.remove(&tenant);
            self.count -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TENANT: TenantId = TenantId(7);

    #[test]
    fn each_queue_of_each_tenant_is_counted_by_itself() {
        let rates = QueueRates::default();
        let charge = |queue, count| rates.charge(SECOND, queue, 4, count);
        assert_eq!(charge((TENANT, "a"), 4), Ok(()));
        let refused = charge((TENANT, "a"), 2).expect_err("over the rate");
        assert_eq!(refused.retry_after_ms, Some(500));
        assert_eq!(refused.quota(), Some("maxPublishPerSecond"));
        assert_eq!(charge((TENANT, "b"), 4), Ok(()));
        assert_eq!(charge((TenantId(8), "a"), 4), Ok(()));
    }

    #[test]
    fn queues_that_are_quiet_again_make_room_for_others() {
        let rates = QueueRates::default();
        let charge = |now_ns, n: usize| rates.charge(now_ns, (TENANT, &n.to_string()), 1, 1);
        assert_eq!(charge(2 * SECOND, 0), Ok(()));
        for n in 1..QUEUES_MAX {
            assert_eq!(charge(SECOND, n), Ok(()));
        }
        assert_eq!(charge(2 * SECOND, QUEUES_MAX), Ok(()));
        assert_eq!(rates.buckets.lock().count, 2, "those that are not full");
        assert!(charge(2 * SECOND, 0).is_err(), "it was counted on");
        for n in 1..2 * QUEUES_MAX {
            let _ = charge(2 * SECOND, n);
        }
        assert!(rates.buckets.lock().count <= QUEUES_MAX);
    }

    #[test]
    fn a_tenant_that_fills_the_table_empties_it_of_its_own_alone() {
        let rates = QueueRates::default();
        let other = TenantId(8);
        assert_eq!(rates.charge(SECOND, (other, "a"), 1, 1), Ok(()));
        for n in 0..2 * QUEUES_MAX {
            assert_eq!(rates.charge(SECOND, (TENANT, &n.to_string()), 1, 1), Ok(()));
        }
        assert!(rates.charge(SECOND, (other, "a"), 1, 1).is_err(), "it was counted on");
        let buckets = rates.buckets.lock();
        let counted: usize = buckets.of_tenants.values().map(HashMap::len).sum();
        assert_eq!(buckets.count, counted);
        assert!(counted <= QUEUES_MAX);
    }

    #[test]
    fn what_is_given_back_was_not_charged() {
        let rates = QueueRates::default();
        let charge = |count| rates.charge(SECOND, (TENANT, "a"), 4, count);
        assert_eq!(charge(3), Ok(()));
        rates.give_back((TENANT, "a"), 4, 3);
        assert_eq!(charge(4), Ok(()));
        assert!(charge(1).is_err());
        rates.give_back((TENANT, "none"), 4, 3);
        rates.give_back((TENANT, "a"), 4, 1);
        assert_eq!(charge(1), Ok(()));
        assert!(charge(1).is_err());
    }
}
