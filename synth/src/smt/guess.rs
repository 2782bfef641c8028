//! What is hard for the solver, by guessing: programs compute with small numbers and with the constants that
//! they compare with. A guess is checked by evaluating every constraint, so it cannot be wrong; and it is
//! deterministic.

use super::likely::likely_values;
use super::projection::Projection;
use crate::facts::Facts;
use crate::term::{Assignment, Plan, Term, Terms, Var};
use rustc_hash::FxHashSet;

/// Questions with more variables are not guessed at.
const MOST_VARIABLES: usize = 24;
/// Rounds over all variables.
const ROUNDS: usize = 3;

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
    let projection = Projection::of(terms, constraints);
    let mut values = guess_rest(terms, &projection.constraints, start, most_evaluations)?;
    projection.complete(terms, &[], &mut values);
    Some(values)
}

fn guess_rest(
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
    if constraints.is_empty() {
        return Some(start.clone());
    }
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
        candidates: &likely_values(terms, constraints, start),
        tries,
    };
    guess.satisfied = guess.count()?;
    let found = guess.is_solved() || guess.one_by_one()? || guess.by_pairs()?;
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

    /// Gives two variables other values at once, the first of the candidates first, and keeps those with which more holds.
    fn by_pairs(&mut self) -> Option<bool> {
        let pairs = self.variables.iter().enumerate();
        let pairs = pairs.flat_map(|(n, a)| self.variables[n + 1..].iter().map(move |b| (a, b)));
        let pairs: Vec<[Var; 2]> = pairs.map(|(&a, &b)| [a, b]).collect();
        let mut since_better = 0;
        for pair in pairs.iter().cycle() {
            if since_better == pairs.len() {
                break;
            }
            let before = self.satisfied;
            if self.improve_pair(*pair)? {
                return Some(true);
            }
            since_better = if self.satisfied > before { 0 } else { since_better + 1 };
        }
        Some(false)
    }

    /// Gives these two the first values with which more constraints hold than now, if there are such; whether all hold.
    fn improve_pair(&mut self, pair: [Var; 2]) -> Option<bool> {
        let before = pair.map(|var| self.values.get(var).unwrap_or(0));
        for last in 0..self.candidates.len() {
            for other in 0..=last {
                for values in [[last, other], [other, last]] {
                    for (var, candidate) in pair.into_iter().zip(values) {
                        self.values.set(var, self.candidates[candidate]);
                    }
                    let now = self.count()?;
                    if now > self.satisfied {
                        self.satisfied = now;
                        return Some(self.is_solved());
                    }
                }
            }
        }
        for (var, value) in pair.into_iter().zip(before) {
            self.values.set(var, value);
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::DivisionPart;
    use x86::domain::{Bin, Cmp};

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

    /// Lua's `%` of two numbers that are not known, twice: each takes two numbers that fit together, and a third.
    #[test]
    fn what_takes_several_numbers_is_found_one_after_the_other() {
        let terms = Terms::new();
        let mut constraints = Vec::new();
        for _ in 0..2 {
            let [value, divisor] = [terms.fresh(64), terms.fresh(64)];
            let (zero, one) = (terms.lit_term(64, 0), terms.lit_term(64, 1));
            let rest = terms.build_division(DivisionPart::Remainder, false, zero, value, divisor);
            let sum = terms.build_bin(Bin::Add, rest, one);
            constraints.push(terms.build_cmp(
                Cmp::Eq,
                terms.build_bin(Bin::Mul, sum, divisor),
                terms.lit_term(64, 35),
            ));
            constraints.push(terms.build_cmp(Cmp::Ult, terms.lit_term(64, 9), value));
        }
        assert!(guess(&terms, &constraints, &Assignment::default(), 1_000_000).is_some());
    }

    /// A multiple of a number by which the program divides, and multiplies instead by a register that nothing tells any more.
    #[test]
    fn an_unknown_reciprocal_is_found() {
        let terms = Terms::new();
        let [value, factor] = [terms.fresh(64), terms.fresh(64)];
        let product = terms.build_bin(Bin::MulHiU, value, factor);
        let quotient = terms.build_bin(Bin::Shr, product, terms.lit_term(64, 1));
        let back = terms.build_bin(Bin::Mul, quotient, terms.lit_term(64, 3));
        let constraints =
            [terms.build_cmp(Cmp::Eq, back, value), terms.build_cmp(Cmp::Ult, terms.lit_term(64, 9), back)];
        assert!(guess(&terms, &constraints, &Assignment::default(), 1_000_000).is_some());
    }
}
