//! Addresses that nothing determines.
//!
//! A load or store through a register that was overwritten later, and whose value nothing else tells, could
//! have gone anywhere. For a certified suffix any address will do that agrees with the core. What memory holds
//! says where to look first: the path's accesses at fixed distances from this one have left or found values
//! there ([`Traces`]); a pointer was loaded from memory, as a rule, so its value still lies there
//! ([`super::pointers`]); an index was small.

use super::deferred::AccessNumber;
use super::history::Step;
use super::hypothesis::Hypothesis;
use super::machine::Access;
use super::traces::Traces;
use crate::term::{Node, Term, Terms};
use rustc_hash::FxHashSet;
use std::cmp::Reverse;
use std::rc::Rc;
use x86::domain::Bin;

/// How hard to look.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How many addresses are tried for one access.
    pub(super) listed: usize,
    /// How many of them may be looked at more closely than by propagation.
    pub(super) tries: usize,
    /// How many in all, of one round.
    pub(super) questions: usize,
    /// How often to begin, where the places of some accesses are in the way of others.
    pub(super) rounds: usize,
    /// One part in so many of the fuel that is left may be taken.
    pub(super) parts: u64,
}

impl Patience {
    /// At a place that the search may leave for another.
    pub const SEARCH: Patience = Patience { listed: 1200, tries: 72, questions: 160, rounds: 4, parts: 8 };
    /// Where what is not found shortens the suffix.
    pub const FINAL: Patience =
        Patience { listed: 20_000, tries: 600, questions: 4000, rounds: 24, parts: 2 };
}

/// Fewer bytes than this are found everywhere.
const TELLING: usize = 2;
/// So many bytes say where an access was of whose address nothing else is known.
const TELLING_ALONE: usize = 4;
/// Values of an index, a length or a divisor to try before 0, 1, 2...: large enough to leave small numbers alone.
const COUNTS: [u64; 4] = [64, 256, 1024, 4096];
/// Elements of a table that are tried because of what they hold.
const MOST_TELLING: usize = 36;
/// Elements of a table that are tried because they are near.
const MOST_NEAR: u64 = 1024;
/// Of elements in front of the first, whose numbers are negative, so many are tried.
const MOST_IN_FRONT: u64 = 16;
/// Elements that are so many bytes away from what a register points to are tried.
const MOST_AROUND: u64 = 128;
/// Elements of a table that are looked at.
const MOST_ELEMENTS: u64 = 1 << 16;
/// So many of the unknowns of an address are tried with small numbers, below this; after so many places.
const MOST_VARIABLES: usize = 3;
const SMALL: u64 = 16;
const BEFORE_SMALL: usize = 64;
/// After so many places the clock is looked at.
const LOOKS: usize = 256;

/// Nothing is mapped below this.
const SMALLEST_POINTER: u64 = 1 << 16;

/// How an address is computed from what is not known.
enum Shape {
    /// So many bytes away from an unknown pointer.
    Pointer { offset: u64 },
    /// An unknown number of elements away from a known place; a negative size is modulo 2^64.
    Element { table: u64, size: u64 },
    /// From an unknown pointer and this unknown, or from several.
    Computed { from: Term },
}

