//! The suffix run once more on the software CPU, looking at what each instruction reads and writes.

use super::fault::{Cause, register_value};
use super::origins::{Origins, is_zeroing};
use super::{Call, Crash, Place, Step, Value};
use crate::certificate::CertificateError;
use crate::certificate::forward::{Ahead, Forward, Outcome};
use crate::program::Program;
use crate::suffix::{Origin, Suffix, SuffixInput};
use iced_x86::{
    FlowControl, Formatter, Instruction, InstructionInfoFactory, IntelFormatter, OpAccess, Register,
};
use vmm::elfcore::Core;
use x86::state::State;

/// No more bytes of one access are shown as a value.
const LONGEST_VALUE: usize = 16;

/// Runs the suffix and gives all its steps, and the crash.
pub(super) fn collect(
    program: &Program,
    core: &Core,
    suffix: &Suffix,
) -> Result<(Vec<Step>, Crash), CertificateError> {
    let mut trace = Trace {
        program,
        forward: Forward::new(core, suffix)?,
        origins: Origins::of(suffix),
        factory: InstructionInfoFactory::new(),
        formatter: formatter(),
    };
    let mut steps = Vec::new();
    let total = suffix.len();
    while let Some(ahead) = trace.forward.ahead() {
        let (step, retired) = trace.step(&ahead, total)?;
        let covered = ahead.index + suffix.coverage.instructions >= total;
        steps.push(Step { covered, ..step });
        if !retired {
            break;
        }
    }
    Ok((steps, trace.crash(core)))
}

fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    options.set_rip_relative_addresses(false);
    options.set_branch_leading_zeros(false);
    options.set_small_hex_numbers_in_decimal(true);
    formatter
}

struct Trace<'a> {
    program: &'a Program,
    forward: Forward<'a>,
    origins: Origins,
    factory: InstructionInfoFactory,
    formatter: IntelFormatter,
}

/// A register or a piece of memory that an instruction uses.
#[derive(Clone, Copy, PartialEq)]
enum Used {
    Register(Register),
    Memory { address: u64, len: usize },
}

/// What an instruction uses.
#[derive(Default)]
struct Uses {
    reads: Vec<Used>,
    writes: Vec<Used>,
}

