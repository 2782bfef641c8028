//! Which access gets an address next, and what happens where none suits.
//!
//! Each takes the first place that fits ([`super::addresses`] lists them), and most of the time that is the right one. Where an
//! access then has no place, others are in its way: the next round begins with it, and with those that it is in the way of, as a
//! solver of constraints begins with what failed (dom/wdeg: Boussemart et al., ECAI 2004). Only among these few is anything taken
//! back and tried otherwise.

use super::addresses::Patience;
use super::deferred::{AccessNumber, Early};
use super::history::Step;
use super::hypothesis::Hypothesis;
use super::machine::Access;
use crate::phases::{Phase, during};
use crate::term::Term;
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::ops::Range;
use std::rc::Rc;

/// Of an access that is in the way of others so many places are tried.
const MOST_BRANCHES: usize = 12;

/// Which access gets an address before the others.
#[derive(Clone, Copy)]
enum Order {
    /// The one from whose suffix all others are older.
    NewestFirst,
    /// The newest of those whose addresses no other one loaded: where pointers were followed, the first of them tells the others.
    RootsFirst,
}

/// The choices that came farthest back, of those that did not suit all.
#[derive(Default)]
pub(super) struct Farthest {
    /// The newest step without an address.
    reached: Step,
    /// All choices.
    chosen: Vec<Early>,
}

