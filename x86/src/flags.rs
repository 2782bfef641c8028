//! Arithmetic flags as what computed them: nobody pays for a flag that nobody reads, and a solver sees
//! `a < b` instead of `SF != OF` (Intel SDM vol. 1, 3.4.3.1 for the flags; appendix B for conditions).

use crate::domain::{Bin, Cmp, Domain};
use crate::op::Condition;

/// How the flags came to be.
#[derive(Clone, Copy, Debug)]
pub enum By<B> {
    /// `r = a + b`.
    Add,
    /// `r = a - b`.
    Sub,
    /// A bitwise operation: CF and OF are clear, AF is undefined.
    Logic,
    /// `r = a + 1` with CF kept, or `r = a + b + carry` with CF worked out: the others follow as after `Add`.
    Inc(B),
    /// `r = a - 1` with CF kept, or `r = a - b - borrow` with CF worked out: the others follow as after `Sub`.
    Dec(B),
    /// A shift: CF and OF are known, AF is undefined, the others follow from `r`.
    Shift {
        /// CF.
        carry: B,
        /// OF.
        overflow: B,
    },
    /// All six are known: in the order of [`Flag`].
    Bits([B; 6]),
}

/// An arithmetic flag; the discriminant is its place in [`By::Bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    /// Carry, RFLAGS bit 0.
    Carry = 0,
    /// Parity of the low byte, RFLAGS bit 2.
    Parity = 1,
    /// Carry out of bit 3, RFLAGS bit 4.
    Adjust = 2,
    /// Zero, RFLAGS bit 6.
    Zero = 3,
    /// Sign, RFLAGS bit 7.
    Sign = 4,
    /// Signed overflow, RFLAGS bit 11.
    Overflow = 5,
}

impl Flag {
    /// Every flag, in the order of [`By::Bits`].
    pub const ALL: [Flag; 6] =
        [Flag::Carry, Flag::Parity, Flag::Adjust, Flag::Zero, Flag::Sign, Flag::Overflow];

    /// Its bit number in RFLAGS.
    #[must_use]
    pub const fn bit(self) -> u32 {
        [0, 2, 4, 6, 7, 11][self as usize]
    }
}

/// RFLAGS bits of the six arithmetic flags.
pub const ARITHMETIC: u64 = 0x8d5;

/// Arithmetic flags, not yet worked out.
#[derive(Clone, Copy, Debug)]
pub struct Flags<V, B> {
    /// The operation.
    pub by: By<B>,
    /// Its width in bits.
    pub w: u32,
    /// Its first operand.
    pub a: V,
    /// Its second operand.
    pub b: V,
    /// Its result.
    pub r: V,
}

impl<V: Copy, B: Copy> Flags<V, B> {
    /// Flags that are all known one by one.
    pub fn from_bits<D: Domain<Bv = V, Bool = B>>(d: &D, bits: [B; 6]) -> Self {
        let zero = d.lit(64, 0);
        Flags { by: By::Bits(bits), w: 64, a: zero, b: zero, r: zero }
    }

    /// One flag.
    #[inline]
    pub fn get<D: Domain<Bv = V, Bool = B>>(&self, d: &D, flag: Flag) -> B {
        if let By::Bits(bits) = self.by {
            return bits[flag as usize];
        }
        match flag {
            Flag::Carry => self.carry(d),
            Flag::Parity => self.parity(d),
            Flag::Adjust => self.adjust(d),
            Flag::Zero => d.is_zero(self.w, self.r),
            Flag::Sign => d.sign(self.w, self.r),
            Flag::Overflow => self.overflow(d),
        }
    }

    /// All six, in the order of [`By::Bits`].
    pub fn bits<D: Domain<Bv = V, Bool = B>>(&self, d: &D) -> [B; 6] {
        Flag::ALL.map(|f| self.get(d, f))
    }

    /// Whether condition `cc` holds. After a subtraction the ordered conditions are single comparisons.
    #[inline(always)]
    pub fn holds<D: Domain<Bv = V, Bool = B>>(&self, d: &D, cc: Condition) -> B {
        let positive = match (cc.0 >> 1, self.by) {
            (0, _) => self.get(d, Flag::Overflow),
            (1, _) => self.get(d, Flag::Carry),
            (2, By::Sub) => d.cmp(Cmp::Eq, self.w, self.a, self.b),
            (2, _) => self.get(d, Flag::Zero),
            (3, By::Sub) => d.not(d.cmp(Cmp::Ult, self.w, self.b, self.a)),
            (3, _) => d.or(self.get(d, Flag::Carry), self.get(d, Flag::Zero)),
            (4, _) => self.get(d, Flag::Sign),
            (5, _) => self.get(d, Flag::Parity),
            (6, By::Sub) => d.cmp(Cmp::Slt, self.w, self.a, self.b),
            (6, _) => self.less(d),
            (_, By::Sub) => d.not(d.cmp(Cmp::Slt, self.w, self.b, self.a)),
            (_, _) => d.or(self.less(d), self.get(d, Flag::Zero)),
        };
        if cc.0 & 1 == 0 { positive } else { d.not(positive) }
    }

    fn less<D: Domain<Bv = V, Bool = B>>(&self, d: &D) -> B {
        d.xor(self.get(d, Flag::Sign), self.get(d, Flag::Overflow))
    }

    fn carry<D: Domain<Bv = V, Bool = B>>(&self, d: &D) -> B {
        match self.by {
            By::Add => d.cmp(Cmp::Ult, self.w, self.r, self.a),
            By::Sub => d.cmp(Cmp::Ult, self.w, self.a, self.b),
            By::Logic => d.bool(false),
            By::Inc(known) | By::Dec(known) | By::Shift { carry: known, .. } => known,
            By::Bits(bits) => bits[Flag::Carry as usize],
        }
    }

    fn parity<D: Domain<Bv = V, Bool = B>>(&self, d: &D) -> B {
        let low = d.trunc(self.w, 8, self.r);
        let folded = [4, 2, 1].into_iter().fold(low, |v, n| {
            let shifted = d.bin(Bin::Shr, 8, v, d.lit(8, n));
            d.bin(Bin::Xor, 8, v, shifted)
        });
        d.not(d.bit(8, 0, folded))
    }

    fn adjust<D: Domain<Bv = V, Bool = B>>(&self, d: &D) -> B {
        match self.by {
            By::Logic | By::Shift { .. } => d.undef_bool(),
            _ => {
                let x = d.bin(Bin::Xor, self.w, d.bin(Bin::Xor, self.w, self.a, self.b), self.r);
                d.bit(self.w, 4, x)
            }
        }
    }

    fn overflow<D: Domain<Bv = V, Bool = B>>(&self, d: &D) -> B {
        let w = self.w;
        let differ = |x, y| d.bin(Bin::Xor, w, x, y);
        match self.by {
            By::Add | By::Inc(_) => {
                d.sign(w, d.bin(Bin::And, w, differ(self.a, self.r), differ(self.b, self.r)))
            }
            By::Sub | By::Dec(_) => {
                d.sign(w, d.bin(Bin::And, w, differ(self.a, self.b), differ(self.a, self.r)))
            }
            By::Logic => d.bool(false),
            By::Shift { overflow, .. } => overflow,
            By::Bits(bits) => bits[Flag::Overflow as usize],
        }
    }
}
