//! The frames that instructions have written, for those who collect what has changed.

mod support;

use iced_x86::code_asm::*;
use support::{CODE, DATA, encodings, state};
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::state::{Regs, State};

/// Bytes in a page: the code is in the first of RAM, and three pages of data behind it.
const PAGE: usize = 4096;

type Assembled = Result<(), IcedError>;

fn machine(code: &[u8]) -> Interpreter<Flat> {
    let mut memory = Flat::new();
    memory.map(CODE, code, Protection::ALL);
    memory.map(DATA, &[0; 3 * PAGE], Protection::DATA);
    Interpreter::new(Cpu::new(memory))
}

/// Runs `code` up to a system call, with rdi `offset` bytes into the data and rsp at its end; the numbers of the frames that
/// were written.
fn written(offset: u64, code: impl FnOnce(&mut CodeAssembler) -> Assembled) -> Vec<u64> {
    let mut a = CodeAssembler::new(64).unwrap();
    code(&mut a).unwrap();
    a.syscall().unwrap();
    let mut m = machine(&a.assemble(CODE).unwrap());
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    (regs.gpr[4], regs.gpr[6], regs.gpr[7]) = (DATA + 3 * PAGE_SIZE, DATA, DATA + offset);
    let mut all = Vec::new();
    for _ in 0..2 {
        m.cpu_mut().set_regs(&regs);
        assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
        all.push(m.cpu_mut().take_written().iter().map(|frame| frame / PAGE_SIZE).collect::<Vec<_>>());
        assert!(m.cpu_mut().take_written().is_empty(), "nothing ran in between");
    }
    assert_eq!(all[0], all[1], "the first store after each look is noticed");
    all.remove(0)
}

#[test]
fn each_kind_of_store_is_noticed_in_the_frames_it_touches() {
    assert!(written(0, |a| a.mov(rax, qword_ptr(rdi))).is_empty(), "a load");
    assert_eq!(written(0, |a| a.mov(qword_ptr(rdi), rax)), [1]);
    assert_eq!(written(0xffc, |a| a.mov(qword_ptr(rdi), rax)), [1, 2]);
    assert_eq!(written(0xfff, |a| a.movdqu(xmmword_ptr(rdi), xmm0)), [1, 2]);
    assert_eq!(written(0, |a| a.push(rax)), [3]);
    assert_eq!(written(0x1000, |a| a.lock().add(dword_ptr(rdi), 1)), [2]);
    assert_eq!(written(0x1ff0, |a| a.fxsave(byte_ptr(rdi))), [2, 3]);
    assert_eq!(written(0x1ffc, |a| a.fstp(tword_ptr(rdi))), [2, 3]);
    let filled = written(0x10, |a| {
        a.mov(ecx, 0x2001)?;
        a.rep().stosb()
    });
    assert_eq!(filled, [1, 2, 3]);
    let copied = written(0x1ffe, |a| {
        a.mov(ecx, 4)?;
        a.rep().movsb()
    });
    assert_eq!(copied, [2, 3]);
    let into_code = written(0, |a| a.mov(dword_ptr(CODE + 0x800), eax));
    assert_eq!(into_code, [0], "a frame with decoded instructions");
}

/// The order in which frames are written does not show.
#[test]
fn frames_come_in_order_and_once() {
    let all = written(0x1000, |a| {
        for offset in [0x1000, 0, -0x1000, 0x1008, 8] {
            a.mov(qword_ptr(rdi + offset), rax)?;
        }
        a.push(rax)
    });
    assert_eq!(all, [1, 2, 3]);
}

/// A state with pointers `moved` bytes further into the data, but for the registers of `small`.
fn state_at((small, moved): (&[usize], u64)) -> State {
    let mut state = state(small);
    for r in state.regs.gpr.iter_mut().filter(|r| **r >= DATA) {
        *r += moved;
    }
    state
}

/// Whatever an instruction changes in memory is in a frame that is named.
#[test]
fn no_encoding_stores_unnoticed() {
    let mut m = machine(&[0xcc; PAGE]);
    let (mut changes, mut two) = (0, 0);
    for (i, bytes) in encodings() {
        m.cpu_mut().bus_mut().ram_mut()[..bytes.len()].copy_from_slice(&bytes);
        m.cpu_mut().written(0, bytes.len() as u64);
        for before in [(&[0, 1, 2, 3][..], 0), (&[1], 0), (&[1], 0xe79), (&[1], 0x1e79)].map(state_at) {
            m.cpu_mut().bus_mut().ram_mut()[PAGE..].fill(0x93);
            m.cpu_mut().load_state(&before);
            m.run(Until::retired(m.counters().instructions + 1), &mut ());
            let written = m.cpu_mut().take_written();
            let frames = m.cpu().bus().ram()[PAGE..].chunks_exact(PAGE);
            let changed: Vec<_> = (PAGE_SIZE..)
                .step_by(PAGE)
                .zip(frames)
                .filter(|(_, bytes)| **bytes != [0x93; PAGE])
                .map(|(frame, _)| frame)
                .collect();
            assert!(changed.iter().all(|frame| written.contains(frame)), "{i}: {changed:x?}, {written:x?}");
            changes += usize::from(!changed.is_empty());
            two += usize::from(changed.len() > 1);
        }
    }
    assert!(changes > 2_000, "only {changes} runs changed memory");
    assert!(two > 200, "only {two} changed two frames");
}
