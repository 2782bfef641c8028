//! The clock and the 128 bytes behind ports 0x70 and 0x71 (Motorola MC146818A data sheet): the time of day, in BCD and 24 hours.
//! It makes no interrupts, and what is written to it is kept but changes no time.

use crate::saved::saved;

const NANOSECONDS: u64 = 1_000_000_000;

/// Days, hours and the like of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    second: u64,
    minute: u64,
    hour: u64,
    weekday: u64,
    day: u64,
    month: u64,
    year: u64,
}

impl Date {
    /// The date of so many seconds since 1970 (H. Hinnant, chrono-compatible low-level date algorithms).
    const fn of(unix: u64) -> Date {
        let days = unix / 86_400;
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months from March on.
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let january = month >= 10;
        Date {
            second: unix % 60,
            minute: unix / 60 % 60,
            hour: unix / 3600 % 24,
            weekday: (days + 4) % 7 + 1,
            day,
            month: if january { month - 9 } else { month + 3 },
            year: year_of_era + era * 400 + if january { 1 } else { 0 },
        }
    }
}

/// The chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cmos {
    /// Seconds since 1970 when the machine began.
    start: u64,
    selected: u8,
    bytes: [u8; 128],
}

saved!(struct Cmos { start, selected, bytes });

impl Cmos {
    pub(super) fn new(start: u64) -> Cmos {
        Cmos { start, selected: 0, bytes: [0; 128] }
    }

    /// OUT to 0x70. The highest bit switches NMI, which there is none.
    pub(super) fn select(&mut self, value: u8) {
        self.selected = value & 0x7f;
    }

    /// OUT to 0x71.
    pub(super) fn write(&mut self, value: u8) {
        self.bytes[usize::from(self.selected & 0x7f)] = value;
    }

    /// IN from 0x71.
    pub(super) fn read(&self, now: u64) -> u8 {
        /// Time base and rate as firmware sets them; no update is in progress.
        const STATUS_A: u8 = 0x26;
        const HOURS_24: u8 = 2;
        const VALID: u8 = 0x80;
        let date = Date::of(self.start.saturating_add(now / NANOSECONDS));
        match self.selected {
            0x00 => bcd(date.second),
            0x02 => bcd(date.minute),
            0x04 => bcd(date.hour),
            0x06 => bcd(date.weekday),
            0x07 => bcd(date.day),
            0x08 => bcd(date.month),
            0x09 => bcd(date.year % 100),
            0x32 => bcd(date.year / 100),
            0x0a => STATUS_A,
            0x0b => HOURS_24,
            0x0c => 0,
            0x0d => VALID,
            n => self.bytes[usize::from(n & 0x7f)],
        }
    }
}

/// Two decimal digits.
#[expect(clippy::cast_possible_truncation, reason = "two digits are a byte")]
const fn bcd(n: u64) -> u8 {
    (n / 10 % 10 * 16 + n % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |unix| {
            let Date { second, minute, hour, weekday, day, month, year } = Date::of(unix);
            [year, month, day, hour, minute, second, weekday]
        };
        assert_eq!(date(0), [1970, 1, 1, 0, 0, 0, 5]);
        assert_eq!(date(951_782_400), [2000, 2, 29, 0, 0, 0, 3]);
        assert_eq!(date(1_795_656_486), [2026, 11, 26, 1, 28, 6, 5]);
    }

    #[test]
    fn time_goes_on_with_the_guests_clock() {
        let mut cmos = Cmos::new(59);
        cmos.select(0x80);
        assert_eq!((cmos.read(0), cmos.read(NANOSECONDS)), (0x59, 0));
        cmos.select(0x32);
        assert_eq!(cmos.read(0), 0x19);
    }
}
