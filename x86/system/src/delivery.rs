//! Exceptions and interrupts: through the IDT to a handler, and what becomes of one that fails on the way (Intel SDM vol. 3,
//! 6.14 and 6.15).

use super::descriptors::{Descriptor, code_of, code_of_vector};
use super::registers::{Segment, segment};
use super::{Failure, Fault, Next, PAGE_FAULT, Part, Raised, Refused, System, SystemCpu};
use x86::state::{RFLAGS_IF, RFLAGS_TF};

/// What is delivered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// An exception at an instruction that has left no trace.
    Fault(Fault),
    /// An exception behind an instruction.
    Trap(u8),
    /// INT n, INT3.
    Software(u8),
    /// The interrupt of a device.
    External(u8),
}

const DOUBLE_FAULT: u8 = 8;
/// NT, RF and VM, which every handler begins without.
const CLEARED: u64 = 1 << 14 | RF | 1 << 17;
/// The image on the stack of a fault's handler has it, so that a breakpoint at the instruction is not met twice.
const RF: u64 = 1 << 16;

impl Event {
    const fn vector(self) -> u8 {
        match self {
            Event::Fault(fault) => fault.vector,
            Event::Trap(vector) | Event::Software(vector) | Event::External(vector) => vector,
        }
    }

    /// What is pushed below rip.
    const fn code(self) -> Option<u32> {
        match self {
            Event::Fault(Fault { vector: 8 | 10..=14 | 17, code }) => Some(code),
            _ => None,
        }
    }

    const fn is_software(self) -> bool {
        matches!(self, Event::Software(_))
    }
}

/// How two exceptions are one (Intel SDM vol. 3, table 6-5).
#[derive(PartialEq)]
enum Class {
    Benign,
    Contributory,
    PageFault,
}

const fn class(vector: u8) -> Class {
    match vector {
        0 | 10..=13 => Class::Contributory,
        PAGE_FAULT => Class::PageFault,
        _ => Class::Benign,
    }
}

impl System {
    /// Delivers `event`: its handler runs next. An exception on the way is delivered instead, as a double fault where the
    /// table says so, or shuts the CPU down.
    pub(super) fn deliver(&mut self, cpu: &mut SystemCpu, mut event: Event) -> Result<Next, Refused> {
        self.note_raised(cpu, event);
        if self.holds_exceptions {
            return Ok(Next::Run);
        }
        self.delivered += 1;
        loop {
            if let Event::Fault(Fault { vector: PAGE_FAULT, .. }) = event {
                self.registers.cr2 = cpu.last_page_fault().map_or(0, |fault| fault.address);
            }
            let second = match self.enter(cpu, event) {
                Ok(()) => return Ok(Next::Run),
                Err(Failure::Refused(what)) => return Err(Refused { at: cpu.rip(), what }),
                Err(Failure::Fault(second)) => second,
            };
            // Linux tells the overflow of a stack by what CR2 has in a double fault.
            if second.vector == PAGE_FAULT {
                self.registers.cr2 = cpu.last_page_fault().map_or(0, |fault| fault.address);
            }
            let first = match event {
                Event::Fault(fault) => fault.vector,
                // Neither an interrupt nor INT n makes what follows a double fault.
                _ => u8::MAX,
            };
            let is_double = match class(first) {
                Class::Benign => false,
                Class::Contributory => class(second.vector) == Class::Contributory,
                Class::PageFault => class(second.vector) != Class::Benign,
            };
            event = match first {
                DOUBLE_FAULT => return Ok(Next::Shutdown),
                _ if is_double => Event::Fault(Fault { vector: DOUBLE_FAULT, code: 0 }),
                _ => Event::Fault(second),
            };
        }
    }

    /// Delivers an event of an instruction, whose failure is a fault of that instruction.
    pub(super) fn enter_once(&mut self, cpu: &mut SystemCpu, event: Event) -> Part {
        self.note_raised(cpu, event);
        if self.holds_exceptions {
            // Where there is no gate the instruction fails in place of what it asks for.
            return self.gate(cpu, event.vector(), false).map(drop);
        }
        self.enter(cpu, event)?;
        self.delivered += 1;
        Ok(())
    }

    fn note_raised(&mut self, cpu: &SystemCpu, event: Event) {
        let is_page = matches!(event, Event::Fault(Fault { vector: PAGE_FAULT, .. }));
        let address = is_page.then(|| cpu.last_page_fault().map_or(0, |fault| fault.address));
        if !matches!(event, Event::External(_)) {
            let (regs, privilege) = (cpu.regs(), self.registers.privilege);
            let (vector, code) = (event.vector(), event.code().unwrap_or(0));
            self.raised = Some(Raised { vector, code, address, rip: regs.rip, rsp: regs.gpr[4], privilege });
        }
    }

