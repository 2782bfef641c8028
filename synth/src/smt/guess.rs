//! What the solver gave up on, by guessing: programs compute with small numbers and with the constants that
//! they compare with. A guess is checked by evaluating every constraint, so it cannot be wrong; and it is
//! deterministic.

use crate::facts::Facts;
use crate::term::{Assignment, Node, Term, Terms, Var};
use rustc_hash::{FxHashMap, FxHashSet};

/// Questions with more variables are not guessed at.
const MOST_VARIABLES: usize = 24;
/// Rounds over all variables.
const ROUNDS: usize = 3;
/// Numbers up to this are tried one by one.
const SMALL: u64 = 64;
/// Larger numbers that programs like.
const LIKELY: [u64; 18] =
    [70, 80, 90, 96, 99, 100, 127, 128, 200, 255, 256, 300, 400, 500, 512, 1000, 1024, 4096];

/// Values that satisfy all of `constraints` (resolved), found by changing one variable at a time for the better, from
/// those in `start`: what solved an earlier question needs a small change, if any, to solve one that is a little longer.
/// So many terms are evaluated at most, about.
pub(crate) fn guess(
    terms: &Terms,
    constraints: &[Term],
    start: &Assignment,
    most_evaluations: usize,
) -> Option<Assignment> {
    let facts = Facts::default();
    let mut seen = FxHashSet::default();
    let of_constraint = |&c: &Term| facts.variables_of(terms, c);
    let variables: Vec<Var> =
        constraints.iter().flat_map(of_constraint).filter(|&v| seen.insert(v)).collect();
    if variables.is_empty() || variables.len() > MOST_VARIABLES {
        return None;
    }
    let (candidates, size) = candidates(terms, constraints);
    let mut tries = most_evaluations / size.max(1);
    let mut values = start.clone();
    let mut satisfied = count_satisfied(terms, constraints, &values);
    for _ in 0..ROUNDS {
        for &var in &variables {
            let mut best = values.get(var).unwrap_or(0);
            for &value in &candidates {
                tries = tries.checked_sub(1)?;
                values.set(var, value);
                let now = count_satisfied(terms, constraints, &values);
                if now > satisfied {
                    (satisfied, best) = (now, value);
                }
                if satisfied == constraints.len() {
                    return Some(values);
                }
            }
            values.set(var, best);
        }
    }
    None
}

fn count_satisfied(terms: &Terms, constraints: &[Term], values: &Assignment) -> usize {
    let mut memo = FxHashMap::default();
    constraints.iter().filter(|&&c| terms.truth(terms.evaluate(c, values, &mut memo)) == Some(true)).count()
}

/// Likely numbers, and the literals of the constraints with their neighbours; and how many terms those are made of.
fn candidates(terms: &Terms, constraints: &[Term]) -> (Vec<u64>, usize) {
    let mut found: Vec<u64> = (0..=SMALL).chain(LIKELY).collect();
    let (mut todo, mut seen) = (constraints.to_vec(), FxHashSet::default());
    while let Some(t) = todo.pop() {
        if !seen.insert(t) {
            continue;
        }
        if let Node::Lit(v) = terms.node(t) {
            found.extend([v, v.wrapping_add(1), v.wrapping_sub(1), v.wrapping_neg()]);
        }
        terms.operands(t, |o| todo.push(o));
    }
    let mut unique = FxHashSet::default();
    found.retain(|&v| unique.insert(v));
    found.truncate(MOST_CANDIDATES);
    (found, seen.len())
}

/// Values tried for one variable.
const MOST_CANDIDATES: usize = 160;
