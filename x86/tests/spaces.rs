//! Several address spaces on one CPU: each runs its own code, and the decoded blocks are shared where the code is.

use iced_x86::code_asm::*;
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::machine::Trap;
use x86::state::Regs;

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
/// A second mapping of code.
const ALIAS: u64 = 0x60_0000;
/// Where the tests put frames into RAM, one page after the other; no space runs there.
const FRAMES: u64 = 0x1_0000_0000;

type Assembled = Result<(), IcedError>;

fn assemble(code: impl FnOnce(&mut CodeAssembler) -> Assembled) -> Vec<u8> {
    let mut a = CodeAssembler::new(64).unwrap();
    code(&mut a).unwrap();
    a.assemble(CODE).unwrap()
}

/// RAM with these pages, one frame each.
fn machine(frames: &[&[u8]]) -> Interpreter<Flat> {
    let mut memory = Flat::new();
    for (va, bytes) in (FRAMES..).step_by(4096).zip(frames) {
        memory.map(va, bytes, Protection::READ);
    }
    Interpreter::new(Cpu::new(memory))
}

/// A process: its pages, each with the number of its frame, and its registers.
#[derive(Clone)]
struct Process {
    pages: Vec<(u64, u64, Protection)>,
    regs: Regs,
}

impl Process {
    fn new(pages: &[(u64, u64, Protection)], rip: u64) -> Process {
        Process { pages: pages.to_vec(), regs: Regs { rip, rflags: 0x202, ..Regs::default() } }
    }

    /// Runs on `m` up to `count` instructions, after a switch that forgets translations and nothing else.
    fn run(&mut self, m: &mut Interpreter<Flat>, count: u64) -> Stop {
        for va in [CODE, CODE + PAGE_SIZE, DATA, ALIAS] {
            m.cpu_mut().bus_mut().unmap(va);
        }
        for &(va, frame, protection) in &self.pages {
            m.cpu_mut().bus_mut().alias(va, frame * PAGE_SIZE, protection);
        }
        m.cpu_mut().flush_tlb();
        m.cpu_mut().set_regs(&self.regs);
        let stop = m.run(Until::retired(m.counters().instructions.saturating_add(count)), &mut ());
        self.regs = m.cpu().regs();
        stop
    }
}

fn sum(step: i32) -> Vec<u8> {
    assemble(|a| {
        let mut again = a.create_label();
        a.mov(ecx, 50)?;
        a.set_label(&mut again)?;
        a.add(rax, step)?;
        a.add(qword_ptr(DATA), rax)?;
        a.dec(ecx)?;
        a.jne(again)?;
        a.mov(rdx, qword_ptr(DATA))?;
        a.syscall()
    })
}

#[test]
fn processes_with_other_code_at_one_address_take_turns() {
    // Frames: code, code, data, data, data. The third process has the code of the first.
    let new =
        |code, data| Process::new(&[(CODE, code, Protection::CODE), (DATA, data, Protection::DATA)], CODE);
    let all = [(new(0, 2), 1), (new(1, 3), 3), (new(0, 4), 1)];
    for slice in 1..12 {
        let mut m = machine(&[&sum(1), &sum(3), &[0], &[0], &[0]]);
        let mut running: Vec<_> = all.to_vec();
        let mut ended = 0;
        while !running.is_empty() {
            running.retain_mut(|(process, step)| match process.run(&mut m, slice) {
                Stop::Budget => true,
                Stop::Syscall => {
                    assert_eq!((process.regs.gpr[0], process.regs.gpr[2]), (*step * 50, *step * 51 * 25));
                    ended += 1;
                    false
                }
                stop => panic!("{stop:x?}"),
            });
        }
        assert_eq!(ended, 3);
        assert_eq!(m.counters().instructions, 3 * (1 + 4 * 50 + 2));
    }
}

