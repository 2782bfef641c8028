//! When which thread of a program had the processor, by its crumbs.
//!
//! There is one processor, and each time a thread stopped running in the program a crumb was left: at a system call, at an instruction
//! that the personality carries out, at a page fault, or when it was preempted. So what ran between two crumbs is of the thread that
//! left the newer one.
//!
//! Example, oldest first: A calls futex, B calls write, B calls futex, A crashes. Between the two calls of B only B ran, and behind
//! the second only A, which went on where its call had stopped it.

use super::{Anchor, Anchors, Boundary, Crashed, Exit, Turn};
use lbr::crumb::{self, Crumb, Crumbs};

/// The anchors of all threads. They are known up to the first crumb that is missing, or that tells of a signal's handler.
pub(super) fn of(crumbs: &Crumbs, crashed: Crashed) -> Anchors {
    let mut walk = Walk { crashed, newest_first: Vec::new(), events: Vec::new(), known: None };
    let mut newer: Option<Newer> = None;
    for entry in crumbs.entries.iter().rev() {
        if newer.is_some_and(|newer| newer.number != entry.number + 1) {
            break;
        }
        let crumb = &entry.crumb;
        let boundary = walk.take(crumb, newer);
        newer = Some(Newer { number: entry.number, thread: crumb.thread, event: crumb.event, boundary });
    }
    walk.finish()
}

/// The calls that start a thread, which goes on behind them: clone and clone3. Its crumbs do not say by which; it is not told where
/// it is resumed but by where it stands, and libraries have one such call.
const STARTS: [u64; 2] = [56, 435];

/// The crumb that was looked at before.
#[derive(Clone, Copy)]
struct Newer {
    number: u64,
    thread: u32,
    event: u64,
    /// What is counted up to.
    boundary: Option<Boundary>,
}

struct Walk {
    crashed: Crashed,
    newest_first: Vec<Anchor>,
    /// For each of them, whether an event began between it and the next newer crumb that is not its own.
    events: Vec<bool>,
    /// So many are known, if something was found that ends them.
    known: Option<usize>,
}

impl Walk {
    /// Looks at a crumb, and gives what is counted up to from here on.
    fn take(&mut self, crumb: &Crumb, newer: Option<Newer>) -> Option<Boundary> {
        let behind = newer.map_or(self.crashed.thread, |newer| newer.thread);
        let counts = self.crashed.counts(crumb);
        let boundary = |has_retired| Some(Boundary { event: crumb.event, counts: counts?, has_retired });
        let up_to = newer.and_then(|newer| newer.boundary);
        let exit = match crumb.exit {
            crumb::Exit::Syscall { number } => Exit::Call(number),
            crumb::Exit::MachineRead => Exit::Machine,
            crumb::Exit::Preempted if crumb.thread != behind => Exit::Preempted,
            // It went on itself, or a page was not there yet.
            crumb::Exit::Preempted => return up_to,
            crumb::Exit::PageFault { .. } | crumb::Exit::Exception { .. }
                if newer.is_none() && crumb.thread == behind && crumb.rip == self.crashed.rip =>
            {
                return boundary(false);
            }
            crumb::Exit::PageFault { .. } if crumb.thread == behind => return up_to,
            _ => {
                self.known.get_or_insert(self.newest_first.len());
                return None;
            }
        };
        let retired = up_to.zip(counts).and_then(|(newer, counts)| newer.since(&counts));
        let taken = up_to.zip(counts).and_then(|(newer, counts)| newer.taken_since(&counts));
        let turn = Turn { thread: behind, stopped: None, began: false, answered: false };
        self.newest_first.push(Anchor {
            thread: crumb.thread,
            exit,
            rip: crumb.rip,
            rsp: crumb.rsp,
            behind: retired,
            taken,
            context: crumb.context,
            turn: (crumb.thread != behind).then_some(turn),
        });
        self.events.push(newer.is_none_or(|newer| newer.event > crumb.event + 1));
        boundary(matches!(exit, Exit::Call(_)))
    }