impl Hypothesis<'_> {
    /// Whether the oldest step found or left a pointer at an address that is not known, and no word of memory is that pointer
    /// now. Something may have replaced it since, where the path stores to another place that is not known.
    pub fn lost_a_pointer(&mut self) -> bool {
        let (terms, oldest) = (Rc::clone(&self.terms), self.step());
        let unresolved = self.unresolved_accesses();
        if unresolved.iter().any(|(step, access)| access.store && *step < oldest) {
            return false;
        }
        let of_oldest = unresolved.into_iter().filter(|(step, access)| *step == oldest && access.bytes == 8);
        of_oldest.into_iter().any(|(_, access)| {
            let value = self.facts.resolve(&terms, access.value);
            let Some(value) = terms.value(value).filter(|&va| self.image.is_mapped(va)) else { return false };
            let address = self.facts.resolve(&terms, access.address);
            let (traces, pointers) = (Traces::of(self, address), Rc::clone(self.pointers()));
            !pointers.places_of(value).any(|va| traces.fit(self, va).is_some())
        })
    }

    /// What could be assumed so that the access has an address, the likeliest first: the address itself, or a part
    /// of what it is computed from.
    pub(super) fn assumptions(&mut self, number: AccessNumber, access: Access) -> Vec<(Term, u64)> {
        if self.until.is_over() {
            return Vec::new();
        }
        let terms = Rc::clone(self.terms());
        let address = self.facts().resolve(&terms, access.address);
        let step = number.step;
        if let Node::Ite(condition, one, other) = terms.node(address) {
            return self.cases(condition, [one, other]);
        }
        let telling = self.places_that_tell(number, access, address);
        if !telling.is_empty() {
            return telling.into_iter().map(|va| (address, va)).collect();
        }
        let places = match self.shape_of(address) {
            Shape::Pointer { offset } => self.places_of_pointer(step, address, offset),
            Shape::Element { table, size } => self.places_in_table(step, address, table, size),
            Shape::Computed { from } => {
                let alike = self.places_alike(address).into_iter().map(|va| (address, va));
                let numbers = COUNTS.into_iter().chain(0..64);
                let pointers = if terms.width(from) == 64 { self.likely_pointers(step) } else { Vec::new() };
                let fits = |value: &u64| value >> terms.width(from).clamp(1, 63) == 0;
                let parts = numbers.filter(fits).chain(pointers).map(|value| (from, value));
                return alike.chain(parts).collect();
            }
        };
        let mut assumed: Vec<(Term, u64)> = places.into_iter().map(|va| (address, va)).collect();
        // Where some bits of the address are known, hardly any of these places can be it; what is not known of it is small.
        let variables = self.facts().variables_of(&terms, address);
        let small = variables.into_iter().take(MOST_VARIABLES).flat_map(|var| {
            let variable = terms.variable(var);
            (0..SMALL).map(move |value| (variable, value))
        });
        let small: Vec<_> = small.filter(|&(t, value)| value >> terms.width(t).clamp(1, 63) == 0).collect();
        assumed.splice(assumed.len().min(BEFORE_SMALL)..assumed.len().min(BEFORE_SMALL), small);
        assumed
    }

    /// Of two addresses, one of which it was, those that could be accessed.
    fn cases(&self, condition: Term, addresses: [Term; 2]) -> Vec<(Term, u64)> {
        let terms = self.terms();
        let cases = [1, 0].into_iter().zip(addresses);
        let mapped =
            cases.filter(|&(_, address)| terms.value(address).is_none_or(|va| self.image().is_mapped(va)));
        mapped.map(|(truth, _)| (condition, truth)).collect()
    }

    fn shape_of(&mut self, address: Term) -> Shape {
        let terms = Rc::clone(self.terms());
        let (rest, offset) = match terms.node(address) {
            Node::Bin(Bin::Add, rest, literal) if terms.value(literal).is_some() => {
                (rest, terms.value(literal).unwrap_or(0))
            }
            Node::Bin(Bin::Sub, literal, rest)
                if let Some(table) = terms.value(literal).filter(|&it| it > SMALLEST_POINTER) =>
            {
                // Its first element may lie nowhere: a signed number is often kept with its smallest value added.
                return Shape::Element { table, size: stride(&terms, rest).wrapping_neg() };
            }
            _ => (address, 0),
        };
        if self.image().is_mapped(offset) {
            return Shape::Element { table: offset, size: stride(&terms, rest) };
        }
        let base = base_of(&terms, rest);
        let mut variables = self.facts().variables_of(&terms, rest).into_iter().map(|v| terms.variable(v));
        match variables.find(|&v| Some(v) != base) {
            Some(from) => Shape::Computed { from },
            None => Shape::Pointer { offset },
        }
    }

    /// Places where the accesses at fixed distances would find and leave what they found and left: those with the
    /// most to say first, then those that are pointed to from where such pointers lie, then the nearest.
    fn places_of_pointer(&mut self, step: Step, address: Term, offset: u64) -> Vec<u64> {
        let traces = Traces::of(self, address);
        let registers = self.registers_at(step);
        let pointers = Rc::clone(self.pointers());
        // What the path itself replaced may have been anything.
        let replaced = self.memory.overwritten(step);
        let replaced = replaced.chunk_by(|a, b| b - a == 1).flat_map(|run| run.iter().step_by(8));
        let is_linked = |va: u64| pointers.places_of(va).any(|at| pointers.contains(at.wrapping_sub(offset)));
        let distance = |va: u64| registers.iter().map(|r| r.abs_diff(va)).min().unwrap_or(u64::MAX);
        let until = self.until.clone();
        let mut seen = FxHashSet::default();
        let mut found: Vec<_> = registers
            .iter()
            .copied()
            .map(|r| (r, 0))
            .chain(pointers.values().map(|va| (va, 1)))
            .map(|(base, class)| (base.wrapping_add(offset), class))
            .chain(replaced.map(|&va| (va, 2)))
            .chain(traces.places_like(self).into_iter().map(|va| (va, 3)))
            .chain(self.image().regions().into_iter().map(|r| ((r.start + (r.end - r.start) / 2) & !15, 4)))
            .filter(|&(va, _)| seen.insert(va))
            .enumerate()
            .take_while(|(n, _)| n % LOOKS > 0 || !until.is_over())
            .filter_map(|(_, (va, class))| Some((traces.fit(self, va)?, va, class)))
            .map(|(told, va, class)| {
                let told = if told < TELLING { 0 } else { told };
                let base = va.wrapping_sub(offset);
                let class = if class == 1 && !is_linked(base) { 2 } else { class };
                ((Reverse(told), class, distance(base)), va)
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, va)| va).collect()
    }

    /// Where memory is as the accesses at fixed distances left or found it, if what they did says enough.
    fn places_alike(&mut self, address: Term) -> Vec<u64> {
        let traces = Traces::of(self, address);
        let mut found = Vec::new();
        for va in traces.places_like(self) {
            let told = traces.fit(self, va).filter(|&told| told >= TELLING_ALONE);
            found.extend(told.map(|told| (Reverse(told), va)));
        }
        found.sort_unstable();
        found.truncate(MOST_TELLING);
        found.into_iter().map(|(_, va)| va).collect()
    }

    /// Elements that fit: where the content says something the first of those first, else some in the middle, then
    /// the first.
    fn places_in_table(&mut self, step: Step, address: Term, table: u64, size: u64) -> Vec<u64> {
        let traces = Traces::of(self, address);
        let most = if traces.can_tell() { MOST_ELEMENTS } else { 0 };
        let near = (0..most).map(|n| table.wrapping_add(n.wrapping_mul(size)));
        let near = near.take_while(|&va| self.image().is_mapped(va)).collect::<Vec<_>>();
        let in_front = (1..=MOST_IN_FRONT).map(|n| table.wrapping_sub(n.wrapping_mul(size)));
        let in_front = in_front.filter(|&va| self.image().is_mapped(va)).collect::<Vec<_>>();
        // A table may be larger than that.
        let is_behind = |va: &u64| match size.cast_signed() {
            ..0 => *va <= table && (table - va).is_multiple_of(size.wrapping_neg()),
            _ => *va >= table && (va - table).is_multiple_of(size),
        };
        let is_element = |va: &u64| is_behind(va) || in_front.contains(va);
        let far = traces.places_like(self).into_iter().filter(is_element);
        let mut telling = Vec::new();
        for (n, va) in near.into_iter().chain(in_front.iter().copied()).chain(far).enumerate() {
            if n % LOOKS == 0 && self.until.is_over() {
                return Vec::new();
            }
            if let Some(told) = traces.fit(self, va).filter(|&told| told > 0) {
                telling.push((Reverse(told), va));
            }
        }
        telling.sort_unstable();
        telling.dedup();
        // Where a number that is subtracted elsewhere is in the table's address, its elements are near what registers point to.
        let around =
            |at: u64| (0..2 * MOST_AROUND).map(move |n| at.wrapping_add(n).wrapping_sub(MOST_AROUND));
        let pointed = self.registers_at(step).into_iter().flat_map(around).filter(is_element);
        let pointed: Vec<u64> = pointed.filter(|&va| traces.fit(self, va).is_some()).collect();
        let any = COUNTS.into_iter().chain(0..MOST_NEAR).map(|n| table.wrapping_add(n.wrapping_mul(size)));
        let mut found: Vec<u64> = telling.into_iter().take(MOST_TELLING).map(|(_, va)| va).collect();
        found.extend(pointed);
        if !self.image().is_mapped(table) {
            // Its first element is nowhere: what points to its elements tells where they are.
            let pointers = Rc::clone(self.pointers());
            let elements: Vec<u64> = pointers.values().filter(is_element).collect();
            found.extend(elements.into_iter().filter(|&va| traces.fit(self, va).is_some()));
        }
        found.extend(any.chain(in_front).filter(|&va| traces.fit(self, va).is_some()));
        let mut seen = FxHashSet::default();
        found.retain(|&va| seen.insert(va));
        found
    }

    /// What a pointer may have been of which nothing is known: those in registers, then those in memory, the nearest to them first.
    fn likely_pointers(&mut self, step: Step) -> Vec<u64> {
        let registers = self.registers_at(step);
        let distance = |va: &u64| registers.iter().map(|r| r.abs_diff(*va)).min().unwrap_or(u64::MAX);
        let mut found: Vec<u64> = self.pointers().values().collect();
        self.terms.fuel().burn(found.len() as u64);
        found.sort_by_cached_key(distance);
        found
    }

    /// The known values of the general registers around a step, and at both ends of the path.
    fn registers_at(&mut self, step: Step) -> Vec<u64> {
        let mut found = Vec::new();
        for depth in [step as usize, (step as usize).saturating_sub(1), 0, self.len()] {
            for register in self.snapshot(depth.min(self.len())).gpr {
                let terms = Rc::clone(self.terms());
                let register = self.facts().resolve(&terms, register);
                found.extend(terms.value(register).filter(|&va| self.image().is_mapped(va)));
            }
        }
        found
    }
}

