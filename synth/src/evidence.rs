//! What a core knows of the past by its crumbs: the system calls of the thread that crashed, newest first; of a program with
//! threads those of all, and which of them had the processor when ([`schedule`]).
//!
//! Each system call left a crumb, so a path that ends in the core makes exactly these calls, in this order, each at its
//! address and with its stack pointer. Where the engine counted, and nothing else happened in between, it is known how
//! many instructions retired from one to the next. Page faults are no anchors: which of them leave crumbs depends on the engine.
//! Where the recorder walked stacks, each also has the word of its own ([`contexts`]). What the program mostly does is known from
//! samples of its branches, of this run or another ([`samples`]). A kernel makes no system calls; of its past is
//! known when the processor came to what it runs ([`entered`]).

pub(crate) mod contexts;
mod entered;
pub(crate) mod samples;
mod schedule;

pub use contexts::Contexts;
pub use entered::Entered;
pub use samples::{Samples, Taken};

use lbr::crumb::{self, Counts, Crumb, Crumbs, CrumbsError, Entry};
use std::sync::Arc;
use vmm::elfcore::Core;

/// What retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Retired {
    /// Instructions; a whole REP string instruction counts as one.
    pub instructions: u64,
    /// Conditional branches, taken or not.
    pub conditional_branches: u64,
}

impl std::fmt::Display for Retired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} instructions, {} conditional branches", self.instructions, self.conditional_branches)
    }
}

/// What an exit was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A system call of this number; the anchor's address is that of the instruction behind it.
    Call(u64),
    /// An instruction that the personality carries out, PAUSE among them, at the anchor's address.
    Machine,
    /// Another task took the processor; the anchor's address is where its own will go on.
    Preempted,
}

/// An exit of the program that crumbs tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Whose.
    pub thread: u32,
    /// What.
    pub exit: Exit,
    /// Where.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// What retired behind it, up to the next newer exit or the crash, if that is known; neither's own instruction is counted.
    pub behind: Option<Retired>,
    /// And how many branches were taken, if that is known too.
    pub taken: Option<u64>,
    /// Another thread ran behind it.
    pub turn: Option<Turn>,
    /// The calling context, as one word.
    pub context: Option<u64>,
}

/// A thread that got the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which.
    pub thread: u32,
    /// The anchor of the exit at which it had given the processor away; `None` if the crumbs do not go back there.
    pub stopped: Option<usize>,
    /// That is another thread's call, behind which it began.
    pub began: bool,
    /// Something happened between the exit and its going on: its call was answered only then.
    pub answered: bool,
}

impl Anchor {
    /// The number, if it is a system call.
    #[must_use]
    pub fn call(&self) -> Option<u64> {
        match self.exit {
            Exit::Call(number) => Some(number),
            Exit::Machine | Exit::Preempted => None,
        }
    }

    /// Whether an instruction of the path is this exit: a preemption comes between two.
    #[must_use]
    pub fn is_instruction(&self) -> bool {
        self.exit != Exit::Preempted
    }

    /// What retired from it on, its own instruction included, up to the next newer exit.
    #[must_use]
    pub fn retired(&self) -> Option<Retired> {
        let own = u64::from(self.is_instruction());
        self.behind.map(|behind| Retired { instructions: behind.instructions + own, ..behind })
    }
}

/// The anchors of a program: of the thread that crashed, and, where crumbs tell the schedule, of all its threads.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    newest_first: Vec<Anchor>,
    known: usize,
    schedule: bool,
    contexts: Option<Arc<Contexts>>,
    entered: Entered,
}

impl Anchors {
    /// No crumb is known.
    pub const NONE: Anchors = Anchors {
        newest_first: Vec::new(),
        known: 0,
        schedule: false,
        contexts: None,
        entered: Entered { retired: None, back: None },
    };

    /// Of a kernel, which has none: how the processor came to what it runs.
    #[must_use]
    pub fn of_kernel(entered: Entered) -> Anchors {
        Anchors { entered, ..Anchors::NONE }
    }

    /// How the processor came to what a kernel runs, as far as that is known.
    #[must_use]
    pub fn entered(&self) -> Entered {
        self.entered
    }

