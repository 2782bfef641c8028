//! Elementary functions of real numbers by their power series, to about 120 bits: far more than the 64 of the x87,
//! so that their rounding is that of the exact value but in one case of 2^50.
//!
//! An argument whose function differs from it by less than the 128 bits can tell keeps a sticky bit on the right side.

use super::real::Real;

/// Where a term no longer changes a sum.
const BITS: i32 = 130;

/// The natural logarithm of 2.
const LN_2: Real =
    Real { negative: false, exponent: -1, significand: 0xb172_17f7_d1cf_79ab_c9e3_b398_03f2_f6af };
/// Pi.
pub(super) const PI: Real =
    Real { negative: false, exponent: 1, significand: 0xc90f_daa2_2168_c234_c4c6_628b_80dc_1cd1 };
/// One.
pub(super) const ONE: Real = Real { negative: false, exponent: 0, significand: 1 << 127 };

/// `x` with its exponent moved by `by`.
pub(super) fn scaled(x: Real, by: i32) -> Real {
    Real { exponent: x.exponent + by, ..x }
}

/// `-x`.
pub(super) fn negated(x: Real) -> Real {
    Real { negative: !x.negative, ..x }
}

/// A sum that is known not to be zero.
pub(super) fn sum(a: Real, b: Real) -> Real {
    a.add(b).unwrap_or(a)
}

/// The product of whole significands.
pub(super) fn product(a: Real, b: Real) -> Real {
    const LOW: u128 = (1 << 64) - 1;
    let [[a1, a0], [b1, b0]] = [a, b].map(|x| [x.significand >> 64, x.significand & LOW]);
    let (middle, low) = (a1 * b0, a0 * b0);
    let carried = a0 * b1 + (low >> 64);
    let sum = (middle & LOW) + (carried & LOW);
    let high = a1 * b1 + (middle >> 64) + (carried >> 64) + (sum >> 64);
    let rest = u128::from(sum & LOW != 0 || low & LOW != 0);
    let carry = high >> 127 != 0;
    Real {
        negative: a.negative != b.negative,
        exponent: a.exponent + b.exponent + i32::from(carry),
        significand: if carry { high | rest } else { high << 1 | rest },
    }
}

/// The quotient of whole significands, by the schoolbook method.
pub(super) fn quotient(a: Real, b: Real) -> Real {
    let below = a.significand < b.significand;
    let (mut rest, mut beyond, mut digits) = (a.significand, false, 0_u128);
    let double = |rest: &mut u128, beyond: &mut bool| {
        *beyond = *rest >> 127 != 0;
        *rest <<= 1;
    };
    if below {
        double(&mut rest, &mut beyond);
    }
    for _ in 0..128 {
        digits <<= 1;
        if beyond || rest >= b.significand {
            rest = rest.wrapping_sub(b.significand);
            digits |= 1;
        }
        double(&mut rest, &mut beyond);
    }
    Real {
        negative: a.negative != b.negative,
        exponent: a.exponent - b.exponent - i32::from(below),
        significand: digits | u128::from(rest != 0 || beyond),
    }
}

/// `x / n` for a small `n` that is not zero.
fn divided(x: Real, n: u64) -> Real {
    let divisor = Real::from_integer(false, n).unwrap_or(ONE);
    quotient(x, divisor)
}

/// The sum of `first`, `next(1, first)`, `next(2, that)`, ..., each weighed by `weigh`.
fn series(first: Real, mut next: impl FnMut(u64, Real) -> Real, weigh: impl Fn(u64, Real) -> Real) -> Real {
    let (mut total, mut term) = (first, first);
    for n in 1.. {
        term = next(n, term);
        let weighed = weigh(n, term);
        total = sum(total, weighed);
        if weighed.exponent < total.exponent - BITS {
            break;
        }
    }
    total
}

/// sin r for |r| of at most about 1.
pub(super) fn sine(r: Real) -> Real {
    let square = negated(product(r, r));
    series(r, |n, term| divided(product(term, square), 2 * n * (2 * n + 1)), |_, term| term)
}

/// cos r for |r| of at most about 1.
pub(super) fn cosine(r: Real) -> Real {
    let square = negated(product(r, r));
    series(ONE, |n, term| divided(product(term, square), (2 * n - 1) * 2 * n), |_, term| term)
}

