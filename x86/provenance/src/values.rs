//! The domain: numbers that know what each of their bytes is made of.
//!
//! The numbers are those of [`Concrete`]. Where bytes are moved whole (extraction, concatenation, masks of whole bytes, shifts by whole
//! bytes), their origins move with them; sums carry upwards only; of all else each byte is made of all operands.

use crate::origin::{Id, Origins};
use x86::concrete::Concrete;
use x86::domain::{Bin, Cmp, Division, Domain, Opaque, Un};

/// A number, and of each of its bytes what it is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) bits: u64,
    pub(crate) from: [Id; 8],
}

/// A truth value, and what it is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    pub(crate) holds: bool,
    pub(crate) from: Id,
}

impl Value {
    pub(crate) const fn constant(bits: u64) -> Value {
        Value { bits, from: [Id::CONSTANT; 8] }
    }

    fn is_constant(&self) -> bool {
        self.from == [Id::CONSTANT; 8]
    }

    /// Byte `n`, if it is a constant.
    fn known(&self, n: usize) -> Option<u8> {
        (self.from[n] == Id::CONSTANT).then(|| self.bits.to_le_bytes()[n])
    }
}

/// The algebra.
pub(crate) struct Values {
    pub(crate) origins: Origins,
}

/// How many bytes hold `w` bits.
const fn bytes(w: u32) -> usize {
    w.div_ceil(8) as usize
}

impl Values {
    pub(crate) fn new() -> Values {
        Values { origins: Origins::new() }
    }

    /// A number each of whose bytes is made of all of these.
    fn mixed(&self, w: u32, bits: u64, from: impl IntoIterator<Item = Id>) -> Value {
        let id = self.origins.made(from);
        let mut value = Value::constant(bits);
        value.from[..bytes(w)].fill(id);
        value
    }

    /// A number whose byte `n` is what `f` says.
    fn each(&self, w: u32, bits: u64, mut f: impl FnMut(usize) -> Id) -> Value {
        let mut value = Value::constant(bits);
        for (n, from) in value.from.iter_mut().enumerate().take(bytes(w)) {
            *from = f(n);
        }
        value
    }

    /// Bits of a number, moved by `up` (negative: down) bits: of each byte what it is made of.
    fn moved(&self, from: &[Id; 8], up: i32, n: usize) -> Id {
        let first = i32::try_from(n).unwrap_or(0) * 8 - up;
        let at = |bit: i32| usize::try_from(bit.div_euclid(8)).ok().filter(|n| *n < 8);
        let id = |n: Option<usize>| n.map_or(Id::CONSTANT, |n| from[n]);
        if first.rem_euclid(8) == 0 {
            return id(at(first));
        }
        self.origins.made([id(at(first)), id(at(first + 7))])
    }

    /// And, or, exclusive or: a constant byte that changes nothing leaves the other as it is.
    fn bitwise(&self, op: Bin, w: u32, bits: u64, a: Value, b: Value) -> Value {
        self.each(w, bits, |n| {
            let full =
                if n + 1 == bytes(w) && !w.is_multiple_of(8) { u8::MAX >> (8 - w % 8) } else { u8::MAX };
            match (op, a.known(n), b.known(n)) {
                (Bin::And, Some(0), _) | (Bin::And, _, Some(0)) => Id::CONSTANT,
                (Bin::And, Some(mask), _) if mask & full == full => b.from[n],
                (Bin::And, _, Some(mask)) if mask & full == full => a.from[n],
                (Bin::Or | Bin::Xor, Some(0), _) => b.from[n],
                (Bin::Or | Bin::Xor, _, Some(0)) => a.from[n],
                (Bin::Or, Some(mask), _) | (Bin::Or, _, Some(mask)) if mask & full == full => Id::CONSTANT,
                (Bin::And | Bin::Or, ..) if self.is_same(a, b, n) => a.from[n],
                (Bin::Xor, ..) if self.is_same(a, b, n) => Id::CONSTANT,
                _ => self.origins.made([a.from[n], b.from[n]]),
            }
        })
    }

    /// Whether byte `n` of both is one and the same byte of the state before.
    fn is_same(&self, a: Value, b: Value, n: usize) -> bool {
        a.from[n] == b.from[n] && self.origins.get(a.from[n]).copied
    }

    fn are_same(&self, w: u32, a: Value, b: Value) -> bool {
        (0..bytes(w)).all(|n| self.is_same(a, b, n))
    }

