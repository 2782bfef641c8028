//! Instructions of the system in the past of a kernel: what is modelled of them, and why the search does not go past the others.

use super::asked;
use super::machine::{StepMachine, Written};
use super::prepared::{Effect, Prepared};
use crate::program::Program;
use crate::term::Terms;
use iced_x86::{Instruction, Mnemonic as N, OpKind, Register};
use std::rc::Rc;
use x86::domain::Domain;
use x86::machine::{Body, Exec, Machine};
use x86::op::Op;
use x86::sem::stack;
use x86::state::{RFLAGS_AC, RFLAGS_IF};

/// Its bit in [`Written::segments`].
const GS: u8 = 2;

impl Prepared {
    /// Prepares an instruction of a program, or of a kernel.
    #[must_use]
    pub fn of_program(program: &Program, terms: &Rc<Terms>, instruction: Instruction) -> Prepared {
        let prepared = Prepared::new(terms, instruction);
        if !program.is_kernel() {
            return prepared;
        }
        if let Some(body) = body(&instruction) {
            let mnemonic = instruction.mnemonic();
            let interrupts = matches!(mnemonic, N::Cli | N::Sti | N::Popf | N::Popfq);
            let access = matches!(mnemonic, N::Stac | N::Clac | N::Popfq);
            let swaps = mnemonic == N::Swapgs;
            let segments = prepared.written.segments | if swaps { GS } else { 0 };
            let written = Written { interrupts, access, segments, inactive_gs: swaps, ..prepared.written };
            return Prepared { effect: Effect::Body(body), written, ..prepared };
        }
        if let Some(selector) = selector_read(program, &instruction) {
            // The semantics has a program's selectors, as an operand.
            return Prepared { op: Op { imm: selector.into(), ..prepared.op }, ..prepared };
        }
        if let Some(gpr) = asked::asks(&instruction) {
            let op = match instruction.mnemonic() {
                // What it gives beside the time stamp only the system writes.
                N::Rdtscp => Op { imm: program.time_stamp_aux(), ..prepared.op },
                _ => prepared.op,
            };
            let written = Written { gpr, ..Written::default() };
            return Prepared { effect: Effect::Asks, written, op, ..prepared };
        }
        match barrier(&instruction) {
            Some(why) => Prepared { effect: Effect::Barrier(why), ..prepared },
            None => prepared,
        }
    }
}

/// What an instruction of the system does to the state that is followed.
fn body(i: &Instruction) -> Option<Body<StepMachine>> {
    match i.mnemonic() {
        N::Cli => Some(|m, _| set_interrupts(m, false)),
        N::Sti => Some(|m, _| set_interrupts(m, true)),
        N::Stac => Some(|m, _| set_access(m, true)),
        N::Clac => Some(|m, _| set_access(m, false)),
        N::Popf | N::Popfq => Some(pop_flags),
        N::Swapgs => Some(|m, _| {
            m.swap_gs();
            Ok(())
        }),
        // Translations that the processor keeps are no state, and devices are outside of it.
        N::Invlpg | N::Out => Some(|_, _| Ok(())),
        _ => None,
    }
}

/// The selector that an instruction reads, if it only does that with a segment register.
fn selector_read(program: &Program, i: &Instruction) -> Option<u16> {
    let source = match i.mnemonic() {
        N::Mov if i.op1_kind() == OpKind::Register => i.op1_register(),
        N::Push if i.op0_kind() == OpKind::Register => i.op0_register(),
        _ => return None,
    };
    program.selector(source)
}

fn set_interrupts(m: &mut StepMachine, on: bool) -> Exec {
    let on = m.d().bool(on);
    m.set_interrupts(on);
    Ok(())
}

fn set_access(m: &mut StepMachine, on: bool) -> Exec {
    let on = m.d().bool(on);
    m.set_access(on);
    Ok(())
}

/// In ring 0 POPF changes the interrupt flag, too, and with all bits the access flag. What was popped is the one load.
fn pop_flags(m: &mut StepMachine, op: &Op) -> Exec {
    stack::popf(m, op)?;
    if let Some(popped) = m.accesses.iter().find(|access| !access.store).map(|access| access.value) {
        let on = m.d().bit(u32::from(op.w), RFLAGS_IF.trailing_zeros(), popped);
        m.set_interrupts(on);
        if op.w == 64 {
            let access = m.d().bit(64, RFLAGS_AC.trailing_zeros(), popped);
            m.set_access(access);
        }
    }
    Ok(())
}

/// Why the search does not go past an instruction of the system.
fn barrier(i: &Instruction) -> Option<&'static str> {
    let is_any = |is: fn(Register) -> bool| (0..i.op_count()).any(|n| is(i.op_register(n)));
    Some(match i.mnemonic() {
        N::Insb | N::Insw | N::Insd | N::Outsb | N::Outsw | N::Outsd => "a string that goes through a port",
        N::Rdmsr | N::Wrmsr => "a model-specific register",
        N::Mov if is_any(Register::is_cr) => "a control register",
        N::Mov if is_any(Register::is_dr) => "a debug register",
        N::Mov | N::Pop | N::Push if is_any(Register::is_segment_register) => "a segment register",
        N::Iret | N::Iretd | N::Iretq => "IRET: back to where an interrupt or exception came",
        N::Sysret | N::Sysretq | N::Sysexit | N::Sysexitq => "the way back into a program",
        N::Syscall | N::Sysenter => "a system call of a program",
        N::Int | N::Int3 | N::Int1 => "an interrupt of software",
        N::Hlt => "HLT: the processor waits for an interrupt",
        N::Lgdt | N::Lidt | N::Lldt | N::Ltr | N::Lmsw => "a table of descriptors",
        N::Retf => "a far return",
        N::Invpcid => "a translation that is given up",
        N::Rdpmc => "a performance counter",
        N::Cpuid => "CPUID",
        N::Monitor | N::Mwait => "MWAIT",
        _ => return None,
    })
}
