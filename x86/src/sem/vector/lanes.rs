//! Integer arithmetic and logic, lane by lane.

use super::results::LaneWidth;
use super::{
    block_from_lanes, by_blocks, by_lane, by_lanes, commit, first, first_place, from_block, from_lanes,
    immediate, in_blocks, lane, lane_of_part, mask, part_from_lanes, second, source, source_whole, sources,
};
use crate::domain::{Bin, Cmp, Domain, Un};
use crate::machine::{Exec, Machine, PackedOf};
use crate::op::Op;
use crate::packed::{Lane, Packed};

/// The width of the lanes of `L`.
struct Of<L>(std::marker::PhantomData<L>);
impl<L: Lane> LaneWidth for Of<L> {
    const W: u32 = L::W;
}

/// `f(first, second)` in every lane.
pub fn lanes<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    by_lane::<_, L>(m, op, sources(op), false)
}

/// The same where the second source is loaded whatever the mask says.
pub fn lanes_whole<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    by_lane::<_, L>(m, op, sources(op), true)
}

/// `f` of the only source in every lane.
pub fn unary<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    by_lane::<_, L>(m, op, [op.b, op.b], false)
}

/// `f(source, immediate)` in every lane.
pub fn with_immediate<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    let amount = m.d().lit(L::W, u64::from(immediate(op)));
    by_lanes::<_, Of<L>>(m, op, [first_place(op); 2], false, |d, a, _| L::lane(d, a, amount))
}

/// The lanes of a part.
#[inline(always)]
pub(super) fn both<D: Domain, L: Lane>(d: &D, a: D::Bv, b: D::Bv) -> D::Bv {
    part_from_lanes(d, L::W, |n| L::lane(d, lane_of_part(d, L::W, n, a), lane_of_part(d, L::W, n, b)))
}

