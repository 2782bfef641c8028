//! Terms: the values of the symbolic domain, hash-consed and simplified as they are made.
//!
//! A [`Term`] is an index into [`Terms`], so it is `Copy` and equal terms are equal indices. Canonical forms,
//! on which the propagation relies: no operation has only literal operands (it is folded with the concrete
//! domain, the same code that the software CPU runs); the literal of a commutative operation stands on the
//! right; `x - c` is `x + (-c)`; sums are flat and ordered (sum.rs); `a or b` is `not (not a and not b)`; an extraction never sits on a
//! concatenation, an extension or another extraction; adjacent extractions of one term are never concatenated.

mod build;
mod domain;
mod evaluate;
mod extract;
mod plan;
mod show;
mod sum;

pub(crate) use build::mask;
pub use evaluate::Assignment;
pub(crate) use plan::Plan;

use crate::fuel::Fuel;
use extract::Extracts;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use x86::domain::{Bin, Cmp, Un};
use x86::opaque::Opaque;

/// A value or a truth value: an index into its [`Terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term(u32);

/// A variable: an unknown of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// Which result of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DivisionPart {
    /// The quotient.
    Quotient,
    /// The remainder.
    Remainder,
    /// Whether it faults (a truth value).
    Fault,
}

/// What a term is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A literal.
    Lit(u64),
    /// An unknown.
    Var(Var),
    /// A two-operand operation.
    Bin(Bin, Term, Term),
    /// A one-operand operation.
    Un(Un, Term),
    /// Zero-extension.
    Zext(Term),
    /// Sign-extension.
    Sext(Term),
    /// Bits from `low` up.
    Extract {
        /// The lowest bit.
        low: u8,
        /// Of what.
        of: Term,
    },
    /// High part, low part.
    Concat(Term, Term),
    /// Condition, then, else: of vectors or of truth values.
    Ite(Term, Term, Term),
    /// A result of dividing `high:low` by `divisor`.
    Divide {
        /// Which result.
        part: DivisionPart,
        /// IDIV or DIV.
        signed: bool,
        /// High half of the dividend.
        high: Term,
        /// Low half of the dividend.
        low: Term,
        /// The divisor.
        divisor: Term,
    },
    /// Result number `part` of an operation outside bit-vector arithmetic; `args` indexes the argument lists.
    Opaque {
        /// The operation.
        op: Opaque,
        /// Which of its results.
        part: u8,
        /// Its arguments.
        args: u32,
    },
    /// A literal truth value.
    Bool(bool),
    /// A comparison.
    Cmp(Cmp, Term, Term),
    /// Logical not.
    Not(Term),
    /// Logical and.
    And(Term, Term),
    /// Exclusive or of truth values.
    Xor(Term, Term),
}

#[derive(Clone, Copy)]
struct Entry {
    node: Node,
    /// Bits; 0 for a truth value.
    width: u8,
    /// Whether a variable occurs in it.
    open: bool,
}

#[derive(Default)]
struct Arena {
    entries: Vec<Entry>,
    /// Keyed by width too, since equal nodes of different widths are different terms.
    index: FxHashMap<(Node, u8), Term>,
    argument_lists: Vec<Box<[Term]>>,
    argument_index: FxHashMap<Box<[Term]>, u32>,
    /// The term of each variable.
    variable_terms: Vec<Term>,
}

/// How many terms there were at some moment.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    entries: usize,
    lists: usize,
    variables: usize,
}

/// The arena that owns every term.
#[derive(Default)]
pub struct Terms {
    arena: RefCell<Arena>,
    fuel: Fuel,
    extracts: Extracts,
}

impl Terms {
    /// An empty arena.
    #[must_use]
    pub fn new() -> Terms {
        Terms::default()
    }

    /// An empty arena whose work is counted by `fuel`.
    #[must_use]
    pub fn with_fuel(fuel: Fuel) -> Terms {
        Terms { fuel, ..Terms::default() }
    }

    /// Who counts the work on these terms.
    pub fn fuel(&self) -> &Fuel {
        &self.fuel
    }

