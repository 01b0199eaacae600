//! When a call is tried again.

use std::time::Duration;

/// How often and how long a call is tried: exponential backoff with full jitter, bounded by a
/// number of attempts and by a time for all of them together.
///
/// Tried again are connections that fail, and answers of 429, 503 and 507; `retryAfterMs` of an
/// answer is waited for.
///
/// A consumer tries what concerns a lease that it holds until that ends, however often and however
/// long this says: its pauses alone count there, of 200 ms at least. Every error that may pass is
/// tried again then ([`Error::is_passing`](crate::Error::is_passing)), and `retryAfterMs` is waited
/// for during half of what is left of the lease at most.
///
/// ```
/// use std::time::Duration;
/// use client::Retry;
///
/// let patient = Retry { attempts: 20, deadline: Duration::from_secs(600), ..Retry::default() };
/// assert_eq!(patient.base, Duration::from_millis(100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Tries, the first one included; 5 when not set. 1 is no second try.
    pub attempts: u32,
    /// Before the second try a time between nothing and this; doubles with each. 100 ms.
    pub base: Duration,
    /// A pause is no longer than this, unless the server asks for more. 5 s.
    pub max: Duration,
    /// For all tries and pauses together. One minute.
    pub deadline: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            attempts: 5,
            base: Duration::from_millis(100),
            max: Duration::from_secs(5),
            deadline: Duration::from_mins(1),
        }
    }
}

impl Retry {
    /// One try and no other.
    #[must_use]
    pub fn none() -> Retry {
        Retry { attempts: 1, ..Retry::default() }
    }

    /// The pause after `failures` tries; `draw` is any number.
    pub(crate) fn pause(&self, failures: u32, asked_ms: Option<u64>, draw: u64) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let whole = self.base.saturating_mul(1 << doublings).min(self.max);
        let whole_ms = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX - 1);
        // On top of what the server asks for: who was refused together must not return together.
        let jitter = Duration::from_millis(draw % (whole_ms + 1));
        Duration::from_millis(asked_ms.unwrap_or(0)).saturating_add(jitter)
    }
}

/// The least pause between tries of what concerns a lease. When less is left of it, there is no
/// further try.
pub(crate) const LEASE_REST: Duration = Duration::from_millis(200);
/// A try of what concerns a lease has so long, as far as there is so much left: enough for a server
/// that is slow.
const LEASE_TRY_MIN: Duration = Duration::from_secs(1);

impl Retry {
    /// The pause after `failures` tries of what concerns a lease that has `left`; `None` when it is too
    /// late for another. Towards its end they are shorter, whatever the server asks for: afterwards
    /// is too late.
    pub(crate) fn pause_in_lease(
        &self,
        failures: u32,
        asked_ms: Option<u64>,
        draw: u64,
        left: Duration,
    ) -> Option<Duration> {
        let pause = self.pause(failures, asked_ms, draw).min(left / 2).max(LEASE_REST);
        (left >= pause + LEASE_REST).then_some(pause)
    }
}

/// How long one try of what concerns a lease that has `left` may take, so that after one that is not
/// answered there is time for another. Never nothing: a lease may be over only by our clock.
pub(crate) fn try_in_lease(timeout: Duration, left: Duration) -> Duration {
    (left / 2).max(LEASE_TRY_MIN).min(left).max(LEASE_REST).min(timeout)
}

/// What a second try may do, which decides whether there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice is as good as once.
    Freely,
    /// Only if the first was certainly not carried out.
    IfNotDone,
    /// Twice is harmless, but a 409 after a lost answer says nothing.
    Settling,
    /// Twice is harmless, and a 404 after a lost answer is success.
    Removing,
}

/// A random number; of no use for secrets.
pub(crate) fn draw() -> u64 {
    getrandom::u64().unwrap_or(0)
}

/// A key that no other request has.
pub(crate) fn new_key() -> String {
    format!("{:016x}{:016x}", draw(), draw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_jitter_is_full() {
        let retry = Retry::default();
        let longest = |failures| {
            let all = (0..6000).map(|draw| retry.pause(failures, None, draw));
            all.max().expect("some").as_millis()
        };
        assert_eq!([1, 2, 3, 6, 7, 60].map(longest), [100, 200, 400, 3200, 5000, 5000]);
        assert_eq!(retry.pause(9, None, 0), Duration::ZERO);
    }

    #[test]
    fn what_the_server_asks_for_is_waited_for() {
        assert_eq!(Retry::default().pause(1, Some(2000), 7), Duration::from_millis(2007));
    }

    #[test]
    fn tries_for_a_lease_go_on_until_it_ends_with_a_rest_between_them() {
        let retry = Retry { base: Duration::ZERO, ..Retry::none() };
        let mut left = Duration::from_secs(30);
        let mut tries = 1;
        while let Some(pause) = retry.pause_in_lease(tries, Some(100), u64::MAX - 1, left) {
            assert!(pause >= LEASE_REST, "never at once: {pause:?}");
            left = left.checked_sub(pause).expect("no longer than what is left");
            assert!(left >= LEASE_REST, "no try in the last moment: {left:?}");
            tries += 1;
        }
        assert!(left < 2 * LEASE_REST && (100..=150).contains(&tries), "{tries}, {left:?}");
    }

    #[test]
    fn half_of_what_is_left_of_a_lease_is_waited_for_at_most() {
        let pause = |seconds| {
            let left = Duration::from_secs(seconds);
            Retry::default().pause_in_lease(1, Some(10_000), 0, left).map(|pause| pause.as_secs())
        };
        assert_eq!([30, 8, 2].map(pause), [Some(10), Some(4), Some(1)]);
    }

    #[test]
    fn one_try_for_a_lease_leaves_time_for_another() {
        let of = |timeout_ms, left_ms| {
            let [timeout, left] = [timeout_ms, left_ms].map(Duration::from_millis);
            try_in_lease(timeout, left).as_millis()
        };
        assert_eq!(of(30_000, 40_000), 20_000, "half of it");
        assert_eq!(of(30_000, 600_000), 30_000, "as the client is set");
        assert_eq!(of(90_000, 600_000), 90_000, "also if that is long");
        assert_eq!(of(30_000, 1_500), 1_000, "time for a slow server");
        assert_eq!(of(30_000, 700), 700, "not after its end");
        assert_eq!(of(30_000, 0), 200, "one that is over by our clock");
    }

    #[test]
    fn keys_differ() {
        assert_ne!(new_key(), new_key());
        assert_eq!(new_key().len(), 32);
    }
}
