//! The algebra of values that the semantics computes in.
//!
//! A [`Domain`] is the concrete machine integers ([`crate::concrete::Concrete`]) or the terms of a solver.
//! `Bool` is a type of its own so that a semantic function cannot branch on guest data.

/// Two-operand bit-vector operations. Shifts follow the SMT-LIB rule: an amount of `w` or more gives zero
/// (`Sar`: the sign everywhere); x86's masking of the amount is written in the semantics of shifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bin {
    /// Addition modulo 2^w.
    Add,
    /// Subtraction modulo 2^w.
    Sub,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Low half of the product.
    Mul,
    /// High half of the unsigned product.
    MulHiU,
    /// High half of the signed product.
    MulHiS,
    /// Shift left.
    Shl,
    /// Logical shift right.
    Shr,
    /// Arithmetic shift right.
    Sar,
}

/// One-operand bit-vector operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Un {
    /// Number of set bits.
    Popcount,
    /// Number of leading zeros; `w` when the operand is zero.
    LeadingZeros,
    /// Number of trailing zeros; `w` when the operand is zero.
    TrailingZeros,
}

/// Comparisons of bit-vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Unsigned less-than.
    Ult,
    /// Signed less-than.
    Slt,
}

/// Quotient and remainder of a double-width division, and whether the quotient does not fit (#DE).
#[derive(Clone, Copy, Debug)]
pub struct Division<V, B> {
    /// Quotient, `w` bits; meaningless under `fault`.
    pub quotient: V,
    /// Remainder, `w` bits; meaningless under `fault`.
    pub remainder: V,
    /// The divisor is zero or the quotient does not fit in `w` bits.
    pub fault: B,
}

/// Operations that are not bit-vector arithmetic: floating point, and others that a symbolic domain treats as
/// uninterpreted functions (folded when every argument is concrete). The meaning, the argument list and the
/// result list of each are documented at its variant in [`crate::opaque`].
pub use crate::opaque::Opaque;
use crate::packed::Packed;

/// Pure algebra over bit-vectors of 1 to 64 bits.
///
/// Invariant: a `Bv` of width `w` has zeros above bit `w`; every operation keeps that, so `zext` is free in the
/// concrete domain and comparisons of zero-extended values need no width. All operands of one operation have
/// the width that is passed (a term domain asserts it).
pub trait Domain: Sized {
    /// A bit-vector.
    type Bv: Copy;
    /// A truth value of the guest.
    type Bool: Copy;
    /// 128 bits of a vector register.
    type Packed: Packed<Self>;

    /// The literal `value mod 2^w`.
    fn lit(&self, w: u32, value: u64) -> Self::Bv;
    /// The literal truth value.
    fn bool(&self, value: bool) -> Self::Bool;
    /// A value that the manual leaves undefined: zero when concrete, a fresh variable when symbolic.
    fn undef(&self, w: u32) -> Self::Bv;
    /// A truth value that the manual leaves undefined.
    fn undef_bool(&self) -> Self::Bool;
    /// A two-operand operation.
    fn bin(&self, op: Bin, w: u32, a: Self::Bv, b: Self::Bv) -> Self::Bv;
    /// A one-operand operation.
    fn un(&self, op: Un, w: u32, a: Self::Bv) -> Self::Bv;
    /// A comparison.
    fn cmp(&self, op: Cmp, w: u32, a: Self::Bv, b: Self::Bv) -> Self::Bool;
    /// Divides the `2w`-bit value `hi:lo` by `divisor`, `signed` or not.
    fn divide(
        &self,
        signed: bool,
        w: u32,
        hi: Self::Bv,
        lo: Self::Bv,
        divisor: Self::Bv,
    ) -> Division<Self::Bv, Self::Bool>;
    /// Zero-extension.
    fn zext(&self, from: u32, to: u32, a: Self::Bv) -> Self::Bv;
    /// Sign-extension.
    fn sext(&self, from: u32, to: u32, a: Self::Bv) -> Self::Bv;
    /// Bits `low .. low + to` of `a`.
    fn extract(&self, from: u32, low: u32, to: u32, a: Self::Bv) -> Self::Bv;
    /// `high` above `low`: a vector of `wh + wl` bits.
    fn concat(&self, wh: u32, high: Self::Bv, wl: u32, low: Self::Bv) -> Self::Bv;
    /// `then` if `c`, else `other`. Both sides are evaluated.
    fn ite(&self, c: Self::Bool, w: u32, then: Self::Bv, other: Self::Bv) -> Self::Bv;
    /// `then` if `c`, else `other`, of truth values.
    fn ite_bool(&self, c: Self::Bool, then: Self::Bool, other: Self::Bool) -> Self::Bool;
    /// Logical not.
    fn not(&self, a: Self::Bool) -> Self::Bool;
    /// Logical and.
    fn and(&self, a: Self::Bool, b: Self::Bool) -> Self::Bool;
    /// Logical or.
    fn or(&self, a: Self::Bool, b: Self::Bool) -> Self::Bool;
    /// Exclusive or.
    fn xor(&self, a: Self::Bool, b: Self::Bool) -> Self::Bool;
    /// An operation outside bit-vector arithmetic. `args` and the results are vectors of the widths that the
    /// variant documents.
    fn opaque(&self, op: Opaque, args: &[Self::Bv]) -> [Self::Bv; 3];

