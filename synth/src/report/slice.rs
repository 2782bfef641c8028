//! The history of a suffix, for the slice of a value ([`vmm::slice`]): the suffix is run forward once, and of each instruction it is kept
//! what its results are made of.
//!
//! What was there where the suffix begins is in the core, forced by it, or chosen; which of these is said where a value's way ends.
//! Registers are those of a thread, memory is that of all. What came of a call that waited counts as written by the call.

mod decision;

pub use decision::Decision;

use crate::certificate::CertificateError;
use crate::certificate::forward::{Forward, Outcome, decode};
use crate::certificate::stage::Stage;
use crate::program::RT_SIGRETURN;
use crate::suffix::{Origin as Sure, Suffix, SuffixInput};
use iced_x86::{FlowControl, Instruction};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use vmm::elfcore::Core;
use vmm::linux::call_name;
use vmm::slice::{Byte, History, Made, Origin, Place, Writer};
use x86::op::Gpr;
use x86::state::{Regs, State};
use x86_provenance::{Before, Memory, Trapped, Untraced, trace};

/// A moment of a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment {
    /// Zero at the start; else one more than the number of the step that comes next.
    next: usize,
    /// How many steps there are.
    total: usize,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.next {
            0 => f.write_str("start"),
            next if next > self.total => f.write_str("crash"),
            next => write!(f, "-{}", self.total + 1 - next),
        }
    }
}

/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;

/// The bytes that an instruction writes: their values, as far as they are known, and what these are made of.
type Given = BTreeMap<Byte, (Option<u8>, Origin)>;

/// An instruction of the suffix.
struct Step {
    thread: i32,
    rip: u64,
    made: Made,
    given: Given,
    /// What decided whether a conditional branch was taken.
    decided_by: BTreeSet<Byte>,
}

/// A suffix that was run.
pub struct Synthesized<'a> {
    core: &'a Core,
    suffix: &'a Suffix,
    steps: Vec<Step>,
    place: Place,
    /// The newest instruction of the thread that crashed, the number of its step, and what told it where to go.
    newest: Option<(Instruction, usize, BTreeSet<Byte>)>,
}

/// What there is to be explained of a crash.
#[derive(Clone, Debug)]
pub struct Blame {
    /// When these bytes were what they are.
    pub at: Moment,
    /// The bytes.
    pub bytes: BTreeSet<Byte>,
    /// The instruction that did not retire, or that went where nothing can be executed.
    pub instruction: Instruction,
    /// The address that it could not access, or that it went to, if that is why.
    pub address: Option<u64>,
    /// It went to that address.
    pub jumped: bool,
}

