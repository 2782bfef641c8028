//! Turning equations around until a variable stands alone.

use super::{Contradiction, Facts, Learned};
use crate::term::{Node, Term, Terms, mask};
use x86::domain::{Bin, Cmp};

impl Facts {
    /// Learns from the truth of `c`.
    pub(super) fn hold(&mut self, terms: &Terms, c: Term) -> Learned {
        let c = self.resolve(terms, c);
        match terms.node(c) {
            Node::Bool(true) => Ok(()),
            Node::Bool(false) => Err(Contradiction),
            Node::Var(var) => {
                self.bind(var, terms.bool_term(true));
                Ok(())
            }
            Node::And(a, b) => {
                self.hold(terms, a)?;
                self.hold(terms, b)
            }
            Node::Xor(a, b) => self.unify_truth(terms, a, terms.build_not(b), c),
            Node::Cmp(Cmp::Eq, a, b) => self.unify(terms, a, b),
            Node::Not(inner) => self.refute(terms, inner, c),
            _ => {
                self.postpone(terms, c);
                Ok(())
            }
        }
    }

    /// Learns from the falsehood of `inner`; `whole` is its negation.
    fn refute(&mut self, terms: &Terms, inner: Term, whole: Term) -> Learned {
        match terms.node(inner) {
            Node::Var(var) => {
                self.bind(var, terms.bool_term(false));
                Ok(())
            }
            Node::Xor(a, b) => self.unify_truth(terms, a, b, whole),
            Node::Cmp(Cmp::Eq, a, b) if terms.width(a) == 1 => match terms.value(b) {
                Some(bit) => self.unify(terms, a, terms.lit_term(1, bit ^ 1)),
                None => {
                    self.postpone(terms, whole);
                    Ok(())
                }
            },
            // x < 1 is written x == 0 already; !(0 < x) is the other way round.
            Node::Cmp(Cmp::Ult, a, b) if terms.value(a) == Some(0) => {
                self.unify(terms, b, terms.lit_term(terms.width(b), 0))
            }
            _ => {
                self.postpone(terms, whole);
                Ok(())
            }
        }
    }

    /// `a == b` of truth values; `whole` is that constraint as one term. Two variables are not bound to each
    /// other: they are flags whose origin, when it is found, gives a clearer meaning to both together.
    fn unify_truth(&mut self, terms: &Terms, a: Term, b: Term, whole: Term) -> Learned {
        let lone = |t| match terms.node(t) {
            Node::Not(inner) => matches!(terms.node(inner), Node::Var(_)),
            node => matches!(node, Node::Var(_)),
        };
        if lone(a) && lone(b) {
            self.postpone(terms, whole);
            return Ok(());
        }
        for (x, y) in [(a, b), (b, a)] {
            let (target, y) = match terms.node(x) {
                Node::Var(var) => (var, y),
                Node::Not(inner) => match terms.node(inner) {
                    Node::Var(var) => (var, terms.build_not(y)),
                    _ => continue,
                },
                _ => continue,
            };
            if !self.occurs(terms, target, y) {
                self.bind(target, y);
                return Ok(());
            }
        }
        self.postpone(terms, whole);
        Ok(())
    }

    /// Learns from `a == b`.
    pub(super) fn unify(&mut self, terms: &Terms, a: Term, b: Term) -> Learned {
        let (a, b) = (self.resolve(terms, a), self.resolve(terms, b));
        if a == b {
            self.note_agreement(terms, a);
            return Ok(());
        }
        if terms.width(a) == 0 {
            return match (terms.truth(a), terms.truth(b)) {
                (Some(_), Some(_)) => Err(Contradiction),
                (Some(truth), None) => self.hold(terms, if truth { b } else { terms.build_not(b) }),
                (None, Some(truth)) => self.hold(terms, if truth { a } else { terms.build_not(a) }),
                (None, None) => {
                    let whole = terms.build_not(terms.build_xor(a, b));
                    match terms.node(a) {
                        Node::Var(var) if !self.occurs(terms, var, b) => {
                            self.bind(var, b);
                            Ok(())
                        }
                        _ => self.unify_truth(terms, a, b, whole),
                    }
                }
            };
        }
        if terms.value(a).is_some() && terms.value(b).is_some() {
            return Err(Contradiction);
        }
        if self.solve_for(terms, a, b)? || self.solve_for(terms, b, a)? {
            return Ok(());
        }
        let equation = terms.build_cmp(Cmp::Eq, a, b);
        match terms.node(equation) {
            Node::Bool(true) => Ok(()),
            Node::Bool(false) => Err(Contradiction),
            _ => {
                match (terms.value(a), terms.value(b)) {
                    (_, Some(_)) => self.postpone_definition(terms, a, b),
                    (Some(_), _) => self.postpone_definition(terms, b, a),
                    _ => self.postpone(terms, equation),
                }
                Ok(())
            }
        }
    }

