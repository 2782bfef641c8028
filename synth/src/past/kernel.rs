//! A system call prepended to a path: the kernel runs in between.

use super::history::Step;
use super::hypothesis::{Call, Hypothesis, Kernel, Refusal};
use super::machine::Access;
use super::prepared::Prepared;
use super::snapshot::Snapshot;
use super::syscalls;
use crate::term::{Term, Terms};
use std::rc::Rc;
use x86::domain::Bin;
use x86::flags::Flag;
use x86::op::Gpr;

impl Hypothesis<'_> {
    /// Prepends system call `number`, which returned to `next`.
    pub(super) fn prepend_syscall(
        &mut self,
        prepared: &Prepared,
        number: u64,
        next: u64,
    ) -> Result<(), Refusal> {
        if prepared.op.next != next {
            return Err(Refusal::Contradiction);
        }
        let effect = syscalls::effect(number).ok_or(Refusal::Barrier("a system call of unknown effect"))?;
        let terms = Rc::clone(&self.terms);
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        let mut before = after.clone();
        for r in [Gpr::RAX, Gpr::RCX, Gpr::R11] {
            before.gpr[usize::from(r.0)] = terms.fresh(64);
        }
        self.facts.equate(&terms, after.gpr[usize::from(Gpr::RCX.0)], terms.lit_term(64, next))?;
        if self.kernel == Kernel::Gretel {
            for flag in after.flags {
                self.facts.equate(&terms, flag, terms.bool_term(false))?;
            }
            before.flags = std::array::from_fn(|_| terms.fresh(0));
            before.flags_observed = false;
        } else {
            before.flags_observed = true;
        }
        let flags = saved_flags(&terms, &after);
        self.facts.equate(&terms, after.gpr[usize::from(Gpr::R11.0)], flags)?;
        self.facts.equate(&terms, before.gpr[usize::from(Gpr::RAX.0)], terms.lit_term(64, number))?;
        self.snapshots.push(before.clone());
        let step = self.step() + 1;
        let result = after.gpr[usize::from(Gpr::RAX.0)];
        let writes = self.kernel_writes(step, effect, &before, result)?;
        self.calls.push(Call { step, number, result, writes });
        Ok(())
    }

    /// What the kernel wrote at `step`: stores of unknown values (the inputs), whose addresses the arguments
    /// tell, now or when they become known.
    fn kernel_writes(
        &mut self,
        step: Step,
        effect: syscalls::Effect,
        before: &Snapshot,
        result: Term,
    ) -> Result<Vec<Access>, Refusal> {
        let terms = Rc::clone(&self.terms);
        let argument = |n: u8| before.gpr[syscalls::ARGUMENTS[usize::from(n)]];
        let outcome = self.facts.resolve(&terms, result);
        let outcome = terms.value(outcome);
        let failed = outcome.is_some_and(|v| v > u64::MAX - 4095);
        let (base, size, zeroes) = match effect {
            syscalls::Effect::None => return Ok(Vec::new()),
            _ if failed => return Ok(Vec::new()),
            syscalls::Effect::Writes(output) => {
                let size = match output.size {
                    syscalls::Size::Fixed(size) => Some(size),
                    syscalls::Size::Result => outcome,
                };
                (argument(output.argument), size, false)
            }
            syscalls::Effect::Maps => {
                let length = self.facts.resolve(&terms, argument(1));
                let flags = self.facts.resolve(&terms, argument(3));
                let anonymous = terms.value(flags).is_some_and(|flags| flags & MAP_ANONYMOUS != 0);
                // Of a mapping whose length is not known, the first page is enough to go on.
                (result, Some(terms.value(length).unwrap_or(1).next_multiple_of(4096)), anonymous)
            }
        };
        let size = size.ok_or(Refusal::Barrier("a system call that wrote an unknown amount"))?;
        if size > MOST_KERNEL_BYTES {
            return Err(Refusal::Barrier("a system call that wrote too much"));
        }
        let known_base = self.facts.resolve(&terms, base);
        if terms.value(known_base) == Some(0) {
            return Ok(Vec::new());
        }
        let mut writes = Vec::new();
        for at in (0..size).step_by(8) {
            let bytes = u32::try_from((size - at).min(8)).expect("at most 8");
            let offset = terms.lit_term(64, at);
            let value = if zeroes { terms.lit_term(8 * bytes, 0) } else { terms.fresh(8 * bytes) };
            let address = terms.build_bin(Bin::Add, base, offset);
            let access = Access { store: true, by_kernel: true, bytes, address, value };
            let number = u16::try_from(writes.len()).unwrap_or(u16::MAX);
            writes.push(access);
            self.access(step, number, access)?;
        }
        Ok(writes)
    }
}

/// In the flags of mmap: zeroed memory, no file.
const MAP_ANONYMOUS: u64 = 0x20;

/// No system call of the search's table writes more than this in the cases of interest.
const MOST_KERNEL_BYTES: u64 = 1 << 20;

/// What SYSCALL leaves in r11: RFLAGS with bits 1 and 9 set.
fn saved_flags(terms: &Terms, at: &Snapshot) -> Term {
    let bit = |b: Term| terms.build_ite(b, terms.lit_term(1, 1), terms.lit_term(1, 0));
    let mut value = terms.lit_term(1, 0);
    let mut low_to_high: Vec<Term> = (0..16).map(|_| terms.lit_term(1, 0)).collect();
    low_to_high[1] = terms.lit_term(1, 1);
    low_to_high[9] = terms.lit_term(1, 1);
    low_to_high[10] = bit(at.direction);
    for f in Flag::ALL {
        low_to_high[f.bit() as usize] = bit(at.flags[f as usize]);
    }
    for (n, &b) in low_to_high.iter().enumerate() {
        value = if n == 0 { b } else { terms.build_concat(b, value) };
    }
    terms.build_zext(64, value)
}
