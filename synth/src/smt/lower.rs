//! Terms to Z3's expressions: the one place that knows both.

use crate::term::{DivisionPart, Node, Term, Terms, Var};
use rustc_hash::FxHashMap;
use x86::domain::{Bin, Cmp, Un};
use z3::ast::{BV, Bool};

/// What it takes to lower a term.
const FUEL_OF_A_TERM: u64 = 10;

/// Lowers terms, each once.
pub(super) struct Lowering<'t> {
    terms: &'t Terms,
    vectors: FxHashMap<Term, BV>,
    truths: FxHashMap<Term, Bool>,
    variables: FxHashMap<Var, Term>,
    /// What is hard for the solver is a number of which nothing is known.
    abstracts: bool,
}

impl<'t> Lowering<'t> {
    pub(super) fn new(terms: &'t Terms) -> Self {
        Lowering {
            abstracts: false,
            terms,
            vectors: FxHashMap::default(),
            truths: FxHashMap::default(),
            variables: FxHashMap::default(),
        }
    }

    /// The same for less than the terms say: products and quotients may be anything.
    pub(super) fn abstracting(terms: &'t Terms) -> Self {
        Lowering { abstracts: true, ..Lowering::new(terms) }
    }

    pub(super) fn terms(&self) -> &'t Terms {
        self.terms
    }

    /// The variables met so far, oldest first.
    pub(super) fn variables(&self) -> Vec<Term> {
        let mut all: Vec<Term> = self.variables.values().copied().collect();
        all.sort_unstable();
        all
    }

    /// The term of a variable that was met.
    pub(super) fn variable(&self, var: Var) -> Option<Term> {
        self.variables.get(&var).copied()
    }

    /// A truth value.
    pub(super) fn truth(&mut self, t: Term) -> Bool {
        if let Some(done) = self.truths.get(&t) {
            return done.clone();
        }
        let done = match self.terms.node(t) {
            _ if self.abstracts && is_hard(self.terms, t) => Bool::new_const(format!("o{}", t.index())),
            Node::Bool(b) => Bool::from_bool(b),
            Node::Var(var) => {
                self.variables.insert(var, t);
                Bool::new_const(format!("b{}", var.0))
            }
            Node::Cmp(op, a, b) => {
                let (a, b) = (self.vector(a), self.vector(b));
                match op {
                    Cmp::Eq => a.eq(b),
                    Cmp::Ult => a.bvult(&b),
                    Cmp::Slt => a.bvslt(&b),
                }
            }
            Node::Not(a) => self.truth(a).not(),
            Node::And(a, b) => Bool::and(&[self.truth(a), self.truth(b)]),
            Node::Xor(a, b) => self.truth(a).xor(self.truth(b)),
            Node::Ite(c, a, b) => self.truth(c).ite(&self.truth(a), &self.truth(b)),
            Node::Divide { signed, high, low, divisor, .. } => {
                self.division_fault(signed, high, low, divisor)
            }
            // An uninterpreted function of equal arguments is the same term, so a constant per term will do.
            _ => Bool::new_const(format!("o{}", t.index())),
        };
        self.terms.fuel().burn(FUEL_OF_A_TERM);
        self.truths.insert(t, done.clone());
        done
    }

    /// A vector.
    pub(super) fn vector(&mut self, t: Term) -> BV {
        if let Some(done) = self.vectors.get(&t) {
            return done.clone();
        }
        let w = self.terms.width(t);
        let done = match self.terms.node(t) {
            _ if self.abstracts && is_hard(self.terms, t) => BV::new_const(format!("o{}", t.index()), w),
            Node::Lit(v) => BV::from_u64(v, w),
            Node::Var(var) => {
                self.variables.insert(var, t);
                BV::new_const(format!("v{}", var.0), w)
            }
            Node::Bin(op, a, b) => {
                let (a, b) = (self.vector(a), self.vector(b));
                lower_bin(op, w, &a, &b)
            }
            Node::Un(op, a) => lower_un(op, w, &self.vector(a)),
            Node::Zext(a) => self.vector(a).zero_ext(w - self.terms.width(a)),
            Node::Sext(a) => self.vector(a).sign_ext(w - self.terms.width(a)),
            Node::Extract { low, of } => {
                let low = u32::from(low);
                self.vector(of).extract(low + w - 1, low)
            }
            Node::Concat(high, low) => self.vector(high).concat(self.vector(low)),
            Node::Ite(c, a, b) => self.truth(c).ite(&self.vector(a), &self.vector(b)),
            Node::Divide { part, signed, high, low, divisor } => {
                let (quotient, remainder) = self.division(signed, high, low, divisor);
                let wide = if part == DivisionPart::Quotient { quotient } else { remainder };
                wide.extract(w - 1, 0)
            }
            _ => BV::new_const(format!("o{}", t.index()), w),
        };
        self.terms.fuel().burn(FUEL_OF_A_TERM);
        self.vectors.insert(t, done.clone());
        done
    }

    /// Quotient and remainder in double width, or in single width where that is enough.
    fn division(&mut self, signed: bool, high: Term, low: Term, divisor: Term) -> (BV, BV) {
        let w = self.terms.width(divisor);
        if self.terms.is_narrow_division(signed, high, low) {
            let (dividend, divisor) = (self.vector(low), self.vector(divisor));
            return if signed {
                (dividend.bvsdiv(&divisor), dividend.bvsrem(&divisor))
            } else {
                (dividend.bvudiv(&divisor), dividend.bvurem(&divisor))
            };
        }
        let dividend = self.vector(high).concat(self.vector(low));
        let divisor = self.vector(divisor);
        if signed {
            let divisor = divisor.sign_ext(w);
            (dividend.bvsdiv(&divisor), dividend.bvsrem(&divisor))
        } else {
            let divisor = divisor.zero_ext(w);
            (dividend.bvudiv(&divisor), dividend.bvurem(&divisor))
        }
    }

    fn division_fault(&mut self, signed: bool, high: Term, low: Term, divisor: Term) -> Bool {
        let w = self.terms.width(divisor);
        let (quotient, _) = self.division(signed, high, low, divisor);
        let narrow = quotient.extract(w - 1, 0);
        let fits = if signed { narrow.sign_ext(w) } else { narrow.zero_ext(w) };
        let by_zero = self.vector(divisor).eq(BV::from_u64(0, w));
        Bool::or(&[by_zero, quotient.eq(fits).not()])
    }
}