macro_rules! lane_operations {
    ($($(#[$doc:meta])* $name:ident = |$d:ident, $w:ident, $a:ident, $b:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name<const W: u32>;
        impl<const W: u32> Lane for $name<W> {
            const W: u32 = W;
            #[inline(always)]
            fn lane<D: Domain>($d: &D, $a: D::Bv, $b: D::Bv) -> D::Bv {
                let $w = W;
                $body
            }
        }
    )*};
}

lane_operations! {
    /// PADDB, PADDW, PADDD, PADDQ.
    Add = |d, w, a, b| d.bin(Bin::Add, w, a, b);
    /// PSUBB, PSUBW, PSUBD, PSUBQ.
    Sub = |d, w, a, b| d.bin(Bin::Sub, w, a, b);
    /// PAND, ANDPS, ANDPD.
    And = |d, w, a, b| d.bin(Bin::And, w, a, b);
    /// PANDN, ANDNPS, ANDNPD: the first source is complemented.
    AndNot = |d, w, a, b| d.bin(Bin::And, w, d.complement(w, a), b);
    /// POR, ORPS, ORPD.
    Or = |d, w, a, b| d.bin(Bin::Or, w, a, b);
    /// PXOR, XORPS, XORPD.
    Xor = |d, w, a, b| d.bin(Bin::Xor, w, a, b);
    /// KXNOR.
    Xnor = |d, w, a, b| d.complement(w, d.bin(Bin::Xor, w, a, b));
    /// PMULLW, PMULLD.
    MulLow = |d, w, a, b| d.bin(Bin::Mul, w, a, b);
    /// PMULHUW.
    MulHighUnsigned = |d, w, a, b| d.bin(Bin::MulHiU, w, a, b);
    /// PMULHW.
    MulHighSigned = |d, w, a, b| d.bin(Bin::MulHiS, w, a, b);
    /// PCMPEQB, PCMPEQW, PCMPEQD, PCMPEQQ.
    Equal = |d, w, a, b| mask(d, w, d.cmp(Cmp::Eq, w, a, b));
    /// PCMPGTB, PCMPGTW, PCMPGTD, PCMPGTQ.
    Greater = |d, w, a, b| mask(d, w, d.cmp(Cmp::Slt, w, b, a));
    /// PMINUB, PMINUW, PMINUD.
    MinUnsigned = |d, w, a, b| d.ite(d.cmp(Cmp::Ult, w, a, b), w, a, b);
    /// PMAXUB, PMAXUW, PMAXUD.
    MaxUnsigned = |d, w, a, b| d.ite(d.cmp(Cmp::Ult, w, a, b), w, b, a);
    /// PMINSB, PMINSW, PMINSD.
    MinSigned = |d, w, a, b| d.ite(d.cmp(Cmp::Slt, w, a, b), w, a, b);
    /// PMAXSB, PMAXSW, PMAXSD.
    MaxSigned = |d, w, a, b| d.ite(d.cmp(Cmp::Slt, w, a, b), w, b, a);
    /// PADDSB, PADDSW.
    AddSigned = |d, w, a, b| {
        saturate_signed(d, w + 1, w, d.bin(Bin::Add, w + 1, d.sext(w, w + 1, a), d.sext(w, w + 1, b)))
    };
    /// PSUBSB, PSUBSW.
    SubSigned = |d, w, a, b| {
        saturate_signed(d, w + 1, w, d.bin(Bin::Sub, w + 1, d.sext(w, w + 1, a), d.sext(w, w + 1, b)))
    };
    /// PADDUSB, PADDUSW.
    AddUnsigned = |d, w, a, b| {
        let sum = d.bin(Bin::Add, w, a, b);
        d.ite(d.cmp(Cmp::Ult, w, sum, a), w, d.lit(w, u64::MAX), sum)
    };
    /// PSUBUSB, PSUBUSW.
    SubUnsigned = |d, w, a, b| {
        let rest = d.bin(Bin::Sub, w, a, b);
        d.ite(d.cmp(Cmp::Ult, w, a, rest), w, d.lit(w, 0), rest)
    };
    /// PAVGB, PAVGW: rounded up.
    Average = |d, w, a, b| {
        let sum = d.bin(Bin::Add, w + 1, d.zext(w, w + 1, a), d.zext(w, w + 1, b));
        d.extract(w + 1, 1, w, d.bin(Bin::Add, w + 1, sum, d.lit(w + 1, 1)))
    };
    /// PABSB, PABSW, PABSD of the source.
    Absolute = |d, w, _a, b| d.ite(d.sign(w, b), w, d.negate(w, b), b);
    /// VPOPCNTB and its kin, of the source.
    Popcount = |d, w, _a, b| d.un(Un::Popcount, w, b);
    /// VPLZCNTD, VPLZCNTQ of the source.
    LeadingZeros = |d, w, _a, b| d.un(Un::LeadingZeros, w, b);
    /// PSIGNB, PSIGNW, PSIGND: the first source times the sign of the second.
    Sign = |d, w, a, b| {
        let kept = d.ite(d.is_zero(w, b), w, d.lit(w, 0), a);
        d.ite(d.sign(w, b), w, d.negate(w, a), kept)
    };
    /// VPROLVD, VPROLVQ: rotated left.
    RotateLeft = |d, w, a, b| rotate_left(d, w, a, b);
    /// VPRORVD, VPRORVQ: rotated right.
    RotateRight = |d, w, a, b| rotate_left(d, w, a, d.negate(w, b));
    /// PMULHRSW: the high half of the product, rounded.
    MulRound = |d, w, a, b| {
        let product = d.bin(Bin::Mul, 2 * w, d.sext(w, 2 * w, a), d.sext(w, 2 * w, b));
        let shifted = d.bin(Bin::Shr, 2 * w, product, d.lit(2 * w, u64::from(w) - 2));
        d.extract(2 * w, 1, w, d.bin(Bin::Add, 2 * w, shifted, d.lit(2 * w, 1)))
    };
    /// PMULUDQ: the low halves of the lanes as unsigned numbers.
    MulWideUnsigned = |d, w, a, b| {
        let low = |v| d.zext(w / 2, w, d.trunc(w, w / 2, v));
        d.bin(Bin::Mul, w, low(a), low(b))
    };
    /// PMULDQ: the low halves of the lanes as signed numbers.
    MulWideSigned = |d, w, a, b| {
        let low = |v| d.sext(w / 2, w, d.trunc(w, w / 2, v));
        d.bin(Bin::Mul, w, low(a), low(b))
    };
    /// PMADDWD: the sum of the two products of signed halves.
    MulAdd = |d, w, a, b| {
        let product = |n| {
            let part = |v| d.sext(w / 2, w, d.extract(w, n * w / 2, w / 2, v));
            d.bin(Bin::Mul, w, part(a), part(b))
        };
        d.bin(Bin::Add, w, product(0), product(1))
    };
    /// PMADDUBSW: unsigned halves of the first source times signed halves of the second, the sum saturated.
    MulAddUnsigned = |d, w, a, b| {
        let product = |n| {
            let unsigned = d.zext(w / 2, w + 2, d.extract(w, n * w / 2, w / 2, a));
            let signed = d.sext(w / 2, w + 2, d.extract(w, n * w / 2, w / 2, b));
            d.bin(Bin::Mul, w + 2, unsigned, signed)
        };
        saturate_signed(d, w + 2, w, d.bin(Bin::Add, w + 2, product(0), product(1)))
    };
    /// PSADBW: the sum of the absolute differences of the bytes of a quadword.
    SumOfDifferences = |d, w, a, b| {
        (0..w / 8).fold(d.lit(w, 0), |sum, n| {
            let (x, y) = (d.extract(w, 8 * n, 8, a), d.extract(w, 8 * n, 8, b));
            d.bin(Bin::Add, w, sum, d.zext(8, w, difference(d, 8, x, y)))
        })
    };
}

/// `v` rotated left by `amount` modulo its width, a power of two.
#[inline(always)]
pub(super) fn rotate_left<D: Domain>(d: &D, w: u32, v: D::Bv, amount: D::Bv) -> D::Bv {
    let left = d.bin(Bin::And, w, amount, d.lit(w, u64::from(w) - 1));
    let right = d.bin(Bin::Sub, w, d.lit(w, u64::from(w)), left);
    d.bin(Bin::Or, w, d.bin(Bin::Shl, w, v, left), d.bin(Bin::Shr, w, v, right))
}

/// |a - b| of unsigned numbers.
#[inline(always)]
fn difference<D: Domain>(d: &D, w: u32, a: D::Bv, b: D::Bv) -> D::Bv {
    d.ite(d.cmp(Cmp::Ult, w, a, b), w, d.bin(Bin::Sub, w, b, a), d.bin(Bin::Sub, w, a, b))
}

/// The nearest signed number of `to` bits.
#[inline(always)]
pub(super) fn saturate_signed<D: Domain>(d: &D, from: u32, to: u32, v: D::Bv) -> D::Bv {
    let most = u64::MAX >> (65 - to);
    let (low, high) = (d.lit(from, !most), d.lit(from, most));
    let raised = d.ite(d.cmp(Cmp::Slt, from, v, low), from, low, v);
    d.trunc(from, to, d.ite(d.cmp(Cmp::Slt, from, high, v), from, high, raised))
}

/// The nearest unsigned number of `to` bits to a signed number.
#[inline(always)]
pub(super) fn saturate_unsigned<D: Domain>(d: &D, from: u32, to: u32, v: D::Bv) -> D::Bv {
    let (low, high) = (d.lit(from, 0), d.lit(from, u64::MAX >> (64 - to)));
    let raised = d.ite(d.cmp(Cmp::Slt, from, v, low), from, low, v);
    d.trunc(from, to, d.ite(d.cmp(Cmp::Slt, from, high, v), from, high, raised))
}

/// Operations on neighbours, in each 128 bits: lane n of the result is f(lane 2n, lane 2n + 1) of first and second
/// source one after the other (PHADDW, PHADDD, PHADDSW, PHSUBW, PHSUBD, PHSUBSW).
pub fn horizontal<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, L::W)?;
    let a = first(m, op);
    let d = m.d();
    let count = 128 / L::W;
    let r = in_blocks(d, op, &a, &b, |_, a, b| {
        block_from_lanes(d, L::W, |n| {
            let (v, first) = if 2 * n < count { (a, 2 * n) } else { (b, 2 * n - count) };
            L::lane(d, lane(d, L::W, first, &v), lane(d, L::W, first + 1, &v))
        })
    });
    commit(m, op, L::W, r);
    Ok(())
}

