//! What the solver is asked, and how much work it may take.
//!
//! Most questions are easy, and the usual budget is a twentieth of a second. What it does not answer is asked once more with ten times
//! as much while there is fuel for it: a path that the solver gives up on is left, and it may be the true one (decision 94).

use super::Search;
use super::barriers::UNANSWERED;
use crate::smt::{self, Answer, Budget, Effort};
use crate::term::Term;
use std::rc::Rc;

/// One part in so many of all fuel may go into questions that the solver did not answer within its usual budget.
const SHARE_OF_HARD_QUESTIONS: u64 = 4;

impl Search<'_> {
    /// Whether the constraints have a solution. `None`: the solver gave up.
    pub(super) fn is_satisfiable(&mut self, effort: Effort) -> Option<bool> {
        let checked = self.frames.last().map_or(0, |f| f.checked);
        let Err(question) = self.hypothesis.fit_witness(checked, Effort::Plain) else { return Some(true) };
        self.statistics.solver_calls += 1;
        let terms = Rc::clone(self.hypothesis.terms());
        match smt::by_parts(&terms, &question, |part| self.ask(part, effort)) {
            Answer::Satisfiable(model) => {
                self.hypothesis.witness().learn(&model);
                Some(true)
            }
            Answer::Infeasible => {
                self.statistics.solver_refuted += 1;
                self.doubt_refutation();
                self.hypothesis.tell_refuted_by_solver();
                Some(false)
            }
            Answer::Unknown => {
                self.statistics.solver_unknown += 1;
                self.meet_here(UNANSWERED);
                None
            }
        }
    }

    fn ask(&mut self, question: &[Term], effort: Effort) -> Answer {
        let terms = Rc::clone(self.hypothesis.terms());
        let answer = smt::solve(&terms, question, &[], Budget::SEARCH, effort);
        let may_insist = self.spent_insisting * SHARE_OF_HARD_QUESTIONS < self.whole_fuel;
        if !matches!(answer, Answer::Unknown) || !may_insist || !smt::is_worth_more(&terms, question) {
            return answer;
        }
        let burnt = terms.fuel().burnt();
        let answer = smt::solve(&terms, question, &[], Budget::AGAIN, Effort::Plain);
        self.spent_insisting += terms.fuel().burnt() - burnt;
        answer
    }
}
