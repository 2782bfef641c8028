//! What the processor sees of the machine: ports, MSRs, CPUID and the time-stamp counter.

use super::Devices;
use super::cpuid::cpuid;
use x86_system::Outside;

/// What takes time without an instruction that retires, in nanoseconds: loops that wait for a device would else go round often.
mod cost {
    /// A port, as on an ISA bus.
    pub(super) const PORT: u64 = 500;
    /// The time-stamp counter.
    pub(super) const RDTSC: u64 = 20;
}

/// MSRs that are the machine's.
mod msr {
    pub(super) const TSC: u32 = 0x10;
    pub(super) const PLATFORM: u32 = 0x17;
    pub(super) const APIC_BASE: u32 = 0x1b;
    pub(super) const MICROCODE: u32 = 0x8b;
    pub(super) const MCG_CAP: u32 = 0x179;
    pub(super) const MISC_ENABLE: u32 = 0x1a0;
    pub(super) const TSC_DEADLINE: u32 = 0x6e0;
}

/// Where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unknown {
    Port(u16),
    Msr(u32),
    /// A page of physical memory.
    Page(u64),
}

impl Devices {
    /// Says once that nothing is there, of not too many places.
    pub(super) fn say_unknown(&mut self, what: Unknown) {
        const MOST: usize = 256;
        if self.unknown.len() >= MOST || !self.unknown.insert(what) {
            return;
        }
        match what {
            Unknown::Port(port) => tracing::info!("nothing is at port {port:#x}: it reads all ones"),
            Unknown::Msr(index) => tracing::info!("there is no MSR {index:#x}: the guest gets #GP"),
            Unknown::Page(page) => {
                tracing::info!("nothing is at physical address {page:#x}: it reads all ones");
            }
        }
    }

    /// A port that is one byte; `None` where nothing is.
    fn byte_in(&mut self, port: u16, now: u64) -> Option<u8> {
        Some(match port {
            0x20 | 0x21 | 0xa0 | 0xa1 => self.pic.read(port),
            0x40..=0x43 => self.pit.read(port, now),
            0x61 => self.pit.read_gate(now),
            // The i8042 has nothing to say, and takes every command.
            0x60 | 0x64 => 0,
            0x71 => self.cmos.read(now),
            0x3f8..=0x3ff => self.com1.read(port),
            _ => return None,
        })
    }

    fn byte_out(&mut self, port: u16, value: u8, now: u64) -> Option<()> {
        const RESET: u8 = 0xfe;
        match port {
            0x20 | 0x21 | 0xa0 | 0xa1 => self.pic.write(port, value),
            0x40..=0x43 => self.pit.write(port, value, now),
            0x61 => self.pit.write_gate(value, now),
            0x64 if value == RESET => self.power.reset(),
            // Port 0x80 shows what a boot has come to; writes to it are a delay.
            0x60 | 0x64 | 0x80 => {}
            0x70 => self.cmos.select(value),
            0x71 => self.cmos.write(value),
            0x3f8..=0x3ff => self.com1.write(port, value),
            _ => return None,
        }
        Some(())
    }
}

impl Outside for Devices {
    fn port_in(&mut self, port: u16, width: u32) -> u32 {
        self.clock.skip(cost::PORT);
        let now = self.clock.now();
        if let Some(value) = self.power.read(port, now) {
            return value;
        }
        let mut value = 0;
        for (shift, port) in (0..width).step_by(8).zip(port..=u16::MAX) {
            let byte = self.byte_in(port, now);
            if byte.is_none() {
                self.say_unknown(Unknown::Port(port));
            }
            value |= u32::from(byte.unwrap_or(u8::MAX)) << shift;
        }
        value
    }

    fn port_out(&mut self, port: u16, width: u32, value: u32) {
        self.clock.skip(cost::PORT);
        let now = self.clock.now();
        if self.power.write(port, value).is_some() {
            return;
        }
        for (byte, port) in value.to_le_bytes().into_iter().take(width as usize / 8).zip(port..=u16::MAX) {
            if self.byte_out(port, byte, now).is_none() {
                self.say_unknown(Unknown::Port(port));
            }
        }
    }

    fn read_msr(&mut self, index: u32) -> Option<u64> {
        /// REP MOVS and STOS are fast; there are neither branch traces nor event samples.
        const MISC: u64 = 1 | 3 << 11;
        Some(match index {
            msr::TSC => self.counter(),
            // The machine-check architecture has no banks.
            msr::PLATFORM | msr::MICROCODE | msr::MCG_CAP => 0,
            msr::APIC_BASE => self.lapic.base(),
            msr::MISC_ENABLE => MISC,
            msr::TSC_DEADLINE => self.lapic.deadline(),
            _ => {
                self.say_unknown(Unknown::Msr(index));
                return None;
            }
        })
    }

    fn write_msr(&mut self, index: u32, value: u64) -> Option<()> {
        match index {
            msr::TSC => self.tsc_offset = value.wrapping_sub(self.clock.now()),
            msr::APIC_BASE => return self.lapic.set_base(value),
            // Writes ask for what leaf 1 shows, or for features that there are none of.
            msr::MICROCODE | msr::MISC_ENABLE => {}
            msr::TSC_DEADLINE => self.lapic.set_deadline(value),
            _ => {
                self.say_unknown(Unknown::Msr(index));
                return None;
            }
        }
        Some(())
    }

    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let has_apic = self.lapic.is_enabled();
        cpuid(leaf, subleaf, has_apic)
    }

    fn time_stamp(&mut self, retired: u64) -> u64 {
        self.clock.retire_to(retired);
        self.clock.skip(cost::RDTSC);
        self.counter()
    }

    fn task_priority(&mut self) -> u64 {
        self.lapic.task_priority()
    }

    fn set_task_priority(&mut self, priority: u64) {
        self.lapic.set_task_priority(priority);
    }
}
