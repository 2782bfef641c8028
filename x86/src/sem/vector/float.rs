//! Floating-point arithmetic and comparison, scalar and packed.
//!
//! Every lane is an opaque function of its operands and of the control bits of MXCSR; [`settle`] then makes
//! the exceptions of all lanes sticky, or traps.

use super::{Xmm, from_lanes, immediate, lane, mask, register, set_register, source, with_lane};
use crate::domain::{Bin, Domain};
use crate::flags::Flags;
use crate::machine::{Bool, Bv, Control, Exec, Machine, Trap};
use crate::op::Op;
use crate::opaque::{Arithmetic, Format, Opaque, SSE_MODE, exception};
use crate::sem::operand;

/// A number format, chosen by the table.
pub trait Float {
    /// The format.
    const FORMAT: Format;
    /// Its width in bits.
    const W: u32 = Self::FORMAT.width();
}
/// The ..PS and ..SS instructions.
pub struct Single;
/// The ..PD and ..SD instructions.
pub struct Double;
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

/// The control bits of MXCSR, 16 bits.
pub(super) fn mode<M: Machine>(m: &M) -> Bv<M> {
    let d = m.d();
    d.bin(Bin::And, 16, d.trunc(32, 16, m.control(Control::Mxcsr)), d.lit(16, SSE_MODE))
}

/// The exceptions that the lanes raise, 6 bits.
pub(super) struct Raised<D: Domain>(pub(super) D::Bv);

impl<D: Domain> Raised<D> {
    /// None.
    pub(super) fn none(d: &D) -> Self {
        Raised(d.lit(6, 0))
    }

    /// Adds those of one lane.
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
/// An unmasked exception of an operand keeps the exceptions of results from being found.
pub(super) fn settle<M: Machine>(m: &mut M, raised: &Raised<M::D>) -> Exec {
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

/// The packed forms.
pub fn packed<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), mode(m), Raised::none(m.d()));
        let r = from_lanes(d, F::W, |n| {
            let args = [lane(d, F::W, n, a), lane(d, F::W, n, b), mode];
            raised.apply(d, Opaque::Sse(O::OP, F::FORMAT), &args)
        });
        (r, raised)
    };
    settle(m, &raised)?;
    set_register(m, op.a, r);
    Ok(())
}

/// The scalar forms: the rest of the destination stays.
pub fn scalar<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = operand::read(m, op, op.b, F::W)?;
    let a = register(m, op.a);
    let mut raised = Raised::none(m.d());
    let args = [lane(m.d(), F::W, 0, a), b, mode(m)];
    let v = raised.apply(m.d(), Opaque::Sse(O::OP, F::FORMAT), &args);
    settle(m, &raised)?;
    let r = with_lane(m.d(), F::W, 0, a, v);
    set_register(m, op.a, r);
    Ok(())
}

/// HADDPS, HADDPD, HSUBPS, HSUBPD: neighbours of the destination, then of the source.
pub fn horizontal<M: Machine, F: Float, O: Operation>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), mode(m), Raised::none(m.d()));
        let count = 128 / F::W;
        let r = from_lanes(d, F::W, |n| {
            let (v, first) = if 2 * n < count { (a, 2 * n) } else { (b, 2 * n - count) };
            let args = [lane(d, F::W, first, v), lane(d, F::W, first + 1, v), mode];
            raised.apply(d, Opaque::Sse(O::OP, F::FORMAT), &args)
        });
        (r, raised)
    };
    settle(m, &raised)?;
    set_register(m, op.a, r);
    Ok(())
}

/// ADDSUBPS, ADDSUBPD: even lanes are subtracted, odd ones added.
pub fn alternate<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), mode(m), Raised::none(m.d()));
        let r = from_lanes(d, F::W, |n| {
            let operation = if n % 2 == 0 { Arithmetic::Sub } else { Arithmetic::Add };
            let args = [lane(d, F::W, n, a), lane(d, F::W, n, b), mode];
            raised.apply(d, Opaque::Sse(operation, F::FORMAT), &args)
        });
        (r, raised)
    };
    settle(m, &raised)?;
    set_register(m, op.a, r);
    Ok(())
}

/// Bits of a relation (see [`Opaque::SseCompare`]).
const LESS: u64 = 1;
const EQUAL: u64 = 2;
const UNORDERED: u64 = 4;

/// The predicate of CMPPS and its kin by its immediate (Intel SDM vol. 2, CMPPD): the relations that satisfy
/// it (or, if the second is true, do not), and whether quiet NaNs are invalid.
fn predicate(code: u32) -> (u64, bool, bool) {
    let negated = code & 4 != 0;
    match code & 3 {
        0 => (EQUAL, negated, false),
        1 => (LESS, negated, true),
        2 => (LESS | EQUAL, negated, true),
        _ => (UNORDERED, negated, false),
    }
}

