//! Shifts and rotates (Intel SDM vol. 1, 7.3.6). The amount is masked to 5 bits, or 6 for 64-bit operands; an
//! amount of zero leaves the flags alone. OF is defined for an amount of one only, AF never.
//!
//! [`Bin::Shl`] and its kin give zero for amounts of the width or more, so `a << n | a >> (w - n)` needs no
//! special case for `n` = 0.

use super::operand::{Any, AnyWidth, Place, Width, read, register};
use crate::domain::{Bin, Cmp, Domain};
use crate::flags::{By, Flag, Flags};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::{Loc, Op};

/// Selects SHL.
pub const LEFT: u8 = 0;
/// Selects SHR.
pub const RIGHT: u8 = 1;
/// Selects SAR.
pub const ARITHMETIC_RIGHT: u8 = 2;

/// The amount at `B`, masked, as a vector of `w` bits.
fn amount<M: Machine, B: Place>(m: &mut M, op: &Op, w: u32) -> Exec<Bv<M>> {
    let n = B::get(m, op, 8)?;
    let mask = if w == 64 { 63 } else { 31 };
    let n = m.d().bin(Bin::And, 8, n, m.d().lit(8, mask));
    Ok(if w == 8 { n } else { m.d().zext(8, w, n) })
}

/// Bit `n` of `a`, or false where `n` is not below `w`.
fn bit_at<M: Machine>(m: &M, w: u32, a: Bv<M>, n: Bv<M>) -> Bool<M> {
    m.d().bit(w, 0, m.d().bin(Bin::Shr, w, a, n))
}

fn is<M: Machine>(m: &M, w: u32, n: Bv<M>, value: u64) -> Bool<M> {
    m.d().cmp(Cmp::Eq, w, n, m.d().lit(w, value))
}

/// `v` where `n` is one, else undefined.
fn if_one<M: Machine>(m: &M, w: u32, n: Bv<M>, v: Bool<M>) -> Bool<M> {
    m.d().ite_bool(is(m, w, n, 1), v, m.d().undef_bool())
}

/// `w - n`.
fn rest<M: Machine>(m: &M, w: u32, n: Bv<M>) -> Bv<M> {
    m.d().bin(Bin::Sub, w, m.d().lit(w, u64::from(w)), n)
}

/// `n - 1`.
fn less_one<M: Machine>(m: &M, w: u32, n: Bv<M>) -> Bv<M> {
    m.d().bin(Bin::Sub, w, n, m.d().lit(w, 1))
}

/// Whether the two top bits of `v` differ.
fn top_two_differ<M: Machine>(m: &M, w: u32, v: Bv<M>) -> Bool<M> {
    m.d().xor(m.d().bit(w, w - 1, v), m.d().bit(w, w - 2, v))
}

/// CF where the manual leaves it open: a narrow operand shifted by its width or more.
fn defined_carry<M: Machine>(m: &M, w: u32, n: Bv<M>, carry: Bool<M>) -> Bool<M> {
    if w >= 32 {
        return carry;
    }
    let beyond = m.d().cmp(Cmp::Ult, w, m.d().lit(w, u64::from(w) - 1), n);
    m.d().ite_bool(beyond, m.d().undef_bool(), carry)
}

/// SHL, SHR and SAR.
#[inline]
pub fn shift<M: Machine, W: Width, const OP: u8, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let n = amount::<M, B>(m, op, w)?;
    let a = A::get_for_update(m, op, w)?;
    let (r, carry, overflow) = match OP {
        LEFT => {
            let r = m.d().bin(Bin::Shl, w, a, n);
            let carry = bit_at(m, w, a, rest(m, w, n));
            (r, defined_carry(m, w, n, carry), m.d().xor(carry, m.d().sign(w, r)))
        }
        RIGHT => {
            let carry = bit_at(m, w, a, less_one(m, w, n));
            (m.d().bin(Bin::Shr, w, a, n), defined_carry(m, w, n, carry), m.d().sign(w, a))
        }
        _ => {
            let before = m.d().bin(Bin::Sar, w, a, less_one(m, w, n));
            (m.d().bin(Bin::Sar, w, a, n), m.d().bit(w, 0, before), m.d().bool(false))
        }
    };
    A::put(m, op, w, r)?;
    let overflow = if_one(m, w, n, overflow);
    let some = m.d().not(is(m, w, n, 0));
    m.set_flags_if(some, Flags { by: By::Shift { carry, overflow }, w, a, b: n, r });
    Ok(())
}

/// Sets CF and OF of a rotate by `n` if `n` is not zero.
fn set_rotate_flags<M: Machine>(m: &mut M, w: u32, n: Bv<M>, carry: Bool<M>, overflow: Bool<M>) {
    let mut bits = m.flags().bits(m.d());
    bits[Flag::Carry as usize] = carry;
    bits[Flag::Overflow as usize] = if_one(m, w, n, overflow);
    let flags = Flags::from_bits(m.d(), bits);
    let some = m.d().not(is(m, w, n, 0));
    m.set_flags_if(some, flags);
}

