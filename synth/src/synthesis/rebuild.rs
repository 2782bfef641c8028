//! A path that the search found, built again for a certificate: all of it, or its newest part.
//!
//! The search chose addresses as it went. Known from the start, such a choice may contradict what came after it, or before; it
//! is what can be given up, since the rest of the path does not hang on it.

use super::Attempts;
use crate::fuel::Until;
use crate::past::addresses::Patience;
use crate::past::deferred::Early;
use crate::past::history::Step;
use crate::past::hypothesis::{Hypothesis, Kernel, PathStep, Refusal};
use crate::past::prepared::Prepared;
use crate::program::stack::Stack;
use crate::smt::Effort;
use crate::term::Terms;
use std::rc::Rc;

/// So many addresses that would be known too late are known from the start together, before one more access has a place.
const MOST_LATE: usize = 4;
/// And so often the path is built again for that.
const MOST_REBUILT: usize = 16;

impl Attempts<'_> {
    /// The hypothesis of these steps, with addresses chosen for their accesses: for all, or for as many of the newest as it goes.
    pub(super) fn placed(&self, path: &[(PathStep, Option<u64>)]) -> Hypothesis<'_> {
        let early = &self.found.early;
        let placed = self.placed_beside(path, early);
        let mut told = early.clone();
        told.retain(|early| !early.assumed);
        let may_be_freed = told.len() < early.len() && !self.is_over();
        let Some(reached) = placed.newest_unresolved().filter(|_| may_be_freed) else { return placed };
        // What the search chose may be what is in the way.
        let free = self.placed_beside(path, &told);
        let is_further = free.newest_unresolved().is_none_or(|step| step > reached);
        if is_further && free.len() == path.len() { free } else { placed }
    }

    /// The same beside these addresses.
    fn placed_beside(&self, path: &[(PathStep, Option<u64>)], early: &[Early]) -> Hypothesis<'_> {
        let (hypothesis, _) = self.rebuild(path, early, &self.until);
        let mut best = self.with_addresses(hypothesis, path.len());
        while let Some(reached) = best.newest_unresolved() {
            let Some(further) = self.placed_late(path, &mut best, reached, MOST_LATE, &mut { MOST_REBUILT })
            else {
                break;
            };
            best = further;
        }
        best
    }

    /// The same with the addresses known from the start that were refused since they would have been known too late: with one of them,
    /// or, where that comes no further than to the step `reached`, with one more of those that are refused then.
    fn placed_late(
        &self,
        path: &[(PathStep, Option<u64>)],
        placed: &mut Hypothesis<'_>,
        reached: Step,
        together: usize,
        tries: &mut usize,
    ) -> Option<Hypothesis<'_>> {
        let early = placed.early().to_vec();
        placed.take_late().into_iter().find_map(|late| {
            *tries = tries.checked_sub(1).filter(|_| !self.is_over())?;
            let known: Vec<Early> = early.iter().copied().chain([late]).collect();
            let (hypothesis, _) = self.rebuild_learning(path, &known, &self.until);
            let is_rebuilt = hypothesis.len() == path.len();
            let mut with_it = is_rebuilt.then(|| self.with_addresses(hypothesis, path.len()))?;
            match with_it.newest_unresolved().is_none_or(|step| step > reached) {
                true => Some(with_it),
                false if together > 1 => self.placed_late(path, &mut with_it, reached, together - 1, tries),
                false => None,
            }
        })
    }

    /// The same with addresses chosen for as many of these steps as it goes.
    fn with_addresses<'h>(&self, mut hypothesis: Hypothesis<'h>, steps: usize) -> Hypothesis<'h> {
        // Half of what is left, so that what could not be placed does not cost all of it.
        hypothesis.stop_at(self.until.share(1, 2));
        hypothesis.choose_addresses(&(1..steps + 1), Patience::FINAL);
        hypothesis
    }

    /// The hypothesis of these steps alone, or of as many of the newest as there is fuel for: what older steps taught is not used
    /// beside `early`. And for how many of the steps, if it was looked for, it has a solution.
    pub(super) fn rebuild(
        &self,
        path: &[(PathStep, Option<u64>)],
        early: &[Early],
        until: &Until,
    ) -> (Hypothesis<'_>, usize) {
        let rebuilt = self.rebuild_learning(path, early, until);
        let mut told = early.to_vec();
        told.retain(|early| !early.assumed);
        if rebuilt.0.len() == path.len() || told.len() == early.len() || until.is_over() {
            return rebuilt;
        }
        // What the search chose, as it went, does not go with all that came after it. Without that, the choice is free.
        let without = self.rebuild_learning(path, &told, until);
        if without.0.len() > rebuilt.0.len() { without } else { rebuilt }
    }

    /// The same; addresses that turn up late are learned, as the search does.
    fn rebuild_learning(
        &self,
        path: &[(PathStep, Option<u64>)],
        early: &[Early],
        until: &Until,
    ) -> (Hypothesis<'_>, usize) {
        let mut early = early.to_vec();
        loop {
            let (hypothesis, solved, refusal) = self.rebuild_once(path, &early, until);
            let (at, most) = (hypothesis.len(), path.len());
            if let Some(refusal) = refusal {
                tracing::debug!(at, most, ?refusal, "a path was not built again");
            }
            match refusal {
                Some(Refusal::Late(access, address))
                    if !early.iter().any(|it| it.access == access) && !until.is_over() =>
                {
                    early.push(Early { since: at + 1, assumed: false, access, address });
                }
                _ => return (hypothesis, solved),
            }
        }
    }

    /// The hypothesis of as many of these steps as it can be of, and why it is not of all.
    fn rebuild_once(
        &self,
        path: &[(PathStep, Option<u64>)],
        early: &[Early],
        until: &Until,
    ) -> (Hypothesis<'_>, usize, Option<Refusal>) {
        let terms = Rc::new(Terms::with_fuel(self.until.fuel().clone()));
        let (core, kernel) = (&self.request.core.state, Kernel::of(self.request.core));
        let mut hypothesis =
            Hypothesis::new(Rc::clone(&terms), self.image, core, kernel).with_early(early.to_vec());
        let stack = Stack::new(self.request.program);
        let was_hard = self.found.statistics.solver_unknown > 0;
        let (mut solved, mut place) = (0, 0);
        for (n, (step, call)) in (1..).zip(path) {
            if until.is_over() {
                break;
            }
            let instruction = self.request.program.instruction_at(step.address);
            let instruction = instruction.expect("the search went through it");
            let prepared = match (step.is_instruction(), step.skips) {
                (false, _) if step.signal => Prepared::delivering(instruction),
                (false, _) => Prepared::switching(instruction),
                (true, false) => Prepared::of_program(self.request.program, &terms, instruction),
                (true, true) => Prepared::of_program(self.request.program, &terms, instruction).skipping(),
            };
            if let Err(refusal) = hypothesis.prepend(&prepared, *call) {
                return (hypothesis, solved, Some(refusal));
            }
            let relation = stack.before_epilogue(step.address);
            if let Some(Err(refusal)) = relation.map(|relation| hypothesis.relate_stack(&relation)) {
                hypothesis.pop();
                return (hypothesis, solved, Some(refusal));
            }
            // What the solver gave up on once, it gives up on again: then a solution is kept, as the search did, where it
            // had a choice (in between, the parts of a computation are unknowns of their own).
            let had_choice = self.cfg.predecessors(step.next).nth(1).is_some();
            if was_hard
                && (had_choice || n == path.len())
                && hypothesis.fit_witness(place, Effort::Plain).is_ok()
            {
                (solved, place) = (n, hypothesis.facts().constraints());
            }
        }
        (hypothesis, solved, None)
    }
}
