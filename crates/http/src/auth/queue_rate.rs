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
    buckets: Mutex<HashMap<(TenantId, String), Bucket>>,
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
        if buckets.len() >= QUEUES_MAX {
            make_room(&mut buckets, now_ns);
        }
        let bucket = buckets.entry((tenant, queue.to_owned())).or_default();
        bucket.take(now_ns, Rate::of_queue(per_second), count).map_err(|wait_ns| {
            let why =
                "as many messages a second are sent as the queue's maxPublishPerSecond allows";
            used_up("maxPublishPerSecond", why).retry_after_ms(wait_ns.div_ceil(1_000_000))
        })
    }
}

/// A bucket that is full again is as none. Where most are not, all begin anew: rather a second's worth
/// too many than memory without end.
fn make_room(buckets: &mut HashMap<(TenantId, String), Bucket>, now_ns: u64) {
    buckets.retain(|_, bucket| !bucket.is_full(now_ns));
    if buckets.len() > QUEUES_MAX / 2 {
        buckets.clear();
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
        assert_eq!(rates.buckets.lock().len(), 2, "those that are not full");
        assert!(charge(2 * SECOND, 0).is_err(), "it was counted on");
        for n in 1..2 * QUEUES_MAX {
            let _ = charge(2 * SECOND, n);
        }
        assert!(rates.buckets.lock().len() <= QUEUES_MAX);
    }
}
