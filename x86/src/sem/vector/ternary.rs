//! Operations on three lanes, of which the destination is the first.

use super::lanes::saturate_signed;
use super::{commit, first, from_lanes, from_parts, immediate, lane, register, second};
use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;

/// VPTERNLOGD, VPTERNLOGQ: bit by bit, the three bits are the number of a bit of the immediate; that of the destination
/// counts most. Lanes of `W` bits under the mask.
pub fn logic<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let c = second(m, op, W)?;
    let (a, b) = (register(m, op, op.a), first(m, op));
    let r = from_table(m.d(), op, immediate(op), &[&a, &b, &c]);
    commit(m, op, W, r);
    Ok(())
}

/// The function of `inputs`, bit by bit, whose value for all of them is a bit of `table`: its number has the first input
/// as its highest bit. What the table makes simple is made so: `a ^ b` is one operation.
fn from_table<D: Domain>(d: &D, op: &Op, table: u32, inputs: &[&[D::Bv; 8]]) -> [D::Bv; 8] {
    let Some((&first, rest)) = inputs.split_first() else {
        return from_parts(d, op, |_| d.lit(64, if table & 1 == 0 { 0 } else { u64::MAX }));
    };
    let half = 1 << rest.len();
    let all = (1 << half) - 1;
    let (clear, set) = (table & all, table >> half & all);
    let of = |table| from_table(d, op, table, rest);
    let both = |bin, a: &[D::Bv; 8], b: &[D::Bv; 8]| from_parts(d, op, |n| d.bin(bin, 64, a[n], b[n]));
    let complement = || from_parts(d, op, |n| d.complement(64, first[n]));
    match (clear, set) {
        _ if clear == set => of(set),
        _ if clear == all ^ set => both(Bin::Xor, first, &of(clear)),
        (0, _) => both(Bin::And, first, &of(set)),
        (_, 0) => both(Bin::And, &complement(), &of(clear)),
        _ if set == all => both(Bin::Or, first, &of(clear)),
        _ if clear == all => both(Bin::Or, &complement(), &of(set)),
        _ => {
            let kept = both(Bin::And, first, &of(set));
            both(Bin::Or, &kept, &both(Bin::And, &complement(), &of(clear)))
        }
    }
}

/// What happens in one lane.
pub trait Ternary {
    /// The width of the lane in bits.
    const W: u32;
    /// The lane of the result from those of destination, first and second source.
    fn lane<D: Domain>(d: &D, a: D::Bv, b: D::Bv, c: D::Bv) -> D::Bv;
}

/// `f(destination, first, second)` in every lane.
pub fn accumulated<M: Machine, T: Ternary>(m: &mut M, op: &Op) -> Exec {
    let c = second(m, op, T::W)?;
    let (a, b) = (register(m, op, op.a), first(m, op));
    let d = m.d();
    let of = |n, v| lane(d, T::W, n, v);
    let r = from_lanes(d, op, T::W, |n| T::lane(d, of(n, &a), of(n, &b), of(n, &c)));
    commit(m, op, T::W, r);
    Ok(())
}

/// `f(first, second, immediate)` in every lane.
pub fn with_immediate<M: Machine, T: Ternary>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, T::W)?;
    let a = first(m, op);
    let d = m.d();
    let c = d.lit(T::W, u64::from(immediate(op)));
    let r = from_lanes(d, op, T::W, |n| T::lane(d, lane(d, T::W, n, &a), lane(d, T::W, n, &b), c));
    commit(m, op, T::W, r);
    Ok(())
}

macro_rules! ternary_operations {
    ($($(#[$doc:meta])* $name:ident<$($parameter:ident: $kind:ty),*>($w:expr) = |$d:ident, $a:ident, $b:ident, $c:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<$(const $parameter: $kind),*>;
        impl<$(const $parameter: $kind),*> Ternary for $name<$($parameter),*> {
            const W: u32 = $w;
            #[inline(always)]
            fn lane<D: Domain>($d: &D, $a: D::Bv, $b: D::Bv, $c: D::Bv) -> D::Bv {
                $body
            }
        }
    )*};
}

ternary_operations! {
    /// VPSHLDW and its kin: the high half of `a` above `b`, shifted left by `c` modulo the width.
    FunnelLeft<W: u32>(W) = |d, a, b, c| {
        let (left, right) = funnel_amounts(d, W, c);
        d.bin(Bin::Or, W, d.bin(Bin::Shl, W, a, left), d.bin(Bin::Shr, W, b, right))
    };
    /// VPSHRDW and its kin: the low half of `b` above `a`, shifted right by `c` modulo the width.
    FunnelRight<W: u32>(W) = |d, a, b, c| {
        let (right, left) = funnel_amounts(d, W, c);
        d.bin(Bin::Or, W, d.bin(Bin::Shr, W, a, right), d.bin(Bin::Shl, W, b, left))
    };
    /// VPMADD52LUQ, or VPMADD52HUQ if `HIGH`: half of the product of 52-bit numbers is added.
    MulAdd52<HIGH: bool>(64) = |d, a, b, c| {
        let half = if HIGH { Bin::MulHiU } else { Bin::Mul };
        let product = d.bin(half, 52, d.trunc(64, 52, b), d.trunc(64, 52, c));
        d.bin(Bin::Add, 64, a, d.zext(52, 64, product))
    };
    /// VPDPBUSD: four products of an unsigned and a signed byte are added; VPDPBUSDS if `SATURATED`.
    DotBytes<SATURATED: bool>(32) = |d, a, b, c| {
        let product = |n: u32| {
            let unsigned = d.zext(8, SUM, d.extract(32, 8 * n, 8, b));
            d.bin(Bin::Mul, SUM, unsigned, d.sext(8, SUM, d.extract(32, 8 * n, 8, c)))
        };
        sum(d, SATURATED, a, (0..4).map(product))
    };
    /// VPDPWSSD: two products of signed words are added; VPDPWSSDS if `SATURATED`.
    DotWords<SATURATED: bool>(32) = |d, a, b, c| {
        let product = |n: u32| {
            let word = |v| d.sext(16, SUM, d.extract(32, 16 * n, 16, v));
            d.bin(Bin::Mul, SUM, word(b), word(c))
        };
        sum(d, SATURATED, a, (0..2).map(product))
    };
}

/// `amount` modulo `w`, a power of two, and what is left of `w`.
#[inline(always)]
fn funnel_amounts<D: Domain>(d: &D, w: u32, amount: D::Bv) -> (D::Bv, D::Bv) {
    let amount = d.bin(Bin::And, w, amount, d.lit(w, u64::from(w) - 1));
    (amount, d.bin(Bin::Sub, w, d.lit(w, u64::from(w)), amount))
}

/// Bits that hold the exact sum of a signed doubleword and a few products.
const SUM: u32 = 36;

/// The doubleword `a` and the products, of [`SUM`] bits, in 32 bits.
#[inline(always)]
fn sum<D: Domain>(d: &D, saturated: bool, a: D::Bv, products: impl Iterator<Item = D::Bv>) -> D::Bv {
    let sum = products.fold(d.sext(32, SUM, a), |sum, product| d.bin(Bin::Add, SUM, sum, product));
    if saturated { saturate_signed(d, SUM, 32, sum) } else { d.trunc(SUM, 32, sum) }
}