fn is_any<D: Domain>(d: &D, relation: D::Bv, of: u64) -> D::Bool {
    d.not(d.is_zero(3, d.bin(Bin::And, 3, relation, d.lit(3, of))))
}

/// One lane of a comparison into a mask.
#[inline(always)]
fn compare_lane<D: Domain, F: Float>(d: &D, raised: &mut Raised<D>, op: &Op, args: &[D::Bv]) -> D::Bv {
    let (relations, negated, signaling) = predicate(immediate(op));
    let relation = raised.apply(d, Opaque::SseCompare { format: F::FORMAT, signaling }, args);
    let holds = is_any(d, relation, relations);
    mask(d, F::W, if negated { d.not(holds) } else { holds })
}

/// CMPPS, CMPPD.
pub fn compare_packed<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = source(m, op, op.b)?;
    let a = register(m, op.a);
    let (r, raised) = {
        let (d, mode, mut raised) = (m.d(), mode(m), Raised::none(m.d()));
        let r = from_lanes(d, F::W, |n| {
            let args = [lane(d, F::W, n, a), lane(d, F::W, n, b), mode];
            compare_lane::<_, F>(d, &mut raised, op, &args)
        });
        (r, raised)
    };
    settle(m, &raised)?;
    set_register(m, op.a, r);
    Ok(())
}

/// CMPSS, CMPSD.
pub fn compare_scalar<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b = operand::read(m, op, op.b, F::W)?;
    let a = register(m, op.a);
    let mut raised = Raised::none(m.d());
    let args = [lane(m.d(), F::W, 0, a), b, mode(m)];
    let v = compare_lane::<_, F>(m.d(), &mut raised, op, &args);
    settle(m, &raised)?;
    let r = with_lane(m.d(), F::W, 0, a, v);
    set_register(m, op.a, r);
    Ok(())
}

/// COMISS, COMISD (`SIGNALING`), UCOMISS, UCOMISD: the relation as unsigned comparison flags.
pub fn compare_to_flags<M: Machine, F: Float, const SIGNALING: bool>(m: &mut M, op: &Op) -> Exec {
    let b = operand::read(m, op, op.b, F::W)?;
    let a = operand::read(m, op, op.a, F::W)?;
    let mut raised = Raised::none(m.d());
    let args = [a, b, mode(m)];
    let compare = Opaque::SseCompare { format: F::FORMAT, signaling: SIGNALING };
    let relation = raised.apply(m.d(), compare, &args);
    settle(m, &raised)?;
    let any: [Bool<M>; 3] =
        [LESS | UNORDERED, UNORDERED, EQUAL | UNORDERED].map(|of| is_any(m.d(), relation, of));
    let clear = m.d().bool(false);
    let flags = Flags::from_bits(m.d(), [any[0], any[1], clear, any[2], clear, clear]);
    m.set_flags(flags);
    Ok(())
}

/// DPPS, DPPD: products of the lanes that the high half of the immediate chooses, added in pairs, into the
/// lanes that its low half chooses. Each step settles its exceptions before the next begins.
pub fn dot_product<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    let b: Xmm<M> = source(m, op, op.b)?;
    let a = register(m, op.a);
    let selector = immediate(op);
    let zero = m.d().lit(F::W, 0);
    let products = (0..128 / F::W).map(|n| {
        let chosen = selector >> (4 + n) & 1 != 0;
        chosen.then(|| (lane(m.d(), F::W, n, a), lane(m.d(), F::W, n, b)))
    });
    let products: Vec<_> = products.collect();
    let mut terms = step::<M, F>(m, Arithmetic::Mul, &products)?;
    while terms.len() > 1 {
        let pairs: Vec<_> = terms.chunks(2).map(|pair| Some((pair[0], pair[1]))).collect();
        terms = step::<M, F>(m, Arithmetic::Add, &pairs)?;
    }
    let r = from_lanes(m.d(), F::W, |n| if selector >> n & 1 != 0 { terms[0] } else { zero });
    set_register(m, op.a, r);
    Ok(())
}

/// One operation on every pair at once; zero where there is none.
fn step<M: Machine, F: Float>(
    m: &mut M,
    operation: Arithmetic,
    pairs: &[Option<(Bv<M>, Bv<M>)>],
) -> Exec<Vec<Bv<M>>> {
    let (mode, mut raised) = (mode(m), Raised::none(m.d()));
    let mut results = Vec::with_capacity(pairs.len());
    for pair in pairs {
        results.push(match pair {
            Some((x, y)) => raised.apply(m.d(), Opaque::Sse(operation, F::FORMAT), &[*x, *y, mode]),
            None => m.d().lit(F::W, 0),
        });
    }
    settle(m, &raised)?;
    Ok(results)
}
