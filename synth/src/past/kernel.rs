//! A system call prepended to a path: the kernel runs in between.

use super::history::Step;
use super::hypothesis::{Call, Hypothesis, Kernel, Refusal};
use super::machine::Access;
use super::prepared::Prepared;
use super::snapshot::Snapshot;
use super::turns::Standing;
use crate::program::RT_SIGRETURN;
use crate::term::{Term, Terms};
use std::ops::Range;
use std::rc::Rc;
use vmm::linux::vdso::TIME_BYTES;
use vmm::memory::layout::TIME_PAGE;
use vmm::syscalls::effects::{ARGUMENTS, Effects, Known, Place, Unbounded, Written, effects};
use vmm::syscalls::shape::Mapping;
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
        if number == RT_SIGRETURN {
            return self.prepend_return(prepared);
        }
        let made = self.image.anchors().get(self.place.passed);
        if prepared.op.next != next || made.is_some_and(|it| (it.call(), it.rip) != (Some(number), next)) {
            return Err(self.facts.impossible("a system call that the crumbs do not have there").into());
        }
        let terms = Rc::clone(&self.terms);
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        if self.place.standing == Standing::Before {
            self.snapshots.push(after);
            return Ok(());
        }
        if let Some(made) = made {
            self.facts.equate(&terms, after.gpr[usize::from(Gpr::RSP.0)], terms.lit_term(64, made.rsp))?;
        }
        let before = self.before_call(&after, number, next)?;
        self.snapshots.push(before.clone());
        if self.place.standing == Standing::Waits {
            // The kernel has not answered it.
            return Ok(());
        }
        let step = self.step() + 1;
        let result = after.gpr[usize::from(Gpr::RAX.0)];
        let writes = self.kernel_writes(step, number, &before, result)?;
        self.calls.push(Call { step, number, result, writes, late: false });
        Ok(())
    }

    /// The registers before system call `number`, which returned to `next` with those of `after`.
    pub(super) fn before_call(
        &mut self,
        after: &Snapshot,
        number: u64,
        next: u64,
    ) -> Result<Snapshot, Refusal> {
        let terms = Rc::clone(&self.terms);
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
        let flags = saved_flags(&terms, after);
        self.facts.equate(&terms, after.gpr[usize::from(Gpr::R11.0)], flags)?;
        self.facts.equate(&terms, before.gpr[usize::from(Gpr::RAX.0)], terms.lit_term(64, number))?;
        Ok(before)
    }

    /// What the kernel wrote at `step`: stores of unknown values (the inputs), whose addresses the arguments
    /// tell, now or when they become known.
    pub(super) fn kernel_writes(
        &mut self,
        step: Step,
        number: u64,
        before: &Snapshot,
        result: Term,
    ) -> Result<Vec<Access>, Refusal> {
        let terms = Rc::clone(&self.terms);
        let mut value = |term| terms.value(self.facts.resolve(&terms, term));
        let arguments = ARGUMENTS.map(|register| before.gpr[register]);
        let values = arguments.map(&mut value);
        let result_is = value(result);
        for (&term, known) in arguments.iter().zip(values).chain([(&result, result_is)]) {
            if let Some(known) = known {
                self.facts.rest_on(&terms, term, known);
            }
        }
        // Memory is not looked at: buffers that only it names are of an unknown amount.
        let known = Known { arguments: values, result: result_is, read: &|_, _| false };
        let Effects { written, mapping } = effects(number, &known).map_err(|why| match why {
            Unbounded::Call => Refusal::Barrier("a system call of unknown effect"),
            Unbounded::Amount => Refusal::Barrier("a system call that wrote an unknown amount"),
        })?;
        match mapping {
            // Rights, and where the heap ends, are those of the core.
            None | Some(Mapping::Heap | Mapping::Protect) => {}
            Some(Mapping::Map) => return self.kernel_maps(step, values, result),
            Some(Mapping::Unmap) => {
                let (Some(start), Some(size)) = (values[0], values[1]) else {
                    return Err(Refusal::Barrier("a system call that unmapped memory, where is not known"));
                };
                let end = start.saturating_add(size.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX));
                self.remapped.push(Remapped { step, place: start..end, born: false });
                return Ok(Vec::new());
            }
            Some(Mapping::Attach | Mapping::Move | Mapping::Discard) => {
                return Err(Refusal::Barrier("a system call that changed what is mapped"));
            }
        }
        let mut stores = Vec::new();
        for Written { place, length } in written {
            let base = match place {
                Place::Argument(n) => arguments[n],
                Place::Address(address) => terms.lit_term(64, address),
            };
            let number = stores.len();
            stores.extend(self.kernel_stores(step, base, length, false, number)?);
        }
        stores.extend(self.clock_stores(step, stores.len())?);
        Ok(stores)
    }

    /// What gretel's own kernel wrote into the clock's page behind a call, for the vDSO: a later time.
    pub(super) fn clock_stores(&mut self, step: Step, number: usize) -> Result<Vec<Access>, Refusal> {
        if self.kernel != Kernel::Gretel || self.image.bytes(TIME_PAGE).len() < TIME_BYTES {
            return Ok(Vec::new());
        }
        let terms = Rc::clone(&self.terms);
        self.kernel_stores(step, terms.lit_term(64, TIME_PAGE), TIME_BYTES as u64, false, number)
    }

    /// A mapping was made at `step`. Where its address is known, no older step can have used it; anonymous memory was zero
    /// then. Else it is as if its pages had been written.
    fn kernel_maps(
        &mut self,
        step: Step,
        arguments: [Option<u64>; 6],
        result: Term,
    ) -> Result<Vec<Access>, Refusal> {
        let terms = Rc::clone(&self.terms);
        let flags = arguments[3];
        let anonymous = flags.is_some_and(|flags| flags & MAP_ANONYMOUS != 0);
        let fixed = flags.is_none_or(|flags| flags & MAP_FIXED != 0);
        // Of a mapping whose length is not known, the first page is enough to go on.
        let size = arguments[1].unwrap_or(1).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        match terms.value(self.facts.resolve(&terms, result)) {
            Some(start) => {
                let failed = start > ERRORS;
                let place = start..if failed { start } else { start.saturating_add(size) };
                if anonymous {
                    self.require_zeroes(step, &place)?;
                }
                // What was there before, if it was to be replaced, is gone.
                self.remapped.push(Remapped { step, place, born: !fixed });
                Ok(Vec::new())
            }
            None => self.kernel_stores(step, result, size, anonymous, 0),
        }
    }

    /// All bytes of this memory were zero right after `step`.
    fn require_zeroes(&mut self, step: Step, place: &Range<u64>) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let zero = terms.lit_term(8, 0);
        for va in self.memory.overwritten_in(place, step - 1) {
            let byte = self.memory.byte(&terms, self.image, va, step - 1).expect("it was overwritten");
            self.facts.equate(&terms, byte, zero)?;
        }
        let mut at = place.start;
        while at < place.end {
            let bytes = self.image.bytes(at);
            let bytes = &bytes[..bytes.len().min(usize::try_from(place.end - at).unwrap_or(usize::MAX))];
            let not_zero = (at..).zip(bytes).filter(|(_, byte)| **byte != 0).map(|(va, _)| va);
            for va in not_zero {
                if !self.memory.is_overwritten_since(va, step - 1) {
                    return Err(self.facts.impossible("new memory that was not zero").into());
                }
            }
            at = if bytes.is_empty() { (at | (PAGE - 1)).saturating_add(1) } else { at + bytes.len() as u64 };
        }
        Ok(())
    }

    /// Whether a step can have used memory, for what became of its mapping later.
    pub(super) fn was_mapped(&mut self, step: Step, va: u64) -> Result<(), Refusal> {
        // The first call that was still to come tells.
        match self.remapped.iter().rev().find(|it| it.step <= step && it.place.contains(&va)) {
            None => Ok(()),
            Some(Remapped { born: false, .. }) => Err(Refusal::Barrier("memory that was unmapped later")),
            Some(Remapped { born: true, .. }) => {
                Err(self.facts.impossible("an access to memory before it was mapped").into())
            }
        }
    }

    /// Stores of `size` bytes at `base`; the first is access `number` of the step.
    fn kernel_stores(
        &mut self,
        step: Step,
        base: Term,
        size: u64,
        zeroes: bool,
        number: usize,
    ) -> Result<Vec<Access>, Refusal> {
        let terms = Rc::clone(&self.terms);
        if size > MOST_KERNEL_BYTES {
            return Err(Refusal::Barrier("a system call that wrote too much"));
        }
        let mut stores = Vec::new();
        for at in (0..size).step_by(8) {
            let bytes = u32::try_from((size - at).min(8)).expect("at most 8");
            let offset = terms.lit_term(64, at);
            let value = if zeroes { terms.lit_term(8 * bytes, 0) } else { terms.fresh(8 * bytes) };
            let address = terms.build_bin(Bin::Add, base, offset);
            let access = Access { store: true, by_kernel: true, bytes, address, value };
            let number = u16::try_from(number + stores.len()).unwrap_or(u16::MAX);
            stores.push(access);
            self.access(step, number, access)?;
        }
        Ok(stores)
    }
}

/// Memory that a call of the path mapped or unmapped.
#[derive(Clone, Debug)]
pub(super) struct Remapped {
    step: Step,
    place: Range<u64>,
    /// It was mapped; else it was unmapped.
    born: bool,
}

/// In the flags of mmap: zeroed memory, no file.
const MAP_ANONYMOUS: u64 = 0x20;
/// In the flags of mmap: at the address that was asked for, whatever is there.
const MAP_FIXED: u64 = 0x10;
/// Results above this are errors.
const ERRORS: u64 = 0xffff_ffff_ffff_f000;
/// Mappings are of whole pages.
const PAGE: u64 = 4096;

/// No system call writes more than this in the cases of interest.
const MOST_KERNEL_BYTES: u64 = 1 << 20;

/// What SYSCALL leaves in r11: RFLAGS with bits 1 and 9 set.
pub(super) fn saved_flags(terms: &Terms, at: &Snapshot) -> Term {
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
