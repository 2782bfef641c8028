//! The solver on what propagation leaves over.
//!
//! Example: `x * y = 12` cannot be turned around while both are unknown. A guess by likely numbers may find a solution;
//! else Z3 is asked, and says that there is one (with its values), that there is none, or, when its budget ends, nothing.
//!
//! Budgets are counted in Z3's resource units (`rlimit`), not in time, so that an answer is the same on a slow day; a
//! wall-clock limit stands behind them only for the paths on which Z3 does not count.
//!
//! The map: [`asking`] has the order in which what follows is tried. [`lower`] makes Z3's expressions of terms, [`counted`] is Z3 with
//! its work counted as fuel, [`witness`] keeps a solution while constraints grow. [`mod@parts`] takes a question apart, [`projection`] leaves out unknowns that only take what is
//! left over, [`mod@abstraction`] asks without what is hard first, of which it says what [`reciprocal`] knows.
//! [`mod@guess`] (by [`likely`] numbers), [`divided`], [`small`] and [`linear`] try what is hard for Z3, [`expansion`] says what must
//! not be given to it. [`mod@preference`] has values kept as they are. [`script`] writes a refutation for other solvers.

mod abstraction;
mod asking;
mod counted;
mod divided;
mod expansion;
mod guess;
mod likely;
mod linear;
mod lower;
mod parts;
mod preference;
mod projection;
mod reciprocal;
pub mod script;
mod small;
mod witness;

use crate::facts::Facts;
use crate::phases::{Phase, during};
use crate::term::{Assignment, Node, Term, Terms, Var};
use asking::Asking;
use guess::guess;
use lower::Lowering;
pub use parts::by_parts;
pub use preference::Preference;
use rustc_hash::{FxHashMap, FxHashSet};
pub use witness::Witness;
use z3::SatResult;
use z3::ast::BV;

/// How much work one question may cost.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Z3 resource units; 2 to 7 million are a second.
    pub units: u32,
    /// The safety net, in milliseconds.
    pub milliseconds: u32,
    /// So many gates of products and quotients are made: that is work that Z3 does not count.
    pub gates: u64,
}

impl Budget {
    /// For a question inside the search.
    pub const SEARCH: Budget = Budget { units: 300_000, milliseconds: 1_500, gates: 1 << 15 };
    /// For one that is asked once more. Of what a kernel computes with tables, so many units have taken two and a half seconds.
    pub const AGAIN: Budget = Budget { units: 3_000_000, milliseconds: 8_000, gates: 1 << 17 };
    /// For the model of a certificate.
    pub const FINAL: Budget = Budget { units: 3_000_000, milliseconds: 8_000, gates: 1 << 17 };
}

/// What the solver says.
#[derive(Debug)]
pub enum Answer {
    /// There is a solution: this one.
    Satisfiable(Assignment),
    /// There is none.
    Infeasible,
    /// The budget ran out.
    Unknown,
}

impl Answer {
    /// In a message.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Satisfiable(_) => "satisfiable",
            Answer::Infeasible => "infeasible",
            Answer::Unknown => "unknown",
        }
    }
}

/// How far to go for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The question as it is, once, and a guess.
    Plain,
    /// Where the solver gives up, with small numbers, and with likely numbers for what makes it hard.
    Persistent,
}

/// Asks for values of the variables in `constraints` (resolved) that satisfy all of them.
pub fn solve(
    terms: &Terms,
    constraints: &[Term],
    preferences: &[Preference],
    budget: Budget,
    effort: Effort,
) -> Answer {
    let asking = Asking { terms, preferences, budget, effort };
    during(Phase::Solver, || by_parts(terms, constraints, |part| asking.ask(part)))
}

/// Whether more work may answer what was not answered: on products of unknowns it seldom does.
#[must_use]
pub fn is_worth_more(terms: &Terms, constraints: &[Term]) -> bool {
    !expansion::is_too_long(terms, constraints, Budget::AGAIN.gates)
        && !linear::has_products(terms, constraints)
}

/// Whether `constraints` leave `t`, which has `value` in one solution, no other value. `None`: not decided.
pub fn is_forced(terms: &Terms, constraints: &[Term], t: Term, value: u64, budget: Budget) -> Option<bool> {
    during(Phase::Solver, || ask_for_another(terms, constraints, t, value, budget))
}

fn ask_for_another(terms: &Terms, constraints: &[Term], t: Term, value: u64, budget: Budget) -> Option<bool> {
    if expansion::is_too_long(terms, constraints, budget.gates) {
        return None;
    }
    let (solver, mut lowering) = asking::put(terms, constraints, budget);
    let same = match terms.width(t) {
        0 if value == 0 => lowering.truth(t).not(),
        0 => lowering.truth(t),
        w => lowering.vector(t).eq(BV::from_u64(value, w)),
    };
    solver.assert(&same.not());
    match solver.check() {
        SatResult::Unsat => Some(true),
        SatResult::Sat => Some(false),
        SatResult::Unknown => None,
    }
}

/// Those of `constraints` that share variables, directly or through others, with `seeds`.
pub fn connected(facts: &Facts, terms: &Terms, constraints: &[Term], seeds: &[Term]) -> Vec<Term> {
    let variables: Vec<Vec<Var>> = constraints.iter().map(|&c| facts.variables_of(terms, c)).collect();
    let mut users: FxHashMap<Var, Vec<usize>> = FxHashMap::default();
    for (n, vars) in variables.iter().enumerate() {
        for &var in vars {
            users.entry(var).or_default().push(n);
        }
    }
    let mut taken = vec![false; constraints.len()];
    let mut todo: Vec<Var> = seeds.iter().flat_map(|&s| facts.variables_of(terms, s)).collect();
    let mut seen: FxHashSet<Var> = todo.iter().copied().collect();
    while let Some(var) = todo.pop() {
        for &n in users.get(&var).map_or(&[][..], Vec::as_slice) {
            if !std::mem::replace(&mut taken[n], true) {
                todo.extend(variables[n].iter().filter(|&&v| seen.insert(v)));
            }
        }
    }
    constraints.iter().zip(taken).filter_map(|(&c, taken)| taken.then_some(c)).collect()
}

impl Lowering<'_> {
    /// The values that a model gives to the variables of what was lowered.
    pub(super) fn assignment(&mut self, model: &z3::Model) -> Assignment {
        let mut values = Assignment::default();
        for t in self.variables() {
            let Node::Var(var) = self.terms().node(t) else { continue };
            let value = match self.terms().width(t) {
                0 => model.eval(&self.truth(t), true).and_then(|b| b.as_bool()).map(u64::from),
                _ => model.eval(&self.vector(t), true).and_then(|v| v.as_u64()),
            };
            if let Some(value) = value {
                values.set(var, value);
            }
        }
        values
    }
}
