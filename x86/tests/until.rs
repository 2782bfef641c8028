//! The bound on the address: every visit, exactly, wherever the instruction lies in its block.

use iced_x86::code_asm::*;
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Counters, Interpreter, Stop, Until};
use x86::state::{Regs, State};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const STACK: u64 = 0x70_0000;

type Assembled = Result<(), IcedError>;

fn machine(code: impl FnOnce(&mut CodeAssembler) -> Assembled) -> Interpreter<Flat> {
    let mut a = CodeAssembler::new(64).unwrap();
    code(&mut a).unwrap();
    let mut memory = Flat::new();
    memory.map(CODE, &a.assemble(CODE).unwrap(), Protection::ALL);
    memory.map(DATA, &[0; 8192], Protection::DATA);
    memory.map(STACK - PAGE_SIZE, &[0; 4096], Protection::DATA);
    Interpreter::new(Cpu::new(memory))
}

/// To the first instruction, with nothing counted. The blocks stay.
fn rewind(m: &mut Interpreter<Flat>) {
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    regs.gpr[4] = STACK;
    m.cpu_mut().load_state(&State { regs, ..State::default() });
    m.set_counters(Counters::default());
    let data = usize::try_from(m.cpu().bus().offset(DATA).unwrap()).unwrap();
    m.cpu_mut().bus_mut().ram_mut()[data..].fill(0);
}

/// Loops of one block and of two, a comparison with its branch, a call, a REP prefix, a jump into the middle of a block,
/// a store into the code; then a system call.
fn program(a: &mut CodeAssembler) -> Assembled {
    let [mut outer, mut inner, mut middle, mut function, mut skip] = [(); 5].map(|()| a.create_label());
    let mut patched = a.create_label();
    a.mov(r8d, 3)?;
    a.set_label(&mut outer)?;
    a.mov(ecx, 4)?;
    a.set_label(&mut inner)?;
    a.add(rax, rcx)?;
    a.dec(ecx)?;
    a.jne(inner)?;
    a.mov(rdi, DATA)?;
    a.mov(ecx, 600)?;
    a.rep().stosq()?;
    a.call(function)?;
    a.cmp(r8d, 2)?;
    a.je(middle)?;
    a.lea(rbx, qword_ptr(rbx + 1))?;
    a.set_label(&mut middle)?;
    a.lea(rbx, qword_ptr(rbx + 2))?;
    a.test(r8d, 1)?;
    a.je(skip)?;
    a.push(rax)?;
    a.pop(rdx)?;
    a.set_label(&mut skip)?;
    a.sub(r8d, 1)?;
    a.jne(outer)?;
    a.lea(rdi, ptr(patched))?;
    a.mov(byte_ptr(rdi + 1), 7)?;
    a.set_label(&mut patched)?;
    a.mov(eax, 1)?;
    a.syscall()?;
    a.set_label(&mut function)?;
    a.xor(rdx, rdi)?;
    a.ret()
}

/// The state and the counters before each instruction of the program, one step at a time.
fn trace(m: &mut Interpreter<Flat>) -> Vec<(Regs, Counters)> {
    rewind(m);
    let mut all = vec![(m.cpu().regs(), m.counters())];
    while m.step(&mut ()).is_none() {
        all.push((m.cpu().regs(), m.counters()));
    }
    all
}

/// A program that has run once, so that its blocks are there, and its trace.
fn traced() -> (Interpreter<Flat>, Vec<(Regs, Counters)>) {
    let mut m = machine(program);
    rewind(&mut m);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
    let whole = m.counters();
    let trace = trace(&mut m);
    assert_eq!(m.counters(), whole);
    rewind(&mut m);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
    (m, trace)
}

#[test]
fn of_several_instructions_each_visit_is_a_stop() {
    let (mut m, trace) = traced();
    let mut places: Vec<u64> = trace.iter().map(|(regs, _)| regs.rip).collect();
    places.sort_unstable();
    places.dedup();
    for nth in 1..6 {
        // Among them addresses at which no instruction begins.
        let at: Vec<u64> = places.iter().step_by(nth).flat_map(|place| [*place, place + 1]).collect();
        let at: Vec<u64> = at.iter().copied().filter(|at| nth % 2 == 0 || places.contains(at)).collect();
        let at: std::collections::BTreeSet<u64> = at.into_iter().collect();
        let at: Vec<u64> = at.into_iter().collect();
        rewind(&mut m);
        for visit in trace[1..].iter().filter(|(regs, _)| at.contains(&regs.rip)) {
            assert!(matches!(m.run(Until { at: &at, ..Until::EVENT }, &mut ()), Stop::At), "{at:x?}");
            assert_eq!((m.cpu().regs(), m.counters()), *visit, "{at:x?}");
        }
        assert!(matches!(m.run(Until { at: &at, ..Until::EVENT }, &mut ()), Stop::Syscall), "{at:x?}");
    }
}

