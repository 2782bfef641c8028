//! What is around the processor: the devices of a PC that Linux asks for, by port and by address.
//!
//! | where | what |
//! | --- | --- |
//! | ports 0x20, 0x21, 0xa0, 0xa1 | two 8259 (`pic`) |
//! | ports 0x40 to 0x43, 0x61 | 8254 (`pit`) |
//! | ports 0x60, 0x64 | i8042: no keyboard, resets |
//! | ports 0x70, 0x71 | clock and CMOS (`cmos`) |
//! | ports 0x3f8 to 0x3ff | COM1 (`serial`) |
//! | ports 0x505, 0x600 to 0x60b, 0xcf9 | pvpanic, ACPI, reset (`power`) |
//! | 0xfec00000 | I/O APIC (`ioapic`) |
//! | 0xfee00000 | local APIC (`lapic`) |
//!
//! [`outside`] is what the processor sees of it: ports, MSRs, CPUID, time. Ports where nothing is read all ones, and are said once.

mod cmos;
mod cpuid;
mod ioapic;
mod lapic;
mod outside;
mod pic;
mod pit;
pub(crate) mod power;
mod serial;

use crate::clock::Clock;
use cmos::Cmos;
use ioapic::IoApic;
use lapic::Lapic;
use pic::Pic;
use pit::Pit;
use power::{Power, Request};
use serial::Com1;
use std::collections::BTreeSet;

/// Where the I/O APIC is.
pub(crate) const IOAPIC: u64 = 0xfec0_0000;
/// Where the local APIC is.
pub(crate) const LAPIC: u64 = 0xfee0_0000;
/// The bytes of either.
const PAGE: u64 = 0x1000;

/// The line of COM1.
const COM1: u8 = 4;
/// The line of the 8254 at the I/O APIC; at the 8259 it is 0.
pub(crate) const TIMER: u8 = 2;

/// The offset of the register that an access to a device is to.
const fn register(physical: u64) -> u64 {
    physical & (PAGE - 4)
}

/// How the guest ended the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    PowerOff,
    Reset,
    Panic(String),
}

/// All devices, and the clock that they go by.
pub(crate) struct Devices {
    pub(crate) clock: Clock,
    pic: Pic,
    pit: Pit,
    lapic: Lapic,
    ioapic: IoApic,
    com1: Com1,
    cmos: Cmos,
    power: Power,
    /// What the guest added to the time-stamp counter.
    tsc_offset: u64,
    /// Ports and MSRs that nothing is behind, and of which that was said.
    unknown: BTreeSet<outside::Unknown>,
}

impl Devices {
    /// The devices of a machine that begins so many seconds after 1970.
    pub(crate) fn new(start: u64) -> Devices {
        Devices {
            clock: Clock::default(),
            pic: Pic::default(),
            pit: Pit::default(),
            lapic: Lapic::default(),
            ioapic: IoApic::default(),
            com1: Com1::default(),
            cmos: Cmos::new(start),
            power: Power::default(),
            tsc_offset: 0,
            unknown: BTreeSet::new(),
        }
    }

    /// When a timer is due next.
    pub(crate) fn due(&self) -> Option<u64> {
        let now = self.clock.now();
        [self.pit.due(), self.lapic.due(now, self.counter())].into_iter().flatten().min()
    }

    /// The time-stamp counter.
    fn counter(&self) -> u64 {
        self.clock.now().wrapping_add(self.tsc_offset)
    }

    /// Has timers that are due, and lines that have risen, ask for their interrupts.
    pub(crate) fn advance(&mut self) {
        let now = self.clock.now();
        if self.pit.fire(now) {
            self.pic.pulse(0);
            self.ioapic.pulse(TIMER);
        }
        if self.com1.take_pulse() {
            self.pic.pulse(COM1);
            self.ioapic.pulse(COM1);
        }
        while let Some(message) = self.ioapic.take() {
            self.lapic.request(message.vector, message.is_level);
        }
        self.lapic.fire(now, self.counter());
    }

    /// Whether an interrupt waits for the processor.
    pub(crate) fn is_interrupting(&self) -> bool {
        self.lapic.pending().is_some() || self.lapic.passes_external() && self.pic.is_pending()
    }

    /// Takes that interrupt: its vector.
    pub(crate) fn take_interrupt(&mut self) -> Option<u8> {
        let external = self.lapic.passes_external();
        self.lapic.acknowledge().or_else(|| external.then(|| self.pic.acknowledge()).flatten())
    }

    /// A load from the address of a device; all ones where there is none.
    pub(crate) fn load(&mut self, physical: u64) -> u32 {
        let now = self.clock.now();
        match physical & !(PAGE - 1) {
            LAPIC => self.lapic.read(register(physical), now),
            IOAPIC => self.ioapic.read(register(physical)),
            page => {
                self.say_unknown(outside::Unknown::Page(page));
                u32::MAX
            }
        }
    }

    /// A store there.
    pub(crate) fn store(&mut self, physical: u64, value: u32) {
        let now = self.clock.now();
        match physical & !(PAGE - 1) {
            LAPIC => {
                if let Some(vector) = self.lapic.write(register(physical), value, now) {
                    self.ioapic.end_of_interrupt(vector);
                }
            }
            IOAPIC => self.ioapic.write(register(physical), value),
            page => self.say_unknown(outside::Unknown::Page(page)),
        }
    }

    /// How many bytes may be typed now.
    pub(crate) fn room(&self) -> usize {
        self.com1.room()
    }

    /// Types bytes on COM1.
    pub(crate) fn type_bytes(&mut self, bytes: &[u8]) {
        self.com1.type_bytes(bytes);
    }

    /// What was printed on COM1 since this was called last.
    pub(crate) fn take_printed(&mut self) -> Vec<u8> {
        self.com1.take_printed()
    }

    /// Whether there is any.
    pub(crate) fn has_printed(&self) -> bool {
        self.com1.has_printed()
    }

    /// Whether the guest has ended the machine.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let panic = || self.com1.panic().unwrap_or("without a word on COM1").to_owned();
        match self.power.request() {
            Some(Request::PowerOff) => Some(Ended::PowerOff),
            Some(Request::Panic) => Some(Ended::Panic(panic())),
            Some(Request::Reset) if self.com1.panic().is_some() => Some(Ended::Panic(panic())),
            Some(Request::Reset) => Some(Ended::Reset),
            None => self.com1.has_told_panic().then(|| Ended::Panic(panic())),
        }
    }

    /// The reason of a panic that was printed.
    pub(crate) fn panic(&self) -> Option<&str> {
        self.com1.panic()
    }

    /// The state of all of them, for a digest.
    pub(crate) fn words(&self) -> Vec<u64> {
        let all = [self.clock.now(), self.tsc_offset, self.power.word()].into_iter();
        let all = all.chain(self.pic.words()).chain(self.pit.words()).chain(self.lapic.words());
        all.chain(self.ioapic.words()).chain(self.com1.words()).chain(self.cmos.words()).collect()
    }
}
