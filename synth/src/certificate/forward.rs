//! The suffix run forward, one instruction at a time, on the software CPU.

use super::CertificateError;
use super::signals::{self, Delivery};
use super::stage::Stage;
use super::threads::{Served, Switch, Threads};
use crate::past::hypothesis::Kernel;
use crate::program::RT_SIGRETURN;
use crate::suffix::{Suffix, SuffixInput, SuffixSignal};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use vmm::elfcore::Core;
use vmm::engine::{Exit, Until};
use x86::op::Gpr;
use x86::state::{Regs, State};

/// CF, PF, AF, ZF, SF and OF.
const ARITHMETIC: u64 = 0x8d5;

/// A run of a suffix that stands between two instructions.
pub(crate) struct Forward<'a> {
    stage: Stage<'a>,
    core: &'a Core,
    suffix: &'a Suffix,
    at: usize,
    threads: Threads<'a>,
    /// The signals that are to come.
    signals: &'a [SuffixSignal],
    /// The switches, and the signals that came, that nobody has asked for yet.
    switches: Vec<Switch<'a>>,
    delivered: Vec<Delivery<'a>>,
}

/// The instruction that runs next.
pub(crate) struct Ahead {
    /// Its index in the path.
    pub(crate) index: usize,
    /// The instruction at the address where the run stands.
    pub(crate) instruction: Instruction,
    /// How many entries of the path it is: the iterations of a repeated string instruction.
    pub(crate) span: usize,
    /// How often it does its work: as often, or not at all where the count of a repeated string instruction is zero.
    pub(crate) iterations: usize,
}

/// What became of it.
pub(crate) enum Outcome<'a> {
    /// It retired.
    Retired,
    /// It was a system call, which was answered from here.
    Answered(&'a SuffixInput),
    /// It was a system call, in which its thread waits; with the answer that it gets on the path.
    Waits(Option<&'a SuffixInput>),
    /// It did not retire.
    Stopped(Exit),
}

impl<'a> Forward<'a> {
    /// A run that stands at the start.
    pub(crate) fn new(core: &'a Core, suffix: &'a Suffix) -> Result<Forward<'a>, CertificateError> {
        let stage = Stage::on_software_cpu(core, suffix)?;
        let threads = Threads::new(core, suffix);
        let (signals, switches, delivered) = (&suffix.signals[..], Vec::new(), Vec::new());
        let mut forward = Forward { stage, core, suffix, at: 0, threads, signals, switches, delivered };
        forward.take_turns()?;
        Ok(forward)
    }

    /// The thread that has the processor.
    pub(crate) fn thread(&self) -> u32 {
        self.threads.runs()
    }

    /// The switches since this was asked last: those behind the last instruction, or at the start.
    pub(crate) fn switches(&mut self) -> Vec<Switch<'a>> {
        std::mem::take(&mut self.switches)
    }

    /// The threads that have not the processor, with their registers.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (u32, &State)> {
        self.threads.parked()
    }

    /// The general registers of a thread that has just run.
    pub(super) fn stood(&self, thread: u32) -> &Regs {
        let parked = self.parked().find(|(parked, _)| *parked == thread).map(|(_, state)| state);
        self.interrupted(thread).or(parked).map_or_else(|| self.regs(), |state| &state.regs)
    }

    /// All registers of a thread that has just run.
    pub(crate) fn state_of(&mut self, thread: u32) -> Result<State, CertificateError> {
        let parked = self.threads.parked().find(|(parked, _)| *parked == thread).map(|(_, state)| state);
        match self.interrupted(thread).or(parked).copied() {
            Some(state) => Ok(state),
            None => self.stage.state(),
        }
    }

    /// The signals that were delivered since this was asked last.
    pub(crate) fn delivered(&mut self) -> Vec<Delivery<'a>> {
        std::mem::take(&mut self.delivered)
    }

    /// As a thread that has just run stood before the signals that came then.
    fn interrupted(&self, thread: u32) -> Option<&State> {
        let first = self.delivered.iter().find(|delivery| delivery.signal.thread == thread);
        first.map(|delivery| &delivery.interrupted)
    }

    /// Gives the processor to those whose turn it is, and signals to those that get one.
    fn take_turns(&mut self) -> Result<(), CertificateError> {
        loop {
            if let Some((signal, rest)) = self.signals.split_first()
                && (signal.step, signal.thread) == (self.at, self.threads.runs())
            {
                self.signals = rest;
                self.deliver(signal)?;
            } else if let Some(switch) = self.threads.switch(&mut self.stage, self.at)? {
                self.switches.push(switch);
            } else {
                return Ok(());
            }
        }
    }

    fn deliver(&mut self, signal: &'a SuffixSignal) -> Result<(), CertificateError> {
        let raised = if signal.raised { Some(self.step()?) } else { None };
        let handler = handler_of(self.core, self.suffix, signal);
        let interrupted = signals::enter(&mut self.stage, signal, handler)?;
        self.delivered.push(Delivery { signal, interrupted, raised });
        Ok(())
    }

    /// The registers.
    pub(crate) fn regs(&self) -> &Regs {
        self.stage.regs()
    }

    /// Reads memory, as [`Stage::read`].
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.stage.read(address, bytes)
    }

    /// The memory and all the rest.
    pub(crate) fn stage(&mut self) -> &mut Stage<'a> {
        &mut self.stage
    }

    /// Why what was run last cannot be judged, if that is so.
    pub(super) fn refusal(&self) -> Option<String> {
        self.stage.refusal().map(str::to_owned)
    }

    /// The instruction that runs next; `None` at the end of the path.
    pub(crate) fn ahead(&self) -> Option<Ahead> {
        let rip = *self.suffix.path.get(self.at)?;
        let instruction = self.decode(self.regs().rip);
        let same = self.suffix.path[self.at..].iter().take_while(|address| **address == rip).count();
        let span = if repeats(&instruction) { same } else { 1 };
        let iterations = if repeats(&instruction) && self.count(&instruction) == 0 { 0 } else { span };
        Some(Ahead { index: self.at, instruction, span, iterations })
    }

    /// The count of a repeated string instruction.
    fn count(&self, instruction: &Instruction) -> u64 {
        let rcx = self.regs().gpr[usize::from(Gpr::RCX.0)];
        let is_short = x86::decode::op(instruction).mem.addr32;
        if is_short { rcx & u64::from(u32::MAX) } else { rcx }
    }

    /// The instruction at `va` in the memory of the run; an invalid one where nothing is mapped.
    pub(crate) fn decode(&self, va: u64) -> Instruction {
        decode(va, |va, bytes| self.stage.read(va, bytes))
    }

    /// Runs it.
    pub(crate) fn run(&mut self, ahead: &Ahead) -> Result<Outcome<'a>, CertificateError> {
        if let Some(ring0) = self.stage.ring0() {
            ring0.put_answer(self.suffix.answer_at(ahead.index).map(|answer| answer.value));
        }
        let outcome = match self.step()? {
            Exit::Budget => Outcome::Retired,
            Exit::Syscall => match self.threads.serve(&mut self.stage, ahead.index)? {
                Served::Answered(input) => Outcome::Answered(input),
                Served::Waits(answer) => Outcome::Waits(answer),
            },
            exit => return Ok(Outcome::Stopped(exit)),
        };
        self.at += ahead.span;
        self.take_turns()?;
        Ok(outcome)
    }

    /// Runs what follows the path: the instruction that faults.
    pub(crate) fn step(&mut self) -> Result<Exit, CertificateError> {
        let retired = self.stage.retired();
        self.stage.run(Until::Retired(retired + 1))
    }
}

