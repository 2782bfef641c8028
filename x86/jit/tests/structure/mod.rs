//! A loop over the fields of a structure in memory, interpreted and as compiled code.

use iced_x86::code_asm::CodeAssembler;
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Until};
use x86::state::Regs;
use x86_jit::{Jit, Tuning};

const CODE: u64 = 0x40_0000;
/// Two pages, in which the structure is.
pub(crate) const DATA: u64 = 0x50_0000;

/// A CPU that is to run the loop, with rbx pointing to the structure.
pub(crate) fn cpu(code: &mut CodeAssembler, structure: u64) -> Cpu<Flat> {
    let mut memory = Flat::new();
    memory.map(CODE, &code.assemble(CODE).unwrap(), Protection::CODE);
    let bytes: Vec<u8> = (0..2 * PAGE_SIZE).map(|n| (n * 29).to_le_bytes()[0]).collect();
    memory.map(DATA, &bytes, Protection::DATA);
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    regs.gpr[3] = structure;
    cpu.set_regs(&regs);
    cpu
}

/// The two over the same.
pub(crate) fn both(cpu: impl Fn() -> Cpu<Flat>) -> (Interpreter<Flat>, Jit<Flat>) {
    (Interpreter::new(cpu()), Jit::new(cpu(), Some(Tuning::eager(2))))
}

/// Runs both to the same bound, and compares all that can be seen of them.
pub(crate) fn run(interpreter: &mut Interpreter<Flat>, jit: &mut Jit<Flat>, until: Until<'_>, what: &str) {
    let stops = (interpreter.run(until, &mut ()), jit.run(until, &mut ()));
    assert_eq!(format!("{:?}", stops.0), format!("{:?}", stops.1), "{what}");
    assert_eq!(interpreter.cpu().state(), jit.cpu().state(), "{what}");
    assert_eq!(interpreter.counters(), jit.counters(), "{what}");
    assert!(interpreter.cpu().bus().ram() == jit.cpu().bus().ram(), "{what}");
    assert_eq!(interpreter.cpu().bus().asked(), jit.cpu().bus().asked(), "{what}");
}
