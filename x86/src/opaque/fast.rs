//! SSE arithmetic through the host's floats, where the result and the raised exceptions are provably the same:
//! round to nearest, no DAZ or FTZ, all masked, operands normal or zero, the result normal (and not the
//! smallest normal, which rounding may have reached from below), or a sum. Then only PRECISION can be raised, and
//! whether it is follows from the significands. `None`: take the general path. There is no arithmetic on
//! halves. All of it is compiled into the instructions, each of which knows its operation and its format.

use super::exception::{DENORMAL, PRECISION, UNDERFLOW};
use super::real::Rounding;
use super::sse::Mode;
use super::{Arithmetic, Format};
use std::ops::{Add, Div, Mul, Sub};

/// A finite number taken apart.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub(super) zero: bool,
    denormal: bool,
    /// The exponent field.
    pub(super) biased: u64,
    /// The significand with its leading one; zero for zero.
    significand: u64,
}

/// `bits` if it is a normal number or zero.
#[inline(always)]
pub(super) fn plain(format: Format, bits: u64) -> Option<Plain> {
    let fraction_bits = format.fraction_bits();
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponents = (1 << (format.width() - 1 - fraction_bits)) - 1;
    let biased = bits >> fraction_bits & exponents;
    let zero = biased == 0 && fraction == 0;
    if biased == exponents || (biased == 0 && !zero) {
        return None;
    }
    let significand = if zero { 0 } else { fraction | 1 << fraction_bits };
    Some(Plain { zero, denormal: false, biased, significand })
}

