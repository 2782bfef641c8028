//! What the solver gave up on, made linear: a product of two unknowns, a division by an unknown or a shift by one
//! costs the solver more than all else. In programs one of the two is small as a rule: an element's size, a count of
//! elements, a divisor. Each likely number is tried for it, and what is left is easy.
//!
//! An answer found this way is a solution of the whole question; that none is found says nothing.

use super::counted::Counted;
use super::lower::Lowering;
use crate::term::{Assignment, Node, Term, Terms};
use rustc_hash::{FxHashMap, FxHashSet};
use x86::domain::Bin;
use z3::SatResult;
use z3::ast::BV;

/// The likeliest first: sizes of elements, then counts.
const LIKELY: [u64; 17] = [8, 1, 4, 2, 16, 24, 32, 3, 0, 10, 12, 20, 40, 48, 64, 5, 7];
/// So many unknowns are replaced at most, one after the other.
const MOST_PIVOTS: usize = 2;
/// So often the solver is asked at most.
const MOST_QUESTIONS: usize = 8;

/// Looks for a solution of what `solver` holds, which are the lowered `constraints`.
pub(super) fn solve(
    solver: &Counted<'_>,
    lowering: &mut Lowering<'_>,
    constraints: &[Term],
) -> Option<Assignment> {
    let pivots: Vec<Term> = pivots(lowering.terms(), constraints).into_iter().take(MOST_PIVOTS).collect();
    let mut questions = MOST_QUESTIONS;
    fix(solver, lowering, &pivots, &mut questions)
}

/// Whether there is any operation that makes the constraints non-linear.
pub(super) fn has_products(terms: &Terms, constraints: &[Term]) -> bool {
    !pivots(terms, constraints).is_empty()
}

/// Gives the first of `pivots` one likely number after the other; where the solver still gives up, the next, too.
fn fix(
    solver: &Counted<'_>,
    lowering: &mut Lowering<'_>,
    pivots: &[Term],
    questions: &mut usize,
) -> Option<Assignment> {
    let (&pivot, rest) = pivots.split_first()?;
    let (vector, w) = (lowering.vector(pivot), lowering.terms().width(pivot));
    for value in LIKELY {
        *questions = questions.checked_sub(1)?;
        solver.push();
        solver.assert(&vector.eq(BV::from_u64(value, w)));
        let found = match solver.check() {
            SatResult::Sat => solver.model().map(|model| lowering.assignment(&model)),
            SatResult::Unknown => fix(solver, lowering, rest, questions),
            SatResult::Unsat => None,
        };
        solver.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The simpler operand of each operation that makes the constraints non-linear; those that occur most often first.
fn pivots(terms: &Terms, constraints: &[Term]) -> Vec<Term> {
    let (mut todo, mut seen) = (constraints.to_vec(), FxHashSet::default());
    let mut uses: FxHashMap<Term, usize> = FxHashMap::default();
    while let Some(t) = todo.pop() {
        if !terms.is_open(t) || !seen.insert(t) {
            continue;
        }
        let pivot = match terms.node(t) {
            Node::Bin(Bin::Mul | Bin::MulHiU | Bin::MulHiS, a, b) if terms.is_open(a) && terms.is_open(b) => {
                Some(simpler(terms, a, b))
            }
            Node::Bin(Bin::Shl | Bin::Shr | Bin::Sar, _, amount) if terms.is_open(amount) => Some(amount),
            Node::Divide { divisor, .. } if terms.is_open(divisor) => Some(divisor),
            _ => None,
        };
        if let Some(pivot) = pivot {
            *uses.entry(whole(terms, pivot)).or_default() += 1;
        }
        terms.operands(t, |o| todo.push(o));
    }
    let mut pivots: Vec<(Term, usize)> = uses.into_iter().collect();
    pivots.sort_unstable_by_key(|&(t, count)| (std::cmp::Reverse(count), t));
    pivots.into_iter().map(|(t, _)| t).collect()
}

/// The one with fewer operations.
fn simpler(terms: &Terms, a: Term, b: Term) -> Term {
    let size = |t| {
        let (mut count, mut todo) = (0, vec![t]);
        while let Some(t) = todo.pop() {
            count += 1;
            if count > 64 {
                break;
            }
            terms.operands(t, |o| todo.push(o));
        }
        count
    };
    if size(b) < size(a) { b } else { a }
}

/// What the term is the low bits of, or an extension of.
fn whole(terms: &Terms, t: Term) -> Term {
    match terms.node(t) {
        Node::Extract { low: 0, of } | Node::Zext(of) | Node::Sext(of) => whole(terms, of),
        _ => t,
    }
}
