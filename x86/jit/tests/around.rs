//! A page of which some bytes are watched: compiled code stores around them, and is left where it touches them.

mod structure;

use std::slice;

use iced_x86::code_asm::*;
use structure::{DATA, both, run};
use x86::bus::{PAGE_SIZE, part_between};
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
    cpu.bus_mut().watch(slice::from_ref(&(at + WATCHED..at + WATCHED + 8)));
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
            cpu.bus_mut().watch(slice::from_ref(&(DATA + 0x10..DATA + 0x14)));
            cpu.invalidate_page(DATA);
        }
    }
    let asked = jit.cpu().bus().asked();
    assert!(asked > 10_000, "{asked}: the bytes that are stored to in each round are watched now");
}

/// A loop that stores between watched bytes, before and behind them, in two pages in turns, and to none of them.
fn between(at: u64) -> Cpu<Flat> {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut again = a.create_label();
    let other = i32::try_from(PAGE_SIZE).unwrap();
    a.mov(ecx, ROUNDS).unwrap();
    a.set_label(&mut again).unwrap();
    for page in [0, other] {
        a.add(qword_ptr(rbx + page), rcx).unwrap();
        a.mov(qword_ptr(rbx + page + 0x10), rcx).unwrap();
        a.add(dword_ptr(rbx + page + 0x20), 1).unwrap();
    }
    a.dec(ecx).unwrap();
    a.jne(again).unwrap();
    a.syscall().unwrap();
    let mut cpu = structure::cpu(&mut a, at);
    let watched =
        [0, PAGE_SIZE].map(|page| [0x8, 0x18].map(|field| at + page + field..at + page + field + 8));
    cpu.bus_mut().watch(&watched.concat());
    cpu
}

#[test]
fn code_stores_between_what_is_watched_in_several_pages() {
    for at in [DATA + 0x200, DATA, DATA + PAGE_SIZE - 0x28] {
        let (mut interpreter, mut jit) = both(|| between(at));
        run(&mut interpreter, &mut jit, Until::EVENT, &format!("structures at {at:#x}"));
        let (work, all) = (jit.work(), jit.counters().instructions);
        assert!(work.instructions > all - all / 10, "{work:?} of {all}, structures at {at:#x}");
        assert!(work.stays < u64::try_from(ROUNDS / 32).unwrap(), "{work:?}");
    }
}

#[test]
fn a_part_of_a_page_ends_where_watched_bytes_begin() {
    let watched = || [DATA + 8..DATA + 16, DATA + 24..DATA + 25, DATA + 30..DATA + 30].into_iter();
    for (va, part) in [
        (DATA, Some(DATA..DATA + 8)),
        (DATA + 7, Some(DATA..DATA + 8)),
        (DATA + 8, None),
        (DATA + 16, Some(DATA + 16..DATA + 24)),
        (DATA + 24, None),
        (DATA + 25, Some(DATA + 25..DATA + PAGE_SIZE)),
        (DATA + PAGE_SIZE, Some(DATA + PAGE_SIZE..DATA + 2 * PAGE_SIZE)),
        (u64::MAX, None),
    ] {
        assert_eq!(part_between(va, watched()), part, "{va:#x}");
    }
    assert_eq!(part_between(DATA, std::iter::once(DATA + 0xffc..DATA + 0x1004)), Some(DATA..DATA + 0xffc));
}