#[inline(always)]
pub(super) fn single(bits: u64) -> f32 {
    let b = bits.to_le_bytes();
    f32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

/// The operation on the host. Of MIN and MAX, the second operand stands for all that is not strictly ordered.
#[inline(always)]
fn on_host(op: Arithmetic, format: Format, a: u64, b: u64) -> u64 {
    match format {
        Format::Single => u64::from(calculate(op, single(a), single(b), f32::sqrt).to_bits()),
        _ => calculate(op, f64::from_bits(a), f64::from_bits(b), f64::sqrt).to_bits(),
    }
}

#[inline(always)]
fn calculate<F>(op: Arithmetic, x: F, y: F, square_root: fn(F) -> F) -> F
where
    F: Copy + PartialOrd + Add<Output = F> + Sub<Output = F> + Mul<Output = F> + Div<Output = F>,
{
    match op {
        Arithmetic::Add => x + y,
        Arithmetic::Sub => x - y,
        Arithmetic::Mul => x * y,
        Arithmetic::Div => x / y,
        Arithmetic::Min if x < y => x,
        Arithmetic::Max if x > y => x,
        Arithmetic::Min | Arithmetic::Max => y,
        Arithmetic::Sqrt => square_root(y),
    }
}

/// See [`super::sse::arithmetic`].
#[inline(always)]
pub(super) fn arithmetic(op: Arithmetic, format: Format, a: u64, b: u64, mode: Mode) -> Option<[u64; 3]> {
    if !mode.is_default() {
        return None;
    }
    let (x, y) = (plain(format, a)?, plain(format, b)?);
    let value = on_host(op, format, a, b);
    let exact = match op {
        Arithmetic::Min | Arithmetic::Max => true,
        Arithmetic::Add | Arithmetic::Sub => {
            if near_overflow(format, x) || near_overflow(format, y) {
                return None;
            }
            sum_is_exact(op, format, a, b, value)
        }
        Arithmetic::Sqrt => {
            if b >> (format.width() - 1) != 0 {
                return None;
            }
            y.zero || root_is_exact(format, y, plain(format, value)?)
        }
        Arithmetic::Div if y.zero => return None,
        Arithmetic::Mul | Arithmetic::Div => {
            let r = plain(format, value)?;
            match (op, x.zero || y.zero) {
                (_, true) => true,
                _ if r.biased < 2 => return None,
                (Arithmetic::Mul, _) => product_is_exact(format, x, y, r),
                _ => quotient_is_exact(format, x, y, r),
            }
        }
    };
    Some([value, if exact { 0 } else { PRECISION }, 0])
}

/// The same where operands or the result may be denormal, but neither is infinite nor a NaN. Products and quotients are
/// those of integers: the host is slow to multiply and to divide denormals.
#[inline(never)]
pub(super) fn gradual(op: Arithmetic, format: Format, a: u64, b: u64, mode: Mode) -> Option<[u64; 3]> {
    if !mode.is_default() {
        return None;
    }
    let (x, y) = (finite(format, a)?, finite(format, b)?);
    let negative = (a ^ b) >> (format.width() - 1) != 0;
    let host = || on_host(op, format, a, b);
    let (value, exact) = match op {
        Arithmetic::Min | Arithmetic::Max => (host(), true),
        Arithmetic::Add | Arithmetic::Sub if near_overflow(format, x) || near_overflow(format, y) => {
            return None;
        }
        Arithmetic::Add | Arithmetic::Sub => {
            let sum = host();
            (sum, sum_is_exact(op, format, a, b, sum))
        }
        Arithmetic::Sqrt => return None,
        Arithmetic::Div if y.zero => return None,
        Arithmetic::Mul | Arithmetic::Div if x.zero || y.zero => (format.signed_zero(negative), true),
        Arithmetic::Mul => rounded(format, negative, product(format, x, y))?,
        Arithmetic::Div => rounded(format, negative, quotient(format, x, y))?,
    };
    // Whether what was rounded to the smallest normal number was less than it, the general path knows.
    let smallest = 1 << format.fraction_bits();
    let magnitude = value & (u64::MAX >> (65 - format.width()));
    let lost = match exact {
        true => 0,
        false if magnitude == smallest => return None,
        false if magnitude < smallest => PRECISION | UNDERFLOW,
        false => PRECISION,
    };
    Some([value, lost | if x.denormal || y.denormal { DENORMAL } else { 0 }, 0])
}

/// A number that is not zero: an integer times a power of two, which is that of a significand with this exponent field.
struct Scaled {
    integer: u128,
    biased: i64,
}

fn product(format: Format, x: Plain, y: Plain) -> Scaled {
    let unit = bias(format) + u64::from(format.fraction_bits());
    Scaled {
        integer: u128::from(x.significand) * u128::from(y.significand),
        biased: (x.biased + y.biased).cast_signed() - unit.cast_signed(),
    }
}

/// With more bits than the format has, of which the last stands for all behind it.
fn quotient(format: Format, x: Plain, y: Plain) -> Scaled {
    const MORE: u32 = 3;
    let fraction_bits = format.fraction_bits();
    let normal = |v: Plain| {
        let left = v.significand.leading_zeros() - (63 - fraction_bits);
        (v.significand << left, v.biased.cast_signed() - i64::from(left))
    };
    let ((x, x_biased), (y, y_biased)) = (normal(x), normal(y));
    let (dividend, divisor) = (u128::from(x) << (fraction_bits + MORE), u128::from(y));
    let rest = u128::from(dividend % divisor != 0);
    Scaled {
        integer: ((dividend / divisor) << 1) | rest,
        biased: x_biased - y_biased + bias(format).cast_signed() - i64::from(MORE + 1),
    }
}

/// The nearest number of the format, and whether it is the number itself; `None` if it is too large.
fn rounded(format: Format, negative: bool, v: Scaled) -> Option<(u64, bool)> {
    let fraction_bits = format.fraction_bits();
    let too_long = i64::from(128 - v.integer.leading_zeros()) - i64::from(fraction_bits + 1);
    let right = too_long.max(1 - v.biased);
    let biased = u64::try_from(v.biased + right).ok()?;
    let (significand, exact) = match u32::try_from(right) {
        Ok(0) => (v.integer, true),
        Ok(right) => {
            let right = right.min(127);
            let (kept, lost, half) = (v.integer >> right, v.integer & ((1 << right) - 1), 1 << (right - 1));
            let up = lost > half || (lost == half && kept & 1 != 0);
            (kept + u128::from(up), lost == 0)
        }
        Err(_) => (v.integer << right.unsigned_abs(), true),
    };
    // The leading bit of a significand, and what is carried out of it, count in the exponent field.
    let magnitude = ((biased - 1) << fraction_bits) + u64::try_from(significand).ok()?;
    let largest = (1 << (format.width() - 1)) - (1 << fraction_bits);
    (magnitude < largest).then_some((magnitude | format.signed_zero(negative), exact))
}

/// A finite number; of a denormal, the exponent field counts as that of the smallest normal numbers.
fn finite(format: Format, bits: u64) -> Option<Plain> {
    let fraction_bits = format.fraction_bits();
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponents = (1 << (format.width() - 1 - fraction_bits)) - 1;
    let biased = bits >> fraction_bits & exponents;
    if biased == exponents {
        return None;
    }
    let hidden = if biased == 0 { 0 } else { 1 << fraction_bits };
    let (zero, denormal) = (biased == 0 && fraction == 0, biased == 0 && fraction != 0);
    Some(Plain { zero, denormal, biased: biased.max(1), significand: fraction | hidden })
}

/// The relation of two operands of which neither is a NaN, and the exceptions that the comparison raises; see
/// [`super::sse::compare`].
#[inline(always)]
pub(super) fn compare(format: Format, a: u64, b: u64, mode: Mode) -> Option<[u64; 3]> {
    let magnitude = |v| v & (u64::MAX >> (65 - format.width()));
    let infinity = ((1 << (format.width() - 1 - format.fraction_bits())) - 1) << format.fraction_bits();
    if magnitude(a) > infinity || magnitude(b) > infinity {
        return None;
    }
    let is_denormal = |v| magnitude(v).wrapping_sub(1) < (1 << format.fraction_bits()) - 1;
    let denormal = is_denormal(a) || is_denormal(b);
    if denormal && mode.denormals_are_zero() {
        return None;
    }
    let (less, equal) = match format {
        Format::Single => (single(a) < single(b), single(a) == single(b)),
        _ => {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            (x < y, x == y)
        }
    };
    let relation = u64::from(less) | u64::from(equal) << 1;
    Some([relation, if denormal { DENORMAL } else { 0 }, 0])
}

/// See [`super::convert::between`]: a single as a double, or the other way round.
#[inline(always)]
pub(super) fn convert(from: Format, to: Format, a: u64, mode: Mode) -> Option<[u64; 3]> {
    let x = plain(from, a)?;
    match (from, to) {
        (Format::Single, Format::Double) => return Some([f64::from(single(a)).to_bits(), 0, 0]),
        (Format::Double, Format::Single) if mode.is_default() => {}
        _ => return None,
    }
    let wide = f64::from_bits(a);
    let narrow = to_single(wide);
    let value = u64::from(narrow.to_bits());
    let r = plain(Format::Single, value)?;
    if r.zero != x.zero || (!r.zero && r.biased < 2) {
        return None;
    }
    Some([value, if f64::from(narrow) == wide { 0 } else { PRECISION }, 0])
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to nearest, as the instruction does")]
#[inline(always)]
fn to_single(v: f64) -> f32 {
    v as f32
}

/// See [`super::convert::to_integer`]: truncation to a signed integer, of what is surely in range.
#[inline(always)]
pub(super) fn to_integer(from: Format, bits: u32, a: u64, mode: Mode) -> Option<[u64; 3]> {
    plain(from, a)?;
    let v = match from {
        Format::Half => return None,
        Format::Single => f64::from(single(a)),
        Format::Double => f64::from_bits(a),
    };
    let limit = if bits == 32 { 2_f64.powi(31) } else { 2_f64.powi(63) };
    if mode.rounding() != Rounding::Zero || v.abs() >= limit {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "toward zero, as the instruction does")]
    let integer = v as i64;
    let inexact = if integer as f64 == v { 0 } else { PRECISION };
    Some([integer.cast_unsigned() & (u64::MAX >> (64 - bits)), inexact, 0])
}

/// See [`super::convert::from_integer`], of a signed integer. A significand that fits makes the result exact.
#[inline(always)]
pub(super) fn from_integer(to: Format, bits: u32, v: i64, mode: Mode) -> Option<[u64; 3]> {
    if !mode.is_default() {
        return None;
    }
    let value = match to {
        Format::Half => return None,
        Format::Single => u64::from((v as f32).to_bits()),
        Format::Double => (v as f64).to_bits(),
    };
    let magnitude = v.unsigned_abs();
    let length = || 64 - magnitude.leading_zeros() - magnitude.trailing_zeros();
    let precision = to.fraction_bits() + 1;
    let exact = bits <= precision || magnitude == 0 || length() <= precision;
    Some([value, if exact { 0 } else { PRECISION }, 0])
}

/// The bias of an exponent field.
#[inline(always)]
fn bias(format: Format) -> u64 {
    (1 << (format.width() - format.fraction_bits() - 2)) - 1
}

/// Whether nothing is lost of the product of the significands, which has one or two bits less than twice as many as
/// one of them. A product that rounding carried to one more bit is inexact by either count.
#[inline(always)]
fn product_is_exact(format: Format, x: Plain, y: Plain, r: Plain) -> bool {
    let longer = r.biased + bias(format) != x.biased + y.biased;
    let lost = format.fraction_bits() + u32::from(longer);
    x.significand.wrapping_mul(y.significand) << (64 - lost) == 0
}

/// Whether the quotient times the divisor is the dividend. As integers the two differ by less than the divisor's
/// significand, so that the low 64 bits tell.
#[inline(always)]
fn quotient_is_exact(format: Format, x: Plain, y: Plain, r: Plain) -> bool {
    let scale = x.biased + bias(format) + u64::from(format.fraction_bits()) - r.biased - y.biased;
    r.significand.wrapping_mul(y.significand) == x.significand << (scale & 63)
}

/// Whether the square of the root is the operand; likewise.
#[inline(always)]
fn root_is_exact(format: Format, y: Plain, r: Plain) -> bool {
    let scale = y.biased + bias(format) + u64::from(format.fraction_bits()) - 2 * r.biased;
    r.significand.wrapping_mul(r.significand) == y.significand << (scale & 63)
}

/// Whether a sum with `x` might overflow, or an intermediate result of [`sum_is_exact`].
#[inline(always)]
fn near_overflow(format: Format, x: Plain) -> bool {
    let largest = (1 << (format.width() - 1 - format.fraction_bits())) - 2;
    x.biased > largest - 2
}

/// Whether `sum` is exactly a + b (or a - b): the error of a rounded sum is itself a float, and Knuth's TwoSum
/// finds it. A sum that is a denormal is exact.
#[inline(always)]
fn sum_is_exact(op: Arithmetic, format: Format, a: u64, b: u64, sum: u64) -> bool {
    let flip = if op == Arithmetic::Sub { 1 << (format.width() - 1) } else { 0 };
    match format {
        Format::Single => {
            let (x, y, s) = (single(a), single(b ^ flip), single(sum));
            let part = s - x;
            (x - (s - part)) + (y - part) == 0.0
        }
        _ => {
            let (x, y, s) = (f64::from_bits(a), f64::from_bits(b ^ flip), f64::from_bits(sum));
            let part = s - x;
            (x - (s - part)) + (y - part) == 0.0
        }
    }
}
