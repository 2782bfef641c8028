//! Values that variables should rather have than others, where the constraints leave a choice.

use super::counted::Counted;
use super::lower::Lowering;
use crate::facts::Facts;
use crate::term::{Assignment, Plan, Term, Terms, Var};
use rustc_hash::FxHashSet;
use z3::ast::{BV, Bool};
use z3::{Model, SatResult};

/// How often preferences that contradict each other are dropped before the rest is given up.
const ROUNDS: usize = 16;

/// A value that a variable should rather have than another.
#[derive(Clone, Copy, Debug)]
pub struct Preference {
    /// The variable.
    pub var: Var,
    /// The value; truth values are 0 and 1.
    pub value: u64,
}

/// Grants, one after the other, the preferences that leave the constraints (resolved) solved. Whether they were to begin with.
pub(super) fn grant(
    terms: &Terms,
    constraints: &[Term],
    preferences: &[Preference],
    values: &mut Assignment,
) -> bool {
    let facts = Facts::default();
    let variables: FxHashSet<Var> = constraints.iter().flat_map(|&c| facts.variables_of(terms, c)).collect();
    let mut plan = Plan::new(terms, constraints);
    if !plan.holds(values) {
        return false;
    }
    for preference in preferences.iter().filter(|p| variables.contains(&p.var)) {
        let before = values.get(preference.var).unwrap_or(0);
        values.set(preference.var, preference.value);
        if !plan.holds(values) {
            values.set(preference.var, before);
        }
    }
    true
}

/// Asks what `solver` has answered once more, with as many of the preferences as it grants together.
pub(super) fn preferred(
    solver: &Counted<'_>,
    lowering: &mut Lowering<'_>,
    preferences: &[Preference],
) -> Option<Model> {
    let mut wishes: Vec<Bool> = preferences.iter().filter_map(|p| lowering.wish(*p)).collect();
    let model = solver.model();
    for _ in 0..ROUNDS {
        if wishes.is_empty() {
            break;
        }
        match solver.check_assumptions(&wishes) {
            SatResult::Sat => return solver.model(),
            SatResult::Unsat => {
                let in_conflict: FxHashSet<Bool> = solver.unsat_core().into_iter().collect();
                let before = wishes.len();
                wishes.retain(|w| !in_conflict.contains(w));
                if wishes.len() == before {
                    break;
                }
            }
            SatResult::Unknown => break,
        }
    }
    model
}

impl Lowering<'_> {
    /// The preference as a truth value, if the variable occurs in what was lowered.
    fn wish(&mut self, p: Preference) -> Option<Bool> {
        let t = self.variable(p.var)?;
        Some(match self.terms().width(t) {
            0 => {
                let b = self.truth(t);
                if p.value == 0 { b.not() } else { b }
            }
            w => self.vector(t).eq(BV::from_u64(p.value, w)),
        })
    }
}
