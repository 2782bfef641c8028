//! The local APIC and its timer (Intel SDM vol. 3, chapter 11): one processor, so an IPI is to itself or to nobody.
//!
//! Interrupts are bits: requested (IRR), in service (ISR). [`Lapic::pending`] is the highest request above all that is served and
//! above the task priority. The timer counts nanoseconds, which CPUID leaf 15H says, too.

use super::PAGE;
use crate::boot::MOST_MEMORY;
use crate::saved::saved;
use x86_system::paging::PHYSICAL_BITS;

/// Offsets of registers in the page.
mod register {
    pub(super) const ID: u64 = 0x20;
    pub(super) const VERSION: u64 = 0x30;
    pub(super) const TASK_PRIORITY: u64 = 0x80;
    pub(super) const PROCESSOR_PRIORITY: u64 = 0xa0;
    pub(super) const END: u64 = 0xb0;
    pub(super) const LOGICAL: u64 = 0xd0;
    pub(super) const FORMAT: u64 = 0xe0;
    pub(super) const SPURIOUS: u64 = 0xf0;
    pub(super) const SERVICE: u64 = 0x100;
    pub(super) const MODE: u64 = 0x180;
    pub(super) const REQUEST: u64 = 0x200;
    pub(super) const ERROR: u64 = 0x280;
    pub(super) const COMMAND: u64 = 0x300;
    pub(super) const COMMAND_HIGH: u64 = 0x310;
    /// Timer, thermal sensor, counters, LINT0, LINT1, error.
    pub(super) const LOCAL: u64 = 0x320;
    pub(super) const INITIAL: u64 = 0x380;
    pub(super) const CURRENT: u64 = 0x390;
    pub(super) const DIVIDE: u64 = 0x3e0;
}

/// The vectors that are above all others of lower classes: bits of 256 as four words.
type Bits = [u64; 4];

const MASKED: u32 = 1 << 16;
const TIMER: usize = 0;
const LINT0: usize = 3;

/// How the timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Once,
    Periodic,
    Deadline,
}

/// The controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lapic {
    /// IA32_APIC_BASE bit 11.
    is_enabled: bool,
    /// Where its page is.
    page: u64,
    /// An NMI waits.
    nmi: bool,
    task_priority: u32,
    logical: u32,
    format: u32,
    spurious: u32,
    command: [u32; 2],
    /// Timer, thermal sensor, counters, LINT0, LINT1, error.
    local: [u32; 6],
    initial: u32,
    divide: u32,
    /// When the count began.
    since: u64,
    /// It has not come to its end.
    is_counting: bool,
    /// The time-stamp counter at which it interrupts; 0 for never.
    deadline: u64,
    service: Bits,
    mode: Bits,
    request: Bits,
}

saved!(struct Lapic {
    is_enabled, page, nmi, task_priority, logical, format, spurious, command, local, initial, divide, since, is_counting,
    deadline, service, mode, request,
});

impl Default for Lapic {
    /// As a boot loader leaves it: software-enabled, LINT0 open for the 8259.
    fn default() -> Lapic {
        const EXTERNAL: u32 = 0x700;
        const NMI: u32 = 0x400;
        Lapic {
            is_enabled: true,
            page: super::LAPIC,
            nmi: false,
            task_priority: 0,
            logical: 0,
            format: u32::MAX,
            spurious: 0x1ff,
            command: [0; 2],
            local: [MASKED, MASKED, MASKED, EXTERNAL, NMI, MASKED],
            initial: 0,
            divide: 0,
            since: 0,
            is_counting: false,
            deadline: 0,
            service: [0; 4],
            mode: [0; 4],
            request: [0; 4],
        }
    }
}

impl Lapic {
    /// As the processor begins, before a boot loader: all entries are masked.
    fn at_reset() -> Lapic {
        Lapic { spurious: 0xff, local: [MASKED; 6], ..Lapic::default() }
    }
}

fn set(bits: &mut Bits, vector: u8) {
    bits[usize::from(vector / 64)] |= 1 << (vector % 64);
}

fn clear(bits: &mut Bits, vector: u8) {
    bits[usize::from(vector / 64)] &= !(1 << (vector % 64));
}

fn highest(bits: &Bits) -> Option<u8> {
    let (n, word) = bits.iter().enumerate().rev().find(|(_, word)| **word != 0)?;
    u8::try_from(64 * n + word.ilog2() as usize).ok()
}

/// One of the eight registers of 32 bits that such bits are.
#[expect(clippy::cast_possible_truncation, reason = "a half is meant")]
fn part(bits: &Bits, offset: u64) -> u32 {
    let n = (offset / 16) as usize & 7;
    (bits[n / 2] >> (32 * (n % 2))) as u32
}

