//! Another thread had the processor before: a switch, prepended to a path.
//!
//! Memory is one, and goes on. The registers of the thread that is left are kept until the path comes to it again; those of the thread
//! that is gone over to are the ones kept for it, or, if it has not run since, the core's.
//!
//! A call that waits spans the switch. Its instruction retired before others ran, and its result and what the kernel wrote came when
//! the thread went on: so its effects are taken back where the thread is left, and its instruction is prepended where the path comes to
//! its crumb.

use super::hypothesis::{Call, Hypothesis, Refusal};
use super::prepared::{Effect, Prepared};
use super::snapshot::Snapshot;
use crate::evidence::{Anchor, Exit, Turn};
use crate::term::Term;
use std::rc::Rc;
use x86::op::Gpr;

/// A thread that the path has left, on its way back, at a switch.
pub(super) struct Left {
    /// Which.
    thread: u32,
    /// The step of the switch.
    step: u32,
    /// Where it goes on.
    rip: u64,
    /// As it went on.
    after: Rc<Snapshot>,
    /// As it was before the call in which it waited; `None` if it waited in none.
    before: Option<Rc<Snapshot>>,
}

/// How the thread that a path has gone over to stands behind its exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// What the exit did is still to be taken back.
    Behind,
    /// It was taken back where the thread went on.
    Before,
    /// The exit is a call that waits in the core.
    Waits,
}

/// How a thread stands at the start of a path, other than the one that runs there.
pub struct Stands {
    /// Which.
    pub thread: u32,
    /// Where it goes on.
    pub rip: u64,
    /// Its registers: as it goes on, but for the number in rax if it waits in a call.
    pub registers: Snapshot,
    /// The number of the call in which it waits.
    pub waits: Option<Term>,
}

