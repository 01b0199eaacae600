//! The times of signatures, in seconds since 1970.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Reads `20150830T123600Z`.
pub(super) fn basic(text: &str) -> Option<i64> {
    let bytes: &[u8; 16] = text.as_bytes().try_into().ok()?;
    if bytes[8] != b'T' || bytes[15] != b'Z' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().try_fold(0_i16, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i16::from(byte - b'0'))
        })
    };
    let small = |range| i8::try_from(number(range)?).ok();
    let time = DateTime::new(
        number(0..4)?,
        small(4..6)?,
        small(6..8)?,
        small(9..11)?,
        small(11..13)?,
        small(13..15)?,
        0,
    );
    Some(TimeZone::UTC.to_timestamp(time.ok()?).ok()?.as_second())
}

/// Reads the `Date` header, `Sun, 30 Aug 2015 12:36:00 GMT`, as seconds and in the basic format.
pub(super) fn http_date(text: &str) -> Option<(i64, String)> {
    let zoned = jiff::fmt::rfc2822::parse(text).ok()?.with_time_zone(TimeZone::UTC);
    Some((zoned.timestamp().as_second(), zoned.strftime("%Y%m%dT%H%M%SZ").to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        assert_eq!(basic("20150830T123600Z"), Some(1_440_938_160));
        let expected = (1_440_938_160, "20150830T123600Z".to_owned());
        assert_eq!(http_date("Sun, 30 Aug 2015 12:36:00 GMT"), Some(expected));
    }

    #[test]
    fn other_texts_are_not() {
        for text in
            ["", "20150830T123600", "20150830 123600Z", "20151330T123600Z", "2015083éT12360Z"]
        {
            assert_eq!(basic(text), None, "{text}");
        }
        assert_eq!(http_date("yesterday"), None);
    }
}