    /// A sum or difference: what is above does not change what is below.
    fn sum(&self, w: u32, bits: u64, a: Value, b: Value) -> Value {
        let mut below = Id::CONSTANT;
        self.each(w, bits, |n| {
            below = self.origins.made([below, a.from[n], b.from[n]]);
            below
        })
    }

    fn shift(&self, op: Bin, w: u32, bits: u64, a: Value, b: Value) -> Value {
        if !b.is_constant() {
            return self.mixed(w, bits, a.from.into_iter().chain(b.from));
        }
        let amount = i32::try_from(b.bits.min(u64::from(w))).unwrap_or(0);
        let up = if op == Bin::Shl { amount } else { -amount };
        let top = bytes(w) - 1;
        self.each(w, bits, |n| {
            let moved = self.moved(&a.from, up, n);
            let above = n * 8 + 8 > usize::try_from(i64::from(w) - i64::from(amount)).unwrap_or(0);
            if op == Bin::Sar && above { self.origins.made([moved, a.from[top]]) } else { moved }
        })
    }

    fn truth(&self, holds: bool, from: impl IntoIterator<Item = Id>) -> Truth {
        Truth { holds, from: self.origins.made(from) }
    }
}

impl Domain for Values {
    type Bv = Value;
    type Bool = Truth;
    type Packed = [Value; 2];

