//! Preemption: a task is interrupted between two instructions, so that another one gets the processor, or a timer's signal is
//! delivered.
//!
//! While recording, a processor that counts stops at a count; one that does not is kicked by a [`Kicker`], and the event has
//! the registers and a digest of the memory. While replaying, the gate says at the beginning of a segment that it ends so,
//! and where ([`crate::gate::Gate::preemption`]); the software CPU runs up to there, whichever processor ran before, and after.
//!
//! Example: two threads compute, and one of them has run for 5 ms under KVM. The kick brings the processor back at
//! `add rax, rbx`; the journal gets the registers and the digests. At replay the software CPU runs the segment, stops each
//! time it comes to that `add`, and compares.

use super::choice::Choice;
use super::clock_call::ClockCall;
use super::happening::What;
use super::kicker::Kicker;
use super::spin::Spin;
use super::{Process, ProcessError, Step};
use crate::engine::{Cpu, EngineError, EngineKind, Exit, Until};
use crate::gate::{Event, GateError, Preemption, Time, clock};
use crate::journal::schema::digest_fpu;
use crate::linux::Tasks;
use crate::memory::PageDigests;
use crate::position::{Offset, Target, comparable};
use lbr::crumb;
use std::time::{Duration, Instant};

/// Nanoseconds of a slice that one instruction of the software CPU stands for.
const PER_INSTRUCTION: u64 = 2;
/// The same for what is due at a time: what comes too early is asked for again.
const PER_INSTRUCTION_UNTIL_DUE: u64 = 8;
/// No processor retires more instructions in a nanosecond: eight in each of six cycles.
const MOST_PER_NANOSECOND: u64 = 48;
/// A kick comes no sooner than this after the one before: 1 kHz.
pub(super) const SOONEST: u64 = 1_000_000;
/// A kick that comes inside a REP string instruction is repeated so much later.
const AGAIN: u64 = 50_000;
/// A processor that does not count is given so long to come to an event by itself, which brings a signal from outside as well: the
/// position of a preemption has to be searched for.
const SIGNALS_WAIT: u64 = 20_000_000;
/// A counter of branches may be wrong by so many, and by one in so many of what it counted.
const MISCOUNTED: u64 = 1_000;
/// Digests of memory take at most one part in so many of the time.
const DIGEST_SHARE: u64 = 20;

/// When tasks are preempted.
#[derive(Default)]
pub(super) struct Pace {
    /// The retired count at which the slice of the task that runs ends, on processors that count.
    slice_ends: u64,
    /// When that slice ends by the clock: what tells it from the next.
    slice_due: u64,
    /// Kicks the processor, on those that do not.
    kicker: Option<Kicker>,
    /// No preemption before this, by the host's monotonic clock in nanoseconds.
    earliest: u64,
    /// What the processor had counted at the last exit, and where the segment began: conditional branches.
    pub(super) counted: Option<u64>,
    pub(super) counted_at_event: Option<u64>,
    /// A signal from outside preempts the task from then on, by the same clock, if no event brings it before.
    pub(super) signal_by: Option<u64>,
    /// The processor that is not in use: the other kind.
    pub(super) spare: Option<Box<dyn Cpu>>,
    /// The software CPU runs, whichever was asked for.
    pub(super) exactly: bool,
    /// While recording: it runs in place of the processor that was asked for ([`super::lent`]). What it has counted is not all that
    /// retired.
    pub(super) lent: bool,
    /// It stands at an instruction that it leaves to that processor.
    pub(super) gives_back: bool,
    /// The software CPU leaves some instructions to KVM.
    pub(super) leaves: bool,
    /// An event has been served, and nothing has run since.
    pub(super) segment_begins: bool,
    /// When to look whether the task that runs waits by looking.
    pub(super) spin: Spin,
    /// When the vDSO is to ask for the time.
    pub(super) clock_call: ClockCall,
    /// The caller of [`Process::step`] wants it to return about then, by the host's monotonic clock in nanoseconds.
    look: Option<u64>,
}

impl Pace {
    /// The task that runs has its share from here on.
    pub(super) fn new_slice(&mut self, retired: u64, tasks: &Tasks) {
        self.slice_ends = retired.saturating_add(tasks.slice() / PER_INSTRUCTION);
        self.slice_due = tasks.slice_ends();
    }

