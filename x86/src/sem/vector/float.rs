//! Floating-point arithmetic and comparison, scalar and packed.
//!
//! Every lane is an opaque function of its operands and of the control bits of MXCSR; [`settle`] then makes
//! the exceptions of all lanes sticky, or traps. [`each_lane`] leaves out the exceptions of lanes that a mask leaves out.

use super::{
    Wide, block_from_lanes, commit, commit_low, first, first_low, from_lanes, immediate, in_blocks, lane,
    mask, mask_bit, number, second, second_low,
};
use crate::domain::{Bin, Domain};
use crate::flags::Flags;
use crate::machine::{Bool, Bv, Control, Exec, Machine, Trap};
use crate::op::{Embedded, Loc, Op, Vector};
use crate::opaque::{Arithmetic, Format, Opaque, SSE_MODE, exception};
use crate::sem::operand;

/// A number format, chosen by the table.
pub trait Float {
    /// The format.
    const FORMAT: Format;
    /// Its width in bits.
    const W: u32 = Self::FORMAT.width();
}
/// The ..PH halves, which are only converted.
pub struct Half;
/// The ..PS and ..SS instructions.
pub struct Single;
/// The ..PD and ..SD instructions.
pub struct Double;
impl Float for Half {
    const FORMAT: Format = Format::Half;
}
impl Float for Single {
    const FORMAT: Format = Format::Single;
}
impl Float for Double {
    const FORMAT: Format = Format::Double;
}

/// An operation on two lanes, chosen by the table.
pub trait Operation {
    /// The operation.
    const OP: Arithmetic;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl Operation for $name {
            const OP: Arithmetic = Arithmetic::$name;
        }
    )*};
}
operations!(
    /// ADDPS, ADDPD, ADDSS, ADDSD.
    Add,
    /// SUB..
    Sub,
    /// MUL..
    Mul,
    /// DIV..
    Div,
    /// MIN..
    Min,
    /// MAX..
    Max,
    /// SQRT.., of the source.
    Sqrt
);

/// RC of MXCSR.
const RC: u64 = 0x6000;
/// All exceptions masked.
const ALL_MASKED: u64 = exception::ALL << 7;

/// The control bits of MXCSR, 16 bits; those that the encoding overrides are as it says.
#[inline(always)]
pub(super) fn mode<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    let d = m.d();
    let cut = |kept| d.bin(Bin::And, 16, d.trunc(32, 16, m.control(Control::Mxcsr)), d.lit(16, kept));
    let rounding = match op.vector.embedded {
        Embedded::None | Embedded::Broadcast => return cut(SSE_MODE),
        Embedded::Suppress => return d.bin(Bin::Or, 16, cut(SSE_MODE), d.lit(16, ALL_MASKED)),
        Embedded::RoundNearest => 0,
        Embedded::RoundDown => 1,
        Embedded::RoundUp => 2,
        Embedded::RoundZero => 3,
    };
    d.bin(Bin::Or, 16, cut(SSE_MODE & !RC), d.lit(16, ALL_MASKED | rounding << 13))
}

/// The exceptions that the lanes raise, 6 bits.
pub(super) struct Raised<D: Domain>(pub(super) D::Bv);

impl<D: Domain> Raised<D> {
    /// None.
    #[inline(always)]
    pub(super) fn none(d: &D) -> Self {
        Raised(d.lit(6, 0))
    }

    /// Adds those of one lane.
    #[inline(always)]
    pub(super) fn add(&mut self, d: &D, lane: D::Bv) {
        self.0 = d.bin(Bin::Or, 6, self.0, lane);
    }

    /// Applies `op`, whose second result is the exceptions, and adds those; the first result.
    #[inline(always)]
    pub(super) fn apply(&mut self, d: &D, op: Opaque, args: &[D::Bv]) -> D::Bv {
        let [value, raised, _] = d.opaque(op, args);
        self.add(d, raised);
        value
    }
}

