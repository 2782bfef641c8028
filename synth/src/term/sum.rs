//! Sums in one form: what the same addresses come to, whichever way a program adds them up.
//!
//! `x + y + .. - z - .. + c`: what is added before what is taken away, each in the order of the arena, a term that is
//! both left out, and the literal last. Without anything that is added the literal is the minuend.

use super::{Node, Term, Terms};
use x86::domain::Bin;

/// Longer sums stay as they were made.
const MOST_ADDENDS: usize = 12;

#[derive(Default)]
struct Sum {
    added: Vec<Term>,
    taken: Vec<Term>,
    literal: u64,
}

impl Terms {
    /// `a op b` for `+` and `-` as one sum, where one of the two is a sum already.
    pub(super) fn build_sum(&self, op: Bin, a: Term, b: Term) -> Option<Term> {
        let is_sum = |t| matches!(self.node(t), Node::Bin(Bin::Add | Bin::Sub, ..));
        if !matches!(op, Bin::Add | Bin::Sub) || !is_sum(a) && !is_sum(b) {
            return None;
        }
        let mut sum = Sum::default();
        self.add_up(&mut sum, a, false)?;
        self.add_up(&mut sum, b, op == Bin::Sub)?;
        sum.cancel();
        Some(self.term_of(&sum, self.width(a)))
    }

    /// `a * factor`, where `a` is a multiple of something already: the size of an element and its inverse, which a difference of
    /// pointers is multiplied by, come to one.
    pub(super) fn scale(&self, a: Term, factor: u64) -> Option<Term> {
        let (of, times) = self.multiple(a);
        let literal = self.lit_term(self.width(a), times.wrapping_mul(factor));
        (of != a).then(|| self.build_bin(Bin::Mul, of, literal))
    }

    /// What a term is a multiple of, and how often it is in it, modulo 2 to its width.
    pub(crate) fn multiple(&self, t: Term) -> (Term, u64) {
        let w = self.width(t);
        match self.node(t) {
            Node::Bin(Bin::Mul, x, factor) if let Some(factor) = self.value(factor) => {
                let (of, times) = self.multiple(x);
                (of, times.wrapping_mul(factor))
            }
            Node::Bin(op @ (Bin::Add | Bin::Sub), x, y) => {
                let ((of, x), (other, y)) = (self.multiple(x), self.multiple(y));
                let times = if op == Bin::Add { x.wrapping_add(y) } else { x.wrapping_sub(y) };
                if of == other { (of, times) } else { (t, 1) }
            }
            Node::Concat(high, low) if self.value(low) == Some(0) => {
                let whole = match self.node(high) {
                    Node::Extract { low: 0, of } if self.width(of) == w => of,
                    Node::Sext(of) => self.build_sext(w, of),
                    Node::Zext(of) => self.build_zext(w, of),
                    _ => return (t, 1),
                };
                let (of, times) = self.multiple(whole);
                (of, times.wrapping_shl(self.width(low)))
            }
            _ => (t, 1),
        }
    }

    /// The addends of a sum that are no literals, each with whether it is taken away; of another term, itself.
    pub(crate) fn addends(&self, t: Term) -> Vec<(Term, bool)> {
        let (mut addends, mut todo) = (Vec::new(), vec![(t, false)]);
        while let Some((t, is_taken)) = todo.pop() {
            match self.node(t) {
                Node::Bin(op @ (Bin::Add | Bin::Sub), x, y) => {
                    todo.extend([(y, is_taken != (op == Bin::Sub)), (x, is_taken)]);
                }
                Node::Lit(_) => {}
                _ => addends.push((t, is_taken)),
            }
        }
        addends
    }

    fn add_up(&self, sum: &mut Sum, t: Term, is_taken: bool) -> Option<()> {
        match self.node(t) {
            Node::Bin(op @ (Bin::Add | Bin::Sub), x, y) => {
                self.add_up(sum, x, is_taken)?;
                return self.add_up(sum, y, is_taken != (op == Bin::Sub));
            }
            Node::Lit(v) if is_taken => sum.literal = sum.literal.wrapping_sub(v),
            Node::Lit(v) => sum.literal = sum.literal.wrapping_add(v),
            _ if is_taken => sum.taken.push(t),
            _ => sum.added.push(t),
        }
        (sum.added.len() + sum.taken.len() <= MOST_ADDENDS).then_some(())
    }

    fn term_of(&self, sum: &Sum, w: u32) -> Term {
        let literal = self.lit_term(w, sum.literal);
        let added = sum.added.iter().copied().reduce(|x, y| self.make(Node::Bin(Bin::Add, x, y), w));
        let taken = |from| sum.taken.iter().fold(from, |x, &y| self.make(Node::Bin(Bin::Sub, x, y), w));
        match added {
            None => taken(literal),
            Some(added) if self.value(literal) == Some(0) => taken(added),
            Some(added) => self.make(Node::Bin(Bin::Add, taken(added), literal), w),
        }
    }
}

impl Sum {
    /// Leaves out what is both added and taken away.
    fn cancel(&mut self) {
        self.taken.retain(|t| match self.added.iter().position(|x| x == t) {
            Some(at) => {
                self.added.swap_remove(at);
                false
            }
            None => true,
        });
        self.added.sort_unstable();
        self.taken.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_multiplied_by_a_number_and_its_inverse_is_itself() {
        let terms = Terms::new();
        let x = terms.fresh(32);
        let [one, inverse] = [1, 0xaaaa_aaab].map(|v| terms.lit_term(32, v));
        let double = terms.build_bin(Bin::Shl, x, one);
        let triple = terms.build_bin(Bin::Add, x, double);
        assert_eq!(terms.build_bin(Bin::Mul, triple, inverse), x);
        let seven = terms.build_bin(Bin::Sub, terms.build_bin(Bin::Shl, x, terms.lit_term(32, 3)), x);
        assert_eq!(terms.node(terms.build_bin(Bin::Mul, seven, one)), terms.node(seven));
        assert_eq!(terms.build_bin(Bin::Mul, seven, inverse), {
            let product = terms.lit_term(32, u64::from(7_u32.wrapping_mul(0xaaaa_aaab)));
            terms.build_bin(Bin::Mul, x, product)
        });
    }

    #[test]
    fn one_address_added_up_in_two_ways_is_one_term() {
        let terms = Terms::new();
        let [x, y, z] = [(); 3].map(|()| terms.fresh(64));
        let lit = |v: u64| terms.lit_term(64, v);
        let (add, sub) = (|a, b| terms.build_bin(Bin::Add, a, b), |a, b| terms.build_bin(Bin::Sub, a, b));
        assert_eq!(add(add(sub(lit(100), x), lit(u64::MAX - 15)), x), lit(84));
        assert_eq!(add(add(x, lit(8)), y), add(add(y, lit(16)), sub(x, lit(8))));
        assert_eq!(sub(add(x, y), add(y, z)), sub(x, z));
        assert_eq!(sub(sub(lit(5), x), sub(lit(3), x)), lit(2));
        assert_eq!(sub(add(x, lit(5)), x), lit(5));
        assert_eq!(add(sub(lit(0), x), add(x, y)), y);
        assert_eq!(terms.node(sub(sub(lit(5), x), lit(5))), Node::Bin(Bin::Sub, lit(0), x));
    }
}