/// tan r for |r| of at most about 1.
pub(super) fn tangent(r: Real) -> Real {
    const TINY: i32 = -40;
    if r.exponent < TINY {
        return sum(r, divided(product(r, product(r, r)), 3));
    }
    quotient(sine(r), cosine(r))
}

/// 2^x - 1 for |x| of at most 1.
pub(super) fn power_of_2_less_1(x: Real) -> Real {
    let t = product(x, LN_2);
    series(t, |n, term| divided(product(term, t), n + 1), |_, term| term)
}

/// The logarithm to base 2 of (1 + s) / (1 - s), for |s| of at most about 1/5.
fn log2_of_ratio(s: Real) -> Real {
    let square = product(s, s);
    let half = series(s, |_, power| product(power, square), |n, power| divided(power, 2 * n + 1));
    quotient(scaled(half, 1), LN_2)
}

/// The logarithm to base 2 of the magnitude of `x`; `None` where it is zero.
pub(super) fn log2(x: Real) -> Option<Real> {
    // The significand as a number in [2^-1/2, 2^1/2).
    const ROOT_2: u128 = 0xb504_f333_f9de_6484_597d_89b3_754a_be9f;
    let above = x.significand >= ROOT_2;
    let exponent = x.exponent + i32::from(above);
    let m = Real { negative: false, exponent: -i32::from(above), significand: x.significand };
    let whole = Real::from_integer(exponent < 0, u64::from(exponent.unsigned_abs()));
    let fraction = m.add(negated(ONE)).map(|less_1| log2_of_ratio(quotient(less_1, sum(m, ONE))));
    match (whole, fraction) {
        (Some(whole), Some(fraction)) => whole.add(fraction),
        (whole, fraction) => whole.or(fraction),
    }
}

/// The logarithm to base 2 of 1 + x, for |x| below 1/2.
pub(super) fn log2_of_1_and(x: Real) -> Real {
    log2_of_ratio(quotient(x, sum(scaled(ONE, 1), x)))
}

/// arctan t for t from 0 to 1. Euler's series converges well near 1, Gregory's near 0, and there its sum stays on the
/// right side of t.
pub(super) fn arctangent(t: Real) -> Real {
    const SMALL: i32 = -4;
    let square = product(t, t);
    if t.exponent < SMALL {
        let square = negated(square);
        return series(t, |_, power| product(power, square), |n, power| divided(power, 2 * n + 1));
    }
    let above = sum(ONE, square);
    let ratio = quotient(square, above);
    let next = |n: u64, term| divided(product(scaled(term, 1), product(ratio, integer(n))), 2 * n + 1);
    series(quotient(t, above), next, |_, term| term)
}

fn integer(n: u64) -> Real {
    Real::from_integer(false, n).unwrap_or(ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(a: u64, b: u64) -> Real {
        quotient(integer(a), integer(b))
    }

    /// Whether two numbers agree in all but their last bits.
    fn agree(a: Real, b: Real) -> bool {
        const LAST: i32 = -116;
        a.add(negated(b)).is_none_or(|difference| difference.exponent - b.exponent < LAST)
    }

    #[test]
    fn products_and_quotients_undo_each_other() {
        for (a, b) in [(1, 3), (7, 5), (u64::MAX, 3), (1 << 40, 12_345)] {
            assert!(agree(product(ratio(a, b), integer(b)), integer(a)), "{a} / {b}");
            assert!(
                agree(quotient(product(ratio(a, b), ratio(3, 7)), ratio(3, 7)), ratio(a, b)),
                "{a} / {b}"
            );
        }
    }

    #[test]
    fn functions_keep_their_identities() {
        for n in 1..40 {
            let r = ratio(n, 50);
            let (s, c) = (sine(r), cosine(r));
            assert!(agree(sum(product(s, s), product(c, c)), ONE), "sin^2 + cos^2 of {n}/50");
            assert!(agree(arctangent(quotient(s, c)), r), "arctan tan {n}/50");
            assert!(agree(log2_of_1_and(power_of_2_less_1(scaled(r, -1))), scaled(r, -1)), "log2 2^{n}/100");
            let power = sum(power_of_2_less_1(r), ONE);
            assert!(log2(power).is_some_and(|log| agree(log, r)), "log2 2^{n}/50");
        }
        assert!(agree(arctangent(ONE), scaled(PI, -2)), "arctan 1");
        assert_eq!(log2(integer(1 << 40)), Some(integer(40)));
        assert_eq!(log2(ONE), None);
    }
}