/// Makes exceptions sticky in MXCSR and traps if one is not masked. It comes before the commit of the result:
/// like the processor it leaves the flags of a trapping instruction in MXCSR, and its destination as it was.
/// An unmasked exception of an operand keeps the exceptions of results from being found. Where the encoding suppresses
/// exceptions, nothing happens.
#[inline(always)]
pub(super) fn settle<M: Machine>(m: &mut M, op: &Op, raised: &Raised<M::D>) -> Exec {
    if !matches!(op.vector.embedded, Embedded::None | Embedded::Broadcast) {
        return Ok(());
    }
    let mxcsr = m.control(Control::Mxcsr);
    let (sticky, trapping) = {
        let d = m.d();
        let unmasked = d.bin(Bin::And, 6, raised.0, d.complement(6, d.extract(32, 7, 6, mxcsr)));
        let before = d.lit(6, exception::BEFORE_RESULT);
        let no_operand_traps = d.is_zero(6, d.bin(Bin::And, 6, unmasked, before));
        let found = d.ite(no_operand_traps, 6, raised.0, d.bin(Bin::And, 6, raised.0, before));
        (d.bin(Bin::Or, 32, mxcsr, d.zext(6, 32, found)), d.not(d.is_zero(6, unmasked)))
    };
    m.set_control(Control::Mxcsr, sticky);
    m.trap_if(trapping, Trap::Simd)
}

/// The lanes of `w` bits that `f` computes, and the exceptions of those that the mask names.
#[inline(always)]
pub(super) fn each_lane<M: Machine>(
    m: &M,
    op: &Op,
    w: u32,
    mut f: impl FnMut(&M::D, &mut Raised<M::D>, u32) -> Bv<M>,
) -> (Wide<M>, Raised<M::D>) {
    let (d, mut raised) = (m.d(), Raised::none(m.d()));
    let r = from_lanes(d, op, w, |n| of_lane(m, op, n, &mut raised, &mut f));
    (r, raised)
}

/// The same of one lane.
#[inline(always)]
pub(super) fn of_lane<M: Machine>(
    m: &M,
    op: &Op,
    n: u32,
    raised: &mut Raised<M::D>,
    f: &mut impl FnMut(&M::D, &mut Raised<M::D>, u32) -> Bv<M>,
) -> Bv<M> {
    let d = m.d();
    let Some(active) = mask_bit(m, op, n) else { return f(d, raised, n) };
    let mut own = Raised::none(d);
    let v = f(d, &mut own, n);
    raised.add(d, d.ite(active, 6, own.0, d.lit(6, 0)));
    v
}

/// A legacy instruction between vector registers as it is decoded. Where the functions of this file are given it, the
/// compiler knows all but the numbers of the registers.
#[inline(always)]
pub(super) fn between_registers(op: &Op) -> Op {
    Op { a: Loc::Vector(number(op.a)), b: Loc::Vector(number(op.b)), vector: Vector::LEGACY, ..*op }
}

/// [`packed`], legacy and between registers.
pub fn packed_registers<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    packed::<M, F, O>(m, &between_registers(op))
}

/// [`packed_unary`], likewise.
pub fn packed_unary_registers<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    packed_unary::<M, F, O>(m, &between_registers(op))
}

/// [`scalar`], likewise.
pub fn scalar_registers<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    scalar::<M, F, O>(m, &between_registers(op))
}

/// [`compare_to_flags`], likewise.
pub fn compare_registers<M: Machine, F: Float, const SIGNALING: bool>(m: &mut M, op: &Op) -> Exec {
    compare_to_flags::<M, F, SIGNALING>(m, &between_registers(op))
}

/// The packed forms.
#[inline(always)]
pub fn packed<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, F::W)?;
    let a = first(m, op);
    let mode = mode(m, op);
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        let args = [lane(d, F::W, n, &a), lane(d, F::W, n, &b), mode];
        raised.apply(d, Opaque::Sse(O::OP, F::FORMAT), &args)
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// SQRTPS, SQRTPD: the packed forms with one source.
#[inline(always)]
pub fn packed_unary<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = super::source(m, op, op.b, F::W)?;
    let mode = mode(m, op);
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        let v = lane(d, F::W, n, &b);
        raised.apply(d, Opaque::Sse(O::OP, F::FORMAT), &[v, v, mode])
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// The scalar forms: the rest of the 128 bits is that of the first source.
#[inline(always)]
pub fn scalar<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = second_low(m, op, F::W)?;
    let a = first_low(m, op, F::W);
    let (mode, mut raised) = (mode(m, op), Raised::none(m.d()));
    let v = of_lane(m, op, 0, &mut raised, &mut |d, raised, _| {
        raised.apply(d, Opaque::Sse(O::OP, F::FORMAT), &[a, b, mode])
    });
    settle(m, op, &raised)?;
    commit_low(m, op, F::W, v);
    Ok(())
}

