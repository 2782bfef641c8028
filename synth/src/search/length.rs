//! How long a path is: against the most that it may have, and against how long an access may wait for its address.
//!
//! Each iteration of a repeated string instruction is a step. One that clears a page would take most of the thousand instructions that a
//! suffix has by default, and what tells its address stands before the first iteration, hundreds of steps from the last. So one of many
//! iterations is one instruction here, as the processor counts it, where the code before it tells how many these are
//! ([`super::repeated`]): else there might be no end of them. Example: `mov ecx, 512; rep stosq` between ten other instructions has 523
//! steps, and is 12 instructions long.

use super::Search;

/// A repeated string instruction of so many iterations is one instruction. One of fewer is as many as it has.
pub(super) const LONG: usize = 64;
/// More iterations of a path than these are counted.
const UNCOUNTED: usize = 1 << 14;

/// What of a path is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Iterations {
    /// The oldest steps that are iterations of one instruction.
    run: usize,
    /// All that are beyond the first of their instruction, where they are many.
    uncounted: usize,
}

impl Iterations {
    /// With a step before them, which may be another iteration of the oldest.
    fn before(self, is_another: bool) -> Iterations {
        let run = if is_another { self.run + 1 } else { 1 };
        let uncounted = match run {
            LONG => LONG - 1,
            run => usize::from(run > LONG),
        };
        Iterations { run, uncounted: self.uncounted + uncounted }
    }
}

impl Search<'_> {
    /// How long the present path is.
    pub(super) fn length(&self) -> usize {
        self.hypothesis.len() - self.iterations().uncounted.min(UNCOUNTED)
    }

    /// Those of the present path.
    pub(super) fn iterations(&self) -> Iterations {
        let Some(frame) = self.frames.last() else { return Iterations::default() };
        if self.frames.len() > self.hypothesis.len() {
            return frame.iterations;
        }
        let candidate = &frame.candidates[frame.next - 1];
        let next = self.hypothesis.path().last().map(|step| step.next);
        frame.iterations.before(candidate.is_told && next == Some(candidate.prepared.address()))
    }

    /// How many of the oldest steps are so many instructions; of a shorter path all, and not fewer than that.
    pub(super) fn steps_of(&self, instructions: usize) -> usize {
        if self.iterations().uncounted == 0 {
            return instructions;
        }
        // What jumps to itself is nothing that an address would come from either.
        let oldest_first = self.hypothesis.path().iter().rev();
        steps_of(oldest_first.map(|step| step.address == step.next), instructions)
    }
}

/// The same of steps, oldest first, of which is known which are followed by another iteration.
fn steps_of(oldest_first: impl Iterator<Item = bool>, instructions: usize) -> usize {
    let (mut counted, mut steps, mut run) = (0, 0, 0);
    for goes_on in oldest_first {
        (steps, run) = (steps + 1, run + 1);
        if goes_on {
            continue;
        }
        counted += if run >= LONG { 1 } else { run };
        run = 0;
        if counted >= instructions {
            return steps;
        }
    }
    steps.max(instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncounted(runs: &[usize]) -> usize {
        let steps = runs.iter().flat_map(|run| (0..*run).map(|n| n > 0));
        steps.fold(Iterations::default(), Iterations::before).uncounted
    }

    #[test]
    fn many_iterations_are_one_instruction_and_few_are_as_many() {
        assert_eq!(uncounted(&[1, 1, 512, 1]), 511);
        assert_eq!(uncounted(&[LONG, 1, LONG]), 2 * (LONG - 1));
        assert_eq!(uncounted(&[LONG - 1, 1, 2]), 0);
    }

    #[test]
    fn an_instruction_has_all_of_its_iterations() {
        let of = |runs: &[usize], instructions| {
            let goes_on = runs.iter().flat_map(|run| (0..*run).map(move |n| n + 1 < *run));
            steps_of(goes_on, instructions)
        };
        assert_eq!(of(&[1, 1, 1, 1], 2), 2);
        assert_eq!(of(&[1, 512, 1, 1], 2), 513);
        assert_eq!(of(&[1, 3, 1, 1], 4), 4);
        assert_eq!(of(&[1], 2), 2);
    }
}
