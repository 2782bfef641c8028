//! How much of a path is certified next.
//!
//! What a certificate takes grows faster than the path, and a longer part may fail where a shorter one does not: so the certified
//! length is looked for between one that was certified and one that failed.

use super::{Attempts, FUEL_OF_A_CERTIFICATE, Failure, instructions_in};
use crate::certificate::Difference;
use crate::past::hypothesis::PathStep;

/// After a certificate at least so many times as many steps are tried, whatever that one took.
const LEAST_GROWTH: usize = 4;

impl Attempts<'_> {
    /// How many steps to try next, if the certificate of so many took so much fuel: what it takes grows faster than they do, and a
    /// third of what is left is for it.
    pub(super) fn affordable(&self, certified: usize, burnt: u64) -> usize {
        let burnt = burnt.saturating_sub(FUEL_OF_A_CERTIFICATE);
        let Some(times) = (self.until.left() / 3).checked_div(burnt) else { return usize::MAX };
        let longer = usize::try_from(times.isqrt()).unwrap_or(usize::MAX);
        if certified == 0 { usize::MAX } else { certified.saturating_mul(longer.max(LEAST_GROWTH)) }
    }

    /// How many of the newest steps are so many instructions; switches of threads are steps, too.
    pub(super) fn steps_with(&self, instructions: usize) -> usize {
        let mut steps = (1..).zip(&self.found.path).filter(|(_, (step, _))| step.is_instruction());
        instructions.checked_sub(1).and_then(|before| steps.nth(before)).map_or(0, |(steps, _)| steps)
    }

    /// How many of the newest steps may do, after `reached` of `depth` failed; 0 where the failure does not tell.
    pub(super) fn next_depth(&self, failure: &Failure, reached: usize, depth: usize) -> usize {
        let instructions = instructions_in(&self.found.path[..reached]);
        match failure {
            // What follows the first wrong instruction may be right.
            Failure::Rejected(Difference { step: Some(step), .. }) | Failure::Refused(Some(step), _)
                if *step < instructions =>
            {
                self.steps_with(instructions - (step + 1))
            }
            // Those alone, without what the older ones demand.
            _ if reached < depth => reached,
            _ => 0,
        }
    }

    /// How many steps to begin with, and for how many a solution is known, if the solver gave up on some question of the
    /// search: it would again, and take its time. If those are most of the path, they are what to begin with; else all.
    pub(super) fn solved_depth(&self, path: &[(PathStep, Option<u64>)]) -> (usize, usize) {
        if self.found.statistics.solver_unknown == 0 {
            return (path.len(), 0);
        }
        let (_, solved) = self.rebuild(path, &self.found.early, &self.until);
        (if solved * 4 >= path.len() * 3 { solved } else { path.len() }, solved)
    }
}

/// What to try between a depth that was certified and one that failed: their geometric mean while they are far apart, then the
/// middle.
pub(super) fn between(certified: usize, failed: usize) -> usize {
    let least = certified.max(1);
    if failed / 4 > least { (least * failed).isqrt() } else { certified.midpoint(failed) }
}
