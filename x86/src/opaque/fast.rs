//! SSE arithmetic through the host's floats, where the result and the raised exceptions are provably the same:
//! round to nearest, no DAZ or FTZ, all masked, operands normal or zero, the result normal (and not the
//! smallest normal, which rounding may have reached from below). Then only PRECISION can be raised, and
//! whether it is follows from the odd parts of the significands. `None`: take the general path. There is no arithmetic on
//! halves.

use super::exception::PRECISION;
use super::sse::Mode;
use super::{Arithmetic, Format};
use std::ops::{Add, Div, Mul, Sub};

/// A normal number or zero, as an odd integer (zero for zero) times a power of two.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub(super) zero: bool,
    /// The exponent field.
    pub(super) biased: u64,
    /// The significand without its trailing zeros.
    odd: u64,
    /// The number of those.
    trailing: u32,
}

/// `bits` if it is a normal number or zero.
pub(super) fn plain(format: Format, bits: u64) -> Option<Plain> {
    let fraction_bits = format.fraction_bits();
    let fraction = bits & ((1 << fraction_bits) - 1);
    let exponents = (1 << (format.width() - 1 - fraction_bits)) - 1;
    let biased = bits >> fraction_bits & exponents;
    let zero = biased == 0 && fraction == 0;
    if biased == exponents || (biased == 0 && !zero) {
        return None;
    }
    if zero {
        return Some(Plain { zero, biased, odd: 0, trailing: 0 });
    }
    let significand = fraction | 1 << fraction_bits;
    let trailing = significand.trailing_zeros();
    Some(Plain { zero, biased, odd: significand >> trailing, trailing })
}

pub(super) fn single(bits: u64) -> f32 {
    let b = bits.to_le_bytes();
    f32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

/// The operation on the host. Of MIN and MAX, the second operand stands for all that is not strictly ordered.
fn on_host(op: Arithmetic, format: Format, a: u64, b: u64) -> u64 {
    match format {
        Format::Single => u64::from(calculate(op, single(a), single(b), f32::sqrt).to_bits()),
        _ => calculate(op, f64::from_bits(a), f64::from_bits(b), f64::sqrt).to_bits(),
    }
}

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
pub(super) fn arithmetic(op: Arithmetic, format: Format, a: u64, b: u64, mode: Mode) -> Option<[u64; 3]> {
    if !mode.is_default() {
        return None;
    }
    let (x, y) = (plain(format, a)?, plain(format, b)?);
    let negative = b >> (format.width() - 1) != 0;
    match op {
        Arithmetic::Div if y.zero => return None,
        Arithmetic::Sqrt if negative => return None,
        _ => {}
    }
    let value = on_host(op, format, a, b);
    let r = plain(format, value)?;
    let exact = match op {
        Arithmetic::Min | Arithmetic::Max => true,
        Arithmetic::Sqrt => u128::from(r.odd).pow(2) == u128::from(y.odd),
        Arithmetic::Add | Arithmetic::Sub if near_overflow(format, x, y) => return None,
        Arithmetic::Add | Arithmetic::Sub => sum_is_exact(op, format, a, b, value),
        _ if x.zero || y.zero => true,
        _ if r.biased < 2 => return None,
        Arithmetic::Mul => product_fits(format, x, y, r),
        Arithmetic::Div => x.odd % y.odd == 0,
    };
    Some([value, if exact { 0 } else { PRECISION }, 0])
}

/// The relation of two operands that are normal or zero, which raises nothing in any mode; see
/// [`super::sse::compare`].
pub(super) fn compare(format: Format, a: u64, b: u64) -> Option<u64> {
    plain(format, a)?;
    plain(format, b)?;
    let (less, equal) = match format {
        Format::Single => (single(a) < single(b), single(a) == single(b)),
        _ => {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            (x < y, x == y)
        }
    };
    Some(u64::from(less) | u64::from(equal) << 1)
}

/// Whether the product of the significands, which has 2p - 1 or 2p bits, fits in p. A product that rounding
/// carried to one more bit is inexact by either count.
fn product_fits(format: Format, x: Plain, y: Plain, r: Plain) -> bool {
    let precision = format.fraction_bits() + 1;
    let bias = (1 << (format.width() - precision - 1)) - 1;
    let longer = r.biased + bias - x.biased - y.biased;
    2 * precision - 1 + u32::from(longer != 0) - x.trailing - y.trailing <= precision
}

/// Whether an intermediate result of [`sum_is_exact`] might overflow.
fn near_overflow(format: Format, x: Plain, y: Plain) -> bool {
    let largest = (1 << (format.width() - 1 - format.fraction_bits())) - 2;
    x.biased.max(y.biased) > largest - 2
}

/// Whether `sum` is exactly a + b (or a - b): the error of a rounded sum is itself a float, and Knuth's TwoSum
/// finds it.
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