impl<'a> Synthesized<'a> {
    /// Runs a suffix forward.
    ///
    /// # Errors
    /// When it does not run, which its certificate excludes.
    pub fn new(core: &'a Core, suffix: &'a Suffix) -> Result<Synthesized<'a>, CertificateError> {
        let mut forward = Forward::new(core, suffix)?;
        let (mut steps, mut newest) = (Vec::new(), None);
        let crashed = core.threads.first().map_or(0, |(id, _)| *id);
        while let Some(ahead) = forward.ahead() {
            let state = forward.stage().state()?;
            let (instruction, rip) = (ahead.instruction, ahead.instruction.ip());
            let thread = forward.thread().cast_signed();
            let (traced, target) = traced(forward.stage(), &instruction, &state);
            let is_conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
            let decided_by = if is_conditional { target.clone() } else { BTreeSet::new() };
            // A repeated string instruction is one entry of the path for each of its rounds.
            for _ in 1..ahead.span {
                let made = Made::Instruction(instruction);
                steps.push(Step { thread, rip, made, given: BTreeMap::new(), decided_by: BTreeSet::new() });
            }
            let (made, given) = match forward.run(&ahead)? {
                Outcome::Retired => (Made::Instruction(instruction), traced),
                Outcome::Answered(input) => answered(&state.regs, Some(input)),
                Outcome::Waits(input) => answered(&state.regs, input),
                Outcome::Stopped(_) => break,
            };
            if thread == crashed {
                newest = Some((instruction, steps.len(), target));
            }
            steps.push(Step { thread, rip, made, given, decided_by });
        }
        let place = Place { pid: crashed, thread: crashed };
        Ok(Synthesized { core, suffix, steps, place, newest })
    }

    /// When it crashes, and who.
    #[must_use]
    pub fn crash(&self) -> (Moment, Place) {
        let total = self.steps.len();
        (Moment { next: total + 1, total }, self.place)
    }

    /// Whether a moment lies in the part that every execution has which ends in this core.
    #[must_use]
    pub fn is_forced(&self, at: Moment) -> bool {
        at.next > 0 && self.steps.len().saturating_sub(self.suffix.forced.steps) < at.next
    }

    /// What made the instruction fault at which the core stands; `None` where no value did.
    #[must_use]
    pub fn blame(&self) -> Option<Blame> {
        if is_fetch(self.core) {
            let (instruction, number, bytes) = self.newest.clone()?;
            let at = Moment { next: number + 1, total: self.steps.len() };
            let address = Some(self.core.state.regs.rip);
            return (!bytes.is_empty()).then_some(Blame { at, bytes, instruction, address, jumped: true });
        }
        let State { regs, fpu } = &self.core.state;
        let memory = InCore::at_crash(self.core);
        let instruction = decode(regs.rip, |at, bytes| self.core.read(at, bytes));
        match trace(&instruction, Before { regs, fpu, memory: &memory }, &[]) {
            Err(Untraced::Trapped(why)) => {
                let Trapped { address, origin, .. } = *why;
                let (bytes, at) = (origin.value, self.crash().0);
                (!bytes.is_empty()).then_some(Blame { at, bytes, instruction, address, jumped: false })
            }
            _ => None,
        }
    }

    /// Where a byte's value at the start comes from, and what it is.
    fn at_start(&self, byte: Byte, place: Place) -> (Sure, u8) {
        let mut others = self.suffix.others.iter();
        let other = others.find(|other| other.thread.cast_signed() == place.thread);
        let State { regs, fpu } = other.map_or(&self.suffix.start, |other| &other.start);
        let of = |number: u64, n: u8| number.to_le_bytes()[usize::from(n & 7)];
        let origins = other.map_or(&self.suffix.registers, |other| &other.registers);
        let (sure, value) = match byte {
            Byte::Memory(at) => {
                let piece = self.suffix.memory.iter().find_map(|piece| {
                    let n = usize::try_from(at.checked_sub(piece.address)?).ok()?;
                    Some((*piece.origins.get(n)?, *piece.bytes.get(n)?))
                });
                return match piece {
                    Some((sure, value)) => (self.at_least_chosen(sure), value),
                    None => (Sure::Core, self.core.byte(at).unwrap_or(0)),
                };
            }
            Byte::General(r, n) => (origins.gpr[usize::from(r & 15)], of(regs.gpr[usize::from(r & 15)], n)),
            Byte::Vector(r, n) => (
                origins.vector[usize::from(r & 31)],
                of(fpu.vector[usize::from(r & 31)][usize::from((n / 8) % 8)], n),
            ),
            Byte::Mask(r, n) => (origins.opmask, of(fpu.opmask[usize::from(r & 7)], n)),
            Byte::Base(0, n) => (origins.bases, of(regs.fs_base, n)),
            Byte::Base(_, n) => (origins.bases, of(regs.gs_base, n)),
            Byte::Flag(_) | Byte::Direction => (origins.flags, 0),
            _ => (origins.fpu, 0),
        };
        (self.at_least_chosen(sure), value)
    }

    /// Before the forced part all is one possibility.
    fn at_least_chosen(&self, sure: Sure) -> Sure {
        if self.suffix.forced.steps >= self.steps.len() { sure } else { sure.max(Sure::Chosen) }
    }

    /// What nothing in the suffix wrote: those of the bytes that are as sure as the first.
    fn begun_with(&self, bytes: &[Byte], place: Place) -> Writer<Moment> {
        let of = |byte: &Byte| (*byte, self.at_start(*byte, place));
        let all: Vec<(Byte, (Sure, u8))> = bytes.iter().map(of).collect();
        let sure = all.first().map_or(Sure::Chosen, |(_, (sure, _))| *sure);
        let words = match sure {
            Sure::Core => "as it was where the suffix begins, and is in the core",
            Sure::Forced => "as it was where the suffix begins; no other value leads to this core",
            Sure::Chosen => "as it was where the suffix begins; chosen, one possibility of several",
        };
        let same = all.into_iter().filter(|(_, (other, _))| *other == sure);
        let given = same.map(|(byte, (_, value))| (byte, (Some(value), Origin::default()))).collect();
        let at = Moment { next: 0, total: self.steps.len() };
        let made = Made::Begin(words.to_owned());
        Writer { at, after: at, place, rip: sure as u64, made, given, from: place, uses: BTreeMap::new() }
    }
}

