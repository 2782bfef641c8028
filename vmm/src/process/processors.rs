//! The processors of a program: which one runs, and how another one goes on where it stopped.
//!
//! Beside the one that was asked for there may be a spare one of the other kind. While replaying, the software CPU runs the segments
//! that end in a preemption, and whatever is to be counted exactly. While recording it runs random slices that are too short for a
//! kick. And where both may run, [`super::choice`] says which.

use super::choice::Choice;
use super::{Process, ProcessError};
use crate::engine::soft::SoftCpu;
use crate::engine::{Cpu, EngineError, EngineKind, Exit, Until};
use lbr::crumb::Counts;
use std::time::{Duration, Instant};
use x86::state::State;

impl Process {
    /// Runs the processor, and notes how long that took, where two take turns.
    pub(super) fn execute(&mut self, until: Until) -> Result<Exit, ProcessError> {
        self.make_clock_due()?;
        let exit = self.execute_and_note(until);
        self.make_clock_usual()?;
        Ok(exit?)
    }

    fn execute_and_note(&mut self, until: Until) -> Result<Exit, EngineError> {
        if self.choice.is_none() && self.profile.is_none() && !self.pace.leaves {
            return self.machine.run(until);
        }
        let (kind, before, start) = (self.machine.cpu.kind(), self.retired(), Instant::now());
        self.choice.iter_mut().for_each(|choice| choice.begins(start));
        let exit = match self.machine.run(until)? {
            Exit::NoSemantics { .. } if self.pace.leaves => Exit::Differing,
            exit => exit,
        };
        self.pace.gives_back |= self.pace.lent && exit == Exit::Differing;
        let (until, retired) = (Instant::now(), self.retired() - before);
        let took = until - start;
        let task = self.kernel.tasks.id();
        self.choice.iter_mut().for_each(|choice| choice.ran(task, kind, retired, (took, until), &exit));
        self.profile.iter_mut().for_each(|profile| profile.ran(kind, took, &exit));
        Ok(exit)
    }

    /// Has the software CPU leave what it does not know, and what differs between processors, to KVM, where the two take turns and
    /// either may run: so replays have it executed by the processor that executed it while recording.
    pub(super) fn leave_differing(&mut self, either_may_run: bool) {
        let takes_turns = self.choice.is_some() || self.pace.lent;
        self.pace.leaves = takes_turns && either_may_run && !self.pace.exactly;
        self.machine.cpu.leave_differing(self.pace.leaves);
    }

    /// Gives the task the processor that suits it, where two take turns.
    pub(super) fn suit_processor(&mut self, segment_begins: bool) -> Result<(), ProcessError> {
        let looks = self.choice.is_some() && !self.gate.replaying() && self.is_to_be_looked_at();
        let Some(choice) = &mut self.choice else { return Ok(()) };
        if segment_begins {
            choice.segment_begins();
        }
        let (now, task) = (self.machine.cpu.kind(), self.kernel.tasks.id());
        choice.counts_instead(looks);
        match choice.wanted(task, now) {
            EngineKind::Kvm if now == EngineKind::Soft => self.use_kvm(),
            // Where in a segment it stands is not known of a processor that does not count.
            EngineKind::Soft if now == EngineKind::Kvm && segment_begins => self.exchange_within_slice(),
            _ => Ok(()),
        }
    }

    /// Goes on under KVM, if it can be had after all.
    fn use_kvm(&mut self) -> Result<(), ProcessError> {
        let waiting = self.choice.as_mut().and_then(Choice::take_waiting);
        if let Some(waiting) = waiting {
            let made = waiting.start(&mut self.machine.memory);
            match made.and_then(|kvm| kvm.require(self.model).map(|()| kvm)) {
                Ok(kvm) => self.pace.spare = Some(Box::new(kvm)),
                Err(error) => {
                    tracing::warn!("KVM cannot be used, and the software CPU goes on: {error}");
                    self.choice = None;
                    self.leave_differing(false);
                    return Ok(());
                }
            }
            // Nobody counts what KVM retires.
            self.counts_late = true;
        }
        self.exchange_within_slice()
    }

    /// Exchanges the processors; the task keeps what is left of its slice.
    pub(super) fn exchange_within_slice(&mut self) -> Result<(), ProcessError> {
        let left = self.pace.slice_left(self.retired());
        self.exchange()?;
        self.pace.set_slice_left(self.retired(), left);
        Ok(())
    }

