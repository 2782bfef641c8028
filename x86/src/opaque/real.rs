//! Exact arithmetic on real numbers, and their rounding to a binary format: what SSE and x87 share.
//!
//! A [`Real`] has 128 bits of significand whose lowest bit is sticky (it is set if anything below it is not
//! zero). No format has more than 64 bits of precision, so one rounding of a `Real` is always the rounding of
//! the exact result.

/// A rounding direction, by its encoding in MXCSR.RC and in the x87 control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To the nearest, ties to even.
    Nearest,
    /// Toward minus infinity.
    Down,
    /// Toward plus infinity.
    Up,
    /// Toward zero.
    Zero,
}

impl Rounding {
    /// From the low two bits of `rc`.
    #[inline]
    pub(super) fn from_bits(rc: u64) -> Rounding {
        [Rounding::Nearest, Rounding::Down, Rounding::Up, Rounding::Zero][usize::from(low_byte(rc) & 3)]
    }

    /// Whether a number beyond the largest finite one becomes an infinity rather than that number.
    pub(super) fn overflows_to_infinity(self, negative: bool) -> bool {
        match self {
            Rounding::Nearest => true,
            Rounding::Down => negative,
            Rounding::Up => !negative,
            Rounding::Zero => false,
        }
    }
}

fn low_byte(v: u64) -> u8 {
    v.to_le_bytes()[0]
}

/// The high half of a significand.
pub(super) fn high_half(v: u128) -> u64 {
    let bytes = v.to_be_bytes();
    u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// A real number other than zero: `significand * 2^(exponent - 127)`. Bit 127 of the significand is set, so
/// the magnitude is in `[2^exponent, 2^(exponent + 1))`; bit 0 is sticky.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Real {
    /// The sign.
    pub(super) negative: bool,
    /// The binary exponent.
    pub(super) exponent: i32,
    /// The significand.
    pub(super) significand: u128,
}

/// A significand cut to a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rounded {
    /// The exponent, one more than before if rounding carried out of the significand.
    pub(super) exponent: i32,
    /// The significand; its top bit is clear if the number is denormal.
    pub(super) significand: u64,
    /// Whether the value changed.
    pub(super) inexact: bool,
    /// Whether the magnitude grew.
    pub(super) up: bool,
}

/// Shifts right; bits that fall out stay as the sticky bit 0.
pub(super) fn shift_right_sticky(v: u128, amount: u32) -> u128 {
    match amount {
        0 => v,
        1..=127 => (v >> amount) | u128::from(v << (128 - amount) != 0),
        _ => u128::from(v != 0),
    }
}

impl Real {
    /// `significand * 2^(exponent - 127)`, normalized; `None` if it is zero.
    pub(super) fn new(negative: bool, exponent: i32, significand: u128) -> Option<Real> {
        if significand == 0 {
            return None;
        }
        let lead = significand.leading_zeros();
        Some(Real { negative, exponent: exponent - lead.cast_signed(), significand: significand << lead })
    }

    /// The integer `magnitude`, negated if `negative`; `None` if it is zero.
    pub(super) fn from_integer(negative: bool, magnitude: u64) -> Option<Real> {
        Real::new(negative, 127, u128::from(magnitude))
    }

    /// Whether `self` is farther from zero than `other`, equal or nearer.
    pub(super) fn compare_magnitude(&self, other: &Real) -> std::cmp::Ordering {
        (self.exponent, self.significand).cmp(&(other.exponent, other.significand))
    }

    /// The sum; `None` if it is exactly zero. Both significands must have 120 bits at most: then what is shifted out of the
    /// smaller one is at least seven bits below the rounding of the sum.
    pub(super) fn add(self, other: Real) -> Option<Real> {
        let (large, small) =
            if self.compare_magnitude(&other).is_ge() { (self, other) } else { (other, self) };
        let gap = large.exponent.abs_diff(small.exponent);
        let high = large.significand >> 1;
        let low = shift_right_sticky(small.significand >> 1, gap);
        let sum = if large.negative == small.negative { high + low } else { high - low };
        Real::new(large.negative, large.exponent + 1, sum)
    }

    /// The product. Both significands must have 64 bits at most.
    pub(super) fn mul(self, other: Real) -> Real {
        let product = u128::from(high_half(self.significand)) * u128::from(high_half(other.significand));
        let carry = product >> 127 != 0;
        Real {
            negative: self.negative != other.negative,
            exponent: self.exponent + other.exponent + i32::from(carry),
            significand: if carry { product } else { product << 1 },
        }
    }

