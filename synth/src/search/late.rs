//! Addresses that became known late.
//!
//! An access whose address is not known is passed over, as if it had touched nothing that older steps use. When an older step
//! tells the address, and a step in between was answered from those very bytes, that was wrong, and all that was learned
//! from the answer with it. Then the hypothesis is built again, with this address known from the start.

use super::Search;
use crate::past::deferred::{AccessNumber, Early};
use crate::past::hypothesis::{Hypothesis, PathStep, Refusal, STALE};
use crate::past::prepared::Prepared;
use std::rc::Rc;

/// So often a hypothesis is built again. Each time costs as much as the path is long.
const MOST_REBUILDS: u32 = 4096;
/// So many addresses can turn up while it is built.
const MOST_AT_ONCE: usize = 32;

impl<'p> Search<'p> {
    /// Builds the hypothesis again, since the step that is about to be prepended tells an address.
    ///
    /// # Errors
    /// When the path contradicts the core with that address, and so that step does; or when this was done too often.
    pub(super) fn learn_late(&mut self, access: AccessNumber, address: u64) -> Result<(), Refusal> {
        let since = self.hypothesis.len() + 1;
        let mut early = self.hypothesis.early_and_chosen();
        early.push(Early { since, assumed: false, access, address });
        let hypothesis = self.rebuilt_with(early)?;
        self.take_over(hypothesis);
        Ok(())
    }

    /// The hypothesis of the present path with these addresses, and those that they tell late in their turn.
    pub(super) fn rebuilt_with(&mut self, mut early: Vec<Early>) -> Result<Hypothesis<'p>, Refusal> {
        let since = self.hypothesis.len() + 1;
        for _ in 0..MOST_AT_ONCE {
            match self.rebuilt(&early) {
                Err(Refusal::Late(access, address)) => {
                    early.push(Early { since, assumed: false, access, address });
                }
                other => return other,
            }
        }
        Err(STALE)
    }

    /// Forgets the addresses that only steps told which have been taken back.
    pub(super) fn forget_late(&mut self) {
        let len = self.hypothesis.len();
        let early = self.hypothesis.early();
        let kept: Vec<Early> = early.iter().copied().filter(|early| early.since <= len).collect();
        if kept.len() == early.len() {
            return;
        }
        let kept: Vec<Early> = kept.into_iter().chain(self.hypothesis.chosen().iter().copied()).collect();
        match self.rebuilt(&kept) {
            Ok(hypothesis) => _ = self.take_over(hypothesis),
            Err(_) => {
                self.hypothesis.assume_early();
                self.statistics.assumed = true;
            }
        }
    }

    /// The hypothesis of the present path with these addresses.
    fn rebuilt(&mut self, early: &[Early]) -> Result<Hypothesis<'p>, Refusal> {
        self.rebuilds += 1;
        if self.rebuilds > MOST_REBUILDS {
            return Err(STALE);
        }
        let mut hypothesis = self.hypothesis.emptied(early.to_vec());
        for n in 0..self.taken.len() {
            let (step, call) = self.taken[n];
            self.take_again(&mut hypothesis, step, call)?;
        }
        Ok(hypothesis)
    }

    /// Prepends a step, which the search has prepended before, to another hypothesis of the same path.
    pub(super) fn take_again(
        &mut self,
        hypothesis: &mut Hypothesis<'p>,
        step: PathStep,
        call: Option<u64>,
    ) -> Result<(), Refusal> {
        let prepared = self.prepare_again(step);
        hypothesis.prepend(&prepared, call)?;
        let relation = self.stack.before_epilogue(step.address);
        relation.map_or(Ok(()), |relation| hypothesis.relate_stack(&relation))
    }

    /// The instruction of a step that was taken.
    fn prepare_again(&mut self, step: PathStep) -> Rc<Prepared> {
        let prepared = self.prepare(step.address).expect("the search went through it");
        if !step.is_instruction() {
            let between = if step.signal { Prepared::delivering } else { Prepared::switching };
            return Rc::new(between(prepared.instruction));
        }
        if step.skips { Rc::new(prepared.skipping()) } else { prepared }
    }

    /// Goes on with another hypothesis of the same path; gives the one before.
    pub(super) fn take_over(&mut self, hypothesis: Hypothesis<'p>) -> Hypothesis<'p> {
        // Its constraints are others.
        self.frames.iter_mut().for_each(|frame| frame.checked = 0);
        std::mem::replace(&mut self.hypothesis, hypothesis)
    }
}
