//! How fast a shard takes commands while its checkpoints fall behind.
//!
//! A flood fills memory faster than a checkpoint empties it. A shard that took everything until its
//! memory is full, and nothing until the checkpoint is done, would have everybody wait for hundreds of
//! milliseconds, whoever it was that filled it. So from half on it takes less at a time and rests in
//! between, the longer the fuller it is. Tenants have their turns in what it takes, so that one with
//! little to ask waits for a rest or two.

use std::time::Duration;

/// Rows in memory from which on it is slower, and the checkpoint only takes breath, where so many
/// bytes are all there may be.
pub(crate) fn slow_from(bytes_max: usize) -> usize {
    bytes_max / 2
}

/// Bytes of commands a second when memory is half way from there to full.
const HALF_WAY_PER_SECOND: usize = 64 << 20;
/// However full it is, until it is.
const PER_SECOND_MIN: usize = 1 << 20;
/// As much is taken at a time as is worth a rest of a millisecond.
const RESTS_PER_SECOND: usize = 1000;
/// No command is worth more: the largest has a megabyte.
const REST_MAX: Duration = Duration::from_millis(20);

/// Bytes of commands a second that a shard takes with so many bytes of rows in memory, of so many that
/// there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    per_second: Option<usize>,
}

impl Pace {
    pub(crate) fn of(active_bytes: usize, bytes_max: usize) -> Pace {
        let over = active_bytes.saturating_sub(slow_from(bytes_max));
        let left = bytes_max.saturating_sub(active_bytes);
        let per_second = ((HALF_WAY_PER_SECOND >> 10) * left).checked_div(over);
        let per_second = per_second.map(|kib| (kib << 10).max(PER_SECOND_MIN));
        Pace { per_second }
    }

    /// Bytes to take at a time; one command may have more.
    pub(crate) fn bytes_at_once(self) -> usize {
        self.per_second.map_or(usize::MAX, |rate| rate / RESTS_PER_SECOND)
    }

    /// How long to rest after so many bytes.
    pub(crate) fn rest(self, bytes: usize) -> Duration {
        let rest = |rate| Duration::from_secs_f64(bytes as f64 / rate as f64).min(REST_MAX);
        self.per_second.map_or(Duration::ZERO, rest)
    }
}

#[cfg(test)]
mod tests {
    use kernel::limits::OVERLAY_BYTES_MAX;

    use super::*;

    const SLOW_FROM_BYTES: usize = OVERLAY_BYTES_MAX / 2;
    const ROOM: usize = OVERLAY_BYTES_MAX - SLOW_FROM_BYTES;

    fn pace(active_bytes: usize) -> Pace {
        Pace::of(active_bytes, OVERLAY_BYTES_MAX)
    }

    #[test]
    fn with_room_enough_it_is_as_fast_as_it_goes() {
        for active in [0, SLOW_FROM_BYTES] {
            let pace = pace(active);
            assert_eq!((pace.bytes_at_once(), pace.rest(1 << 20)), (usize::MAX, Duration::ZERO));
        }
    }

    #[test]
    fn the_fuller_the_slower_but_never_not_at_all() {
        let rates: Vec<usize> = (1..=10)
            .map(|tenths| pace(SLOW_FROM_BYTES + ROOM / 10 * tenths))
            .map(|pace| pace.per_second.expect("a bound"))
            .collect();
        assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
        let half_way = pace(SLOW_FROM_BYTES + ROOM / 2);
        assert_eq!(half_way.per_second, Some(HALF_WAY_PER_SECOND));
        assert_eq!(pace(OVERLAY_BYTES_MAX * 2).per_second, Some(PER_SECOND_MIN));
    }

    #[test]
    fn what_is_taken_at_once_is_worth_a_short_rest() {
        for tenths in 1..10 {
            let pace = pace(SLOW_FROM_BYTES + ROOM / 10 * tenths);
            assert!(pace.rest(pace.bytes_at_once()) <= Duration::from_millis(1), "{tenths}");
            assert!(pace.rest(1 << 20) <= REST_MAX, "{tenths}");
        }
    }
}
