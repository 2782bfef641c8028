//! The 8254 timer: channel 0 interrupts, channel 2 is what a kernel measures its clock with (Intel 8254 data sheet).
//!
//! A channel is a time at which it was loaded; counts are worked out when they are read. Modes 1 and 5 need a gate that channel 0
//! has not, so they count as mode 0; BCD is not served: it counts in binary.

use crate::clock::{nanoseconds, ticks};
use crate::saved::saved;

/// The frequency of all three channels.
const HERTZ: u64 = 1_193_182;

/// How the two bytes of a count are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Access {
    #[default]
    Low,
    High,
    Both,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Channel {
    mode: u8,
    access: Access,
    /// The count that was loaded; 0 is 65,536.
    reload: u16,
    /// When it was loaded.
    since: Option<u64>,
    /// The low byte that was written, while the high one is missing.
    low: Option<u8>,
    latched: Option<u16>,
    /// The next byte that is read is the high one.
    reads_high: bool,
    /// How many periods or shots have been told.
    told: u64,
}

saved!(
    enum Access {
        Low,
        High,
        Both,
    }
);
saved!(struct Channel { mode, access, reload, since, low, latched, reads_high, told });

impl Channel {
    fn period(&self) -> u64 {
        if self.reload == 0 { 0x1_0000 } else { self.reload.into() }
    }

    const fn is_periodic(&self) -> bool {
        matches!(self.mode, 2 | 3)
    }

    fn elapsed(&self, now: u64) -> u64 {
        self.since.map_or(0, |since| ticks(now - since.min(now), HERTZ))
    }

    #[expect(clippy::cast_possible_truncation, reason = "a counter has 16 bits")]
    fn count(&self, now: u64) -> u16 {
        let (elapsed, period) = (self.elapsed(now), self.period());
        match self.mode {
            2 => (period - elapsed % period) as u16,
            3 => (period - 2 * elapsed % period) as u16,
            _ => period.wrapping_sub(elapsed) as u16,
        }
    }

    /// The level of its output.
    fn output(&self, now: u64) -> bool {
        let (elapsed, period) = (self.elapsed(now), self.period());
        match self.mode {
            2 => elapsed % period != period - 1,
            3 => elapsed % period < period.div_ceil(2),
            _ => self.since.is_some() && elapsed >= period,
        }
    }

    /// When its output rises next.
    fn due(&self) -> Option<u64> {
        let since = self.since?;
        if !self.is_periodic() && self.told > 0 {
            return None;
        }
        Some(
            since.saturating_add(nanoseconds(
                self.told.saturating_add(1).saturating_mul(self.period()),
                HERTZ,
            )),
        )
    }

    fn load(&mut self, reload: u16, now: u64) {
        self.reload = reload;
        self.since = Some(now);
        self.told = 0;
    }

    fn write(&mut self, value: u8, now: u64) {
        match (self.access, self.low.take()) {
            (Access::Low, _) => self.load(value.into(), now),
            (Access::High, _) => self.load(u16::from(value) << 8, now),
            (Access::Both, None) => self.low = Some(value),
            (Access::Both, Some(low)) => self.load(u16::from_le_bytes([low, value]), now),
        }
    }

    fn read(&mut self, now: u64) -> u8 {
        let [low, high] = self.latched.unwrap_or_else(|| self.count(now)).to_le_bytes();
        let is_high = match self.access {
            Access::Low => false,
            Access::High => true,
            Access::Both => {
                self.reads_high = !self.reads_high;
                !self.reads_high
            }
        };
        if is_high || self.access != Access::Both {
            self.latched = None;
        }
        if is_high { high } else { low }
    }
}

/// The timer, and port 0x61, which has the gate of its channel 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pit {
    channels: [Channel; 3],
    gate: u8,
}

saved!(struct Pit { channels, gate });

impl Pit {
    /// When channel 0 interrupts next.
    pub(super) fn due(&self) -> Option<u64> {
        self.channels[0].due()
    }

    /// Whether channel 0 has interrupted up to now, since it was asked last. Several periods are one interrupt.
    pub(super) fn fire(&mut self, now: u64) -> bool {
        let channel = &mut self.channels[0];
        let is_due = channel.due().is_some_and(|due| due <= now);
        if is_due {
            channel.told = channel.elapsed(now) / channel.period();
        }
        is_due
    }

