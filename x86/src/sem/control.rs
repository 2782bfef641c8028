//! Jumps, calls, returns, and the instructions that only trap. Control flow is returned as data.

use super::operand::{When, register, set_register};
use super::stack;
use crate::domain::{Bin, Cmp, Domain};
use crate::flags::Flag;
use crate::machine::{Bv, Exec, Flow, FlowOf, Machine, Trap};
use crate::op::{Gpr, Op};

/// A near branch to a non-canonical address is #GP at the branch, as Intel processors have it (AMD's raise it
/// at the target).
#[inline(always)]
pub(super) fn check_canonical<M: Machine>(m: &mut M, to: Bv<M>) -> Exec {
    let low = m.d().trunc(64, 48, to);
    let extended = m.d().sext(48, 64, low);
    let canonical = m.d().cmp(Cmp::Eq, 64, extended, to);
    let not = m.d().not(canonical);
    m.trap_if(not, Trap::General)
}

/// JMP to a constant address.
#[inline]
pub fn jmp<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    Ok(Flow::Jump(m.d().lit(64, op.imm)))
}

/// JMP through a register or memory.
#[inline]
pub fn jmp_indirect<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let to = stack::target(m, op)?;
    check_canonical(m, to)?;
    Ok(Flow::Jump(to))
}

/// Jcc.
#[inline]
pub fn jcc<M: Machine, C: When>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    Ok(Flow::Branch { taken: m.flags().holds(m.d(), C::of(op)), to: op.imm })
}

/// CALL of a constant address.
#[inline]
pub fn call<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let back = m.d().lit(64, op.next);
    stack::push_value(m, 64, back)?;
    Ok(Flow::Jump(m.d().lit(64, op.imm)))
}

/// CALL through a register or memory. Where both the target and the stack are bad, the stack faults first.
#[inline]
pub fn call_indirect<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let to = stack::target(m, op)?;
    check_canonical(m, to).or_else(|trap| stack::prepare_push(m, 64).and(Err(trap)))?;
    let back = m.d().lit(64, op.next);
    stack::push_value(m, 64, back)?;
    Ok(Flow::Jump(to))
}

/// RET; the immediate is what else it releases.
#[inline]
pub fn ret<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let to = stack::top(m, 64)?;
    check_canonical(m, to)?;
    let released = m.d().lit(64, op.imm.wrapping_add(8));
    let rsp = m.d().bin(Bin::Add, 64, m.reg(Gpr::RSP), released);
    m.set_reg(Gpr::RSP, rsp);
    Ok(Flow::Jump(to))
}

/// The width of the counter of LOOP and JRCXZ.
fn counter_width(op: &Op) -> u32 {
    if op.mem.addr32 { 32 } else { 64 }
}

/// JRCXZ and JECXZ.
pub fn jrcxz<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = counter_width(op);
    let count = register(m, Gpr::RCX, w);
    Ok(Flow::Branch { taken: m.d().is_zero(w, count), to: op.imm })
}

/// LOOP (selector 0), LOOPE (1), LOOPNE (2); the selector is `op.cc`.
pub fn loop_while<M: Machine>(m: &mut M, op: &Op) -> Exec<FlowOf<M>> {
    let w = counter_width(op);
    let count = m.d().bin(Bin::Sub, w, register(m, Gpr::RCX, w), m.d().lit(w, 1));
    let left = m.d().not(m.d().is_zero(w, count));
    let zero = m.flags().get(m.d(), Flag::Zero);
    let taken = match op.cc.0 {
        0 => left,
        1 => m.d().and(left, zero),
        _ => m.d().and(left, m.d().not(zero)),
    };
    set_register(m, Gpr::RCX, w, count);
    Ok(Flow::Branch { taken, to: op.imm })
}

/// SYSCALL.
pub fn syscall<M: Machine>(_m: &mut M, _op: &Op) -> Exec<FlowOf<M>> {
    Ok(Flow::Syscall)
}

/// INT3.
pub fn breakpoint<M: Machine>(_m: &mut M, _op: &Op) -> Exec<FlowOf<M>> {
    Err(Trap::Breakpoint)
}

/// INT1.
pub fn debug_trap<M: Machine>(_m: &mut M, _op: &Op) -> Exec<FlowOf<M>> {
    Err(Trap::Debug)
}

/// UD0, UD1, UD2; instructions of ring 0 that user mode does not have at all.
pub fn undefined<M: Machine>(_m: &mut M, _op: &Op) -> Exec<FlowOf<M>> {
    Err(Trap::Undefined)
}

/// Instructions that user mode may not use.
pub fn privileged<M: Machine>(_m: &mut M, _op: &Op) -> Exec<FlowOf<M>> {
    Err(Trap::General)
}