/// HADDPS, HADDPD, HSUBPS, HSUBPD: in each 128 bits, neighbours of the first source, then of the second.
pub fn horizontal<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, F::W)?;
    let a = first(m, op);
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), mode(m, op), Raised::none(m.d()));
        let count = 128 / F::W;
        let r = in_blocks(d, op, &a, &b, |_, a, b| {
            block_from_lanes(d, F::W, |n| {
                let (v, first) = if 2 * n < count { (a, 2 * n) } else { (b, 2 * n - count) };
                let args = [lane(d, F::W, first, &v), lane(d, F::W, first + 1, &v), mode];
                raised.apply(d, Opaque::Sse(O::OP, F::FORMAT), &args)
            })
        });
        (r, raised)
    };
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// ADDSUBPS, ADDSUBPD: even lanes are subtracted, odd ones added.
pub fn alternate<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, F::W)?;
    let a = first(m, op);
    let mode = mode(m, op);
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        let operation = if n % 2 == 0 { Arithmetic::Sub } else { Arithmetic::Add };
        let args = [lane(d, F::W, n, &a), lane(d, F::W, n, &b), mode];
        raised.apply(d, Opaque::Sse(operation, F::FORMAT), &args)
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// Bits of a relation (see [`Opaque::SseCompare`]).
const LESS: u64 = 1;
const EQUAL: u64 = 2;
const UNORDERED: u64 = 4;

/// A predicate of CMPPS and its kin.
struct Predicate {
    /// The relations that satisfy it, or, if `negated`, do not.
    relations: u64,
    negated: bool,
    /// Whether quiet NaNs are invalid operands.
    signaling: bool,
}

/// The predicate by the low five bits of the immediate (Intel SDM vol. 2, CMPPD); legacy encodings have three.
fn predicate(op: &Op) -> Predicate {
    let code = immediate(op) & if super::is_legacy(op) { 7 } else { 31 };
    let (relations, negated) = match code & 15 {
        0 => (EQUAL, false),
        1 => (LESS, false),
        2 => (LESS | EQUAL, false),
        3 => (UNORDERED, false),
        4 => (EQUAL, true),
        5 => (LESS, true),
        6 => (LESS | EQUAL, true),
        7 => (UNORDERED, true),
        8 => (EQUAL | UNORDERED, false),
        9 => (LESS | UNORDERED, false),
        10 => (LESS | EQUAL | UNORDERED, false),
        11 => (0, false),
        12 => (EQUAL | UNORDERED, true),
        13 => (LESS | UNORDERED, true),
        14 => (LESS | EQUAL | UNORDERED, true),
        _ => (0, true),
    };
    // The orders signal, the others do not; the upper half of the codes is the other way round.
    let is_order = matches!(code & 3, 1 | 2);
    Predicate { relations, negated, signaling: is_order != (code & 16 != 0) }
}

fn is_any<D: Domain>(d: &D, relation: D::Bv, of: u64) -> D::Bool {
    d.not(d.is_zero(3, d.bin(Bin::And, 3, relation, d.lit(3, of))))
}

/// Whether one lane satisfies the predicate of `op`.
#[inline(always)]
pub(super) fn compare_lane<D: Domain, F: Float>(
    d: &D,
    raised: &mut Raised<D>,
    op: &Op,
    args: &[D::Bv],
) -> D::Bool {
    let Predicate { relations, negated, signaling } = predicate(op);
    let relation = raised.apply(d, Opaque::SseCompare { format: F::FORMAT, signaling }, args);
    let holds = is_any(d, relation, relations);
    if negated { d.not(holds) } else { holds }
}

