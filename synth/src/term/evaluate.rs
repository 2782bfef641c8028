//! The value of a term when every variable has one.

use super::{Node, Term, Terms, Var};
use rustc_hash::FxHashMap;

/// Values for variables; truth values are 0 and 1. A variable without a value counts as zero.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    values: FxHashMap<Var, u64>,
}

impl Assignment {
    /// Gives `var` a value.
    pub fn set(&mut self, var: Var, value: u64) {
        self.values.insert(var, value);
    }

    /// The value of `var`, if it has one.
    #[must_use]
    pub fn get(&self, var: Var) -> Option<u64> {
        self.values.get(&var).copied()
    }

    /// Takes over every value of `other`.
    pub fn extend(&mut self, other: &Assignment) {
        self.values.extend(other.variables());
    }

    /// Keeps the values of these variables.
    pub fn retain(&mut self, keep: impl Fn(Var) -> bool) {
        self.values.retain(|&var, _| keep(var));
    }

    /// The variables that have a value.
    pub fn variables(&self) -> impl Iterator<Item = (Var, u64)> + '_ {
        self.values.iter().map(|(&var, &value)| (var, value))
    }
}

impl Terms {
    /// The literal that `t` becomes under `assignment`: rebuilding folds it with the concrete domain.
    pub fn evaluate(&self, t: Term, assignment: &Assignment, memo: &mut FxHashMap<Term, Term>) -> Term {
        if !self.is_open(t) {
            return t;
        }
        if let Some(&done) = memo.get(&t) {
            return done;
        }
        let done = match self.node(t) {
            Node::Var(var) => {
                let value = assignment.get(var).unwrap_or(0);
                match self.width(t) {
                    0 => self.bool_term(value != 0),
                    w => self.lit_term(w, value),
                }
            }
            _ => self.rebuild(t, &mut |operand| self.evaluate(operand, assignment, memo)),
        };
        memo.insert(t, done);
        done
    }
}