    /// Those that a core has.
    ///
    /// # Errors
    /// When its crumbs are damaged.
    pub fn of_core(core: &Core) -> Result<Anchors, CrumbsError> {
        let thread = core.threads.first().map_or(0, |(id, _)| id.unsigned_abs());
        let crashed = Crashed { thread, rip: core.state.regs.rip, exact: core.counters.is_some() };
        let Some(crumbs) = core.crumbs()? else { return Ok(Anchors::NONE) };
        Ok(match core.had_threads() && crumbs.preemptions {
            true => schedule::of(&crumbs, crashed),
            false => {
                let anchors = Anchors::of(&crumbs, crashed);
                let known = if core.had_threads() { crumbs.calls_alone(thread) } else { anchors.len() };
                Anchors { known, ..anchors }
            }
        })
    }

    /// The calls of the thread that crashed alone; as far back as no crumb is missing.
    #[must_use]
    pub fn of(crumbs: &Crumbs, crashed: Crashed) -> Anchors {
        let mut newest_first = Vec::new();
        let mut newer: Option<Boundary> = None;
        let mut number = None;
        for Entry { number: n, crumb } in crumbs.entries.iter().rev() {
            if number.is_some_and(|number: u64| number != n + 1) {
                break;
            }
            let is_newest = number.is_none();
            number = Some(*n);
            let of_this = crumb.thread == crashed.thread;
            let counts = crashed.counts(crumb);
            match crumb.exit {
                crumb::Exit::Syscall { number } if of_this => {
                    let adjacent = newer.filter(|newer| newer.event == crumb.event + 1);
                    newest_first.push(Anchor {
                        thread: crumb.thread,
                        exit: Exit::Call(number),
                        rip: crumb.rip,
                        rsp: crumb.rsp,
                        behind: adjacent.zip(counts).and_then(|(newer, counts)| newer.since(&counts)),
                        taken: adjacent.zip(counts).and_then(|(newer, counts)| newer.taken_since(&counts)),
                        turn: None,
                        context: crumb.context,
                    });
                    newer = counts.map(|counts| Boundary { event: crumb.event, counts, has_retired: true });
                }
                crumb::Exit::PageFault { .. } | crumb::Exit::Exception { .. }
                    if of_this && is_newest && crumb.rip == crashed.rip =>
                {
                    newer = counts.map(|counts| Boundary { event: crumb.event, counts, has_retired: false });
                }
                // A page that was not there yet.
                crumb::Exit::PageFault { .. } if of_this => {}
                // Something ran in between that is not of the path, or is not counted as the path counts it.
                _ => newer = None,
            }
        }
        let known = newest_first.len();
        Anchors { newest_first, known, ..Anchors::NONE }
    }

    /// The same, with what their contexts are compared by.
    #[must_use]
    pub fn with_contexts(self, contexts: Contexts) -> Anchors {
        Anchors { contexts: Some(Arc::new(contexts)), ..self }
    }

    /// What contexts are compared by, if they are to be.
    #[must_use]
    pub fn contexts(&self) -> Option<&Contexts> {
        self.contexts.as_deref()
    }

    /// The same, without what was counted.
    #[must_use]
    pub fn without_counts(mut self) -> Anchors {
        self.newest_first.iter_mut().for_each(|anchor| (anchor.behind, anchor.taken) = (None, None));
        self
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.newest_first.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest_first.is_empty()
    }

    /// Whether a call of this number is among them.
    #[must_use]
    pub fn has_call(&self, number: u64) -> bool {
        self.newest_first.iter().any(|anchor| anchor.call() == Some(number))
    }

    /// The anchor behind `passed` newer ones.
    #[must_use]
    pub fn get(&self, passed: usize) -> Option<&Anchor> {
        self.newest_first.get(passed)
    }

    /// Of how many of the newest it is known who ran behind them.
    #[must_use]
    pub fn known(&self) -> usize {
        self.known
    }

    /// Whether they tell when which thread had the processor.
    #[must_use]
    pub fn tell_schedule(&self) -> bool {
        self.schedule
    }
}

