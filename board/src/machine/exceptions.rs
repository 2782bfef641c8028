//! The newest exceptions that instructions have raised, for whoever asks what a kernel died of. They are no part of the machine's state.

use super::{Machine, Position};
use std::collections::VecDeque;
use x86_system::Raised;

/// So many are kept. A kernel that has crashed raises some hundred at most before it ends.
const KEPT: usize = 4096;

/// An exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Where the machine stands before its delivery; of one that retires (INT3, INT n), before its instruction.
    pub at: Position,
    /// What it is.
    pub raised: Raised,
}

impl Exception {
    /// INT3, INTO and the debug exception are raised behind their instruction.
    const BEHIND: [u8; 3] = [1, 3, 4];

    /// Whether it is a fault, whose instruction has left no trace.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        self.raised.vector < 32 && !Exception::BEHIND.contains(&self.raised.vector)
    }
}

/// Those that were raised, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Exceptions(VecDeque<Exception>);

impl Exceptions {
    /// Adds one; those that the machine was put back before are forgotten.
    fn add(&mut self, exception: Exception) {
        while self.0.back().is_some_and(|last| last.at >= exception.at) {
            self.0.pop_back();
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(exception);
    }
}

impl Machine {
    /// The newest exceptions that were raised on the way here, as far as this machine has run it: newest first.
    pub fn exceptions(&self) -> impl Iterator<Item = &Exception> {
        let here = self.position();
        self.exceptions.0.iter().rev().skip_while(move |exception| exception.at >= here)
    }

    /// Keeps the exception that the last step has raised, if any.
    pub(super) fn note_exception(&mut self) {
        let Some(raised) = self.system.raised.take() else { return };
        let here = self.position();
        let mut at = Position { delivered: here.delivered.saturating_sub(1), ..here };
        let is_behind = raised.vector >= 32 || Exception::BEHIND.contains(&raised.vector);
        if is_behind {
            at.retired = at.retired.saturating_sub(1);
        }
        self.leave_exception(at, &raised);
        self.exceptions.add(Exception { at, raised });
    }
}
