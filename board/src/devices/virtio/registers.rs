//! The registers of a virtio device in memory (virtio 1.2, 4.2.2).

use super::queue::{MOST, Queue};
use crate::saved::saved;

/// A store here tells the device of new requests.
pub(in crate::devices) const NOTIFY: u64 = 0x50;
/// Why it interrupts: buffers were used; its configuration has changed.
pub(in crate::devices) const USED: u32 = 1;
pub(in crate::devices) const CHANGED: u32 = 2;

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"GRTL");
/// The configuration space.
const CONFIGURATION: u64 = 0x100;

mod status {
    pub(in crate::devices) const DRIVER_OK: u32 = 4;
    pub(in crate::devices) const FEATURES_OK: u32 = 8;
    pub(in crate::devices) const NEEDS_RESET: u32 = 64;
}

/// Version 1: a device without it is one of the time before.
const VERSION_1: u64 = 1 << 32;

/// What a device is.
#[derive(Clone, Copy, Debug)]
pub(in crate::devices) struct Kind<'c> {
    /// Its number (virtio 1.2, 5).
    pub(in crate::devices) id: u32,
    /// How many queues it has, of three at most.
    pub(in crate::devices) queues: u32,
    /// The features that it offers.
    pub(in crate::devices) features: u64,
    /// What is in its configuration space.
    pub(in crate::devices) configuration: &'c [u8],
}

impl Kind<'_> {
    /// Four bytes of its configuration; zeros behind it.
    fn configuration(&self, offset: u64) -> u32 {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let byte = |n: usize| at.checked_add(n).and_then(|at| self.configuration.get(at)).copied();
        u32::from_le_bytes(std::array::from_fn(|n| byte(n).unwrap_or(0)))
    }
}

/// The registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::devices) struct Transport {
    /// Which half of the features is shown, and which is written.
    shown: u32,
    written: u32,
    /// What the driver takes.
    features: u64,
    status: u32,
    selected: u32,
    /// Why it interrupts.
    pub(in crate::devices) interrupts: u32,
    pub(in crate::devices) queues: [Queue; 3],
}

saved!(struct Transport { shown, written, features, status, selected, interrupts, queues });

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
    pub(in crate::devices) fn is_running(&self) -> bool {
        self.status & status::DRIVER_OK != 0 && self.status & status::NEEDS_RESET == 0
    }

    pub(in crate::devices) fn need_reset(&mut self) {
        self.status |= status::NEEDS_RESET;
    }

    /// The queue that is selected, if there is one.
    fn queue(&self, kind: &Kind<'_>) -> Option<&Queue> {
        let number = usize::try_from(self.selected).ok().filter(|_| self.selected < kind.queues)?;
        self.queues.get(number)
    }

    /// A load.
    pub(in crate::devices) fn read(&self, offset: u64, kind: &Kind<'_>) -> u32 {
        match offset {
            0x00 => MAGIC,
            0x04 => VERSION,
            0x08 => kind.id,
            0x0c => VENDOR,
            0x10 => half(kind.features, self.shown),
            0x34 => self.queue(kind).map_or(0, |_| MOST.into()),
            0x44 => self.queue(kind).is_some_and(|queue| queue.is_ready).into(),
            0x60 => self.interrupts,
            0x70 => self.status,
            // There is no shared memory: its length is -1.
            0xb0..0xc0 => u32::MAX,
            CONFIGURATION.. => kind.configuration(offset - CONFIGURATION),
            _ => 0,
        }
    }

    /// A store.
    pub(in crate::devices) fn write(&mut self, offset: u64, value: u32, kind: &Kind<'_>) {
        match offset {
            0x14 => self.shown = value,
            0x20 if self.written < 2 => set_half(&mut self.features, self.written == 1, value),
            0x24 => self.written = value,
            0x30 => self.selected = value,
            0x64 => self.interrupts &= !value,
            0x70 => self.set_status(value, kind.features),
            _ if self.selected < kind.queues => self.write_queue(offset, value),
            _ => {}
        }
    }

    fn write_queue(&mut self, offset: u64, value: u32) {
        let selected = usize::try_from(self.selected).ok();
        let Some(queue) = selected.and_then(|number| self.queues.get_mut(number)) else { return };
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
    fn set_status(&mut self, value: u32, offered: u64) {
        if value == 0 {
            *self = Transport::default();
            return;
        }
        let takes = self.features & !offered == 0 && self.features & VERSION_1 != 0;
        let refused = if takes { 0 } else { status::FEATURES_OK };
        self.status = value & !refused | self.status & status::NEEDS_RESET;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSH: u64 = 1 << 9;
    const KIND: Kind<'_> =
        Kind { id: 2, queues: 1, features: VERSION_1 | FLUSH, configuration: &[2, 0, 0, 0, 1, 7] };

    #[test]
    fn features_that_were_not_offered_are_refused() {
        let accepts = |features: u64, offered| {
            let (mut registers, kind) = (Transport::default(), Kind { features: offered, ..KIND });
            for (selector, value) in [(0, half(features, 0)), (1, half(features, 1))] {
                registers.write(0x24, selector, &kind);
                registers.write(0x20, value, &kind);
            }
            registers.write(0x70, 11, &kind);
            registers.read(0x70, &kind) == 11
        };
        assert!(accepts(VERSION_1 | FLUSH, VERSION_1 | FLUSH));
        assert!(!accepts(FLUSH, VERSION_1 | FLUSH), "without version 1");
        assert!(!accepts(VERSION_1 | 1 << 5, VERSION_1 | FLUSH));
        assert!(accepts(VERSION_1 | 1 << 5, VERSION_1 | 1 << 5));
    }

    #[test]
    fn it_says_what_it_is_and_a_zero_resets_it() {
        let mut registers = Transport::default();
        let read = |registers: &Transport, offset| registers.read(offset, &KIND);
        assert_eq!([0, 4, 8].map(|at| read(&registers, at)), [MAGIC, 2, 2]);
        assert_eq!([0x100, 0x104, 0x108, 0xffc].map(|at| read(&registers, at)), [2, 0x0701, 0, 0]);
        for (offset, value) in [(0x38, 8), (0x44, 1), (0x84, 5)] {
            registers.write(offset, value, &KIND);
        }
        assert_eq!((read(&registers, 0x44), registers.queues[0].descriptors), (1, 5 << 32));
        registers.write(0x38, 7, &KIND);
        assert_eq!(registers.queues[0].size, 0, "sizes are powers of two");
        registers.write(0x70, 0, &KIND);
        assert_eq!(registers, Transport::default());
        for selected in [1, 2, u32::MAX] {
            registers.write(0x30, selected, &KIND);
            registers.write(0x38, 8, &KIND);
            assert_eq!((read(&registers, 0x34), read(&registers, 0x44)), (0, 0), "there is one queue");
        }
        assert_eq!(registers.queues, Transport::default().queues);
    }
}
