//! Comparisons and tests of lanes whose results are the bits of an opmask register.

use super::{
    commit_mask, first, first_place, immediate, lane, length, number, packed_source, second, second_place,
    set_mask, side_by_side,
};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Exec, Machine, PackedOf};
use crate::op::Op;
use crate::packed::Packed;

/// What is asked of a lane.
pub trait Predicate {
    /// The width of the lane in bits.
    const W: u32;
    /// Whether it holds for the lane of the first source and that of the second.
    fn holds<D: Domain>(d: &D, op: &Op, a: D::Bv, b: D::Bv) -> D::Bool;
}

/// Bit n of the destination says whether `P` holds for lane n, where the mask has that bit; the others are clear.
pub fn into_mask<M: Machine, P: Predicate>(m: &mut M, op: &Op) -> Exec {
    let b = packed_source(m, op, second_place(op), P::W, false)?;
    let (d, from, per_block) = (m.d(), number(first_place(op)), 128 / P::W);
    let of_block = |block: u8| {
        let (a, b) = (m.packed(from, block), b[usize::from(block)]);
        PackedOf::<M>::bits_from(d, P::W, |n| P::holds(d, op, a.lane(d, P::W, n), b.lane(d, P::W, n)))
    };
    let bits = side_by_side(d, op.vector.parts / 2, per_block, of_block);
    set_mask(m, op, bits);
    Ok(())
}

macro_rules! predicates {
    ($($(#[$doc:meta])* $name:ident = |$d:ident, $op:ident, $w:ident, $a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<const W: u32>;
        impl<const W: u32> Predicate for $name<W> {
            const W: u32 = W;
            #[inline(always)]
            fn holds<D: Domain>($d: &D, $op: &Op, $a: D::Bv, $b: D::Bv) -> D::Bool {
                let $w = W;
                $body
            }
        }
    )*};
}

predicates! {
    /// VPCMPEQB and its kin.
    Equal = |d, _op, w, a, b| d.cmp(Cmp::Eq, w, a, b);
    /// VPCMPGTB and its kin.
    Greater = |d, _op, w, a, b| d.cmp(Cmp::Slt, w, b, a);
    /// VPCMPB and its kin: signed numbers, by the immediate.
    Signed = |d, op, w, a, b| by_immediate(d, op, Cmp::Slt, w, a, b);
    /// VPCMPUB and its kin: unsigned numbers, by the immediate.
    Unsigned = |d, op, w, a, b| by_immediate(d, op, Cmp::Ult, w, a, b);
    /// VPTESTMB and its kin.
    SomeCommon = |d, _op, w, a, b| d.not(d.is_zero(w, d.bin(Bin::And, w, a, b)));
    /// VPTESTNMB and its kin.
    NoneCommon = |d, _op, w, a, b| d.is_zero(w, d.bin(Bin::And, w, a, b));
}

/// The comparison that three bits of the immediate number.
#[inline(always)]
fn by_immediate<D: Domain>(d: &D, op: &Op, less: Cmp, w: u32, a: D::Bv, b: D::Bv) -> D::Bool {
    match immediate(op) & 7 {
        0 => d.cmp(Cmp::Eq, w, a, b),
        1 => d.cmp(less, w, a, b),
        2 => d.not(d.cmp(less, w, b, a)),
        3 => d.bool(false),
        4 => d.not(d.cmp(Cmp::Eq, w, a, b)),
        5 => d.not(d.cmp(less, w, a, b)),
        6 => d.cmp(less, w, b, a),
        _ => d.bool(true),
    }
}

/// VPSHUFBITQMB: of each quadword of the first source, the bits that the bytes of the second number.
pub fn chosen_bits<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, 8)?;
    let a = first(m, op);
    commit_mask(m, op, length(op) / 8, |d, n| {
        let number = d.zext(6, 64, d.trunc(8, 6, lane(d, 8, n, &b)));
        d.bit(64, 0, d.bin(Bin::Shr, 64, lane(d, 64, n / 8, &a), number))
    });
    Ok(())
}
