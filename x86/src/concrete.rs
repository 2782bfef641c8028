//! The domain of the software CPU: a bit-vector is a `u64` with zeros above its width, a truth value a `bool`.
//!
//! The casts of this crate that reinterpret or cut a value live here.

use crate::domain::{Bin, Cmp, Division, Domain, Opaque, Un};
use crate::opaque;

/// Machine integers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Concrete;

/// The low `w` bits set, 1 <= w <= 64.
#[inline(always)]
const fn mask(w: u32) -> u64 {
    u64::MAX >> (64 - w)
}

/// Reads the low `w` bits of `a` as a two's complement number.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
const fn signed(w: u32, a: u64) -> i64 {
    // The compiler knows lanes by these widths.
    match w {
        8 => (a as u8).cast_signed() as i64,
        16 => (a as u16).cast_signed() as i64,
        32 => (a as u32).cast_signed() as i64,
        _ => (a << (64 - w)).cast_signed() >> (64 - w),
    }
}

/// Each of the lowest `64 / w` bits as `w` bits (8, 16, 32 or 64).
#[inline(always)]
const fn spread(w: u32, bits: u64) -> u64 {
    // Lane n gets bit n in its place; a lane that is not zero then carries into its top bit.
    let lowest = u64::MAX / mask(w);
    let diagonal = match w {
        8 => 0x8040_2010_0804_0201,
        16 => 0x0008_0004_0002_0001,
        32 => 0x0000_0002_0000_0001,
        _ => 1,
    };
    let chosen = (bits & mask(64 / w)).wrapping_mul(lowest) & diagonal;
    let carry = (lowest << (w - 1)) - lowest;
    ((chosen + carry) >> (w - 1) & lowest).wrapping_mul(mask(w))
}

/// The low half of a 128-bit value.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low(a: u128) -> u64 {
    a as u64
}

/// The bits of a signed result, cut to `w`.
#[inline(always)]
const fn cut(w: u32, a: i128) -> u64 {
    low(a.cast_unsigned()) & mask(w)
}

#[inline(always)]
fn multiply_high_unsigned(w: u32, a: u64, b: u64) -> u64 {
    low((u128::from(a) * u128::from(b)) >> w)
}

#[inline(always)]
fn multiply_high_signed(w: u32, a: u64, b: u64) -> u64 {
    cut(w, (i128::from(signed(w, a)) * i128::from(signed(w, b))) >> w)
}

fn divide_unsigned(w: u32, hi: u64, lo: u64, divisor: u64) -> Division<u64, bool> {
    let dividend = u128::from(hi) << w | u128::from(lo);
    if let (Ok(dividend), true) = (u64::try_from(dividend), divisor != 0)
        && dividend / divisor <= mask(w)
    {
        return Division { quotient: dividend / divisor, remainder: dividend % divisor, fault: false };
    }
    match (dividend.checked_div(u128::from(divisor)), dividend.checked_rem(u128::from(divisor))) {
        (Some(q), Some(r)) if q <= u128::from(mask(w)) => {
            Division { quotient: low(q), remainder: low(r), fault: false }
        }
        _ => Division { quotient: 0, remainder: 0, fault: true },
    }
}

fn divide_signed(w: u32, hi: u64, lo: u64, divisor: u64) -> Division<u64, bool> {
    let unused = 128 - 2 * w;
    let dividend = ((u128::from(hi) << w | u128::from(lo)) << unused).cast_signed() >> unused;
    let divisor = i128::from(signed(w, divisor));
    let limit = 1_i128 << (w - 1);
    match (dividend.checked_div(divisor), dividend.checked_rem(divisor)) {
        (Some(q), Some(r)) if (-limit..limit).contains(&q) => {
            Division { quotient: cut(w, q), remainder: cut(w, r), fault: false }
        }
        _ => Division { quotient: 0, remainder: 0, fault: true },
    }
}

impl Domain for Concrete {
    type Bv = u64;
    type Bool = bool;
    type Packed = [u8; 16];

