//! A page of which some bytes are watched: compiled code stores around them, and is left where it touches them.

mod structure;

use iced_x86::code_asm::*;
use structure::{DATA, both, run};
use x86::bus::PAGE_SIZE;
use x86::cpu::Cpu;
use x86::flat::Flat;
use x86::interpreter::Until;

const ROUNDS: i32 = 32_000;
/// Of the structure, the bytes from here.
const WATCHED: u64 = 0x18;

/// A loop that stores before and behind bytes that are watched in each round, to them in each 64th, and to some of them and of those
/// before in each 128th.
fn cpu(at: u64) -> Cpu<Flat> {
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
    let mut cpu = structure::cpu(&mut a, at);
    cpu.bus_mut().watch(at + WATCHED..at + WATCHED + 8);
    cpu
}

#[test]
fn code_stores_around_what_is_watched_and_asks_for_that() {
    // In the midst of a page, at its beginning, and at its end.
    for at in [DATA + 0x200, DATA, DATA - WATCHED + PAGE_SIZE - 8] {
        let (mut interpreter, mut jit) = both(|| cpu(at));
        run(&mut interpreter, &mut jit, Until::EVENT, &format!("a structure at {at:#x}"));
        let asked = jit.cpu().bus().asked();
        assert!(asked >= 2 * u64::try_from(ROUNDS / 64).unwrap(), "{asked} stores have asked");
        let (work, all) = (jit.work(), jit.counters().instructions);
        assert!(work.instructions > all - all / 10, "{work:?} of {all}, a structure at {at:#x}");
        assert!(work.stays < u64::try_from(ROUNDS / 8).unwrap(), "{work:?}");
    }
}

#[test]
fn a_page_that_is_watched_somewhere_else_is_looked_up_anew() {
    let (mut interpreter, mut jit) = both(|| cpu(DATA));
    for instructions in [100_000, 200_000] {
        let until = Until { instructions, at: &[] };
        run(&mut interpreter, &mut jit, until, &format!("up to {instructions} instructions"));
        for cpu in [interpreter.cpu_mut(), jit.cpu_mut()] {
            cpu.bus_mut().watch(DATA + 0x10..DATA + 0x14);
            cpu.invalidate_page(DATA);
        }
    }
    let asked = jit.cpu().bus().asked();
    assert!(asked > 10_000, "{asked}: the bytes that are stored to in each round are watched now");
}