    /// The present moment.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let arena = self.arena.borrow();
        Mark {
            entries: arena.entries.len(),
            lists: arena.argument_lists.len(),
            variables: arena.variable_terms.len(),
        }
    }

    /// Forgets the terms that were made since `mark`: whoever has one of them must not use it any more.
    pub fn forget(&self, mark: Mark) {
        let Arena { entries, index, argument_lists, argument_index, variable_terms } =
            &mut *self.arena.borrow_mut();
        for entry in entries.drain(mark.entries..) {
            index.remove(&(entry.node, entry.width));
        }
        for list in argument_lists.drain(mark.lists..) {
            argument_index.remove(&list);
        }
        variable_terms.truncate(mark.variables);
    }

    /// What a term is made of.
    pub fn node(&self, t: Term) -> Node {
        self.entry(t).node
    }

    /// Its width in bits; 0 for a truth value.
    pub fn width(&self, t: Term) -> u32 {
        u32::from(self.entry(t).width)
    }

    /// Whether a variable occurs in it.
    pub fn is_open(&self, t: Term) -> bool {
        self.entry(t).open
    }

    /// Its value if it is a literal.
    pub fn value(&self, t: Term) -> Option<u64> {
        match self.node(t) {
            Node::Lit(v) => Some(v),
            _ => None,
        }
    }

    /// Its truth value if it is a literal.
    pub fn truth(&self, t: Term) -> Option<bool> {
        match self.node(t) {
            Node::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The term of a variable.
    ///
    /// # Panics
    /// If `var` is of another arena.
    pub fn variable(&self, var: Var) -> Term {
        self.arena.borrow().variable_terms[var.0 as usize]
    }

    /// A new unknown of `w` bits; of truth if `w` is 0.
    pub fn fresh(&self, w: u32) -> Term {
        let var = Var(u32::try_from(self.variables()).expect("fewer than 2^32 variables"));
        let term = self.intern(Node::Var(var), w, true);
        self.arena.borrow_mut().variable_terms.push(term);
        term
    }

    /// How many variables there are; each [`Var`] is below this.
    pub fn variables(&self) -> usize {
        self.arena.borrow().variable_terms.len()
    }

    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.arena.borrow().entries.len()
    }

    /// Whether there is no term yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arguments of an opaque operation.
    pub fn arguments(&self, list: u32) -> Box<[Term]> {
        self.arena.borrow().argument_lists[list as usize].clone()
    }

    /// Calls `each` with every direct operand of `t`.
    pub fn operands(&self, t: Term, mut each: impl FnMut(Term)) {
        match self.node(t) {
            Node::Lit(_) | Node::Var(_) | Node::Bool(_) => {}
            Node::Un(_, a) | Node::Zext(a) | Node::Sext(a) | Node::Extract { of: a, .. } | Node::Not(a) => {
                each(a)
            }
            Node::Bin(_, a, b)
            | Node::Concat(a, b)
            | Node::Cmp(_, a, b)
            | Node::And(a, b)
            | Node::Xor(a, b) => [a, b].into_iter().for_each(each),
            Node::Ite(c, a, b) => [c, a, b].into_iter().for_each(each),
            Node::Divide { high, low, divisor, .. } => [high, low, divisor].into_iter().for_each(each),
            Node::Opaque { args, .. } => self.arguments(args).into_vec().into_iter().for_each(each),
        }
    }

    /// The terms that `roots` are made of, they themselves among them: operands before what they are used in.
    #[must_use]
    pub fn reachable(&self, roots: impl Iterator<Item = Term>) -> Vec<Term> {
        let (mut todo, mut reached) = (roots.collect::<Vec<_>>(), FxHashSet::default());
        while let Some(t) = todo.pop() {
            if reached.insert(t) {
                self.operands(t, |operand| todo.push(operand));
            }
        }
        // A term is made after its operands.
        let mut order: Vec<Term> = reached.into_iter().collect();
        order.sort_unstable();
        order
    }

    fn entry(&self, t: Term) -> Entry {
        self.arena.borrow().entries[t.0 as usize]
    }

    fn intern(&self, node: Node, w: u32, open: bool) -> Term {
        self.fuel.burn(1);
        let mut arena = self.arena.borrow_mut();
        let width = u8::try_from(w).expect("a term has at most 64 bits");
        if let Some(&t) = arena.index.get(&(node, width)) {
            return t;
        }
        let t = Term(u32::try_from(arena.entries.len()).expect("fewer than 2^32 terms"));
        arena.entries.push(Entry { node, width, open });
        arena.index.insert((node, width), t);
        t
    }

    fn intern_arguments(&self, args: &[Term]) -> u32 {
        let mut arena = self.arena.borrow_mut();
        if let Some(&list) = arena.argument_index.get(args) {
            return list;
        }
        let list = u32::try_from(arena.argument_lists.len()).expect("fewer than 2^32 argument lists");
        arena.argument_lists.push(args.into());
        arena.argument_index.insert(args.into(), list);
        list
    }
}

impl Term {
    /// Its place in the arena, dense from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_made_anew() {
        let terms = Terms::new();
        let x = terms.fresh(32);
        let kept = terms.build_bin(Bin::Add, x, terms.lit_term(32, 7));
        let before = (terms.len(), terms.variables());
        let mark = terms.mark();
        let y = terms.fresh(64);
        _ = terms.build_bin(Bin::Mul, y, terms.lit_term(64, 3));
        terms.forget(mark);
        assert_eq!((terms.len(), terms.variables()), before);
        assert_eq!(terms.build_bin(Bin::Add, x, terms.lit_term(32, 7)), kept);
        let z = terms.fresh(8);
        assert_eq!((terms.width(z), terms.node(z)), (8, terms.node(y)), "its number is free again");
    }
}
