//! Durations and sizes as people write them: `"25s"`, `"7d"`, `"2MB"`, `"64KiB"`.

use std::time::Duration;

/// A duration that does not end. It is 2^32 - 1 seconds, which is also what a Session Expiry Interval of 0xFFFFFFFF says
/// (MQTT 5.0, 3.1.2.11.2).
pub const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

pub(super) const DURATION_UNITS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1000),
    ("m", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
    ("w", 7 * 24 * 60 * 60 * 1000),
];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads `"500ms"`, `"25s"`, `"5m"`, `"2h"`, `"7d"`, `"1w"`. A zero needs no unit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    if unit.is_empty() {
        return (number == 0).then_some(Duration::ZERO);
    }
    let (_, millis) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*millis).map(Duration::from_millis)
}

/// Reads `"2MB"` (powers of 1000), `"64KiB"` (powers of 1024), `"512"` and `"512B"`. Case does not matter.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    if unit.is_empty() {
        return Some(number);
    }
    let (_, factor) = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.checked_mul(*factor)
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim_start_matches(' ')))
}

/// A duration in the largest unit that says it exactly.
pub(super) fn show_duration(duration: Duration) -> String {
    if duration == NEVER {
        return "never".to_owned();
    }
    let millis = duration.as_millis();
    let exact = |&&(_, unit): &&(&str, u64)| millis.is_multiple_of(u128::from(unit));
    match DURATION_UNITS.iter().rev().find(exact) {
        Some((_, _)) if millis == 0 => "0s".to_owned(),
        Some((name, unit)) => format!("{}{name}", millis / u128::from(*unit)),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("25s"), Some(Duration::from_secs(25)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("5 m"), Some(Duration::from_secs(300)));
        assert_eq!(parse_duration("7d"), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(parse_duration("0"), Some(Duration::ZERO));
        for wrong in ["", "s", "25", "-1s", "1.5s", "1y", "1S", "99999999999999999999s", "18446744073709551615w"] {
            assert_eq!(parse_duration(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("2MB"), Some(2_000_000));
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("64 kib"), Some(65_536));
        assert_eq!(parse_size("17"), Some(17));
        for wrong in ["", "MB", "-1", "1.5MB", "1XB", "1M", "18446744073709551615GB"] {
            assert_eq!(parse_size(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn durations_are_shown_in_the_largest_exact_unit() {
        for text in ["0s", "1500ms", "25s", "5m", "2h", "1d", "1w"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(show_duration(NEVER), "never");
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
    }
}