/// Where the handler of a signal begins.
pub(super) fn handler_of(core: &Core, suffix: &Suffix, signal: &SuffixSignal) -> u64 {
    suffix.path.get(signal.step).copied().unwrap_or(core.state.regs.rip)
}

impl Kernel {
    /// Who served those of the program that left `core`.
    pub(crate) fn of(core: &Core) -> Kernel {
        let ours = core.origin.as_deref().is_some_and(|origin| !origin.is_empty());
        if ours { Kernel::Gretel } else { Kernel::Linux }
    }

    /// Answers a system call.
    pub(super) fn answer(self, stage: &mut Stage<'_>, input: &SuffixInput) -> Result<(), CertificateError> {
        for (address, bytes) in input.stores() {
            stage.write(address, bytes)?;
        }
        if stage.regs().gpr[usize::from(Gpr::RAX.0)] == RT_SIGRETURN {
            return signals::leave(stage);
        }
        self.begin(stage)?;
        let mut regs = *stage.regs();
        regs.gpr[usize::from(Gpr::RAX.0)] = input.result;
        stage.set_regs(&regs)
    }

    /// Does with the registers what is done to them before a system call is served.
    pub(super) fn begin(self, stage: &mut Stage<'_>) -> Result<(), CertificateError> {
        let mut regs = *stage.regs();
        if self == Kernel::Gretel {
            regs.rflags &= !ARITHMETIC;
            regs.gpr[usize::from(Gpr::R11.0)] &= !ARITHMETIC;
        }
        stage.set_regs(&regs)
    }
}

/// The instruction at `va` in the memory that `read` reads, which says whether all the bytes are there; an invalid
/// instruction where none are.
pub(crate) fn decode(va: u64, read: impl Fn(u64, &mut [u8]) -> bool) -> Instruction {
    let mut bytes = [0; 15];
    let present = (1..=bytes.len()).rev().find(|len| read(va, &mut bytes[..*len]));
    Decoder::with_ip(64, &bytes[..present.unwrap_or(0)], va, DecoderOptions::NONE).decode()
}

/// Whether the instruction is a string instruction with a repeat prefix: one instruction, many iterations.
pub(crate) fn repeats(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repe_prefix() || instruction.has_repne_prefix())
}