impl Trace<'_> {
    /// Runs the instruction ahead. False: it did not retire (a repeated one that faults half-way).
    fn step(&mut self, ahead: &Ahead, total: usize) -> Result<(Step, bool), CertificateError> {
        let instruction = ahead.instruction;
        let before = self.forward.sandbox().state()?;
        let uses = self.uses(&instruction, &before, ahead.span);
        let mut reads = Vec::new();
        for place in uses.reads.iter().filter(|place| is_shown(&instruction, place)) {
            reads.push(self.value(*place, &before));
        }
        let origin = self.result_origin(&instruction, &uses.reads);
        let outcome = self.forward.run(ahead)?;
        let after = self.forward.sandbox().state()?;
        for place in &uses.writes {
            match *place {
                Used::Register(register) if !keeps_origin(register) => {
                    self.origins.set_register(register, origin);
                }
                Used::Register(_) => {}
                Used::Memory { address, len } => self.origins.set_memory(address, len, origin),
            }
        }
        if instruction.rflags_modified() != 0 {
            self.origins.set_flags(origin);
        }
        let mut writes = Vec::new();
        for place in uses.writes.iter().filter(|place| is_shown(&instruction, place)) {
            writes.push(self.value(*place, &after));
        }
        let call = match &outcome {
            Outcome::Answered(input) => Some(self.call(before.regs.gpr[0], input)),
            _ => None,
        };
        let place = self.place_in_source(instruction.ip());
        let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
        let step = Step {
            before_crash: total - ahead.index,
            address: instruction.ip(),
            place,
            text: self.format(&instruction),
            iterations: ahead.span,
            covered: false,
            taken: conditional.then(|| after.regs.rip != instruction.next_ip()),
            reads,
            writes: if call.is_some() { Vec::new() } else { writes },
            call,
        };
        Ok((step, !matches!(outcome, Outcome::Stopped(_))))
    }

    fn call(&mut self, number: u64, input: &SuffixInput) -> Call {
        self.origins.set_register(Register::RAX, input.origin);
        for (address, bytes) in &input.writes {
            self.origins.set_memory(*address, bytes.len(), input.origin);
        }
        let value = format!("{:#x}", input.result);
        let written = input.writes.iter().map(|(_, bytes)| bytes.len()).sum();
        Call { number, result: Value { place: "rax".to_owned(), value, origin: input.origin }, written }
    }

    /// What the instruction reads and writes, registers before memory.
    fn uses(&mut self, instruction: &Instruction, before: &State, iterations: usize) -> Uses {
        let info = self.factory.info(instruction);
        let mut uses = Uses::default();
        for used in info.used_registers() {
            uses.add(Used::Register(used.register()), used.access());
        }
        for used in info.used_memory() {
            let address = used.virtual_address(0, |register, _, _| Some(register_value(register, before)));
            let size = used.memory_size().size();
            let len = size.saturating_mul(iterations);
            let down = before.regs.rflags & x86::state::RFLAGS_DF != 0 && iterations > 1;
            let lower = if down { (len - size) as u64 } else { 0 };
            if let Some(address) = address.filter(|_| len > 0 && used.access() != OpAccess::NoMemAccess) {
                uses.add(Used::Memory { address: address.wrapping_sub(lower), len }, used.access());
            }
        }
        uses
    }

    /// The most uncertain of what the result is computed from.
    fn result_origin(&self, instruction: &Instruction, reads: &[Used]) -> Origin {
        if is_zeroing(instruction) {
            return Origin::Core;
        }
        let of = |place: &Used| match *place {
            Used::Register(register) if keeps_origin(register) => Origin::Core,
            Used::Register(register) => self.origins.register(register),
            Used::Memory { address, len } => self.origins.memory(address, len),
        };
        let flags = if instruction.rflags_read() == 0 { Origin::Core } else { self.origins.flags() };
        reads.iter().map(of).fold(flags, Origin::max)
    }

    fn value(&mut self, place: Used, state: &State) -> Value {
        match place {
            Used::Register(register) => Value {
                place: format!("{register:?}").to_lowercase(),
                value: register_text(register, state),
                origin: self.origins.register(register),
            },
            Used::Memory { address, len } => {
                let mut bytes = vec![0; len.min(LONGEST_VALUE)];
                let there = self.forward.sandbox().read(address, &mut bytes).is_ok();
                let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
                let digits = digits.trim_start_matches('0');
                let value = match there {
                    false => "nothing".to_owned(),
                    true if len > LONGEST_VALUE => format!("{len} bytes"),
                    true if digits.is_empty() => "0x0".to_owned(),
                    true => format!("0x{digits}"),
                };
                Value { place: format!("[{address:#x}]"), value, origin: self.origins.memory(address, len) }
            }
        }
    }

    fn format(&mut self, instruction: &Instruction) -> String {
        let mut text = String::new();
        self.formatter.format(instruction, &mut text);
        text
    }

    fn place_in_source(&self, va: u64) -> Place {
        let function = self.program.function_at(va).map(|function| function.name.clone());
        let frames = self.program.source_frames(va);
        let (file, line) = frames.first().map_or((None, None), |frame| (frame.file.clone(), frame.line));
        let inlined = frames.iter().rev().skip(1).rev().filter_map(|frame| frame.function.clone());
        Place { function, inlined: inlined.collect(), file, line }
    }

    fn crash(&mut self, core: &Core) -> Crash {
        let address = core.state.regs.rip;
        let place = self.place_in_source(address);
        let sent = core.signal.code <= 0;
        let instruction = self.forward.decode(address);
        let text = (!sent && !instruction.is_invalid()).then(|| self.format(&instruction));
        let cause = Cause::of(core);
        let accessed = cause.and_then(Cause::address);
        let cause = cause.map(|cause| cause.to_string());
        Crash { signal: core.signal.name(), address, accessed, cause, place, text }
    }
}

impl Uses {
    fn add(&mut self, place: Used, access: OpAccess) {
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        if matches!(access, Read | CondRead | ReadWrite | ReadCondWrite) && !self.reads.contains(&place) {
            self.reads.push(place);
        }
        if matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite) && !self.writes.contains(&place) {
            self.writes.push(place);
        }
    }
}

/// The stack pointer and segments: their values are part of every push and say nothing about it.
fn keeps_origin(register: Register) -> bool {
    register.full_register() == Register::RSP || register.is_segment_register()
}

/// Leaves out what only repeats the operands: the stack pointer, segments, and what a zeroing idiom "reads".
fn is_shown(instruction: &Instruction, place: &Used) -> bool {
    match place {
        Used::Register(register) => {
            let implied =
                is_zeroing(instruction) || instruction.is_call_near() || instruction.is_call_near_indirect();
            let hidden = implied && instruction.op0_register() != *register;
            !hidden && !keeps_origin(*register)
        }
        Used::Memory { .. } => true,
    }
}

fn register_text(register: Register, state: &State) -> String {
    if register.is_xmm() {
        let [low, high] = state.fpu.xmm[register.number() & 15];
        return format!("{:#x}", u128::from(high) << 64 | u128::from(low));
    }
    if register.is_st() {
        let top = usize::from(state.fpu.status >> 11 & 7);
        let (significand, sign_exponent) = state.fpu.st[(top + register.number()) & 7];
        return format!("{sign_exponent:04x}:{significand:016x}");
    }
    format!("{:#x}", register_value(register, state))
}
