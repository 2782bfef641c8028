//! Comparisons and tests of lanes whose results are the bits of an opmask register.

use super::{
    commit_mask, empty_blocks, first, immediate, lane, length, packed_sources, second, set_mask,
    side_by_side, sources,
};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Bv, Exec, Machine, PackedOf};
use crate::op::Op;
use crate::packed::Packed;

/// What is asked of a lane.
pub trait Predicate {
    /// The width of the lane in bits.
    const W: u32;
    /// Whether it holds for the lane of the first source and that of the second.
    fn holds<D: Domain>(d: &D, a: D::Bv, b: D::Bv) -> D::Bool;
}

/// Bit n of the destination says whether `P` holds for lane n, where the mask has that bit; the others are clear.
pub fn into_mask<M: Machine, P: Predicate>(m: &mut M, op: &Op) -> Exec {
    from_blocks(m, op, P::W, of_block::<M::D, P>)
}

/// VPCMPB, VPCMPUB and their kin: `LESS` numbers, or equal ones, as three bits of the immediate say.
pub fn by_immediate<M: Machine, LESS: Predicate, EQUAL: Predicate>(m: &mut M, op: &Op) -> Exec {
    let count = 128 / LESS::W;
    let complement = |d: &M::D, bits| d.complement(count, bits);
    match immediate(op) & 7 {
        0 => from_blocks(m, op, LESS::W, of_block::<M::D, EQUAL>),
        1 => from_blocks(m, op, LESS::W, of_block::<M::D, LESS>),
        2 => from_blocks(m, op, LESS::W, |d, a, b| complement(d, of_block::<M::D, LESS>(d, b, a))),
        3 => from_blocks(m, op, LESS::W, |d, _, _| d.lit(count, 0)),
        4 => from_blocks(m, op, LESS::W, |d, a, b| complement(d, of_block::<M::D, EQUAL>(d, a, b))),
        5 => from_blocks(m, op, LESS::W, |d, a, b| complement(d, of_block::<M::D, LESS>(d, a, b))),
        6 => from_blocks(m, op, LESS::W, |d, a, b| of_block::<M::D, LESS>(d, b, a)),
        _ => from_blocks(m, op, LESS::W, |d, _, _| d.lit(count, u64::MAX)),
    }
}

/// `f` of the blocks of both sources gives a bit for each of their lanes, of `w` bits.
#[inline(never)]
fn from_blocks<M: Machine>(
    m: &mut M,
    op: &Op,
    w: u32,
    f: impl Fn(&M::D, &PackedOf<M>, &PackedOf<M>) -> Bv<M>,
) -> Exec {
    let (mut a, mut b) = (empty_blocks::<M, 4>(m), empty_blocks::<M, 4>(m));
    packed_sources(m, op, sources(op), (w, false), [&mut a, &mut b])?;
    let of_block = |n: u8| f(m.d(), &a[usize::from(n & 3)], &b[usize::from(n & 3)]);
    let bits = side_by_side(m.d(), op.vector.parts / 2, 128 / w, of_block);
    set_mask(m, op, bits);
    Ok(())
}

/// The answers for the lanes of a block; by itself, as in [`super::by_blocks`].
#[inline(never)]
fn of_block<D: Domain, P: Predicate>(d: &D, a: &D::Packed, b: &D::Packed) -> D::Bv {
    D::Packed::bits_from(d, P::W, |n| P::holds(d, a.lane(d, P::W, n), b.lane(d, P::W, n)))
}

macro_rules! predicates {
    ($($(#[$doc:meta])* $name:ident = |$d:ident, $w:ident, $a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<const W: u32>;
        impl<const W: u32> Predicate for $name<W> {
            const W: u32 = W;
            #[inline(always)]
            fn holds<D: Domain>($d: &D, $a: D::Bv, $b: D::Bv) -> D::Bool {
                let $w = W;
                $body
            }
        }
    )*};
}

predicates! {
    /// VPCMPEQB and its kin.
    Equal = |d, w, a, b| d.cmp(Cmp::Eq, w, a, b);
    /// VPCMPGTB and its kin.
    Greater = |d, w, a, b| d.cmp(Cmp::Slt, w, b, a);
    /// Of signed numbers.
    Less = |d, w, a, b| d.cmp(Cmp::Slt, w, a, b);
    /// Of unsigned numbers.
    Below = |d, w, a, b| d.cmp(Cmp::Ult, w, a, b);
    /// VPTESTMB and its kin.
    SomeCommon = |d, w, a, b| d.not(d.is_zero(w, d.bin(Bin::And, w, a, b)));
    /// VPTESTNMB and its kin.
    NoneCommon = |d, w, a, b| d.is_zero(w, d.bin(Bin::And, w, a, b));
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
