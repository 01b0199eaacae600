//! When a call is tried again.

use std::time::Duration;

/// How often and how long a call is tried: exponential backoff with full jitter, bounded by a
/// number of attempts and by a time for all of them together.
///
/// A consumer tries what concerns a lease that it holds until that ends, however often and however
/// long this says: its pauses alone count there.
///
/// Tried again are connections that fail, and answers of 429, 503 and 507; `retryAfterMs` of an
/// answer is waited for.
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

/// What is left of a lease when no further try is worth it.
pub(crate) const LEASE_REST: Duration = Duration::from_millis(20);

impl Retry {
    /// The pause after `failures` tries of what is tried as long as a lease has `left`; `None` when
    /// it is over. Towards its end they are shorter, whatever the server asks for: afterwards is too
    /// late.
    pub(crate) fn pause_within(
        &self,
        failures: u32,
        asked_ms: Option<u64>,
        draw: u64,
        left: Duration,
    ) -> Option<Duration> {
        (left > LEASE_REST)
            .then(|| self.pause(failures, asked_ms, draw).min(left / 2).max(LEASE_REST))
    }
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
    fn tries_for_a_lease_go_on_until_it_ends() {
        let retry = Retry { base: Duration::ZERO, ..Retry::none() };
        let mut left = Duration::from_secs(30);
        let mut tries = 0;
        while let Some(pause) = retry.pause_within(tries + 1, Some(100), u64::MAX - 1, left) {
            left = left.saturating_sub(pause);
            tries += 1;
        }
        assert!(left <= LEASE_REST && (10..1000).contains(&tries), "{tries}, {left:?}");
        let all = Duration::from_secs(30);
        assert!(retry.pause_within(1000, None, 1, all) == Some(LEASE_REST), "never at once");
    }

    #[test]
    fn keys_differ() {
        assert_ne!(new_key(), new_key());
        assert_eq!(new_key().len(), 32);
    }
}
