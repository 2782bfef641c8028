//! The exits and the switches of a run against those that the crumbs tell of, the newest first.

use super::contexts::{Stacks, Walked};
use super::forward::Forward;
use super::{DontCare, Verdict, rejected};
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
    /// How many branches had been taken before.
    pub(super) taken: u64,
    /// The stack, if it was walked.
    pub(super) stack: Option<Walked>,
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
    /// Behind how many of them, or of switches, it was not told how many branches were taken.
    pub(super) uncounted: usize,
    /// Between how many of them the branches that were taken.
    pub(super) taken: usize,
    /// The contexts of how many of them.
    pub(super) contexts: usize,
    pub(super) switches: usize,
    /// The contexts that were not compared.
    pub(super) unseen: Unseen,
}

/// Contexts that were not compared, by why: each with one of them.
#[derive(Default)]
pub(super) struct Unseen {
    /// The recorder could not walk the stack.
    unwalked: Vec<u64>,
    /// The walk found no call at this return address.
    cut: Vec<u64>,
    /// Nothing tells the memory at this address.
    untold: Vec<u64>,
}

impl Unseen {
    /// In words.
    pub(super) fn dont_care(&self) -> Vec<DontCare> {
        let what = |list: &Vec<u64>, of: &str| match list.as_slice() {
            [] => None,
            [one] => Some(format!("the context of one crumb: {of} {one:#x}")),
            [first, ..] => Some(format!("the contexts of {} crumbs: {of} {first:#x} and others", list.len())),
        };
        let all = [
            (what(&self.unwalked, "at"), "the recorder could not walk the stack"),
            (what(&self.cut, "a walk ends at"), "no call is known that returns to there"),
            (
                what(&self.untold, "they rest on memory at"),
                "it was overwritten before anything read it, and nothing tells what it held",
            ),
        ];
        let said =
            all.into_iter().filter_map(|(what, why)| Some(DontCare { what: what?, why: why.to_owned() }));
        said.collect()
    }
}

/// The run that is compared, which stands at its end.
pub(super) struct End<'a, 'r> {
    /// What retired in all.
    pub(super) retired: Retired,
    /// How many branches were taken in all.
    pub(super) taken: u64,
    pub(super) forward: &'r Forward<'a>,
    pub(super) stacks: Option<&'r Stacks<'a>>,
}

/// Compares as far as both go.
pub(super) fn compare(passed: &[Passed], end: &End<'_, '_>, anchors: &Anchors) -> Result<Compared, Verdict> {
    let mut newest_first: Vec<&Passed> = passed.iter().rev().collect();
    if !anchors.tell_schedule() {
        // Of a program without threads PAUSE is an instruction like any other.
        newest_first.retain(|passed| !matches!(passed.what, What::Pause { .. }));
    }
    let newer = (end.retired, end.taken);
    let mut run = Run { newest_first, at: 0, end, newer, compared: Compared::default() };
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
    end: &'a End<'a, 'a>,
    /// What had retired at the newer exit, and how many branches had been taken.
    newer: (Retired, u64),
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
            self.count(passed, 0, (anchor.behind, anchor.taken))?;
            self.compared.switches += 1;
            if !anchor.is_instruction() {
                self.context(anchor, passed)?;
            }
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
        let nothing = (Some(Retired::default()), Some(0));
        let behind = if anchor.turn.is_some() { nothing } else { (anchor.behind, anchor.taken) };
        self.count(passed, 1, behind)?;
        self.context(anchor, passed)?;
        Ok(true)
    }

    /// Compares the stack with the context, where there is one.
    fn context(&mut self, anchor: &Anchor, passed: &Passed) -> Result<(), Verdict> {
        let (Some(stacks), Some(walked)) = (self.end.stacks, &passed.stack) else { return Ok(()) };
        let unseen = &mut self.compared.unseen;
        let Some(expected) = anchor.context else {
            unseen.unwalked.push(anchor.rip);
            return Ok(());
        };
        if walked.word == Ok(expected) {
            self.compared.contexts += 1;
            return Ok(());
        }
        match (stacks.untold(self.end.forward, passed.step, walked), walked.word) {
            (Some(address), _) => unseen.untold.push(address),
            (None, Err(last)) => unseen.cut.push(last),
            (None, Ok(found)) => {
                let of = |word: u64| format!("{word:#018x}");
                let what = format!("context of the crumb at {:#x}", anchor.rip);
                return Err(rejected(passed.step, &what, of(expected), of(found)));
            }
        }
        Ok(())
    }

    /// Compares what retired up to the newer exit, where that was counted, and goes on to this one, which is so many instructions.
    fn count(
        &mut self,
        passed: &Passed,
        own: u64,
        (expected, expected_taken): (Option<Retired>, Option<u64>),
    ) -> Result<(), Verdict> {
        let (newer, newer_taken) = std::mem::replace(&mut self.newer, (passed.retired, passed.taken));
        let found = Retired {
            instructions: newer.instructions - passed.retired.instructions - own,
            conditional_branches: newer.conditional_branches - passed.retired.conditional_branches,
        };
        let Some(expected) = expected else {
            self.compared.uncounted += 1;
            return Ok(());
        };
        if expected != found {
            let what = "what retired behind a crumb";
            return Err(rejected(passed.step, what, expected.to_string(), found.to_string()));
        }
        self.compared.crumbs[1] += 1;
        let taken = newer_taken - passed.taken;
        if let Some(expected) = expected_taken {
            if expected != taken {
                let what = "branches that were taken behind a crumb";
                return Err(rejected(passed.step, what, expected.to_string(), taken.to_string()));
            }
            self.compared.taken += 1;
        } else {
            self.compared.uncounted += 1;
        }
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
