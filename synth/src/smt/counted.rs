//! Z3's solver, whose work counts as fuel.

use super::Budget;
use crate::fuel::{Fuel, UNITS_A_SECOND};
use z3::ast::Bool;
use z3::{Model, Params, SatResult, StatisticsValue};

/// So much fuel is one of Z3's resource units, of which it does some four million a second.
const FUEL_OF_A_UNIT: u64 = UNITS_A_SECOND / 4_000_000;
/// What a question costs beside what Z3 counts.
const FUEL_OF_A_QUESTION: u64 = 2_000;

/// A solver and who counts its work.
pub(super) struct Counted<'f> {
    solver: z3::Solver,
    fuel: &'f Fuel,
}

impl<'f> Counted<'f> {
    /// A solver without constraints, each of whose questions has this budget.
    pub(super) fn new(fuel: &'f Fuel, budget: Budget) -> Counted<'f> {
        let counted = Counted { solver: z3::Solver::new(), fuel };
        counted.set_budget(budget);
        counted
    }

    /// Gives each question from now on this budget.
    pub(super) fn set_budget(&self, budget: Budget) {
        let mut params = Params::new();
        params.set_u32("rlimit", budget.units);
        params.set_u32("timeout", budget.milliseconds);
        params.set_u32("random_seed", 0);
        self.solver.set_params(&params);
    }

    pub(super) fn assert(&self, constraint: &Bool) {
        self.solver.assert(constraint);
    }

    pub(super) fn push(&self) {
        self.solver.push();
    }

    pub(super) fn pop(&self) {
        self.solver.pop(1);
    }

    pub(super) fn check(&self) -> SatResult {
        self.count(|| self.solver.check())
    }

    pub(super) fn check_assumptions(&self, assumptions: &[Bool]) -> SatResult {
        self.count(|| self.solver.check_assumptions(assumptions))
    }

    pub(super) fn model(&self) -> Option<Model> {
        self.solver.get_model()
    }

    pub(super) fn unsat_core(&self) -> Vec<Bool> {
        self.solver.get_unsat_core()
    }

    fn count(&self, ask: impl FnOnce() -> SatResult) -> SatResult {
        let before = self.units();
        let answer = ask();
        let units = self.units().saturating_sub(before);
        self.fuel.burn(FUEL_OF_A_QUESTION + units.saturating_mul(FUEL_OF_A_UNIT));
        answer
    }

    /// The resource units that Z3 has used, for all solvers of this thread.
    fn units(&self) -> u64 {
        match self.solver.get_statistics().value("rlimit count") {
            Some(StatisticsValue::UInt(units)) => u64::from(units),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count, which is a float when it needs more than 32 bits"
            )]
            Some(StatisticsValue::Double(units)) => units as u64,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use z3::ast::BV;

    #[test]
    fn work_is_counted_and_the_same_each_time() {
        let burnt = || {
            let fuel = Fuel::default();
            let solver = Counted::new(&fuel, Budget::FINAL);
            let [x, y] = ["x", "y"].map(|name| BV::new_const(name, 20));
            let product = x.bvmul(&y);
            solver.assert(&product.eq(BV::from_u64(0xa_bcd1, 20)));
            solver.assert(&x.bvugt(&y));
            assert_ne!(solver.check(), SatResult::Unknown);
            fuel.burnt()
        };
        // A thread has a Z3 of its own, which remembers what it has seen.
        let [first, second] = [(); 2].map(|()| std::thread::spawn(burnt).join().expect("an answer"));
        assert!(first > FUEL_OF_A_QUESTION, "{first}");
        assert_eq!(first, second);
    }
}