    /// IN from 0x40 to 0x43.
    pub(super) fn read(&mut self, port: u16, now: u64) -> u8 {
        match self.channels.get_mut(usize::from(port & 3)) {
            Some(channel) => channel.read(now),
            None => 0,
        }
    }

    /// OUT to 0x40 to 0x43.
    pub(super) fn write(&mut self, port: u16, value: u8, now: u64) {
        match self.channels.get_mut(usize::from(port & 3)) {
            Some(channel) => channel.write(value, now),
            None => self.control(value, now),
        }
    }

    fn control(&mut self, value: u8, now: u64) {
        let Some(channel) = self.channels.get_mut(usize::from(value >> 6)) else {
            return self.read_back(value, now);
        };
        let access = match value >> 4 & 3 {
            0 => {
                channel.latched = channel.latched.or_else(|| Some(channel.count(now)));
                return;
            }
            1 => Access::Low,
            2 => Access::High,
            _ => Access::Both,
        };
        // Bit 2 of modes 2 and 3 does not count.
        let mode = if value & 4 != 0 && value & 8 == 0 { value >> 1 & 3 } else { value >> 1 & 7 };
        *channel = Channel { mode, access, ..Channel::default() };
    }

    /// The command that latches several counts; the status that it can ask for is not served.
    fn read_back(&mut self, value: u8, now: u64) {
        for (n, channel) in self.channels.iter_mut().enumerate() {
            if value & 0x20 == 0 && value >> (n + 1) & 1 != 0 {
                channel.latched = channel.latched.or_else(|| Some(channel.count(now)));
            }
        }
    }

    /// IN from 0x61: the gate of channel 2, and its output in bit 5.
    pub(super) fn read_gate(&self, now: u64) -> u8 {
        self.gate & 3 | u8::from(self.channels[2].output(now)) << 5
    }

    /// OUT to 0x61. Where the gate opens the count begins again.
    pub(super) fn write_gate(&mut self, value: u8, now: u64) {
        if value & !self.gate & 1 != 0 && self.channels[2].since.is_some() {
            let reload = self.channels[2].reload;
            self.channels[2].load(reload, now);
        }
        self.gate = value & 3;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programmed(mode: u8, count: u16) -> Pit {
        let mut pit = Pit::default();
        pit.write(0x43, 0x30 | mode << 1, 0);
        count.to_le_bytes().iter().for_each(|byte| pit.write(0x40, *byte, 0));
        pit
    }

    #[test]
    fn a_periodic_channel_interrupts_at_each_period() {
        let mut pit = programmed(2, 11_932);
        let first = pit.due().unwrap();
        assert!((10_000_000..10_001_000).contains(&first), "a hundredth of a second: {first}");
        assert!(!pit.fire(first - 1) && pit.fire(first) && !pit.fire(first));
        assert_eq!(pit.due().unwrap(), nanoseconds(2 * 11_932, HERTZ));
    }

    #[test]
    fn a_shot_is_one_interrupt() {
        let mut pit = programmed(0, 100);
        let due = pit.due().unwrap();
        assert!(pit.fire(due) && pit.due().is_none());
    }

    #[test]
    fn a_latched_count_stays_until_both_bytes_are_read() {
        let mut pit = programmed(2, 1000);
        let then = nanoseconds(10, HERTZ);
        pit.write(0x43, 0, then);
        let bytes = [pit.read(0x40, then), pit.read(0x40, 2 * then)];
        assert_eq!(u16::from_le_bytes(bytes), 990);
    }

    #[test]
    fn the_gate_of_channel_2_starts_its_count() {
        let mut pit = Pit::default();
        pit.write(0x43, 0xb0, 0);
        pit.write(0x42, 100, 0);
        pit.write(0x42, 0, 0);
        pit.write_gate(1, 5_000);
        let end = 5_000 + nanoseconds(100, HERTZ);
        assert_eq!([pit.read_gate(end - 1), pit.read_gate(end)].map(|byte| byte >> 5), [0, 1]);
    }
}
