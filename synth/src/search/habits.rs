//! Which way the program mostly came, by samples of its branches ([`crate::evidence::samples`]).

use super::Search;
use super::candidates::Candidate;

/// So many taken branches of the path are compared with samples: as many as a sample has at most.
const AHEAD: usize = 31;
/// They are looked for within so many steps.
const LOOKED_THROUGH: usize = 1024;
/// What a place of a sample costs that is looked at.
const PLACES_A_UNIT: u64 = 4;

impl Search<'_> {
    /// Says of each way to the present start how much the samples speak for it.
    pub(super) fn weigh_habits(&mut self, found: &mut [Candidate]) {
        let Some(samples) = self.samples.filter(|_| found.len() > 1) else { return };
        let start = self.hypothesis.start();
        let (ways, looked_at) = samples.ways(start, &self.branches_ahead());
        self.hypothesis.terms().fuel().burn(looked_at as u64 / PLACES_A_UNIT + 1);
        for candidate in found.iter_mut().filter(|candidate| !candidate.is_of_signal()) {
            let op = &candidate.prepared.op;
            candidate.habit = match op.next == start {
                true => ways.straight(),
                false => ways.by_branch(candidate.prepared.address()),
            };
        }
        self.statistics.sampled += u64::from(found.iter().any(|candidate| candidate.habit > 0));
    }

    /// The taken branches behind the present start, the next one first.
    fn branches_ahead(&self) -> Vec<(u64, u64)> {
        let steps = self.hypothesis.path().iter().rev().take(LOOKED_THROUGH);
        let steps = steps.take_while(|step| step.is_instruction()).filter(|step| !step.skips);
        let taken = steps.filter(|step| {
            let instruction = self.program.instruction_at(step.address);
            step.next != step.address && instruction.is_none_or(|it| it.next_ip() != step.next)
        });
        taken.map(|step| (step.address, step.next)).take(AHEAD).collect()
    }
}
