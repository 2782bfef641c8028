//! Random programs run forward on the software CPU and then backwards on terms: every value that the
//! backward run claims to know must be the one that was there; and where the end is not what the program left, and
//! propagation finds that out, another solver finds it out from what is written for it.

use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use synth::past::audit::{Audit, Refutation};
use synth::past::hypothesis::{Hypothesis, Kernel, Refusal};
use synth::past::image::Image;
use synth::past::prepared::Prepared;
use synth::smt::script::script;
use synth::term::Terms;
use vmm::ram::PAGE_LEN;
use x86::bus::{Access, Bus, PAGE_SIZE, PageFault, Translation};
use x86::cpu::Cpu;
use x86::interpreter::{Interpreter, Stop};
use x86::op::{BranchKind, Gpr};
use x86::state::State;
use z3::{Params, SatResult, Solver};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const STACK_TOP: u64 = DATA + 2 * PAGE_SIZE;

/// One page of code, two of data and stack.
struct Memory(Vec<u8>);

impl Bus for Memory {
    fn ram(&self) -> &[u8] {
        &self.0
    }
    fn ram_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn translate(&mut self, va: u64, access: Access) -> Result<Translation, PageFault> {
        let page = va & !(PAGE_SIZE - 1);
        let frame = match page {
            CODE => 0,
            DATA => PAGE_SIZE,
            p if p == DATA + PAGE_SIZE => 2 * PAGE_SIZE,
            _ => return Err(PageFault::new(va, access, false)),
        };
        Ok(Translation { frame, writable: page != CODE, executable: page == CODE })
    }
}

/// The memory at the end.
struct End(Vec<u8>);

impl End {
    fn offset(va: u64) -> Option<usize> {
        let at = match va & !(PAGE_SIZE - 1) {
            CODE => va - CODE,
            DATA => va - DATA + PAGE_SIZE,
            p if p == DATA + PAGE_SIZE => va - DATA + PAGE_SIZE,
            _ => return None,
        };
        usize::try_from(at).ok()
    }
}

impl Image for End {
    fn bytes(&self, va: u64) -> &[u8] {
        let code = va < DATA;
        Self::offset(va).map_or(&[], |at| &self.0[at..if code { PAGE_LEN } else { self.0.len() }])
    }
    fn is_mapped(&self, va: u64) -> bool {
        Self::offset(va).is_some()
    }
    fn is_writable(&self, va: u64) -> bool {
        Self::offset(va).is_some_and(|at| at >= PAGE_LEN)
    }
    fn regions(&self) -> Vec<std::ops::Range<u64>> {
        vec![CODE..CODE + PAGE_SIZE, DATA..DATA + 2 * PAGE_SIZE]
    }
}

/// The state before each instruction of a run, and the addresses.
struct Run {
    states: Vec<State>,
    end: State,
    memory_at_end: Vec<u8>,
}

fn run(code: &[u8], start: &State) -> Run {
    let mut ram = vec![0; 3 * PAGE_LEN];
    ram[..code.len()].copy_from_slice(code);
    for (n, byte) in ram[PAGE_LEN..].iter_mut().enumerate() {
        *byte = (n * 7 + n / 256).to_le_bytes()[0];
    }
    let mut cpu = Cpu::new(Memory(ram));
    cpu.load_state(start);
    let mut interpreter = Interpreter::new(cpu);
    let mut states = Vec::new();
    loop {
        let state = interpreter.cpu().state();
        let stop = interpreter.step(&mut Ignore);
        if matches!(stop, Some(Stop::Syscall)) {
            return Run { states, end: state, memory_at_end: interpreter.cpu().bus().ram().to_vec() };
        }
        assert!(stop.is_none(), "the program runs to its end: {:#x}", state.regs.rip);
        states.push(state);
    }
}

struct Ignore;

impl x86::interpreter::Observer for Ignore {
    fn branch(&mut self, _: u64, _: u64, _: BranchKind) {}
}

/// Prepends the whole run backwards and compares what is known with what was there. Gives the share of
/// general registers that are known, over all steps.
fn check(code: &[u8], start: &State) -> f64 {
    let run = run(code, start);
    let image = End(run.memory_at_end);
    let terms = Rc::new(Terms::new());
    let mut hypothesis = Hypothesis::new(Rc::clone(&terms), &image, &run.end, Kernel::Linux);
    let (mut known, mut all) = (0, 0);
    for state in run.states.iter().rev() {
        let rip = state.regs.rip;
        let at = usize::try_from(rip - CODE).expect("inside the code");
        let instruction = Decoder::with_ip(64, &code[at..], rip, DecoderOptions::NONE).decode();
        let prepared = Prepared::new(&terms, instruction);
        hypothesis.prepend(&prepared, None).unwrap_or_else(|e| panic!("{instruction} at {rip:#x}: {e:?}"));
        for n in 0..16 {
            all += 1;
            let claimed = hypothesis.register(Gpr(n));
            if let Some(value) = terms.value(claimed) {
                known += 1;
                let truth = state.regs.gpr[usize::from(n)];
                assert_eq!(value, truth, "{} before {instruction} at {rip:#x}", Gpr(n).name());
            }
        }
    }
    f64::from(known) / f64::from(all)
}

