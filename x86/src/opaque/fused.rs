//! Multiplication and addition with one rounding (FMA; Intel SDM vol. 1, 14.5).

use super::exception::{DENORMAL, PRECISION};
use super::fast::{plain, single};
use super::sse::{Mode, Operand, conclude, propagate_nan, raised_if};
use super::{Format, basic};

/// What is computed of a, b and c: `± a * b ± c`. Of NaNs the first of a, b, c is the result, its sign as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fused {
    /// The format of all operands.
    pub format: Format,
    /// Whether the product is negated.
    pub negate_product: bool,
    /// Whether c is negated.
    pub negate_addend: bool,
}

/// See [`super::Opaque::SseFused`].
pub(super) fn multiply_add(op: Fused, operands: [u64; 3], mode: u64) -> [u64; 3] {
    let mode = Mode(mode);
    if let Some(result) = on_host(op, operands, mode) {
        return result;
    }
    let [a, b, c] = operands.map(|bits| Operand::read(op.format, bits, mode));
    if let Some(nan) = propagate_nan(op.format, &[&a, &b, &c]) {
        return nan;
    }
    let denormal = raised_if(a.denormal || b.denormal || c.denormal, DENORMAL);
    let (x, y, z) = (a.as_number(), b.as_number(), c.as_number());
    let (x, z) = (if op.negate_product { -x } else { x }, if op.negate_addend { -z } else { z });
    conclude(op.format, mode, basic::multiply_add(x, y, z), denormal)
}

/// Through the host's floats, where the result and the raised exceptions are provably the same (see [`super::fast`]).
fn on_host(op: Fused, operands: [u64; 3], mode: Mode) -> Option<[u64; 3]> {
    if !mode.is_default() {
        return None;
    }
    let [a, b, c] = operands;
    let (value, exact) = match op.format {
        Format::Half => return None,
        Format::Single => singles(
            if op.negate_product { -single(a) } else { single(a) },
            single(b),
            if op.negate_addend { -single(c) } else { single(c) },
        ),
        Format::Double => doubles(
            if op.negate_product { -f64::from_bits(a) } else { f64::from_bits(a) },
            f64::from_bits(b),
            if op.negate_addend { -f64::from_bits(c) } else { f64::from_bits(c) },
        ),
    }?;
    Some([value, if exact { 0 } else { PRECISION }, 0])
}

/// The product of singles is a double, so what rounding to a double loses of the sum, and to a single of that, is all
/// that is lost. Tiny results take the general path.
fn singles(x: f32, y: f32, z: f32) -> Option<(u64, bool)> {
    for operand in [x, y, z] {
        plain(Format::Single, operand.to_bits().into())?;
    }
    let r = x.mul_add(y, z);
    let (sum, error) = two_sum(f64::from(x) * f64::from(y), f64::from(z));
    let exact = error == 0.0 && sum == f64::from(r);
    let result = plain(Format::Single, r.to_bits().into())?;
    let is_normal = if result.zero { exact } else { result.biased > 1 };
    is_normal.then_some((r.to_bits().into(), exact))
}

/// Boldo and Muller, "Exact and Approximated Error of the FMA" (IEEE Transactions on Computers 60, 2011), algorithm
/// ErrFmaNearest: the error is the sum of `rest` and `low`. It holds where nothing overflows or underflows, so exponents
/// far from zero take the general path.
fn doubles(x: f64, y: f64, z: f64) -> Option<(u64, bool)> {
    const BIAS: u64 = 1023;
    const FAR: u64 = 400;
    for operand in [x, y, z] {
        let operand = plain(Format::Double, operand.to_bits())?;
        if !operand.zero && operand.biased.abs_diff(BIAS) > FAR {
            return None;
        }
    }
    let r = x.mul_add(y, z);
    let product = x * y;
    let (sum, low) = two_sum(z, x.mul_add(y, -product));
    let (high, middle) = two_sum(product, sum);
    let rest = (high - r) + middle;
    Some((r.to_bits(), rest + low == 0.0))
}

/// The rounded sum and its error, which is a float (Knuth).
fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let part = sum - x;
    (sum, (x - (sum - part)) + (y - part))
}
