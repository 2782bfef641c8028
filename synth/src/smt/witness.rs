//! A solution that is kept while the constraints grow: most of the time it still fits, or a small change makes it fit, and
//! the solver need not be asked.

use super::preference::grant;
use super::{Effort, Preference, connected, guess};
use crate::facts::Facts;
use crate::term::{Assignment, Plan, Term, Terms, Var};
use rustc_hash::FxHashSet;

/// So many terms are evaluated for a change: far less than a question to the solver would cost.
const CHEAP_EVALUATIONS: usize = 1_000_000;
/// So many, where a suffix depends on it.
const MOST_EVALUATIONS: usize = 20_000_000;

/// Values that solved the constraints of some earlier moment.
#[derive(Debug, Default)]
pub struct Witness {
    values: Assignment,
    /// All variables that have a value are below this.
    end: usize,
}

impl Witness {
    /// Makes it solve what is unsolved now, if a small change does: the constraints since `place` are new.
    ///
    /// # Errors
    /// With the question for the solver, if none was found.
    pub fn fit(
        &mut self,
        facts: &mut Facts,
        terms: &Terms,
        place: usize,
        effort: Effort,
    ) -> Result<(), Vec<Term>> {
        let new = facts.unsolved_since(terms, place);
        let mut plan = Plan::new(terms, &new);
        let holds = plan.evaluate(&self.values).map(|holds| holds != 0);
        let failing: Vec<Term> = new.iter().zip(holds).filter(|(_, holds)| !holds).map(|(&c, _)| c).collect();
        if failing.is_empty() {
            return Ok(());
        }
        let unsolved = facts.unsolved(terms);
        let question = connected(facts, terms, &unsolved, &failing);
        let most = match effort {
            Effort::Plain => CHEAP_EVALUATIONS,
            Effort::Persistent => MOST_EVALUATIONS,
        };
        match guess(terms, &question, &self.values, most) {
            Some(values) => {
                self.learn(&values);
                Ok(())
            }
            None => Err(question),
        }
    }

    /// Takes over a solution.
    pub fn learn(&mut self, solution: &Assignment) {
        self.values.extend(solution);
        let newest = solution.variables().map(|(var, _)| var.0 as usize + 1).max();
        self.end = self.end.max(newest.unwrap_or(0));
    }

    /// Forgets the values of the variables from number `end` on: they are no more.
    pub fn forget_from(&mut self, end: usize) {
        if self.end > end {
            self.values.retain(|var| (var.0 as usize) < end);
            self.end = end;
        }
    }

    /// Takes the preferred values for variables that have none.
    pub fn prefer(&mut self, preferences: &[Preference]) {
        for preference in preferences {
            if self.values.get(preference.var).is_none() {
                self.values.set(preference.var, preference.value);
                self.end = self.end.max(preference.var.0 as usize + 1);
            }
        }
    }

    /// The values of the variables of `constraints` (resolved), if they solve them: with those preferences granted, one
    /// after the other, that leave them solved.
    #[must_use]
    pub fn solution(
        &self,
        terms: &Terms,
        constraints: &[Term],
        preferences: &[Preference],
    ) -> Option<Assignment> {
        let facts = Facts::default();
        let variables: FxHashSet<Var> =
            constraints.iter().flat_map(|&c| facts.variables_of(terms, c)).collect();
        let mut values = Assignment::default();
        for &var in &variables {
            values.set(var, self.values.get(var).unwrap_or(0));
        }
        grant(terms, constraints, preferences, &mut values).then_some(values)
    }
}