    /// The quotient. Both significands must have 64 bits at most.
    pub(super) fn div(self, other: Real) -> Real {
        let (dividend, divisor) = (self.significand, other.significand >> 64);
        let below = dividend < other.significand;
        let numerator = if below { dividend } else { dividend >> 1 };
        let (high, rest) = (numerator / divisor, numerator % divisor);
        let (low, rest) = ((rest << 64) / divisor, (rest << 64) % divisor);
        Real {
            negative: self.negative != other.negative,
            exponent: self.exponent - other.exponent - i32::from(below),
            significand: high << 64 | low | u128::from(rest != 0),
        }
    }

    /// The square root of the magnitude, by the schoolbook method on binary digits: 68 digits and a sticky bit.
    pub(super) fn sqrt(self) -> Real {
        const DIGITS: u32 = 68;
        let mut radicand = if self.exponent & 1 == 0 { self.significand >> 1 } else { self.significand };
        let (mut root, mut rest) = (0_u128, 0_u128);
        for _ in 0..DIGITS {
            rest = rest << 2 | radicand >> 126;
            radicand <<= 2;
            let trial = root << 2 | 1;
            root <<= 1;
            if rest >= trial {
                rest -= trial;
                root |= 1;
            }
        }
        Real {
            negative: false,
            exponent: self.exponent.div_euclid(2),
            significand: root << (128 - DIGITS) | u128::from(rest != 0),
        }
    }

    /// Cuts the significand to its top `precision` bits, as if exponents had no bounds.
    pub(super) fn round(&self, precision: u32, rounding: Rounding) -> Rounded {
        self.cut(self.exponent, self.significand, precision, rounding)
    }

    /// The same for a format whose smallest exponent is `min_exponent`: a smaller number loses precision.
    pub(super) fn round_gradually(&self, min_exponent: i32, precision: u32, rounding: Rounding) -> Rounded {
        let lost = u32::try_from(min_exponent - self.exponent).unwrap_or(0);
        let significand = shift_right_sticky(self.significand, lost);
        self.cut(self.exponent.max(min_exponent), significand, precision, rounding)
    }

    fn cut(&self, exponent: i32, significand: u128, precision: u32, rounding: Rounding) -> Rounded {
        let unit = 1_u128 << (128 - precision);
        let tail = significand & (unit - 1);
        let kept = significand - tail;
        let up = match rounding {
            Rounding::Nearest => tail > unit / 2 || (tail == unit / 2 && kept & unit != 0),
            Rounding::Down => self.negative && tail != 0,
            Rounding::Up => !self.negative && tail != 0,
            Rounding::Zero => false,
        };
        let inexact = tail != 0;
        match if up { kept.checked_add(unit) } else { Some(kept) } {
            Some(v) => Rounded { exponent, significand: high_half(v), inexact, up },
            None => Rounded { exponent: exponent + 1, significand: 1 << 63, inexact, up },
        }
    }

    /// Rounds to an integer, whose magnitude is the significand. `None` if that needs more than 64 bits.
    pub(super) fn to_integer(self, rounding: Rounding) -> Option<Rounded> {
        if self.exponent > 63 {
            return None;
        }
        let rounded = self.round_gradually(63, 64, rounding);
        (rounded.exponent == 63).then_some(rounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(v: u64) -> Real {
        Real::from_integer(false, v).expect("not zero")
    }

    #[test]
    fn integers_survive_the_four_operations() {
        for (a, b) in [(7, 3), (1 << 40, 12_345), (u64::MAX, 1), (3, 3)] {
            let sum = u128::from(a) + u128::from(b);
            let expected = Real::new(false, 127, sum);
            assert_eq!(integer(a).add(integer(b)), expected);
            assert_eq!(Some(integer(a).mul(integer(b)).div(integer(b))), Some(integer(a)));
        }
        assert_eq!(integer(5).add(Real { negative: true, ..integer(5) }), None);
        assert_eq!(integer(1 << 62).sqrt(), integer(1 << 31));
        assert_eq!(integer(144).sqrt(), integer(12));
        assert_eq!(integer(2).sqrt().significand & 1, 1, "an irrational root is sticky");
    }

    #[test]
    fn ties_go_to_even_and_carries_reach_the_exponent() {
        let r = integer(0b101).round(2, Rounding::Nearest);
        assert_eq!((r.significand >> 62, r.exponent, r.inexact, r.up), (0b10, 2, true, false));
        let r = integer(0b111).round(2, Rounding::Nearest);
        assert_eq!((r.significand, r.exponent, r.up), (1 << 63, 3, true));
        assert_eq!(integer(0b111).round(2, Rounding::Zero).significand >> 62, 0b11);
        assert_eq!(integer(u64::MAX).to_integer(Rounding::Nearest).map(|r| r.significand), Some(u64::MAX));
        assert_eq!(integer(1).mul(integer(u64::MAX)).mul(integer(2)).to_integer(Rounding::Zero), None);
    }
}