#[test]
fn an_instruction_over_two_frames_is_that_of_both() {
    // MOV EAX, imm32 begins in the last byte of frame 0; its immediate is in frame 1 or 2, and a SYSCALL follows.
    let mut first = [0x90; 4096];
    first[4095] = 0xb8;
    let [second, third] = [7, 9].map(|n| [n, 0, 0, 0, 0x0f, 0x05]);
    let mut m = machine(&[&first, &second, &third]);
    let process = |frame| {
        let pages = [(CODE, 0, Protection::CODE), (CODE + PAGE_SIZE, frame, Protection::CODE)];
        Process::new(&pages, CODE + 4000)
    };
    for (frame, value) in [(1, 7), (2, 9), (1, 7), (1, 7), (2, 9)] {
        let mut process = process(frame);
        assert!(matches!(process.run(&mut m, u64::MAX), Stop::Syscall));
        assert_eq!(process.regs.gpr[0], value);
    }
    let mut alone = Process { pages: vec![(CODE, 0, Protection::CODE)], ..process(1) };
    assert!(matches!(alone.run(&mut m, u64::MAX), Stop::Trap { trap: Trap::Page, at } if at == CODE + 4095));
    // The host rewrites the second frame.
    m.cpu_mut().bus_mut().ram_mut()[4096] = 5;
    m.cpu_mut().written(4096, 1);
    let mut process = process(1);
    assert!(matches!(process.run(&mut m, u64::MAX), Stop::Syscall));
    assert_eq!(process.regs.gpr[0], 5);
}

#[test]
fn one_frame_at_two_addresses_has_two_sets_of_addresses() {
    // lea rax, [rip]; syscall
    let mut m = machine(&[&[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0x0f, 0x05]]);
    for rip in [CODE, ALIAS, CODE] {
        let mut process = Process::new(&[(CODE, 0, Protection::CODE), (ALIAS, 0, Protection::CODE)], rip);
        assert!(matches!(process.run(&mut m, u64::MAX), Stop::Syscall));
        assert_eq!(process.regs.gpr[0], rip + 7);
    }
}

#[test]
fn a_process_that_may_not_execute_shared_code_faults() {
    let mut m = machine(&[&sum(1), &[0]]);
    let data = (DATA, 1, Protection::DATA);
    let mut may = Process::new(&[(CODE, 0, Protection::CODE), data], CODE);
    let mut may_not = Process::new(&[(CODE, 0, Protection::READ), data], CODE);
    for _ in 0..2 {
        assert!(matches!(may.clone().run(&mut m, 20), Stop::Budget));
        assert!(matches!(may_not.run(&mut m, 20), Stop::Trap { trap: Trap::Page, at: CODE }));
    }
    assert!(matches!(may.run(&mut m, u64::MAX), Stop::Syscall));
}

/// Two processes share a frame that one executes and the other writes, in turns.
#[test]
fn what_one_process_writes_another_executes() {
    let code = assemble(|a| {
        a.mov(eax, 1)?;
        a.syscall()
    });
    let writer = assemble(|a| {
        a.mov(byte_ptr(ALIAS + 1), bl)?;
        a.syscall()
    });
    let mut m = machine(&[&code, &writer]);
    let reader = Process::new(&[(CODE, 0, Protection::CODE)], CODE);
    let mut writer = Process::new(&[(CODE, 1, Protection::CODE), (ALIAS, 0, Protection::DATA)], CODE);
    let mut expected = 1;
    for value in [5, 5, 6, 7] {
        let mut reader = reader.clone();
        assert!(matches!(reader.run(&mut m, u64::MAX), Stop::Syscall));
        assert_eq!(reader.regs.gpr[0], expected);
        (writer.regs.rip, writer.regs.gpr[3]) = (CODE, value);
        assert!(matches!(writer.run(&mut m, u64::MAX), Stop::Syscall));
        expected = value;
    }
}

/// A just-in-time compiler: it writes through one page what it executes in another of the same frame.
#[test]
fn a_store_through_a_second_mapping_is_seen_by_the_code() {
    let code = assemble(|a| {
        let (mut again, mut patched) = (a.create_label(), a.create_label());
        a.mov(ecx, 20)?;
        a.lea(rdi, ptr(patched))?;
        a.add(rdi, i32::try_from(ALIAS - CODE).unwrap())?;
        a.set_label(&mut again)?;
        a.mov(byte_ptr(rdi + 1), cl)?;
        a.set_label(&mut patched)?;
        a.mov(eax, 99)?;
        a.add(rbx, rax)?;
        a.dec(ecx)?;
        a.jne(again)?;
        a.syscall()
    });
    let mut m = machine(&[&code]);
    let mut process = Process::new(&[(CODE, 0, Protection::CODE), (ALIAS, 0, Protection::DATA)], CODE);
    assert!(matches!(process.run(&mut m, u64::MAX), Stop::Syscall));
    assert_eq!(process.regs.gpr[3], 20 * 21 / 2);
    assert_eq!(m.counters().instructions, 3 + 5 * 20 + 1);
}
