//! Bits of a term: taken from what it is made of, as deep as that goes.

use super::{Node, Term, Terms};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use x86::domain::Bin;

/// What was taken apart for the extraction that is under way: terms share parts, and a sum of sums of the same two numbers has as
/// many ways down as there are paths through it.
#[derive(Default)]
pub(super) struct Extracts {
    done: RefCell<FxHashMap<Bits, Term>>,
    depth: Cell<u32>,
}

/// So many bits of a term, from this one on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Bits {
    of: Term,
    low: u32,
    count: u32,
}

impl Terms {
    /// Bits `low .. low + to` of `a`.
    pub fn build_extract(&self, low: u32, to: u32, a: Term) -> Term {
        let from = self.width(a);
        debug_assert!(low + to <= from, "extracting {low}+{to} bits of {from}");
        if low == 0 && to == from {
            return a;
        }
        match self.node(a) {
            Node::Lit(v) => self.lit_term(to, v >> low),
            Node::Extract { low: inner, of } => self.build_extract(low + u32::from(inner), to, of),
            Node::Zext(x) => self.extract_zext(low, to, x),
            Node::Sext(x) if low + to <= self.width(x) => self.build_extract(low, to, x),
            Node::Sext(x) => {
                let wx = self.width(x);
                let from = low.min(wx - 1);
                self.build_sext(to, self.build_extract(from, wx - from, x))
            }
            Node::Concat(high, below) => {
                let wl = self.width(below);
                if low >= wl {
                    self.build_extract(low - wl, to, high)
                } else if low + to <= wl {
                    self.build_extract(low, to, below)
                } else {
                    let part = self.build_extract(0, low + to - wl, high);
                    self.build_concat(part, self.build_extract(low, wl - low, below))
                }
            }
            // Only where the choice does not double: towers of choices would become exponential.
            Node::Ite(c, x, y) if self.value(x).is_some() || self.value(y).is_some() => {
                self.build_ite(c, self.build_extract(low, to, x), self.build_extract(low, to, y))
            }
            Node::Bin(op @ (Bin::And | Bin::Or | Bin::Xor), x, y) => {
                self.extract_both(Bits { of: a, low, count: to }, op, x, y)
            }
            Node::Bin(op @ (Bin::Add | Bin::Sub | Bin::Mul), x, y) if low == 0 => {
                self.extract_both(Bits { of: a, low, count: to }, op, x, y)
            }
            _ => self.extract_whole(low, to, a),
        }
    }

    /// Bits of what combines these operands. Each term that they share is taken apart once.
    fn extract_both(&self, bits: Bits, op: Bin, x: Term, y: Term) -> Term {
        let known = self.extracts.done.borrow().get(&bits).copied();
        if let Some(known) = known {
            return known;
        }
        let depth = self.extracts.depth.get();
        self.extracts.depth.set(depth + 1);
        let parts = [x, y].map(|operand| self.build_extract(bits.low, bits.count, operand));
        let both = self.build_bin(op, parts[0], parts[1]);
        self.extracts.depth.set(depth);
        if depth == 0 {
            self.extracts.done.borrow_mut().clear();
        } else {
            self.extracts.done.borrow_mut().insert(bits, both);
        }
        both
    }

    fn extract_whole(&self, low: u32, to: u32, of: Term) -> Term {
        let low = u8::try_from(low).expect("below 64");
        self.make(Node::Extract { low, of }, to)
    }

    fn extract_zext(&self, low: u32, to: u32, inner: Term) -> Term {
        let wi = self.width(inner);
        if low >= wi {
            self.lit_term(to, 0)
        } else if low + to <= wi {
            self.build_extract(low, to, inner)
        } else {
            self.build_zext(to, self.build_extract(low, wi - low, inner))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tower_of_shared_sums_is_taken_apart_in_no_time() {
        let terms = Terms::new();
        let (mut x, mut y) = (terms.fresh(64), terms.fresh(64));
        for n in 0..200 {
            let op = [Bin::Add, Bin::Xor, Bin::Or][n % 3];
            (x, y) = (terms.build_bin(op, x, y), x);
        }
        let low = terms.build_extract(0, 32, x);
        assert_eq!(terms.width(low), 32);
        assert_eq!(low, terms.build_extract(0, 32, x), "and the same again");
    }
}
