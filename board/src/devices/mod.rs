//! What is around the processor: the devices of a PC that Linux asks for, by port and by address.
//!
//! | where | what |
//! | --- | --- |
//! | ports 0x20, 0x21, 0xa0, 0xa1 | two 8259 (`pic`) |
//! | ports 0x40 to 0x43, 0x61 | 8254 (`pit`) |
//! | ports 0x60, 0x64 | i8042: no keyboard, resets |
//! | ports 0x70, 0x71 | clock and CMOS (`cmos`) |
//! | ports 0x3f8 to 0x3ff | COM1 (`serial`) |
//! | ports 0xf4, 0x505, 0x600 to 0x60b, 0xcf9 | isa-debug-exit, pvpanic, ACPI, reset (`power`) |
//! | 0xd0000000 | a disk, if there is one (`disk`) |
//! | 0xd0001000 | a network card, if there is one (`net`) |
//! | 0xfec00000 | I/O APIC (`ioapic`) |
//! | 0xfee00000, unless the guest moves it | local APIC (`lapic`) |
//!
//! [`outside`] is what the processor sees of it: ports, MSRs, CPUID, time. Ports where nothing is read all ones, and are said once.

mod cmos;
mod cpuid;
pub(crate) mod disk;
mod ioapic;
mod lapic;
pub(crate) mod net;
mod outside;
mod pic;
mod pit;
pub(crate) mod power;
mod serial;
pub(crate) mod virtio;

use crate::clock::Clock;
use crate::saved::{Saved, Words};
use cmos::Cmos;
use disk::{Disk, Image, Layers};
use ioapic::IoApic;
use lapic::Lapic;
use net::Net;
use pic::Pic;
use pit::Pit;
use power::{Power, Request};
use serial::Com1;
use std::collections::BTreeSet;
use std::io;
use virtio::Dma;

/// Where the I/O APIC is.
pub(crate) const IOAPIC: u64 = 0xfec0_0000;
/// Where the local APIC is.
pub(crate) const LAPIC: u64 = 0xfee0_0000;
/// Where the disk is.
pub(crate) const DISK: u64 = 0xd000_0000;
/// Where the network card is.
pub(crate) const NET: u64 = 0xd000_1000;
/// The bytes of any of them.
pub(crate) const PAGE: u64 = 0x1000;

/// The line of COM1.
const COM1: u8 = 4;
/// The line of the disk.
pub(crate) const DISK_LINE: u8 = 5;
/// The line of the network card.
pub(crate) const NET_LINE: u8 = 6;
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
    /// With a status.
    Exit(u32),
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
    pub(crate) disk: Option<Disk>,
    pub(crate) net: Option<Net>,
    /// What the guest added to the time-stamp counter.
    tsc_offset: u64,
    /// Ports and MSRs that nothing is behind, and of which that was said.
    unknown: BTreeSet<outside::Unknown>,
}

impl Devices {
    /// The devices of a machine that begins so many seconds after 1970.
    pub(crate) fn new(start: u64, disk: Option<Image>, net: Option<[u8; 6]>) -> Devices {
        Devices {
            clock: Clock::default(),
            pic: Pic::default(),
            pit: Pit::default(),
            lapic: Lapic::default(),
            ioapic: IoApic::default(),
            com1: Com1::default(),
            cmos: Cmos::new(start),
            power: Power::default(),
            disk: disk.map(Disk::new),
            net: net.map(Net::new),
            tsc_offset: 0,
            unknown: BTreeSet::new(),
        }
    }

    /// When a timer is due next.
    pub(crate) fn due(&self) -> Option<u64> {
        let now = self.clock.now();
        [self.pit.due(), self.lapic.due(now, self.counter()), self.memory_due()].into_iter().flatten().min()
    }

    /// When a device that reaches memory is due next.
    fn memory_due(&self) -> Option<u64> {
        let (disk, net) = (self.disk.as_ref().and_then(Disk::due), self.net.as_ref().and_then(Net::due));
        disk.into_iter().chain(net).min()
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
        if self.disk.as_mut().is_some_and(Disk::take_pulse) {
            self.pic.pulse(DISK_LINE);
            self.ioapic.pulse(DISK_LINE);
        }
        if self.net.as_mut().is_some_and(Net::take_pulse) {
            self.pic.pulse(NET_LINE);
            self.ioapic.pulse(NET_LINE);
        }
        while let Some(message) = self.ioapic.take() {
            self.lapic.request(message.vector, message.is_level);
        }
        self.lapic.fire(now, self.counter());
    }

