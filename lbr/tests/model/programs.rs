//! Random small programs on the software CPU, observed by the models, against a log that is made from outside: each
//! instruction is stepped, and what it did is told from where it led and what the disassembler calls it.

use crate::expected::{Logged, records};
use crate::{arm, branches};
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, FlowControl, IcedError, Instruction, Mnemonic};
use lbr::Filter;
use lbr::model::{Model, Processor, Transfer};
use proptest::prelude::*;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Stop};
use x86::op::BranchKind;
use x86::state::Regs;

const CODE: u64 = 0x40_0000;
const STACK: u64 = 0x7fff_0000;
const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// More than any of these programs executes.
const LIMIT: usize = 200_000;

/// A part of a function.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Goes round some times.
    Loop(u8),
    /// Skips an instruction or not, by a bit of a number that changes.
    Maybe(u8),
    Skip,
    SkipIndirectly,
    /// Calls one of the functions behind this one.
    Call(u8),
    CallIndirectly(u8),
    SystemCall,
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (1..4u8).prop_map(Part::Loop),
        (0..8u8).prop_map(Part::Maybe),
        Just(Part::Skip),
        Just(Part::SkipIndirectly),
        any::<u8>().prop_map(Part::Call),
        any::<u8>().prop_map(Part::CallIndirectly),
        Just(Part::SystemCall),
    ]
}

fn program() -> impl Strategy<Value = Vec<Vec<Part>>> {
    prop::collection::vec(prop::collection::vec(part(), 0..5), 1..6)
}

/// Functions that call only what is behind them, so that every program ends: with UD2, where the first returns to.
fn assemble(program: &[Vec<Part>]) -> Result<Vec<u8>, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut functions: Vec<CodeLabel> = program.iter().map(|_| a.create_label()).collect();
    a.call(functions[0])?;
    a.ud2()?;
    for (n, parts) in program.iter().enumerate() {
        a.set_label(&mut functions[n])?;
        a.nop()?;
        let behind = &functions[n + 1..];
        for part in parts {
            assemble_part(&mut a, *part, behind)?;
        }
        a.ret()?;
    }
    a.assemble(CODE)
}

fn assemble_part(a: &mut CodeAssembler, part: Part, behind: &[CodeLabel]) -> Result<(), IcedError> {
    let mut end = a.create_label();
    match part {
        Part::Loop(times) => {
            let mut again = a.create_label();
            a.push(rbx)?;
            a.mov(ebx, u32::from(times))?;
            a.set_label(&mut again)?;
            a.add(rax, 0x35)?;
            a.dec(ebx)?;
            a.jne(again)?;
            a.pop(rbx)?;
        }
        Part::Maybe(bit) => {
            a.add(r12, 0x1d)?;
            a.bt(r12, u32::from(bit))?;
            a.jb(end)?;
            a.inc(r13)?;
        }
        Part::Skip => {
            a.jmp(end)?;
            a.int3()?;
        }
        Part::SkipIndirectly => {
            a.lea(rcx, ptr(end))?;
            a.jmp(rcx)?;
            a.int3()?;
        }
        Part::Call(which) => {
            if let Some(function) = behind.get(usize::from(which) % behind.len().max(1)) {
                a.call(*function)?;
            }
        }
        Part::CallIndirectly(which) => {
            if let Some(function) = behind.get(usize::from(which) % behind.len().max(1)) {
                a.lea(rcx, ptr(*function))?;
                a.call(rcx)?;
            }
        }
        Part::SystemCall => a.syscall()?,
    }
    a.set_label(&mut end)?;
    a.nop()
}

fn interpreter(code: &[u8]) -> Interpreter<Flat> {
    let mut flat = Flat::new();
    flat.map(CODE, code, Protection::CODE);
    flat.map(STACK, &[0; 0x4000], Protection::DATA);
    let mut cpu = Cpu::new(flat);
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    regs.gpr[4] = STACK + 0x4000;
    cpu.set_regs(&regs);
    Interpreter::new(cpu)
}

/// What a taken branch of this instruction is.
fn kind(instruction: &Instruction) -> Option<BranchKind> {
    match (instruction.flow_control(), instruction.mnemonic()) {
        (FlowControl::ConditionalBranch, _) => Some(BranchKind::Conditional),
        (FlowControl::UnconditionalBranch, _) => Some(BranchKind::RelativeJump),
        (FlowControl::IndirectBranch, _) => Some(BranchKind::IndirectJump),
        (FlowControl::Call, Mnemonic::Call) => Some(BranchKind::RelativeCall),
        (FlowControl::IndirectCall, _) => Some(BranchKind::IndirectCall),
        (FlowControl::Return, _) => Some(BranchKind::Return),
        _ => None,
    }
}

/// The way into the kernel and back, as a system call takes it.
fn system_call(from: u64, back: u64) -> [Transfer; 2] {
    [Transfer::to_kernel(from, KERNEL), Transfer::to_user(KERNEL + 0x100, back)]
}

/// Every branch, by stepping without an observer.
fn log(code: &[u8]) -> Vec<Logged> {
    let mut interpreter = interpreter(code);
    let mut log = Vec::new();
    for _ in 0..LIMIT {
        let from = interpreter.cpu().rip();
        let bytes = &code[usize::try_from(from - CODE).unwrap()..];
        let instruction = Decoder::with_ip(64, bytes, from, DecoderOptions::NONE).decode();
        let stop = interpreter.step(&mut ());
        let to = interpreter.cpu().rip();
        match stop {
            None => {
                let taken = kind(&instruction).filter(|_| to != instruction.next_ip());
                log.extend(taken.map(|kind| Logged::Branch(Transfer::user(from, to, kind))));
            }
            Some(Stop::Syscall) => log.extend(system_call(from, to).map(Logged::Branch)),
            Some(Stop::Trap { .. }) => return log,
            Some(other) => panic!("{other:?}"),
        }
    }
    panic!("the program does not end");
}

/// Runs the program with the model as its observer.
fn run(code: &[u8], model: &mut Model) {
    let mut interpreter = interpreter(code);
    loop {
        match interpreter.run(x86::interpreter::Until::EVENT, model) {
            Stop::Syscall => {
                let back = interpreter.cpu().rip();
                system_call(back - 2, back).iter().for_each(|transfer| model.branch(transfer));
            }
            Stop::Trap { .. } => return,
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_processor_tells_the_same_of_a_program(program in program(), bits in 0..0x203u64) {
        // The last three numbers stand for the call-stack modes.
        let bits = if bits < 0x200 { bits } else { 0x3c4 + bits - 0x200 };
        let code = assemble(&program).unwrap();
        let log = log(&code);
        for processor in Processor::ALL {
            for filter in [Filter::from_bits(bits).unwrap(), Filter::EVERYTHING] {
                let mut model = Model::new(processor);
                if arm(&mut model, processor, filter) {
                    run(&code, &mut model);
                    let expected = records(processor, filter, &log);
                    prop_assert_eq!(branches(&model, processor), expected, "{:?} {}", processor, filter);
                }
            }
        }
    }
}
