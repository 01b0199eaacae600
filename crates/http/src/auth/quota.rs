//! What a tenant may use, watched at the edge without entering a shard.
//!
//! | quota | what is counted, on one node |
//! |---|---|
//! | `requestsPerSecond`, `burst` | requests that showed a key or token of the tenant, whatever came of them |
//! | `connections` | open connections on which such a request came; an HTTP/2 connection is one |
//! | `bytesStored`, `entities`, `queues`, `inflight` | what the tenant's machines say they keep, over all shards |
//! | `publishPerSecond` | messages sent and published; a batch of n is n |
//! | `waiters` | receives that wait for a message; of a fetch that waits, its group and each of its partitions |
//! | `retentionSecondsMax` | nothing: it bounds a setting of queues |
//!
//! What is counted here is exact. What machines say is as of the last entry that was applied, so
//! requests under way at the same moment may overshoot it by what they ask for together.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kernel::machine::Usage;
use tenants::Quotas;

use crate::problem::{Problem, ProblemKind};

/// What is counted of a tenant. It outlives changes of the tenant's record.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    requests: Bucket,
    messages: Bucket,
    connections: AtomicU32,
    waiters: AtomicU32,
}

/// A quota that is used up: which, and why. [`Tenant::counted`](super::Tenant::counted) counts it.
pub(super) fn used_up(quota: &'static str, why: impl Into<Cow<'static, str>>) -> Problem {
    ProblemKind::QuotaExceeded.because(why).with("quota", quota)
}

/// A rate with a burst, as [`Bucket::take`] needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// What one costs.
    emission_ns: u64,
    /// How far ahead of the clock the bucket may be.
    tolerance_ns: u64,
}

impl Rate {
    pub(crate) fn of_requests(quotas: &Quotas) -> Option<Rate> {
        quotas.requests_per_second.map(|per_second| Rate::new(per_second, quotas.burst))
    }

    pub(crate) fn of_messages(quotas: &Quotas) -> Option<Rate> {
        quotas.publish_per_second.map(|per_second| Rate::new(per_second, None))
    }

    /// Of messages to a queue with a bound of them.
    pub(super) fn of_queue(per_second: u32) -> Rate {
        Rate::new(per_second, None)
    }

    /// Without a burst, a second's worth.
    fn new(per_second: u32, burst: Option<u32>) -> Rate {
        let burst = u64::from(burst.unwrap_or(per_second).max(1));
        let emission_ns = (1_000_000_000 / u64::from(per_second.max(1))).max(1);
        Rate { emission_ns, tolerance_ns: emission_ns * (burst - 1) }
    }
}

/// A token bucket in one number (the generic cell rate algorithm): the time at which the bucket
/// would be full again. Who comes is let in if that is not further ahead than the burst allows, and
/// moves it on by what they cost.
#[derive(Debug, Default)]
pub(crate) struct Bucket(AtomicU64);

impl Bucket {
    /// Whether it is as one that nobody has taken from.
    pub(super) fn is_full(&self, now_ns: u64) -> bool {
        self.0.load(Ordering::Relaxed) <= now_ns
    }

    /// Takes so many, or says in how many nanoseconds there will be as many. `now_ns` may be any
    /// clock that does not go back by much.
    ///
    /// More than a burst is let in when the bucket is full, and whoever comes next waits for it.
    pub(crate) fn take(&self, now_ns: u64, rate: Rate, count: u32) -> Result<(), u64> {
        let cost_ns = rate.emission_ns * u64::from(count);
        let others_ns = cost_ns.saturating_sub(rate.emission_ns);
        let tolerance_ns = rate.tolerance_ns.saturating_sub(others_ns);
        let mut full_at = self.0.load(Ordering::Relaxed);
        loop {
            let from = full_at.max(now_ns);
            let ahead = from - now_ns;
            if ahead > tolerance_ns {
                return Err(ahead - tolerance_ns);
            }
            let next = from + cost_ns;
            let swap =
                self.0.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return Ok(()),
                Err(seen) => full_at = seen,
            }
        }
    }

    /// Puts back what was taken.
    pub(super) fn give_back(&self, rate: Rate, count: u32) {
        let cost_ns = rate.emission_ns * u64::from(count);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                Some(full_at.saturating_sub(cost_ns))
            })
            .expect("it always has a next");
    }
}