/// CMPPS, CMPPD.
pub fn compare_packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, F::W)?;
    let a = first(m, op);
    let mode = mode(m, op);
    let (r, raised) = each_lane(m, op, F::W, |d, raised, n| {
        let args = [lane(d, F::W, n, &a), lane(d, F::W, n, &b), mode];
        mask(d, F::W, compare_lane::<_, F>(d, raised, op, &args))
    });
    settle(m, op, &raised)?;
    commit(m, op, F::W, r);
    Ok(())
}

/// CMPSS, CMPSD.
pub fn compare_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second_low(m, op, F::W)?;
    let a = first_low(m, op, F::W);
    let mut raised = Raised::none(m.d());
    let holds = compare_lane::<_, F>(m.d(), &mut raised, op, &[a, b, mode(m, op)]);
    settle(m, op, &raised)?;
    let v = mask(m.d(), F::W, holds);
    commit_low(m, op, F::W, v);
    Ok(())
}

/// COMISS, COMISD (`SIGNALING`), UCOMISS, UCOMISD: the relation as unsigned comparison flags.
#[inline(always)]
pub fn compare_to_flags<M: Machine, F: Float, const SIGNALING: bool>(m: &mut M, op: &Op) -> Exec {
    let b = operand::read(m, op, op.b, F::W)?;
    let a = operand::read(m, op, op.a, F::W)?;
    let mut raised = Raised::none(m.d());
    let args = [a, b, mode(m, op)];
    let compare = Opaque::SseCompare { format: F::FORMAT, signaling: SIGNALING };
    let relation = raised.apply(m.d(), compare, &args);
    settle(m, op, &raised)?;
    let any: [Bool<M>; 3] =
        [LESS | UNORDERED, UNORDERED, EQUAL | UNORDERED].map(|of| is_any(m.d(), relation, of));
    let clear = m.d().bool(false);
    let flags = Flags::from_bits(m.d(), [any[0], any[1], clear, any[2], clear, clear]);
    m.set_flags(flags);
    Ok(())
}

/// DPPS, DPPD: in each 128 bits, products of the lanes that the high half of the immediate chooses, added in pairs,
/// into the lanes that its low half chooses. Each step settles its exceptions before the next begins.
pub fn dot_product<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, F::W)?;
    let a = first(m, op);
    let selector = immediate(op);
    let (zero, per_block) = (m.d().lit(F::W, 0), 128 / F::W);
    let products = (0..super::length(op) / F::W).map(|n| {
        let chosen = selector >> (4 + n % per_block) & 1 != 0;
        chosen.then(|| (lane(m.d(), F::W, n, &a), lane(m.d(), F::W, n, &b)))
    });
    let products: Vec<_> = products.collect();
    let mut terms = step::<M, F>(m, op, Arithmetic::Mul, &products)?;
    while terms.len() > super::parts(op) / 2 {
        let pairs: Vec<_> = terms.chunks(2).map(|pair| Some((pair[0], pair[1]))).collect();
        terms = step::<M, F>(m, op, Arithmetic::Add, &pairs)?;
    }
    let r = from_lanes(m.d(), op, F::W, |n| {
        if selector >> (n % per_block) & 1 != 0 { terms[(n / per_block) as usize] } else { zero }
    });
    commit(m, op, F::W, r);
    Ok(())
}

/// One operation on every pair at once; zero where there is none.
fn step<M: Machine, F: Float>(
    m: &mut M,
    op: &Op,
    operation: Arithmetic,
    pairs: &[Option<(Bv<M>, Bv<M>)>],
) -> Exec<Vec<Bv<M>>> {
    let (mode, mut raised) = (mode(m, op), Raised::none(m.d()));
    let mut results = Vec::with_capacity(pairs.len());
    for pair in pairs {
        results.push(match pair {
            Some((x, y)) => raised.apply(m.d(), Opaque::Sse(operation, F::FORMAT), &[*x, *y, mode]),
            None => m.d().lit(F::W, 0),
        });
    }
    settle(m, op, &raised)?;
    Ok(results)
}
