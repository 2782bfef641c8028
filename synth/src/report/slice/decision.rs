//! What led to an instruction that no value makes fault: UD2, as the kernel's BUG() and a compiler's trap have it.
//!
//! The last conditional branch of the same function decided to go there, and what it compared is the question. Example: behind
//! `cmp [rdi+0x20], eax` a `jne` leads to the UD2 of `BUG_ON(sum != job->want)`: the question is eax and the four bytes at rdi+0x20,
//! at the comparison.

use super::{Moment, Step, Synthesized};
use iced_x86::{FlowControl, Instruction};
use std::collections::{BTreeMap, BTreeSet};
use vmm::slice::{Byte, Made, Place};

/// The last decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The branch.
    pub branch: Instruction,
    /// It was taken.
    pub is_taken: bool,
    /// What set the flags that it looked at, if that is in the suffix.
    pub comparison: Option<Instruction>,
    /// What was compared; without a comparison the flags themselves.
    pub bytes: BTreeSet<Byte>,
    /// What they were, as far as it is known.
    pub values: BTreeMap<Byte, u8>,
    /// When they were that.
    pub at: Moment,
    /// Whose they are.
    pub place: Place,
}

impl Synthesized<'_> {
    /// The last conditional branch at one of these addresses that something decided.
    #[must_use]
    pub fn decision(&self, is_within: &dyn Fn(u64) -> bool) -> Option<Decision> {
        let decides =
            |step: &Step| step.rip_of_branch().is_some_and(is_within) && !step.decided_by.is_empty();
        let number = self.steps.iter().rposition(decides)?;
        let step = &self.steps[number];
        let Made::Instruction(branch) = step.made else { return None };
        let next = self.steps.get(number + 1).map_or(self.core.state.regs.rip, |step| step.rip);
        let is_taken = next == branch.near_branch_target();
        let comparison = self.steps[..number].iter().rposition(|earlier| {
            earlier.thread == step.thread
                && step.decided_by.iter().any(|flag| earlier.given.contains_key(flag))
        });
        let compared = comparison.and_then(|number| {
            let earlier = &self.steps[number];
            let origins = step.decided_by.iter().filter_map(|flag| earlier.given.get(flag));
            let bytes: BTreeSet<Byte> =
                origins.flat_map(|(_, origin)| origin.value.iter().copied()).collect();
            let Made::Instruction(comparison) = earlier.made else { return None };
            (!bytes.is_empty()).then_some((number, comparison, bytes))
        });
        let (number, comparison, bytes) = match compared {
            Some((number, comparison, bytes)) => (number, Some(comparison), bytes),
            None => (number, None, step.decided_by.clone()),
        };
        let (at, place) = (self.before(number), Place { thread: step.thread, ..self.place });
        let value = |byte: &Byte| Some((*byte, self.value_before(*byte, number, place)?));
        let values = bytes.iter().filter_map(value).collect();
        Some(Decision { branch, is_taken, comparison, bytes, values, at, place })
    }

    fn before(&self, number: usize) -> Moment {
        Moment { next: number + 1, total: self.steps.len() }
    }

    fn value_before(&self, byte: Byte, number: usize, place: Place) -> Option<u8> {
        let is_seen = |step: &&Step| matches!(byte, Byte::Memory(_)) || step.thread == place.thread;
        let mut earlier = self.steps[..number].iter().rev().filter(is_seen);
        match earlier.find_map(|step| step.given.get(&byte)) {
            Some((value, _)) => *value,
            // Of flags the start has no bytes.
            None if matches!(byte, Byte::Flag(_)) => None,
            None => Some(self.at_start(byte, place).1),
        }
    }
}

impl Step {
    /// Its address, if it is a conditional branch.
    fn rip_of_branch(&self) -> Option<u64> {
        let Made::Instruction(instruction) = &self.made else { return None };
        (instruction.flow_control() == FlowControl::ConditionalBranch).then_some(self.rip)
    }
}
