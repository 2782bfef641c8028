//! Accesses whose addresses are not known yet.

use super::history::Step;
use super::hypothesis::{Hypothesis, Refusal, STALE};
use super::machine::Access;
use super::pointers::Pointers;
use super::smap::END_OF_PROGRAMS;
use crate::fuel::Until;
use crate::smt::{self, Answer, Budget, Effort};
use crate::term::{Term, Terms};
use std::ops::Range;
use std::rc::Rc;

/// So many bytes are looked through for pointers for a unit of fuel.
const BYTES_OF_POINTERS: u64 = 128;

/// An access whose address is not known yet.
#[derive(Clone, Copy)]
pub(super) struct Deferred {
    pub(super) step: Step,
    pub(super) number: AccessNumber,
    pub(super) access: Access,
    pub(super) done: bool,
}

/// The address of an access that older steps tell, known from the start in a hypothesis that was built for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// How long the path is that tells it: on a shorter one it is assumed.
    pub since: usize,
    /// Nothing tells it: it is what makes older steps possible.
    pub assumed: bool,
    /// The access.
    pub access: AccessNumber,
    /// Its address.
    pub address: u64,
}

/// The newest access that has no address, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waiting {
    /// How many instructions before the crash its instruction ran.
    pub step: usize,
    /// Its instruction.
    pub address: u64,
    /// It is a store.
    pub store: bool,
    /// The general registers, a bit for each, that its address hangs on: what they held there is not known.
    pub registers: u16,
}

/// One of the accesses of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccessNumber {
    /// The step.
    pub step: Step,
    /// Which of its accesses.
    pub number: u16,
}

impl<'i> Hypothesis<'i> {
    /// The newest step whose memory address is still unknown: a suffix must start after it.
    #[must_use]
    pub fn newest_unresolved(&self) -> Option<Step> {
        self.deferred.iter().filter(|d| !d.done).map(|d| d.step).min()
    }

    /// The newest step with a store whose address is still unknown: what older steps read may be what it overwrote.
    #[must_use]
    pub fn newest_unresolved_store(&self) -> Option<Step> {
        self.deferred.iter().filter(|d| !d.done && d.access.store).map(|d| d.step).min()
    }

    /// The access that no address was found for when addresses were chosen last.
    pub fn take_stuck(&mut self) -> Option<AccessNumber> {
        self.stuck.take()
    }

    /// The addresses with which the stuck access would be known too late: one that fits without the answers that older steps had
    /// meanwhile can only be known from the start.
    pub fn take_late(&mut self) -> Vec<Early> {
        /// The path is built again with each.
        const MOST: usize = 8;
        let mut late = std::mem::take(&mut self.late);
        late.truncate(if self.has_stuck { MOST } else { 0 });
        late
    }

    /// The newest access whose address is still unknown.
    pub fn waiting(&mut self) -> Option<Waiting> {
        let newest = *self.deferred.iter().filter(|d| !d.done).min_by_key(|d| d.step)?;
        let terms = Rc::clone(&self.terms);
        let step = newest.step as usize;
        let address = self.facts.resolve(&terms, newest.access.address);
        let unknown = self.facts.variables_of(&terms, address);
        let mut registers = 0;
        for (n, register) in self.snapshots.get(step)?.gpr.into_iter().enumerate() {
            let register = self.facts.resolve(&terms, register);
            let held = self.facts.variables_of(&terms, register);
            registers |= u16::from(held.iter().any(|var| unknown.contains(var))) << n;
        }
        let address = self.path.get(step.checked_sub(1)?)?.address;
        let step = self.path[..step].iter().filter(|step| step.is_instruction()).count();
        Some(Waiting { step, address, store: newest.access.store, registers })
    }

    /// How many accesses have addresses that are still unknown.
    #[must_use]
    pub fn waiting_accesses(&self) -> usize {
        self.deferred.len() - self.settled.len()
    }

    /// The accesses whose addresses are still unknown, and their steps.
    pub(super) fn unresolved_accesses(&self) -> Vec<(Step, Access)> {
        self.deferred.iter().filter(|d| !d.done).map(|d| (d.step, d.access)).collect()
    }

    /// The addresses of the accesses that the step which was prepended last made, or told of newer ones, in order, and how many bytes
    /// they have: if it was refused, what it found there may not have been what the core says.
    #[must_use]
    pub fn accessed(&self) -> &[(u64, u32)] {
        &self.accessed
    }

