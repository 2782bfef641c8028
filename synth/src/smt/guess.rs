//! What is hard for the solver, by guessing: programs compute with small numbers and with the constants that
//! they compare with. A guess is checked by evaluating every constraint, so it cannot be wrong; and it is
//! deterministic.

use crate::facts::Facts;
use crate::term::{Assignment, Plan, Term, Terms, Var};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;

/// Questions with more variables are not guessed at.
const MOST_VARIABLES: usize = 24;
/// Rounds over all variables.
const ROUNDS: usize = 3;
/// Numbers up to this are tried one by one.
const SMALL: u64 = 64;
/// Larger numbers that programs like.
const LIKELY: [u64; 18] =
    [70, 80, 90, 96, 99, 100, 127, 128, 200, 255, 256, 300, 400, 500, 512, 1000, 1024, 4096];
/// Values tried for one variable.
const MOST_CANDIDATES: usize = 240;
/// A literal above this may be the reciprocal that a division by a constant became.
const LEAST_RECIPROCAL: u64 = 1 << 16;
/// Divisors above this are not recognized.
const MOST_DIVISOR: u64 = 1024;
/// A divisor may be up to two to this power times what its literal tells.
const MOST_SHIFT: u32 = 3;
/// So many divisors are looked at.
const MOST_DIVISORS: usize = 3;
/// So many of the newest values of the earlier solution are taken for results.
const MOST_RESULTS: usize = 6;

/// A guess in the making.
struct Guess<'a> {
    plan: Plan,
    constraints: usize,
    values: Assignment,
    satisfied: usize,
    variables: &'a [Var],
    candidates: &'a [u64],
    /// How often all constraints may still be evaluated.
    tries: usize,
}

/// Values that satisfy all of `constraints` (resolved), found by changing one variable at a time for the better, then two
/// at a time, from those in `start`: what solved an earlier question needs a small change, if any, to solve one that is a
/// little longer. So many terms are evaluated at most, about.
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
    let plan = Plan::new(terms, constraints);
    let tries = most_evaluations / plan.len();
    let mut guess = Guess {
        plan,
        constraints: constraints.len(),
        values: start.clone(),
        satisfied: 0,
        variables: &variables,
        candidates: &candidates(terms, constraints, start),
        tries,
    };
    guess.satisfied = guess.count()?;
    let found = guess.one_by_one()? || guess.by_pairs()?;
    found.then_some(guess.values)
}

impl Guess<'_> {
    /// How many constraints hold now. `None`: there were enough tries.
    fn count(&mut self) -> Option<usize> {
        self.tries = self.tries.checked_sub(1)?;
        Some(self.plan.evaluate(&self.values).filter(|&holds| holds != 0).count())
    }

    fn is_solved(&self) -> bool {
        self.satisfied == self.constraints
    }

    /// Gives each variable the value with which most constraints hold, in turn.
    fn one_by_one(&mut self) -> Option<bool> {
        for _ in 0..ROUNDS {
            let before = self.satisfied;
            for &var in self.variables {
                let mut best = self.values.get(var).unwrap_or(0);
                for &value in self.candidates {
                    self.values.set(var, value);
                    let now = self.count()?;
                    if now > self.satisfied {
                        (self.satisfied, best) = (now, value);
                    }
                    if self.is_solved() {
                        return Some(true);
                    }
                }
                self.values.set(var, best);
            }
            if self.satisfied == before {
                break;
            }
        }
        Some(false)
    }

    /// Gives two variables other values at once, the first of the candidates first.
    fn by_pairs(&mut self) -> Option<bool> {
        let pairs = self.variables.iter().enumerate();
        for (&a, &b) in pairs.flat_map(|(n, a)| self.variables[n + 1..].iter().map(move |b| (a, b))) {
            let before = [a, b].map(|var| self.values.get(var).unwrap_or(0));
            for last in 0..self.candidates.len() {
                for other in 0..=last {
                    for (x, y) in [(last, other), (other, last)] {
                        self.values.set(a, self.candidates[x]);
                        self.values.set(b, self.candidates[y]);
                        self.satisfied = self.count()?;
                        if self.is_solved() {
                            return Some(true);
                        }
                    }
                }
            }
            self.values.set(a, before[0]);
            self.values.set(b, before[1]);
        }
        Some(false)
    }
}