impl Gauge {
    /// Charges one request.
    pub(crate) fn charge(&self, now_ns: u64, rate: Option<Rate>) -> Result<(), Problem> {
        let Some(rate) = rate else { return Ok(()) };
        self.requests.take(now_ns, rate, 1).map_err(|wait_ns| {
            used_up("requestsPerSecond", "the tenant's quota requestsPerSecond is used up")
                .retry_after_ms(wait_ns.div_ceil(1_000_000))
        })
    }

    /// Charges messages that are to be sent together: all of them or none.
    pub(crate) fn charge_messages(
        &self,
        now_ns: u64,
        rate: Option<Rate>,
        count: u32,
    ) -> Result<(), Problem> {
        let Some(rate) = rate else { return Ok(()) };
        self.messages.take(now_ns, rate, count).map_err(|wait_ns| {
            used_up("publishPerSecond", "the tenant's quota publishPerSecond is used up")
                .retry_after_ms(wait_ns.div_ceil(1_000_000))
        })
    }

    /// Puts back what was charged for messages.
    pub(crate) fn give_back_messages(&self, rate: Option<Rate>, count: u32) {
        if let Some(rate) = rate {
            self.messages.give_back(rate, count);
        }
    }

    /// Lines in which receives and fetches wait.
    pub(crate) fn waiters(&self) -> u32 {
        self.waiters.load(Ordering::Relaxed)
    }
}

/// Whether all of a quota is used.
fn full(used: i64, quota: Option<u64>) -> bool {
    quota.is_some_and(|quota| u64::try_from(used).unwrap_or(0) >= quota)
}

/// Refuses to keep more than the tenant may. Trying again does not help, so it says nothing of it.
pub(crate) fn check_room(
    quotas: &Quotas,
    usage: Usage,
    creates_entity: bool,
) -> Result<(), Problem> {
    if full(usage.bytes, quotas.bytes_stored) {
        let why = "the tenant's quota bytesStored is used up: delete something";
        return Err(used_up("bytesStored", why));
    }
    if creates_entity && full(usage.entities, quotas.entities) {
        let why = "the tenant's quota entities is used up: delete something";
        return Err(used_up("entities", why));
    }
    Ok(())
}

/// Refuses one queue more than the tenant may have.
pub(crate) fn check_queues(quotas: &Quotas, usage: Usage) -> Result<(), Problem> {
    if full(usage.queues, quotas.queues) {
        let why = "the tenant's quota queues is used up: delete one";
        return Err(used_up("queues", why));
    }
    Ok(())
}

/// Refuses to keep messages for longer than the tenant may.
pub(crate) fn check_retention(quotas: &Quotas, retention_ms: u64) -> Result<(), Problem> {
    match quotas.retention_seconds_max {
        Some(max) if retention_ms > max.saturating_mul(1000) => {
            let why = format!("retentionSeconds is {max} at most by the tenant's quota");
            Err(used_up("retentionSecondsMax", format!("{why} retentionSecondsMax")))
        }
        _ => Ok(()),
    }
}

/// Messages that may be leased besides those that are, at least one. Leases end by themselves, so
/// trying again can help.
pub(crate) fn leases_left(quotas: &Quotas, usage: Usage) -> Result<u64, Problem> {
    let Some(quota) = quotas.inflight else { return Ok(u64::MAX) };
    let left = quota.saturating_sub(u64::try_from(usage.leased).unwrap_or(0));
    if left > 0 {
        return Ok(left);
    }
    let why = "the tenant's quota inflight is used up: settle messages, or let their leases end";
    Err(used_up("inflight", why).retry_after_ms(RETRY_MS))
}