#[test]
fn every_visit_of_every_instruction_is_a_stop() {
    let (mut m, trace) = traced();
    let mut places: Vec<u64> = trace.iter().map(|(regs, _)| regs.rip).collect();
    places.sort_unstable();
    places.dedup();
    assert!(places.len() > 20);
    for at in places {
        rewind(&mut m);
        for visit in trace[1..].iter().filter(|(regs, _)| regs.rip == at) {
            assert!(matches!(m.run(Until { at: &[at], ..Until::EVENT }, &mut ()), Stop::At), "{at:x}");
            assert_eq!((m.cpu().regs(), m.counters()), *visit, "{at:x}");
        }
        assert!(matches!(m.run(Until { at: &[at], ..Until::EVENT }, &mut ()), Stop::Syscall), "{at:x}");
    }
}

#[test]
fn the_nearer_of_both_bounds_stops_and_an_address_goes_before_a_count() {
    let (mut m, trace) = traced();
    for at in [1, 2, 3, 4, 8, 9, 12, 14, 15].map(|n: usize| trace[n].0.rip) {
        for begin in 0..40 {
            for count in 1..30 {
                rewind(&mut m);
                m.run(Until::retired(begin), &mut ());
                let bound = begin + count;
                let visit = (begin + 1..=bound).find(|n| trace[usize::try_from(*n).unwrap()].0.rip == at);
                let stop = m.run(Until { instructions: bound, at: &[at] }, &mut ());
                assert_eq!(matches!(stop, Stop::At), visit.is_some(), "{at:x} from {begin}, {count}");
                let stopped = usize::try_from(visit.unwrap_or(bound)).unwrap();
                assert_eq!((m.cpu().regs(), m.counters()), trace[stopped]);
            }
        }
    }
}

#[test]
fn an_address_that_no_instruction_begins_at_is_no_stop() {
    let (mut m, trace) = traced();
    let count = trace.len() as u64;
    for at in [CODE + 1, CODE + 7, 0, u64::MAX, CODE - 1] {
        assert!(trace.iter().all(|(regs, _)| regs.rip != at));
        rewind(&mut m);
        assert!(matches!(m.run(Until { at: &[at], ..Until::EVENT }, &mut ()), Stop::Syscall));
        assert_eq!(m.counters().instructions, count);
    }
}

#[test]
fn an_instruction_that_jumps_to_itself_stops_each_time() {
    let mut m = machine(|a| {
        let mut here = a.create_label();
        a.set_label(&mut here)?;
        a.jmp(here)
    });
    rewind(&mut m);
    for visits in 1..5 {
        assert!(matches!(m.run(Until { instructions: 100, at: &[CODE] }, &mut ()), Stop::At));
        assert_eq!(m.counters(), Counters { instructions: visits, taken: visits, conditionals: 0 });
    }
    let reached = Until { instructions: 4, at: &[CODE] };
    assert!(matches!(m.run(reached, &mut ()), Stop::Budget), "the run has not moved");
}

/// A fault at the address does not make its next run a visit.
#[test]
fn an_instruction_that_is_run_again_after_a_fault_is_one_visit() {
    let mut m = machine(|a| {
        a.nop()?;
        a.mov(rax, qword_ptr(rdi))?;
        a.syscall()
    });
    rewind(&mut m);
    let until = Until { at: &[CODE + 1], ..Until::EVENT };
    assert!(matches!(m.run(until, &mut ()), Stop::At));
    assert!(matches!(m.run(until, &mut ()), Stop::Trap { at, .. } if at == CODE + 1));
    m.cpu_mut().bus_mut().map(0, &[1; 4096], Protection::DATA);
    assert!(matches!(m.run(until, &mut ()), Stop::Syscall));
    assert_eq!(m.counters().instructions, 3);
}

/// It stores beside itself, and is decoded anew behind each element.
#[test]
fn a_string_instruction_is_one_visit_however_often_it_is_left_in_its_midst() {
    let string = CODE + 14;
    let mut m = machine(|a| {
        a.mov(ecx, 10)?;
        a.mov(edi, i32::try_from(CODE + 0x800).unwrap())?;
        a.xor(eax, eax)?;
        a.xor(edx, edx)?;
        a.rep().stosb()?;
        a.syscall()
    });
    rewind(&mut m);
    let until = Until { at: &[string, string + 2], ..Until::EVENT };
    for (rip, left) in [(string, 10), (string + 2, 0)] {
        assert!(matches!(m.run(until, &mut ()), Stop::At));
        assert_eq!((m.cpu().regs().rip, m.cpu().regs().gpr[1]), (rip, left));
    }
    assert!(matches!(m.run(until, &mut ()), Stop::Syscall));
    assert_eq!(m.counters().instructions, 6);
}
