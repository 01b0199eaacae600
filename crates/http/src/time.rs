//! RFC 3339 times with milliseconds, in UTC: `2026-02-03T04:05:06.789Z`.

use std::fmt;

use serde::{Serialize, Serializer};

/// The last millisecond that four digits of a year can show.
pub const MS_MAX: u64 = 253_402_300_799_999;

const LEN: usize = 24;

/// A time as text, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rfc3339([u8; LEN]);

/// Unix milliseconds as text. Times after the year 9999 show as its end.
#[must_use]
pub fn rfc3339(ms: u64) -> Rfc3339 {
    let ms = ms.min(MS_MAX);
    let (days, in_day) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    put(&mut text[0..4], year);
    put(&mut text[5..7], month);
    put(&mut text[8..10], day);
    put(&mut text[11..13], in_day / 3_600_000);
    put(&mut text[14..16], in_day / 60_000 % 60);
    put(&mut text[17..19], in_day / 1000 % 60);
    put(&mut text[20..23], in_day % 1000);
    Rfc3339(text)
}

/// The Unix milliseconds of a text; `None` when it is not a time from 1970 to 9999.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok().filter(|ms| *ms <= MS_MAX)
}

/// Year, month and day of a day since 1970, counted in years that begin in March, so that the
/// leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 0000-03-01 to 1970-01-01
    let era = days / 146_097; // 400 years
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn put(digits: &mut [u8], mut value: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789"[(value % 10) as usize];
        value /= 10;
    }
    debug_assert_eq!(value, 0, "it has as many digits as there are places");
}

impl Rfc3339 {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and signs")
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_as_they_were_written() {
        // A prime step, so that every field takes many values over the 8000 years.
        let mut ms = 0;
        while ms <= MS_MAX {
            let text = rfc3339(ms);
            assert_eq!(parse(text.as_str()), Some(ms), "{text}");
            ms += 25_340_230_103;
        }
    }

    #[test]
    fn edges() {
        assert_eq!(rfc3339(0).as_str(), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_001).as_str(), "2000-02-29T00:00:00.001Z");
        assert_eq!(rfc3339(u64::MAX).as_str(), "9999-12-31T23:59:59.999Z");
        assert_eq!(parse("2026-02-03T04:05:06+01:00"), Some(1_770_087_906_000));
        for bad in ["", "now", "2026-02-30T00:00:00Z", "1969-12-31T23:59:59Z", "2026-02-03"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
