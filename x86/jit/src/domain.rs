//! The algebra of the semantics on values of Cranelift: an operation leaves the instruction behind that computes it.
//!
//! What is known when the code is written is computed then, by [`Concrete`]: so the general form of an instruction, which asks
//! its operands' kinds and widths, leaves no more code behind than a special one.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use x86::concrete::Concrete;
use x86::domain::{Bin, Cmp, Division, Domain, Opaque, Un};

use crate::block::Block;
use crate::clif::{Bool, Bv, Clif, Two, has_type, mask};

/// The divisions that there is no code for.
const NO_DIVISION: Division<Bv, Bool> =
    Division { quotient: Bv::Known(0), remainder: Bv::Known(0), fault: Bool::Known(false) };

impl Clif<'_> {
    /// Shifts of the width or more have the result that [`Bin`] says; Cranelift's take the amount modulo the width.
    fn shift(&self, op: Bin, w: u32, a: Bv, by: Bv) -> Bv {
        let (two, width) = (two_of(op), u64::from(w));
        let mut a = self.value(w, a);
        if op == Bin::Sar && !has_type(w) {
            a = self.wide_signed(w, a);
        }
        let finish = |v| if has_type(w) { v } else { self.narrow(w, v, op == Bin::Shr) };
        let by = match by {
            Bv::Known(0) => return Bv::Value(finish(a)),
            Bv::Known(by) if by >= width && op != Bin::Sar => return Bv::Known(0),
            Bv::Known(by) => return Bv::Value(finish(self.two_known(two, w, a, by.min(width - 1)))),
            Bv::Value(by) => by,
        };
        if self.bound(by).is_some_and(|bound| bound < width) {
            return Bv::Value(finish(self.two(two, a, by)));
        }
        if op == Bin::Sar {
            let by = self.two_known(Two::MinUnsigned, w, by, width - 1);
            return Bv::Value(finish(self.two(two, a, by)));
        }
        let is_within = self.compare(IntCC::UnsignedLessThan, by, self.constant(w, width));
        let shifted = self.two(two, a, by);
        Bv::Value(finish(self.choose_value(is_within, shifted, self.constant(w, 0))))
    }

    /// The high half of a product of less than 64 bits.
    fn high_product(&self, signed: bool, w: u32, a: Value, b: Value) -> Bv {
        let up = |v| if signed { self.wide_signed(w, v) } else { self.wide(w, v) };
        let product = self.two(Two::Mul, up(a), up(b));
        let high = self.two_known(Two::Shr, 64, product, u64::from(w));
        Bv::Value(self.narrow(w, high, false))
    }

    /// What is known of a result without an instruction.
    fn simplified(&self, op: Bin, a: Bv, b: Bv) -> Option<Bv> {
        match (op, a, b) {
            (Bin::Add | Bin::Or | Bin::Xor, Bv::Known(0), v) => Some(v),
            (Bin::Add | Bin::Or | Bin::Xor | Bin::Sub, v, Bv::Known(0)) => Some(v),
            (Bin::And | Bin::Mul, Bv::Known(0), _) | (Bin::And | Bin::Mul, _, Bv::Known(0)) => {
                Some(Bv::Known(0))
            }
            (Bin::Xor | Bin::Sub, a, b) if a == b => Some(Bv::Known(0)),
            (Bin::And | Bin::Or, a, b) if a == b => Some(a),
            _ => None,
        }
    }

    /// Bits of 64 that are known as a value of their own: one of the words they were put together of, or a lane of the vector that they
    /// are a lane of.
    fn known_part(&self, from: u32, low: u32, to: u32, v: Value) -> Option<Bv> {
        if from != 64 || !matches!(to, 8 | 16 | 32) || !low.is_multiple_of(to) {
            return None;
        }
        if to == 32
            && let Some(words) = self.words.borrow().get(&v)
        {
            return Some(words[(low / 32) as usize]);
        }
        let (vector, half) = self.origin(64, v)?;
        Some(Bv::Value(self.lane_of(to, (64 * half + low) / to, vector)))
    }

    fn compare_division(&self, signed: bool, w: u32, [high, low, divisor]: [Value; 3]) -> Value {
        let expected =
            if signed { self.two_known(Two::Sar, w, low, u64::from(w) - 1) } else { self.constant(w, 0) };
        let is_long = self.compare(IntCC::NotEqual, high, expected);
        let is_by_zero = self.compare(IntCC::Equal, divisor, self.constant(w, 0));
        let either = self.two(Two::Or, is_long, is_by_zero);
        if !signed {
            return either;
        }
        let is_by_minus_one = self.compare(IntCC::Equal, divisor, self.constant(w, mask(w)));
        self.two(Two::Or, either, is_by_minus_one)
    }
}

const fn two_of(op: Bin) -> Two {
    match op {
        Bin::Add => Two::Add,
        Bin::Sub => Two::Sub,
        Bin::And => Two::And,
        Bin::Or => Two::Or,
        Bin::Xor => Two::Xor,
        Bin::Mul => Two::Mul,
        Bin::MulHiU => Two::MulHighUnsigned,
        Bin::MulHiS => Two::MulHighSigned,
        Bin::Shl => Two::Shl,
        Bin::Shr => Two::Shr,
        Bin::Sar => Two::Sar,
    }
}

