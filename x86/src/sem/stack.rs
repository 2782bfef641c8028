//! The stack (Intel SDM vol. 1, 6.2): the value is read, the memory written, and rsp moved last.

use super::flag;
use super::operand::{Place, Reg, effective_address, non_canonical, read, register, set_register, write};
use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Exec, Machine, Trap};
use crate::op::{Gpr, Loc, Op};

/// A non-canonical rsp is #SS.
#[cold]
#[inline]
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
#[inline]
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
#[inline]
pub fn pop_register<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let v = top(m, 64)?;
    release(m, 8);
    Reg::<0>::put(m, op, 64, v)
}

/// PUSHF.
pub fn pushf<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let flags = flag::rflags(m);
    let v = if w == 64 { flags } else { m.d().trunc(64, w, flags) };
    push_value(m, w, v)
}

/// POPF: the arithmetic flags, DF, NT, AC and ID; those above bit 15 only in the 64-bit form. User mode cannot change
/// IF or IOPL; TF is left alone, as nothing here single-steps.
pub fn popf<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let v = top(m, w)?;
    let v = if w == 64 { v } else { m.d().zext(w, 64, v) };
    release(m, w / 8);
    flag::set_rflags(m, v);
    let above = if w == 16 { flag::SYSTEM & !0xffff } else { 0 };
    flag::set_system(m, flag::SYSTEM & !above, v);
    Ok(())
}

/// ENTER. Under a nesting level it copies the frame pointers of the enclosing procedures, which may overlap what
/// it pushes: so each is loaded when the one before is stored, and all are loaded once before, to see whether that
/// faults. The far end of the new frame must be writable too, though nothing is written there.
pub fn enter<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = u32::from(op.w);
    let (level, size) = (op.imm >> 16 & 31, op.imm & 0xffff);
    let below = |m: &M, r, n: u64| m.d().bin(Bin::Sub, 64, m.reg(r), m.d().lit(64, n * u64::from(w / 8)));
    let frame = below(m, Gpr::RSP, 1);
    for n in 1..level {
        let enclosing = below(m, Gpr::RBP, n);
        m.load(w, enclosing).map_err(stack_trap)?;
    }
    let pushed = below(m, Gpr::RSP, level + 1);
    m.prepare_store(pushed, (level + 1) * u64::from(w / 8)).map_err(stack_trap)?;
    let rsp = m.d().bin(Bin::Sub, 64, pushed, m.d().lit(64, size));
    m.prepare_store(rsp, 1).map_err(stack_trap)?;
    let rbp = register(m, Gpr::RBP, w);
    m.store(w, frame, rbp).map_err(stack_trap)?;
    let new_rbp = if w == 64 { frame } else { m.d().trunc(64, w, frame) };
    for n in 1..=level {
        let v = if n == level {
            new_rbp
        } else {
            let enclosing = below(m, Gpr::RBP, n);
            m.load(w, enclosing).map_err(stack_trap)?
        };
        let to = below(m, Gpr::RSP, n + 1);
        m.store(w, to, v).map_err(stack_trap)?;
    }
    set_register(m, Gpr::RBP, w, new_rbp);
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
    set_register(m, Gpr::RBP, w, v);
    Ok(())
}

/// The accumulator-sized view of an operand that call and jmp read.
pub(super) fn target<M: Machine>(m: &mut M, op: &Op) -> Exec<Bv<M>> {
    match op.a {
        Loc::Reg(r) => Ok(register(m, r, 64)),
        _ => read(m, op, op.a, 64),
    }
}
