//! Numbers as people read and write them: sizes, times, durations.

use std::time::Duration;

const DAY: u64 = 86_400;

/// Bytes, in a unit that suits.
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        _ if bytes < 1e3 => format!("{bytes:.0} B"),
        _ if bytes < 1e6 => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}

/// The same of a whole number of them.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn size_of(bytes: u64) -> String {
    size(bytes as f64)
}

/// A time since the epoch in UTC, to the second: `2026-11-23 07:14:53Z`.
pub(crate) fn utc(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (mut day, second) = (seconds / DAY, seconds % DAY);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}Z", day + 1)
}

/// A duration with a unit: `90s`, `30m`, `12h`, `7d`, `2w`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let needed = || "a duration is needed, such as 90s, 30m, 12h, 7d or 2w".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        "w" => 7 * DAY,
        _ => return Err(needed()),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.map(Duration::from_secs).ok_or_else(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_that_suit() {
        assert_eq!([999.0, 1500.0, 2e6].map(size), ["999 B", "1.5 kB", "2.0 MB"]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| utc(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01 00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31 23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01 00:00:00Z");
        assert!(utc(u64::MAX).starts_with("2554-"));
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2w"), Ok(Duration::from_secs(14 * DAY)));
        for refused in ["", "d", "5", "1y", "-1d", "1.5h", "99999999999999999999d", "9999999999999999999w"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
    }
}
