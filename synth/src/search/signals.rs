//! Where a signal's handler was entered, and where one has returned.
//!
//! A signal may come before any instruction, and the map of predecessors has no such way. But the kernel leaves a frame, which tells both
//! ends of it: the handler begins with a return address that leads to rt_sigreturn, and on a stack that has what was interrupted; and
//! what was interrupted goes on where its frame says. So at a function's first instruction the frame is looked at, and everywhere whether
//! some frame leads there.

use super::Search;
use super::candidates::Candidate;
use super::rank::Rank;
use super::trail::Window;
use crate::past::prepared::{Effect, Prepared};
use crate::program::RT_SIGRETURN;
use iced_x86::Mnemonic;
use std::rc::Rc;

/// What ends a path at a handler whose frame does not tell what was interrupted.
const NO_FRAME: &str = "a signal's handler, whose frame does not say what it interrupted";

/// What the personality does with the registers then is not followed.
const MADE_AGAIN: &str = "a signal that interrupted a system call, which is made once more";

impl Search<'_> {
    /// Says that handlers may have run: a record need not lead to what the path has by the ways of the program.
    #[must_use]
    pub fn with_signals(mut self) -> Self {
        self.reach.allow_interruptions();
        self.signals = true;
        self
    }

    /// The delivery of a signal, if the present start is a handler's first instruction.
    pub(super) fn delivery(&mut self, window: Window) -> Option<Candidate> {
        let start = self.hypothesis.start();
        let is_function = self.program.function_at(start).is_some_and(|function| function.start == start);
        if !self.signals || !is_function {
            return None;
        }
        let back = self.return_address()?;
        if !self.program.restorers().contains(&back) {
            return None;
        }
        let place = self.hypothesis.frame_here();
        let interrupted = place.and_then(|place| self.hypothesis.interrupted_at(place));
        let Some(instruction) = interrupted.and_then(|at| self.program.instruction_at(at)) else {
            self.meet_here(NO_FRAME);
            return None;
        };
        if instruction.mnemonic() == Mnemonic::Syscall {
            let anchor = self.hypothesis.image().anchors().get(window.passed);
            if anchor.is_none_or(|anchor| anchor.rip == instruction.next_ip()) {
                self.meet_here(MADE_AGAIN);
                return None;
            }
        }
        let prepared = Rc::new(Prepared::delivering(instruction));
        Some(Candidate::new(prepared, None, window, Rank::Told))
    }

    /// The return of a signal's handler to the present start. Where the frame was overwritten, only what was counted tells that it was here.
    pub(super) fn handler_return(&mut self, window: Window) -> Option<Candidate> {
        if !self.signals {
            return None;
        }
        let anchor = self.hypothesis.image().anchors().get(window.passed);
        if anchor.is_some_and(|anchor| anchor.call() != Some(RT_SIGRETURN) || anchor.turn.is_some()) {
            return None;
        }
        let counted = anchor.and_then(|anchor| anchor.behind);
        if counted.is_some_and(|behind| behind != window.retired) {
            return None;
        }
        let (place, is_told) = self.hypothesis.frame_returned()?;
        if !is_told && counted.is_none() {
            self.meet_here("a signal's handler that returned here or elsewhere: its frame was overwritten");
            return None;
        }
        let call = match anchor {
            Some(anchor) => self.call_before(anchor.rip)?,
            None => {
                let back = self.hypothesis.memory_value(place.frame, 8)?;
                let restorer = self.hypothesis.terms().value(back)?;
                let number = self.program.restorers().contains(&restorer).then_some(restorer)?;
                self.next_of(number)?
            }
        };
        let prepared = self.prepare(call).filter(|it| matches!(it.effect, Effect::Syscall))?;
        Some(Candidate::new(prepared, Some(RT_SIGRETURN), window, Rank::Told))
    }

    /// The SYSCALL before `rip`.
    fn call_before(&mut self, rip: u64) -> Option<u64> {
        const SYSCALL_LENGTH: u64 = 2;
        let at = rip.checked_sub(SYSCALL_LENGTH)?;
        self.prepare(at).filter(|it| it.op.next == rip).map(|_| at)
    }
}