    #[inline(always)]
    fn lit(&self, w: u32, value: u64) -> u64 {
        value & mask(w)
    }
    #[inline(always)]
    fn bool(&self, value: bool) -> bool {
        value
    }
    #[inline(always)]
    fn undef(&self, _w: u32) -> u64 {
        0
    }
    #[inline(always)]
    fn undef_bool(&self) -> bool {
        false
    }
    #[inline(always)]
    fn bin(&self, op: Bin, w: u32, a: u64, b: u64) -> u64 {
        let wide = u64::from(w);
        let r = match op {
            Bin::Add => a.wrapping_add(b),
            Bin::Sub => a.wrapping_sub(b),
            Bin::And => a & b,
            Bin::Or => a | b,
            Bin::Xor => a ^ b,
            Bin::Mul => a.wrapping_mul(b),
            Bin::MulHiU => multiply_high_unsigned(w, a, b),
            Bin::MulHiS => multiply_high_signed(w, a, b),
            // Of values that leave the top bit free, a shift by their width is a shift out. No branch: lanes
            // of a vector are shifted at once.
            Bin::Shl if w < 64 => a << b.min(wide),
            Bin::Shr if w < 64 => a >> b.min(wide),
            Bin::Shl if b >= wide => 0,
            Bin::Shl => a << b,
            Bin::Shr if b >= wide => 0,
            Bin::Shr => a >> b,
            Bin::Sar => (signed(w, a) >> b.min(wide - 1)).cast_unsigned(),
        };
        r & mask(w)
    }
    #[inline(always)]
    fn un(&self, op: Un, w: u32, a: u64) -> u64 {
        u64::from(match op {
            Un::Popcount => a.count_ones(),
            Un::LeadingZeros => a.leading_zeros() - (64 - w),
            Un::TrailingZeros => a.trailing_zeros().min(w),
        })
    }
    #[inline(always)]
    fn cmp(&self, op: Cmp, w: u32, a: u64, b: u64) -> bool {
        match op {
            Cmp::Eq => a == b,
            Cmp::Ult => a < b,
            Cmp::Slt => signed(w, a) < signed(w, b),
        }
    }
    #[inline]
    fn divide(&self, is_signed: bool, w: u32, hi: u64, lo: u64, divisor: u64) -> Division<u64, bool> {
        if is_signed { divide_signed(w, hi, lo, divisor) } else { divide_unsigned(w, hi, lo, divisor) }
    }
    #[inline(always)]
    fn zext(&self, _from: u32, _to: u32, a: u64) -> u64 {
        a
    }
    #[inline(always)]
    fn sext(&self, from: u32, to: u32, a: u64) -> u64 {
        signed(from, a).cast_unsigned() & mask(to)
    }
    #[inline(always)]
    fn extract(&self, _from: u32, low: u32, to: u32, a: u64) -> u64 {
        (a >> low) & mask(to)
    }
    #[inline(always)]
    fn concat(&self, _wh: u32, high: u64, wl: u32, low: u64) -> u64 {
        high << wl | low
    }
    #[inline(always)]
    fn ite(&self, c: bool, _w: u32, then: u64, other: u64) -> u64 {
        if c { then } else { other }
    }
    #[inline(always)]
    fn ite_bool(&self, c: bool, then: bool, other: bool) -> bool {
        if c { then } else { other }
    }
    #[inline(always)]
    fn not(&self, a: bool) -> bool {
        !a
    }
    #[inline(always)]
    fn and(&self, a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn or(&self, a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn xor(&self, a: bool, b: bool) -> bool {
        a ^ b
    }
    #[inline(always)]
    fn opaque(&self, op: Opaque, args: &[u64]) -> [u64; 3] {
        opaque::on_host(op, args).unwrap_or_else(|| opaque::evaluate(op, args))
    }
    #[inline(always)]
    fn select(&self, w: u32, table: &[u64], index: u64) -> u64 {
        let bit = index * u64::from(w);
        let part = usize::try_from(bit / 64).unwrap_or(0);
        table.get(part).map_or(0, |part| part >> (bit % 64) & mask(w))
    }
    #[inline(always)]
    fn choose(&self, w: u32, bits: u64, yes: u64, no: u64) -> u64 {
        let chosen = spread(w, bits);
        yes & chosen | no & !chosen
    }
    #[inline(always)]
    fn bit(&self, _w: u32, n: u32, a: u64) -> bool {
        a >> n & 1 != 0
    }
    #[inline(always)]
    fn from_bool(&self, _w: u32, a: bool) -> u64 {
        u64::from(a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Concrete = Concrete;

    #[test]
    fn results_have_zeros_above_their_width() {
        assert_eq!(D.bin(Bin::Sub, 8, 0, 1), 0xff);
        assert_eq!(D.bin(Bin::Sar, 16, 0x8000, 40), 0xffff);
        assert_eq!(D.bin(Bin::Shl, 32, 0xffff_ffff, 31), 0x8000_0000);
        assert_eq!(D.bin(Bin::Shl, 32, 1, 32), 0);
        assert_eq!(D.bin(Bin::MulHiS, 8, 0x80, 0x7f), 0xc0);
        assert_eq!(D.bin(Bin::MulHiU, 64, u64::MAX, u64::MAX), u64::MAX - 1);
        assert_eq!(D.sext(8, 16, 0x80), 0xff80);
        assert_eq!(D.un(Un::LeadingZeros, 16, 0), 16);
        assert_eq!(D.un(Un::TrailingZeros, 16, 0), 16);
    }

    #[test]
    fn lanes_are_chosen_by_bits() {
        let (yes, no) = (0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff01);
        assert_eq!(D.choose(8, 0xf81, yes, no), 0x11aa_bbcc_ddee_ff88);
        assert_eq!(D.choose(16, 0b0110, yes, no), 0x99aa_3344_5566_ff01);
        assert_eq!(D.choose(32, 0b110, yes, no), 0x1122_3344_ddee_ff01);
        assert_eq!([D.choose(64, 3, yes, no), D.choose(64, 2, yes, no)], [yes, no]);
    }

    #[test]
    fn division_faults_when_the_quotient_does_not_fit() {
        assert!(D.divide(false, 64, 1, 0, 1).fault);
        assert!(D.divide(false, 8, 0, 5, 0).fault);
        assert!(D.divide(true, 64, u64::MAX, 1 << 63, u64::MAX).fault, "-2^63 / -1");
        assert!(D.divide(true, 64, 1 << 63, 0, u64::MAX).fault, "-2^127 / -1");
        let q = D.divide(true, 32, 0xffff_ffff, 0xffff_fff9, 2);
        assert_eq!((q.quotient, q.remainder, q.fault), (0xffff_fffd, 0xffff_ffff, false), "-7 / 2");
        let q = D.divide(true, 8, 0xff, 0x80, 1);
        assert_eq!((q.quotient, q.fault), (0x80, false), "-128 / 1 fits");
    }
}