    /// A software CPU for this program, of which nothing is known but that it is new.
    pub(super) fn software_cpu(&self) -> Result<Box<dyn Cpu>, EngineError> {
        let mut cpu = SoftCpu::new()?;
        cpu.set_mxcsr_mask(self.mxcsr_mask);
        cpu.expect_program(self.program);
        Ok(Box::new(cpu))
    }

    /// Goes on, on the other processor, from the same state in the same memory.
    pub(super) fn exchange(&mut self) -> Result<(), ProcessError> {
        let start = Instant::now();
        let mut next = match self.pace.spare.take() {
            Some(next) => next,
            None => self.software_cpu()?,
        };
        // Nobody counted what this one retired.
        self.counts_late |= self.machine.cpu.counters().is_none();
        let state = State { regs: *self.machine.cpu.regs(), fpu: self.machine.cpu.fpu()? };
        next.set_regs(&state.regs)?;
        next.set_fpu(&state.fpu)?;
        next.set_page_table(self.space().root());
        next.set_interrupter(self.machine.cpu.interrupter());
        self.machine.memory.exchange_processor();
        // What the other one stores is not seen.
        self.pace.spin.nothing_is_known();
        let ran = self.position().retired;
        self.pace.spare = Some(std::mem::replace(&mut self.machine.cpu, next));
        self.retired_at_event = self.retired().saturating_sub(ran);
        self.note_counts(ran == 0);
        self.profile.iter_mut().for_each(|profile| profile.exchanged(start.elapsed()));
        Ok(())
    }

    /// Another processor runs from here on, where a segment begins or inside of one.
    pub(super) fn note_counts(&mut self, begins: bool) {
        self.pace.counted = self.machine.cpu.counts().conditional_branches;
        self.pace.counted_at_event = self.pace.counted.filter(|_| begins);
    }

    /// What has retired since the program's start, as far as it is known: of a processor that ran only at times, nothing.
    pub(super) fn counts(&self) -> Counts {
        let is_partial = self.pace.lent || self.choice.is_some() && self.counts_late;
        if is_partial { Counts::default() } else { self.machine.cpu.counts() }
    }

    /// Has the software CPU run from here on, where instructions are to be counted; or the processor that was asked for.
    ///
    /// # Errors
    /// When a processor does not give or take the state.
    pub(crate) fn count_exactly(&mut self, exactly: bool) -> Result<(), ProcessError> {
        self.pace.exactly = exactly;
        if exactly && self.machine.cpu.kind() == EngineKind::Kvm { self.exchange() } else { Ok(()) }
    }

    /// Whether the software CPU runs whichever was asked for.
    pub(crate) fn is_counting_exactly(&self) -> bool {
        self.pace.exactly
    }

    /// Goes on, on the processor that was asked for, where the other one has found a preemption; or on the one that suits.
    pub(super) fn come_back(&mut self, segment_begins: bool) -> Result<(), ProcessError> {
        match &self.pace.spare {
            _ if self.pace.exactly => Ok(()),
            _ if self.choice.is_some() => self.suit_processor(segment_begins),
            Some(spare) if spare.kind() == EngineKind::Kvm => self.exchange(),
            _ => Ok(()),
        }
    }

    /// Whether KVM and the software CPU take turns, also where KVM has not run yet.
    pub(crate) fn takes_turns(&self) -> bool {
        self.choice.is_some()
    }

    /// Which kind of processor was asked for: the one that runs now may be another one for a while. Where two take turns, KVM as
    /// soon as it has run.
    #[must_use]
    pub fn engine_kind(&self) -> EngineKind {
        let spare = self.pace.spare.as_ref().map(|spare| spare.kind());
        if spare == Some(EngineKind::Kvm) { EngineKind::Kvm } else { self.machine.cpu.kind() }
    }

    /// What it costs to leave the virtual machine, of the two processors or the one.
    pub(crate) fn exit_cost(&self) -> Duration {
        let of_spare = self.pace.spare.as_ref().map_or(Duration::ZERO, |spare| spare.exit_cost());
        of_spare.max(self.machine.cpu.exit_cost())
    }

    /// How long KVM ran and how long the software CPU, where they took turns and both did.
    #[must_use]
    pub fn shares(&self) -> Option<[Duration; 2]> {
        self.choice.as_ref()?.shares()
    }

    /// The name of what ran the program: `kvm`, `soft`, or `both`.
    #[must_use]
    pub fn ran_on(&self) -> &'static str {
        if self.shares().is_some() { "both" } else { self.engine_kind().name() }
    }

    /// By which costs the processor was chosen, where two take turns.
    #[must_use]
    pub fn choice(&self) -> Option<String> {
        self.choice.as_ref().map(Choice::describe)
    }
}
