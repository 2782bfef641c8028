//! Making terms: constant folding with the concrete domain, and the canonical forms.

use super::{DivisionPart, Node, Term, Terms};
use x86::concrete::Concrete;
use x86::domain::{Bin, Cmp, Domain, Un};
use x86::opaque::{self, Opaque};

/// All ones in the low `w` bits.
pub(crate) fn mask(w: u32) -> u64 {
    if w >= 64 { u64::MAX } else { (1 << w) - 1 }
}

impl Terms {
    /// The literal `v mod 2^w`.
    pub fn lit_term(&self, w: u32, v: u64) -> Term {
        self.intern(Node::Lit(v & mask(w)), w, false)
    }

    /// The literal truth value.
    pub fn bool_term(&self, b: bool) -> Term {
        self.intern(Node::Bool(b), 0, false)
    }

    pub(super) fn make(&self, node: Node, w: u32) -> Term {
        let t = self.intern(node, w, false);
        let mut open = false;
        self.operands(t, |o| open |= self.is_open(o));
        self.arena.borrow_mut().entries[t.index()].open = open;
        t
    }

    /// A two-operand operation; the operands have one width.
    pub fn build_bin(&self, op: Bin, a: Term, b: Term) -> Term {
        let w = self.width(a);
        debug_assert_eq!(w, self.width(b), "operands of {op:?} differ in width");
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => return self.lit_term(w, Concrete.bin(op, w, x, y)),
            (Some(_), None)
                if matches!(
                    op,
                    Bin::Add | Bin::And | Bin::Or | Bin::Xor | Bin::Mul | Bin::MulHiU | Bin::MulHiS
                ) =>
            {
                return self.build_bin(op, b, a);
            }
            (None, None) if op == Bin::Add && b < a => return self.build_bin(op, b, a),
            (None, Some(y)) => {
                if let Some(t) = self.bin_literal(op, w, a, y) {
                    return t;
                }
            }
            _ => {}
        }
        if a == b {
            match op {
                Bin::Sub | Bin::Xor => return self.lit_term(w, 0),
                Bin::And | Bin::Or => return a,
                _ => {}
            }
        }
        self.build_sum(op, a, b)
            .or_else(|| self.cancel(op, a, b))
            .unwrap_or_else(|| self.make(Node::Bin(op, a, b), w))
    }

    /// `(x ^ y) ^ y`: what inverting an equation leaves behind.
    fn cancel(&self, op: Bin, a: Term, b: Term) -> Option<Term> {
        match (op, self.node(a)) {
            (Bin::Xor, Node::Bin(Bin::Xor, x, y)) if y == b => Some(x),
            (Bin::Xor, Node::Bin(Bin::Xor, x, y)) if x == b => Some(y),
            _ => None,
        }
    }

    /// Simplifications of `a op y` with a literal on the right.
    fn bin_literal(&self, op: Bin, w: u32, a: Term, y: u64) -> Option<Term> {
        let ones = mask(w);
        Some(match (op, y) {
            (Bin::Add | Bin::Sub | Bin::Or | Bin::Xor | Bin::Shl | Bin::Shr | Bin::Sar, 0) => a,
            (Bin::And | Bin::Mul | Bin::MulHiU | Bin::MulHiS, 0) => self.lit_term(w, 0),
            (Bin::Mul, 1) => a,
            (Bin::Mul, y) => self.scale(a, y)?,
            (Bin::And, y) if y == ones => a,
            (Bin::Or, y) if y == ones => self.lit_term(w, ones),
            (Bin::Shl | Bin::Shr, y) if y >= u64::from(w) => self.lit_term(w, 0),
            (Bin::Sub, y) => self.build_bin(Bin::Add, a, self.lit_term(w, y.wrapping_neg())),
            (Bin::Add, y) => self.build_sum(op, a, self.lit_term(w, y))?,
            (Bin::Xor | Bin::And | Bin::Or, y) => match self.node(a) {
                Node::Bin(inner, x, c) if inner == op && self.value(c).is_some() => {
                    let folded = Concrete.bin(op, w, self.value(c)?, y);
                    self.build_bin(op, x, self.lit_term(w, folded))
                }
                _ if op == Bin::And && (y & y.wrapping_add(1)) == 0 => {
                    self.build_zext(w, self.build_extract(0, y.trailing_ones(), a))
                }
                _ if op != Bin::Xor => self.masked(op, w, a, y)?,
                _ => return None,
            },
            (Bin::Shl, y) => {
                let n = u32::try_from(y).ok()?;
                self.build_concat(self.build_extract(0, w - n, a), self.lit_term(n, 0))
            }
            (Bin::Shr, y) => {
                let n = u32::try_from(y).ok()?;
                self.build_zext(w, self.build_extract(n, w - n, a))
            }
            (Bin::Sar, y) => {
                let n = u32::try_from(y).ok()?.min(w - 1);
                self.build_sext(w, self.build_extract(n, w - n, a))
            }
            _ => return None,
        })
    }

    /// `a & y` or `a | y` by the runs of equal bits of `y`, if they are few: a pointer that is rounded down, a flag that is set.
    fn masked(&self, op: Bin, w: u32, a: Term, y: u64) -> Option<Term> {
        const MOST_RUNS: u32 = 3;
        let changes = (y ^ y >> 1) & mask(w - 1);
        if changes.count_ones() >= MOST_RUNS {
            return None;
        }
        let (mut low, mut whole) = (0, None);
        while low < w {
            let rest = y >> low;
            let is_one = rest & 1 == 1;
            let run = if is_one { rest.trailing_ones() } else { rest.trailing_zeros() }.min(w - low);
            let part = match (op, is_one) {
                (Bin::And, true) | (Bin::Or, false) => self.build_extract(low, run, a),
                _ => self.lit_term(run, if is_one { mask(run) } else { 0 }),
            };
            whole = Some(whole.map_or(part, |below| self.build_concat(part, below)));
            low += run;
        }
        whole
    }

    /// A one-operand operation.
    pub fn build_un(&self, op: Un, a: Term) -> Term {
        let w = self.width(a);
        match self.value(a) {
            Some(x) => self.lit_term(w, Concrete.un(op, w, x)),
            None => self.make(Node::Un(op, a), w),
        }
    }

    /// Zero-extension to `to` bits.
    pub fn build_zext(&self, to: u32, a: Term) -> Term {
        if self.width(a) == to {
            return a;
        }
        match self.node(a) {
            Node::Lit(v) => self.lit_term(to, v),
            Node::Zext(inner) => self.build_zext(to, inner),
            _ => self.make(Node::Zext(a), to),
        }
    }

    /// Sign-extension to `to` bits.
    pub fn build_sext(&self, to: u32, a: Term) -> Term {
        let from = self.width(a);
        if from == to {
            return a;
        }
        match self.node(a) {
            Node::Lit(v) => self.lit_term(to, Concrete.sext(from, to, v)),
            Node::Zext(inner) => self.build_zext(to, inner),
            Node::Sext(inner) => self.build_sext(to, inner),
            _ => self.make(Node::Sext(a), to),
        }
    }

    /// `high` above `low`.
    pub fn build_concat(&self, high: Term, low: Term) -> Term {
        let (wh, wl) = (self.width(high), self.width(low));
        if wh == 0 || wl == 0 {
            return if wh == 0 { low } else { high };
        }
        match (self.node(high), self.node(low)) {
            (Node::Lit(h), Node::Lit(l)) => self.lit_term(wh + wl, h << wl | l),
            (Node::Lit(0), _) => self.build_zext(wh + wl, low),
            (Node::Extract { low: lh, of: a }, Node::Extract { low: ll, of: b })
                if a == b && u32::from(lh) == u32::from(ll) + wl =>
            {
                self.build_extract(u32::from(ll), wh + wl, a)
            }
            // Concatenations lean to the right, so that the parts of one value meet.
            (Node::Concat(x, y), _) => self.build_concat(x, self.build_concat(y, low)),
            (_, Node::Concat(x, y)) if self.adjacent(high, x) => {
                self.build_concat(self.build_concat(high, x), y)
            }
            _ => self.make(Node::Concat(high, low), wh + wl),
        }
    }

    /// Whether `high` and `low` are neighbouring parts of one term (or both literals), so that they merge.
    fn adjacent(&self, high: Term, low: Term) -> bool {
        match (self.node(high), self.node(low)) {
            (Node::Lit(_), Node::Lit(_)) => true,
            (Node::Extract { low: lh, of: a }, Node::Extract { low: ll, of: b }) => {
                a == b && u32::from(lh) == u32::from(ll) + self.width(low)
            }
            _ => false,
        }
    }

    /// `then` if `c`, else `other`: vectors or truth values.
    pub fn build_ite(&self, c: Term, then: Term, other: Term) -> Term {
        if then == other {
            return then;
        }
        match self.node(c) {
            Node::Bool(true) => return then,
            Node::Bool(false) => return other,
            Node::Not(inner) => return self.build_ite(inner, other, then),
            _ => {}
        }
        match (self.truth(then), self.truth(other)) {
            (Some(true), Some(false)) => c,
            (Some(false), Some(true)) => self.build_not(c),
            (Some(true), None) => self.build_or(c, other),
            (Some(false), None) => self.build_and(self.build_not(c), other),
            (None, Some(true)) => self.build_or(self.build_not(c), then),
            (None, Some(false)) => self.build_and(c, then),
            _ => self.make(Node::Ite(c, then, other), self.width(then)),
        }
    }

    /// A comparison.
    pub fn build_cmp(&self, op: Cmp, a: Term, b: Term) -> Term {
        let w = self.width(a);
        debug_assert_eq!(w, self.width(b), "operands of {op:?} differ in width");
        if a == b {
            return self.bool_term(op == Cmp::Eq);
        }
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => return self.bool_term(Concrete.cmp(op, w, x, y)),
            (Some(_), None) if op == Cmp::Eq => return self.build_cmp(op, b, a),
            (None, Some(y)) => {
                if let Some(t) = self.cmp_literal(op, w, a, y) {
                    return t;
                }
            }
            _ => {}
        }
        if op == Cmp::Eq && a > b && self.value(b).is_none() {
            return self.make(Node::Cmp(op, b, a), 0);
        }
        self.make(Node::Cmp(op, a, b), 0)
    }

    /// Simplifications of a comparison with a literal on the right.
    fn cmp_literal(&self, op: Cmp, w: u32, a: Term, y: u64) -> Option<Term> {
        match (op, self.node(a)) {
            (Cmp::Ult, _) if y == 0 => Some(self.bool_term(false)),
            (Cmp::Ult, _) if y == 1 => Some(self.build_cmp(Cmp::Eq, a, self.lit_term(w, 0))),
            (Cmp::Slt, Node::Zext(_)) if y == 0 => Some(self.bool_term(false)),
            (Cmp::Slt, Node::Sext(x) | Node::Concat(x, _)) if y == 0 => {
                Some(self.build_cmp(Cmp::Slt, x, self.lit_term(self.width(x), 0)))
            }
            (_, Node::Ite(c, t, e)) if self.value(t).is_some() && self.value(e).is_some() => {
                let y = self.lit_term(w, y);
                Some(self.build_ite(c, self.build_cmp(op, t, y), self.build_cmp(op, e, y)))
            }
            (Cmp::Eq, Node::Bin(Bin::Add, x, c)) if self.value(c).is_some() => {
                Some(self.build_cmp(op, x, self.lit_term(w, y.wrapping_sub(self.value(c)?))))
            }
            (Cmp::Eq, Node::Bin(Bin::Sub, x, z)) if y == 0 => Some(self.build_cmp(op, x, z)),
            (Cmp::Eq, Node::Bin(Bin::Xor, x, z)) if y == 0 => Some(self.build_cmp(op, x, z)),
            (Cmp::Eq, Node::Zext(x)) => {
                let wi = self.width(x);
                Some(if y & !mask(wi) == 0 {
                    self.build_cmp(op, x, self.lit_term(wi, y))
                } else {
                    self.bool_term(false)
                })
            }
            (Cmp::Ult, Node::Zext(x)) => {
                let wi = self.width(x);
                Some(if y > mask(wi) {
                    self.bool_term(true)
                } else {
                    self.build_cmp(op, x, self.lit_term(wi, y))
                })
            }
            _ => None,
        }
    }

    /// Logical not.
    pub fn build_not(&self, a: Term) -> Term {
        match self.node(a) {
            Node::Bool(b) => self.bool_term(!b),
            Node::Not(inner) => inner,
            _ => self.make(Node::Not(a), 0),
        }
    }

    /// Logical and.
    pub fn build_and(&self, a: Term, b: Term) -> Term {
        match (self.truth(a), self.truth(b)) {
            (Some(false), _) | (_, Some(false)) => self.bool_term(false),
            (Some(true), _) => b,
            (_, Some(true)) => a,
            _ if a == b => a,
            _ if self.build_not(a) == b => self.bool_term(false),
            _ => self.make(Node::And(a.min(b), a.max(b)), 0),
        }
    }

    /// Logical or.
    pub fn build_or(&self, a: Term, b: Term) -> Term {
        self.build_not(self.build_and(self.build_not(a), self.build_not(b)))
    }

    /// Exclusive or of truth values.
    pub fn build_xor(&self, a: Term, b: Term) -> Term {
        match (self.truth(a), self.truth(b)) {
            (Some(x), _) => {
                if x {
                    self.build_not(b)
                } else {
                    b
                }
            }
            (_, Some(y)) => {
                if y {
                    self.build_not(a)
                } else {
                    a
                }
            }
            _ if a == b => self.bool_term(false),
            _ if self.build_not(a) == b => self.bool_term(true),
            _ => self.make(Node::Xor(a.min(b), a.max(b)), 0),
        }
    }

    /// A result of a division.
    pub fn build_division(
        &self,
        part: DivisionPart,
        signed: bool,
        high: Term,
        low: Term,
        divisor: Term,
    ) -> Term {
        let w = self.width(low);
        if let (Some(h), Some(l), Some(d)) = (self.value(high), self.value(low), self.value(divisor)) {
            let out = Concrete.divide(signed, w, h, l, d);
            return match part {
                DivisionPart::Quotient => self.lit_term(w, out.quotient),
                DivisionPart::Remainder => self.lit_term(w, out.remainder),
                DivisionPart::Fault => self.bool_term(out.fault),
            };
        }
        if part == DivisionPart::Fault && self.is_narrow_division(signed, high, low) {
            let by_zero = self.build_cmp(Cmp::Eq, divisor, self.lit_term(w, 0));
            if !signed {
                return by_zero;
            }
            let lowest = self.build_cmp(Cmp::Eq, low, self.lit_term(w, 1 << (w - 1)));
            let by_minus_one = self.build_cmp(Cmp::Eq, divisor, self.lit_term(w, mask(w)));
            return self.build_or(by_zero, self.build_and(lowest, by_minus_one));
        }
        let width = if part == DivisionPart::Fault { 0 } else { w };
        self.make(Node::Divide { part, signed, high, low, divisor }, width)
    }

    /// Whether the dividend `high:low` is only `low` extended, as compilers divide: then the division is one of
    /// single width, which is far easier on a solver.
    pub fn is_narrow_division(&self, signed: bool, high: Term, low: Term) -> bool {
        let w = self.width(low);
        if signed {
            high == self.build_sext(w, self.build_extract(w - 1, 1, low))
        } else {
            self.value(high) == Some(0)
        }
    }

    /// A result, `width` bits wide, of an operation outside bit-vector arithmetic.
    pub fn build_opaque(&self, op: Opaque, part: u8, width: u32, args: &[Term]) -> Term {
        let values: Option<Vec<u64>> = args.iter().map(|&a| self.value(a)).collect();
        match values {
            Some(values) => self.lit_term(width, opaque::evaluate(op, &values)[usize::from(part)]),
            None => self.make(Node::Opaque { op, part, args: self.intern_arguments(args) }, width),
        }
    }

    /// Makes the term again with each operand replaced by what `with` gives for it.
    pub fn rebuild(&self, t: Term, with: &mut dyn FnMut(Term) -> Term) -> Term {
        match self.node(t) {
            Node::Lit(_) | Node::Var(_) | Node::Bool(_) => t,
            Node::Bin(op, a, b) => self.build_bin(op, with(a), with(b)),
            Node::Un(op, a) => self.build_un(op, with(a)),
            Node::Zext(a) => self.build_zext(self.width(t), with(a)),
            Node::Sext(a) => self.build_sext(self.width(t), with(a)),
            Node::Extract { low, of } => self.build_extract(u32::from(low), self.width(t), with(of)),
            Node::Concat(a, b) => self.build_concat(with(a), with(b)),
            Node::Ite(c, a, b) => self.build_ite(with(c), with(a), with(b)),
            Node::Divide { part, signed, high, low, divisor } => {
                self.build_division(part, signed, with(high), with(low), with(divisor))
            }
            Node::Opaque { op, part, args } => {
                let args: Vec<Term> = self.arguments(args).iter().map(|&a| with(a)).collect();
                self.build_opaque(op, part, self.width(t), &args)
            }
            Node::Cmp(op, a, b) => self.build_cmp(op, with(a), with(b)),
            Node::Not(a) => self.build_not(with(a)),
            Node::And(a, b) => self.build_and(with(a), with(b)),
            Node::Xor(a, b) => self.build_xor(with(a), with(b)),
        }
    }
}
