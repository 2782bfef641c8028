//! The registers of a virtio device in memory (virtio 1.2, 4.2.2), of a block device with one queue.

use super::queue::{MOST, Queue};
use crate::saved::saved;

/// A store here tells the device of new requests.
pub(super) const NOTIFY: u64 = 0x50;
/// Why it interrupts: buffers were used; its configuration has changed.
pub(super) const USED: u32 = 1;
pub(super) const CHANGED: u32 = 2;

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
const BLOCK_DEVICE: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"GRTL");
/// The configuration space.
const CONFIGURATION: u64 = 0x100;

mod status {
    pub(super) const DRIVER_OK: u32 = 4;
    pub(super) const FEATURES_OK: u32 = 8;
    pub(super) const NEEDS_RESET: u32 = 64;
}

/// Features: parts of a request have a number at most; the disk can only be read; it is flushed; version 1.
mod feature {
    pub(super) const PARTS: u64 = 1 << 2;
    pub(super) const READ_ONLY: u64 = 1 << 5;
    pub(super) const FLUSH: u64 = 1 << 9;
    pub(super) const VERSION_1: u64 = 1 << 32;
}

/// The registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transport {
    /// Which half of the features is shown, and which is written.
    shown: u32,
    written: u32,
    /// What the driver takes.
    features: u64,
    status: u32,
    selected: u32,
    /// Why it interrupts.
    pub(super) interrupts: u32,
    pub(super) queue: Queue,
}

saved!(struct Transport { shown, written, features, status, selected, interrupts, queue });

const fn offered(read_only: bool) -> u64 {
    let read_only = if read_only { feature::READ_ONLY } else { 0 };
    feature::VERSION_1 | feature::FLUSH | feature::PARTS | read_only
}

/// The half of 64 bits that a selector means; nothing is behind these.
#[expect(clippy::cast_possible_truncation, reason = "a half is meant")]
const fn half(value: u64, selector: u32) -> u32 {
    match selector {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

/// Replaces the low half, or the high one.
fn set_half(of: &mut u64, is_high: bool, value: u32) {
    let shift = if is_high { 32 } else { 0 };
    *of = *of & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

impl Transport {
    /// Whether the driver is done with setting it up, and nothing has gone wrong since.
    pub(super) fn is_running(&self) -> bool {
        self.status & status::DRIVER_OK != 0 && self.status & status::NEEDS_RESET == 0
    }

    pub(super) fn need_reset(&mut self) {
        self.status |= status::NEEDS_RESET;
    }

    /// A load, from a disk of so many sectors.
    pub(super) fn read(&self, offset: u64, sectors: u64, read_only: bool) -> u32 {
        match offset {
            0x00 => MAGIC,
            0x04 => VERSION,
            0x08 => BLOCK_DEVICE,
            0x0c => VENDOR,
            0x10 => half(offered(read_only), self.shown),
            // There is one queue.
            0x34 if self.selected == 0 => MOST.into(),
            0x44 if self.selected == 0 => self.queue.is_ready.into(),
            0x60 => self.interrupts,
            0x70 => self.status,
            // There is no shared memory: its length is -1.
            0xb0..0xc0 => u32::MAX,
            CONFIGURATION => half(sectors, 0),
            0x104 => half(sectors, 1),
            // The parts of a request, without its header and its status.
            0x10c => u32::from(MOST) - 2,
            _ => 0,
        }
    }

    /// A store.
    pub(super) fn write(&mut self, offset: u64, value: u32, read_only: bool) {
        match offset {
            0x14 => self.shown = value,
            0x20 if self.written < 2 => set_half(&mut self.features, self.written == 1, value),
            0x24 => self.written = value,
            0x30 => self.selected = value,
            0x64 => self.interrupts &= !value,
            0x70 => self.set_status(value, read_only),
            _ if self.selected == 0 => self.write_queue(offset, value),
            _ => {}
        }
    }

    fn write_queue(&mut self, offset: u64, value: u32) {
        let queue = &mut self.queue;
        match offset {
            0x38 => {
                let size = u16::try_from(value).unwrap_or(0);
                queue.size = if size <= MOST && size.is_power_of_two() { size } else { 0 };
            }
            0x44 => queue.is_ready = value & 1 != 0 && queue.size > 0,
            0x80 | 0x84 => set_half(&mut queue.descriptors, offset == 0x84, value),
            0x90 | 0x94 => set_half(&mut queue.available, offset == 0x94, value),
            0xa0 | 0xa4 => set_half(&mut queue.used, offset == 0xa4, value),
            _ => {}
        }
    }

    /// Zero resets. Features that were not offered are not taken, and neither is a driver of the time before version 1.
    fn set_status(&mut self, value: u32, read_only: bool) {
        if value == 0 {
            *self = Transport::default();
            return;
        }
        let takes = self.features & !offered(read_only) == 0 && self.features & feature::VERSION_1 != 0;
        let refused = if takes { 0 } else { status::FEATURES_OK };
        self.status = value & !refused | self.status & status::NEEDS_RESET;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_were_not_offered_are_refused() {
        let accepts = |features: u64, read_only| {
            let mut registers = Transport::default();
            for (selector, value) in [(0, half(features, 0)), (1, half(features, 1))] {
                registers.write(0x24, selector, read_only);
                registers.write(0x20, value, read_only);
            }
            registers.write(0x70, 11, read_only);
            registers.read(0x70, 0, read_only) == 11
        };
        assert!(accepts(feature::VERSION_1 | feature::FLUSH, false));
        assert!(!accepts(feature::FLUSH, false), "without version 1");
        assert!(!accepts(feature::VERSION_1 | feature::READ_ONLY, false));
        assert!(accepts(feature::VERSION_1 | feature::READ_ONLY, true));
    }

    #[test]
    fn it_says_what_it_is_and_a_zero_resets_it() {
        let mut registers = Transport::default();
        let read = |registers: &Transport, offset| registers.read(offset, 0x1_0000_0002, false);
        assert_eq!([0, 4, 8].map(|at| read(&registers, at)), [MAGIC, 2, 2]);
        assert_eq!([0x100, 0x104].map(|at| read(&registers, at)), [2, 1]);
        for (offset, value) in [(0x38, 8), (0x44, 1), (0x84, 5)] {
            registers.write(offset, value, false);
        }
        assert_eq!((read(&registers, 0x44), registers.queue.descriptors), (1, 5 << 32));
        registers.write(0x38, 7, false);
        assert_eq!(registers.queue.size, 0, "sizes are powers of two");
        registers.write(0x70, 0, false);
        assert_eq!(registers, Transport::default());
        registers.write(0x30, 1, false);
        assert_eq!((read(&registers, 0x34), read(&registers, 0x44)), (0, 0), "there is one queue");
    }
}