    /// The same if a slice began by the clock, as when a task that was alone has started another one.
    pub(super) fn follow_slice(&mut self, retired: u64, tasks: &Tasks) {
        if self.slice_due != tasks.slice_ends() {
            self.new_slice(retired, tasks);
        }
    }

    /// How many instructions are left of the slice.
    pub(super) fn slice_left(&self, retired: u64) -> u64 {
        self.slice_ends.saturating_sub(retired)
    }

    /// The slice ends when so many more instructions have retired.
    pub(super) fn set_slice_left(&mut self, retired: u64, left: u64) {
        self.slice_ends = retired.saturating_add(left);
    }
}

impl Process {
    /// Runs the processor, and serves its exit.
    pub(super) fn run(&mut self, until: Until) -> Result<Step, ProcessError> {
        let begins = std::mem::take(&mut self.pace.segment_begins);
        let preemption = self.gate.preemption()?;
        self.find_clock_call(preemption.is_some())?;
        match preemption {
            Some(preemption) => {
                self.leave_differing(false);
                self.run_to(&preemption, until)
            }
            None if self.gate.replaying() => {
                self.come_back(begins)?;
                self.leave_differing(true);
                self.run_and_look(until, None)
            }
            None => {
                self.lend(begins)?;
                if !self.pace.lent {
                    self.suit_processor(begins)?;
                }
                self.leave_differing(true);
                self.run_and_preempt(until)
            }
        }
    }

    /// While recording: runs to an exit, or until the task has had its share or a timer is due.
    fn run_and_preempt(&mut self, until: Until) -> Result<Step, ProcessError> {
        let Some(due) = self.kernel.due() else {
            self.machine.cpu.come_back_by(None);
            return self.run_and_look(until, None);
        };
        if self.machine.cpu.counters().is_some() {
            let by = self.come_back_when(due);
            let (asked, bound) = (until, self.bound(due));
            let until = match until {
                Until::Retired(asked) if asked <= bound => Until::Retired(asked),
                Until::At(_) | Until::AtOrRetired(..) | Until::StateOrRetired(..) => until,
                _ => Until::Retired(bound),
            };
            let spin = self.spin_bound(asked, bound);
            if spin.is_some_and(|spin| self.retired() >= spin) {
                return self.look_for_spin();
            }
            if let Some(looked) = self.look_bound(until).into_iter().chain(spin).min() {
                return self.run_bounded(looked, by);
            }
            return match self.execute(until)? {
                Exit::Budget if until == Until::Retired(bound) => {
                    let retired = self.retired() - self.retired_at_event;
                    self.preempted(Offset::Retired(retired))
                }
                Exit::Kicked => self.kicked(by),
                exit => self.serve_exit(exit),
            };
        }
        self.run_and_look(until, Some(due))
    }

    /// Runs to an exit or bound, or until the caller wants to look; on a processor that is kicked, the task is preempted if
    /// `due` has come by then.
    fn run_and_look(&mut self, until: Until, due: Option<u64>) -> Result<Step, ProcessError> {
        if self.machine.cpu.counters().is_some() {
            if let Some(looked) = self.look_bound(until) {
                return self.run_bounded(looked, u64::MAX);
            }
        } else if let Some(kick) =
            due.map(|due| due.max(self.pace.earliest)).into_iter().chain(self.pace.look).min()
        {
            self.arm(kick);
        }
        match self.execute(until)? {
            Exit::Kicked => self.kicked(due.unwrap_or(u64::MAX)),
            exit => self.serve_exit(exit),
        }
    }

    /// Has [`Process::step`] return once about then, by the host's monotonic clock in nanoseconds, though nothing has happened; the
    /// program does not see it.
    pub(crate) fn come_back_at(&mut self, time: Option<u64>) {
        self.pace.look = time;
    }

