//! One turn of a loop, instruction by instruction: where it went, and what it accessed.
//!
//! Example: `for (i = 0; i < 1000000 && !flag; i++);` goes by the same five instructions in each turn, and each turn loads the four
//! bytes of `flag`; only the register with `i` differs. `for (i = 0; i < n; i++) sum += a[i];` loads from somewhere else each time.

use crate::engine::accessed::accesses;
use crate::ram::Virt;
use std::ops::Range;
use x86::state::Regs;

/// Instructions of a turn at most.
const LONGEST: usize = 64;

/// A turn of a loop.
#[derive(Debug)]
pub(super) struct Turn {
    steps: Vec<Executed>,
    /// The registers where it begins, at its lowest instruction, and where it ends.
    start: Regs,
    lowest: Regs,
    end: Regs,
}

#[derive(PartialEq, Eq, Debug)]
struct Executed {
    rip: Virt,
    accessed: Vec<Range<Virt>>,
}

impl Turn {
    /// A turn that begins here.
    pub(super) fn begin(regs: &Regs) -> Turn {
        Turn { steps: Vec::new(), start: *regs, lowest: *regs, end: *regs }
    }

    /// This instruction is about to be executed. False if it is none of a loop that only looks: it stores, or the turn is too long.
    pub(super) fn step(&mut self, regs: &Regs, code: &[u8]) -> bool {
        let accesses = accesses(code, regs);
        if accesses.iter().any(|(access, _)| access.writes) || self.steps.len() == LONGEST {
            return false;
        }
        if regs.rip < self.lowest.rip {
            self.lowest = *regs;
        }
        let accessed = accesses.into_iter().map(|(access, _)| access.range).collect();
        self.steps.push(Executed { rip: regs.rip, accessed });
        true
    }

    /// Whether the turn is over, where the program stands with these registers.
    pub(super) fn ends_at(&mut self, regs: &Regs) -> bool {
        self.end = *regs;
        self.steps.first().is_some_and(|first| first.rip == regs.rip)
    }

    /// Whether the other turn went the same way, and looked at the same places, of which there are some.
    pub(super) fn is_like(&self, other: &Turn) -> bool {
        self.steps == other.steps && self.steps.iter().any(|step| !step.accessed.is_empty())
    }

    /// Whether this is a later turn of the loop that `before` is a turn of, which was not left meanwhile as far as registers tell:
    /// those that a turn changes have changed in its direction, and no others.
    pub(super) fn goes_on_from(&self, before: &Turn) -> bool {
        self.steps_by_lowest().eq(before.steps_by_lowest())
            && (0..self.start.gpr.len()).all(|gpr| {
                let moves =
                    |from: &Regs, to: &Regs| (to.gpr[gpr].wrapping_sub(from.gpr[gpr]) as i64).signum();
                moves(&before.lowest, &self.lowest) == moves(&self.start, &self.end)
            })
    }

    /// Its steps, whichever of them was the first one seen.
    fn steps_by_lowest(&self) -> impl Iterator<Item = &Executed> {
        let lowest = self.steps.iter().position(|step| step.rip == self.lowest.rip).unwrap_or(0);
        self.steps[lowest..].iter().chain(&self.steps[..lowest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `head: mov eax, [rdi]; inc rcx; test eax, eax; jz head`, from any of its instructions on, with rcx so.
    fn turn(first: usize, rcx: u64, rdi: u64) -> Turn {
        let code: [(u64, &[u8]); 4] =
            [(0x10, &[0x8b, 7]), (0x12, &[0x48, 0xff, 0xc1]), (0x15, &[0x85, 0xc0]), (0x17, &[0x74, 0xf7])];
        let mut regs = Regs { rip: code[first].0, ..Regs::default() };
        (regs.gpr[1], regs.gpr[7]) = (rcx, rdi);
        let mut turn = Turn::begin(&regs);
        for at in (0..code.len()).map(|step| (first + step) % code.len()) {
            regs.rip = code[at].0;
            assert!(turn.step(&regs, code[at].1));
            regs.gpr[1] += u64::from(at == 1);
        }
        regs.rip = code[first].0;
        assert!(turn.ends_at(&regs));
        turn
    }

    #[test]
    fn a_turn_that_loads_from_elsewhere_is_another() {
        assert!(turn(0, 5, 0x1000).is_like(&turn(0, 6, 0x1000)));
        assert!(!turn(0, 5, 0x1000).is_like(&turn(0, 6, 0x1004)));
    }

    #[test]
    fn a_loop_that_goes_on_is_told_from_one_that_was_entered_again() {
        assert!(turn(2, 900, 0x1000).goes_on_from(&turn(0, 5, 0x1000)));
        assert!(!turn(0, 5, 0x1000).goes_on_from(&turn(2, 900, 0x1000)), "it counts from the start again");
        assert!(!turn(0, 900, 0x2000).goes_on_from(&turn(0, 5, 0x1000)), "it looks elsewhere");
    }

    #[test]
    fn a_turn_that_stores_is_none_of_a_loop_that_looks() {
        let regs = Regs::default();
        assert!(!Turn::begin(&regs).step(&regs, &[0x89, 0x07]));
    }
}
