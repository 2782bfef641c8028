//! The exits and the switches of a run against those that the crumbs tell of, the newest first.

use super::{Verdict, rejected};
use crate::evidence::{Anchor, Anchors, Exit, Retired};

/// What a run passed through.
pub(super) struct Passed {
    /// The index in the path; of a switch, that of the first instruction behind it.
    pub(super) step: usize,
    /// Who did; of a switch, who gave the processor away.
    pub(super) thread: u32,
    pub(super) what: What,
    /// What had retired before.
    pub(super) retired: Retired,
}

/// What it was.
pub(super) enum What {
    /// A system call; the address behind it.
    Call { number: u64, rip: u64, rsp: u64 },
    /// PAUSE.
    Pause { rip: u64, rsp: u64 },
    /// Another thread got the processor; where this one will go on.
    Switch { to: u32, stands: u64 },
}

/// What was compared.
#[derive(Default)]
pub(super) struct Compared {
    /// Exits, and what retired between them.
    pub(super) crumbs: [usize; 2],
    pub(super) switches: usize,
}

/// Compares as far as both go; `retired` is what retired in all.
pub(super) fn compare(passed: &[Passed], retired: Retired, anchors: &Anchors) -> Result<Compared, Verdict> {
    let mut newest_first: Vec<&Passed> = passed.iter().rev().collect();
    if !anchors.tell_schedule() {
        // Of a program without threads PAUSE is an instruction like any other.
        newest_first.retain(|passed| !matches!(passed.what, What::Pause { .. }));
    }
    let mut run = Run { newest_first, at: 0, newer: retired, compared: Compared::default() };
    for anchor in (0..).map_while(|n| anchors.get(n)) {
        if !run.compare(anchor)? {
            break;
        }
    }
    Ok(run.compared)
}

struct Run<'a> {
    newest_first: Vec<&'a Passed>,
    at: usize,
    /// What had retired at the newer exit.
    newer: Retired,
    compared: Compared,
}

impl<'a> Run<'a> {
    /// Compares with one anchor. False: the run does not go back there.
    fn compare(&mut self, anchor: &Anchor) -> Result<bool, Verdict> {
        if let Some(turn) = anchor.turn {
            let Some(passed) = self.next() else { return Ok(false) };
            let What::Switch { to, stands } = passed.what else { return Err(differs(anchor, passed)) };
            let is_there = anchor.exit == Exit::Machine || stands == anchor.rip;
            if (passed.thread, to) != (anchor.thread, turn.thread) || !is_there {
                return Err(differs(anchor, passed));
            }
            self.count(passed, 0, anchor.behind)?;
            self.compared.switches += 1;
        }
        if !anchor.is_instruction() {
            self.compared.crumbs[0] += 1;
            return Ok(true);
        }
        let Some(passed) = self.next() else { return Ok(false) };
        let is_it = match (&passed.what, anchor.exit) {
            (What::Call { number, rip, rsp }, Exit::Call(expected)) => {
                (*number, *rip, *rsp) == (expected, anchor.rip, anchor.rsp)
            }
            (What::Pause { rip, rsp }, Exit::Machine) => (*rip, *rsp) == (anchor.rip, anchor.rsp),
            _ => false,
        };
        if !is_it || passed.thread != anchor.thread {
            return Err(differs(anchor, passed));
        }
        self.compared.crumbs[0] += 1;
        // Behind an exit that another thread ran behind, its own ran nothing.
        let behind = if anchor.turn.is_some() { Some(Retired::default()) } else { anchor.behind };
        self.count(passed, 1, behind)?;
        Ok(true)
    }

    /// Compares what retired up to the newer exit, where that was counted, and goes on to this one, which is so many instructions.
    fn count(&mut self, passed: &Passed, own: u64, expected: Option<Retired>) -> Result<(), Verdict> {
        let found = Retired {
            instructions: self.newer.instructions - passed.retired.instructions - own,
            conditional_branches: self.newer.conditional_branches - passed.retired.conditional_branches,
        };
        self.newer = passed.retired;
        let Some(expected) = expected else { return Ok(()) };
        if expected != found {
            let what = "what retired behind a crumb";
            return Err(rejected(passed.step, what, expected.to_string(), found.to_string()));
        }
        self.compared.crumbs[1] += 1;
        Ok(())
    }

    fn next(&mut self) -> Option<&'a Passed> {
        let passed = self.newest_first.get(self.at).copied();
        self.at += 1;
        passed
    }
}

fn differs(anchor: &Anchor, passed: &Passed) -> Verdict {
    let expected = match anchor.exit {
        Exit::Call(number) => {
            format!("call {number} at {:#x} with rsp {:#x}", anchor.rip, anchor.rsp)
        }
        Exit::Machine => format!("PAUSE at {:#x} with rsp {:#x}", anchor.rip, anchor.rsp),
        Exit::Preempted => format!("a preemption at {:#x}", anchor.rip),
    };
    let expected = match anchor.turn {
        Some(turn) => format!("{expected} of thread {}, and then thread {}", anchor.thread, turn.thread),
        None => format!("{expected} of thread {}", anchor.thread),
    };
    let found = match &passed.what {
        What::Call { number, rip, rsp } => format!("call {number} at {rip:#x} with rsp {rsp:#x}"),
        What::Pause { rip, rsp } => format!("PAUSE at {rip:#x} with rsp {rsp:#x}"),
        What::Switch { to, stands } => format!("a switch to thread {to} at {stands:#x}"),
    };
    rejected(passed.step, "crumb", expected, format!("{found} of thread {}", passed.thread))
}
