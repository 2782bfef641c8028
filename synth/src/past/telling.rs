//! Loads that tell where they were: operands that are relative to their own place.
//!
//! Interpreters keep constants and jump targets as distances from the instruction that has them. Where such an operand was
//! overwritten in its register, its address is a known place less what was loaded from there: few places hold just that number.

use super::deferred::AccessNumber;
use super::history::Step;
use super::hypothesis::Hypothesis;
use super::machine::Access;
use crate::term::{Assignment, Node, Plan, Term, Terms, Var};
use std::rc::Rc;
use x86::domain::Bin;

/// How far from the known place to look, on both sides.
const REACH: u64 = 1 << 18;
/// So many places are looked at for a unit of fuel.
const PLACES_OF_A_UNIT: u64 = 4;

impl Hypothesis<'_> {
    /// Where the load could have been, whose address (resolved) hangs on nothing but what was loaded; the nearest to the known
    /// place first.
    pub(super) fn places_that_tell(
        &mut self,
        number: AccessNumber,
        access: Access,
        address: Term,
    ) -> Vec<u64> {
        let terms = Rc::clone(&self.terms);
        let value = self.facts.resolve(&terms, access.value);
        let Some(loaded) = Loaded::of(&terms, value) else { return Vec::new() };
        let Some(base) = literal_in(&terms, address).filter(|&va| self.image.is_mapped(va)) else {
            return Vec::new();
        };
        if access.store || self.facts.variables_of(&terms, address) != [loaded.unknown] {
            return Vec::new();
        }
        terms.fuel().burn(2 * REACH / u64::from(access.bytes) / PLACES_OF_A_UNIT);
        let mut plan = Plan::new(&terms, &[address]);
        let mut tells = |va: u64| {
            let word = self.known_bytes(va, access.bytes, number.step)?;
            let mut assignment = Assignment::default();
            assignment.set(loaded.unknown, loaded.part_of(word)?);
            let at = plan.evaluate(&assignment).next();
            (at == Some(va)).then_some(va)
        };
        let steps = 1..REACH / u64::from(access.bytes);
        let around = steps.flat_map(|n| {
            let distance = n * u64::from(access.bytes);
            [base.wrapping_sub(distance), base.wrapping_add(distance)]
        });
        std::iter::once(base).chain(around).filter_map(&mut tells).collect()
    }

    /// The bytes at `va` before step `step` as one number, where they are all as in the core.
    fn known_bytes(&self, va: u64, bytes: u32, step: Step) -> Option<u64> {
        let all = self.image.bytes(va).get(..bytes as usize)?;
        if (0..u64::from(bytes)).any(|n| self.memory.is_overwritten_since(va.wrapping_add(n), step)) {
            return None;
        }
        Some(all.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    }
}

/// What was loaded, where one run of its bits is not known.
struct Loaded {
    unknown: Var,
    /// How many known bits are below it, and their value.
    below: (u32, u64),
    /// How many bits it has.
    width: u32,
    /// The known bits above it.
    above: Option<u64>,
}

impl Loaded {
    fn of(terms: &Terms, value: Term) -> Option<Loaded> {
        let var = |t| match terms.node(t) {
            Node::Var(var) => Some((var, terms.width(t))),
            _ => None,
        };
        if let Some((unknown, width)) = var(value) {
            return Some(Loaded { unknown, below: (0, 0), width, above: None });
        }
        let Node::Concat(high, low) = terms.node(value) else { return None };
        if let (Some((unknown, width)), Some(known)) = (var(high), terms.value(low)) {
            return Some(Loaded { unknown, below: (terms.width(low), known), width, above: None });
        }
        let (above, (unknown, width)) = (terms.value(high)?, var(low)?);
        Some(Loaded { unknown, below: (0, 0), width, above: Some(above) })
    }

    /// The unknown part, if the known ones are as in `word`.
    fn part_of(&self, word: u64) -> Option<u64> {
        let mask = |w: u32| if w >= 64 { u64::MAX } else { (1 << w) - 1 };
        let (bits, known) = self.below;
        let rest = word >> bits;
        let top = if self.width >= 64 { 0 } else { rest >> self.width };
        let fits = word & mask(bits) == known && self.above.is_none_or(|above| above == top);
        fits.then_some(rest & mask(self.width))
    }
}

/// The number that is added in a sum, or that something is taken away from.
fn literal_in(terms: &Terms, t: Term) -> Option<u64> {
    match terms.node(t) {
        Node::Bin(Bin::Add, _, b) => terms.value(b),
        Node::Bin(Bin::Sub, a, _) => terms.value(a),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unknown_part_of_a_word_is_found_where_the_known_bits_agree() {
        let terms = Terms::new();
        let operand = terms.fresh(25);
        let value = terms.build_concat(operand, terms.lit_term(7, 0x2a));
        let loaded = Loaded::of(&terms, value).expect("one run of bits is unknown");
        assert_eq!(loaded.part_of(0x1234 << 7 | 0x2a), Some(0x1234));
        assert_eq!(loaded.part_of(0x1234 << 7 | 0x2b), None);
        let whole = Loaded::of(&terms, terms.fresh(64)).expect("all of it is unknown");
        assert_eq!(whole.part_of(u64::MAX), Some(u64::MAX));
    }
}