/// ROL, and ROR where `RIGHT`.
#[inline]
pub fn rotate<M: Machine, W: Width, const TO_RIGHT: bool, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let n = amount::<M, B>(m, op, w)?;
    let a = A::get_for_update(m, op, w)?;
    let by = m.d().bin(Bin::And, w, n, m.d().lit(w, u64::from(w) - 1));
    let back = rest(m, w, by);
    let (left, right) = if TO_RIGHT { (back, by) } else { (by, back) };
    let r = m.d().bin(Bin::Or, w, m.d().bin(Bin::Shl, w, a, left), m.d().bin(Bin::Shr, w, a, right));
    let (low, high) = (m.d().bit(w, 0, r), m.d().bit(w, w - 1, r));
    let (carry, overflow) =
        if TO_RIGHT { (high, top_two_differ(m, w, r)) } else { (low, m.d().xor(low, high)) };
    A::put(m, op, w, r)?;
    set_rotate_flags(m, w, n, carry, overflow);
    Ok(())
}

/// `n mod (w + 1)` of a masked amount, for the rotates through carry.
fn modulo_with_carry<M: Machine>(m: &M, w: u32, n: Bv<M>) -> Bv<M> {
    if w >= 32 {
        return n;
    }
    let period = u64::from(w) + 1;
    (1..=31 / period).fold(n, |r, k| {
        let limit = m.d().lit(w, k * period);
        let below = m.d().cmp(Cmp::Ult, w, n, limit);
        m.d().ite(below, w, r, m.d().bin(Bin::Sub, w, n, limit))
    })
}

/// RCL, and RCR where `RIGHT`.
pub fn rotate_through_carry<M: Machine, const TO_RIGHT: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let masked = amount::<M, Any<1>>(m, op, w)?;
    let a = Any::<0>::get_for_update(m, op, w)?;
    let n = modulo_with_carry(m, w, masked);
    let old = m.flags().get(m.d(), Flag::Carry);
    let old = m.d().from_bool(w, old);
    let (before, back) = (less_one(m, w, n), rest(m, w, n));
    let wrapped = m.d().bin(Bin::Add, w, back, m.d().lit(w, 1));
    let (near, far, middle) =
        if TO_RIGHT { (Bin::Shr, Bin::Shl, back) } else { (Bin::Shl, Bin::Shr, before) };
    let parts =
        [m.d().bin(near, w, a, n), m.d().bin(far, w, a, wrapped), m.d().bin(Bin::Shl, w, old, middle)];
    let none = m.d().lit(w, 0);
    let turned = parts.into_iter().fold(none, |all, part| m.d().bin(Bin::Or, w, all, part));
    let unturned = is(m, w, n, 0);
    let r = m.d().ite(unturned, w, a, turned);
    let carry = bit_at(m, w, a, if TO_RIGHT { before } else { back });
    let overflow = if TO_RIGHT { top_two_differ(m, w, r) } else { m.d().xor(carry, m.d().sign(w, r)) };
    Any::<0>::put(m, op, w, r)?;
    set_rotate_flags(m, w, n, carry, overflow);
    Ok(())
}

/// SHLD, and SHRD where `RIGHT`. A 16-bit operand shifted by more than 16 is undefined.
pub fn double_shift<M: Machine, const TO_RIGHT: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let n = amount::<M, Any<2>>(m, op, w)?;
    let (a, b) = (Any::<0>::get_for_update(m, op, w)?, Any::<1>::get(m, op, w)?);
    let back = rest(m, w, n);
    let (near, far, out) =
        if TO_RIGHT { (Bin::Shr, Bin::Shl, less_one(m, w, n)) } else { (Bin::Shl, Bin::Shr, back) };
    let mut r = m.d().bin(Bin::Or, w, m.d().bin(near, w, a, n), m.d().bin(far, w, b, back));
    let mut carry = bit_at(m, w, a, out);
    if w == 16 {
        let beyond = m.d().cmp(Cmp::Ult, w, m.d().lit(w, 16), n);
        r = m.d().ite(beyond, w, m.d().undef(w), r);
        carry = m.d().ite_bool(beyond, m.d().undef_bool(), carry);
    }
    let sign_changed = m.d().xor(m.d().sign(w, a), m.d().sign(w, r));
    let overflow = if_one(m, w, n, sign_changed);
    Any::<0>::put(m, op, w, r)?;
    let some = m.d().not(is(m, w, n, 0));
    m.set_flags_if(some, Flags { by: By::Shift { carry, overflow }, w, a, b, r });
    Ok(())
}

/// SHLX, SHRX and SARX: the amount is in a register, and no flag changes.
pub fn shift_flagless<M: Machine, const OP: u8>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let a = Any::<1>::get(m, op, w)?;
    let count = match op.c {
        Loc::Reg(r) => register(m, r, w),
        _ => read(m, op, op.c, w)?,
    };
    let n = m.d().bin(Bin::And, w, count, m.d().lit(w, u64::from(w) - 1));
    let which = [Bin::Shl, Bin::Shr, Bin::Sar][usize::from(OP)];
    let r = m.d().bin(which, w, a, n);
    Any::<0>::put(m, op, w, r)
}

/// RORX: rotates right by an immediate; no flag changes.
pub fn rorx<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let a = Any::<1>::get(m, op, w)?;
    let n = m.d().lit(w, op.imm & (u64::from(w) - 1));
    let back = rest(m, w, n);
    let r = m.d().bin(Bin::Or, w, m.d().bin(Bin::Shr, w, a, n), m.d().bin(Bin::Shl, w, a, back));
    Any::<0>::put(m, op, w, r)
}
