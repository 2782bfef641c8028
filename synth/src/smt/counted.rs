//! Z3's solver, whose work counts as fuel.
//!
//! Z3 gives a question without assumptions to its SAT solver, after all terms have been taken apart into bits. What synthesis asks
//! is solved two to eight times sooner by Z3's other core, which reasons about terms first (decision 94): it is asked by name. That
//! begins anew with each question, and on products of unknowns it works for long without counting that: there Z3 is left its way.
//! What is asked of a part of the same constraints, or with assumptions, whose conflicts are wanted, goes to another solver of Z3's,
//! which keeps what it has made of them.

use super::Budget;
use crate::fuel::{Fuel, UNITS_A_SECOND};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::{Duration, Instant};
use z3::ast::Bool;
use z3::{Model, Params, SatResult, StatisticsValue, Tactic};

/// So much fuel is one of Z3's resource units, of which it does some four million a second.
const FUEL_OF_A_UNIT: u64 = UNITS_A_SECOND / 4_000_000;
/// What a question costs beside what Z3 counts.
const FUEL_OF_A_QUESTION: u64 = 2_000;

/// A solver and who counts its work.
pub(super) struct Counted<'f> {
    /// For the question as it is.
    plain: z3::Solver,
    /// For more of them about the same constraints.
    again: z3::Solver,
    /// The last question went there.
    was_again: Cell<bool>,
    /// So much was pushed.
    pushed: Cell<u32>,
    budget: Cell<Budget>,
    fuel: &'f Fuel,
}

