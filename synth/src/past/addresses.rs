//! Addresses that nothing determines.
//!
//! A load or store through a register that was overwritten later, and whose value nothing else tells, could
//! have gone anywhere. For a certified suffix any address will do that agrees with the core: the value that
//! was loaded or stored says where to look first, then the pointers that the program had in its registers.

use super::hypothesis::Hypothesis;
use super::machine::Access;
use crate::term::{Node, Term, Terms};
use std::rc::Rc;
use x86::domain::Bin;

/// How many addresses are tried for one access.
const MOST_TRIES: usize = 72;
/// How many are tried in all: each may cost a question to the solver.
const MOST_QUESTIONS: usize = 160;
/// How many places with the right content are tried.
const MOST_MATCHES: usize = 16;
/// Fewer bytes than this are found everywhere.
const SHORTEST_PATTERN: usize = 3;
/// More bytes than this say nothing new.
const LONGEST_PATTERN: usize = 64;
/// Values of an index, a length or a divisor to try before 0, 1, 2...: large enough to leave small numbers alone.
const COUNTS: [u64; 4] = [64, 256, 1024, 4096];

impl Hypothesis<'_> {
    /// Chooses addresses for the accesses of the path that have none, the newest first, until all have one; or as
    /// far as it goes, if no choice was found that suits all. The first `skip` choices for the newest are passed
    /// over, and accesses older than step `upto` are left. Gives the number of the one that was taken for the newest.
    pub fn choose_addresses(&mut self, skip: usize, upto: usize) -> Option<usize> {
        let access = self.newest_unresolved_access(upto)?;
        let mut questions = MOST_QUESTIONS;
        let assumptions = self.assumptions(access).into_iter().enumerate().skip(skip).take(MOST_TRIES);
        for (number, (t, value)) in assumptions {
            questions = questions.saturating_sub(1);
            let before = self.mark();
            if questions > 0 && self.assume(t, value) {
                if self.choose(&mut questions, upto) {
                    return Some(number);
                }
                self.undo(before);
            }
        }
        if skip == 0 {
            self.choose_greedily(upto);
        }
        None
    }

    /// Chooses with backtracking; false, and nothing is assumed, if nothing suits or the questions run out.
    fn choose(&mut self, questions: &mut usize, upto: usize) -> bool {
        let Some(access) = self.newest_unresolved_access(upto) else { return true };
        for (t, value) in self.assumptions(access).into_iter().take(MOST_TRIES) {
            if *questions == 0 {
                return false;
            }
            *questions -= 1;
            let before = self.mark();
            if self.assume(t, value) {
                if self.choose(questions, upto) {
                    return true;
                }
                self.undo(before);
            }
        }
        false
    }

    fn choose_greedily(&mut self, upto: usize) {
        let mut questions = MOST_QUESTIONS;
        while let Some(access) = self.newest_unresolved_access(upto) {
            let fits = self.assumptions(access).into_iter().take(MOST_TRIES).any(|(t, value)| {
                questions = questions.saturating_sub(1);
                questions > 0 && self.assume(t, value)
            });
            if !fits {
                return;
            }
        }
    }

    /// What could be assumed so that the access has an address: values of an index or a divisor that the address is
    /// computed from; else of the address itself.
    fn assumptions(&mut self, access: Access) -> Vec<(Term, u64)> {
        let terms = Rc::clone(self.terms());
        let address = self.facts().resolve(&terms, access.address);
        let base = base_of(&terms, address);
        let variables = self.facts().variables_of(&terms, address);
        let computed = variables.into_iter().map(|var| terms.variable(var)).find(|&v| Some(v) != base);
        if let Some(unknown) = computed {
            return COUNTS.into_iter().chain(0..64).map(|value| (unknown, value)).collect();
        }
        let matching = base.map_or_else(Vec::new, |base| self.places_like(base));
        let offset = base.map_or(address, |base| terms.build_bin(Bin::Sub, address, base));
        let offset = terms.value(offset).unwrap_or(0);
        let found =
            matching.into_iter().map(|va| va.wrapping_add(offset)).chain(self.address_candidates(access));
        found.map(|va| (address, va)).collect()
    }

    /// Where memory looks as the path's accesses through `base` say: each has its distance from it, and a value.
    fn places_like(&mut self, base: Term) -> Vec<u64> {
        let terms = Rc::clone(self.terms());
        let mut pattern: Vec<(u64, u8)> = Vec::new();
        for access in self.unresolved_accesses() {
            let address = self.facts().resolve(&terms, access.address);
            let Some(value) = self.known_value(access.value) else { continue };
            if base_of(&terms, address) != Some(base) {
                continue;
            }
            if let Some(offset) = terms.value(terms.build_bin(Bin::Sub, address, base)) {
                let bytes = value.to_le_bytes().into_iter().take(access.bytes as usize);
                pattern.extend((0..).zip(bytes).map(|(n, byte)| (offset.wrapping_add(n), byte)));
            }
        }
        pattern.truncate(LONGEST_PATTERN);
        let Some(&(first, _)) = pattern.first() else { return Vec::new() };
        if pattern.len() < SHORTEST_PATTERN || pattern.iter().all(|&(_, byte)| byte == 0) {
            return Vec::new();
        }
        let image = self.image();
        let fits = |va: &u64| pattern.iter().all(|&(at, byte)| image.byte(va.wrapping_add(at)) == Some(byte));
        let bases = image.regions().into_iter().flatten().map(|va| va.wrapping_sub(first));
        bases.filter(fits).take(MOST_MATCHES).collect()
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

    fn known_value(&mut self, t: Term) -> Option<u64> {
        let terms = Rc::clone(self.terms());
        let t = self.facts().resolve(&terms, t);
        terms.value(t)
    }
}

/// The variable that the address is so many bytes away from, if that is how it is computed.
fn base_of(terms: &Terms, address: Term) -> Option<Term> {
    match terms.node(address) {
        Node::Var(_) => Some(address),
        Node::Bin(Bin::Add, x, y) => base_of(terms, x).or_else(|| base_of(terms, y)),
        Node::Bin(Bin::Sub, x, _) => base_of(terms, x),
        _ => None,
    }
}
