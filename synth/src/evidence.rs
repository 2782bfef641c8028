//! What a core knows of the past by its crumbs: the system calls of the thread that crashed, newest first.
//!
//! Each system call left a crumb, so a path that ends in the core makes exactly these calls, in this order, each at its
//! address and with its stack pointer. Where the engine counted, and nothing else happened in between, it is known how
//! many instructions retired from one to the next. Other exits are no anchors: which page faults and which instructions
//! that the personality carries out leave crumbs depends on the engine.

use lbr::crumb::{Counts, Crumbs, CrumbsError, Entry, Exit};
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

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its number.
    pub number: u64,
    /// The address of the instruction behind it.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// What retired behind it, up to the next newer call or the crash, if that is known; itself included.
    pub retired: Option<Retired>,
}

/// The anchors of the thread that crashed.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    newest_first: Vec<Anchor>,
    calls_alone: usize,
}

impl Anchors {
    /// No crumb is known.
    pub const NONE: Anchors = Anchors { newest_first: Vec::new(), calls_alone: 0 };

    /// Those that a core has.
    ///
    /// # Errors
    /// When its crumbs are damaged.
    pub fn of_core(core: &Core) -> Result<Anchors, CrumbsError> {
        let thread = core.threads.first().map_or(0, |(id, _)| id.unsigned_abs());
        let exact = core.counters.is_some();
        let crumbs = core.crumbs()?;
        Ok(crumbs.map_or(Anchors::NONE, |it| Anchors::of(&it, thread, core.state.regs.rip, exact)))
    }

    /// Those of `thread`, which crashed at `rip`; as far back as no crumb is missing. Counts that a processor's counters gave
    /// have errors of their own, and are left out, unless the engine was `exact`.
    #[must_use]
    pub fn of(crumbs: &Crumbs, thread: u32, rip: u64, exact: bool) -> Anchors {
        let mut newest_first = Vec::new();
        let mut newer: Option<Boundary> = None;
        let mut number = None;
        for Entry { number: n, crumb } in crumbs.entries.iter().rev() {
            if number.is_some_and(|number: u64| number != n + 1) {
                break;
            }
            let is_newest = number.is_none();
            number = Some(*n);
            let of_this = crumb.thread == thread;
            let counts = (exact || crumb.counts.derived).then_some(crumb.counts);
            match crumb.exit {
                Exit::Syscall { number } if of_this => {
                    let retired =
                        newer.zip(counts).and_then(|(newer, counts)| newer.since(crumb.event, &counts));
                    newest_first.push(Anchor { number, rip: crumb.rip, rsp: crumb.rsp, retired });
                    newer = counts.map(|counts| Boundary { event: crumb.event, counts, has_retired: true });
                }
                Exit::PageFault { .. } | Exit::Exception { .. }
                    if of_this && is_newest && crumb.rip == rip =>
                {
                    newer = counts.map(|counts| Boundary { event: crumb.event, counts, has_retired: false });
                }
                // A page that was not there yet.
                Exit::PageFault { .. } if of_this => {}
                // Something ran in between that is not of the path, or is not counted as the path counts it.
                _ => newer = None,
            }
        }
        Anchors { newest_first, calls_alone: crumbs.calls_alone(thread) }
    }

    /// The same, without what was counted.
    #[must_use]
    pub fn without_counts(mut self) -> Anchors {
        self.newest_first.iter_mut().for_each(|anchor| anchor.retired = None);
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
        self.newest_first.iter().any(|anchor| anchor.number == number)
    }

    /// The anchor behind `passed` newer ones.
    #[must_use]
    pub fn get(&self, passed: usize) -> Option<&Anchor> {
        self.newest_first.get(passed)
    }

    /// Of how many of the newest calls it is known that no other thread ran behind them.
    #[must_use]
    pub fn calls_alone(&self) -> usize {
        self.calls_alone
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
    /// What retired from the instruction of an older crumb, that included, to this one's, that not; if nothing else happened
    /// in between.
    fn since(self, event: u64, counts: &Counts) -> Option<Retired> {
        if self.event != event + 1 {
            return None;
        }
        let difference = |of: fn(&Counts) -> Option<u64>| of(&self.counts)?.checked_sub(of(counts)?);
        Some(Retired {
            instructions: difference(|counts| counts.instructions)? + u64::from(!self.has_retired),
            conditional_branches: difference(|counts| counts.conditional_branches)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lbr::crumb::Crumb;

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
        Anchors::of(&Crumbs { entries, ..Crumbs::default() }, 7, 0x1005, true)
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
        let retired = |n| found.get(n).map(|anchor| anchor.retired);
        assert_eq!(retired(0), Some(Some(Retired { instructions: 21, conditional_branches: 2 })));
        assert_eq!(retired(1), Some(Some(Retired { instructions: 50, conditional_branches: 5 })));
        assert_eq!(retired(2), None);
        assert_eq!(found.get(1).map(|anchor| (anchor.number, anchor.rip)), Some((1, 0x1002)));
    }

    #[test]
    fn other_threads_and_events_hide_what_retired_and_a_missing_crumb_all_before_it() {
        let other = of(vec![
            entry(1, 7, WRITE, 0, 50),
            entry(3, 7, WRITE, 1, 100),
            entry(4, 8, WRITE, 2, 150),
            entry(5, 7, FAULT, 3, 170),
        ]);
        assert_eq!((other.len(), other.get(0).and_then(|anchor| anchor.retired)), (1, None));
        // An instruction that the personality carries out.
        let read = of(vec![
            entry(2, 7, WRITE, 0, 100),
            entry(3, 7, Exit::MachineRead, 1, 120),
            entry(4, 7, WRITE, 2, 150),
        ]);
        assert_eq!((read.len(), read.get(1).and_then(|anchor| anchor.retired)), (2, None));
        let preempted = of(vec![entry(4, 7, WRITE, 0, 100), entry(5, 7, FAULT, 2, 170)]);
        assert_eq!(preempted.get(0).map(|anchor| anchor.retired), Some(None));
    }
}
