//! Which steps of a path are forced: every other way to come to the same place was refuted.
//!
//! A step that the branch records give has no other; elsewhere each of the other predecessors must contradict the core at
//! once, on a hypothesis in which nothing is chosen. What would die only further back counts as another way.

use super::Search;
use super::candidates::Candidate;
use super::trail::Window;
use crate::fuel::Until;
use crate::past::deferred::Early;
use crate::past::hypothesis::{PathStep, Refusal};
use crate::smt::Effort;

impl Search<'_> {
    /// How many of the newest steps of a path that a search found are forced; as far as it is known then.
    #[must_use]
    pub fn forced(mut self, path: &[(PathStep, Option<u64>)], early: &[Early], until: &Until) -> usize {
        self.hypothesis = self.hypothesis.emptied(early.to_vec());
        for (n, &(step, call)) in path.iter().enumerate() {
            self.statistics.assumed = false;
            self.open_frame();
            let frame = self.frames.last().expect("it was opened");
            let (window, candidates) = (frame.window, frame.candidates.clone());
            let is_taken = |c: &Candidate| {
                let is_instruction = c.prepared.is_instruction();
                (c.prepared.address(), c.prepared.skips(), c.call) == (step.address, step.skips, call)
                    && is_instruction == step.is_instruction()
            };
            let Some(taken) = candidates.iter().position(is_taken) else { return n };
            let alone = candidates.len() == 1;
            let trusted = alone || self.hypothesis.newest_unresolved_store().is_none();
            let assumed = self.statistics.assumed && !(alone && call.is_some());
            if until.is_over() || !trusted || assumed || !self.knows_all_ways(window) {
                return n;
            }
            if candidates.iter().enumerate().any(|(at, other)| at != taken && !self.is_refuted(other)) {
                return n;
            }
            self.frames.last_mut().expect("it was opened").next = taken + 1;
            let prepended = self.hypothesis.prepend(&candidates[taken].prepared, call);
            if prepended.and_then(|()| self.relate_stack()).is_err() {
                return n;
            }
            self.taken.push((step, call));
        }
        path.len()
    }

    /// Whether the candidates at the present start are all that there can be: a branch that the map does not have would
    /// have been recorded. To a kernel's code the way back from an interrupt leads anywhere; records show it, since far transfers are
    /// always among those of a kernel.
    fn knows_all_ways(&self, window: Window) -> bool {
        let may_return_here = self.program.is_kernel() && self.records.next(window).is_none();
        self.records.shows_all(window) || !may_return_here && self.cfg.is_complete(self.hypothesis.start())
    }

    /// Whether a candidate contradicts the core.
    fn is_refuted(&mut self, other: &Candidate) -> bool {
        let prepended = self.hypothesis.prepend(&other.prepared, other.call);
        match prepended.and_then(|()| self.relate_stack()) {
            Err(refusal) => refusal == Refusal::Contradiction,
            Ok(()) => {
                let refuted = self.is_satisfiable(Effort::Plain) == Some(false);
                self.hypothesis.pop();
                refuted
            }
        }
    }
}
