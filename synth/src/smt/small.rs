//! What the solver gave up on, with small numbers: programs compute with them, and the bits that are then known to be
//! zero make products and divisions easy. Where a variable cannot be small (it is a pointer, say), the solver names it,
//! and it is left free.
//!
//! An answer found this way is a solution of the whole question; that none is found says nothing.

use super::counted::Counted;
use super::lower::Lowering;
use crate::term::{Assignment, Term};
use rustc_hash::FxHashSet;
use z3::SatResult;
use z3::ast::{BV, Bool};

/// Variables of more bits than this are made small.
const SMALL_BITS: u32 = 11;
/// How often variables that cannot be small are left out.
const ROUNDS: usize = 4;

/// Looks for a solution of what `solver` holds.
pub(super) fn solve(solver: &Counted<'_>, lowering: &mut Lowering<'_>) -> Option<Assignment> {
    let variables: Vec<Term> = lowering.variables();
    let mut wishes: Vec<Bool> = variables.into_iter().filter_map(|v| is_small(lowering, v)).collect();
    for _ in 0..ROUNDS {
        match solver.check_assumptions(&wishes) {
            SatResult::Sat => return solver.model().map(|model| lowering.assignment(&model)),
            SatResult::Unknown => return None,
            SatResult::Unsat => {
                let in_conflict: FxHashSet<Bool> = solver.unsat_core().into_iter().collect();
                let before = wishes.len();
                wishes.retain(|w| !in_conflict.contains(w));
                if wishes.len() == before || wishes.is_empty() {
                    return None;
                }
            }
        }
    }
    None
}

fn is_small(lowering: &mut Lowering<'_>, variable: Term) -> Option<Bool> {
    let w = lowering.terms().width(variable);
    (w > SMALL_BITS).then(|| {
        let high = lowering.vector(variable).extract(w - 1, SMALL_BITS);
        high.eq(BV::from_u64(0, w - SMALL_BITS))
    })
}