    /// Whether a device wants to reach memory now ([`Devices::reach_memory`]).
    pub(crate) fn wants_memory(&self) -> bool {
        self.memory_due().is_some_and(|due| due <= self.clock.now())
    }

    /// Lets devices read and write the guest's memory, where they have something to do there: the frames that the guest sends.
    ///
    /// # Errors
    /// When the disk's image cannot be read.
    pub(crate) fn reach_memory(&mut self, memory: &mut Dma<'_>) -> io::Result<Vec<Vec<u8>>> {
        let now = self.clock.now();
        self.disk.as_mut().map_or(Ok(()), |disk| disk.serve(memory, now))?;
        Ok(self.net.as_mut().map(|net| net.serve(memory, now)).unwrap_or_default())
    }

    /// The requests that the disk has done since this was called last.
    pub(crate) fn take_requests(&mut self) -> Vec<disk::Request> {
        self.disk.as_mut().map(Disk::take_done).unwrap_or_default()
    }

    /// Whether an interrupt waits for the processor.
    pub(crate) fn is_interrupting(&self) -> bool {
        self.lapic.pending().is_some() || self.lapic.passes_external() && self.pic.is_pending()
    }

    /// Whether an NMI waits for the processor.
    pub(crate) fn has_nmi(&self) -> bool {
        self.lapic.has_nmi()
    }

    /// Takes it.
    pub(crate) fn take_nmi(&mut self) -> bool {
        self.lapic.take_nmi()
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
            page if self.lapic.is_at(page) => self.lapic.read(register(physical), now),
            IOAPIC => self.ioapic.read(register(physical)),
            DISK if self.disk.is_some() => {
                self.disk.as_ref().map_or(u32::MAX, |disk| disk.read(register(physical)))
            }
            NET if self.net.is_some() => {
                self.net.as_ref().map_or(u32::MAX, |net| net.read(register(physical)))
            }
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
            page if self.lapic.is_at(page) => {
                if let Some(vector) = self.lapic.write(register(physical), value, now) {
                    self.ioapic.end_of_interrupt(vector);
                }
            }
            IOAPIC => self.ioapic.write(register(physical), value),
            DISK if self.disk.is_some() => {
                self.disk.iter_mut().for_each(|disk| disk.write(register(physical), value, now));
            }
            NET if self.net.is_some() => {
                self.net.iter_mut().for_each(|net| net.write(register(physical), value, now));
            }
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
            Some(Request::Exit) => Some(Ended::Exit(self.power.status())),
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

    /// Appends the state of all of them, but for what is on the disk.
    pub(crate) fn put(&self, out: &mut Vec<u64>) {
        let Devices { clock, pic, pit, lapic, ioapic, com1, cmos, power, disk, net, tsc_offset, unknown: _ } =
            self;
        clock.put(out);
        pic.put(out);
        pit.put(out);
        lapic.put(out);
        ioapic.put(out);
        com1.put(out);
        cmos.put(out);
        power.put(out);
        tsc_offset.put(out);
        disk.is_some().put(out);
        disk.iter().for_each(|disk| disk.put(out));
        net.put(out);
    }

    /// Takes that back, for a disk with this on it; `None` where it is no such state, or of a machine with another disk.
    pub(crate) fn take(from: &mut Words<'_>, layers: Option<Layers>) -> Option<Devices> {
        Some(Devices {
            clock: Saved::take(from)?,
            pic: Saved::take(from)?,
            pit: Saved::take(from)?,
            lapic: Saved::take(from)?,
            ioapic: Saved::take(from)?,
            com1: Saved::take(from)?,
            cmos: Saved::take(from)?,
            power: Saved::take(from)?,
            tsc_offset: Saved::take(from)?,
            disk: match (bool::take(from)?, layers) {
                (false, None) => None,
                (true, Some(layers)) => Some(Disk::take(from, layers)?),
                _ => return None,
            },
            net: Saved::take(from)?,
            unknown: BTreeSet::new(),
        })
    }
}
