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
//! | 0xd0002000 | a source of random bytes, if there is one (`rng`) |
//! | 0xd0003000 | a console beside COM1, if there is one (`console`) |
//! | 0xd0004000 | connections to the host, if there are any (`vsock`) |
//! | 0xfec00000 | I/O APIC (`ioapic`) |
//! | 0xfee00000, unless the guest moves it | local APIC (`lapic`) |
//!
//! [`outside`] is what the processor sees of it: ports, MSRs, CPUID, time. Ports where nothing is read all ones, and are said once.

mod cmos;
pub(crate) mod console;
mod cpuid;
pub(crate) mod disk;
mod ioapic;
mod lapic;
pub(crate) mod net;
mod outside;
mod pic;
mod pit;
pub(crate) mod power;
pub(crate) mod rng;
mod screen;
mod serial;
pub(crate) mod virtio;
pub mod vsock;

use crate::clock::Clock;
use crate::saved::{Saved, Words};
use cmos::Cmos;
use console::Console;
use disk::{Disk, Image, Layers};
use ioapic::IoApic;
use lapic::Lapic;
use net::Net;
use pic::Pic;
use pit::Pit;
use power::{Power, Request};
use rng::Rng;
use screen::Screen;
use serial::Com1;
use std::collections::BTreeSet;
use std::io;
use virtio::{Device, Dma};
use vsock::Vsock;

/// Where the I/O APIC is.
pub(crate) const IOAPIC: u64 = 0xfec0_0000;
/// Where the local APIC is.
pub(crate) const LAPIC: u64 = 0xfee0_0000;
/// The bytes of any of them.
pub(crate) const PAGE: u64 = 0x1000;

/// The line of COM1.
const COM1: u8 = 4;

/// A place for a device of virtio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Where its registers are.
    pub(crate) at: u64,
    pub(crate) line: u8,
    /// Its name in ACPI.
    pub(crate) name: &'static [u8; 4],
}

pub(crate) const DISK: Slot = Slot { at: 0xd000_0000, line: 5, name: b"DSK0" };
pub(crate) const NET: Slot = Slot { at: 0xd000_1000, line: 6, name: b"NET0" };
pub(crate) const RNG: Slot = Slot { at: 0xd000_2000, line: 10, name: b"RNG0" };
pub(crate) const CONSOLE: Slot = Slot { at: 0xd000_3000, line: 11, name: b"CON0" };
pub(crate) const VSOCK: Slot = Slot { at: 0xd000_4000, line: 12, name: b"VSK0" };

/// Which devices of virtio a machine has, beside its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// A network card with this Ethernet address.
    pub net: Option<[u8; 6]>,
    /// A source of random bytes.
    pub rng: bool,
    /// A console beside COM1.
    pub console: bool,
    /// Connections to the host.
    pub vsock: bool,
}
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

/// What the guest sends.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Frames of its network card.
    pub(crate) frames: Vec<Vec<u8>>,
    /// Packets of its vsock.
    pub(crate) packets: Vec<Vec<u8>>,
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
    pub(crate) rng: Option<Rng>,
    pub(crate) console: Option<Console>,
    pub(crate) vsock: Option<Vsock>,
    /// What was printed on either console, and nobody has taken yet.
    printed: Vec<u8>,
    /// What the guest added to the time-stamp counter.
    tsc_offset: u64,
    /// Ports and MSRs that nothing is behind, and of which that was said.
    unknown: BTreeSet<outside::Unknown>,
}

impl Devices {
    /// The devices of a machine that begins so many seconds after 1970.
    pub(crate) fn new(start: u64, disk: Option<Image>, extras: Extras) -> Devices {
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
            net: extras.net.map(Net::new),
            rng: extras.rng.then(Rng::default),
            console: extras.console.then(Console::default),
            vsock: extras.vsock.then(Vsock::default),
            printed: Vec::new(),
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
        self.virtio().into_iter().flatten().filter_map(|(_, device)| device.due()).min()
    }

    /// The devices of virtio that there are, and where.
    fn virtio(&self) -> [Option<(Slot, &dyn Device)>; 5] {
        fn of<D: Device>(slot: Slot, device: &Option<D>) -> Option<(Slot, &dyn Device)> {
            device.as_ref().map(|device| (slot, device as &dyn Device))
        }
        let Devices { disk, net, rng, console, vsock, .. } = self;
        [of(DISK, disk), of(NET, net), of(RNG, rng), of(CONSOLE, console), of(VSOCK, vsock)]
    }

