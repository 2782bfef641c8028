//! What led to an instruction that no value makes fault: UD2, as the kernel's BUG() and a compiler's trap have it.
//!
//! The last conditional branch of the same call decided to go there, and what it compared is the question. Example: behind
//! `cmp [rdi+0x20], eax` a `jne` leads to the UD2 of `BUG_ON(sum != job->want)`: the question is eax and the four bytes at rdi+0x20,
//! at the comparison. A call without a decision does what its caller decided, and so does a function that only gives up: behind
//! `fortify_panic` the question is what its caller found too long.

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
    /// The last conditional branch that something decided, of the innermost call around the crash that has one. A function that only
    /// carries out what was decided, by `gives_up`, has its caller's.
    #[must_use]
    pub fn decision(&self, gives_up: &dyn Fn(u64) -> bool) -> Option<Decision> {
        let number = self.deciding(gives_up)?;
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

    fn deciding(&self, gives_up: &dyn Fn(u64) -> bool) -> Option<usize> {
        // How many calls that have returned are around a step, and the last decision of a call that gives up.
        let (mut returned, mut of_end) = (0_usize, None);
        let own = |(_, step): &(usize, &Step)| step.thread == self.place.thread;
        for (number, step) in self.steps.iter().enumerate().rev().filter(own) {
            let Made::Instruction(instruction) = &step.made else { continue };
            let is_called_by_pointer = instruction.is_call_near_indirect();
            match instruction.flow_control() {
                FlowControl::Return => returned += 1,
                _ if returned > 0 => {
                    returned -= usize::from(instruction.is_call_near() || is_called_by_pointer);
                }
                // A thread's function, which does not return either: whoever called it knew nothing of it.
                _ if is_called_by_pointer && of_end.is_some() => return of_end,
                FlowControl::ConditionalBranch if !step.decided_by.is_empty() => {
                    if !gives_up(step.rip) {
                        return Some(number);
                    }
                    of_end = of_end.or(Some(number));
                }
                _ => {}
            }
        }
        of_end
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
