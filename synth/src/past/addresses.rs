//! Addresses that nothing determines.
//!
//! A load or store through a register that was overwritten later, and whose value nothing else tells, could
//! have gone anywhere. For a certified suffix any address will do that agrees with the core: the value that
//! was loaded or stored says where to look first, then the pointers that the program had in its registers.

use super::hypothesis::Hypothesis;
use super::machine::Access;
use crate::term::{Node, Term};
use x86::domain::Bin;

/// How many addresses are tried for one access.
const MOST_TRIES: usize = 72;
/// How many are tried in all: each may cost a question to the solver.
const MOST_QUESTIONS: usize = 160;
/// How many places with the right content are tried.
const MOST_MATCHES: usize = 16;

impl Hypothesis<'_> {
    /// Chooses addresses for the accesses of the path that have none, the newest first, until all have one; or as
    /// far as it goes, if no choice was found that suits all. The choices cannot be taken back; afterwards only
    /// ask and realize.
    pub fn choose_addresses(&mut self) {
        let mut questions = MOST_QUESTIONS;
        if !self.choose(&mut questions) {
            self.choose_greedily();
        }
    }

    /// Chooses with backtracking; false, and nothing is assumed, if nothing suits or the questions run out.
    fn choose(&mut self, questions: &mut usize) -> bool {
        let Some(access) = self.newest_unresolved_access() else { return true };
        for (t, value) in self.assumptions(access).into_iter().take(MOST_TRIES) {
            if *questions == 0 {
                return false;
            }
            *questions -= 1;
            let before = self.mark();
            if self.assume(t, value) {
                if self.choose(questions) {
                    return true;
                }
                self.undo(before);
            }
        }
        false
    }

    fn choose_greedily(&mut self) {
        let mut questions = MOST_QUESTIONS;
        while let Some(access) = self.newest_unresolved_access() {
            let fits = self.assumptions(access).into_iter().take(MOST_TRIES).any(|(t, value)| {
                questions = questions.saturating_sub(1);
                questions > 0 && self.assume(t, value)
            });
            if !fits {
                return;
            }
        }
    }

    /// What could be assumed so that the access has an address: values of the one unknown that its address is
    /// computed from, such as an index, or else of the address.
    fn assumptions(&mut self, access: Access) -> Vec<(Term, u64)> {
        let terms = std::rc::Rc::clone(self.terms());
        let address = self.facts().resolve(&terms, access.address);
        if let &[var] = &self.facts().variables_of(&terms, address)[..] {
            let unknown = terms.variable(var);
            if unknown != address && self.is_computed(address) {
                return (0..=64).chain([128, 256, 1024]).map(|value| (unknown, value)).collect();
            }
        }
        self.address_candidates(access).into_iter().map(|va| (address, va)).collect()
    }

    /// Whether the address is more than a variable and a constant: then turning it around may not be possible.
    fn is_computed(&self, address: Term) -> bool {
        let terms = self.terms();
        match terms.node(address) {
            Node::Bin(Bin::Add, x, c) => !(terms.value(c).is_some() && matches!(terms.node(x), Node::Var(_))),
            _ => true,
        }
    }

    /// Addresses worth trying, the likeliest first.
    fn address_candidates(&mut self, access: Access) -> Vec<u64> {
        let image = self.image();
        let fits = |va: u64| {
            let last = va.wrapping_add(u64::from(access.bytes) - 1);
            let usable = |va| if access.store { image.is_writable(va) } else { image.byte(va).is_some() };
            usable(va) && usable(last)
        };
        let mut found = Vec::new();
        if let Some(value) = self.known_value(access.value) {
            found.extend(self.places_holding(value, access.bytes));
        }
        // Pointers in the registers, from the newest state to the oldest.
        let depths = [0, self.len() / 4, self.len() / 2, self.len()];
        for depth in depths {
            for register in self.snapshot(depth).gpr {
                found.extend(self.known_value(register));
            }
        }
        for region in image.regions() {
            let middle = region.start + (region.end - region.start) / 2;
            found.push(middle & !15);
        }
        let mut seen = rustc_hash::FxHashSet::default();
        found.retain(|&va| fits(va) && seen.insert(va));
        found
    }

    /// Aligned places in memory that hold `value`, if it is one that means something.
    fn places_holding(&self, value: u64, bytes: u32) -> Vec<u64> {
        let (image, bytes) = (self.image(), u64::from(bytes));
        if value < 0x100 || bytes < 4 {
            return Vec::new();
        }
        let wanted = value.to_le_bytes();
        let holds =
            |va: u64| (0..bytes).all(|n| image.byte(va + n) == Some(wanted[usize::try_from(n).unwrap_or(0)]));
        let regions = image.regions().into_iter().filter(|r| image.is_writable(r.start));
        let places = regions.flat_map(|r| (r.start..r.end.saturating_sub(bytes - 1)).step_by(4));
        places.filter(|&va| holds(va)).take(MOST_MATCHES).collect()
    }

    fn known_value(&mut self, t: Term) -> Option<u64> {
        let terms = std::rc::Rc::clone(self.terms());
        let t = self.facts().resolve(&terms, t);
        terms.value(t)
    }
}
