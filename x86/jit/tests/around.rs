//! A page of which some bytes have to be asked for: compiled code stores around them, and is left where it touches them.

use iced_x86::code_asm::*;
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Until};
use x86::state::Regs;
use x86_jit::{Jit, Tuning};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const ROUNDS: i32 = 32_000;
/// Of the structure, the bytes from here.
const WATCHED: u64 = 0x18;

/// A loop that stores before and behind bytes that are watched in each round, to them in each 64th, and to some of them and of those
/// before in each 128th.
fn cpu(structure: u64) -> Cpu<Flat> {
    let mut a = CodeAssembler::new(64).unwrap();
    let (mut again, mut seldom, mut never) = (a.create_label(), a.create_label(), a.create_label());
    a.mov(ecx, ROUNDS).unwrap();
    a.set_label(&mut again).unwrap();
    a.add(qword_ptr(rbx + 0x10), rcx).unwrap();
    a.mov(rax, qword_ptr(rbx + 0x18)).unwrap();
    a.mov(qword_ptr(rbx + 0x20), rax).unwrap();
    a.test(ecx, 63).unwrap();
    a.jne(never).unwrap();
    a.mov(dword_ptr(rbx + 0x18), ecx).unwrap();
    a.test(ecx, 127).unwrap();
    a.jne(seldom).unwrap();
    a.mov(dword_ptr(rbx + 0x16), ecx).unwrap();
    a.set_label(&mut seldom).unwrap();
    a.add(byte_ptr(rbx + 0x1f), 1).unwrap();
    a.set_label(&mut never).unwrap();
    a.dec(ecx).unwrap();
    a.jne(again).unwrap();
    a.syscall().unwrap();
    let mut memory = Flat::new();
    memory.map(CODE, &a.assemble(CODE).unwrap(), Protection::CODE);
    let bytes: Vec<u8> = (0..2 * PAGE_SIZE).map(|n| (n * 31).to_le_bytes()[0]).collect();
    memory.map(DATA, &bytes, Protection::DATA);
    memory.watch(structure + WATCHED..structure + WATCHED + 8);
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    regs.gpr[3] = structure;
    cpu.set_regs(&regs);
    cpu
}

#[test]
fn code_stores_around_what_is_watched_and_asks_for_that() {
    // In the midst of a page, at its beginning, and at its end.
    for structure in [DATA + 0x200, DATA, DATA - WATCHED + PAGE_SIZE - 8] {
        let mut interpreter = Interpreter::new(cpu(structure));
        let mut jit = Jit::new(cpu(structure), Some(Tuning::eager(2)));
        let stops = (interpreter.run(Until::EVENT, &mut ()), jit.run(Until::EVENT, &mut ()));
        assert_eq!(format!("{:?}", stops.0), format!("{:?}", stops.1));
        assert_eq!(interpreter.cpu().state(), jit.cpu().state(), "a structure at {structure:#x}");
        assert_eq!(interpreter.counters(), jit.counters());
        assert!(interpreter.cpu().bus().ram() == jit.cpu().bus().ram(), "a structure at {structure:#x}");
        let asked = jit.cpu().bus().asked();
        assert_eq!(asked, interpreter.cpu().bus().asked());
        assert!(asked >= 2 * u64::try_from(ROUNDS / 64).unwrap(), "{asked} stores have asked");
        let (work, all) = (jit.work(), jit.counters().instructions);
        assert!(work.instructions > all - all / 10, "{work:?} of {all}, a structure at {structure:#x}");
        assert!(work.stays < u64::try_from(ROUNDS / 8).unwrap(), "{work:?}");
    }
}

#[test]
fn a_page_that_is_watched_no_more_or_somewhere_else_is_looked_up_anew() {
    let mut interpreter = Interpreter::new(cpu(DATA));
    let mut jit = Jit::new(cpu(DATA), Some(Tuning::eager(2)));
    let moved = DATA + 0x10..DATA + 0x14;
    for instructions in [100_000, 200_000] {
        let until = Until { instructions, at: &[] };
        let stops = (interpreter.run(until, &mut ()), jit.run(until, &mut ()));
        assert_eq!(format!("{:?}", stops.0), format!("{:?}", stops.1));
        assert_eq!(interpreter.cpu().state(), jit.cpu().state());
        let asked = (interpreter.cpu().bus().asked(), jit.cpu().bus().asked());
        assert_eq!(asked.0, asked.1, "up to {instructions} instructions");
        for cpu in [interpreter.cpu_mut(), jit.cpu_mut()] {
            cpu.bus_mut().watch(moved.clone());
            cpu.invalidate_page(DATA);
        }
    }
    let asked = jit.cpu().bus().asked();
    assert!(asked > 10_000, "{asked}: the bytes that are stored to in each round are watched now");
}
