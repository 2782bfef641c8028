//! How the crumbs steer the search: which exits a path makes, how much retires between them, and when it goes over to another thread.

use super::candidates::Candidate;
use super::trail::Window;
use crate::evidence::{Anchor, Anchors, Exit, Retired, Turn};
use crate::past::prepared::{Effect, Prepared};
use crate::program::RT_SIGRETURN;
use x86::op::{BranchKind, Rep};

impl Anchors {
    /// How far a path has come once `candidate` is prepended, which goes on at `start`; `None` if the crumbs say that
    /// it did not run there.
    pub(super) fn pass(&self, candidate: &Candidate, start: u64) -> Option<Window> {
        let (prepared, window) = (&candidate.prepared, candidate.window);
        let Some(anchor) = self.get(window.passed) else {
            return self.pass_since_entered(prepared, window, start);
        };
        match prepared.effect {
            // It was made for this anchor.
            Effect::Switch => Some(Window {
                passed: window.passed + usize::from(!anchor.is_instruction()),
                switched: anchor.is_instruction(),
                retired: Retired::default(),
                ..window
            }),
            Effect::Signal => (!window.switched).then_some(window),
            Effect::Syscall => self.pass_exit(candidate, anchor, start),
            _ if self.tell_schedule() && prepared.yields => self.pass_exit(candidate, anchor, start),
            // What stands behind an exit can only have come by it.
            _ if window.switched => None,
            _ => pass_other(prepared, anchor, window, start),
        }
    }

    /// The same for an instruction that leaves a crumb.
    fn pass_exit(&self, candidate: &Candidate, anchor: &Anchor, start: u64) -> Option<Window> {
        let (prepared, window) = (&candidate.prepared, candidate.window);
        if let Some(turn) = self.pending(window) {
            // Nobody knows where it was resumed, and it is not gone past: it says so itself.
            return turn.stopped.is_none().then_some(window);
        }
        let is_it = match anchor.exit {
            // A return from a handler goes on elsewhere.
            Exit::Call(RT_SIGRETURN) => {
                (candidate.call, anchor.rip) == (Some(RT_SIGRETURN), prepared.op.next)
            }
            Exit::Call(number) => (Some(number), anchor.rip) == (candidate.call, start),
            Exit::Machine => anchor.rip == prepared.address(),
            Exit::Preempted => false,
        };
        let expected = if window.switched { Some(Retired::default()) } else { anchor.behind };
        let counts = expected.is_none_or(|known| known == window.retired);
        (is_it && counts).then_some(Window {
            passed: window.passed + 1,
            switched: false,
            retired: Retired::default(),
            ..window
        })
    }

    /// The same for an instruction of a kernel, or one behind which no anchor is known.
    fn pass_since_entered(&self, prepared: &Prepared, window: Window, start: u64) -> Option<Window> {
        let Some(most) = self.entered().retired else { return Some(window) };
        let retired = retired_with(prepared, window, start);
        (retired.instructions <= most).then_some(Window { retired, ..window })
    }

    /// The thread that the path is in at the next anchor, if that is another one's exit.
    fn pending(&self, window: Window) -> Option<Turn> {
        self.get(window.passed)?.turn.filter(|_| !window.switched)
    }

    /// The exit at which the thread that the path is in had given the processor away, and whose exit came before it went on there, if as
    /// much has retired since as was counted.
    pub(super) fn turn(&self, window: Window) -> Option<(&Anchor, u32)> {
        let (turn, next) = (self.pending(window)?, self.get(window.passed)?);
        let counts = next.behind.is_none_or(|known| known == window.retired);
        let stopped = self.get(turn.stopped.filter(|_| counts && window.passed < self.known())?)?;
        Some((stopped, next.thread))
    }
}

/// The same for an instruction that leaves none.
fn pass_other(prepared: &Prepared, anchor: &Anchor, window: Window, start: u64) -> Option<Window> {
    let retired = retired_with(prepared, window, start);
    let is_room = anchor.behind.is_none_or(|known| {
        retired.instructions <= known.instructions
            && retired.conditional_branches <= known.conditional_branches
    });
    is_room.then_some(Window { retired, ..window })
}

/// What has retired once an instruction is prepended.
fn retired_with(prepared: &Prepared, window: Window, start: u64) -> Retired {
    // The iterations of a repeated string instruction retire as one.
    let goes_on = prepared.op.rep != Rep::None && start == prepared.address();
    Retired {
        instructions: window.retired.instructions + u64::from(!goes_on),
        conditional_branches: window.retired.conditional_branches
            + u64::from(prepared.branch == Some(BranchKind::Conditional)),
    }
}
