//! Read-modify-write of shared words: XADD and the compare-and-exchange family. With one virtual CPU a LOCK
//! prefix changes nothing.

use super::operand::{Any, AnyWidth, Place, Width, effective_address, non_canonical, register, set_register};
use crate::domain::{Bin, Cmp, Domain};
use crate::flags::{By, Flag, Flags};
use crate::machine::{Bool, Bv, Exec, Machine, Trap};
use crate::op::{Gpr, Loc, Op};

/// XADD. The memory, which can fault, is written first; of two equal registers the sum remains.
pub fn xadd<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (a, b) = (Any::<0>::get_for_update(m, op, w)?, Any::<1>::get(m, op, w)?);
    let r = m.d().bin(Bin::Add, w, a, b);
    if op.a == Loc::Mem {
        Any::<0>::put(m, op, w, r)?;
        Any::<1>::put(m, op, w, a)?;
    } else {
        Any::<1>::put(m, op, w, a)?;
        Any::<0>::put(m, op, w, r)?;
    }
    m.set_flags(Flags { by: By::Add, w, a, b, r });
    Ok(())
}

/// CMPXCHG. A destination in memory is written in both cases. Of two registers only one is written: the
/// destination if they are equal, else the accumulator; the other keeps all 64 bits.
pub fn cmpxchg<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (b, new) = (Any::<0>::get_for_update(m, op, w)?, Any::<1>::get(m, op, w)?);
    let a = register(m, Gpr::RAX, w);
    let equal = m.d().cmp(Cmp::Eq, w, a, b);
    let r = m.d().bin(Bin::Sub, w, a, b);
    if let Loc::Reg(destination) = op.a {
        let differ = m.d().not(equal);
        set_register_if_not(m, differ, destination, w, new);
    } else {
        let written = m.d().ite(equal, w, new, b);
        Any::<0>::put(m, op, w, written)?;
    }
    set_register_if_not(m, equal, Gpr::RAX, w, b);
    m.set_flags(Flags { by: By::Sub, w, a, b, r });
    Ok(())
}

/// Writes a register unless `c`: then all 64 bits stay.
fn set_register_if_not<M: Machine>(m: &mut M, c: Bool<M>, r: Gpr, w: u32, v: Bv<M>) {
    let old = m.reg(r);
    set_register(m, r, w, v);
    let kept = m.d().ite(c, 64, old, m.reg(r));
    m.set_reg(r, kept);
}

fn set_zero_flag<M: Machine>(m: &mut M, zero: Bool<M>) {
    let mut bits = m.flags().bits(m.d());
    bits[Flag::Zero as usize] = zero;
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
}

/// CMPXCHG8B.
pub fn cmpxchg8b<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let va = effective_address(m, op);
    let old = m.load_for_update(64, va).map_err(|trap| non_canonical(op, trap))?;
    let pair = |m: &M, high, low| m.d().concat(32, register(m, high, 32), 32, register(m, low, 32));
    let equal = m.d().cmp(Cmp::Eq, 64, pair(m, Gpr::RDX, Gpr::RAX), old);
    let written = m.d().ite(equal, 64, pair(m, Gpr::RCX, Gpr::RBX), old);
    m.store(64, va, written).map_err(|trap| non_canonical(op, trap))?;
    for (r, low) in [(Gpr::RAX, 0), (Gpr::RDX, 32)] {
        let half = m.d().extract(64, low, 32, old);
        set_register_if_not(m, equal, r, 32, half);
    }
    set_zero_flag(m, equal);
    Ok(())
}

/// CMPXCHG16B: the operand must be aligned, else #GP.
pub fn cmpxchg16b<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let va = effective_address(m, op);
    let misaligned = m.d().not(m.d().is_zero(4, m.d().trunc(64, 4, va)));
    m.trap_if(misaligned, Trap::General)?;
    let low = m.load_for_update(64, va).map_err(|trap| non_canonical(op, trap))?;
    let above = m.d().bin(Bin::Add, 64, va, m.d().lit(64, 8));
    let high = m.load_for_update(64, above).map_err(|trap| non_canonical(op, trap))?;
    let equal = m
        .d()
        .and(m.d().cmp(Cmp::Eq, 64, m.reg(Gpr::RAX), low), m.d().cmp(Cmp::Eq, 64, m.reg(Gpr::RDX), high));
    let new_low = m.d().ite(equal, 64, m.reg(Gpr::RBX), low);
    let new_high = m.d().ite(equal, 64, m.reg(Gpr::RCX), high);
    m.store_parts(va, &[new_low, new_high]).map_err(|trap| non_canonical(op, trap))?;
    set_register_if_not(m, equal, Gpr::RAX, 64, low);
    set_register_if_not(m, equal, Gpr::RDX, 64, high);
    set_zero_flag(m, equal);
    Ok(())
}
