//! The suffix run once more on the software CPU, looking at what each instruction reads and writes.

use super::fault::Cause;
use super::origins::{Origins, is_zeroing};
use super::signals::{Came, returned_from};
use super::uses::{
    Use, Used, Uses, base_read, base_written, bytes_of, is_shown, keeps_origin, register_value,
};
use super::{Call, Crash, Place, Step, Value};
use crate::certificate::CertificateError;
use crate::certificate::forward::{Ahead, Forward, Outcome};
use crate::certificate::signals::Delivery;
use crate::program::{Program, readable};
use crate::suffix::{Origin, Suffix, SuffixInput};
use iced_x86::{
    FlowControl, Formatter, Instruction, InstructionInfoFactory, IntelFormatter, Mnemonic, Register,
};
use vmm::elfcore::Core;
use vmm::memory::layout::TIME_PAGE;
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
        suffix,
        forward: Forward::new(core, suffix)?,
        origins: Origins::chosen(),
        factory: InstructionInfoFactory::new(),
        formatter: formatter(),
        came: Vec::new(),
    };
    let mut steps = Vec::new();
    let total = suffix.len();
    let forced_from = total.saturating_sub(suffix.forced.steps);
    trace.take_turns();
    while let Some(ahead) = trace.forward.ahead() {
        if ahead.index == forced_from {
            trace.origins = Origins::of(&suffix.forced);
        }
        let step = trace.step(&ahead, total)?;
        let (retired, covered) = (step.retired, ahead.index + suffix.coverage.instructions >= total);
        steps.push(Step { covered, forced: ahead.index >= forced_from, ..step });
        if !retired {
            break;
        }
    }
    Ok((steps, trace.crash(core)))
}

/// How instructions are written.
pub(crate) fn formatter() -> IntelFormatter {
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

/// An instruction as all reports write it.
#[must_use]
pub fn written(instruction: &Instruction) -> String {
    let mut text = String::new();
    formatter().format(instruction, &mut text);
    text
}

struct Trace<'a> {
    program: &'a Program,
    suffix: &'a Suffix,
    forward: Forward<'a>,
    origins: Origins,
    factory: InstructionInfoFactory,
    formatter: IntelFormatter,
    /// The signals that came since the last instruction.
    came: Vec<Came>,
}