/// The variable that the term is so many bytes away from, if that is how it is computed.
fn base_of(terms: &Terms, t: Term) -> Option<Term> {
    match terms.node(t) {
        Node::Var(_) => Some(t),
        Node::Bin(Bin::Add, x, y) => base_of(terms, x).or_else(|| base_of(terms, y)),
        Node::Bin(Bin::Sub, x, _) => base_of(terms, x),
        // A pointer that was rounded down.
        Node::Concat(high, low) if terms.value(low) == Some(0) => base_of(terms, high),
        _ => None,
    }
}

/// A number that the term is a multiple of: how often its one variable is in it, or what all its parts are multiples of.
fn stride(terms: &Terms, t: Term) -> u64 {
    match coefficient(terms, t) {
        Some((_, 0)) | None => divisor(terms, t),
        Some((_, coefficient)) => coefficient,
    }
}

/// How often a variable, or what is computed from it otherwise, is in the term, if there is but one. An extended value that has a
/// number added is one of its own: where it wraps around is not known.
fn coefficient(terms: &Terms, t: Term) -> Option<(Term, u64)> {
    match terms.node(t) {
        Node::Bin(Bin::Add, x, y) if terms.value(y).is_some() => coefficient(terms, x),
        Node::Bin(Bin::Add, x, y) => {
            let ((of, x), (other, y)) = (coefficient(terms, x)?, coefficient(terms, y)?);
            (of == other).then_some((of, x.wrapping_add(y)))
        }
        Node::Bin(Bin::Sub, x, y) if terms.value(x).is_some() => {
            let (of, y) = coefficient(terms, y)?;
            Some((of, y.wrapping_neg()))
        }
        Node::Bin(Bin::Sub, x, y) => {
            let ((of, x), (other, y)) = (coefficient(terms, x)?, coefficient(terms, y)?);
            (of == other).then_some((of, x.wrapping_sub(y)))
        }
        Node::Bin(Bin::Mul, x, factor) => {
            let (of, x) = coefficient(terms, x)?;
            Some((of, x.wrapping_mul(terms.value(factor)?)))
        }
        Node::Concat(high, low) if terms.value(low) == Some(0) => {
            let (of, high) = coefficient(terms, high)?;
            Some((of, high.wrapping_shl(terms.width(low))))
        }
        Node::Sext(of) | Node::Zext(of) if !has_literal(terms, of) => coefficient(terms, of),
        Node::Lit(_) => None,
        _ => Some((t, 1)),
    }
}

/// Whether a number is added to the term.
fn has_literal(terms: &Terms, t: Term) -> bool {
    match terms.node(t) {
        Node::Bin(Bin::Add | Bin::Sub, x, y) => {
            [x, y].into_iter().any(|part| terms.value(part).is_some() || has_literal(terms, part))
        }
        _ => false,
    }
}

/// A number that all parts of the term are multiples of.
fn divisor(terms: &Terms, t: Term) -> u64 {
    match terms.node(t) {
        Node::Bin(Bin::Mul, _, factor) => terms.value(factor).filter(|&f| f != 0).unwrap_or(1),
        Node::Bin(Bin::Shl, _, amount) => terms.value(amount).map_or(1, |bits| 1 << (bits & 63)),
        Node::Concat(high, low) if terms.value(low) == Some(0) => {
            divisor(terms, high).wrapping_shl(terms.width(low))
        }
        Node::Concat(_, low) | Node::Zext(low) | Node::Sext(low) => divisor(terms, low),
        Node::Bin(Bin::Add, x, y) => {
            let (x, y) = (divisor(terms, x), terms.value(y).unwrap_or_else(|| divisor(terms, y)));
            greatest_common_divisor(x, y)
        }
        _ => 1,
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