    /// The retired count at which the caller wants to look, another processor may go on, or the time has become old, if that is
    /// before the bound.
    fn look_bound(&self, until: Until) -> Option<u64> {
        let until_look = |at: u64| at.saturating_sub(self.recent_clock()).max(SOONEST) / PER_INSTRUCTION;
        let patience = self.choice.as_ref().filter(|_| !self.pace.exactly && !self.pace.lent);
        let lefts = [self.pace.look.map(until_look), patience.map(Choice::patience), self.clock_patience()];
        let left = lefts.into_iter().flatten().min()?;
        let count = self.retired().saturating_add(left);
        match until {
            Until::Exit => Some(count),
            Until::Retired(bound) if count < bound => Some(count),
            _ => None,
        }
    }

    /// Runs to an exit, or to this count, where nothing happens; or until something is due.
    fn run_bounded(&mut self, count: u64, due: u64) -> Result<Step, ProcessError> {
        match self.execute(Until::Retired(count))? {
            Exit::Budget => {
                self.look_came(Time::now().monotonic);
                Ok(Step::Running)
            }
            Exit::Kicked => self.kicked(due),
            exit => self.serve_exit(exit),
        }
    }

    /// Has a processor that counts come back when something is due, too: a count stands for a time as long as instructions are fast, and
    /// one that repeats may take as long as a million others. Gives that time, a little later where it is past; random slices end by
    /// count alone.
    fn come_back_when(&mut self, due: u64) -> u64 {
        if self.kernel.tasks.slices_are_random() {
            return u64::MAX;
        }
        let due = due.max(self.kernel.now().monotonic + SOONEST);
        let left = due.saturating_sub(clock(libc::CLOCK_MONOTONIC));
        self.machine.cpu.come_back_by(Instant::now().checked_add(Duration::from_nanos(left)));
        due
    }

    /// The retired count at which the task is preempted, if something is due at this time. It is counted from the last event, at which the
    /// time is known: from where the caller last looked, it would never be reached.
    fn bound(&self, due: u64) -> u64 {
        let left = due.saturating_sub(self.kernel.now().monotonic).max(SOONEST);
        let bound = self.retired_at_event + left / PER_INSTRUCTION_UNTIL_DUE;
        if self.kernel.tasks.any_ready() {
            // By count alone if nothing else is due: random slices end so, too.
            let slice = self.pace.slice_ends.max(self.retired() + 1);
            return if due < self.kernel.tasks.slice_ends() { bound.min(slice) } else { slice };
        }
        bound
    }

    /// Sees to it that a kick comes at this time of the host's monotonic clock, or soon after.
    fn arm(&mut self, at: u64) {
        let interrupter = self.machine.cpu.interrupter();
        self.pace.kicker.get_or_insert_with(|| Kicker::new(interrupter)).arm(at);
    }

    /// No kick is on its way any more.
    fn kick_came(&mut self) {
        if let Some(kicker) = &mut self.pace.kicker {
            kicker.armed = None;
        }
    }

    /// The caller is come back to. A time that is past would have the processor kicked whenever it is entered, and the program would
    /// hardly get on.
    fn look_came(&mut self, now: u64) {
        self.pace.look = self.pace.look.filter(|at| *at > now);
    }

    /// The processor came back from a kick: the task is preempted if it is time, or if a signal came from outside.
    pub(super) fn kicked(&mut self, due: u64) -> Result<Step, ProcessError> {
        let now = Time::now().monotonic;
        self.kick_came();
        self.look_came(now);
        self.pace.counted = self.machine.cpu.counts().conditional_branches;
        let is_signalled = self.gate.is_signalled();
        if !is_signalled && now < due.max(self.pace.earliest) {
            return Ok(Step::Running);
        }
        if self.machine.cpu.counters().is_some() {
            return self.preempted_at_count(now);
        }
        if is_signalled && now < due {
            let by = *self.pace.signal_by.get_or_insert(now + SIGNALS_WAIT);
            if now < by {
                self.arm(by);
                return Ok(Step::Running);
            }
        }
        if self.is_inside_rep() && !self.finish_string()? {
            self.pace.earliest = now + AGAIN;
            self.arm(now + AGAIN);
            return Ok(Step::Running);
        }
        let target = self.target()?;
        if !self.kernel.tasks.slices_are_random() {
            self.pace.spin.kicked(self.kernel.tasks.id());
        }
        let cost = Time::now().monotonic.saturating_sub(now);
        self.pace.earliest = now + SOONEST.max(cost * DIGEST_SHARE);
        self.preempted(Offset::State(Box::new(target)))
    }

