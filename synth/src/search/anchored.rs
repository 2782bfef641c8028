//! How the crumbs steer the search: which calls a path makes, and how much retires between them.

use super::candidates::Candidate;
use super::trail::Window;
use crate::evidence::{Anchors, Retired};
use crate::past::prepared::Effect;
use x86::op::{BranchKind, Rep};

impl Anchors {
    /// How far a path has come once `candidate` is prepended, which goes on at `start`; `None` if the crumbs say that
    /// it did not run there.
    pub(super) fn pass(&self, candidate: &Candidate, start: u64) -> Option<Window> {
        let (prepared, window) = (&candidate.prepared, candidate.window);
        let is_call = matches!(prepared.effect, Effect::Syscall);
        let Some(anchor) = self.get(window.passed) else { return Some(window) };
        // The iterations of a repeated string instruction retire as one.
        let goes_on = prepared.op.rep != Rep::None && start == prepared.address();
        let retired = Retired {
            instructions: window.retired.instructions + u64::from(!goes_on),
            conditional_branches: window.retired.conditional_branches
                + u64::from(prepared.branch == Some(BranchKind::Conditional)),
        };
        if is_call {
            let is_it = (Some(anchor.number), anchor.rip) == (candidate.call, start);
            let counts = anchor.retired.is_none_or(|known| known == retired);
            return (is_it && counts).then_some(Window {
                passed: window.passed + 1,
                retired: Retired::default(),
                ..window
            });
        }
        let is_room = anchor.retired.is_none_or(|known| {
            // The anchor itself is one of them.
            retired.instructions < known.instructions
                && retired.conditional_branches <= known.conditional_branches
        });
        is_room.then_some(Window { retired, ..window })
    }
}