impl Lapic {
    /// Requests an interrupt. Vectors below 16 are errors, which nobody is told of.
    pub(super) fn request(&mut self, vector: u8, is_level: bool) {
        if vector < 16 || !self.is_enabled {
            return;
        }
        set(&mut self.request, vector);
        if is_level { set(&mut self.mode, vector) } else { clear(&mut self.mode, vector) }
    }

    const fn is_software_enabled(&self) -> bool {
        self.is_enabled && self.spurious & 0x100 != 0
    }

    /// The class that the processor works in.
    fn processor_priority(&self) -> u32 {
        let served = highest(&self.service).map_or(0, u32::from);
        if served >> 4 > self.task_priority >> 4 { served & 0xf0 } else { self.task_priority & 0xff }
    }

    /// The vector that would be taken now.
    pub(super) fn pending(&self) -> Option<u8> {
        let vector = highest(&self.request).filter(|_| self.is_software_enabled())?;
        (u32::from(vector) >> 4 > self.processor_priority() >> 4).then_some(vector)
    }

    /// Takes it.
    pub(super) fn acknowledge(&mut self) -> Option<u8> {
        let vector = self.pending()?;
        clear(&mut self.request, vector);
        set(&mut self.service, vector);
        Some(vector)
    }

    /// Whether what the 8259 asks for comes to the processor.
    pub(super) fn passes_external(&self) -> bool {
        const DELIVERY: u32 = 0x700;
        !self.is_enabled || self.local[LINT0] & MASKED == 0 && self.local[LINT0] & DELIVERY == DELIVERY
    }

    /// IA32_APIC_BASE.
    pub(super) fn base(&self) -> u64 {
        const BOOT_PROCESSOR: u64 = 1 << 8;
        self.page | BOOT_PROCESSOR | u64::from(self.is_enabled) << 11
    }

    /// WRMSR of it. There is no x2APIC, and the page stays above memory. One that is switched off begins anew when it is switched on.
    pub(super) fn set_base(&mut self, value: u64) -> Option<()> {
        const ENABLED: u64 = 1 << 11;
        const BOOT_PROCESSOR: u64 = 1 << 8;
        let page = value & !(PAGE - 1);
        let is_reserved = value & (PAGE - 1) & !(ENABLED | BOOT_PROCESSOR) != 0;
        if is_reserved || page < MOST_MEMORY || page >> PHYSICAL_BITS != 0 {
            return None;
        }
        let is_enabled = value & ENABLED != 0;
        *self = match (self.is_enabled, is_enabled) {
            (true, false) => {
                Lapic { is_enabled, page, task_priority: self.task_priority, ..Lapic::at_reset() }
            }
            _ => Lapic { is_enabled, page, ..*self },
        };
        Some(())
    }

    /// Whether it has this page of memory.
    pub(super) fn is_at(&self, page: u64) -> bool {
        self.is_enabled && page == self.page
    }

    /// Whether CPUID tells of it.
    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Whether an NMI waits.
    pub(super) fn has_nmi(&self) -> bool {
        self.nmi
    }

    /// Takes it.
    pub(super) fn take_nmi(&mut self) -> bool {
        std::mem::take(&mut self.nmi)
    }

    /// CR8.
    pub(super) fn task_priority(&self) -> u64 {
        u64::from(self.task_priority >> 4 & 0xf)
    }

    /// Writes CR8.
    pub(super) fn set_task_priority(&mut self, priority: u64) {
        let [low, ..] = priority.to_le_bytes();
        self.task_priority = u32::from(low & 0xf) << 4;
    }

    /// IA32_TSC_DEADLINE.
    pub(super) fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Writes it; it counts in that mode of the timer alone.
    pub(super) fn set_deadline(&mut self, at: u64) {
        if self.timer() == Timer::Deadline {
            self.deadline = at;
        }
    }

    const fn timer(&self) -> Timer {
        match self.local[TIMER] >> 17 & 3 {
            0 => Timer::Once,
            1 => Timer::Periodic,
            _ => Timer::Deadline,
        }
    }

    /// Nanoseconds for each count.
    const fn divisor(&self) -> u64 {
        match self.divide & 3 | self.divide >> 1 & 4 {
            7 => 1,
            n => 2 << n,
        }
    }

    fn period(&self) -> u64 {
        u64::from(self.initial) * self.divisor()
    }

    /// When the timer interrupts next. `counter` is the time-stamp counter now.
    pub(super) fn due(&self, now: u64, counter: u64) -> Option<u64> {
        match self.timer() {
            Timer::Deadline if self.deadline == 0 => None,
            Timer::Deadline => Some(now.saturating_add(self.deadline.saturating_sub(counter))),
            // A state that was read from a file may have a count of nothing.
            _ => Some(self.since.saturating_add(self.period()))
                .filter(|_| self.is_counting && self.initial != 0),
        }
    }