    /// The task is preempted where it is; a little later if a page fault of the next instruction has just been served: a replay that
    /// stops at the count does not come to that.
    fn preempted_at_count(&mut self, now: u64) -> Result<Step, ProcessError> {
        let regs = self.machine.cpu.regs();
        if matches!(&self.faults, Some((_, faulted, _)) if faulted == regs) {
            self.arm(now + AGAIN);
            return Ok(Step::Running);
        }
        let retired = self.retired() - self.retired_at_event;
        self.preempted(Offset::Retired(retired))
    }

    /// Has the software CPU finish the string instruction at rip, since in a loop of long ones no kick falls between two. Whether it did:
    /// to what it cannot go beyond, as a fault, the other processor comes as well.
    fn finish_string(&mut self) -> Result<bool, ProcessError> {
        if self.records.is_some() || self.machine.cpu.counts().conditional_branches.is_some() {
            // It would be missing in what that processor counts and records.
            return Ok(false);
        }
        self.exchange_within_slice()?;
        let exit = self.machine.run(Until::Retired(self.retired() + 1));
        self.exchange_within_slice()?;
        match exit? {
            Exit::Budget => Ok(true),
            Exit::Interrupted => {
                self.machine.cpu.interrupter().interrupt();
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Whether the instruction at rip repeats: it may be half done, and only here.
    pub(super) fn is_inside_rep(&self) -> bool {
        let mut bytes = [0; 15];
        let rip = self.machine.cpu.regs().rip;
        (1..=bytes.len()).rev().any(|len| self.read_memory(rip, &mut bytes[..len]));
        let instruction = iced_x86::Decoder::new(64, &bytes, iced_x86::DecoderOptions::NONE).decode();
        instruction.is_string_instruction()
            && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
    }

    /// The state of the loaded task, to be found again, with all its flags: the program may be about to look at them.
    pub(super) fn target(&mut self) -> Result<Target, EngineError> {
        let regs = *self.machine.cpu.regs();
        let fpu = digest_fpu(&self.machine.cpu.fpu()?);
        let memory = self.space().digest(self.machine.memory.ram());
        let base = self.pace.counted_at_event;
        let branches = self.pace.counted.zip(base).map(|(now, base)| now.saturating_sub(base));
        Ok(Target { regs, fpu, memory, branches })
    }

    /// Time passes for all, and the task gives the processor away.
    pub(super) fn preempted(&mut self, offset: Offset) -> Result<Step, ProcessError> {
        self.leave_crumb(crumb::Exit::Preempted);
        self.begin(Event::Preempt(offset.clone()))?;
        let (kernel, mut guest) = self.guest();
        kernel.preempted(&mut guest)?;
        self.happened(|_| What::Preempted(offset));
        self.go_on()
    }

    /// While replaying: runs to a preemption, or to an exit or bound before it.
    fn run_to(&mut self, preemption: &Preemption, until: Until) -> Result<Step, ProcessError> {
        if self.machine.cpu.kind() == EngineKind::Kvm {
            self.exchange()?;
        }
        match &preemption.offset {
            Offset::Retired(count) => self.run_to_count(*count, until),
            Offset::State(target) => self.run_to_state(target, preemption, until),
        }
    }

    fn run_to_count(&mut self, count: u64, until: Until) -> Result<Step, ProcessError> {
        let bound = self.retired_at_event.saturating_add(count);
        if self.retired() >= bound {
            return self.preempted(Offset::Retired(count));
        }
        let earlier = match until {
            Until::Retired(asked) if asked < bound => Some(until),
            Until::At(_) | Until::AtOrRetired(..) | Until::StateOrRetired(..) => Some(until),
            _ => None,
        };
        match self.execute(earlier.unwrap_or(Until::Retired(bound)))? {
            Exit::Budget if earlier.is_none() => self.preempted(Offset::Retired(count)),
            exit => self.serve_exit(exit),
        }
    }

    /// Searches for the state; where it is known to come after a count, nowhere else.
    fn run_to_state(
        &mut self,
        target: &Target,
        preemption: &Preemption,
        until: Until,
    ) -> Result<Step, ProcessError> {
        let known = preemption.count.map(|count| self.retired_at_event.saturating_add(count));
        let latest = known.unwrap_or_else(|| self.latest(preemption));
        let mut pages = None;
        loop {
            let retired = self.retired();
            if self.is_there(known, target, &mut pages)? {
                self.gate.found(retired - self.retired_at_event);
                // Flags that an instruction leaves undefined differ between processors: the recording's go on.
                self.machine.cpu.set_regs(&target.regs)?;
                return self.preempted(Offset::State(Box::new(*target)));
            }
            if retired > latest {
                return Err(self.not_found(target).into());
            }
            // Behind the count there may be a page fault of the next instruction before the state is there.
            let bound = match until {
                Until::Retired(count) => count.min(latest.saturating_add(1)),
                _ => latest.saturating_add(1),
            };
            let stop = match (until, known) {
                (Until::Exit | Until::Retired(_), Some(known)) if retired < known => {
                    Until::Retired(bound.min(known))
                }
                (Until::Exit | Until::Retired(_), _) => {
                    Until::StateOrRetired(target.regs.rip, target.regs.gpr, bound)
                }
                (other, _) => other,
            };
            match self.execute(stop)? {
                Exit::Budget if matches!(stop, Until::Retired(_) | Until::StateOrRetired(..)) => {
                    if matches!(until, Until::Retired(count) if self.retired() >= count) {
                        return self.serve_exit(Exit::Budget);
                    }
                }
                // A string instruction that repeats is in its midst at its page faults alone.
                Exit::Exception(_) if self.is_there(known, target, &mut pages)? => {}
                exit => return self.serve_exit(exit),
            }
        }
    }

    /// Whether the program is in this state, and has come as far as is known.
    fn is_there(
        &mut self,
        known: Option<u64>,
        target: &Target,
        pages: &mut Option<PageDigests>,
    ) -> Result<bool, EngineError> {
        Ok(known.is_none_or(|known| known == self.retired()) && self.is_at(target, pages)?)
    }

    /// Whether the program is in this state. What its pages were when that was asked before, `pages` keeps: a loop that changes
    /// memory alone comes here with these registers each time round.
    fn is_at(&mut self, target: &Target, pages: &mut Option<PageDigests>) -> Result<bool, EngineError> {
        if comparable(self.machine.cpu.regs()) != comparable(&target.regs) || self.is_before(target) {
            return Ok(false);
        }
        let fpu = self.machine.cpu.fpu()?;
        if digest_fpu(&fpu) != target.fpu {
            tracing::debug!(?fpu, "a preemption's general registers, with others of x87 or vectors");
            return Ok(false);
        }
        let (written, ram) = (self.machine.cpu.take_written(), self.machine.memory.ram());
        let sum = match (pages.as_mut(), written) {
            (Some(pages), Some(written)) => {
                pages.rewritten(ram, &written);
                pages.sum()
            }
            _ => pages.insert(self.spaces.get(self.space).page_digests(ram)).sum(),
        };
        Ok(sum == target.memory)
    }

    /// Whether the processor that recorded had counted more branches than have retired, by more than it may have been wrong.
    fn is_before(&self, target: &Target) -> bool {
        let now = self.machine.cpu.counters().map(|counters| counters.conditional_branches);
        let (Some(wanted), Some((now, base))) = (target.branches, now.zip(self.pace.counted_at_event)) else {
            return false;
        };
        let allowed = MISCOUNTED.saturating_add(wanted / MISCOUNTED);
        now.saturating_sub(base).saturating_add(allowed) < wanted
    }

    /// The retired count that no processor came to before the preemption.
    fn latest(&self, preemption: &Preemption) -> u64 {
        let Some(time) = preemption.time else { return u64::MAX };
        let took = time.monotonic.saturating_sub(self.kernel.now().monotonic);
        self.retired_at_event.saturating_add(took.saturating_mul(MOST_PER_NANOSECOND))
    }

    fn not_found(&self, target: &Target) -> GateError {
        GateError::Diverged {
            event: self.events + 1,
            what: "a preemption",
            expected: format!("one at {:#x}", target.regs.rip),
            found: format!("{} instructions without its state", self.retired() - self.retired_at_event),
        }
    }
}