    /// Finds where each thread that got the processor had stopped.
    fn finish(mut self) -> Anchors {
        let exits: Vec<(u32, Exit)> =
            self.newest_first.iter().map(|anchor| (anchor.thread, anchor.exit)).collect();
        let starts = |exit| matches!(exit, Exit::Call(number) if STARTS.contains(&number));
        for (n, anchor) in self.newest_first.iter_mut().enumerate() {
            if let Some(turn) = &mut anchor.turn {
                let mut older = n + 1..exits.len();
                turn.stopped = older.clone().find(|&older| exits[older].0 == turn.thread);
                turn.began = turn.stopped.is_none();
                turn.stopped = turn.stopped.or_else(|| older.find(|&older| starts(exits[older].1)));
                turn.answered = self.events[n];
            }
        }
        let known = self.known.unwrap_or(self.newest_first.len());
        Anchors { newest_first: self.newest_first, known, schedule: true, ..Anchors::NONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Retired;
    use lbr::crumb::{Counts, Entry};

    const CALL: crumb::Exit = crumb::Exit::Syscall { number: 202 };
    const FAULT: crumb::Exit = crumb::Exit::PageFault { address: 0, error_code: 4 };

    /// Crumbs with consecutive numbers: the thread, the exit, the events before, the instructions so far.
    fn of_all(all: &[(u32, crumb::Exit, u64, u64)]) -> Anchors {
        let entry = |(number, &(thread, exit, event, instructions))| {
            let counts = Counts {
                instructions: Some(instructions),
                conditional_branches: Some(0),
                ..Counts::default()
            };
            let (rip, rsp) = (0x1000 + number, 0x7000);
            Entry {
                number,
                crumb: Crumb { exit, event, thread, rip, rsp, time: None, counts, context: None },
            }
        };
        let entries: Vec<Entry> = (1..).zip(all).map(entry).collect();
        let rip = entries.last().map_or(0, |entry| entry.crumb.rip);
        let crumbs = Crumbs { entries, preemptions: true, ..Crumbs::default() };
        of(&crumbs, Crashed { thread: 7, rip, exact: true })
    }

    fn behind(instructions: u64) -> Option<Retired> {
        Some(Retired { instructions, conditional_branches: 0 })
    }

    #[test]
    fn a_thread_goes_on_where_its_last_exit_had_stopped_it() {
        // A (7) waits, B (8) writes and preempts nobody, B gives way, A is answered and crashes.
        let found = of_all(&[(7, CALL, 0, 10), (8, CALL, 1, 30), (8, CALL, 2, 35), (7, FAULT, 4, 40)]);
        assert_eq!((found.len(), found.known(), found.tell_schedule()), (3, 3, true));
        let turns: Vec<_> = (0..3).map(|n| found.get(n).and_then(|anchor| anchor.turn)).collect();
        let a = Turn { thread: 7, stopped: Some(2), began: false, answered: true };
        // Where B had stopped before, no crumb says.
        let b = Turn { thread: 8, stopped: None, began: true, answered: false };
        assert_eq!(turns, [Some(a), None, Some(b)]);
        let counted: Vec<_> = (0..3).map(|n| found.get(n).and_then(|anchor| anchor.behind)).collect();
        assert_eq!(counted, [behind(5), behind(4), behind(19)]);
    }

    #[test]
    fn a_thread_without_an_older_exit_began_behind_a_clone() {
        let clone = crumb::Exit::Syscall { number: 435 };
        let found = of_all(&[(8, clone, 0, 10), (8, CALL, 1, 30), (7, FAULT, 2, 40)]);
        let turn = Turn { thread: 7, stopped: Some(1), began: true, answered: false };
        assert_eq!(found.get(0).and_then(|anchor| anchor.turn), Some(turn));
    }

    #[test]
    fn a_preemption_is_an_anchor_where_another_thread_takes_over() {
        let preempted = crumb::Exit::Preempted;
        let found =
            of_all(&[(8, preempted, 0, 10), (7, preempted, 1, 20), (7, CALL, 2, 25), (7, FAULT, 3, 40)]);
        let exits: Vec<_> = (0..found.len()).filter_map(|n| found.get(n)).collect();
        let exits: Vec<_> = exits.iter().map(|anchor| (anchor.thread, anchor.exit, anchor.behind)).collect();
        assert_eq!(exits, [(7, Exit::Call(202), behind(15)), (8, Exit::Preempted, behind(14))]);
    }

    #[test]
    fn what_is_behind_a_handler_or_a_missing_crumb_is_not_known() {
        let handled = crumb::Exit::Exception { vector: 0, error_code: 0 };
        let found = of_all(&[(7, CALL, 0, 10), (7, handled, 1, 20), (7, CALL, 2, 25), (7, FAULT, 3, 40)]);
        assert_eq!((found.len(), found.known()), (2, 1));
        assert_eq!(found.get(1).and_then(|anchor| anchor.behind), None);
        // A page fault that gave the processor away without a crumb of its own.
        let gave_way = of_all(&[(7, CALL, 0, 10), (8, FAULT, 1, 20), (7, CALL, 2, 25), (7, FAULT, 3, 40)]);
        assert_eq!((gave_way.len(), gave_way.known()), (2, 1));
    }
}