    /// Requests the timer's interrupt if it is due.
    pub(super) fn fire(&mut self, now: u64, counter: u64) {
        if self.due(now, counter).is_none_or(|due| due > now) {
            return;
        }
        match self.timer() {
            Timer::Deadline => self.deadline = 0,
            Timer::Once => self.is_counting = false,
            Timer::Periodic => self.since += (now - self.since) / self.period() * self.period(),
        }
        let [vector, ..] = self.local[TIMER].to_le_bytes();
        if self.local[TIMER] & MASKED == 0 {
            self.request(vector, false);
        }
    }

    fn current(&self, now: u64) -> u32 {
        if !self.is_counting {
            return 0;
        }
        let left = self.period().saturating_sub(now.saturating_sub(self.since));
        u32::try_from(left.div_ceil(self.divisor())).unwrap_or(u32::MAX)
    }

    /// A load from its page.
    pub(super) fn read(&self, offset: u64, now: u64) -> u32 {
        /// Six local entries, version 0x14.
        const VERSION: u32 = 0x0005_0014;
        match offset {
            register::ID => 0,
            register::VERSION => VERSION,
            register::TASK_PRIORITY => self.task_priority,
            register::PROCESSOR_PRIORITY => self.processor_priority(),
            register::LOGICAL => self.logical,
            register::FORMAT => self.format,
            register::SPURIOUS => self.spurious,
            register::SERVICE..register::MODE => part(&self.service, offset),
            register::MODE..register::REQUEST => part(&self.mode, offset),
            register::REQUEST..register::ERROR => part(&self.request, offset),
            register::COMMAND => self.command[0],
            register::COMMAND_HIGH => self.command[1],
            register::INITIAL => self.initial,
            register::CURRENT => self.current(now),
            register::DIVIDE => self.divide,
            _ => local(offset).map_or(0, |n| self.local[n]),
        }
    }

    /// A store to its page; at an end of interrupt, the vector whose end the I/O APIC is to hear of.
    pub(super) fn write(&mut self, offset: u64, value: u32, now: u64) -> Option<u8> {
        match offset {
            register::TASK_PRIORITY => self.task_priority = value & 0xff,
            register::END => return self.end_of_interrupt(),
            register::LOGICAL => self.logical = value & 0xff00_0000,
            register::FORMAT => self.format = value | 0x0fff_ffff,
            register::SPURIOUS => self.spurious = value & 0x3ff,
            register::COMMAND => self.send(value),
            register::COMMAND_HIGH => self.command[1] = value & 0xff00_0000,
            register::INITIAL => self.count(value, now),
            register::DIVIDE => self.divide = value & 0xb,
            _ => {
                if let Some(n) = local(offset) {
                    self.set_local(n, value);
                }
            }
        }
        None
    }

    fn set_local(&mut self, n: usize, value: u32) {
        let before = self.timer();
        self.local[n] = if self.is_software_enabled() { value } else { value | MASKED } & 0x7_f7ff;
        // From one of the counting modes to the other it goes on.
        if self.timer() != before && (self.timer() == Timer::Deadline || before == Timer::Deadline) {
            (self.initial, self.is_counting, self.deadline) = (0, false, 0);
        }
    }

    /// Counts from a value on; in deadline mode such a write is nothing.
    fn count(&mut self, value: u32, now: u64) {
        if self.timer() != Timer::Deadline {
            (self.initial, self.since, self.is_counting) = (value, now, value != 0);
        }
    }

    fn end_of_interrupt(&mut self) -> Option<u8> {
        let vector = highest(&self.service)?;
        clear(&mut self.service, vector);
        let is_level = self.mode[usize::from(vector / 64)] >> (vector % 64) & 1 != 0;
        is_level.then_some(vector)
    }

    /// The interrupt command register: of what it can send, a fixed vector or an NMI to this processor.
    fn send(&mut self, value: u32) {
        const FIXED: u32 = 0;
        const NMI: u32 = 4;
        self.command[0] = value & !(1 << 12);
        let is_for_all_but_self = value >> 18 & 3 == 3;
        let is_for_self = match value >> 18 & 3 {
            0 => self.command[1] >> 24 == 0 || self.command[1] >> 24 == 0xff || self.has_logical(value),
            _ => !is_for_all_but_self,
        };
        match value >> 8 & 7 {
            FIXED if is_for_self => self.request(value.to_le_bytes()[0], false),
            NMI if is_for_self => self.nmi = true,
            _ => {}
        }
    }

