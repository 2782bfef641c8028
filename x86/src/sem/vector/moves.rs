//! Moves between vector registers, general registers and memory.

use super::{
    Xmm, aligned_address, from_lanes, lane, load128, number, register, set_register, source, source_unaligned,
};
use crate::domain::Domain;
use crate::machine::{Exec, Machine};
use crate::op::{Gpr, Loc, Op};
use crate::sem::operand;

fn store128<M: Machine>(m: &mut M, op: &Op, aligned: bool, v: Xmm<M>) -> Exec {
    let va = if aligned { aligned_address(m, op)? } else { operand::effective_address(m, op) };
    m.store128(va, v[0], v[1]).map_err(|trap| operand::non_canonical(op, trap))
}

/// MOVDQA, MOVAPS, MOVAPD, MOVNTDQ, MOVNTPS, MOVNTPD, MOVNTDQA: 128 bits, memory aligned.
pub fn aligned<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = source(m, op, op.b)?;
    if op.a == Loc::Mem {
        return store128(m, op, true, v);
    }
    set_register(m, op.a, v);
    Ok(())
}

/// MOVDQU, MOVUPS, MOVUPD, LDDQU: 128 bits, memory anywhere.
pub fn unaligned<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = source_unaligned(m, op, op.b)?;
    if op.a == Loc::Mem {
        return store128(m, op, false, v);
    }
    set_register(m, op.a, v);
    Ok(())
}

/// MOVD, MOVQ, and the loads of MOVSS and MOVSD: `W` bits; the rest of a vector register becomes zero.
pub fn low<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, op.b, W)?;
    if !matches!(op.a, Loc::Vector(_)) {
        return operand::write(m, op, op.a, W, v);
    }
    let r = [m.d().zext(W, 64, v), m.d().lit(64, 0)];
    set_register(m, op.a, r);
    Ok(())
}

/// MOVSS and MOVSD between registers: the rest of the destination stays.
pub fn merge_low<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let (a, b) = (number(op.a), m.vector(number(op.b), 0));
    let d = m.d();
    let low =
        if W == 64 { b } else { d.concat(32, d.extract(64, 32, 32, m.vector(a, 0)), 32, d.trunc(64, 32, b)) };
    m.set_vector(a, 0, low);
    Ok(())
}

/// MOVLPS, MOVLPD, MOVHPS, MOVHPD, MOVLHPS, MOVHLPS, and the store of MOVQ: half `FROM` of a register or 64
/// bits of memory to half `TO` of a register or to memory.
pub fn half<M: Machine, const TO: u8, const FROM: u8>(m: &mut M, op: &Op) -> Exec {
    let v = match op.b {
        Loc::Vector(n) => m.vector(n, FROM),
        _ => operand::load(m, op, 64)?,
    };
    match op.a {
        Loc::Vector(n) => m.set_vector(n, TO, v),
        _ => operand::store(m, op, 64, v)?,
    }
    Ok(())
}

/// MOVNTI.
pub fn non_temporal<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, op.b, W)?;
    operand::store(m, op, W, v)
}

/// PMOVMSKB, MOVMSKPS, MOVMSKPD: the sign bits of the lanes of `W` bits.
pub fn sign_mask<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let b = register(m, op.b);
    let d = m.d();
    let bits = (1..128 / W).fold(d.extract(W, W - 1, 1, lane(d, W, 0, b)), |bits, n| {
        d.concat(1, d.extract(W, W - 1, 1, lane(d, W, n, b)), n, bits)
    });
    let bits = d.zext(128 / W, 64, bits);
    operand::write(m, op, op.a, 64, bits)
}

/// MASKMOVDQU: the bytes of the destination register whose byte in the source has its sign set go to memory at
/// rdi. The memory is read and written whole, so an unmasked byte on a forbidden page faults too (which the
/// manual allows: SDM vol. 2, MASKMOVDQU).
pub fn masked_store<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let bits = if op.mem.addr32 { 32 } else { 64 };
    let offset = m.d().zext(bits, 64, operand::register(m, Gpr::RDI, bits));
    let va = operand::with_segment(m, op.mem.segment, offset);
    m.prepare_store(va, 16).map_err(|trap| operand::non_canonical(op, trap))?;
    let old = load128(m, op, va)?;
    let (v, mask) = (register(m, op.b), register(m, op.c));
    let d = m.d();
    let merged = from_lanes(d, 8, |n| {
        let chosen = d.sign(8, lane(d, 8, n, mask));
        d.ite(chosen, 8, lane(d, 8, n, v), lane(d, 8, n, old))
    });
    m.store128(va, merged[0], merged[1]).map_err(|trap| operand::non_canonical(op, trap))
}