impl Hypothesis<'_> {
    /// Chooses addresses for the accesses of these steps that have none, the newest first; as far as it goes, if no choice was
    /// found that suits all. Whether one was.
    pub fn choose_addresses(&mut self, steps: &Range<usize>, patience: Patience) -> bool {
        self.farthest = Farthest::default();
        if self.try_addresses(steps, patience) {
            return true;
        }
        let late = std::mem::take(&mut self.late);
        let whole = self.until.clone();
        self.until = whole.share(1, patience.parts);
        for Early { access: number, address, .. } in std::mem::take(&mut self.farthest).chosen {
            if let Some(access) = self.unresolved(number) {
                self.choose_for(number, access.address, (access.address, address));
            }
        }
        self.choose_greedily(steps, Order::NewestFirst, &mut { patience.questions }, patience);
        self.log_what_is_left(steps);
        self.until = whole;
        self.late = late;
        false
    }

    /// Chooses addresses; where none suit all, nothing is assumed.
    pub fn try_addresses(&mut self, steps: &Range<usize>, patience: Patience) -> bool {
        during(Phase::Addresses, || self.try_until_over(steps, patience))
    }

    fn try_until_over(&mut self, steps: &Range<usize>, patience: Patience) -> bool {
        let whole = self.until.clone();
        self.until = whole.share(1, patience.parts);
        // Most of the time the first that fits is the right one.
        self.has_stuck = false;
        let mut orders = [Order::RootsFirst, Order::NewestFirst].into_iter();
        let found = orders.any(|order| !self.has_stuck && self.choose_in_rounds(steps, order, patience))
            || !self.has_stuck && self.choose(&mut { patience.questions }, steps, patience);
        self.until = whole;
        found
    }

    fn log_what_is_left(&mut self, steps: &Range<usize>) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let Some((number, access)) = self.newest_unresolved_in(steps) else { return };
        let step = number.step;
        let terms = Rc::clone(self.terms());
        let address = self.facts().resolve(&terms, access.address);
        let value = self.facts().resolve(&terms, access.value);
        let late = self.until.is_over();
        let until = std::mem::take(&mut self.until);
        let tries = self.assumptions(number, access).len();
        self.until = until;
        let instruction = format_args!("{:#x}", self.path[step as usize - 1].address);
        let (address, value) = (terms.show(address), terms.show(value));
        tracing::debug!(step, %instruction, store = access.store, %address, %value, tries, late, "no address was found");
    }

    /// Chooses with backtracking; false, and nothing is assumed, if nothing suits or the questions run out.
    fn choose(&mut self, questions: &mut usize, steps: &Range<usize>, patience: Patience) -> bool {
        let Some((number, access)) = self.newest_unresolved_in(steps) else { return true };
        let first = self.asked;
        for assumption in self.assumptions(number, access).into_iter().take(patience.listed) {
            if *questions == 0 || self.until.is_over() {
                return false;
            }
            if self.asked - first >= patience.tries {
                break;
            }
            let before = self.mark();
            if self.assume_for((number, access), assumption, questions) {
                if self.choose(questions, steps, patience) {
                    return true;
                }
                self.undo(before);
            }
        }
        false
    }

    /// Chooses the first that fits for each. What nothing fits for chooses before the others in the next round. False, and nothing
    /// is assumed, if some access stays without.
    fn choose_in_rounds(&mut self, steps: &Range<usize>, order: Order, patience: Patience) -> bool {
        let before = self.mark();
        let mut ahead: Vec<AccessNumber> = Vec::new();
        for _ in 0..patience.rounds {
            let mut questions = patience.questions;
            (self.stuck, self.blamed) = (None, None);
            self.late.clear();
            if self.choose_ahead(&ahead, steps, order, &mut questions, patience) {
                return true;
            }
            self.undo(before);
            let mut next = [self.blamed, self.stuck].into_iter().flatten();
            let Some(stuck) = next.find(|stuck| !ahead.contains(stuck)) else { return false };
            if self.until.is_over() {
                return false;
            }
            ahead.insert(0, stuck);
        }
        false
    }

    /// Chooses for those `ahead`, which were in each other's way, with backtracking, and for the others the first that fits. False
    /// if nothing suits: one of the others is stuck, or nothing suits those ahead.
    fn choose_ahead(
        &mut self,
        ahead: &[AccessNumber],
        steps: &Range<usize>,
        order: Order,
        questions: &mut usize,
        patience: Patience,
    ) -> bool {
        let next = ahead.iter().find_map(|&number| Some((number, self.unresolved(number)?)));
        let Some((number, access)) = next else {
            return self.choose_greedily(steps, order, questions, patience);
        };
        let first = self.asked;
        let mut branches = 0;
        let assumptions = self.assumptions(number, access);
        let are_all = assumptions.len() <= patience.listed;
        for assumption in assumptions.into_iter().take(patience.listed) {
            if *questions == 0 || self.asked - first >= patience.tries || self.until.is_over() {
                return false;
            }
            let before = self.mark();
            if !self.assume_for((number, access), assumption, questions) {
                continue;
            }
            if self.choose_ahead(ahead, steps, order, questions, patience) {
                return true;
            }
            self.undo(before);
            branches += 1;
            if self.stuck.is_some() || branches >= MOST_BRANCHES {
                return false;
            }
        }
        if branches == 0 && are_all && ahead.first() == Some(&number) {
            (self.stuck, self.has_stuck) = (Some(number), true);
        }
        false
    }

    /// Chooses the first that fits for each; whether all have an address then.
    fn choose_greedily(
        &mut self,
        steps: &Range<usize>,
        order: Order,
        questions: &mut usize,
        patience: Patience,
    ) -> bool {
        while let Some((number, access)) = self.next_to_place(steps, order) {
            self.blamed = None;
            if !self.place((number, access), questions, patience) {
                self.blamed =
                    self.blamed.filter(|&other| other != number && self.unresolved(other).is_some());
                self.stuck = Some(number);
                self.note_farthest();
                return false;
            }
        }
        true
    }

    /// Assumes what gives an access its address or a part of it, and counts the question; false, and nothing is assumed, if that
    /// does not fit.
    fn assume_for(
        &mut self,
        (number, access): (AccessNumber, Access),
        assumption: (Term, u64),
        questions: &mut usize,
    ) -> bool {
        let asked = self.asked;
        let fits = self.choose_for(number, access.address, assumption);
        *questions = questions.saturating_sub(self.asked - asked);
        fits
    }

    /// Keeps what was chosen, if no other choices came as far back.
    fn note_farthest(&mut self) {
        let reached = self.newest_unresolved().unwrap_or(Step::MAX);
        if reached > self.farthest.reached {
            self.farthest = Farthest { reached, chosen: self.chosen.clone() };
        }
    }

    /// Gives an access the first address that fits. What several unknowns make up is assumed one after the other; of all the ways
    /// together no more are tried than of one.
    fn place(&mut self, of: (AccessNumber, Access), questions: &mut usize, patience: Patience) -> bool {
        let (first, mut listed) = (self.asked, patience.listed);
        self.place_within(of, questions, &mut listed, first + patience.tries)
    }

    fn place_within(
        &mut self,
        (number, access): (AccessNumber, Access),
        questions: &mut usize,
        listed: &mut usize,
        last: usize,
    ) -> bool {
        for assumption in self.assumptions(number, access) {
            if *questions == 0 || *listed == 0 || self.asked >= last || self.until.is_over() {
                return false;
            }
            *listed -= 1;
            let before = self.mark();
            if !self.assume_for((number, access), assumption, questions) {
                continue;
            }
            if self.unresolved(number).is_none()
                || self.place_within((number, access), questions, listed, last)
            {
                return true;
            }
            self.undo(before);
        }
        false
    }

    /// Whether an access can have no address even if none is chosen for any other. Then it has none on a path that goes on from
    /// here either.
    pub fn is_stuck(&mut self, number: AccessNumber, patience: Patience) -> bool {
        let Some(access) = self.unresolved(number) else { return false };
        let (whole, before) = (self.until.clone(), self.mark());
        self.until = whole.share(1, patience.parts);
        let (first, mut questions) = (self.asked, patience.questions);
        let fits = during(Phase::Addresses, || self.place((number, access), &mut questions, patience));
        self.undo(before);
        let cut_short = self.until.is_over() || questions == 0 || self.asked - first >= patience.tries;
        self.until = whole;
        !fits && !cut_short
    }

    /// The access of these steps that gets an address next, if one has none.
    fn next_to_place(&mut self, steps: &Range<usize>, order: Order) -> Option<(AccessNumber, Access)> {
        let newest = self.newest_unresolved_in(steps);
        match order {
            Order::NewestFirst => newest,
            Order::RootsFirst => self.newest_root_in(steps).or(newest),
        }
    }

    /// The newest access whose address hangs on nothing that another one loaded before.
    fn newest_root_in(&mut self, steps: &Range<usize>) -> Option<(AccessNumber, Access)> {
        let terms = Rc::clone(self.terms());
        let mut unresolved = self.numbered_unresolved();
        unresolved.retain(|(number, _)| steps.contains(&(number.step as usize)));
        // From the oldest on: what has been loaded by then.
        unresolved.sort_by_key(|(number, _)| Reverse(number.step));
        let (mut loaded, mut root) = (FxHashSet::default(), None);
        for (number, access) in unresolved {
            let address = self.facts.resolve(&terms, access.address);
            if self.facts.variables_of(&terms, address).iter().all(|var| !loaded.contains(var)) {
                root = Some((number, access));
            }
            if !access.store {
                let value = self.facts.resolve(&terms, access.value);
                loaded.extend(self.facts.variables_of(&terms, value));
            }
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::past::hypothesis::Kernel;
    use crate::past::image::Image;
    use crate::past::prepared::Prepared;
    use crate::term::Terms;
    use iced_x86::code_asm::*;
    use iced_x86::{Decoder, DecoderOptions};
    use x86::op::Gpr;
    use x86::state::State;

    const CODE: u64 = 0x40_0000;
    const DATA: u64 = 0x50_0000;
    /// What is there was replaced by the newest store.
    const REPLACED: u64 = DATA + 0x100;
    /// It holds what the older store left.
    const LEFT: u64 = DATA + 0x200;

    struct Data([u8; 0x400]);

    impl Data {
        fn with(words: &[(u64, u64)]) -> Data {
            let mut data = Data([0; 0x400]);
            for &(va, word) in words {
                let at = usize::try_from(va - DATA).expect("it is in there");
                data.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            data
        }
    }

    impl Image for Data {
        fn bytes(&self, va: u64) -> &[u8] {
            let at = va.checked_sub(DATA).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| self.0.get(at..)).unwrap_or_default()
        }
        fn is_mapped(&self, va: u64) -> bool {
            !self.bytes(va).is_empty()
        }
        fn is_writable(&self, va: u64) -> bool {
            self.is_mapped(va)
        }
        fn regions(&self) -> Vec<Range<u64>> {
            std::iter::once(DATA..DATA + 0x400).collect()
        }
    }

    /// A pointer is loaded, a store goes through another one, and what the first points to is loaded: all three pointers are lost.
    fn program() -> Vec<u8> {
        let mut a = CodeAssembler::new(64).expect("64-bit");
        let assembled = (|| {
            a.mov(rbx, qword_ptr(rsi))?;
            a.mov(qword_ptr(rax), rcx)?;
            a.mov(rdx, qword_ptr(rbx))?;
            a.mov(qword_ptr(rdi), r8)?;
            a.xor(eax, eax)?;
            a.xor(ebx, ebx)?;
            a.xor(esi, esi)?;
            a.assemble(CODE)
        })();
        assembled.expect("it assembles")
    }

    fn state_at_end(code: &[u8]) -> State {
        let mut state = State::default();
        state.regs.rip = CODE + code.len() as u64;
        state.regs.rflags = 0x246;
        for (register, value) in [(Gpr::RCX, 1), (Gpr::RDX, 0x77), (Gpr::RDI, REPLACED)] {
            state.regs.gpr[usize::from(register.0)] = value;
        }
        state
    }

    /// The hypothesis with all of these instructions.
    fn with_path<'i>(mut hypothesis: Hypothesis<'i>, code: &[u8]) -> Hypothesis<'i> {
        let terms = Rc::clone(hypothesis.terms());
        let instructions: Vec<_> =
            Decoder::with_ip(64, code, CODE, DecoderOptions::NONE).into_iter().collect();
        for &instruction in instructions.iter().rev() {
            let prepared = Prepared::new(&terms, instruction);
            hypothesis.prepend(&prepared, None).unwrap_or_else(|e| panic!("{instruction}: {e:?}"));
        }
        hypothesis
    }

    /// What a store left is in one place only, and an older load was answered from there as if nothing had been stored.
    #[test]
    fn a_place_that_would_be_known_too_late_is_told() {
        let mut a = CodeAssembler::new(64).expect("64-bit");
        let assembled = (|| {
            a.mov(rdx, qword_ptr(rdi))?;
            a.mov(qword_ptr(rax), rcx)?;
            a.xor(eax, eax)?;
            a.xor(edx, edx)?;
            a.assemble(CODE)
        })();
        let code = assembled.expect("it assembles");
        let data = Data::with(&[(LEFT, 0x1234_5678)]);
        let mut core = state_at_end(&code);
        for (register, value) in [(Gpr::RCX, 0x1234_5678), (Gpr::RDX, 0), (Gpr::RDI, LEFT)] {
            core.regs.gpr[usize::from(register.0)] = value;
        }
        let hypothesis = Hypothesis::new(Rc::new(Terms::new()), &data, &core, Kernel::Linux);
        let mut hypothesis = with_path(hypothesis, &code);
        assert!(!hypothesis.try_addresses(&(1..5), Patience::SEARCH));
        let late = hypothesis.take_late();
        assert_eq!(late.iter().map(|early| early.address).collect::<Vec<_>>(), [LEFT]);
        let hypothesis = with_path(hypothesis.emptied(late), &code);
        assert!(hypothesis.is_placed(&(1..5)));
    }

    #[test]
    fn an_access_that_others_are_in_the_way_of_chooses_first() {
        let code = program();
        let data = Data::with(&[(DATA, REPLACED), (DATA + 8, LEFT), (LEFT, 1)]);
        let terms = Rc::new(Terms::new());
        let hypothesis = Hypothesis::new(Rc::clone(&terms), &data, &state_at_end(&code), Kernel::Linux);
        let mut hypothesis = with_path(hypothesis, &code);
        let steps = 1..hypothesis.len() + 1;
        // The store takes the nearest place, the one that the load needs, where 0x77 may have been.
        let once = Patience { rounds: 1, ..Patience::SEARCH };
        assert!(!hypothesis.choose_in_rounds(&steps, Order::RootsFirst, once));
        assert!(!hypothesis.is_placed(&steps));
        assert!(hypothesis.choose_in_rounds(&steps, Order::RootsFirst, Patience::SEARCH));
        assert!(hypothesis.is_placed(&steps));
        let stored_through = hypothesis.register(Gpr::RAX);
        assert_eq!(terms.value(stored_through), Some(LEFT));
    }
}
