//! What a tenant may use, watched at the edge without entering a shard.
//!
//! | quota | what is counted, on one node |
//! |---|---|
//! | `requestsPerSecond`, `burst` | requests that showed a key or token of the tenant, whatever came of them |
//! | `connections` | open connections on which such a request came; an HTTP/2 connection is one |
//! | `bytesStored`, `entities` | what the tenant's machines say they keep, over all shards |

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kernel::machine::Usage;
use tenants::Quotas;

use crate::problem::{Problem, ProblemKind};

/// What is counted of a tenant. It outlives changes of the tenant's record.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    bucket: Bucket,
    connections: AtomicU32,
}

/// A rate with a burst, as [`Bucket::take`] needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// What one request costs.
    emission_ns: u64,
    /// How far ahead of the clock the bucket may be.
    tolerance_ns: u64,
}

impl Rate {
    pub(crate) fn of(quotas: &Quotas) -> Option<Rate> {
        let per_second = u64::from(quotas.requests_per_second?.max(1));
        let burst = u64::from(quotas.burst.map_or(0, |burst| burst.max(1)));
        let burst = if burst == 0 { per_second } else { burst };
        let emission_ns = (1_000_000_000 / per_second).max(1);
        Some(Rate { emission_ns, tolerance_ns: emission_ns * (burst - 1) })
    }
}

/// A token bucket in one number (the generic cell rate algorithm): the time at which the bucket
/// would be full again. A request is let in if that is not further ahead than the burst allows,
/// and moves it on by what a request costs.
#[derive(Debug, Default)]
pub(crate) struct Bucket(AtomicU64);

impl Bucket {
    /// Takes one, or says in how many nanoseconds there will be one. `now_ns` may be any clock
    /// that does not go back by much.
    pub(crate) fn take(&self, now_ns: u64, rate: Rate) -> Result<(), u64> {
        let mut full_at = self.0.load(Ordering::Relaxed);
        loop {
            let from = full_at.max(now_ns);
            let ahead = from - now_ns;
            if ahead > rate.tolerance_ns {
                return Err(ahead - rate.tolerance_ns);
            }
            let next = from + rate.emission_ns;
            let swap =
                self.0.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return Ok(()),
                Err(seen) => full_at = seen,
            }
        }
    }
}

impl Gauge {
    /// Charges one request.
    pub(crate) fn charge(&self, now_ns: u64, rate: Option<Rate>) -> Result<(), Problem> {
        let Some(rate) = rate else { return Ok(()) };
        self.bucket.take(now_ns, rate).map_err(|wait_ns| {
            ProblemKind::QuotaExceeded
                .because("the tenant's quota requestsPerSecond is used up")
                .retry_after_ms(wait_ns.div_ceil(1_000_000))
        })
    }

    #[cfg(test)]
    fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Refuses to keep more than the tenant may. Trying again does not help, so it says nothing of it.
pub(crate) fn check_room(
    quotas: &Quotas,
    usage: Usage,
    creates_entity: bool,
) -> Result<(), Problem> {
    let full = |used: i64, quota: Option<u64>| {
        quota.is_some_and(|quota| u64::try_from(used).unwrap_or(0) >= quota)
    };
    let refuse = |detail: &'static str| Err(ProblemKind::QuotaExceeded.because(detail));
    if full(usage.bytes, quotas.bytes_stored) {
        return refuse("the tenant's quota bytesStored is used up: delete something");
    }
    if creates_entity && full(usage.entities, quotas.entities) {
        return refuse("the tenant's quota entities is used up: delete something");
    }
    Ok(())
}

/// A connection that is counted for a tenant, until dropped.
#[derive(Debug)]
pub(crate) struct Connected(Arc<Gauge>);

impl Connected {
    /// Counts one more. Refused when the tenant has `max` already.
    pub(crate) fn new(gauge: &Arc<Gauge>, max: Option<u32>) -> Result<Connected, Problem> {
        let max = max.unwrap_or(u32::MAX);
        let more = |open: u32| (open < max).then_some(open + 1);
        match gauge.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Connected(Arc::clone(gauge))),
            // Closed at once: a refused connection that stays open would be open all the same.
            Err(_) => Err(ProblemKind::QuotaExceeded
                .because("the tenant's quota connections is used up: close one first")
                .closing()),
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(per_second: u32, burst: Option<u32>) -> Rate {
        let quotas = Quotas { requests_per_second: Some(per_second), burst, ..Quotas::UNLIMITED };
        Rate::of(&quotas).expect("there is a rate")
    }

    fn admitted(bucket: &Bucket, now_ns: u64, rate: Rate, tries: usize) -> usize {
        (0..tries).filter(|_| bucket.take(now_ns, rate).is_ok()).count()
    }

    #[test]
    fn a_burst_is_let_in_at_once_and_then_one_at_a_time() {
        let (bucket, rate) = (Bucket::default(), rate(10, Some(5)));
        let now = 1000 * SECOND;
        assert_eq!(admitted(&bucket, now, rate, 100), 5);
        assert_eq!(bucket.take(now, rate), Err(SECOND / 10));
        assert_eq!(bucket.take(now + SECOND / 10 - 1, rate), Err(1));
        assert_eq!(admitted(&bucket, now + SECOND / 10, rate, 100), 1);
        assert_eq!(admitted(&bucket, now + 3 * SECOND, rate, 100), 5);
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
        let first = Connected::new(&gauge, Some(2)).expect("none is open");
        let _second = Connected::new(&gauge, Some(2)).expect("one is open");
        let refused = Connected::new(&gauge, Some(2)).expect_err("two are open");
        assert!(refused.detail.contains("connections") && refused.retry_after_ms.is_none());
        assert_eq!(gauge.connections(), 2);
        drop(first);
        assert_eq!(gauge.connections(), 1);
        assert!(Connected::new(&gauge, Some(2)).is_ok());
        assert!(Connected::new(&gauge, None).is_ok());
        assert!(Connected::new(&gauge, Some(0)).is_err());
    }

    #[test]
    fn storage_quotas_name_themselves_and_do_not_ask_to_try_again() {
        let quotas = Quotas { bytes_stored: Some(10), entities: Some(2), ..Quotas::UNLIMITED };
        assert_eq!(check_room(&quotas, Usage { bytes: 9, entities: 1 }, true), Ok(()));
        assert_eq!(check_room(&quotas, Usage { bytes: -5, entities: 0 }, true), Ok(()));
        for (usage, name) in [
            (Usage { bytes: 10, entities: 0 }, "bytesStored"),
            (Usage { bytes: 0, entities: 2 }, "entities"),
        ] {
            let problem = check_room(&quotas, usage, true).expect_err("it is full");
            assert!(problem.detail.contains(name), "{}", problem.detail);
            assert_eq!(problem.retry_after_ms, None);
        }
        let many = Usage { bytes: 0, entities: 9 };
        assert_eq!(check_room(&quotas, many, false), Ok(()), "what is there may be written to");
        let none = Quotas { bytes_stored: Some(0), ..Quotas::UNLIMITED };
        assert!(check_room(&none, Usage::default(), false).is_err());
    }
}