    /// Goes to the handler. Where that fails nothing has changed.
    fn enter(&mut self, cpu: &mut SystemCpu, event: Event) -> Part {
        let before = (self.registers, cpu.regs());
        let entered = self.enter_or_stop_halfway(cpu, event);
        if entered.is_err() {
            self.set_privilege(cpu, before.0.privilege);
            let cr2 = self.registers.cr2;
            self.registers = super::Registers { cr2, ..before.0 };
            cpu.set_regs(&before.1);
        }
        self.apply_code(cpu);
        entered
    }

    fn enter_or_stop_halfway(&mut self, cpu: &mut SystemCpu, event: Event) -> Part {
        let (vector, old) = (event.vector(), cpu.regs());
        let external = !event.is_software();
        let old_level = self.registers.privilege;
        self.set_privilege(cpu, 0);
        let gate = self.gate(cpu, vector, external)?;
        if event.is_software() && gate.level < old_level {
            return Err(Fault::general(code_of_vector(vector, false)).into());
        }
        if gate.selector & !3 == 0 {
            return Err(Fault::general(u32::from(external)).into());
        }
        let code = code_of(gate.selector) | u32::from(external);
        let target = self.descriptor(cpu, gate.selector)?;
        if !target.is_code() || target.level() > old_level {
            return Err(Fault::general(code).into());
        }
        if !target.is_present() {
            return Err(Fault { vector: 11, code }.into());
        }
        let is_long = self.registers.is_long();
        if is_long && (!target.is_long() || target.is_default_32()) {
            return Err(Fault::general(code).into());
        }
        let level = if target.is_conforming() { old_level } else { target.level() };
        if !is_long {
            self.check_narrow_handler(target, gate.selector, level < old_level)?;
        }
        let top = match gate.stack {
            0 if level < old_level => self.task_stack(cpu, level)?,
            0 => old.gpr[4],
            n => self.task_stack(cpu, 6 + n)?,
        };
        let old_segments = self.registers.segments;
        let fault_flags = if matches!(event, Event::Fault(_)) { RF } else { 0 };
        // 32-bit handlers of the same level have no stack in their frame.
        let frame = [
            is_long.then(|| u64::from(old_segments[segment::SS].selector)),
            is_long.then_some(old.gpr[4]),
            Some(old.rflags | fault_flags),
            Some(u64::from(old_segments[segment::CS].selector)),
            Some(old.rip),
            event.code().map(u64::from),
        ];
        self.set_privilege(cpu, level);
        let (width, mask) = if is_long { (64, u64::MAX) } else { (32, u64::from(u32::MAX)) };
        let mut rsp = if is_long { top & !15 } else { top };
        for word in frame.into_iter().flatten() {
            rsp = rsp.wrapping_sub(u64::from(width / 8)) & mask;
            self.store(cpu, width, rsp, word).map_err(on_stack)?;
        }
        let kept = if gate.is_interrupt { !RFLAGS_IF } else { u64::MAX };
        self.set_flags(cpu, old.rflags & kept & !(RFLAGS_TF | CLEARED));
        let mut regs = cpu.regs();
        regs.gpr[4] = rsp;
        regs.rip = gate.target;
        cpu.set_regs(&regs);
        self.registers.segments[segment::CS] = target.loaded(gate.selector & !3 | u16::from(level));
        if level != old_level {
            self.registers.segments[segment::SS] =
                Segment { selector: u16::from(level), ..Segment::default() };
        }
        self.shielded_at = None;
        Ok(())
    }
}

impl System {
    /// Whether the handler of a gate before long mode is one that is served: 32-bit code in flat segments, of the level that it came from.
    fn check_narrow_handler(&self, target: Descriptor, selector: u16, is_inner: bool) -> Part {
        if is_inner {
            let why = "an exception or interrupt in ring 3 before long mode";
            return Err(Failure::Refused(why.to_owned()));
        }
        self.check_code(target, selector)?;
        self.check_flat(target, self.registers.segments[segment::SS])
    }
}

/// A stack that is not canonical is #SS.
fn on_stack(failure: Failure) -> Failure {
    match failure {
        Failure::Fault(Fault { vector: 13, .. }) => Fault { vector: 12, code: 0 }.into(),
        other => other,
    }
}
