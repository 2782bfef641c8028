//! What runs as compiled code though it is of an odd kind: an instruction across the end of a page, one that the CPU runs there, and
//! string instructions.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::state::Regs;
use x86_jit::{Jit, Kept, Tuning, Work, kept_from_bytes};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const ROUNDS: u64 = 20_000;

type Body = fn(&mut CodeAssembler) -> Result<(), IcedError>;

/// A loop of what `body` writes; so many bytes of it are before the end of a page.
fn cpu(before_end: u64, body: Body) -> Cpu<Flat> {
    let start = CODE + PAGE_SIZE - before_end;
    let mut a = CodeAssembler::new(64).unwrap();
    let mut again = a.create_label();
    a.set_label(&mut again).unwrap();
    body(&mut a).unwrap();
    a.dec(ebx).unwrap();
    a.jne(again).unwrap();
    a.syscall().unwrap();
    let mut code = vec![0xcc; usize::try_from(PAGE_SIZE - before_end).unwrap()];
    code.extend(a.assemble(start).unwrap());
    let mut memory = Flat::new();
    memory.map(CODE, &code, Protection::CODE);
    memory.map(DATA, &[7; 1 << 12], Protection::DATA);
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: start, rflags: 0x202, ..Regs::default() };
    (regs.gpr[3], regs.gpr[12]) = (ROUNDS, DATA);
    cpu.set_regs(&regs);
    cpu
}

/// Runs it to its end, and compares with the interpreter; what compiled code has done, and the code.
fn run(before_end: u64, body: Body, kept: Kept) -> (Work, Vec<u8>) {
    let mut interpreter = Interpreter::new(cpu(before_end, body));
    let mut jit = Jit::new(cpu(before_end, body), Some(Tuning::eager(50)));
    jit.keep(kept);
    let stops = (interpreter.run(Until::EVENT, &mut ()), jit.run(Until::EVENT, &mut ()));
    assert_eq!(format!("{:?}", stops.0), format!("{:?}", stops.1));
    assert_eq!(interpreter.cpu().state(), jit.cpu().state());
    assert_eq!(interpreter.counters(), jit.counters());
    assert!(interpreter.cpu().bus().ram() == jit.cpu().bus().ram());
    let work = jit.work();
    assert!(work.instructions > jit.counters().instructions / 10 * 9, "{before_end}: {work:?}");
    assert!(work.stays < ROUNDS / 100, "it stays in its code: {work:?}");
    (work, jit.kept().expect("it keeps code").to_bytes())
}

#[test]
fn an_instruction_across_the_end_of_a_page_is_compiled() {
    for before_end in 1..6 {
        run(before_end, |a| a.add(eax, 0x1122_3344), Kept::new());
        // The second one lies across it.
        run(before_end + 3, |a| a.lea(rdx, ptr(rdx + 5)).and_then(|()| a.adc(eax, 0x1122_3344)), Kept::new());
    }
}

#[test]
fn one_there_that_the_cpu_runs_is_found_again_in_kept_code() {
    let body: Body = |a| {
        a.pshufb(xmm0, xmm1)?;
        a.add(rax, 3)?;
        a.xor(rcx, rax)
    };
    for before_end in 1..5 {
        let (first, code) = run(before_end, body, Kept::new());
        assert!(first.regions > 0, "{first:?}");
        // SAFETY: the bytes are those that the first run gave.
        let kept = unsafe { kept_from_bytes(&code) }.expect("as it was");
        let (second, _) = run(before_end, body, kept);
        assert_eq!((second.regions, second.taken > 0), (0, true), "{second:?}");
    }
}

#[test]
fn string_instructions_are_run_without_leaving_the_code() {
    run(
        0x100,
        |a| {
            a.mov(rdi, r12)?;
            a.mov(ecx, 9)?;
            a.rep().stosq()?;
            a.lea(rsi, ptr(r12 + 3))?;
            a.mov(ecx, 21)?;
            a.rep().movsb()?;
            a.mov(rdi, r12)?;
            a.mov(ecx, 30)?;
            a.repne().scasb()?;
            a.adc(rax, rcx)
        },
        Kept::new(),
    );
}

/// A loop of string instructions ends its run where they have gone through what they may, a whole instruction later at most; where it goes
/// on from there, it ends as one that was never ended.
#[test]
fn a_run_ends_where_string_instructions_have_gone_through_their_bytes() {
    const BYTES: u64 = 512 * 8;
    const ALLOWED: u64 = BYTES * 10;
    let body: Body = |a| {
        a.mov(rdi, r12)?;
        a.mov(ecx, 512)?;
        a.rep().stosq()
    };
    for tuning in [None, Some(Tuning::eager(50))] {
        let (mut whole, mut jit) = (Interpreter::new(cpu(64, body)), Jit::new(cpu(64, body), tuning));
        assert!(matches!(whole.run(Until::EVENT, &mut ()), Stop::Syscall));
        let mut ends = 0;
        loop {
            jit.cpu_mut().allow_strings(ALLOWED);
            let before = jit.counters().instructions;
            let stop = jit.run(Until::EVENT, &mut ());
            // Five instructions for each string one.
            let strings = (jit.counters().instructions - before).div_ceil(5);
            assert!(strings <= ALLOWED / BYTES + 1, "{strings} with {tuning:?}");
            match stop {
                Stop::Strings => ends += 1,
                Stop::Syscall => break,
                other => panic!("{other:?}"),
            }
        }
        let expected = ROUNDS / (ALLOWED / BYTES + 1)..=ROUNDS / (ALLOWED / BYTES);
        assert!(expected.contains(&ends), "{ends}");
        assert_eq!(whole.cpu().state(), jit.cpu().state());
        assert_eq!(whole.counters(), jit.counters());
        let native = jit.work().instructions;
        assert!(tuning.is_none() || native > jit.counters().instructions / 2, "{native} were compiled");
    }
}
