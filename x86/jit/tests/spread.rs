//! A structure that a page's end goes through: what is reached for in it is looked up together at first, and apart when that is seen.

mod structure;

use iced_x86::code_asm::*;
use structure::{DATA, both, run};
use x86::bus::PAGE_SIZE;
use x86::cpu::Cpu;
use x86::flat::Flat;
use x86::interpreter::Until;

/// Rounds of the loop, of eight instructions.
const ROUNDS: i32 = 20_000;

/// A loop over the fields of a structure.
fn cpu(at: u64) -> Cpu<Flat> {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut again = a.create_label();
    a.mov(ecx, ROUNDS).unwrap();
    a.set_label(&mut again).unwrap();
    a.mov(rax, qword_ptr(rbx)).unwrap();
    a.add(rax, qword_ptr(rbx + 8)).unwrap();
    a.mov(qword_ptr(rbx + 0x18), rax).unwrap();
    a.add(qword_ptr(rbx + 8), rcx).unwrap();
    a.movzx(edx, byte_ptr(rbx + 0x52)).unwrap();
    a.mov(dword_ptr(rbx + 0x98), edx).unwrap();
    a.dec(ecx).unwrap();
    a.jne(again).unwrap();
    a.syscall().unwrap();
    structure::cpu(&mut a, at)
}

#[test]
fn what_spans_a_page_end_is_looked_up_apart_and_runs_as_code() {
    let before_end = [0x4, 0x8, 0xc, 0x18, 0x1c, 0x40, 0x53, 0x9a, 0x9c, 0x100];
    for before_end in before_end {
        let (mut interpreter, mut jit) = both(|| cpu(DATA + PAGE_SIZE - before_end));
        run(&mut interpreter, &mut jit, Until::EVENT, &format!("{before_end:#x} before the end"));
        // A field that the page's end goes through is the interpreter's.
        let (work, all) = (jit.work(), jit.counters().instructions);
        let is_split = [0x4, 0xc, 0x1c, 0x9a].contains(&before_end);
        assert_eq!(
            work.instructions > all - all / 20,
            !is_split,
            "{before_end:#x} before the end: {work:?} of {all}"
        );
    }
}
