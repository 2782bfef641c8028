//! How long a path is: against the most that it may have, and against how long an access may wait for its address.
//!
//! Each iteration of a repeated string instruction is a step. A kernel clears whole pages with one: REP STOS of a page would take most of
//! the thousand instructions that a suffix has by default, and what tells its address stands before the first iteration, hundreds of
//! steps from the last. Where the crumbs count what retires, as the machine does, such an instruction is one. Example: `rep stosq` of 4096 bytes between ten other
//! instructions has 522 steps, and is 11 instructions long.

use super::Search;
use super::trail::Window;

/// So many iterations are not counted: a page, by bytes. Of an instruction whose count nothing tells there is no end of them.
const UNCOUNTED: usize = 4096;

impl Search<'_> {
    /// How long the present path is.
    pub(super) fn length(&self) -> usize {
        let steps = self.hypothesis.len();
        match self.hypothesis.image().anchors().entered().retired {
            Some(_) => measured(steps, self.window().retired.instructions),
            None => steps,
        }
    }

    /// How many of the oldest steps are so many instructions; of a shorter path all, and not fewer than that.
    pub(super) fn steps_of(&self, instructions: usize) -> usize {
        if self.hypothesis.image().anchors().entered().retired.is_none() {
            return instructions;
        }
        steps_of(self.hypothesis.path().iter().rev().map(|step| step.address), instructions)
    }

    /// How far the present path has come.
    pub(super) fn window(&self) -> Window {
        let is_listed = self.frames.len() > self.hypothesis.len();
        self.frames.last().map_or_else(Window::default, |frame| match is_listed {
            true => frame.window,
            false => frame.candidates[frame.next - 1].window,
        })
    }
}

/// The same of the addresses of a path, oldest first. An address that follows itself is an iteration: a jump to itself is none, and is
/// nothing that an address would come from either.
fn steps_of(oldest_first: impl Iterator<Item = u64>, instructions: usize) -> usize {
    let (mut counted, mut steps, mut last) = (0, 0, None);
    for address in oldest_first {
        counted += usize::from(last != Some(address));
        if counted > instructions {
            return steps;
        }
        steps += 1;
        last = Some(address);
    }
    steps.max(instructions)
}

/// The length of a path of so many steps, of which so many instructions have retired.
fn measured(steps: usize, retired: u64) -> usize {
    let retired = usize::try_from(retired).unwrap_or(usize::MAX);
    retired.max(steps.saturating_sub(UNCOUNTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_not_counted_until_there_are_too_many() {
        assert_eq!(measured(522, 11), 11);
        assert_eq!(measured(100, 100), 100);
        assert_eq!(measured(UNCOUNTED + 500, 2), 500);
        assert_eq!(measured(0, 0), 0);
    }

    #[test]
    fn an_instruction_has_all_of_its_iterations() {
        let of = |addresses: &[u64], instructions| steps_of(addresses.iter().copied(), instructions);
        assert_eq!(of(&[1, 2, 3, 4], 2), 2);
        assert_eq!(of(&[1, 2, 2, 2, 3, 4], 2), 4);
        assert_eq!(of(&[2, 2, 2], 2), 3);
        assert_eq!(of(&[1], 2), 2);
    }
}