/// Likely values: small numbers; from what the earlier solution's values came by an addition, a subtraction or a division
/// by a constant of the constraints; numbers that programs like; and the literals with their neighbours.
fn candidates(terms: &Terms, constraints: &[Term], start: &Assignment) -> Vec<u64> {
    let literals = literals(terms, constraints);
    let mut found: Vec<u64> = (0..=SMALL).collect();
    let results = newest_values(terms, start);
    let divisors = literals.iter().filter_map(|&v| divisor_of(v)).take(MOST_DIVISORS);
    for divisor in divisors.flat_map(|d| (0..=MOST_SHIFT).map(move |shift| d << shift)) {
        found.extend(results.iter().map(|quotient| quotient.wrapping_mul(divisor)));
    }
    for (n, &x) in results.iter().enumerate() {
        found.extend(results[n..].iter().flat_map(|&y| [x.wrapping_add(y), x.wrapping_sub(y)]));
    }
    found.extend(LIKELY);
    found.extend(literals.iter().flat_map(|&v| [v, v.wrapping_add(1), v.wrapping_sub(1), v.wrapping_neg()]));
    let mut unique = FxHashSet::default();
    found.retain(|&v| unique.insert(v));
    found.truncate(MOST_CANDIDATES);
    found
}

/// The values of the variables that came last.
fn newest_values(terms: &Terms, start: &Assignment) -> Vec<u64> {
    let is_number = |var: Var| terms.width(terms.variable(var)) > 1;
    let mut values: Vec<(Var, u64)> = start.variables().filter(|&(var, _)| is_number(var)).collect();
    values.sort_unstable_by_key(|&(var, _)| Reverse(var));
    values.into_iter().take(MOST_RESULTS).map(|(_, value)| value).collect()
}

/// The divisor, up to a power of two, if `literal` is the factor by which compilers multiply instead: the next whole number
/// above a power of two divided by it (Granlund and Montgomery, "Division by invariant integers using multiplication",
/// 1994); what the product is shifted by tells the rest.
fn divisor_of(literal: u64) -> Option<u64> {
    if literal < LEAST_RECIPROCAL || literal.is_power_of_two() {
        return None;
    }
    let factor = u128::from(literal);
    let powers = (1..=MOST_DIVISOR.ilog2()).map(|more| 1_u128 << (literal.ilog2() + more));
    let of = |power: u128| Some(power.div_ceil(factor)).filter(|divisor| divisor * factor - power < *divisor);
    powers
        .filter_map(of)
        .find_map(|divisor| u64::try_from(divisor).ok())
        .filter(|d| (3..=MOST_DIVISOR).contains(d))
}

/// The literals of the constraints, each once.
fn literals(terms: &Terms, constraints: &[Term]) -> Vec<u64> {
    let (mut todo, mut seen, mut found) = (constraints.to_vec(), FxHashSet::default(), Vec::new());
    while let Some(t) = todo.pop() {
        if seen.insert(t) {
            found.extend(terms.value(t));
            terms.operands(t, |o| todo.push(o));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86::domain::{Bin, Cmp};

    #[test]
    fn reciprocals_tell_their_divisors() {
        for (factor, divisor) in [
            (0x6666_6667, Some(5)),
            (0xcccc_cccc_cccc_cccd, Some(5)),
            (0xaaaa_aaab, Some(3)),
            (0x1062_4dd3, Some(125)),
            (0x8000_0000, None),
            (0x1234_5678, None),
            (1000, None),
        ] {
            assert_eq!(divisor_of(factor), divisor, "{factor:#x}");
        }
    }

    #[test]
    fn two_numbers_that_only_fit_together_are_found() {
        let terms = Terms::new();
        let (x, y) = (terms.fresh(32), terms.fresh(32));
        let product = terms.build_bin(Bin::Mul, x, y);
        let sum = terms.build_bin(Bin::Add, x, y);
        let constraints =
            [(product, 77), (sum, 18)].map(|(t, v)| terms.build_cmp(Cmp::Eq, t, terms.lit_term(32, v)));
        let values = guess(&terms, &constraints, &Assignment::default(), 1_000_000).expect("7 and 11");
        let mut found: Vec<u64> = values.variables().map(|(_, value)| value).collect();
        found.sort_unstable();
        assert_eq!(found, [7, 11]);
    }
}