impl Hypothesis<'_> {
    /// How many of the steps are instructions.
    #[must_use]
    pub fn instructions(&self) -> usize {
        // Each switch has left a thread.
        self.path.len() - self.left.len() - self.delivered.len()
    }

    /// Where a thread stands that the path may go over to; `None` if nothing is known of it.
    #[must_use]
    pub fn stands_at(&self, thread: u32) -> Option<u64> {
        let left = self.left.iter().rev().find(|left| left.thread == thread);
        left.map(|left| left.rip).or_else(|| self.image.thread(thread).map(|state| state.regs.rip))
    }

    /// The other threads that the oldest `depth` steps come to, as they stand at the start of these.
    #[must_use]
    pub fn others_at(&self, depth: usize) -> Vec<Stands> {
        let runs = self.path[..depth].last().map(|step| step.thread);
        let mut found: Vec<Stands> = Vec::new();
        let within = self.left.iter().rev().filter(|left| left.step as usize <= depth);
        for left in within.filter(|left| Some(left.thread) != runs) {
            if found.iter().any(|known| known.thread == left.thread) {
                continue;
            }
            let rax = usize::from(Gpr::RAX.0);
            found.push(Stands {
                thread: left.thread,
                rip: left.rip,
                registers: Snapshot::clone(&left.after),
                waits: left.before.as_ref().map(|before| before.gpr[rax]),
            });
        }
        found.sort_by_key(|stands| stands.thread);
        found
    }

    /// Why the path does not go past an exit, if it is not known who ran behind it.
    pub(super) fn unknown_behind(&self, prepared: &Prepared) -> Option<&'static str> {
        if !self.image.is_shared() {
            return None;
        }
        let anchors = self.image.anchors();
        let is_call = matches!(prepared.effect, Effect::Syscall);
        let known = self.place.passed < anchors.known() && (is_call || anchors.tell_schedule());
        let Some(anchor) = anchors.get(self.place.passed).filter(|_| known) else {
            return Some("another thread may have run here");
        };
        let pending = anchor.turn.filter(|_| !self.place.switched);
        pending.map(|turn| match turn.stopped {
            None => "a thread that went on where the crumbs do not tell",
            Some(_) => "another thread ran here",
        })
    }

    /// An instruction was prepended: it may be the exit of the next anchor.
    pub(super) fn pass_exit(&mut self, prepared: &Prepared) {
        let is_call = matches!(prepared.effect, Effect::Syscall);
        if is_call || prepared.yields && self.image.anchors().tell_schedule() {
            self.pass_anchor();
        }
    }

    fn pass_anchor(&mut self) {
        self.place.passed += 1;
        self.place.switched = false;
        self.place.standing = Standing::Behind;
    }

    /// Prepends a switch: the thread of the next anchor ran before the one that the path is in.
    pub(super) fn prepend_switch(&mut self, prepared: &Prepared) -> Result<(), Refusal> {
        const NOT_THERE: Refusal = Refusal::Barrier("a switch that the crumbs do not have");
        let anchors = self.image.anchors();
        let next = *anchors.get(self.place.passed).ok_or(NOT_THERE)?;
        let turn = next.turn.filter(|_| !self.place.switched).ok_or(NOT_THERE)?;
        let stopped = *turn.stopped.and_then(|stopped| anchors.get(stopped)).ok_or(NOT_THERE)?;
        self.leave(&stopped, &turn)?;
        let entered = self.enter(&next, prepared.address())?;
        self.snapshots.push(entered);
        self.place.thread = next.thread;
        if next.is_instruction() {
            self.place.switched = true;
        } else {
            self.pass_anchor();
        }
        Ok(())
    }

    /// Keeps the thread that the path is in, which had stopped at this exit, or begins behind it.
    fn leave(&mut self, stopped: &Anchor, turn: &Turn) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        let (register, value) = if turn.began { (Gpr::RAX, 0) } else { (Gpr::RSP, stopped.rsp) };
        self.facts.equate(&terms, after.gpr[usize::from(register.0)], terms.lit_term(64, value))?;
        let (step, thread, rip) = (self.step() + 1, self.place.thread, self.start());
        let before = match stopped.exit {
            Exit::Call(number) if turn.answered && !turn.began => {
                let before = self.before_call(&after, number, stopped.rip)?;
                let result = after.gpr[usize::from(Gpr::RAX.0)];
                let writes = self.kernel_writes(step, number, &before, result)?;
                self.calls.push(Call { step, number, result, writes, late: true });
                Some(Rc::new(before))
            }
            Exit::Call(_) | Exit::Machine | Exit::Preempted => None,
        };
        self.left.push(Left { thread, step, rip, after: Rc::new(after), before });
        Ok(())
    }

    /// The registers of the thread of this exit, which stands at `rip` behind it.
    fn enter(&mut self, exit: &Anchor, rip: u64) -> Result<Snapshot, Refusal> {
        let rax = usize::from(Gpr::RAX.0);
        if let Some(left) = self.left.iter().rev().find(|left| left.thread == exit.thread) {
            let standing = if left.before.is_some() { Standing::Before } else { Standing::Behind };
            self.place.standing = standing;
            return Ok(Snapshot::clone(left.before.as_ref().unwrap_or(&left.after)));
        }
        let Some(state) = self.image.thread(exit.thread) else {
            return Err(Refusal::Barrier("a thread that has ended since, or another process, ran here"));
        };
        let is_there = match exit.exit {
            Exit::Machine => state.regs.rip == rip,
            Exit::Call(_) | Exit::Preempted => state.regs.rip == exit.rip,
        };
        if !is_there || state.regs.gpr[usize::from(Gpr::RSP.0)] != exit.rsp {
            return Err(Refusal::Barrier("a thread that stands elsewhere than its crumb says"));
        }
        let waits = exit.call().is_some_and(|number| number == state.regs.gpr[rax]);
        self.place.standing = if waits { Standing::Waits } else { Standing::Behind };
        Ok(Snapshot::of_state(&self.terms, state))
    }
}
