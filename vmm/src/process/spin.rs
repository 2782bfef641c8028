//! Tasks that wait by looking: one that comes round to the same state without having stored anything will do so until another
//! task stores something, and so it gives its processor away. So does one whose loop only counts its turns.
//!
//! While recording on a processor that counts, now and then a task that others wait behind, or that waits for what comes from
//! outside, is followed for some turns of its loop, if it is in one. A task that was kicked, since it ran for long without an exit,
//! is looked at before it runs on a processor that is kicked again: there a preemption costs a digest of the memory. Nothing of this
//! is decided again at replay: the journal has the preemption, with its count.
//!
//! Example: `while (!flag);` is `mov eax, [flag]; test eax, eax; jz`. Its slice would be millions of instructions; after 4,096 of
//! them it is seen to stand where it stood three instructions before, with the same registers, and the task that sets the flag
//! runs. `for (i = 0; i < 1000000 && !flag; i++);` never has the same registers: what it accesses is the same in each turn. It may
//! be computing, so the looks at it come later and later if giving way was in vain. A loop that locks by XCHG keeps its slice.

use super::turn::Turn;
use super::{Process, ProcessError, Step};
use crate::engine::{Exit, Until};
use crate::position::Offset;
use std::collections::BTreeMap;

/// Instructions behind an event before the first look at a task that has spun before,
const FIRST: u64 = 1 << 12;
/// and so many doublings more at one that never has: most never do, and each look costs as much as some thousand instructions.
const NEVER_SPUN: u32 = 3;
/// Instructions of a turn at most.
const TURN: u64 = 1 << 9;
/// The first look comes at most so many doublings later, while nobody gets on.
const MOST_DOUBLINGS: u32 = 10;
/// A task that was kicked is looked at again after so many further kicks at most, where the looks were in vain.
const MOST_KICKS: u32 = 1 << 10;
/// A task that was kicked is believed to compute when a look so many instructions behind an event says so,
const HONEST: u64 = 1 << 20;
/// or so many looks one after the other, of one that never gave way and of one that did: a task that works and waits in turns is
/// found at either.
const AT_WORK: u32 = 16;
const AT_WORK_AGAIN: u32 = 256;
/// Of more tasks than this nothing is kept.
const MOST_TASKS: usize = 4096;

/// When to look.
#[derive(Default)]
pub(super) struct Spin {
    /// The last look was so many instructions behind the event that the segment begins with; zero before the first.
    looked: u64,
    /// So many tasks gave the processor away one after the other, and none of them had stored anything.
    idle: u32,
    tasks: BTreeMap<i32, Looks>,
}

/// What the looks at a task have shown.
#[derive(Default)]
struct Looks {
    /// The loop that counted its turns when it gave way last.
    counting: Option<Turn>,
    /// So often it was still in that loop when it was looked at again.
    in_vain: u32,
    /// It was kicked, and is to be looked at on a processor that counts.
    is_suspect: bool,
    /// It gave way since it was last believed to compute; and ever.
    has_spun: bool,
    ever_spun: bool,
    /// So many looks, one after the other, found it at work.
    at_work: u32,
    /// So many more kicks pass before that; and so many will after the next look in vain.
    kicks_left: u32,
    kicks_next: u32,
}

impl Looks {
    fn kicked(&mut self) {
        self.is_suspect |= self.kicks_left == 0;
        self.kicks_left = self.kicks_left.saturating_sub(1);
    }

    fn found(&mut self) {
        (self.has_spun, self.ever_spun) = (true, true);
        (self.at_work, self.kicks_next) = (0, 1);
    }

    fn trusted(&mut self) {
        if self.is_suspect {
            (self.is_suspect, self.has_spun, self.at_work) = (false, false, 0);
            self.kicks_left = self.kicks_next.max(1);
            self.kicks_next = (self.kicks_left * 2).min(MOST_KICKS);
        }
    }