    fn virtio_mut(&mut self) -> [Option<(Slot, &mut dyn Device)>; 5] {
        fn of<D: Device>(slot: Slot, device: &mut Option<D>) -> Option<(Slot, &mut dyn Device)> {
            device.as_mut().map(|device| (slot, device as &mut dyn Device))
        }
        let Devices { disk, net, rng, console, vsock, .. } = self;
        [of(DISK, disk), of(NET, net), of(RNG, rng), of(CONSOLE, console), of(VSOCK, vsock)]
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
        let pulsed = self.virtio_mut().map(|it| {
            let (slot, device) = it?;
            device.take_pulse().then_some(slot.line)
        });
        for line in pulsed.into_iter().flatten() {
            self.pic.pulse(line);
            self.ioapic.pulse(line);
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

    /// Lets devices read and write the guest's memory, where they have something to do there: what the guest sends.
    ///
    /// # Errors
    /// When the disk's image cannot be read.
    pub(crate) fn reach_memory(&mut self, memory: &mut Dma<'_>) -> io::Result<Sent> {
        let now = self.clock.now();
        self.disk.as_mut().map_or(Ok(()), |disk| disk.serve(memory, now))?;
        self.rng.iter_mut().for_each(|rng| rng.serve(memory, now));
        if let Some(console) = &mut self.console {
            // In the order in which it was printed.
            self.printed.extend(self.com1.screen_mut().take_printed());
            console.serve(memory, now);
            self.printed.extend(console.screen_mut().take_printed());
        }
        let frames = self.net.as_mut().map(|net| net.serve(memory, now)).unwrap_or_default();
        let packets = self.vsock.as_mut().map(|vsock| vsock.serve(memory, now)).unwrap_or_default();
        Ok(Sent { frames, packets })
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
            page => {
                let devices = self.virtio().into_iter().flatten();
                let found = devices.into_iter().find(|(slot, _)| slot.at == page);
                let value = found.map(|(_, device)| device.read(register(physical)));
                value.unwrap_or_else(|| {
                    self.say_unknown(outside::Unknown::Page(page));
                    u32::MAX
                })
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
            page => {
                let devices = self.virtio_mut();
                let found = devices.into_iter().flatten().find(|(slot, _)| slot.at == page);
                let written = found.map(|(_, device)| device.write(register(physical), value, now));
                if written.is_none() {
                    self.say_unknown(outside::Unknown::Page(page));
                }
            }
        }
    }

    /// How many bytes may be typed now.
    pub(crate) fn room(&self) -> usize {
        self.console.as_ref().map_or_else(|| self.com1.room(), Console::room)
    }

    /// Types bytes on the console, or on COM1 if there is none.
    pub(crate) fn type_bytes(&mut self, bytes: &[u8]) {
        let now = self.clock.now();
        match &mut self.console {
            Some(console) => console.type_bytes(bytes, now),
            None => self.com1.type_bytes(bytes),
        }
    }

    /// What was printed on COM1 and the console since this was called last.
    pub(crate) fn take_printed(&mut self) -> Vec<u8> {
        let mut printed = std::mem::take(&mut self.printed);
        printed.extend(self.com1.screen_mut().take_printed());
        printed
    }

    /// Whether there is any.
    pub(crate) fn has_printed(&self) -> bool {
        !self.printed.is_empty() || self.com1.screen().has_printed()
    }

    /// The screens of both.
    fn screens(&self) -> impl Iterator<Item = &Screen> {
        std::iter::once(self.com1.screen()).chain(self.console.as_ref().map(Console::screen))
    }

    /// Whether the guest has ended the machine.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let panic = || self.panic().unwrap_or("without a word on a console").to_owned();
        match self.power.request() {
            Some(Request::PowerOff) => Some(Ended::PowerOff),
            Some(Request::Exit) => Some(Ended::Exit(self.power.status())),
            Some(Request::Panic) => Some(Ended::Panic(panic())),
            Some(Request::Reset) if self.panic().is_some() => Some(Ended::Panic(panic())),
            Some(Request::Reset) => Some(Ended::Reset),
            None => self.screens().any(Screen::has_told_panic).then(|| Ended::Panic(panic())),
        }
    }

    /// The reason of a panic that was printed.
    pub(crate) fn panic(&self) -> Option<&str> {
        self.screens().find_map(Screen::panic)
    }

    /// Appends the state of all of them, but for what is on the disk.
    pub(crate) fn put(&self, out: &mut Vec<u64>) {
        let Devices { clock, pic, pit, lapic, ioapic, com1, cmos, power, disk, net, .. } = self;
        let Devices { rng, console, vsock, tsc_offset, printed: _, unknown: _, .. } = self;
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
        rng.put(out);
        console.put(out);
        vsock.put(out);
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
            rng: Saved::take(from)?,
            console: Saved::take(from)?,
            vsock: Saved::take(from)?,
            printed: Vec::new(),
            unknown: BTreeSet::new(),
        })
    }
}