    /// Lane `index` of `w` bits of `table`, which has a power of two of parts of 64 bits; `index` is as wide as the
    /// number of lanes needs.
    fn select(&self, w: u32, table: &[Self::Bv], index: Self::Bv) -> Self::Bv {
        let within = (64 / w).trailing_zeros();
        let mut parts = [self.lit(64, 0); 8];
        parts[..table.len()].copy_from_slice(table);
        let mut left = table.len();
        let index_bits = within + left.trailing_zeros();
        for bit in within..index_bits {
            let odd = self.bit(index_bits, bit, index);
            left /= 2;
            for n in 0..left {
                parts[n] = self.ite(odd, 64, parts[2 * n + 1], parts[2 * n]);
            }
        }
        if within == 0 {
            return parts[0];
        }
        let scale = w.trailing_zeros();
        let amount = self.concat(within, self.trunc(index_bits, within, index), scale, self.lit(scale, 0));
        let amount = self.zext(within + scale, 64, amount);
        self.trunc(64, w, self.bin(Bin::Shr, 64, parts[0], amount))
    }
    /// The 64 bits whose lane `n` of `w` bits is that of `yes` if bit `n` of `bits` (64) is set, else that of `no`.
    fn choose(&self, w: u32, bits: Self::Bv, yes: Self::Bv, no: Self::Bv) -> Self::Bv {
        let lane = |n| {
            let of = |v| if w == 64 { v } else { self.extract(64, n * w, w, v) };
            self.ite(self.bit(64, n, bits), w, of(yes), of(no))
        };
        (1..64 / w).fold(lane(0), |part, n| self.concat(w, lane(n), n * w, part))
    }
    /// Bits `0 .. to` of `a`.
    fn trunc(&self, from: u32, to: u32, a: Self::Bv) -> Self::Bv {
        self.extract(from, 0, to, a)
    }
    /// Bit `n` of `a` as a truth value.
    fn bit(&self, w: u32, n: u32, a: Self::Bv) -> Self::Bool {
        self.cmp(Cmp::Eq, 1, self.extract(w, n, 1, a), self.lit(1, 1))
    }
    /// The truth value as a vector of `w` bits: 0 or 1.
    #[expect(clippy::wrong_self_convention, reason = "the receiver is the algebra, not what is converted")]
    fn from_bool(&self, w: u32, a: Self::Bool) -> Self::Bv {
        self.ite(a, w, self.lit(w, 1), self.lit(w, 0))
    }
    /// Bitwise complement.
    fn complement(&self, w: u32, a: Self::Bv) -> Self::Bv {
        self.bin(Bin::Xor, w, a, self.lit(w, u64::MAX))
    }
    /// Two's complement negation.
    fn negate(&self, w: u32, a: Self::Bv) -> Self::Bv {
        self.bin(Bin::Sub, w, self.lit(w, 0), a)
    }
    /// Whether `a` is zero.
    fn is_zero(&self, w: u32, a: Self::Bv) -> Self::Bool {
        self.cmp(Cmp::Eq, w, a, self.lit(w, 0))
    }
    /// The sign bit.
    fn sign(&self, w: u32, a: Self::Bv) -> Self::Bool {
        self.cmp(Cmp::Slt, w, a, self.lit(w, 0))
    }
}