impl<'f> Counted<'f> {
    /// A solver without constraints, each of whose questions has this budget. `products`: unknowns are multiplied by each other.
    pub(super) fn new(fuel: &'f Fuel, budget: Budget, products: bool) -> Counted<'f> {
        let plain = if products { z3::Solver::new() } else { Tactic::new("smt").solver() };
        let again = z3::Solver::new();
        let (was_again, pushed, budget_now) = (Cell::new(false), Cell::new(0), Cell::new(budget));
        let counted = Counted { plain, again, was_again, pushed, budget: budget_now, fuel };
        counted.set_budget(budget);
        counted
    }

    /// Gives each question from now on this budget.
    pub(super) fn set_budget(&self, budget: Budget) {
        self.budget.set(budget);
        let mut params = Params::new();
        params.set_u32("rlimit", budget.units);
        params.set_u32("timeout", budget.milliseconds);
        params.set_u32("random_seed", 0);
        self.each(|solver| solver.set_params(&params));
    }

    pub(super) fn assert(&self, constraint: &Bool) {
        self.each(|solver| solver.assert(constraint));
    }

    pub(super) fn push(&self) {
        self.pushed.set(self.pushed.get() + 1);
        self.each(z3::Solver::push);
    }

    pub(super) fn pop(&self) {
        self.pushed.set(self.pushed.get() - 1);
        self.each(|solver| solver.pop(1));
    }

    fn each(&self, change: impl Fn(&z3::Solver)) {
        change(&self.plain);
        change(&self.again);
    }

    pub(super) fn check(&self) -> SatResult {
        self.was_again.set(self.pushed.get() > 0);
        self.count(|solver| solver.check())
    }

    pub(super) fn check_assumptions(&self, assumptions: &[Bool]) -> SatResult {
        self.was_again.set(true);
        self.count(|solver| solver.check_assumptions(assumptions))
    }

    pub(super) fn model(&self) -> Option<Model> {
        self.asked().get_model()
    }

    pub(super) fn unsat_core(&self) -> Vec<Bool> {
        self.again.get_unsat_core()
    }

    /// The one that the last question was put to.
    fn asked(&self) -> &z3::Solver {
        if self.was_again.get() { &self.again } else { &self.plain }
    }

    fn count(&self, ask: impl Fn(&z3::Solver) -> SatResult) -> SatResult {
        let before = self.units();
        let answer = self.in_processor_time(ask);
        let units = self.units().saturating_sub(before);
        let Budget { units: most, milliseconds, .. } = self.budget.get();
        let mut fuel = units.saturating_mul(FUEL_OF_A_UNIT);
        if answer == SatResult::Unknown && units < most.into() {
            // The clock ended it: Z3 did much that it does not count.
            fuel = fuel.max(u64::from(milliseconds) * UNITS_A_SECOND / 1000);
        }
        self.fuel.burn(FUEL_OF_A_QUESTION + fuel);
        answer
    }

    /// Asks, and asks once more with a later end where Z3's clock, which is the wall's, ended it before it had had its time of a
    /// processor: on a busy machine the same questions are answered as on an idle one.
    fn in_processor_time(&self, ask: impl Fn(&z3::Solver) -> SatResult) -> SatResult {
        let budget = Duration::from_millis(self.budget.get().milliseconds.into());
        let (wall, processor) = (Instant::now(), processor_time());
        let answer = ask(self.asked());
        let (wall, processor) = (wall.elapsed(), processor_time().saturating_sub(processor));
        if answer != SatResult::Unknown || wall < budget {
            return answer;
        }
        let Some(longer) = longer(budget, wall, processor) else { return answer };
        self.set_timeout(longer);
        let answer = ask(self.asked());
        self.set_timeout(budget);
        answer
    }

    /// Ends a question after so long by the wall's clock.
    fn set_timeout(&self, limit: Duration) {
        let mut params = Params::new();
        params.set_u32("timeout", u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
        self.asked().set_params(&params);
    }

    /// The resource units that Z3 has used, for all solvers of this thread.
    fn units(&self) -> u64 {
        match self.asked().get_statistics().value("rlimit count") {
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

/// What this thread has had of a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().unwrap_or_default()
}

/// How long, by the wall's clock, a question needs for `budget` of a processor's time, if within `wall` it had only `processor` of it.
/// `None` if it had what it was to have, but for what a quiet machine takes too, or next to nothing.
fn longer(budget: Duration, wall: Duration, processor: Duration) -> Option<Duration> {
    let had = processor.as_secs_f64() / budget.as_secs_f64();
    let is_busy = (1.0 / SLOWEST..ENOUGH).contains(&had);
    is_busy.then(|| wall.mul_f64(MARGIN / had).min(LONGEST))
}

/// Such a share of the budget is all of it.
const ENOUGH: f64 = 0.9;
/// On a machine that gives a thread less than one part in so many nothing is asked once more.
const SLOWEST: f64 = 8.0;
/// The second time has so much more than the first one would have needed.
const MARGIN: f64 = 1.25;
/// Nobody waits longer for one question.
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use z3::ast::BV;

    #[test]
    fn a_question_has_its_time_on_a_busy_machine() {
        let seconds = Duration::from_secs;
        assert_eq!(longer(seconds(4), seconds(4), seconds(4)), None, "it had all of it");
        assert_eq!(longer(seconds(4), seconds(4), Duration::from_millis(3_900)), None, "nearly");
        assert_eq!(longer(seconds(4), seconds(4), seconds(1)), Some(seconds(20)), "a quarter of a processor");
        assert_eq!(
            longer(seconds(4), seconds(4), Duration::ZERO),
            None,
            "nothing tells how long it would take"
        );
        assert_eq!(longer(seconds(15), seconds(15), seconds(3)), Some(LONGEST));
    }

    #[test]
    fn work_is_counted_and_the_same_each_time() {
        let burnt = || {
            let fuel = Fuel::default();
            let solver = Counted::new(&fuel, Budget::FINAL, false);
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

    #[test]
    fn a_model_is_that_of_the_last_question() {
        let fuel = Fuel::default();
        let solver = Counted::new(&fuel, Budget::FINAL, false);
        let x = BV::new_const("x", 32);
        let is = |value| x.eq(BV::from_u64(value, 32));
        let value = || solver.model().and_then(|model| model.eval(&x, true)).and_then(|x| x.as_u64());
        solver.assert(&x.bvugt(BV::from_u64(6, 32)));
        solver.assert(&x.bvult(BV::from_u64(9, 32)));
        assert_eq!(solver.check_assumptions(&[is(8)]), SatResult::Sat);
        assert_eq!(value(), Some(8));
        assert_eq!(solver.check_assumptions(&[is(9)]), SatResult::Unsat);
        assert_eq!(solver.unsat_core(), [is(9)]);
        solver.push();
        solver.assert(&is(7));
        assert_eq!(solver.check(), SatResult::Sat);
        assert_eq!(value(), Some(7));
        solver.pop();
        assert_eq!(solver.check_assumptions(&[is(8)]), SatResult::Sat, "7 is forgotten");
    }
}
