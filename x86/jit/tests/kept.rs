//! A loop with more in it than one run has: what its code calls out for is found again when that is kept.

use iced_x86::code_asm::*;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Until};
use x86::state::Regs;
use x86_jit::{Jit, Kept, Tuning, kept_from_bytes};

const CODE: u64 = 0x40_0000;

/// The first run ends before its vector instruction, which so is in none; the second run has another one.
fn cpu() -> Cpu<Flat> {
    let mut a = CodeAssembler::new(64).unwrap();
    let (mut again, mut second) = (a.create_label(), a.create_label());
    a.mov(ecx, 20_000).unwrap();
    a.mov(eax, 1).unwrap();
    a.movq(xmm1, rax).unwrap();
    a.set_label(&mut again).unwrap();
    (0..54).for_each(|n| a.add(rax, 3 * n + 1).unwrap());
    a.paddq(xmm0, xmm1).unwrap();
    a.jmp(second).unwrap();
    a.set_label(&mut second).unwrap();
    (0..10).for_each(|n| a.xor(rax, 5 * n + 1).unwrap());
    a.paddd(xmm2, xmm1).unwrap();
    a.dec(ecx).unwrap();
    a.jne(again).unwrap();
    a.syscall().unwrap();
    let mut memory = Flat::new();
    memory.map(CODE, &a.assemble(CODE).unwrap(), Protection::CODE);
    let mut cpu = Cpu::new(memory);
    cpu.set_regs(&Regs { rip: CODE, rflags: 0x202, ..Regs::default() });
    cpu
}

#[test]
fn outcalls_of_kept_code_are_those_of_its_runs() {
    let mut interpreter = Interpreter::new(cpu());
    interpreter.run(Until::EVENT, &mut ());
    let mut code = None;
    for earlier in [false, true] {
        let mut jit = Jit::new(cpu(), Some(Tuning::eager(100)));
        // SAFETY: the bytes are those that the first round was given.
        let kept = code.take().map(|bytes: Vec<u8>| unsafe { kept_from_bytes(&bytes) }.expect("as it was"));
        jit.keep(kept.unwrap_or_else(Kept::new));
        jit.run(Until::EVENT, &mut ());
        assert_eq!(jit.cpu().state(), interpreter.cpu().state());
        assert_eq!(jit.counters(), interpreter.counters());
        let work = jit.work();
        assert!(work.instructions > jit.counters().instructions / 2, "{work:?}");
        assert_eq!((work.regions == 0, work.taken > 0), (earlier, earlier), "{work:?}");
        code = Some(jit.kept().expect("it keeps code").to_bytes());
    }
}