/// When something may have changed that others have to do.
pub(crate) const RETRY_MS: u64 = 1000;

/// One or more of what a tenant has open, counted until dropped.
#[derive(Debug)]
pub(crate) struct Held {
    gauge: Arc<Gauge>,
    counter: fn(&Gauge) -> &AtomicU32,
    count: u32,
}

impl Held {
    /// Counts so many more. `None` when there would be more than `max`.
    fn new(
        gauge: &Arc<Gauge>,
        counter: fn(&Gauge) -> &AtomicU32,
        count: u32,
        max: Option<u32>,
    ) -> Option<Held> {
        let max = max.unwrap_or(u32::MAX);
        let more = |open: u32| open.checked_add(count).filter(|all| *all <= max);
        let counted = counter(gauge).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.ok().map(|_| Held { gauge: Arc::clone(gauge), counter, count })
    }

    /// A connection.
    pub(crate) fn connection(gauge: &Arc<Gauge>, max: Option<u32>) -> Result<Held, Problem> {
        Held::new(gauge, |gauge| &gauge.connections, 1, max).ok_or_else(|| {
            // Closed at once: a refused connection that stays open would be open all the same.
            used_up("connections", "the tenant's quota connections is used up: close one first")
                .closing()
        })
    }

    /// One who waits in so many lines. Nobody waits for long, so trying again can help.
    pub(crate) fn waiter(
        gauge: &Arc<Gauge>,
        lines: u32,
        max: Option<u32>,
    ) -> Result<Held, Problem> {
        Held::new(gauge, |gauge| &gauge.waiters, lines, max).ok_or_else(|| {
            let why = "as many receives and fetches of the tenant wait as its quota waiters \
                       allows; a fetch counts for its group and for each of its partitions";
            used_up("waiters", why).retry_after_ms(RETRY_MS)
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.counter)(&self.gauge).fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(per_second: u32, burst: Option<u32>) -> Rate {
        let quotas = Quotas { requests_per_second: Some(per_second), burst, ..Quotas::UNLIMITED };
        Rate::of_requests(&quotas).expect("there is a rate")
    }

    fn admitted(bucket: &Bucket, now_ns: u64, rate: Rate, tries: usize) -> usize {
        (0..tries).filter(|_| bucket.take(now_ns, rate, 1).is_ok()).count()
    }

    #[test]
    fn a_burst_is_let_in_at_once_and_then_one_at_a_time() {
        let (bucket, rate) = (Bucket::default(), rate(10, Some(5)));
        let now = 1000 * SECOND;
        assert_eq!(admitted(&bucket, now, rate, 100), 5);
        assert_eq!(bucket.take(now, rate, 1), Err(SECOND / 10));
        assert_eq!(bucket.take(now + SECOND / 10 - 1, rate, 1), Err(1));
        assert_eq!(admitted(&bucket, now + SECOND / 10, rate, 100), 1);
        assert_eq!(admitted(&bucket, now + 3 * SECOND, rate, 100), 5);
    }

    #[test]
    fn many_at_once_cost_as_much_as_one_by_one() {
        let (bucket, rate) = (Bucket::default(), rate(10, None));
        let now = 1000 * SECOND;
        assert_eq!(bucket.take(now, rate, 7), Ok(()));
        assert_eq!(bucket.take(now, rate, 4), Err(SECOND / 10), "three are left");
        assert_eq!(bucket.take(now, rate, 3), Ok(()));
        assert_eq!(bucket.take(now, rate, 1), Err(SECOND / 10));
        assert_eq!(bucket.take(now + SECOND / 10, rate, 1), Ok(()));
    }

    #[test]
    fn more_than_a_burst_is_let_in_after_a_quiet_time_and_paid_for_later() {
        let (bucket, rate) = (Bucket::default(), rate(10, None));
        let now = 1000 * SECOND;
        assert_eq!(bucket.take(now, rate, 1), Ok(()));
        assert_eq!(bucket.take(now, rate, 100), Err(SECOND / 10));
        assert_eq!(bucket.take(now + SECOND / 10, rate, 100), Ok(()));
        assert_eq!(bucket.take(now + SECOND / 10, rate, 1), Err(9 * SECOND + SECOND / 10));
        assert_eq!(bucket.take(now + 10 * SECOND, rate, 1), Ok(()));
    }

    #[test]
    fn messages_are_charged_apart_from_requests() {
        let gauge = Gauge::default();
        let quotas = Quotas { publish_per_second: Some(4), ..Quotas::UNLIMITED };
        let messages = Rate::of_messages(&quotas);
        assert_eq!(Rate::of_requests(&quotas), None);
        assert_eq!(gauge.charge_messages(SECOND, messages, 4), Ok(()));
        let problem = gauge.charge_messages(SECOND, messages, 2).expect_err("over the rate");
        assert_eq!(problem.retry_after_ms, Some(500));
        assert_eq!(problem.quota(), Some("publishPerSecond"));
        assert_eq!(gauge.charge(SECOND, Some(rate(1, None))), Ok(()));
        assert_eq!(gauge.charge_messages(SECOND, None, 1000), Ok(()));
        gauge.give_back_messages(messages, 3);
        assert_eq!(gauge.charge_messages(SECOND, messages, 3), Ok(()));
        assert!(gauge.charge_messages(SECOND, messages, 1).is_err());
    }

    #[test]
    fn over_a_long_time_the_rate_is_kept() {
        let (bucket, rate) = (Bucket::default(), rate(1000, Some(1)));
        let let_in: usize =
            (0..100_000).map(|tick| admitted(&bucket, SECOND + tick * 100_000, rate, 3)).sum();
        assert_eq!(let_in, 10_000);
    }

    #[test]
    fn without_a_burst_a_quiet_tenant_may_use_one_second_at_once() {
        let bucket = Bucket::default();
        assert_eq!(admitted(&bucket, SECOND, rate(50, None), 1000), 50);
    }

    #[test]
    fn a_clock_that_stands_or_steps_back_lets_no_more_in() {
        let (bucket, rate) = (Bucket::default(), rate(10, Some(2)));
        assert_eq!(admitted(&bucket, 10 * SECOND, rate, 9), 2);
        assert_eq!(admitted(&bucket, 9 * SECOND, rate, 9), 0);
    }

    #[test]
    fn extremes_neither_overflow_nor_refuse_all() {
        let highest = rate(u32::MAX, Some(u32::MAX));
        assert_eq!(admitted(&Bucket::default(), u64::from(u32::MAX), highest, 10), 10);
        let widest = rate(1, Some(u32::MAX));
        assert_eq!(admitted(&Bucket::default(), SECOND, widest, 10), 10);
        assert_eq!(admitted(&Bucket::default(), SECOND, rate(0, Some(0)), 10), 1);
    }

    #[test]
    fn a_refused_request_says_when_to_come_again() {
        let gauge = Gauge::default();
        let rate = Some(rate(2, Some(1)));
        assert_eq!(gauge.charge(SECOND, rate), Ok(()));
        let problem = gauge.charge(SECOND, rate).expect_err("over the rate");
        assert_eq!((problem.kind, problem.retry_after_ms), (ProblemKind::QuotaExceeded, Some(500)));
        assert!(problem.detail.contains("requestsPerSecond"));
        assert_eq!(gauge.charge(SECOND, None), Ok(()));
    }

    #[test]
    fn connections_are_counted_until_they_are_closed() {
        let gauge = Arc::new(Gauge::default());
        let first = Held::connection(&gauge, Some(2)).expect("none is open");
        let _second = Held::connection(&gauge, Some(2)).expect("one is open");
        let refused = Held::connection(&gauge, Some(2)).expect_err("two are open");
        assert!(refused.detail.contains("connections") && refused.retry_after_ms.is_none());
        assert_eq!((gauge.connections.load(Ordering::Relaxed), gauge.waiters()), (2, 0));
        drop(first);
        assert_eq!(gauge.connections.load(Ordering::Relaxed), 1);
        assert!(Held::connection(&gauge, Some(2)).is_ok());
        assert!(Held::connection(&gauge, None).is_ok());
        assert!(Held::connection(&gauge, Some(0)).is_err());
    }

    #[test]
    fn waiters_are_counted_until_they_leave() {
        let gauge = Arc::new(Gauge::default());
        let first = Held::waiter(&gauge, 1, Some(1)).expect("nobody waits");
        let refused = Held::waiter(&gauge, 1, Some(1)).expect_err("one waits");
        assert_eq!((refused.quota(), refused.retry_after_ms), (Some("waiters"), Some(RETRY_MS)));
        drop(first);
        assert_eq!(gauge.waiters(), 0);
        assert!(Held::waiter(&gauge, 1, Some(0)).is_err(), "none at all");
        let fetch = Held::waiter(&gauge, 5, Some(6)).expect("nobody waits");
        assert!(Held::waiter(&gauge, 2, Some(6)).is_err(), "not even in part");
        assert_eq!(gauge.waiters(), 5);
        drop(fetch);
        assert_eq!(gauge.waiters(), 0);
    }

    #[test]
    fn leases_left_are_those_of_all_queues_and_trying_again_can_help() {
        let quotas = Quotas { inflight: Some(10), ..Quotas::UNLIMITED };
        let leased = |leased| Usage { leased, ..Usage::default() };
        assert_eq!(leases_left(&quotas, leased(7)), Ok(3));
        assert_eq!(leases_left(&quotas, leased(-1)), Ok(10));
        for over in [10, 11] {
            let problem = leases_left(&quotas, leased(over)).expect_err("none is left");
            assert_eq!((problem.quota(), problem.retry_after_ms), (Some("inflight"), Some(1000)));
        }
        assert_eq!(leases_left(&Quotas::UNLIMITED, leased(i64::MAX)), Ok(u64::MAX));
    }

    #[test]
    fn queues_and_how_long_they_keep_are_bounded() {
        let quotas =
            Quotas { queues: Some(2), retention_seconds_max: Some(60), ..Quotas::UNLIMITED };
        let queues = |queues| Usage { queues, ..Usage::default() };
        assert_eq!(check_queues(&quotas, queues(1)), Ok(()));
        let problem = check_queues(&quotas, queues(2)).expect_err("it has two");
        assert_eq!((problem.quota(), problem.retry_after_ms), (Some("queues"), None));
        assert_eq!(check_retention(&quotas, 60_000), Ok(()));
        let problem = check_retention(&quotas, 60_001).expect_err("it is longer");
        assert!(problem.detail.contains("60 at most"), "{}", problem.detail);
        assert_eq!((problem.quota(), problem.retry_after_ms), (Some("retentionSecondsMax"), None));
        assert_eq!(check_retention(&Quotas::UNLIMITED, u64::MAX), Ok(()));
    }

    #[test]
    fn storage_quotas_name_themselves_and_do_not_ask_to_try_again() {
        let quotas = Quotas { bytes_stored: Some(10), entities: Some(2), ..Quotas::UNLIMITED };
        let usage = |bytes, entities| Usage { bytes, entities, ..Usage::default() };
        assert_eq!(check_room(&quotas, usage(9, 1), true), Ok(()));
        assert_eq!(check_room(&quotas, usage(-5, 0), true), Ok(()));
        for (usage, name) in [(usage(10, 0), "bytesStored"), (usage(0, 2), "entities")] {
            let problem = check_room(&quotas, usage, true).expect_err("it is full");
            assert!(problem.detail.contains(name), "{}", problem.detail);
            assert_eq!((problem.quota(), problem.retry_after_ms), (Some(name), None));
        }
        let many = usage(0, 9);
        assert_eq!(check_room(&quotas, many, false), Ok(()), "what is there may be written to");
        let none = Quotas { bytes_stored: Some(0), ..Quotas::UNLIMITED };
        assert!(check_room(&none, Usage::default(), false).is_err());
    }
}
