//! Where a path goes over to another thread.
//!
//! The guest has one processor, and the crumbs tell who had it when ([`crate::evidence`]). So a switch is no choice of the search where
//! its place is known: behind the exit at which the thread had stopped. A preempted thread may come by that place several times; then
//! the counts say which time it was, and without them each is tried.

use super::Search;
use super::Window;
use super::candidates::Candidate;
use super::context::Context;
use super::rank::Rank;
use crate::evidence::Exit;
use crate::past::prepared::{Effect, Prepared};
use std::rc::Rc;

impl Search<'_> {
    /// The switch to the thread that had the processor before, if the present start is where this one was resumed.
    pub(super) fn switch(&mut self, window: Window) -> Option<Candidate> {
        let anchors = self.hypothesis.image().anchors();
        let (stopped, entered) = anchors.turn(window)?;
        let (start, exit, rip) = (self.hypothesis.start(), stopped.exit, stopped.rip);
        let resumed = match exit {
            Exit::Call(_) | Exit::Preempted => rip == start,
            Exit::Machine => self.prepare(rip).is_some_and(|it| it.yields && it.op.next == start),
        };
        if !resumed {
            return None;
        }
        if window.used < self.records.len() {
            // They are emptied when another thread gets the processor.
            return None;
        }
        let Some(stands) = self.hypothesis.stands_at(entered) else {
            self.meet_here("a thread that has ended since, or another process, ran here");
            return None;
        };
        let Some(instruction) = self.program.instruction_at(stands) else {
            self.meet_here("a thread that stands in code of no file of the program");
            return None;
        };
        let prepared = Rc::new(Prepared::switching(instruction));
        Some(Candidate::new(prepared, None, window, Rank::Recorded))
    }

    /// The call that the thread runs under which the path has gone over to, if it was in that thread before.
    pub(super) fn context_of_entered(&self) -> Option<Rc<Context>> {
        let entered = self.hypothesis.path().last()?.thread;
        let frames = self.frames.iter().zip(self.hypothesis.path()).rev();
        let mut left = frames.filter(|(_, step)| step.left == Some(entered));
        left.next().and_then(|(frame, _)| frame.context.clone())
    }

    /// Whether the oldest step is a switch.
    pub(super) fn has_switched(&self) -> bool {
        let frame = self.frames.last();
        frame.is_some_and(|frame| matches!(frame.candidates[frame.next - 1].prepared.effect, Effect::Switch))
    }
}