fn start() -> State {
    let mut state = State::default();
    state.regs.rip = CODE;
    state.regs.rflags = 0x202;
    for (n, r) in state.regs.gpr.iter_mut().enumerate() {
        *r = 0x0123_4567_89ab_cdef_u64.wrapping_mul(n as u64 + 3);
    }
    state.regs.gpr[usize::from(Gpr::RSP.0)] = STACK_TOP - 512;
    state.regs.gpr[usize::from(Gpr::RSI.0)] = DATA + 256;
    state
}

#[test]
fn a_call_with_a_loop_is_run_backwards() {
    let mut a = CodeAssembler::new(64).expect("64-bit");
    let (mut function, mut done, mut again) = (a.create_label(), a.create_label(), a.create_label());
    let mut program = |a: &mut CodeAssembler| -> Result<(), iced_x86::IcedError> {
        a.mov(edi, 5)?;
        a.call(function)?;
        a.jmp(done)?;
        a.set_label(&mut function)?;
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.mov(dword_ptr(rbp - 4), edi)?;
        a.xor(eax, eax)?;
        a.set_label(&mut again)?;
        a.add(eax, dword_ptr(rbp - 4))?;
        a.imul_3(eax, eax, 3)?;
        a.sub(dword_ptr(rbp - 4), 1)?;
        a.cmp(dword_ptr(rbp - 4), 0)?;
        a.jg(again)?;
        a.pop(rbp)?;
        a.ret()?;
        a.set_label(&mut done)?;
        a.mov(ecx, eax)?;
        a.syscall()
    };
    program(&mut a).expect("assembles");
    let code = a.assemble(CODE).expect("assembles");
    let known = check(&code, &start());
    assert!(known > 0.8, "only {known:.2} of the registers are known");
}

