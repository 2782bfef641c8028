//! Floating point into masks: comparisons, and classes of numbers.

use super::float::{Float, Raised, compare_lane, mode, of_lane, settle};
use super::{commit_mask, first, first_low, immediate, lane, length, low_of, second, second_low, source};
use crate::domain::{Cmp, Domain};
use crate::machine::{Bool, Bv, Control, Exec, Machine};
use crate::op::Op;

/// VCMPPS, VCMPPD into a mask.
pub fn compare_packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, F::W)?;
    let a = first(m, op);
    let (mode, mut raised) = (mode(m, op), Raised::none(m.d()));
    let mut holds = Vec::with_capacity(16);
    for n in 0..length(op) / F::W {
        holds.push(of_lane(m, op, n, &mut raised, &mut |d, raised, n| {
            let args = [lane(d, F::W, n, &a), lane(d, F::W, n, &b), mode];
            d.from_bool(1, compare_lane::<_, F>(d, raised, op, &args))
        }));
    }
    settle(m, op, &raised)?;
    commit_mask(m, op, length(op) / F::W, |d, n| d.bit(1, 0, holds[n as usize]));
    Ok(())
}

/// VCMPSS, VCMPSD into a mask.
pub fn compare_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second_low(m, op, F::W)?;
    let (a, mode, mut raised) = (first_low(m, op, F::W), mode(m, op), Raised::none(m.d()));
    let holds: Bv<M> = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| {
        d.from_bool(1, compare_lane::<_, F>(d, raised, op, &[a, b, mode]))
    });
    settle(m, op, &raised)?;
    commit_mask(m, op, 1, |d, _| d.bit(1, 0, holds));
    Ok(())
}

/// VFPCLASSPS, VFPCLASSPD: whether a lane is of one of the classes in the immediate. It is algebra, so that a solver
/// knows the classes.
pub fn classify_packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b, F::W)?;
    let zero_denormals = denormals_are_zero(m);
    commit_mask(m, op, length(op) / F::W, |d, n| {
        is_of_class::<_, F>(d, op, lane(d, F::W, n, &b), zero_denormals)
    });
    Ok(())
}

/// VFPCLASSSS, VFPCLASSSD.
pub fn classify_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = low_of(m, op, op.b, F::W)?;
    let zero_denormals = denormals_are_zero(m);
    commit_mask(m, op, 1, |d, _| is_of_class::<_, F>(d, op, b, zero_denormals));
    Ok(())
}

fn denormals_are_zero<M: Machine>(m: &M) -> Bool<M> {
    m.d().bit(32, 6, m.control(Control::Mxcsr))
}

/// Whether `v` is of one of the classes in the immediate (Intel SDM vol. 2, VFPCLASSPD).
fn is_of_class<D: Domain, F: Float>(d: &D, op: &Op, v: D::Bv, zero_denormals: D::Bool) -> D::Bool {
    let fraction_bits = F::FORMAT.fraction_bits();
    let exponent_bits = F::W - 1 - fraction_bits;
    let exponent = d.extract(F::W, fraction_bits, exponent_bits, v);
    let fraction = d.trunc(F::W, fraction_bits, v);
    let (negative, quiet) = (d.sign(F::W, v), d.sign(fraction_bits, fraction));
    let largest = d.cmp(Cmp::Eq, exponent_bits, exponent, d.lit(exponent_bits, u64::MAX));
    let least = d.is_zero(exponent_bits, exponent);
    let no_fraction = d.is_zero(fraction_bits, fraction);
    let zero = d.and(least, d.or(no_fraction, zero_denormals));
    let infinite = d.and(largest, no_fraction);
    let nan = d.and(largest, d.not(no_fraction));
    let classes = [
        d.and(nan, quiet),
        d.and(zero, d.not(negative)),
        d.and(zero, negative),
        d.and(infinite, d.not(negative)),
        d.and(infinite, negative),
        d.and(least, d.not(zero)),
        d.and(negative, d.not(d.or(largest, zero))),
        d.and(nan, d.not(quiet)),
    ];
    let chosen = classes.into_iter().enumerate().filter(|(n, _)| immediate(op) >> n & 1 != 0);
    chosen.fold(d.bool(false), |any, (_, class)| d.or(any, class))
}