impl Domain for Clif<'_> {
    type Bv = Bv;
    type Bool = Bool;
    type Packed = Block;

    fn lit(&self, w: u32, value: u64) -> Bv {
        Bv::Known(value & mask(w))
    }

    fn bool(&self, value: bool) -> Bool {
        Bool::Known(value)
    }

    fn undef(&self, w: u32) -> Bv {
        Bv::Known(Concrete.undef(w))
    }

    fn undef_bool(&self) -> Bool {
        Bool::Known(Concrete.undef_bool())
    }

    fn bin(&self, op: Bin, w: u32, a: Bv, b: Bv) -> Bv {
        if let (Bv::Known(a), Bv::Known(b)) = (a, b) {
            return Bv::Known(Concrete.bin(op, w, a, b));
        }
        if let Some(known) = self.simplified(op, a, b) {
            return known;
        }
        if let (Bin::And, 3, Some(bits), Bv::Known(of)) = (op, w, self.related(a), b) {
            let kept = std::array::from_fn(|n| if of >> n & 1 != 0 { bits[n] } else { Bool::Known(false) });
            return self.relation(kept);
        }
        if matches!(op, Bin::Shl | Bin::Shr | Bin::Sar) {
            return self.shift(op, w, a, b);
        }
        // A constant goes last, so that equal sums are the same value.
        let (a, b) = match (op, a) {
            (Bin::Add | Bin::And | Bin::Or | Bin::Xor | Bin::Mul, Bv::Known(_)) => (b, a),
            _ => (a, b),
        };
        let (left, right) = (self.value(w, a), self.value(w, b));
        if matches!(op, Bin::MulHiU | Bin::MulHiS) && w < 64 {
            return self.high_product(op == Bin::MulHiS, w, left, right);
        }
        let v = self.two(two_of(op), left, right);
        if has_type(w) || matches!(op, Bin::And | Bin::Or | Bin::Xor) {
            if let (Bin::And, Bv::Known(bound)) = (op, b) {
                self.set_bound(v, bound);
            }
            return Bv::Value(v);
        }
        Bv::Value(self.narrow(w, v, false))
    }

    fn un(&self, op: Un, w: u32, a: Bv) -> Bv {
        let v = match a {
            Bv::Known(a) => return Bv::Known(Concrete.un(op, w, a)),
            Bv::Value(v) => v,
        };
        if !has_type(w) {
            self.is_lacking.set(true);
            return Bv::Known(0);
        }
        let mut builder = self.builder.borrow_mut();
        Bv::Value(match op {
            Un::Popcount => builder.ins().popcnt(v),
            Un::LeadingZeros => builder.ins().clz(v),
            Un::TrailingZeros => builder.ins().ctz(v),
        })
    }

    fn cmp(&self, op: Cmp, w: u32, a: Bv, b: Bv) -> Bool {
        if let (Bv::Known(a), Bv::Known(b)) = (a, b) {
            return Bool::Known(Concrete.cmp(op, w, a, b));
        }
        if let (Cmp::Eq, 3, Some(bits), Bv::Known(0)) = (op, w, self.related(a), b) {
            return self.not(bits.into_iter().fold(Bool::Known(false), |any, bit| self.or(any, bit)));
        }
        let (mut left, mut right) = (self.value(w, a), self.value(w, b));
        if op == Cmp::Slt && !has_type(w) {
            (left, right) = (self.wide_signed(w, left), self.wide_signed(w, right));
        }
        let by = match op {
            Cmp::Eq => IntCC::Equal,
            Cmp::Ult => IntCC::UnsignedLessThan,
            Cmp::Slt => IntCC::SignedLessThan,
        };
        Bool::Value(self.compare(by, left, right))
    }

    /// `fault` is more than #DE: a dividend of more than `w` bits, and a signed division by -1. Whoever leaves the code
    /// by it has the interpreter run the instruction.
    fn divide(&self, signed: bool, w: u32, hi: Bv, lo: Bv, divisor: Bv) -> Division<Bv, Bool> {
        if w != 32 && w != 64 {
            self.is_lacking.set(true);
            return NO_DIVISION;
        }
        let [high, low, divisor] = [hi, lo, divisor].map(|v| self.value(w, v));
        let fault = self.compare_division(signed, w, [high, low, divisor]);
        let divisor = self.choose_value(fault, self.constant(w, 1), divisor);
        let (quotient, remainder) = match signed {
            true => (Two::DivSigned, Two::RemSigned),
            false => (Two::DivUnsigned, Two::RemUnsigned),
        };
        Division {
            quotient: Bv::Value(self.two(quotient, low, divisor)),
            remainder: Bv::Value(self.two(remainder, low, divisor)),
            fault: Bool::Value(fault),
        }
    }

    fn zext(&self, from: u32, to: u32, a: Bv) -> Bv {
        match a {
            Bv::Value(v) if from != to => {
                let wide = self.narrow(to, self.wide(from, v), true);
                if (from, to) == (32, 64) {
                    self.words.borrow_mut().insert(wide, [a, Bv::Known(0)]);
                }
                Bv::Value(wide)
            }
            _ => a,
        }
    }

    fn sext(&self, from: u32, to: u32, a: Bv) -> Bv {
        match a {
            Bv::Known(c) => Bv::Known(Concrete.sext(from, to, c)),
            Bv::Value(v) => Bv::Value(self.narrow(to, self.wide_signed(from, v), false)),
        }
    }

    fn extract(&self, from: u32, low: u32, to: u32, a: Bv) -> Bv {
        let v = match a {
            Bv::Known(c) => return Bv::Known(Concrete.extract(from, low, to, c)),
            Bv::Value(v) => v,
        };
        if let Some(part) = self.known_part(from, low, to, v) {
            return part;
        }
        let mut wide = self.wide(from, v);
        if low > 0 {
            wide = self.two_known(Two::Shr, 64, wide, u64::from(low));
        }
        Bv::Value(self.narrow(to, wide, low + to == from))
    }

    fn concat(&self, wh: u32, high: Bv, wl: u32, low: Bv) -> Bv {
        if let (Bv::Known(high), Bv::Known(low)) = (high, low) {
            return Bv::Known(Concrete.concat(wh, high, wl, low));
        }
        if high == Bv::Known(0) {
            return self.zext(wl, wh + wl, low);
        }
        let up = self.bin(Bin::Shl, 64, self.widened(wh, high), Bv::Known(u64::from(wl)));
        match self.bin(Bin::Or, 64, up, self.widened(wl, low)) {
            Bv::Value(v) => {
                let both = self.narrow(wh + wl, v, true);
                if (wh, wl) == (32, 32) {
                    self.words.borrow_mut().insert(both, [low, high]);
                }
                Bv::Value(both)
            }
            known => known,
        }
    }

    fn ite(&self, c: Bool, w: u32, then: Bv, other: Bv) -> Bv {
        match c {
            Bool::Known(true) => then,
            Bool::Known(false) => other,
            _ if then == other => then,
            _ => Bv::Value(self.choose_value(self.truth(c), self.value(w, then), self.value(w, other))),
        }
    }

    fn ite_bool(&self, c: Bool, then: Bool, other: Bool) -> Bool {
        match c {
            Bool::Known(true) => then,
            Bool::Known(false) => other,
            _ if then == other => then,
            _ => Bool::Value(self.choose_value(self.truth(c), self.truth(then), self.truth(other))),
        }
    }

    fn not(&self, a: Bool) -> Bool {
        match a {
            Bool::Known(a) => Bool::Known(!a),
            _ => Bool::Value(self.opposite(self.truth(a))),
        }
    }

    fn and(&self, a: Bool, b: Bool) -> Bool {
        match (a, b) {
            (Bool::Known(true), v) | (v, Bool::Known(true)) => v,
            (Bool::Known(false), _) | (_, Bool::Known(false)) => Bool::Known(false),
            _ => Bool::Value(self.two(Two::And, self.truth(a), self.truth(b))),
        }
    }

    fn or(&self, a: Bool, b: Bool) -> Bool {
        match (a, b) {
            (Bool::Known(false), v) | (v, Bool::Known(false)) => v,
            (Bool::Known(true), _) | (_, Bool::Known(true)) => Bool::Known(true),
            _ => Bool::Value(self.two(Two::Or, self.truth(a), self.truth(b))),
        }
    }

    fn xor(&self, a: Bool, b: Bool) -> Bool {
        match (a, b) {
            (Bool::Known(false), v) | (v, Bool::Known(false)) => v,
            (Bool::Known(true), v) | (v, Bool::Known(true)) => self.not(v),
            _ => Bool::Value(self.two(Two::Xor, self.truth(a), self.truth(b))),
        }
    }

    /// The exceptions that floats raise are in the host's MXCSR, and none here ([`crate::floats`]).
    fn opaque(&self, op: Opaque, args: &[Bv]) -> [Bv; 3] {
        let value = self.float_operation(&op, args).unwrap_or_else(|| {
            self.is_lacking.set(true);
            Bv::Known(0)
        });
        [value, Bv::Known(0), Bv::Known(0)]
    }

    fn bit(&self, w: u32, n: u32, a: Bv) -> Bool {
        match a {
            Bv::Known(a) => Bool::Known(a >> n & 1 != 0),
            Bv::Value(v) => {
                let one = self.two_known(Two::And, w, v, 1 << n);
                Bool::Value(self.compare(IntCC::NotEqual, one, self.constant(w, 0)))
            }
        }
    }

    fn from_bool(&self, w: u32, a: Bool) -> Bv {
        match a {
            Bool::Known(a) => Bv::Known(u64::from(a)),
            _ => Bv::Value(self.narrow(w, self.wide(8, self.truth(a)), true)),
        }
    }
}
