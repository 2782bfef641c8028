//! The stack (Intel SDM vol. 1, 6.2): the value is read, the memory written, and rsp moved last.

use super::flag;
use super::operand::{Any, Place, effective_address, non_canonical, read, register, write};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine, Trap};
use crate::op::{Gpr, Loc, Op};

/// A non-canonical rsp is #SS.
#[cold]
fn stack_trap(trap: Trap) -> Trap {
    if trap == Trap::General { Trap::Stack } else { trap }
}

/// rsp moved by `by` bytes.
#[inline(always)]
fn moved<M: Machine>(m: &M, by: i64) -> Bv<M> {
    m.d().bin(Bin::Add, 64, m.reg(Gpr::RSP), m.d().lit(64, by.cast_unsigned()))
}

/// Stores `w` bits below rsp and moves rsp there.
#[inline(always)]
pub fn push_value<M: Machine>(m: &mut M, w: u32, v: Bv<M>) -> Exec {
    let rsp = moved(m, -i64::from(w / 8));
    m.store(w, rsp, v).map_err(stack_trap)?;
    m.set_reg(Gpr::RSP, rsp);
    Ok(())
}

/// Traps if a push of `w` bits would.
pub fn prepare_push<M: Machine>(m: &mut M, w: u32) -> Exec {
    let rsp = moved(m, -i64::from(w / 8));
    m.prepare_store(rsp, u64::from(w / 8)).map_err(stack_trap)
}

/// The `w` bits at rsp; rsp does not move.
#[inline(always)]
pub fn top<M: Machine>(m: &mut M, w: u32) -> Exec<Bv<M>> {
    let rsp = m.reg(Gpr::RSP);
    m.load(w, rsp).map_err(stack_trap)
}

/// Moves rsp up by `bytes`.
#[inline(always)]
pub fn release<M: Machine>(m: &mut M, bytes: u32) {
    let rsp = moved(m, i64::from(bytes));
    m.set_reg(Gpr::RSP, rsp);
}

/// PUSH.
pub fn push<M: Machine, A: Place>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let v = A::get(m, op, w)?;
    push_value(m, w, v)
}

/// POP. `pop rsp` keeps the value it loads; an rsp-based destination uses rsp as it is afterwards.
pub fn pop<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let v = top(m, w)?;
    if op.a != Loc::Mem {
        release(m, w / 8);
        return write(m, op, op.a, w, v);
    }
    let mut va = effective_address(m, op);
    if op.mem.base == Some(Gpr::RSP) {
        va = m.d().bin(Bin::Add, 64, va, m.d().lit(64, u64::from(w / 8)));
    }
    m.store(w, va, v).map_err(|trap| non_canonical(op, trap))?;
    release(m, w / 8);
    Ok(())
}

/// POP of a 64-bit register: the hot form.
pub fn pop_register<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = top(m, 64)?;
    release(m, 8);
    Any::<0>::put(m, op, 64, v)
}

/// PUSHF.
pub fn pushf<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let flags = flag::rflags(m);
    let v = if w == 64 { flags } else { m.d().trunc(64, w, flags) };
    push_value(m, w, v)
}

/// POPF: the arithmetic flags and DF. User mode cannot change IF or IOPL; TF, AC and ID are left alone.
pub fn popf<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let v = top(m, w)?;
    let v = if w == 64 { v } else { m.d().zext(w, 64, v) };
    release(m, w / 8);
    flag::set_rflags(m, v);
    Ok(())
}

/// ENTER with nesting level 0, which is all that compilers ever made. The far end of the new frame must be
/// writable too, though nothing is written there.
pub fn enter<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let frame = moved(m, -8);
    let size = m.d().lit(64, op.imm & 0xffff);
    let rsp = m.d().bin(Bin::Sub, 64, frame, size);
    let rbp = m.reg(Gpr::RBP);
    m.prepare_store(rsp, 1).map_err(stack_trap)?;
    m.store(64, frame, rbp).map_err(stack_trap)?;
    m.set_reg(Gpr::RBP, frame);
    m.set_reg(Gpr::RSP, rsp);
    Ok(())
}

/// LEAVE.
pub fn leave<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let frame = m.reg(Gpr::RBP);
    let v = m.load(w, frame).map_err(stack_trap)?;
    let rsp = m.d().bin(Bin::Add, 64, frame, m.d().lit(64, u64::from(w / 8)));
    m.set_reg(Gpr::RSP, rsp);
    super::operand::set_register(m, Gpr::RBP, w, v);
    Ok(())
}

/// The accumulator-sized view of an operand that call and jmp read.
pub(super) fn target<M: Machine>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    match op.a {
        Loc::Reg(r) => Ok(register(m, r, 64)),
        _ => read(m, op, op.a, 64),
    }
}