/// The thread that crashed.
#[derive(Clone, Copy, Debug)]
pub struct Crashed {
    /// Its id.
    pub thread: u32,
    /// Where it stood.
    pub rip: u64,
    /// The counts of crumbs are exact. Those that a processor's counters gave have errors of their own, and are left out.
    pub exact: bool,
}

impl Crashed {
    /// What had been counted at an exit, if that can be relied on.
    fn counts(&self, crumb: &Crumb) -> Option<Counts> {
        (self.exact || crumb.counts.derived).then_some(crumb.counts)
    }
}

/// A crumb up to which is counted.
#[derive(Clone, Copy)]
struct Boundary {
    event: u64,
    counts: Counts,
    /// Its instruction is among those that are counted, as a call's is.
    has_retired: bool,
}

impl Boundary {
    /// What retired between an older crumb and this one, without their own instructions.
    fn since(self, counts: &Counts) -> Option<Retired> {
        let difference = |of: fn(&Counts) -> Option<u64>| of(&self.counts)?.checked_sub(of(counts)?);
        Some(Retired {
            instructions: difference(|counts| counts.instructions)?
                .checked_sub(u64::from(self.has_retired))?,
            conditional_branches: difference(|counts| counts.conditional_branches)?,
        })
    }

    /// How many branches were taken between them.
    fn taken_since(self, counts: &Counts) -> Option<u64> {
        self.counts.taken_branches?.checked_sub(counts.taken_branches?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lbr::crumb::Exit;

    fn entry(number: u64, thread: u32, exit: Exit, event: u64, instructions: u64) -> Entry {
        let counts = Counts {
            instructions: Some(instructions),
            conditional_branches: Some(instructions / 10),
            ..Counts::default()
        };
        let (rip, rsp) = (0x1000 + number, 0x7000);
        Entry { number, crumb: Crumb { exit, event, thread, rip, rsp, time: None, counts, context: None } }
    }

    fn of(entries: Vec<Entry>) -> Anchors {
        let crashed = Crashed { thread: 7, rip: 0x1005, exact: true };
        Anchors::of(&Crumbs { entries, ..Crumbs::default() }, crashed)
    }

    const WRITE: Exit = Exit::Syscall { number: 1 };
    const FAULT: Exit = Exit::PageFault { address: 0, error_code: 4 };

    #[test]
    fn what_retired_is_known_between_exits_of_one_thread_with_nothing_else_between() {
        let found = of(vec![
            entry(2, 7, WRITE, 0, 100),
            entry(3, 7, FAULT, 1, 130),
            entry(4, 7, WRITE, 1, 150),
            entry(5, 7, FAULT, 2, 170),
        ]);
        let retired = |n| found.get(n).map(Anchor::retired);
        assert_eq!(retired(0), Some(Some(Retired { instructions: 21, conditional_branches: 2 })));
        assert_eq!(retired(1), Some(Some(Retired { instructions: 50, conditional_branches: 5 })));
        assert_eq!(retired(2), None);
        assert_eq!(found.get(1).map(|anchor| (anchor.call(), anchor.rip)), Some((Some(1), 0x1002)));
    }

    #[test]
    fn other_threads_and_events_hide_what_retired_and_a_missing_crumb_all_before_it() {
        let other = of(vec![
            entry(1, 7, WRITE, 0, 50),
            entry(3, 7, WRITE, 1, 100),
            entry(4, 8, WRITE, 2, 150),
            entry(5, 7, FAULT, 3, 170),
        ]);
        assert_eq!((other.len(), other.get(0).and_then(Anchor::retired)), (1, None));
        // An instruction that the personality carries out.
        let read = of(vec![
            entry(2, 7, WRITE, 0, 100),
            entry(3, 7, Exit::MachineRead, 1, 120),
            entry(4, 7, WRITE, 2, 150),
        ]);
        assert_eq!((read.len(), read.get(1).and_then(Anchor::retired)), (2, None));
        let preempted = of(vec![entry(4, 7, WRITE, 0, 100), entry(5, 7, FAULT, 2, 170)]);
        assert_eq!(preempted.get(0).map(Anchor::retired), Some(None));
    }
}
