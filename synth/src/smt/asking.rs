//! What is tried for an answer, and in which order: what is cheap first, and last what only finds a solution where there is one.

use super::abstraction::{Abstraction, abstraction};
use super::counted::Counted;
use super::guess::guess;
use super::lower::Lowering;
use super::preference::{grant, preferred};
use super::projection::Projection;
use super::{Answer, Budget, Effort, Preference, divided, expansion, linear, small};
use crate::facts::Facts;
use crate::term::{Assignment, Term, Terms};
use z3::SatResult;

/// So many terms are evaluated for the last guess.
const LAST_EVALUATIONS: usize = 10_000_000;

/// How an answer is looked for.
pub(super) struct Asking<'a> {
    pub terms: &'a Terms,
    pub preferences: &'a [Preference],
    pub budget: Budget,
    pub effort: Effort,
}

impl Asking<'_> {
    /// The answer to these constraints; a solution has a value for each of their variables.
    pub(super) fn ask(&self, constraints: &[Term]) -> Answer {
        let projection = Projection::of(self.terms, constraints);
        let mut answer = self.answer(&projection.constraints);
        match &mut answer {
            Answer::Satisfiable(values) => projection.complete(self.terms, self.preferences, values),
            Answer::Unknown => log_unanswered(self.terms, constraints),
            Answer::Infeasible => {}
        }
        answer
    }

    fn answer(&self, constraints: &[Term]) -> Answer {
        let terms = self.terms;
        if constraints.is_empty() {
            return Answer::Satisfiable(Assignment::default());
        }
        let solved = match abstraction(terms, constraints) {
            Abstraction::Refuted => return Answer::Infeasible,
            Abstraction::Solved(values) => Some(values),
            Abstraction::Open => divided::solve(terms, constraints),
        };
        if let Some(values) = solved {
            return self.found(constraints, values);
        }
        if expansion::is_too_long(terms, constraints, self.budget.gates) {
            return self.guessed(constraints);
        }
        self.solver_says(constraints)
    }

    fn solver_says(&self, constraints: &[Term]) -> Answer {
        let (terms, budget) = (self.terms, self.budget);
        let (solver, mut lowering) = put(terms, constraints, budget);
        match solver.check() {
            SatResult::Unsat => Answer::Infeasible,
            SatResult::Sat => match preferred(&solver, &mut lowering, self.preferences) {
                Some(model) => Answer::Satisfiable(lowering.assignment(&model)),
                None => Answer::Unknown,
            },
            SatResult::Unknown if self.effort == Effort::Persistent => {
                // Neither of these gets as much work as the whole question had.
                let (units, milliseconds) = (budget.units / 6, budget.milliseconds / 6);
                solver.set_budget(Budget { units, milliseconds, ..budget });
                let values = small::solve(&solver, &mut lowering)
                    .or_else(|| linear::solve(&solver, &mut lowering, constraints));
                values.map_or_else(|| self.guessed(constraints), Answer::Satisfiable)
            }
            SatResult::Unknown => self.guessed(constraints),
        }
    }

    fn guessed(&self, constraints: &[Term]) -> Answer {
        let values = guess(self.terms, constraints, &Assignment::default(), LAST_EVALUATIONS);
        values.map_or(Answer::Unknown, |values| self.found(constraints, values))
    }

    /// A solution that was found without regard to preferences; a variable that it does not speak of counts as zero in it.
    fn found(&self, constraints: &[Term], mut values: Assignment) -> Answer {
        let facts = Facts::default();
        for var in constraints.iter().flat_map(|&c| facts.variables_of(self.terms, c)) {
            values.set(var, values.get(var).unwrap_or(0));
        }
        let holds = grant(self.terms, constraints, self.preferences, &mut values);
        debug_assert!(holds, "a solution solves");
        Answer::Satisfiable(values)
    }
}

/// A solver to which these constraints are put; what that takes counts as fuel.
pub(super) fn put<'t>(terms: &'t Terms, constraints: &[Term], budget: Budget) -> (Counted<'t>, Lowering<'t>) {
    expansion::burn_all(terms, constraints);
    let solver = Counted::new(terms.fuel(), budget, linear::has_products(terms, constraints));
    let mut lowering = Lowering::new(terms);
    for &constraint in constraints {
        solver.assert(&lowering.truth(constraint));
    }
    (solver, lowering)
}

fn log_unanswered(terms: &Terms, constraints: &[Term]) {
    tracing::debug!(constraints = constraints.len(), "a question was not answered");
    for &constraint in constraints {
        tracing::trace!(constraint = %terms.show(constraint), "of a question that was not answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smt::solve;
    use crate::term::{Node, Plan};
    use x86::domain::{Bin, Cmp};

    /// What one part of a question leaves open is no business of another part, which has an answer.
    #[test]
    fn what_is_preferred_is_granted_in_its_own_part_only() {
        let terms = Terms::new();
        let [x, y, high] = [32, 32, 24].map(|w| terms.fresh(w));
        let below = |t| terms.build_cmp(Cmp::Ult, t, terms.lit_term(32, 5));
        let sum = terms.build_bin(Bin::Add, y, terms.lit_term(32, 0x30));
        let stored = terms.build_cmp(Cmp::Eq, terms.build_concat(high, terms.lit_term(8, 0x33)), sum);
        let constraints = [below(x), stored, below(y)];
        let preferences = [x, y, high].map(|t| {
            let Node::Var(var) = terms.node(t) else { panic!("a variable") };
            Preference { var, value: 100 }
        });
        let answer = solve(&terms, &constraints, &preferences, Budget::FINAL, Effort::Persistent);
        let Answer::Satisfiable(values) = answer else { panic!("{}", answer.name()) };
        assert!(Plan::new(&terms, &constraints).holds(&values), "{values:?}");
    }

    /// A guess that leaves a number zero has said so: what would rather be something else does not make it wrong afterwards.
    #[test]
    fn a_solution_has_a_value_for_each_variable() {
        let terms = Terms::new();
        let [x, y] = [64, 64].map(|w| terms.fresh(w));
        let product = terms.build_bin(Bin::MulHiU, x, y);
        let constraints = [terms.build_cmp(Cmp::Eq, product, terms.lit_term(64, 0))];
        let answer = solve(&terms, &constraints, &[], Budget::SEARCH, Effort::Plain);
        let Answer::Satisfiable(values) = answer else { panic!("{}", answer.name()) };
        assert_eq!(values.variables().count(), 2, "{values:?}");
    }
}
