//! Medians, percentiles and rates.

use std::time::Duration;

/// The middle one. 0 for none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The value that `permille` of a thousand do not exceed. Sorts. 0 for none.
pub(crate) fn percentile(values: &mut [u32], permille: usize) -> u32 {
    values.sort_unstable();
    let place = (values.len() * permille).div_ceil(1000).max(1) - 1;
    values.get(place).copied().unwrap_or(0)
}

/// So many in such a time, a second.
pub(crate) fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

/// Whole microseconds, at most an hour of them.
pub(crate) fn micros(took: Duration) -> u32 {
    u32::try_from(took.as_micros()).unwrap_or(u32::MAX)
}

/// A number that people can read: `1.23 M`, `45.6 k`, `7.89`.
pub(crate) fn short(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}{suffix}")
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Scramble(pub(crate) u64);

impl Scramble {
    /// The next one (splitmix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use super::{median, percentile, short};

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values: Vec<u32> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 990), 99);
        assert_eq!(percentile(&mut values, 1000), 100);
        assert_eq!(percentile(&mut values, 500), 50);
        assert_eq!(percentile(&mut [], 500), 0);
    }

    #[test]
    fn numbers_are_shortened_to_three_digits() {
        assert_eq!(short(1_234_567.0), "1.23 M");
        assert_eq!(short(45_600.0), "45.6 k");
        assert_eq!(short(0.5), "0.50");
    }
}
