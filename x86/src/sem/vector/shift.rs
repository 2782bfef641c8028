//! Shifts: of lanes by one amount, and of the whole register by bytes.

use super::{Xmm, from_lanes, immediate, lane, register, set_register, source};
use crate::domain::{Bin, Cmp, Domain};
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Loc, Op};

/// A direction of shift.
pub trait Shift {
    /// The operation on a lane.
    const OP: Bin;
}

/// PSLLW, PSLLD, PSLLQ.
pub struct Left;
/// PSRLW, PSRLD, PSRLQ.
pub struct Right;
/// PSRAW, PSRAD.
pub struct Arithmetic;

impl Shift for Left {
    const OP: Bin = Bin::Shl;
}
impl Shift for Right {
    const OP: Bin = Bin::Shr;
}
impl Shift for Arithmetic {
    const OP: Bin = Bin::Sar;
}

/// Shifts the lanes of `W` bits by the immediate or by the low quadword of the source.
pub fn lanes<M: Machine, S: Shift, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let amount = if op.b == Loc::Imm {
        m.d().lit(W, u64::from(immediate(op).min(W)))
    } else {
        let count = source(m, op, op.b)?[0];
        cut_amount::<M, W>(m.d(), count)
    };
    let a = register(m, op.a);
    let d = m.d();
    let r = from_lanes(d, W, |n| d.bin(S::OP, W, lane(d, W, n, a), amount));
    set_register(m, op.a, r);
    Ok(())
}

/// A 64-bit amount in `W` bits: all amounts of `W` and more do the same.
fn cut_amount<M: Machine, const W: u32>(d: &M::D, count: Bv<M>) -> Bv<M> {
    let in_range = d.cmp(Cmp::Ult, 64, count, d.lit(64, u64::from(W)));
    d.ite(in_range, W, d.trunc(64, W, count), d.lit(W, u64::from(W)))
}

/// The 128 bits that start at byte `first` of `v`, lowest quadword first; zeros follow it.
fn window<D: Domain>(d: &D, v: &[D::Bv], first: u32) -> [D::Bv; 2] {
    let quadword = |n: u32| v.get(n as usize).copied().unwrap_or_else(|| d.lit(64, 0));
    [0, 1].map(|half| {
        let (n, bit) = (first / 8 + half, first % 8 * 8);
        if bit == 0 {
            return quadword(n);
        }
        let low = d.extract(64, bit, 64 - bit, quadword(n));
        d.concat(bit, d.trunc(64, bit, quadword(n + 1)), 64 - bit, low)
    })
}

/// PSRLDQ.
pub fn bytes_right<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let a = register(m, op.a);
    let r = window(m.d(), &a, immediate(op).min(16));
    set_register(m, op.a, r);
    Ok(())
}

/// PSLLDQ.
pub fn bytes_left<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let a = register(m, op.a);
    let zero = m.d().lit(64, 0);
    let r = window(m.d(), &[zero, zero, a[0], a[1]], 16 - immediate(op).min(16));
    set_register(m, op.a, r);
    Ok(())
}

/// PALIGNR: the destination above the source, shifted right by bytes.
pub fn align_right<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b: Xmm<M> = source(m, op, op.b)?;
    let a = register(m, op.a);
    let r = window(m.d(), &[b[0], b[1], a[0], a[1]], immediate(op).min(32));
    set_register(m, op.a, r);
    Ok(())
}
