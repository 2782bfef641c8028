//! What a kernel asks of what is outside of its processor: RDTSC, RDTSCP and IN. The answer is an input, like that of a system call.
//!
//! A time stamp is no less than what an older instruction was given.

use super::history::Step;
use super::hypothesis::{Hypothesis, Refusal};
use super::prepared::Prepared;
use super::snapshot::Snapshot;
use crate::term::Term;
use iced_x86::{Instruction, Mnemonic as N};
use std::rc::Rc;
use x86::domain::Cmp;
use x86::op::Gpr;

/// What such an instruction was given.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Its step.
    pub step: Step,
    /// The time stamp, 64 bits, or what came from a port, of its width.
    pub value: Term,
    is_time: bool,
}

/// Whether it is one of these, and the registers that it writes, bit n = register n.
pub(super) fn asks(i: &Instruction) -> Option<u16> {
    let registers: &[Gpr] = match i.mnemonic() {
        N::In => &[Gpr::RAX],
        N::Rdtsc => &[Gpr::RAX, Gpr::RDX],
        // With TSC_AUX.
        N::Rdtscp => &[Gpr::RAX, Gpr::RDX, Gpr::RCX],
        _ => return None,
    };
    Some(registers.iter().fold(0, |all, register| all | 1 << register.0))
}

impl Hypothesis<'_> {
    /// What the path was given from outside, newest first.
    #[must_use]
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Prepends an instruction that asked.
    pub(super) fn prepend_asking(&mut self, prepared: &Prepared, next: u64) -> Result<(), Refusal> {
        if prepared.op.next != next {
            return Err(self.facts.impossible("an instruction that does not go there").into());
        }
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        let before = after.before(&self.terms, &prepared.written, prepared.top_change);
        let is_time = prepared.instruction.mnemonic() != N::In;
        let value = match is_time {
            true => self.time_stamp(prepared, &after)?,
            false => self.read_port(prepared, &before, &after)?,
        };
        self.snapshots.push(before);
        self.answers.push(Answer { step: self.step() + 1, value, is_time });
        Ok(())
    }

    /// What the registers tell of the time stamp that was read into them.
    fn time_stamp(&mut self, prepared: &Prepared, after: &Snapshot) -> Result<Term, Refusal> {
        let terms = Rc::clone(&self.terms);
        let of = |register: Gpr| after.gpr[usize::from(register.0)];
        let halves = [of(Gpr::RDX), of(Gpr::RAX)];
        for half in halves {
            let above = terms.build_extract(32, 32, half);
            self.facts.equate(&terms, above, terms.lit_term(32, 0))?;
        }
        if prepared.instruction.mnemonic() == N::Rdtscp {
            self.facts.equate(&terms, of(Gpr::RCX), terms.lit_term(64, prepared.op.imm))?;
        }
        let [high, low] = halves.map(|half| terms.build_extract(0, 32, half));
        let value = terms.build_concat(high, low);
        if let Some(newer) = self.answers.iter().rfind(|answer| answer.is_time) {
            let went_back = terms.build_cmp(Cmp::Ult, newer.value, value);
            self.facts.assert(&terms, terms.build_not(went_back))?;
        }
        Ok(value)
    }

    /// What EAX tells of the value that was read into it, or into its lower part: then the rest is as before.
    fn read_port(
        &mut self,
        prepared: &Prepared,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Result<Term, Refusal> {
        let terms = Rc::clone(&self.terms);
        let rax = usize::from(Gpr::RAX.0);
        let width = u32::try_from(8 * prepared.instruction.op0_register().size()).unwrap_or(32);
        let above = |of: Term| terms.build_extract(width, 64 - width, of);
        let expected = if width == 32 { terms.lit_term(32, 0) } else { above(before.gpr[rax]) };
        self.facts.equate(&terms, above(after.gpr[rax]), expected)?;
        Ok(terms.build_extract(0, width, after.gpr[rax]))
    }
}