    /// A look so many instructions behind an event found it at work.
    fn does_not_spin(&mut self, looked: u64) {
        (self.counting, self.in_vain) = (None, 0);
        self.at_work = self.at_work.saturating_add(1);
        let enough = if self.has_spun { AT_WORK_AGAIN } else { AT_WORK };
        if looked >= HONEST || self.at_work >= enough {
            self.trusted();
        }
    }

    /// It is in a loop that counts its turns.
    fn found_counting(&mut self, turn: Turn) {
        let goes_on = self.counting.as_ref().is_some_and(|before| turn.goes_on_from(before));
        self.in_vain = if goes_on { self.in_vain + 1 } else { 0 };
        self.counting = Some(turn);
    }
}

impl Spin {
    /// A segment begins: it has not been looked at.
    pub(super) fn segment_begins(&mut self) {
        self.looked = 0;
    }

    /// Another processor runs, or has run, whose stores are not seen: others may have got on.
    pub(super) fn nothing_is_known(&mut self) {
        self.idle = 0;
    }

    /// A task ran for long without an exit, and was kicked.
    pub(super) fn kicked(&mut self, task: i32) {
        self.looks(task).kicked();
    }

    /// What the looks at a task have shown so far.
    fn looks(&mut self, task: i32) -> &mut Looks {
        if self.tasks.len() > MOST_TASKS && !self.tasks.contains_key(&task) {
            self.tasks.clear();
        }
        self.tasks.entry(task).or_default()
    }

    /// Whether a task is to run on a processor that counts until it was looked at.
    pub(super) fn suspects(&self, task: i32) -> bool {
        self.tasks.get(&task).is_some_and(|looks| looks.is_suspect)
    }

    /// How far behind the event the next look at a task is.
    fn next(&self, task: i32) -> u64 {
        let (in_vain, later) = match self.tasks.get(&task) {
            Some(looks) if looks.ever_spun => (looks.in_vain, 0),
            Some(looks) => (looks.in_vain, NEVER_SPUN),
            None => (0, NEVER_SPUN),
        };
        let first = FIRST << self.idle.max(in_vain).max(later).min(MOST_DOUBLINGS);
        if self.looked == 0 { first } else { self.looked.saturating_mul(2) }
    }
}

impl Process {
    /// The retired count at which to look whether the task spins, if that is before its slice ends.
    pub(super) fn spin_bound(&self, until: Until, slice_ends: u64) -> Option<u64> {
        if until != Until::Exit || self.kernel.tasks.slices_are_random() {
            return None;
        }
        let next = self.retired_at_event.saturating_add(self.pace.spin.next(self.kernel.tasks.id()));
        (next < slice_ends).then_some(next)
    }

    /// Follows the task for a turn, and preempts it if that led nowhere.
    pub(super) fn look_for_spin(&mut self) -> Result<Step, ProcessError> {
        let (retired, regs, fpu) = (self.retired(), *self.machine.cpu.regs(), self.machine.cpu.fpu()?);
        self.pace.spin.looked = retired - self.retired_at_event;
        let had_stored = self.has_stored();
        // Not by registers: code would be compiled for a few hundred instructions.
        let until = Until::AtOrRetired(regs.rip, retired + TURN);
        let mut comes_round = false;
        loop {
            match self.execute(until)? {
                Exit::Budget if *self.machine.cpu.regs() == regs => break,
                Exit::Budget if self.retired() < retired + TURN => comes_round = true,
                Exit::Budget if comes_round => return self.look_for_counting(had_stored),
                Exit::Budget => return Ok(self.does_not_spin()),
                Exit::Kicked => return self.kicked(u64::MAX),
                exit => return self.serve_exit(exit),
            }
        }
        if self.has_stored() || self.machine.cpu.fpu()? != fpu {
            return Ok(self.does_not_spin());
        }
        let looks = self.pace.spin.looks(self.kernel.tasks.id());
        (looks.counting, looks.in_vain) = (None, 0);
        self.gives_way(had_stored)
    }

