//! An instruction prepended to a path: what it computed is what is found behind it.

use super::hypothesis::{Hypothesis, Refusal};
use super::machine::{Access, StepMachine};
use super::prepared::{Effect, Prepared};
use super::snapshot::Snapshot;
use crate::term::{Node, Term};
use std::rc::Rc;
use x86::domain::Cmp;
use x86::flags::Flag;
use x86::machine::{Exec, Flow, Trap};
use x86::op::{Condition, Gpr, Rep};

/// The exception masks of the x87 control word (SDM volume 1, 8.1.5).
const ALL_MASKS: u64 = 0x3f;
/// Where the snapshot has the control word and the status word.
const CONTROL: usize = 1;
const STATUS: usize = 2;
/// Why a predecessor is none.
const GOES_ELSEWHERE: &str = "an instruction that does not go there";

impl Hypothesis<'_> {
    /// Prepends an instruction that ran and went on to `next`.
    pub(super) fn prepend_instruction(&mut self, prepared: &Prepared, next: u64) -> Result<(), Refusal> {
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        self.require_masked(prepared, &after)?;
        let mut before = after.before(&self.terms, &prepared.written, prepared.top_change);
        let mut machine = StepMachine::new(Rc::clone(&self.terms), before.clone());
        self.require_count(prepared, &machine)?;
        let flow = match prepared.effect {
            Effect::Body(body) => body(&mut machine, &prepared.op).map(|()| None),
            Effect::Last(last) => last(&mut machine, &prepared.op).map(Some),
            Effect::Skip
            | Effect::Syscall
            | Effect::Asks
            | Effect::Switch
            | Effect::Signal
            | Effect::Barrier(_) => {
                return Err(Refusal::Barrier("not an instruction to run"));
            }
        };
        self.require_flow(prepared, flow, next)?;
        if machine.now.x87_top != after.x87_top {
            return Err(Refusal::Barrier("an x87 exception that is not masked"));
        }
        if machine.conditional_access {
            return Err(Refusal::Barrier("a masked access whose mask is not known"));
        }
        for &assumption in &machine.assumptions {
            self.facts.assert(&self.terms, assumption)?;
        }
        self.equate_registers(&machine, &after)?;
        if prepared.written.flags && after.flags_observed {
            self.equate_flags(&machine, &after)?;
        }
        before.flags_observed |= machine.flags_read.get();
        self.snapshots.push(before);
        let step = self.step() + 1;
        let (stores, loads): (Vec<Access>, Vec<Access>) = machine.accesses.iter().partition(|a| a.store);
        // Stores first: a load of the same instruction sees what the store is about to destroy.
        for (number, access) in (0..).zip(stores.into_iter().chain(loads)) {
            self.access(step, number, access)?;
        }
        Ok(())
    }

    /// Prepends a repeated string instruction whose count was zero: nothing changed.
    pub(super) fn prepend_skip(&mut self, prepared: &Prepared, next: u64) -> Result<(), Refusal> {
        if prepared.op.next != next {
            return Err(self.facts.impossible(GOES_ELSEWHERE).into());
        }
        let before = self.snapshots.last().expect("the core's snapshot").clone();
        let has_ended = self.has_ended(prepared, &before);
        self.snapshots.push(before);
        Ok(self.facts.assert(&self.terms, has_ended)?)
    }

    /// An x87 instruction that raises an exception which is not masked retires, and leaves its result and the stack as they were.
    fn require_masked(&self, prepared: &Prepared, after: &Snapshot) -> Result<(), Refusal> {
        let may_raise = prepared.written.controls >> STATUS & 1 == 1;
        let masks = self.terms.value(after.controls[CONTROL]).unwrap_or(ALL_MASKS) & ALL_MASKS;
        if may_raise && masks != ALL_MASKS {
            return Err(Refusal::Barrier("an x87 exception that is not masked"));
        }
        Ok(())
    }

    /// A repeated string instruction that ran an iteration had rcx != 0.
    fn require_count(&mut self, prepared: &Prepared, machine: &StepMachine) -> Result<(), Refusal> {
        if prepared.op.rep == Rep::None {
            return Ok(());
        }
        let has_ended = self.has_ended(prepared, &machine.now);
        Ok(self.facts.assert(&self.terms, self.terms.build_not(has_ended))?)
    }

    /// Whether the count of a repeated string instruction is zero.
    fn has_ended(&self, prepared: &Prepared, at: &Snapshot) -> Term {
        let width = if prepared.op.mem.addr32 { 32 } else { 64 };
        let count = self.terms.build_extract(0, width, at.gpr[usize::from(Gpr::RCX.0)]);
        self.terms.build_cmp(Cmp::Eq, count, self.terms.lit_term(width, 0))
    }

    /// Control went to `next`.
    fn require_flow(
        &mut self,
        prepared: &Prepared,
        flow: Exec<Option<Flow<Term, Term>>>,
        next: u64,
    ) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let falls_through = prepared.op.next == next;
        let holds = match flow {
            Err(Trap::Infeasible) | Ok(None) if !falls_through => {
                return Err(self.facts.impossible(GOES_ELSEWHERE).into());
            }
            Err(_) => return Err(self.facts.impossible("an instruction that traps").into()),
            Ok(None) => return Ok(()),
            Ok(Some(Flow::Jump(to))) => {
                // Where a direct jump goes is no news.
                let known = terms.lit_term(64, next);
                self.facts.without_agreement(|facts| facts.equate(&terms, to, known))?;
                return Ok(());
            }
            Ok(Some(Flow::Branch { taken, to })) => match (to == next, falls_through) {
                (true, true) => return Ok(()),
                (true, false) => taken,
                (false, true) => terms.build_not(taken),
                (false, false) => return Err(self.facts.impossible(GOES_ELSEWHERE).into()),
            },
            Ok(Some(Flow::Repeat { again })) if next == prepared.address() => again,
            Ok(Some(Flow::Repeat { again })) if falls_through => terms.build_not(again),
            Ok(Some(_)) => return Err(self.facts.impossible(GOES_ELSEWHERE).into()),
        };
        Ok(self.facts.assert(&terms, holds)?)
    }

    /// What the instruction wrote is what the state after it holds.
    fn equate_registers(&mut self, machine: &StepMachine, after: &Snapshot) -> Result<(), Refusal> {
        let (now, written) = (&machine.now, &machine.written);
        let mut pairs: Vec<(Term, Term)> = Vec::new();
        pairs.extend((0..16).filter(|n| written.gpr >> n & 1 == 1).map(|n| (now.gpr[n], after.gpr[n])));
        let parts = written.parts();
        pairs.extend(parts.map(|(n, part)| (now.vector.part(n, part), after.vector.part(n, part))));
        pairs.extend(written.opmasks().map(|n| (now.vector.opmask(n), after.vector.opmask(n))));
        for n in (0..8).filter(|n| written.x87 >> n & 1 == 1) {
            pairs.push((now.x87[n].0, after.x87[n].0));
            pairs.push((now.x87[n].1, after.x87[n].1));
        }
        pairs.extend(
            (0..4).filter(|n| written.controls >> n & 1 == 1).map(|n| (now.controls[n], after.controls[n])),
        );
        pairs.extend(
            (0..2)
                .filter(|n| written.segments >> n & 1 == 1)
                .map(|n| (now.segment_bases[n], after.segment_bases[n])),
        );
        if let (true, Some(now), Some(after)) = (written.interrupts, now.interrupts, after.interrupts) {
            pairs.push((now, after));
        }
        if let (true, Some(now), Some(after)) = (written.access, now.access, after.access) {
            pairs.push((now, after));
        }
        if let (true, Some(now), Some(after)) = (written.inactive_gs, now.inactive_gs, after.inactive_gs) {
            pairs.push((now, after));
        }
        if written.direction {
            pairs.push((now.direction, after.direction));
        }
        for (computed, found) in pairs {
            self.facts.equate(&self.terms, computed, found)?;
        }
        Ok(())
    }

    /// The flags that the instruction computed are those that later instructions saw. Conditions made of two
    /// flags get their clear meaning first (`a < b` rather than `SF != OF`), since constraints may wait on them.
    fn equate_flags(&mut self, machine: &StepMachine, after: &Snapshot) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let equal = |f: Flag| (machine.lazy_flags.get(&*terms, f), after.flags[f as usize]);
        let learned = self.define_conditions(machine, after).and_then(|()| {
            Flag::ALL.into_iter().map(equal).try_for_each(|(computed, found)| {
                self.facts.equate(&terms, computed, found).map_err(Refusal::from)
            })
        });
        if learned.is_err() {
            // The meanings rest on flags that need not have come to word: whoever checks it is to know them.
            Flag::ALL.into_iter().map(equal).for_each(|(computed, found)| self.facts.claim(computed, found));
        }
        learned
    }

    fn define_conditions(&mut self, machine: &StepMachine, after: &Snapshot) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let flag = |f: Flag| after.flags[f as usize];
        let less = terms.build_xor(flag(Flag::Sign), flag(Flag::Overflow));
        let combined = [
            (terms.build_or(flag(Flag::Carry), flag(Flag::Zero)), Condition(6)),
            (less, Condition(12)),
            (terms.build_or(less, flag(Flag::Zero)), Condition(14)),
        ];
        for (shape, condition) in combined {
            let meaning = machine.lazy_flags.holds(&*terms, condition);
            let (shape, meaning) = match terms.node(shape) {
                Node::Not(inner) => (inner, terms.build_not(meaning)),
                _ => (shape, meaning),
            };
            if matches!(terms.node(shape), Node::Xor(..) | Node::And(..)) {
                self.facts.define(&terms, shape, meaning)?;
            }
        }
        Ok(())
    }
}