impl History for Synthesized<'_> {
    type At = Moment;
    type Error = Infallible;

    // Each step was run: there is nobody else who may have written.
    fn values(&mut self, _: Moment, _: Place, _: &BTreeSet<Byte>) -> Result<BTreeMap<Byte, u8>, Infallible> {
        Ok(BTreeMap::new())
    }

    fn writer(
        &mut self,
        at: Moment,
        place: Place,
        bytes: &[Byte],
    ) -> Result<Option<Writer<Moment>>, Infallible> {
        let before = &self.steps[..at.next.saturating_sub(1).min(self.steps.len())];
        let writes = |step: &Step| {
            let is_seen = |byte: &Byte| matches!(byte, Byte::Memory(_)) || step.thread == place.thread;
            bytes.iter().any(|byte| is_seen(byte) && step.given.contains_key(byte))
        };
        let Some(number) = before.iter().rposition(writes) else {
            return Ok(Some(self.begun_with(bytes, place)));
        };
        let step = &before[number];
        let given = step.given.iter().filter(|(byte, _)| bytes.contains(byte));
        let given = given.map(|(byte, of)| (*byte, of.clone())).collect();
        let (at, place) = (Moment { next: number + 1, ..at }, Place { thread: step.thread, ..place });
        Ok(Some(Writer {
            at,
            after: at,
            place,
            rip: step.rip,
            made: step.made.clone(),
            given,
            from: place,
            uses: BTreeMap::new(),
        }))
    }
}

/// Whether there is nothing to execute where a core stands: by the exception of a machine, which may not execute what is mapped for
/// programs, or by what a process had mapped.
fn is_fetch(core: &Core) -> bool {
    const FETCH: u32 = 1 << 4;
    const SIGSEGV: i32 = 11;
    let rip = core.state.regs.rip;
    match core.machine.as_ref().map(|machine| machine.raised) {
        Some(raised) => raised.is_some_and(|it| it.vector == PAGE_FAULT && it.code & FETCH != 0),
        None => {
            let is_told = core.signal.signo == SIGSEGV && core.signal.address == rip;
            is_told && !core.segment(rip).is_some_and(|segment| segment.rights.execute)
        }
    }
}

/// What an instruction that is about to retire will write, and what tells where it goes; of one without an answer nothing.
fn traced(stage: &Stage<'_>, instruction: &Instruction, state: &State) -> (Given, BTreeSet<Byte>) {
    let memory = OnStage(stage);
    let before = Before { regs: &state.regs, fpu: &state.fpu, memory: &memory };
    let asked = strings(instruction, &state.regs);
    let traced = trace(instruction, before, &asked).unwrap_or_default();
    let target = traced.target.map(|target| target.value).unwrap_or_default();
    let written = traced.written.into_iter().map(|(byte, (value, origin))| (byte, (Some(value), origin)));
    (written.collect(), target)
}

