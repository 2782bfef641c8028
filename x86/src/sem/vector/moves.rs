//! Moves between vector registers, general registers and memory.

use super::{
    aligned_address, any_active, block_from_lanes, commit, commit_lanes, commit_low, commit_store,
    empty_blocks, first, from_block, is_active, lane, length, load_bits, load_lanes, low_block, low_of,
    number, packed_register, register, second_place, set_blocks, set_register, side_by_side,
};
use crate::domain::Domain;
use crate::machine::{Bv, Exec, Machine, Trap};
use crate::op::{Gpr, Loc, Op};
use crate::packed::Packed;
use crate::sem::operand;

/// MOVDQA, MOVAPS, MOVAPD and non-temporal moves (`ALIGNED`: memory is aligned to the vector length, in every encoding),
/// MOVDQU, MOVUPS, MOVUPD, LDDQU, of a vector of `N` times 128 bits: from memory.
pub fn load<M: Machine, const N: usize, const ALIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let va = address::<M, N, ALIGNED>(m, op)?;
    let mut blocks = empty_blocks::<M, N>(m);
    m.load_packed(va, &mut blocks).map_err(|trap| operand::non_canonical(op, trap))?;
    set_blocks(m, op, &blocks);
    Ok(())
}

/// To memory.
pub fn store<M: Machine, const N: usize, const ALIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let va = address::<M, N, ALIGNED>(m, op)?;
    let mut blocks = empty_blocks::<M, N>(m);
    packed_register(m, op.b, &mut blocks);
    m.store_packed(va, &blocks).map_err(|trap| operand::non_canonical(op, trap))
}

/// Between registers.
pub fn copy<M: Machine, const N: usize>(m: &mut M, op: &Op) -> Exec {
    let mut blocks = empty_blocks::<M, N>(m);
    packed_register(m, op.b, &mut blocks);
    set_blocks(m, op, &blocks);
    Ok(())
}

#[inline(always)]
fn address<M: Machine, const N: usize, const ALIGNED: bool>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    let bytes = match N {
        1 => 16,
        2 => 32,
        _ => 64,
    };
    if ALIGNED { aligned_address(m, op, bytes) } else { Ok(operand::effective_address(m, op)) }
}

/// The same under a mask, lanes of `W` bits.
pub fn masked<M: Machine, const W: u32, const ALIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let address = |m: &mut M| match ALIGNED {
        true => aligned_for(m, op, length(op) / W),
        false => Ok(operand::effective_address(m, op)),
    };
    if op.a == Loc::Mem {
        let (va, v) = (address(m)?, register(m, op, op.b));
        return commit_store(m, op, va, W, length(op) / W, &v);
    }
    let v = match op.b {
        Loc::Mem => {
            let va = address(m)?;
            load_lanes(m, op, va, length(op), W)?
        }
        loc => register(m, op, loc),
    };
    commit(m, op, W, v);
    Ok(())
}

/// The address of the memory operand, #GP unless it is aligned to the vector length, or the mask names none of the
/// `count` lanes.
fn aligned_for<M: Machine>(m: &mut M, op: &Op, count: u32) -> Exec<Bv<M>> {
    let va = operand::effective_address(m, op);
    let misaligned = {
        let (d, bits) = (m.d(), (length(op) / 8).trailing_zeros());
        d.and(any_active(m, op, count), d.not(d.is_zero(bits, d.trunc(64, bits, va))))
    };
    m.trap_if(misaligned, Trap::General)?;
    Ok(va)
}

/// MOVD, MOVQ, and the loads and stores of MOVSS and MOVSD: `W` bits; the rest of a vector register becomes zero.
pub fn low<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = low_of(m, op, op.b, W)?;
    match op.a {
        Loc::Vector(_) => {
            let r = from_block(m.d(), [m.d().zext(W, 64, v), m.d().lit(64, 0)]);
            commit_lanes(m, op, W, 1, r);
            Ok(())
        }
        Loc::Mem => {
            let (active, va) = (is_active(m, op, 0), operand::effective_address(m, op));
            m.store_if(active, W, va, v).map_err(|trap| operand::non_canonical(op, trap))
        }
        _ => operand::write(m, op, op.a, W, v),
    }
}

/// MOVSS and MOVSD between registers: the rest is that of the first source.
pub fn merge_low<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, second_place(op), W)?;
    commit_low(m, op, W, v);
    Ok(())
}

/// MOVLPS, MOVLPD, MOVHPS, MOVHPD, MOVLHPS, MOVHLPS: half `FROM` of a register or 64 bits of memory to half `TO` of a
/// register, whose other half is that of the first source, or to memory.
pub fn half<M: Machine, const TO: usize, const FROM: u8>(m: &mut M, op: &Op) -> Exec {
    if op.a == Loc::Mem {
        let v = m.vector(number(op.b), FROM);
        return operand::store(m, op, 64, v);
    }
    let v = match second_place(op) {
        Loc::Vector(n) => m.vector(n, FROM),
        _ => operand::load(m, op, 64)?,
    };
    let mut block = low_block::<M::D>(&first(m, op));
    block[TO] = v;
    let r = from_block(m.d(), block);
    commit(m, op, 64, r);
    Ok(())
}

/// MOVNTI.
pub fn non_temporal<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, op.b, W)?;
    operand::store(m, op, W, v)
}

/// The sign bits of the lanes of `w` bits of a part, as a number of `64 / w` bits.
#[inline(always)]
pub(super) fn signs<D: Domain>(d: &D, w: u32, part: D::Bv) -> D::Bv {
    let sign = |n| d.extract(64, (n + 1) * w - 1, 1, part);
    (1..64 / w).fold(sign(0), |bits, n| d.concat(1, sign(n), n, bits))
}

/// PMOVMSKB, MOVMSKPS, MOVMSKPD: the sign bits of the lanes of `W` bits.
pub fn sign_mask<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let (d, from) = (m.d(), number(op.b));
    let bits = side_by_side(d, op.vector.parts / 2, 128 / W, |n| m.packed(from, n).signs(d, W));
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
    let old = load_bits(m, op, va, 128)?;
    let (v, mask) = (register(m, op, op.b), register(m, op, op.c));
    let d = m.d();
    let merged = block_from_lanes(d, 8, |n| {
        let chosen = d.sign(8, lane(d, 8, n, &mask));
        d.ite(chosen, 8, lane(d, 8, n, &v), lane(d, 8, n, &old))
    });
    m.store_parts(va, &merged).map_err(|trap| operand::non_canonical(op, trap))
}

/// VZEROUPPER, or VZEROALL if `ALL`: the parts above 128 bits, or all, of the first 16 registers.
pub fn zero<M: Machine, const ALL: bool>(m: &mut M, op: &Op) -> Exec {
    for n in 0..16 {
        let mut v = from_block(m.d(), [m.d().lit(64, 0); 2]);
        if !ALL {
            v[..2].copy_from_slice(&[m.vector(n, 0), m.vector(n, 1)]);
        }
        set_register(m, op, Loc::Vector(n), v);
    }
    Ok(())
}