    /// What the oldest steps of the path found in memory that ran before a store whose address is still unknown, oldest first.
    #[must_use]
    pub fn found_before_stores(&self) -> Vec<(u64, u32)> {
        /// So many of them are looked at.
        const MOST: usize = 6;
        self.newest_unresolved_store().map_or_else(Vec::new, |store| self.memory.reads_before(store, MOST))
    }

    /// The stores whose addresses are still unknown and how many bytes they have, the oldest first.
    #[must_use]
    pub fn unplaced_stores(&self) -> Vec<(AccessNumber, u32)> {
        let stores = self.deferred.iter().rev().filter(|d| !d.done && d.access.store);
        stores.map(|d| (d.number, d.access.bytes)).collect()
    }

    /// Whether neither the address of an access without one nor memory at `va` speaks against its having been there. Of the value only
    /// what it is counts: what follows from it may rest on what was found there without this access.
    pub fn could_be_at(&mut self, number: AccessNumber, va: u64) -> bool {
        let Some(&Deferred { step, access, .. }) = self.deferred.iter().find(|d| d.number == number) else {
            return false;
        };
        let terms = Rc::clone(&self.terms);
        let Some(last) = va.checked_add(u64::from(access.bytes) - 1) else { return false };
        if !self.image.is_writable(va) || !self.image.is_writable(last) {
            return false;
        }
        let seen = if access.store { step - 1 } else { step };
        let Some(there) = self.memory.value(&terms, self.image, va, access.bytes, seen) else { return false };
        let mark = self.mark();
        let fits = self.facts.equate(&terms, access.address, terms.lit_term(64, va)).is_ok();
        let [value, there] = [access.value, there].map(|t| self.facts.resolve(&terms, t));
        let differs = terms.value(value).zip(terms.value(there)).is_some_and(|(value, there)| value != there);
        self.undo(mark);
        fits && !differs
    }

    /// The same, with their numbers.
    pub(super) fn numbered_unresolved(&self) -> Vec<(AccessNumber, Access)> {
        self.deferred.iter().filter(|d| !d.done).map(|d| (d.number, d.access)).collect()
    }

    /// The access with this number, if its address is still unknown.
    pub(super) fn unresolved(&self, number: AccessNumber) -> Option<Access> {
        self.deferred.iter().find(|d| !d.done && d.number == number).map(|d| d.access)
    }

    /// Whether all accesses of these steps have addresses.
    #[must_use]
    pub fn is_placed(&self, steps: &Range<usize>) -> bool {
        self.newest_unresolved_in(steps).is_none()
    }

    /// The newest of them in these steps.
    pub(super) fn newest_unresolved_in(&self, steps: &Range<usize>) -> Option<(AccessNumber, Access)> {
        let within = |d: &&Deferred| !d.done && steps.contains(&(d.step as usize));
        self.deferred.iter().filter(within).min_by_key(|d| d.step).map(|d| (d.number, d.access))
    }