/// No suffix has a string instruction that writes more.
const MOST: u64 = 1 << 16;

/// What a copying string instruction can write.
fn strings(instruction: &Instruction, regs: &Regs) -> Vec<Byte> {
    if !instruction.is_string_instruction() {
        return Vec::new();
    }
    let gpr = |r: Gpr| regs.gpr[usize::from(r.0)];
    let (to, reach) = (gpr(Gpr::RDI), gpr(Gpr::RCX).saturating_mul(8).min(MOST));
    let memory = Byte::memory(to.wrapping_sub(reach), 2 * reach);
    memory.chain([Gpr::RCX, Gpr::RSI, Gpr::RDI].into_iter().flat_map(Byte::general)).collect()
}

/// What an instruction or a call wrote, and what it is.
type Written = (Made, Given);

/// A system call, which the suffix answers, unless it waits in the core.
fn answered(regs: &Regs, input: Option<&SuffixInput>) -> Written {
    let number = regs.gpr[0];
    let arguments = [7, 6, 2, 10, 8, 9].map(|n: usize| regs.gpr[n]);
    let result = input.map_or(number, |input| input.result);
    // A return from a handler brings all of them back.
    let all: Vec<Gpr> = match number {
        RT_SIGRETURN => (0..16).map(Gpr).collect(),
        _ => vec![Gpr::RAX, Gpr(1), Gpr::R11],
    };
    let registers = all.into_iter().flat_map(Byte::general);
    let registers = registers.map(|byte| match byte {
        Byte::General(0, n) => (byte, (Some(result.to_le_bytes()[usize::from(n & 7)]), Origin::default())),
        byte => (byte, (None, Origin::default())),
    });
    let memory = input.into_iter().flat_map(SuffixInput::stores).flat_map(|(address, bytes)| {
        bytes
            .iter()
            .zip(0_u64..)
            .map(move |(byte, n)| (Byte::Memory(address.wrapping_add(n)), (Some(*byte), Origin::default())))
    });
    let line = match input {
        Some(_) => format!("{}(...) = {result:#x}, as the suffix has it", call_name(number)),
        None => format!("{}(...), in which it waits", call_name(number)),
    };
    (Made::Call { number, arguments, line }, registers.chain(memory).collect())
}

/// Memory of a suffix that runs: what retires may access what it accesses.
struct OnStage<'a, 'b>(&'a Stage<'b>);

impl Memory for OnStage<'_, '_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes);
        true
    }

    fn may_write(&self, _: u64) -> bool {
        true
    }
}

/// Memory of a core, as the instruction finds it at which it stands.
struct InCore<'a> {
    core: &'a Core,
    /// The address that a kernel could not use, though it may be mapped: a program's memory under SMAP.
    refused: Option<u64>,
}

impl InCore<'_> {
    fn at_crash(core: &Core) -> InCore<'_> {
        let raised = core.machine.as_ref().and_then(|machine| machine.raised);
        let refused = raised.filter(|raised| raised.vector == PAGE_FAULT).and_then(|raised| raised.address);
        InCore { core, refused }
    }

    fn is_refused(&self, address: u64, len: usize) -> bool {
        self.refused.is_some_and(|refused| refused.wrapping_sub(address) < len as u64)
    }
}

impl Memory for InCore<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let rights = self.core.segment(address).map(|segment| segment.rights);
        !self.is_refused(address, bytes.len())
            && rights.is_some_and(|rights| rights.read || rights.execute)
            && self.core.read(address, bytes)
    }

    fn may_write(&self, address: u64) -> bool {
        !self.is_refused(address, 1) && self.core.segment(address).is_some_and(|segment| segment.rights.write)
    }
}
