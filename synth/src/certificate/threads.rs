//! What a suffix that runs gets from outside: the kernel's answers, and the processor for one thread after another.

use super::CertificateError;
use super::stage::Stage;
use crate::past::hypothesis::Kernel;
use crate::suffix::{Suffix, SuffixInput, Turn};
use std::collections::BTreeMap;
use vmm::elfcore::Core;
use x86::op::Gpr;
use x86::state::State;

/// The processor went from one thread to another.
#[derive(Clone, Copy)]
pub(crate) struct Switch<'a> {
    /// The thread that had it.
    pub(crate) from: u32,
    /// Where that one will go on.
    pub(crate) stands: u64,
    /// The thread that has it now.
    pub(crate) to: u32,
    /// The call in which it had waited, and the answer that it got.
    pub(crate) answer: Option<(u64, &'a SuffixInput)>,
}

/// What became of a system call.
pub(super) enum Served<'a> {
    /// It was answered.
    Answered(&'a SuffixInput),
    /// Its thread waits in it; with the answer that it gets on the path.
    Waits(Option<&'a SuffixInput>),
}

/// A thread that has not the processor.
struct Parked {
    state: State,
    /// It waits in a system call.
    waits: bool,
}

/// The kernel and the threads of a suffix.
pub(super) struct Threads<'a> {
    kernel: Kernel,
    /// The answers that are to come.
    inputs: &'a [SuffixInput],
    runs: u32,
    /// The one that runs waits in a system call.
    waits: bool,
    parked: BTreeMap<u32, Parked>,
    /// The turns that are to come.
    turns: &'a [Turn],
}

impl<'a> Threads<'a> {
    /// Those of a suffix, as they stand at its start.
    pub(super) fn new(core: &Core, suffix: &'a Suffix) -> Threads<'a> {
        let crashed = core.threads.first().map_or(0, |(id, _)| id.unsigned_abs());
        let parked = suffix.others.iter();
        let parked = parked.map(|other| (other.thread, Parked { state: other.start, waits: other.waits }));
        Threads {
            kernel: Kernel::of(core),
            inputs: &suffix.inputs,
            runs: suffix.turns.first().map_or(crashed, |turn| turn.thread),
            waits: false,
            parked: parked.collect(),
            turns: suffix.turns.get(1..).unwrap_or_default(),
        }
    }

    /// Who has the processor.
    pub(super) fn runs(&self) -> u32 {
        self.runs
    }

    /// Those that have it not, with their registers.
    pub(super) fn parked(&self) -> impl Iterator<Item = (u32, &State)> {
        self.parked.iter().map(|(thread, parked)| (*thread, &parked.state))
    }

    /// Serves the system call that is entry `step` of the path.
    pub(super) fn serve(
        &mut self,
        stage: &mut Stage<'_>,
        step: usize,
    ) -> Result<Served<'a>, CertificateError> {
        if let Some((input, rest)) = self.inputs.split_first()
            && input.step == step
            && !input.late
        {
            self.inputs = rest;
            self.kernel.answer(stage, input)?;
            return Ok(Served::Answered(input));
        }
        if self.turns.first().is_none_or(|turn| turn.step != step + 1) {
            return Err(CertificateError::NoInput { step });
        }
        self.kernel.begin(stage)?;
        self.waits = true;
        let goes_on = self.turns.iter().find(|turn| turn.thread == self.runs).map(|turn| turn.step);
        let answers = self.inputs.iter().filter(|input| input.late);
        Ok(Served::Waits(answers.into_iter().find(|input| Some(input.step) == goes_on)))
    }

    /// Gives the processor to the next thread, if its turn begins with entry `step` of the path.
    pub(super) fn switch(
        &mut self,
        stage: &mut Stage<'_>,
        step: usize,
    ) -> Result<Option<Switch<'a>>, CertificateError> {
        let Some((turn, rest)) = self.turns.split_first().filter(|(turn, _)| turn.step == step) else {
            return Ok(None);
        };
        let next = self.parked.remove(&turn.thread).ok_or(CertificateError::NoThread { step })?;
        let state = stage.state()?;
        let (from, stands) = (self.runs, state.regs.rip);
        self.parked.insert(from, Parked { state, waits: std::mem::take(&mut self.waits) });
        stage.load(&next.state)?;
        (self.runs, self.turns) = (turn.thread, rest);
        let number = next.state.regs.gpr[usize::from(Gpr::RAX.0)];
        let answer = if next.waits { Some((number, self.answer_late(stage, step)?)) } else { None };
        Ok(Some(Switch { from, stands, to: turn.thread, answer }))
    }

    fn answer_late(
        &mut self,
        stage: &mut Stage<'_>,
        step: usize,
    ) -> Result<&'a SuffixInput, CertificateError> {
        let next = self.inputs.split_first().filter(|(input, _)| input.late && input.step == step);
        let (input, rest) = next.ok_or(CertificateError::NoInput { step })?;
        self.inputs = rest;
        self.kernel.answer(stage, input)?;
        Ok(input)
    }
}
