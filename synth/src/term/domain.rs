//! The algebra of the semantics, in terms.

use super::{DivisionPart, Term, Terms};
use x86::domain::{Bin, Cmp, Division, Domain, Un};
use x86::opaque::Opaque;

impl Domain for Terms {
    type Bv = Term;
    type Bool = Term;
    type Packed = [Term; 2];

    fn lit(&self, w: u32, value: u64) -> Term {
        self.lit_term(w, value)
    }
    fn bool(&self, value: bool) -> Term {
        self.bool_term(value)
    }
    fn undef(&self, w: u32) -> Term {
        self.fresh(w)
    }
    fn undef_bool(&self) -> Term {
        self.fresh(0)
    }
    fn bin(&self, op: Bin, w: u32, a: Term, b: Term) -> Term {
        debug_assert_eq!(w, self.width(a), "width of {op:?}");
        self.build_bin(op, a, b)
    }
    fn un(&self, op: Un, w: u32, a: Term) -> Term {
        debug_assert_eq!(w, self.width(a), "width of {op:?}");
        self.build_un(op, a)
    }
    fn cmp(&self, op: Cmp, w: u32, a: Term, b: Term) -> Term {
        debug_assert_eq!(w, self.width(a), "width of {op:?}");
        self.build_cmp(op, a, b)
    }
    fn divide(&self, signed: bool, w: u32, hi: Term, lo: Term, divisor: Term) -> Division<Term, Term> {
        debug_assert_eq!(w, self.width(divisor), "width of a division");
        let part = |part| self.build_division(part, signed, hi, lo, divisor);
        Division {
            quotient: part(DivisionPart::Quotient),
            remainder: part(DivisionPart::Remainder),
            fault: part(DivisionPart::Fault),
        }
    }
    fn zext(&self, from: u32, to: u32, a: Term) -> Term {
        debug_assert_eq!(from, self.width(a), "width of a zero-extension");
        self.build_zext(to, a)
    }
    fn sext(&self, from: u32, to: u32, a: Term) -> Term {
        debug_assert_eq!(from, self.width(a), "width of a sign-extension");
        self.build_sext(to, a)
    }
    fn extract(&self, from: u32, low: u32, to: u32, a: Term) -> Term {
        debug_assert_eq!(from, self.width(a), "width of an extraction");
        self.build_extract(low, to, a)
    }
    fn concat(&self, wh: u32, high: Term, wl: u32, low: Term) -> Term {
        debug_assert_eq!((wh, wl), (self.width(high), self.width(low)), "widths of a concatenation");
        self.build_concat(high, low)
    }
    fn ite(&self, c: Term, w: u32, then: Term, other: Term) -> Term {
        debug_assert_eq!(w, self.width(then), "width of a choice");
        self.build_ite(c, then, other)
    }
    fn ite_bool(&self, c: Term, then: Term, other: Term) -> Term {
        self.build_ite(c, then, other)
    }
    fn not(&self, a: Term) -> Term {
        self.build_not(a)
    }
    fn and(&self, a: Term, b: Term) -> Term {
        self.build_and(a, b)
    }
    fn or(&self, a: Term, b: Term) -> Term {
        self.build_or(a, b)
    }
    fn xor(&self, a: Term, b: Term) -> Term {
        self.build_xor(a, b)
    }
    fn opaque(&self, op: Opaque, args: &[Term]) -> [Term; 3] {
        let widths = op.result_widths();
        std::array::from_fn(|part| {
            let part_number = u8::try_from(part).expect("three results");
            self.build_opaque(op, part_number, widths[part], args)
        })
    }
}
