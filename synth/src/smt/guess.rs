//! What is hard for the solver, by guessing: programs compute with small numbers and with the constants that
//! they compare with. A guess is checked by evaluating every constraint, so it cannot be wrong; and it is
//! deterministic.

use super::likely::likely_values;
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
        candidates: &likely_values(terms, constraints, start),
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