    /// Tries to take `a == b` apart along the structure of `a`. False: nothing was learned.
    fn solve_for(&mut self, terms: &Terms, a: Term, b: Term) -> Learned<bool> {
        let w = terms.width(a);
        match terms.node(a) {
            Node::Var(var) => {
                if self.occurs(terms, var, b) {
                    return Ok(false);
                }
                self.bind(var, b);
            }
            Node::Concat(high, low) => {
                if !self.splits(terms, b) {
                    return Ok(false);
                }
                let wl = terms.width(low);
                self.unify(terms, low, terms.build_extract(0, wl, b))?;
                let b = self.resolve(terms, b);
                self.unify(terms, high, terms.build_extract(wl, w - wl, b))?;
            }
            Node::Zext(x) => {
                if !self.splits(terms, b) {
                    return Ok(false);
                }
                let wx = terms.width(x);
                self.unify(terms, terms.build_extract(wx, w - wx, b), terms.lit_term(w - wx, 0))?;
                let b = self.resolve(terms, b);
                self.unify(terms, x, terms.build_extract(0, wx, b))?;
            }
            Node::Sext(x) => {
                if terms.value(b).is_none() {
                    return Ok(false);
                }
                let low = terms.build_extract(0, terms.width(x), b);
                if terms.build_sext(w, low) != b {
                    return Err(Contradiction);
                }
                self.unify(terms, x, low)?;
            }
            Node::Extract { low, of } => return self.solve_extract(terms, u32::from(low), of, a, b),
            Node::Bin(op, x, y) => return self.solve_bin(terms, op, (x, y), a, b),
            Node::Ite(c, x, y) => return self.solve_ite(terms, c, (x, y), b),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether taking `b` apart into bit ranges gives something simpler than `b`.
    fn splits(&self, terms: &Terms, b: Term) -> bool {
        matches!(
            terms.node(b),
            Node::Lit(_) | Node::Concat(..) | Node::Zext(_) | Node::Var(_) | Node::Extract { .. }
        )
    }

    /// `extract(low, x) == b`: a variable is split into the part that is known and fresh rest.
    fn solve_extract(&mut self, terms: &Terms, low: u32, of: Term, a: Term, b: Term) -> Learned<bool> {
        let Node::Var(var) = terms.node(of) else { return Ok(false) };
        if self.occurs(terms, var, b) {
            return Ok(false);
        }
        let (w, whole) = (terms.width(a), terms.width(of));
        let above = whole - low - w;
        let mut value = b;
        if low > 0 {
            value = terms.build_concat(value, terms.fresh(low));
        }
        if above > 0 {
            value = terms.build_concat(terms.fresh(above), value);
        }
        self.bind(var, value);
        Ok(true)
    }

    /// Whether moving an operation from `x` to the other side ends well: with a literal there, or at a variable
    /// that can be bound. Otherwise two unknown sides would pass operations back and forth for ever. A product by an even number has no
    /// inverse: it stays where it is.
    fn is_worth_inverting(&self, terms: &Terms, x: Term, b: Term) -> bool {
        if terms.value(b).is_some() {
            return true;
        }
        match terms.node(x) {
            Node::Var(var) => !self.occurs(terms, var, b),
            Node::Bin(op, inner, c) => match (op, terms.value(c)) {
                (Bin::Add | Bin::Xor, Some(_)) => self.is_worth_inverting(terms, inner, b),
                (Bin::Mul, Some(c)) => c & 1 == 1 && self.is_worth_inverting(terms, inner, b),
                _ => false,
            },
            _ => false,
        }
    }

    /// `a == b` where `a` is `x op y`.
    fn solve_bin(&mut self, terms: &Terms, op: Bin, (x, y): (Term, Term), a: Term, b: Term) -> Learned<bool> {
        if terms.value(y).is_some() && !self.is_worth_inverting(terms, x, b) {
            return Ok(op == Bin::Add && self.solve_sum(terms, a, b));
        }
        if op == Bin::Sub && terms.value(x).is_some() && self.is_worth_inverting(terms, y, b) {
            self.unify(terms, y, terms.build_bin(Bin::Sub, x, b))?;
            return Ok(true);
        }
        match (op, terms.value(y)) {
            (Bin::Add, Some(_)) => self.unify(terms, x, terms.build_bin(Bin::Sub, b, y))?,
            (Bin::Xor, Some(_)) => self.unify(terms, x, terms.build_bin(Bin::Xor, b, y))?,
            (Bin::And | Bin::Or, Some(m)) => return self.solve_mask(terms, op, (x, m), b),
            (Bin::Mul, Some(m)) => return self.solve_product(terms, (x, m), b),
            (Bin::Add | Bin::Sub, None) => {
                let (of, times) = terms.multiple(a);
                let is_product = of != a && terms.value(b).is_some() && times & mask(terms.width(a)) != 0;
                return match is_product {
                    true => self.solve_product(terms, (of, times), b),
                    false => Ok(self.solve_sum(terms, a, b)),
                };
            }
            (Bin::Xor, None) => return Ok(self.solve_difference(terms, (x, y), b)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `a == b` for a sum `a`: solved for the first addend that is a lone variable.
    fn solve_sum(&mut self, terms: &Terms, a: Term, b: Term) -> bool {
        for (addend, is_taken) in terms.addends(a) {
            let Node::Var(var) = terms.node(addend) else { continue };
            let rest = terms.build_bin(if is_taken { Bin::Add } else { Bin::Sub }, a, addend);
            if self.occurs(terms, var, rest) || self.occurs(terms, var, b) {
                continue;
            }
            let (minuend, subtrahend) = if is_taken { (rest, b) } else { (b, rest) };
            self.bind(var, terms.build_bin(Bin::Sub, minuend, subtrahend));
            return true;
        }
        false
    }

    /// `x ^ y == b` with two unknown operands: solved for one that is a lone variable.
    fn solve_difference(&mut self, terms: &Terms, (x, y): (Term, Term), b: Term) -> bool {
        for (x, y) in [(x, y), (y, x)] {
            if let Node::Var(var) = terms.node(x)
                && !self.occurs(terms, var, y)
                && !self.occurs(terms, var, b)
            {
                self.bind(var, terms.build_bin(Bin::Xor, b, y));
                return true;
            }
        }
        false
    }

    /// `x & m == b` or `x | m == b` for a literal `b`: run by run of equal bits in the mask.
    fn solve_mask(&mut self, terms: &Terms, op: Bin, (x, m): (Term, u64), b: Term) -> Learned<bool> {
        let Some(value) = terms.value(b) else { return Ok(false) };
        let w = terms.width(x);
        let passes = |bit: u32| (m >> bit & 1 == 1) == (op == Bin::And);
        let mut bit = 0;
        while bit < w {
            let end = (bit..w).find(|&n| passes(n) != passes(bit)).unwrap_or(w);
            let wanted = terms.build_extract(bit, end - bit, b);
            if passes(bit) {
                let x = self.resolve(terms, x);
                self.unify(terms, terms.build_extract(bit, end - bit, x), wanted)?;
            } else if (m ^ value) >> bit & mask(end - bit) != 0 {
                return Err(Contradiction);
            }
            bit = end;
        }
        Ok(true)
    }

    /// `x * m == b`: the trailing zeros of `m` must be those of `b`; the odd part has an inverse modulo 2^w.
    fn solve_product(&mut self, terms: &Terms, (x, m): (Term, u64), b: Term) -> Learned<bool> {
        let w = terms.width(x);
        let zeros = m.trailing_zeros();
        if zeros > 0 && terms.value(b).is_none() {
            return Ok(false);
        }
        let odd = m >> zeros;
        let inverse = inverse_of_odd(odd);
        if zeros > 0 {
            self.unify(terms, terms.build_extract(0, zeros, b), terms.lit_term(zeros, 0))?;
        }
        let rest = terms.build_extract(zeros, w - zeros, b);
        let factor = terms.lit_term(w - zeros, inverse);
        let low = terms.build_extract(0, w - zeros, x);
        self.unify(terms, low, terms.build_bin(Bin::Mul, rest, factor))?;
        Ok(true)
    }

    /// `if c then x else y == b`: one of the two sides, if the other one is impossible.
    fn solve_ite(&mut self, terms: &Terms, c: Term, (x, y): (Term, Term), b: Term) -> Learned<bool> {
        let sides = [(c, x), (terms.build_not(c), y)];
        let differs = |&(_, t): &(Term, Term)| terms.truth(terms.build_cmp(Cmp::Eq, t, b)) == Some(false);
        let mut possible: Vec<_> = sides.into_iter().filter(|side| !differs(side)).collect();
        if possible.len() == 2 && terms.value(b).is_some() {
            possible.retain(|&side| self.is_possible(terms, side, b));
        }
        match possible[..] {
            [] => Err(Contradiction),
            [(c, t)] => {
                self.hold(terms, c)?;
                self.unify(terms, t, b)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Whether `c` and `t == b` together contradict nothing that is known: looked at, and undone. A choice within a choice is not
    /// looked at, or a chain of them would take twice the time with each.
    fn is_possible(&mut self, terms: &Terms, (c, t): (Term, Term), b: Term) -> bool {
        if std::mem::replace(&mut self.is_trying, true) {
            return true;
        }
        let (mark, woken) = (self.mark(), std::mem::take(&mut self.woken));
        let tried =
            self.hold(terms, c).and_then(|()| self.unify(terms, t, b)).and_then(|()| self.settle(terms));
        self.undo(mark);
        self.woken = woken;
        self.is_trying = false;
        tried.is_ok()
    }
}

/// The inverse of an odd number modulo 2^64, by Newton's iteration (each step doubles the correct low bits).
fn inverse_of_odd(m: u64) -> u64 {
    (0..6).fold(m, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(m.wrapping_mul(inverse))))
}