    /// Whether a logical destination is this processor.
    fn has_logical(&self, command: u32) -> bool {
        command & 0x800 != 0 && self.command[1] & self.logical != 0
    }
}

/// The number of a local entry.
fn local(offset: u64) -> Option<usize> {
    let n = offset.checked_sub(register::LOCAL)? / 0x10;
    usize::try_from(n).ok().filter(|n| *n < 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_class_comes_first_and_holds_lower_ones_back() {
        let mut apic = Lapic::default();
        apic.request(0x31, false);
        apic.request(0x51, false);
        apic.request(0x52, false);
        assert_eq!(apic.acknowledge(), Some(0x52));
        assert_eq!(apic.acknowledge(), None, "0x51 is of the same class");
        apic.write(register::END, 0, 0);
        assert_eq!(apic.acknowledge(), Some(0x51));
        apic.write(register::END, 0, 0);
        apic.set_task_priority(3);
        assert_eq!(apic.pending(), None);
        apic.set_task_priority(2);
        assert_eq!(apic.pending(), Some(0x31));
    }

    #[test]
    fn the_timer_counts_in_each_of_its_modes() {
        let mut apic = Lapic::default();
        apic.write(register::DIVIDE, 3, 0);
        apic.write(register::LOCAL, 0x40, 0);
        apic.write(register::INITIAL, 100, 50);
        assert_eq!((apic.due(50, 0), apic.read(register::CURRENT, 50 + 160)), (Some(1650), 90));
        apic.fire(1650, 0);
        assert_eq!((apic.acknowledge(), apic.due(1650, 0)), (Some(0x40), None));
        apic.write(register::LOCAL, 0x2_0041, 0);
        apic.write(register::INITIAL, 100, 0);
        apic.fire(5000, 0);
        assert_eq!(apic.due(5000, 0), Some(6400), "periods that were missed are one interrupt");
        apic.write(register::LOCAL, 0x4_0042, 0);
        apic.set_deadline(7000);
        assert_eq!(apic.due(100, 6000), Some(1100), "the time-stamp counter has an offset");
        assert_eq!(apic.due(100, 8000), Some(100), "what is past is due now");
        apic.fire(1100, 7000);
        assert_eq!((apic.deadline(), apic.pending()), (0, None), "0x42 waits behind 0x40");
    }

    #[test]
    fn an_interrupt_to_itself_arrives() {
        let mut apic = Lapic::default();
        apic.write(register::COMMAND, 0x4_00f3, 0);
        assert_eq!(apic.pending(), Some(0xf3));
        let mut apic = Lapic::default();
        apic.write(register::COMMAND, 0xc_00f3, 0);
        assert_eq!(apic.pending(), None, "to all but itself is to nobody");
    }

    #[test]
    fn a_count_goes_on_in_the_other_mode() {
        let mut apic = Lapic::default();
        apic.write(register::DIVIDE, 0xb, 0);
        apic.write(register::LOCAL, 0x40, 0);
        apic.write(register::INITIAL, 100, 0);
        apic.write(register::LOCAL, 0x2_0040, 0);
        assert_eq!((apic.read(register::INITIAL, 30), apic.read(register::CURRENT, 30)), (100, 70));
        apic.fire(100, 0);
        assert_eq!(apic.due(100, 0), Some(200));
        apic.write(register::LOCAL, 0x40, 0);
        apic.fire(200, 0);
        apic.write(register::LOCAL, 0x2_0040, 0);
        assert_eq!(
            (apic.due(200, 0), apic.read(register::CURRENT, 200)),
            (None, 0),
            "one that is over stays so"
        );
    }

    #[test]
    fn an_nmi_to_itself_waits_until_it_is_taken() {
        let mut apic = Lapic::default();
        apic.write(register::COMMAND, 0x400, 0);
        assert_eq!((apic.pending(), apic.take_nmi(), apic.take_nmi()), (None, true, false));
    }

    #[test]
    fn its_page_moves_above_memory_and_is_gone_while_it_is_off() {
        let mut apic = Lapic::default();
        for value in [0xfee0_0d00, 0xfee0_0901, 0x900, 1 << 40 | 0xfee0_0900] {
            assert_eq!(apic.set_base(value), None, "{value:#x}");
        }
        apic.set_base(0xfed4_0900).unwrap();
        assert!(apic.is_at(0xfed4_0000) && !apic.is_at(super::super::LAPIC));
        apic.write(register::LOCAL, 0x40, 0);
        apic.set_base(0xfee0_0100).unwrap();
        assert!(!apic.is_at(super::super::LAPIC) && !apic.is_enabled());
        apic.set_base(0xfee0_0900).unwrap();
        assert_eq!(apic.read(register::LOCAL, 0), MASKED, "it begins anew");
    }
}