/// PHMINPOSUW: the smallest word and its first place.
pub fn minimum_position<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b, 16)?;
    let d = m.d();
    let (least, place) = (1..8).fold((lane(d, 16, 0, &b), d.lit(3, 0)), |(least, place), n| {
        let word = lane(d, 16, n, &b);
        let smaller = d.cmp(Cmp::Ult, 16, word, least);
        (d.ite(smaller, 16, word, least), d.ite(smaller, 3, d.lit(3, u64::from(n)), place))
    });
    let low = d.zext(19, 64, d.concat(3, place, 16, least));
    let r = from_block(d, [low, d.lit(64, 0)]);
    commit(m, op, 64, r);
    Ok(())
}

/// VDBPSADBW: in each 128 bits, the immediate shuffles the doublewords of the second source. Word n of the result is the
/// sum of the absolute differences of four bytes of the first source, from byte 0 or 4 of word n's quadword on, and
/// four of the shuffled, from byte n of that quadword on, n being counted in it.
pub fn shuffled_differences<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let order = immediate(op);
    by_blocks(m, op, sources(op), [32, 16], |d, _, a, b| {
        let shuffled = PackedOf::<M>::from_lanes(d, 32, |n| b.lane(d, 32, order >> (2 * n) & 3));
        PackedOf::<M>::from_lanes(d, 16, |n| {
            let base = n / 4 * 8;
            sum_of_differences(d, (a, base + (n & 2) * 2), (&shuffled, base + (n & 3)))
        })
    })
}

