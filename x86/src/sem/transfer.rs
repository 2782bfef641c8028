//! Moves, extensions, exchanges and addresses (Intel SDM vol. 1, 7.3.1). None of them changes a flag.

use super::operand::{
    Address, Any, AnyWidth, Place, When, Width, non_canonical, read, register, set_register, with_segment,
    write,
};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Gpr, Op};

/// MOV.
#[inline]
pub fn mov<M: Machine, W: Width, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let v = B::get(m, op, w)?;
    A::put(m, op, w, v)
}

/// MOVZX, and MOVSX and MOVSXD where `SIGNED`: the width of the source is in the selector.
#[inline]
pub fn extend<M: Machine, W: Width, const FROM: u32, const SIGNED: bool, A: Place, B: Place>(
    m: &mut M,
    op: &Op,
) -> Exec {
    let w = W::of(op);
    let v = B::get(m, op, FROM)?;
    let v = match FROM == w {
        true => v,
        false if SIGNED => m.d().sext(FROM, w, v),
        false => m.d().zext(FROM, w, v),
    };
    A::put(m, op, w, v)
}

/// CBW, CWDE, CDQE: sign-extends the lower half of the accumulator into `w` bits.
pub fn extend_accumulator<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let half = register(m, Gpr::RAX, w / 2);
    let v = m.d().sext(w / 2, w, half);
    set_register(m, Gpr::RAX, w, v);
    Ok(())
}

/// CWD, CDQ, CQO: fills rdx with the sign of the accumulator.
pub fn spread_sign<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = register(m, Gpr::RAX, w);
    let sign = m.d().bin(Bin::Sar, w, v, m.d().lit(w, u64::from(w) - 1));
    set_register(m, Gpr::RDX, w, sign);
    Ok(())
}

/// LEA.
#[inline]
pub fn lea<M: Machine, W: Width, A: Place, B: Address>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let v = B::offset(m, op);
    let v = if w == 64 { v } else { m.d().trunc(64, w, v) };
    A::put(m, op, w, v)
}

/// XCHG. With a memory operand the store comes first: it is what can fault.
pub fn xchg<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (a, b) = (Any::<0>::get_for_update(m, op, w)?, Any::<1>::get(m, op, w)?);
    Any::<0>::put(m, op, w, b)?;
    Any::<1>::put(m, op, w, a)
}

/// CMOVcc: the source is read, and a 32-bit destination zero-extended, whether the condition holds or not.
#[inline]
pub fn cmov<M: Machine, W: Width, C: When, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let (old, new) = (A::get(m, op, w)?, B::get(m, op, w)?);
    let c = m.flags().holds(m.d(), C::of(op));
    let v = m.d().ite(c, w, new, old);
    A::put(m, op, w, v)
}

/// SETcc.
#[inline]
pub fn setcc<M: Machine, C: When, A: Place>(m: &mut M, op: &Op) -> Exec {
    let c = m.flags().holds(m.d(), C::of(op));
    let v = m.d().from_bool(8, c);
    A::put(m, op, 8, v)
}

/// `v` with its bytes in the opposite order.
pub fn reverse_bytes<M: Machine>(m: &M, w: u32, v: Bv<M>) -> Bv<M> {
    let d = m.d();
    (1..w / 8).fold(d.trunc(w, 8, v), |r, n| d.concat(8 * n, r, 8, d.extract(w, 8 * n, 8, v)))
}

/// BSWAP; of a 16-bit register the result is undefined.
pub fn bswap<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = Any::<0>::get(m, op, w)?;
    let r = if w == 16 { m.d().undef(16) } else { reverse_bytes(m, w, v) };
    Any::<0>::put(m, op, w, r)
}

/// MOVBE.
pub fn movbe<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = read(m, op, op.b, w)?;
    let r = reverse_bytes(m, w, v);
    write(m, op, op.a, w, r)
}

/// XLATB: al = [rbx + al].
pub fn xlat<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let al = register(m, Gpr::RAX, 8);
    let index = m.d().zext(8, 64, al);
    let sum = m.d().bin(Bin::Add, 64, m.reg(Gpr::RBX), index);
    let offset = if op.mem.addr32 { m.d().zext(32, 64, m.d().trunc(64, 32, sum)) } else { sum };
    let va = with_segment(m, op.mem.segment, offset);
    let v = m.load(8, va).map_err(|trap| non_canonical(op, trap))?;
    set_register(m, Gpr::RAX, 8, v);
    Ok(())
}