impl Trace<'_> {
    /// Runs the instruction ahead, which may not retire (a repeated one that faults half-way).
    fn step(&mut self, ahead: &Ahead, total: usize) -> Result<Step, CertificateError> {
        let (instruction, task) = (ahead.instruction, self.forward.thread());
        let came = std::mem::take(&mut self.came);
        let before = self.forward.stage().state()?;
        let uses = Uses::of(&mut self.factory, &instruction, &before, ahead.iterations);
        let shown = |place: &&Used| is_shown(&instruction, place);
        let address = self.address_origin(&instruction);
        let used: Vec<Use> =
            uses.reads.iter().filter(shown).filter_map(|used| self.used(*used, &before, address)).collect();
        let read = |place: &Used| self.value(*place, &before, address);
        let reads = uses.reads.iter().filter(shown).map(read).collect();
        let given = self.suffix.answer_at(ahead.index).map(|answer| answer.origin);
        let origin = self.result_origin(&instruction, &uses.reads).max(given.unwrap_or_default());
        let outcome = self.forward.run(ahead)?;
        let after = self.forward.state_of(task)?;
        for place in &uses.writes {
            match *place {
                Used::Register(register) if !keeps_origin(register) => {
                    self.origins.set_register(register, origin);
                }
                Used::Register(register) if register.full_register() == Register::RSP => {
                    if let Some(from) = stack_pointer_source(&instruction) {
                        let from = from.map_or(origin, |register| self.origins.register(register));
                        self.origins.set_register(Register::RSP, from);
                    }
                }
                Used::Register(_) => {}
                Used::Memory { address, len } => self.origins.set_memory(address, len, origin),
            }
        }
        if instruction.rflags_modified() != 0 {
            self.origins.set_flags(origin);
        }
        if base_written(&instruction) {
            self.origins.set_base(origin);
        }
        let written = |place: &Used| self.value(*place, &after, address);
        let writes = uses.writes.iter().filter(shown).map(written).collect();
        let call = match &outcome {
            Outcome::Answered(input) => {
                self.answered(input);
                if let Some(place) = returned_from(&before.regs) {
                    self.origins.leave_handler(place);
                }
                Some(call(before.regs.gpr[0], Some(input)))
            }
            Outcome::Waits(input) => Some(call(before.regs.gpr[0], *input)),
            Outcome::Retired | Outcome::Stopped(_) => None,
        };
        self.take_turns();
        let place = self.place_in_source(instruction.ip());
        let retired = !matches!(outcome, Outcome::Stopped(_));
        let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
        let step = Step {
            before_crash: total - ahead.index,
            task,
            address: instruction.ip(),
            place,
            text: self.format(&instruction),
            iterations: ahead.iterations,
            covered: false,
            forced: false,
            taken: conditional.then(|| after.regs.rip != instruction.next_ip()),
            reads,
            uses: used,
            retired,
            writes: if call.is_some() { Vec::new() } else { writes },
            call,
            came,
        };
        Ok(step)
    }

    /// The kernel answers the thread that has the processor.
    fn answered(&mut self, input: &SuffixInput) {
        self.origins.set_register(Register::RAX, input.origin);
        for (address, bytes) in &input.writes {
            self.origins.set_memory(*address, bytes.len(), input.origin);
        }
        self.origins.set_memory(TIME_PAGE, input.clock.len(), Origin::Chosen);
    }

    /// Other threads got the processor.
    fn take_turns(&mut self) {
        for Delivery { signal, interrupted, .. } in self.forward.delivered() {
            self.origins.enter_handler(signal);
            self.came.push(Came::new(signal, interrupted.regs.rip));
        }
        for switch in self.forward.switches() {
            self.origins.switch(switch.from, switch.to);
            if let Some((_, input)) = switch.answer {
                self.answered(input);
            }
        }
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
        let bases = if base_read(instruction) { self.origins.bases() } else { Origin::Core };
        reads.iter().map(of).fold(flags.max(bases), Origin::max)
    }

    /// The most uncertain of what the addresses that an instruction uses are computed from.
    fn address_origin(&mut self, instruction: &Instruction) -> Origin {
        let used = self.factory.info(instruction).used_memory().iter();
        let registers = used.flat_map(|memory| [memory.base(), memory.index()]);
        let registers = registers.filter(|register| register.is_gpr());
        registers.map(|register| self.origins.register(register)).max().unwrap_or_default()
    }

    /// A value that is used at `state`, memory at an address of this origin; `None` if it is memory that is not there.
    fn used(&mut self, used: Used, state: &State, at: Origin) -> Option<Use> {
        let stage = self.forward.stage();
        let bytes = bytes_of(used, state, &|va, bytes| stage.read(va, bytes))?;
        let origin = match used {
            Used::Register(register) => self.origins.register(register),
            Used::Memory { address, len } => self.origins.memory(address, len).max(at),
        };
        Some(Use { used, bytes, origin })
    }

    fn value(&mut self, place: Used, state: &State, at: Origin) -> Value {
        match place {
            Used::Register(register) => Value {
                place: format!("{register:?}").to_lowercase(),
                value: register_text(register, state),
                origin: self.origins.register(register),
            },
            Used::Memory { address, len } => {
                let mut bytes = vec![0; len.min(LONGEST_VALUE)];
                let there = self.forward.stage().read(address, &mut bytes);
                let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
                let digits = digits.trim_start_matches('0');
                let value = match there {
                    false => "nothing".to_owned(),
                    true if len > LONGEST_VALUE => format!("{len} bytes"),
                    true if digits.is_empty() => "0x0".to_owned(),
                    true => format!("0x{digits}"),
                };
                let origin = self.origins.memory(address, len).max(at);
                Value { place: format!("[{address:#x}]"), value, origin }
            }
        }
    }

    fn format(&mut self, instruction: &Instruction) -> String {
        let mut text = String::new();
        self.formatter.format(instruction, &mut text);
        text
    }

    fn place_in_source(&self, va: u64) -> Place {
        let function = self.program.function_at(va).map(|function| readable(&function.name));
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
        let task = self.forward.thread();
        let came = std::mem::take(&mut self.came);
        Crash { task, signal: core.end_name(), address, accessed, cause, place, came, text }
    }
}

/// What the kernel answers to a call on the path; nothing, if it waits in the core.
fn call(number: u64, input: Option<&SuffixInput>) -> Call {
    let result = input.map(|input| Value {
        place: "rax".to_owned(),
        value: format!("{:#x}", input.result),
        origin: input.origin,
    });
    let written = input.into_iter().flat_map(|input| &input.writes).map(|(_, bytes)| bytes.len()).sum();
    Call { number, result, late: input.is_none_or(|input| input.late), written }
}

/// Where an instruction takes a new stack pointer from: a register, or (`None`) what it reads. Those that move it by so many bytes
/// leave it as sure as it was.
fn stack_pointer_source(instruction: &Instruction) -> Option<Option<Register>> {
    let is_set = instruction.op0_register().full_register() == Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Leave => Some(Some(Register::RBP)),
        Mnemonic::Mov | Mnemonic::Xchg if is_set && instruction.op1_register() != Register::None => {
            Some(Some(instruction.op1_register()))
        }
        Mnemonic::Mov | Mnemonic::Pop if is_set => Some(None),
        Mnemonic::Lea if is_set && instruction.memory_base().full_register() != Register::RSP => {
            Some(Some(instruction.memory_base()))
        }
        _ => None,
    }
}

fn register_text(register: Register, state: &State) -> String {
    if register.is_xmm() {
        let [low, high] = state.fpu.xmm(register.number() & 31);
        return format!("{:#x}", u128::from(high) << 64 | u128::from(low));
    }
    if register.is_vector_register() {
        let parts = &state.fpu.vector[register.number() & 31][..register.size() / 8];
        let highest = parts.iter().rposition(|part| *part != 0).unwrap_or(0);
        let below: String = parts[..highest].iter().rev().map(|part| format!("{part:016x}")).collect();
        return format!("{:#x}{below}", parts[highest]);
    }
    if register.is_k() {
        return format!("{:#x}", state.fpu.opmask[register.number() & 7]);
    }
    if register.is_st() {
        let top = usize::from(state.fpu.status >> 11 & 7);
        let (significand, sign_exponent) = state.fpu.st[(top + register.number()) & 7];
        return format!("{sign_exponent:04x}:{significand:016x}");
    }
    format!("{:#x}", register_value(register, state))
}