/// Whether a term is a product or a quotient that takes the solver long.
pub(super) fn is_hard(terms: &Terms, t: Term) -> bool {
    match terms.node(t) {
        Node::Bin(Bin::Mul, a, b) => terms.is_open(a) && terms.is_open(b),
        Node::Bin(Bin::MulHiU | Bin::MulHiS, ..) | Node::Divide { .. } => terms.is_open(t),
        _ => false,
    }
}

fn lower_bin(op: Bin, w: u32, a: &BV, b: &BV) -> BV {
    match op {
        Bin::Add => a.bvadd(b),
        Bin::Sub => a.bvsub(b),
        Bin::And => a.bvand(b),
        Bin::Or => a.bvor(b),
        Bin::Xor => a.bvxor(b),
        Bin::Mul => a.bvmul(b),
        Bin::MulHiU => a.zero_ext(w).bvmul(b.zero_ext(w)).extract(2 * w - 1, w),
        Bin::MulHiS => a.sign_ext(w).bvmul(b.sign_ext(w)).extract(2 * w - 1, w),
        Bin::Shl => a.bvshl(b),
        Bin::Shr => a.bvlshr(b),
        Bin::Sar => a.bvashr(b),
    }
}

fn lower_un(op: Un, w: u32, a: &BV) -> BV {
    let bit = |n: u32| a.extract(n, n);
    let one = BV::from_u64(1, 1);
    let count = |n: u32| BV::from_u64(u64::from(n), w);
    match op {
        Un::Popcount => (0..w).map(|n| bit(n).zero_ext(w - 1)).fold(count(0), |sum, b| sum.bvadd(&b)),
        // The highest set bit wins: so it is tested last, outermost.
        Un::LeadingZeros => (0..w).fold(count(w), |rest, n| bit(n).eq(&one).ite(&count(w - 1 - n), &rest)),
        Un::TrailingZeros => (0..w).rev().fold(count(w), |rest, n| bit(n).eq(&one).ite(&count(n), &rest)),
    }
}
