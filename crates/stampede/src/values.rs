//! Values of flags: numbers and times, and what is said of those that are none.

use std::any::TypeId;
use std::num::IntErrorKind;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Arg;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The longest lease that a queue gives.
const LEASE_MAX: Duration = Duration::from_secs(12 * HOUR);

/// A whole number of this range, which `T` must have room for. A range up to the largest number that
/// there is has no end that is told.
pub(crate) fn number<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<u64>();
        let is_too_large = number.as_ref().is_err_and(|e| *e.kind() == IntErrorKind::PosOverflow);
        let fits = number.ok().filter(|number| range.contains(number));
        fits.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            match (range.start(), range.end()) {
                (_, &u64::MAX) if is_too_large => "it is too large".to_owned(),
                (from, &u64::MAX) => format!("it must be a whole number, {from} or more"),
                (from, to) => format!("it must be a whole number from {from} to {to}"),
            }
        })
    }
}

/// `30`, `30s`, `5m`, `2h` or `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, "s"),
    };
    let factor = match unit {
        "m" => MINUTE,
        "h" => HOUR,
        "d" => DAY,
        _ => 1,
    };
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("it is like 30, 30s, 5m, 2h or 1d".to_owned());
    }
    if digits.len() < number.len() {
        return Err("it must not be less than 0".to_owned());
    }
    let seconds = number.parse().ok().and_then(|number: u64| number.checked_mul(factor));
    seconds.map(Duration::from_secs).ok_or_else(|| "it is too large".to_owned())
}

/// How long a message is held by who works on it.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if (Duration::from_secs(1)..=LEASE_MAX).contains(&time) {
        return Ok(time);
    }
    Err(format!("it must be from 1s to {}", in_units(LEASE_MAX.as_secs())))
}

/// Seconds as they are written: 43200 is `12h`.
pub(crate) fn in_units(seconds: u64) -> String {
    let units = [(DAY, 'd'), (HOUR, 'h'), (MINUTE, 'm'), (1, 's')];
    match units.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit)) {
        Some((unit, name)) if seconds > 0 => format!("{}{name}", seconds / unit),
        _ => seconds.to_string(),
    }
}

/// What is below zero is a value that is refused as such, not a flag that there is not.
pub(crate) fn below_zero_is_a_value(arg: Arg) -> Arg {
    let holds = arg.get_value_parser().type_id();
    let numbers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
    ];
    if holds == TypeId::of::<Duration>() {
        return arg.allow_hyphen_values(true);
    }
    let is_number = numbers.iter().any(|number| holds == *number);
    if is_number { arg.allow_negative_numbers(true) } else { arg }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_of_their_range() {
        let of = |text| number::<u16>(1..=64)(text);
        assert_eq!((of("1"), of("64")), (Ok(1), Ok(64)));
        for bad in ["0", "65", "100000", "99999999999999999999", "-1", "1.5", "high", ""] {
            let said = "it must be a whole number from 1 to 64".to_owned();
            assert_eq!(of(bad), Err(said), "{bad}");
        }
        let any = |text| number::<u64>(1..=u64::MAX)(text);
        assert_eq!(any("18446744073709551615"), Ok(u64::MAX));
        for bad in ["0", "-1", "none"] {
            assert_eq!(any(bad), Err("it must be a whole number, 1 or more".to_owned()), "{bad}");
        }
        assert_eq!(any("18446744073709551616"), Err("it is too large".to_owned()));
    }

    #[test]
    fn durations_have_units() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs());
        assert_eq!([seconds("7"), seconds("7s"), seconds("2m")], [Ok(7), Ok(7), Ok(120)]);
        assert_eq!([seconds("1h"), seconds("1d"), seconds("0")], [Ok(3600), Ok(86_400), Ok(0)]);
        for bad in ["", "s", "-", "-s", "--fifo", "1.5", "1w", "+1"] {
            assert!(seconds(bad).is_err_and(|said| said.contains("30s, 5m")), "{bad}");
        }
        for large in ["99999999999999999999", "99999999999999999999d", "999999999999999999d"] {
            assert_eq!(seconds(large), Err("it is too large".to_owned()), "{large}");
        }
        for below in ["-1", "-5s"] {
            assert_eq!(seconds(below), Err("it must not be less than 0".to_owned()), "{below}");
        }
        for time in ["1s", "90s", "5m", "12h", "3650d"] {
            assert_eq!(seconds(time).map(in_units), Ok(time.to_owned()));
        }
        assert_eq!(in_units(0), "0");
    }

    #[test]
    fn leases_end_and_do_not_begin_at_their_end() {
        assert_eq!(lease("12h"), Ok(LEASE_MAX));
        for bad in ["0", "0s", "13h"] {
            assert_eq!(lease(bad), Err("it must be from 1s to 12h".to_owned()), "{bad}");
        }
    }
}
