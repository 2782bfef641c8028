//! The I/O APIC: 24 lines, each with an entry that says which vector it is (Intel 82093AA data sheet).
//!
//! Lines of ISA devices are edge-triggered here. A level would stay asserted until its device is served; no device of this machine
//! has one, so an entry that asks for levels works as one for edges, but holds the next interrupt back until the end of the one before.

use crate::saved::saved;

const LINES: usize = 24;
/// The bits of an entry.
mod entry {
    pub(super) const DELIVERING: u64 = 1 << 12;
    pub(super) const REMOTE: u64 = 1 << 14;
    pub(super) const LEVEL: u64 = 1 << 15;
    pub(super) const MASKED: u64 = 1 << 16;
}

/// The controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IoApic {
    selected: u32,
    id: u32,
    entries: [u64; LINES],
    /// Edges that wait for their entry to be unmasked.
    requests: u32,
}

/// An interrupt on its way to the local APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) vector: u8,
    pub(super) is_level: bool,
}

impl Default for IoApic {
    fn default() -> IoApic {
        IoApic { selected: 0, id: 0, entries: [entry::MASKED; LINES], requests: 0 }
    }
}

saved!(struct IoApic { selected, id, entries, requests });

impl IoApic {
    /// A rising edge on a line.
    pub(super) fn pulse(&mut self, line: u8) {
        self.requests |= 1 << (line % 24);
    }

    /// The next interrupt that is on its way. Delivery modes other than fixed and lowest priority are dropped.
    pub(super) fn take(&mut self) -> Option<Message> {
        for (line, entry) in self.entries.iter_mut().enumerate() {
            if self.requests >> line & 1 == 0 || *entry & (entry::MASKED | entry::REMOTE) != 0 {
                continue;
            }
            self.requests &= !(1 << line);
            let [vector, mode, ..] = entry.to_le_bytes();
            if mode & 7 > 1 {
                continue;
            }
            let is_level = *entry & entry::LEVEL != 0;
            if is_level {
                *entry |= entry::REMOTE;
            }
            return Some(Message { vector, is_level });
        }
        None
    }

    /// The end of the interrupt of a vector, where that is a level's.
    pub(super) fn end_of_interrupt(&mut self, vector: u8) {
        for entry in &mut self.entries {
            if *entry & 0xff == u64::from(vector) {
                *entry &= !entry::REMOTE;
            }
        }
    }

    /// A load from its page.
    pub(super) fn read(&self, offset: u64) -> u32 {
        match offset {
            0x00 => self.selected,
            0x10 => self.register(),
            _ => 0,
        }
    }

    fn register(&self) -> u32 {
        const VERSION: u32 = 0x20;
        const HIGHEST: u32 = 23;
        match self.selected {
            0 | 2 => self.id << 24,
            1 => VERSION | HIGHEST << 16,
            n => self.half(n).map_or(0, |(line, shift)| (self.entries[line] >> shift & 0xffff_ffff) as u32),
        }
    }

    /// The entry that a register is half of, and the place of that half.
    fn half(&self, register: u32) -> Option<(usize, u32)> {
        let n = register.checked_sub(0x10)?;
        let line = usize::try_from(n / 2).ok().filter(|line| *line < LINES)?;
        Some((line, n % 2 * 32))
    }

    /// A store to its page.
    pub(super) fn write(&mut self, offset: u64, value: u32) {
        match offset {
            0x00 => self.selected = value & 0xff,
            0x10 if self.selected == 0 => self.id = value >> 24 & 0xf,
            0x10 => {
                if let Some((line, shift)) = self.half(self.selected) {
                    let kept = self.entries[line] & (entry::DELIVERING | entry::REMOTE);
                    let written = self.entries[line] & !(0xffff_ffff << shift) | u64::from(value) << shift;
                    self.entries[line] = written & !(entry::DELIVERING | entry::REMOTE) | kept;
                }
            }
            // The register that ends interrupts of one vector.
            0x40 => self.end_of_interrupt(value.to_le_bytes()[0]),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(apic: &mut IoApic, register: u32, value: u32) {
        apic.write(0, register);
        apic.write(0x10, value);
    }

    #[test]
    fn an_edge_waits_for_its_mask() {
        let mut apic = IoApic::default();
        apic.pulse(4);
        assert_eq!(apic.take(), None);
        set(&mut apic, 0x18, 0x34);
        assert_eq!(apic.take(), Some(Message { vector: 0x34, is_level: false }));
        assert_eq!(apic.take(), None);
    }

    #[test]
    fn a_level_waits_for_its_end() {
        let mut apic = IoApic::default();
        set(&mut apic, 0x22, 0x8051);
        apic.pulse(9);
        assert_eq!(apic.take(), Some(Message { vector: 0x51, is_level: true }));
        apic.pulse(9);
        assert_eq!(apic.take(), None);
        apic.end_of_interrupt(0x51);
        assert!(apic.take().is_some());
    }

    #[test]
    fn it_says_how_many_lines_it_has() {
        let mut apic = IoApic::default();
        apic.write(0, 1);
        assert_eq!(apic.read(0x10), 0x0017_0020);
        apic.write(0, 0xff);
        assert_eq!(apic.read(0x10), 0);
    }
}