    /// Follows the task for two turns, and preempts it if they went by the same instructions and accessed the same.
    fn look_for_counting(&mut self, had_stored: bool) -> Result<Step, ProcessError> {
        let mut turns = Vec::new();
        while turns.len() < 2 {
            let mut turn = Turn::begin(self.machine.cpu.regs());
            loop {
                let mut code = [0; 15];
                let rip = self.machine.cpu.regs().rip;
                let fetched = (1..=code.len()).rev().find(|len| self.read_memory(rip, &mut code[..*len]));
                if !turn.step(self.machine.cpu.regs(), &code[..fetched.unwrap_or(0)]) {
                    return Ok(self.does_not_spin());
                }
                match self.execute(Until::Retired(self.retired() + 1))? {
                    Exit::Budget => {}
                    Exit::Kicked => return self.kicked(u64::MAX),
                    exit => return self.serve_exit(exit),
                }
                if turn.ends_at(self.machine.cpu.regs()) {
                    break;
                }
            }
            turns.push(turn);
        }
        let is_same = turns[0].is_like(&turns[1]);
        match turns.pop() {
            Some(turn) if is_same && !self.has_stored() => {
                self.pace.spin.looks(self.kernel.tasks.id()).found_counting(turn);
                self.gives_way(had_stored)
            }
            _ => Ok(self.does_not_spin()),
        }
    }

    fn does_not_spin(&mut self) -> Step {
        let spin = &mut self.pace.spin;
        if let Some(looks) = spin.tasks.get_mut(&self.kernel.tasks.id()) {
            looks.does_not_spin(spin.looked);
        }
        Step::Running
    }

    fn gives_way(&mut self, had_stored: bool) -> Result<Step, ProcessError> {
        let spin = &mut self.pace.spin;
        spin.idle = if had_stored { 0 } else { spin.idle + 1 };
        if let Some(looks) = spin.tasks.get_mut(&self.kernel.tasks.id()) {
            if spin.idle.max(looks.in_vain) < MOST_DOUBLINGS { looks.found() } else { looks.trusted() }
        }
        self.preempted(Offset::Retired(self.retired() - self.retired_at_event))
    }

    /// Whether the processor has stored anything since this was asked before.
    fn has_stored(&mut self) -> bool {
        self.machine.cpu.take_written().is_none_or(|frames| !frames.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: i32 = 1;

    #[test]
    fn a_task_that_was_kicked_in_vain_is_looked_at_ever_more_rarely() {
        let mut spin = Spin::default();
        let mut looks = 0;
        for _ in 0..1000 {
            spin.kicked(TASK);
            if spin.suspects(TASK) {
                looks += 1;
                spin.tasks.get_mut(&TASK).unwrap().trusted();
            }
        }
        assert!((5..15).contains(&looks), "{looks}");
    }

    #[test]
    fn a_task_that_never_spun_is_looked_at_later() {
        let mut spin = Spin::default();
        assert_eq!(spin.next(TASK), FIRST << NEVER_SPUN);
        spin.looks(TASK).found();
        assert_eq!(spin.next(TASK), FIRST);
        spin.looks(TASK).trusted();
        assert_eq!(spin.next(TASK), FIRST, "it has spun before");
    }

    /// As redis's main thread: found between two waits, it is not believed to compute.
    #[test]
    fn a_task_that_is_found_at_work_now_and_then_stays_suspect() {
        let mut looks = Looks::default();
        looks.kicked();
        for _ in 0..100 {
            (0..AT_WORK - 1).for_each(|_| looks.does_not_spin(FIRST));
            looks.found();
        }
        assert!(looks.is_suspect);
        (0..AT_WORK_AGAIN).for_each(|_| looks.does_not_spin(FIRST));
        assert!(!looks.is_suspect);
        looks.kicked();
        looks.kicked();
        assert!(looks.is_suspect, "it gave way before: two kicks are enough");
        looks.does_not_spin(HONEST);
        assert!(!looks.is_suspect);
    }
}
