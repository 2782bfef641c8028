//! Each vector instruction that the table says is compiled has code, which is not left.

#[path = "../../tests/support/mod.rs"]
#[expect(dead_code, reason = "its states are for other tests")]
mod support;

use x86::bus::PAGE_SIZE;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::Until;
use x86::state::{Fpu, Regs};
use x86::table::lookup_compiled;
use x86_jit::{Jit, Tuning};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const ROUNDS: u64 = 200;

/// Instructions of a round.
const LENGTH: u64 = 5;

/// A CPU about to run the instruction again and again. Its numbers are ordinary ones, whatever their format.
fn loop_of(instruction: &[u8]) -> Jit<Flat> {
    // mov rax, r14; mov rsi, r14: the instruction may overwrite its own address.
    let mut code = vec![0x4c, 0x89, 0xf0, 0x4c, 0x89, 0xf6];
    code.extend(instruction);
    // dec r15; jne start; syscall
    code.extend([0x49, 0xff, 0xcf]);
    let back = i8::try_from(code.len() + 2).unwrap();
    code.extend([0x75, (-back).cast_unsigned(), 0x0f, 0x05]);
    let number = 0x3ff8_0000_3ff8_0000_u64;
    let mut memory = Flat::new();
    memory.map(CODE, &code, Protection::CODE);
    memory.map(DATA, &number.to_le_bytes().repeat(usize::try_from(PAGE_SIZE / 8).unwrap()), Protection::DATA);
    let mut jit = Jit::new(Cpu::new(memory), Some(Tuning::eager(0)));
    let mut regs = Regs { rip: CODE, ..Regs::default() };
    (regs.gpr[14], regs.gpr[15]) = (DATA, ROUNDS);
    let mut fpu = Fpu::default();
    for n in 0..16 {
        fpu.set_xmm(n, [number; 2]);
    }
    jit.cpu_mut().set_regs(&regs);
    jit.cpu_mut().set_fpu(&fpu);
    jit
}

#[test]
fn each_vector_instruction_of_the_table_is_compiled() {
    let (mut seen, mut left) = (0, Vec::new());
    for (i, bytes) in support::encodings() {
        if lookup_compiled::<Cpu<Flat>>(&i).is_none() {
            continue;
        }
        seen += 1;
        let mut jit = loop_of(&bytes);
        jit.run(Until { instructions: LENGTH * ROUNDS, at: &[] }, &mut ());
        // Of a few rounds the interpreter runs some: until there is code, and until its memory is known.
        let in_code = jit.work().instructions;
        if in_code < (LENGTH - 1) * ROUNDS {
            left.push(format!("{i}: {in_code} of {} instructions", jit.counters().instructions));
        }
    }
    assert!(left.is_empty(), "{left:#?}");
    assert!(seen > 300, "only {seen}");
}