/// One random instruction on registers r8 to r15, ebx, and 16 words of memory.
fn random_instruction(a: &mut CodeAssembler, choice: (u8, u8, u8, i32)) -> Result<(), iced_x86::IcedError> {
    const R64: [AsmRegister64; 8] = [r8, r9, r10, r11, r12, r13, r14, r15];
    const R32: [AsmRegister32; 8] = [r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d];
    const R8: [AsmRegister8; 8] = [r8b, r9b, r10b, r11b, r12b, r13b, r14b, r15b];
    let (op, x, y, imm) = choice;
    let (d, s) = (usize::from(x % 8), usize::from(y % 8));
    let cell = rsi + i32::from(y % 16) * 8;
    match op % 22 {
        0 => a.mov(R64[d], R64[s]),
        1 => a.mov(R64[d], qword_ptr(cell)),
        2 => a.mov(qword_ptr(cell), R64[d]),
        3 => a.add(R64[d], R64[s]),
        4 => a.sub(R32[d], imm),
        5 => a.xor(R64[d], qword_ptr(cell)),
        6 => a.add(dword_ptr(cell), R32[d]),
        7 => a.imul_3(R64[d], R64[s], imm | 1),
        8 => a.shl(R32[d], u32::from(y % 31)),
        9 => a.ror(R64[d], u32::from(y % 63)),
        10 => a.movzx(R32[d], R8[s]),
        11 => a.movsx(R64[d], word_ptr(cell)),
        12 => a.cmp(R64[d], R64[s]),
        13 => a.setl(R8[d]),
        14 => a.cmovb(R64[d], R64[s]),
        15 => a.push(R64[d]),
        16 => a.pop(R64[d]),
        17 => a.lea(R64[d], ptr(R64[s] + R64[d] * 2 + imm)),
        18 => a.not(R64[d]),
        19 => a.adc(R32[d], R32[s]),
        20 => a.movq(xmm1, R64[d]).and_then(|()| a.paddd(xmm1, xmmword_ptr(rsi))),
        _ => a.and(R32[d], imm),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_known_of_the_past_is_true(
        choices in proptest::collection::vec(any::<(u8, u8, u8, i32)>(), 1..80)
    ) {
        let mut a = CodeAssembler::new(64).expect("64-bit");
        for choice in choices {
            random_instruction(&mut a, choice).expect("assembles");
        }
        a.mov(ebx, ebx).expect("assembles");
        a.syscall().expect("assembles");
        let code = a.assemble(CODE).expect("assembles");
        check(&code, &start());
    }
}

/// Keeps what is written for other solvers.
#[derive(Default)]
struct Scripts(RefCell<Vec<String>>);

impl Audit for Scripts {
    fn refuted(&self, terms: &Terms, refutation: &Refutation) {
        assert_eq!(refutation.unplaced_stores, 0, "all addresses are known in these programs");
        self.0.borrow_mut().push(script(terms, refutation, &|_| String::new()));
    }
}

/// The refutation of a run whose end was changed, if going back finds one.
fn refuted(code: &[u8], start: &State, change: impl FnOnce(&mut State, &mut [u8])) -> Option<String> {
    let mut run = run(code, start);
    change(&mut run.end, &mut run.memory_at_end);
    let image = End(run.memory_at_end);
    let terms = Rc::new(Terms::new());
    let scripts = Rc::new(Scripts::default());
    let mut hypothesis = Hypothesis::new(Rc::clone(&terms), &image, &run.end, Kernel::Linux);
    hypothesis.set_audit(scripts.clone());
    for state in run.states.iter().rev() {
        let rip = state.regs.rip;
        let at = usize::try_from(rip - CODE).expect("inside the code");
        let instruction = Decoder::with_ip(64, &code[at..], rip, DecoderOptions::NONE).decode();
        match hypothesis.prepend(&Prepared::new(&terms, instruction), None) {
            Ok(()) => {}
            Err(Refusal::Contradiction) => {
                let written = scripts.0.borrow_mut().pop();
                return Some(written.expect("a refutation is told"));
            }
            Err(other) => panic!("{instruction}: {other:?}"),
        }
    }
    assert!(scripts.0.borrow().is_empty(), "nothing was refuted");
    None
}

fn ask(script: &str) -> SatResult {
    let solver = Solver::new();
    let mut params = Params::new();
    params.set_u32("rlimit", 3_000_000);
    solver.set_params(&params);
    solver.from_string(script.replace("(check-sat)\n(exit)\n", ""));
    assert!(!solver.get_assertions().is_empty(), "it parses: {script}");
    solver.check()
}

/// A constant that is there at the end of a program, but changed, is refuted, and confirmed to be.
#[test]
fn a_wrong_end_is_refuted_and_confirmed() {
    let mut a = CodeAssembler::new(64).expect("64-bit");
    let program = |a: &mut CodeAssembler| -> Result<(), iced_x86::IcedError> {
        a.mov(rcx, rsi)?;
        a.add(rcx, 8)?;
        a.mov(dword_ptr(rcx), 5)?;
        a.movq(xmm0, rcx)?;
        a.aesenc(xmm0, xmm0)?;
        a.syscall()
    };
    program(&mut a).expect("assembles");
    let code = a.assemble(CODE).expect("assembles");
    let cell = PAGE_LEN + 256 + 8;
    assert_eq!(refuted(&code, &start(), |_, _| {}), None);
    let in_memory = refuted(&code, &start(), |_, memory| memory[cell] ^= 2).expect("5 was stored");
    assert_eq!(ask(&in_memory), SatResult::Unsat, "{in_memory}");
    let in_register = refuted(&code, &start(), |end, _| end.regs.gpr[1] ^= 64).expect("rcx is rsi + 8");
    assert_eq!(ask(&in_register), SatResult::Unsat, "{in_register}");
    // Not arithmetic of bit vectors: what the software CPU gives is part of the script.
    let round = refuted(&code, &start(), |end, _| {
        let [low, high] = end.fpu.xmm(0);
        end.fpu.set_xmm(0, [low ^ 1, high]);
    });
    let round = round.expect("rcx tells what it is");
    assert!(round.contains("QF_UFBV"), "{round}");
    assert_eq!(ask(&round), SatResult::Unsat, "{round}");
}

/// A condition of two flags is learned by its meaning, before the flags are: the claims have the flags all the same.
#[test]
fn a_wrong_condition_of_two_flags_is_refuted_and_confirmed() {
    let mut a = CodeAssembler::new(64).expect("64-bit");
    let program = |a: &mut CodeAssembler| -> Result<(), iced_x86::IcedError> {
        a.add(r9, r10)?;
        a.setl(dl)?;
        a.cmp(r8, rsi)?;
        a.syscall()
    };
    program(&mut a).expect("assembles");
    let code = a.assemble(CODE).expect("assembles");
    assert_eq!(refuted(&code, &start(), |_, _| {}), None);
    let script = refuted(&code, &start(), |end, _| end.regs.gpr[2] ^= 1).expect("r9 and r10 tell");
    assert_eq!(ask(&script), SatResult::Unsat, "{script}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// What propagation refutes, a solver refutes that knows nothing of it.
    #[test]
    fn refutations_are_confirmed_from_outside(
        choices in proptest::collection::vec(any::<(u8, u8, u8, i32)>(), 1..40),
        (place, bit) in (0..24_usize, 0..64_u32),
    ) {
        let mut a = CodeAssembler::new(64).expect("64-bit");
        for choice in choices {
            random_instruction(&mut a, choice).expect("assembles");
        }
        a.mov(ebx, ebx).expect("assembles");
        a.syscall().expect("assembles");
        let code = a.assemble(CODE).expect("assembles");
        let script = refuted(&code, &start(), |end, memory| match place {
            // Not the stack pointer: the addresses of pushes would be others, and outside the memory.
            4 | 8..16 => end.regs.gpr[place.max(8)] ^= 1 << bit,
            0..8 => end.regs.rflags ^= 1 << [0, 2, 6, 7, 11][place % 5],
            _ => memory[PAGE_LEN + 256 + place * 5] ^= 1 << (bit % 8),
        });
        if let Some(script) = script {
            prop_assert_ne!(ask(&script), SatResult::Sat, "{}", script);
        }
    }
}