    /// The empty path again, with the same core, in which these addresses are known as soon as their steps are.
    #[must_use]
    pub fn emptied(&self, early: Vec<Early>) -> Hypothesis<'i> {
        // With terms of its own: those of this one go with it.
        let terms = Rc::new(Terms::with_fuel(self.terms.fuel().clone()));
        let mut emptied = Hypothesis::new(terms, self.image, &self.core, self.kernel);
        emptied.early = early;
        (emptied.pointers, emptied.contents) = (self.pointers.clone(), Rc::clone(&self.contents));
        emptied.until = self.until.clone();
        emptied.audit = self.audit.clone();
        emptied
    }

    /// The same, with these addresses known as soon as their steps are.
    #[must_use]
    pub fn with_early(mut self, early: Vec<Early>) -> Hypothesis<'i> {
        self.early = early;
        self
    }

    /// What older steps told.
    #[must_use]
    pub fn early(&self) -> &[Early] {
        &self.early
    }

    /// The addresses that were chosen since.
    #[must_use]
    pub fn chosen(&self) -> &[Early] {
        &self.chosen
    }

    /// What older steps told, and the addresses that were chosen: with them a hypothesis of the same path is the same from the start.
    #[must_use]
    pub fn early_and_chosen(&self) -> Vec<Early> {
        self.early.iter().chain(&self.chosen).copied().collect()
    }

    /// Whether some address is one that nothing tells.
    #[must_use]
    pub fn has_choices(&self) -> bool {
        self.early.iter().chain(&self.chosen).any(|early| early.assumed)
    }

    /// Assumes a value that an access has its address from.
    pub(super) fn choose_for(
        &mut self,
        access: AccessNumber,
        address: Term,
        (t, value): (Term, u64),
    ) -> bool {
        // A kernel lifts SMAP where it reaches for what programs have, and not elsewhere.
        let (before, may_access_programs) = (self.mark(), self.may_access_programs(access.step));
        let chosen = self.assume(t, value);
        if chosen {
            let address = self.facts.resolve(&self.terms, address);
            let since = self.path.len();
            let known = self.terms.value(address);
            if !may_access_programs && known.is_some_and(|va| va < END_OF_PROGRAMS) {
                self.undo(before);
                return false;
            }
            self.chosen.extend(known.map(|address| Early { since, assumed: true, access, address }));
        }
        chosen
    }

    /// Nothing tells them any more: they are assumed.
    pub fn assume_early(&mut self) {
        self.early.iter_mut().for_each(|early| early.since = 0);
    }

    /// The byte at `va` before step `step`, if it is known.
    pub(super) fn known_byte(&mut self, va: u64, step: Step) -> Option<u8> {
        if !self.memory.is_overwritten(va) {
            return self.image.byte(va);
        }
        let byte = self.memory.byte(&self.terms, self.image, va, step)?;
        let byte = self.facts.resolve(&self.terms, byte);
        self.terms.value(byte).map(|b| b.to_le_bytes()[0])
    }

    /// The pointers in the core's memory.
    pub(super) fn pointers(&mut self) -> &Rc<Pointers> {
        let image = self.image;
        let terms = &self.terms;
        self.pointers.get_or_insert_with(|| {
            terms
                .fuel()
                .burn(image.regions().iter().map(|r| r.end - r.start).sum::<u64>() / BYTES_OF_POINTERS);
            Rc::new(Pointers::of(image))
        })
    }

    /// Nothing is chosen when this is over.
    pub fn stop_at(&mut self, until: Until) {
        self.until = until;
    }

    /// Assumes that `t` was `value`; false, and nothing is assumed, if that contradicts the core.
    pub(super) fn assume(&mut self, t: Term, value: u64) -> bool {
        let mark = self.mark();
        let place = self.facts.constraints();
        let terms = Rc::clone(&self.terms);
        let value = match terms.width(t) {
            0 => terms.bool_term(value != 0),
            width => terms.lit_term(width, value),
        };
        let learned = self.facts.equate(&terms, t, value).and_then(|()| {
            // What cannot be solved for stays a constraint; the term itself is known all the same.
            let t = self.facts.resolve(&terms, t);
            if terms.is_open(t) { self.facts.define(&terms, t, value) } else { Ok(()) }
        });
        let settled = learned.map_err(Refusal::from).and_then(|()| self.settle_deferred());
        let stands = settled.is_ok();
        if let Err(Refusal::Late(access, address)) = settled {
            let since = self.path.len();
            self.late.push(Early { since, assumed: true, access, address });
        }
        self.asked += usize::from(stands);
        let fits = stands && self.is_satisfiable_since(place);
        if !fits {
            self.undo(mark);
        }
        fits
    }

    /// Whether the constraints that came since `place` are known to have a solution together with those that
    /// they share variables with.
    fn is_satisfiable_since(&mut self, place: usize) -> bool {
        let Err(question) = self.fit_witness(place, Effort::Plain) else { return true };
        let answer = smt::solve(&self.terms, &question, &[], Budget::SEARCH, Effort::Plain);
        tracing::trace!(
            constraints = question.len(),
            answer = answer.name(),
            "an assumption was asked about"
        );
        match answer {
            Answer::Satisfiable(model) => {
                self.witness.learn(&model);
                true
            }
            Answer::Infeasible | Answer::Unknown => false,
        }
    }

    /// Matches the accesses whose addresses have become known.
    pub(super) fn settle_deferred(&mut self) -> Result<(), Refusal> {
        loop {
            let known = (0..self.deferred.len()).filter(|&n| !self.deferred[n].done).find_map(|n| {
                let address = self.facts.resolve(&self.terms, self.deferred[n].access.address);
                self.terms.value(address).map(|va| (n, va))
            });
            let Some((n, va)) = known else { return Ok(()) };
            self.deferred[n].done = true;
            self.settled.push(n);
            let Deferred { step, number, access, .. } = self.deferred[n];
            if let Err(refusal) = self.access_at(step, access, va) {
                self.blamed = Some(number);
                return Err(if refusal == STALE { Refusal::Late(number, va) } else { refusal });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::past::addresses::Patience;
    use crate::past::hypothesis::Kernel;
    use crate::past::image::Image;
    use crate::past::prepared::Prepared;
    use iced_x86::code_asm::*;
    use iced_x86::{Decoder, DecoderOptions};
    use x86::op::Gpr;
    use x86::state::State;

    struct Nothing;

    impl Image for Nothing {
        fn bytes(&self, _va: u64) -> &[u8] {
            &[]
        }
        fn is_mapped(&self, _va: u64) -> bool {
            false
        }
        fn is_writable(&self, _va: u64) -> bool {
            false
        }
        fn regions(&self) -> Vec<Range<u64>> {
            Vec::new()
        }
    }

    #[test]
    fn a_truth_that_is_assumed_decides_what_hangs_on_it() {
        let terms = Rc::new(Terms::new());
        let mut hypothesis = Hypothesis::new(Rc::clone(&terms), &Nothing, &State::default(), Kernel::Gretel);
        let [carry, zero] = [terms.fresh(0), terms.fresh(0)];
        let index = |truth| terms.build_ite(truth, terms.lit_term(64, 8), terms.lit_term(64, 0));
        assert!(hypothesis.assume(carry, 1) && hypothesis.assume(zero, 0));
        let mut value = |t| {
            let t = hypothesis.facts.resolve(&terms, t);
            terms.value(t)
        };
        assert_eq!([value(index(carry)), value(index(zero))], [Some(8), Some(0)]);
    }

    /// A kernel under SMAP: a program's memory is mapped at this address, and its own at the same one in the high half.
    struct Guarded;

    const PLACE: u64 = 0x50_0000;
    const OWN: u64 = 0xffff_8880_0050_0000;
    const SEVENS: &[u8] = &[7; 8];

    impl Image for Guarded {
        fn bytes(&self, va: u64) -> &[u8] {
            let at = [PLACE, OWN].into_iter().find_map(|start| va.checked_sub(start).filter(|at| *at < 8));
            at.and_then(|at| SEVENS.get(usize::try_from(at).ok()?..)).unwrap_or_default()
        }
        fn is_mapped(&self, va: u64) -> bool {
            [PLACE, OWN].iter().any(|start| (*start..start + 8).contains(&va))
        }
        fn is_writable(&self, va: u64) -> bool {
            self.is_mapped(va)
        }
        fn regions(&self) -> Vec<Range<u64>> {
            [PLACE, OWN].map(|start| start..start + 8).to_vec()
        }
        fn is_kernel(&self) -> bool {
            true
        }
        fn guards_programs(&self) -> bool {
            true
        }
    }

    /// `mov rax, pointer`, `mov rdx, [rax]`, `xor eax, eax`: the pointer is told by the oldest of them, or not at all.
    #[test]
    fn a_kernel_under_smap_was_not_in_the_memory_of_programs() {
        const CODE: u64 = 0xffff_ffff_8100_0000;
        let goes = |pointer: Option<u64>, rflags: u64| {
            let mut a = CodeAssembler::new(64).expect("64-bit");
            let assembled = (|| {
                a.mov(rax, pointer.unwrap_or(0))?;
                a.mov(rdx, qword_ptr(rax))?;
                a.xor(eax, eax)?;
                a.assemble(CODE)
            })();
            let code = assembled.expect("it assembles");
            let mut core = State::default();
            core.regs.rip = CODE + code.len() as u64;
            core.regs.rflags = rflags;
            core.regs.gpr[usize::from(Gpr::RDX.0)] = 0x0707_0707_0707_0707;
            let terms = Rc::new(Terms::new());
            let mut hypothesis = Hypothesis::new(Rc::clone(&terms), &Guarded, &core, Kernel::Linux);
            let instructions: Vec<_> =
                Decoder::with_ip(64, &code, CODE, DecoderOptions::NONE).into_iter().collect();
            let skipped = usize::from(pointer.is_none());
            for &instruction in instructions[skipped..].iter().rev() {
                hypothesis.prepend(&Prepared::new(&terms, instruction), None)?;
            }
            if pointer.is_none() {
                assert!(hypothesis.try_addresses(&(1..3), Patience::SEARCH));
            }
            let found = hypothesis.chosen().first().map(|early| early.address);
            Ok::<_, Refusal>(found.or(pointer))
        };
        const AC: u64 = 1 << 18;
        assert_eq!(goes(Some(OWN), 0x246), Ok(Some(OWN)));
        assert_eq!(goes(Some(PLACE), 0x246), Err(Refusal::Contradiction));
        assert_eq!(goes(Some(PLACE), 0x246 | AC), Ok(Some(PLACE)));
        assert_eq!(goes(None, 0x246), Ok(Some(OWN)), "a place is chosen where it may be");
    }
}