    fn lit(&self, w: u32, value: u64) -> Value {
        Value::constant(Concrete.lit(w, value))
    }
    fn bool(&self, value: bool) -> Truth {
        Truth { holds: value, from: Id::CONSTANT }
    }
    fn undef(&self, w: u32) -> Value {
        Value::constant(Concrete.undef(w))
    }
    fn undef_bool(&self) -> Truth {
        self.bool(Concrete.undef_bool())
    }
    fn bin(&self, op: Bin, w: u32, a: Value, b: Value) -> Value {
        let bits = Concrete.bin(op, w, a.bits, b.bits);
        let constant = |v: Value, bits| v.is_constant() && v.bits == bits;
        match op {
            Bin::And | Bin::Or | Bin::Xor => self.bitwise(op, w, bits, a, b),
            Bin::Add | Bin::Sub if constant(b, 0) => a,
            Bin::Add if constant(a, 0) => b,
            Bin::Sub if self.are_same(w, a, b) => Value::constant(bits),
            Bin::Add | Bin::Sub => self.sum(w, bits, a, b),
            Bin::Mul if constant(a, 1) => b,
            Bin::Mul if constant(b, 1) => a,
            Bin::Mul if constant(a, 0) || constant(b, 0) => Value::constant(0),
            Bin::Shl | Bin::Shr | Bin::Sar => self.shift(op, w, bits, a, b),
            Bin::Mul | Bin::MulHiU | Bin::MulHiS => self.mixed(w, bits, a.from.into_iter().chain(b.from)),
        }
    }
    fn un(&self, op: Un, w: u32, a: Value) -> Value {
        self.mixed(w, Concrete.un(op, w, a.bits), a.from)
    }
    fn cmp(&self, op: Cmp, w: u32, a: Value, b: Value) -> Truth {
        let holds = Concrete.cmp(op, w, a.bits, b.bits);
        match (a.is_constant(), b.is_constant()) {
            // A bit as a truth value.
            (false, true) if w == 1 => Truth { holds, from: a.from[0] },
            _ if op == Cmp::Eq && self.are_same(w, a, b) => self.bool(holds),
            // The sign is in the highest byte alone.
            (false, true) if op == Cmp::Slt && b.bits == 0 => Truth { holds, from: a.from[bytes(w) - 1] },
            _ => self.truth(holds, a.from.into_iter().chain(b.from)),
        }
    }
    fn divide(&self, signed: bool, w: u32, hi: Value, lo: Value, divisor: Value) -> Division<Value, Truth> {
        let result = Concrete.divide(signed, w, hi.bits, lo.bits, divisor.bits);
        let from = || hi.from.into_iter().chain(lo.from).chain(divisor.from);
        // That a divisor of zero does not divide is its own fault.
        let fault =
            if divisor.bits == 0 { self.truth(true, divisor.from) } else { self.truth(result.fault, from()) };
        Division {
            quotient: self.mixed(w, result.quotient, from()),
            remainder: self.mixed(w, result.remainder, from()),
            fault,
        }
    }
    fn zext(&self, from: u32, _to: u32, a: Value) -> Value {
        self.each(from, a.bits, |n| a.from[n])
    }
    fn sext(&self, from: u32, to: u32, a: Value) -> Value {
        let top = bytes(from) - 1;
        self.each(to, Concrete.sext(from, to, a.bits), |n| match n {
            n if n < top || n == top && from.is_multiple_of(8) => a.from[n],
            _ => self.origins.made([a.from[top]]),
        })
    }
    fn extract(&self, from: u32, low: u32, to: u32, a: Value) -> Value {
        let bits = Concrete.extract(from, low, to, a.bits);
        let down = -i32::try_from(low).unwrap_or(0);
        self.each(to, bits, |n| {
            let whole = (n + 1) * 8 <= to as usize || from == to;
            let moved = self.moved(&a.from, down, n);
            if whole { moved } else { self.origins.made([moved]) }
        })
    }
    fn concat(&self, wh: u32, high: Value, wl: u32, low: Value) -> Value {
        let bits = Concrete.concat(wh, high.bits, wl, low.bits);
        let up = i32::try_from(wl).unwrap_or(0);
        self.each(wh + wl, bits, |n| {
            let below = if n < bytes(wl) { low.from[n] } else { Id::CONSTANT };
            let above = self.moved(&high.from, up, n);
            match (above, below) {
                (above, Id::CONSTANT) if wl.is_multiple_of(8) => above,
                (Id::CONSTANT, below) if (n + 1) * 8 <= wl as usize => below,
                _ => self.origins.made([above, below]),
            }
        })
    }
    fn ite(&self, c: Truth, w: u32, then: Value, other: Value) -> Value {
        let (chosen, refused) = if c.holds { (then, other) } else { (other, then) };
        if c.from == Id::CONSTANT {
            return chosen;
        }
        self.each(w, chosen.bits, |n| match (chosen.known(n), refused.known(n)) {
            (Some(chosen), Some(refused)) if chosen == refused => Id::CONSTANT,
            (Some(_), Some(_)) => c.from,
            _ if self.is_same(chosen, refused, n) => chosen.from[n],
            _ => self.origins.chosen(chosen.from[n], c.from),
        })
    }
    fn ite_bool(&self, c: Truth, then: Truth, other: Truth) -> Truth {
        let (chosen, refused) = if c.holds { (then, other) } else { (other, then) };
        match (chosen.from, refused.from) {
            (Id::CONSTANT, Id::CONSTANT) if chosen.holds == refused.holds => chosen,
            (Id::CONSTANT, Id::CONSTANT) => self.truth(chosen.holds, [c.from]),
            (from, _) => Truth { holds: chosen.holds, from: self.origins.chosen(from, c.from) },
        }
    }
    fn not(&self, a: Truth) -> Truth {
        self.truth(!a.holds, [a.from])
    }
    fn and(&self, a: Truth, b: Truth) -> Truth {
        let decided = |v: Truth| v.from == Id::CONSTANT && !v.holds;
        match (decided(a), decided(b)) {
            (false, false) => self.truth(a.holds && b.holds, [a.from, b.from]),
            _ => self.bool(false),
        }
    }
    fn or(&self, a: Truth, b: Truth) -> Truth {
        let decided = |v: Truth| v.from == Id::CONSTANT && v.holds;
        match (decided(a), decided(b)) {
            (false, false) => self.truth(a.holds || b.holds, [a.from, b.from]),
            _ => self.bool(true),
        }
    }
    fn xor(&self, a: Truth, b: Truth) -> Truth {
        self.truth(a.holds != b.holds, [a.from, b.from])
    }
    fn opaque(&self, op: Opaque, args: &[Value]) -> [Value; 3] {
        let bits: Vec<u64> = args.iter().map(|arg| arg.bits).collect();
        let from = self.origins.made(args.iter().flat_map(|arg| arg.from));
        Concrete.opaque(op, &bits).map(|bits| Value { bits, from: [from; 8] })
    }
    fn select(&self, w: u32, table: &[Value], index: Value) -> Value {
        let per_part = u64::from(64 / w);
        let lane = |part: u64, n: u64| {
            let part = table[usize::try_from(part).unwrap_or(0) % table.len()];
            self.extract(64, u32::try_from(n).unwrap_or(0) * w, w, part)
        };
        let chosen = lane(index.bits / per_part, index.bits % per_part);
        let by = self.origins.made(index.from);
        self.each(w, chosen.bits, |n| self.origins.chosen(chosen.from[n], by))
    }
}
