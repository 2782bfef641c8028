//! The newest exits of the processor, for the crumbs of a core: system calls, exceptions and interrupts. They are no part of the
//! machine's state. What a kernel asks of its devices is none of them: a line on the console alone would be a hundred.

use super::{Machine, Position};
use lbr::crumb::{Counts, Crumb, Entry, Exit};
use std::collections::VecDeque;
use x86::state::Regs;
use x86_system::Raised;

/// So many are kept.
const KEPT: usize = 1024;
/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;
/// The number of RSP among the general registers.
const RSP: usize = 4;

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// Where it stood before: of a system call, before its instruction, which has retired.
    at: Position,
    retired: u64,
    time: u64,
    rip: u64,
    rsp: u64,
    exit: Exit,
}

/// Those that were left, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Exits(VecDeque<Left>);

impl Exits {
    /// Adds one; those that the machine was put back before are forgotten.
    fn add(&mut self, left: Left) {
        while self.0.back().is_some_and(|last| last.at >= left.at) {
            self.0.pop_back();
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(left);
    }
}

impl Machine {
    /// The newest exits on the way here, as far as this machine has run it, oldest first and numbered from 1: where each stood, when by
    /// the guest's clock, and how many instructions had retired. The events before one are the exceptions and interrupts.
    #[must_use]
    pub fn crumbs(&self) -> Vec<Entry> {
        let here = self.position();
        let before = self.exits.0.iter().take_while(|left| left.at < here);
        (1..).zip(before).map(|(number, left)| Entry { number, crumb: left.crumb() }).collect()
    }

    /// Notes an exit that the processor makes where it stands.
    pub(super) fn leave_exit(&mut self, exit: Exit) {
        let Regs { rip, gpr, .. } = self.cpu().regs();
        let (here, time) = (self.position(), self.moment().time);
        let is_behind = matches!(exit, Exit::Syscall { .. });
        let at = Position { retired: here.retired - u64::from(is_behind), ..here };
        self.exits.add(Left { at, retired: here.retired, time, rip, rsp: gpr[RSP], exit });
    }

    /// Notes the exit of an exception that was raised at a position.
    pub(super) fn leave_exception(&mut self, at: Position, raised: &Raised) {
        let exit = match (raised.vector, raised.address) {
            (PAGE_FAULT, Some(address)) => Exit::PageFault { address, error_code: raised.code },
            (vector, _) => Exit::Exception { vector, error_code: raised.code },
        };
        let (retired, time) = (at.retired, self.moment().time);
        self.exits.add(Left { at, retired, time, rip: raised.rip, rsp: raised.rsp, exit });
    }
}

impl Left {
    fn crumb(&self) -> Crumb {
        Crumb {
            exit: self.exit,
            event: self.at.delivered,
            thread: 0,
            rip: self.rip,
            rsp: self.rsp,
            time: Some(self.time),
            counts: Counts { instructions: Some(self.retired), ..Counts::default() },
            context: None,
        }
    }
}