/// VPCONFLICTD, VPCONFLICTQ: bit k of lane n says whether lane k, which is below it, is equal.
pub fn conflicts<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = source_whole(m, op, op.b, W)?;
    let d = m.d();
    let r = from_lanes(d, op, W, |n| {
        (0..n).fold(d.lit(W, 0), |bits, k| {
            let is_equal = d.cmp(Cmp::Eq, W, lane(d, W, n, &b), lane(d, W, k, &b));
            d.bin(Bin::Or, W, bits, d.ite(is_equal, W, d.lit(W, 1 << k), d.lit(W, 0)))
        })
    });
    commit(m, op, W, r);
    Ok(())
}

/// MPSADBW: in each 128 bits, sums of absolute differences of one block of four bytes with eight overlapping ones.
/// Three bits of the immediate choose the blocks of the low half, the next three those of the high half.
pub fn block_differences<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, 8)?;
    let a = first(m, op);
    let d = m.d();
    let r = in_blocks(d, op, &a, &b, |half, a, b| {
        let selector = immediate(op) >> (3 * half);
        let (a_first, b_first) = ((selector >> 2 & 1) * 4, (selector & 3) * 4);
        block_from_lanes(d, 16, |n| sum_of_differences(d, (&a, a_first + n), (&b, b_first)))
    });
    commit(m, op, 16, r);
    Ok(())
}

/// The sum of the absolute differences of four bytes of `a` from byte `i` on and four of `b` from byte `j` on, 16 bits.
fn sum_of_differences<D: Domain>(
    d: &D,
    (a, i): (&impl Packed<D>, u32),
    (b, j): (&impl Packed<D>, u32),
) -> D::Bv {
    (0..4).fold(d.lit(16, 0), |sum, k| {
        let (x, y) = (a.lane(d, 8, i + k), b.lane(d, 8, j + k));
        d.bin(Bin::Add, 16, sum, d.zext(8, 16, difference(d, 8, x, y)))
    })
}
