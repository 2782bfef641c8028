//! Opmask registers: moves, logic, shifts and tests of them, and what goes from them to vectors.
//!
//! Each operates on the low 8, 16, 32 or 64 bits, and clears the rest of its destination (Intel SDM vol. 2, KMOVW).

use super::shift::Shift;
use super::{commit, from_lanes, immediate, mask};
use crate::domain::{Bin, Domain};
use crate::flags::Flags;
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::{Loc, Op};
use crate::packed::Lane;
use crate::sem::operand;

/// The low `w` bits of the opmask register at `loc`.
#[inline(always)]
fn read<M: Machine>(m: &M, loc: Loc, w: u32) -> Bv<M> {
    let Loc::Mask(n) = loc else { return m.d().lit(w, 0) };
    m.d().trunc(64, w, m.opmask(n))
}

/// KMOVB, KMOVW, KMOVD, KMOVQ: `W` bits of an opmask register, a general register or memory.
pub fn moved<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let v = operand::read(m, op, op.b, W)?;
    if op.a == Loc::Mem {
        return operand::store(m, op, W, v);
    }
    let v = m.d().zext(W, 64, v);
    operand::write(m, op, op.a, 64, v)
}

/// KAND, KANDN, KOR, KXOR, KXNOR, KADD.
pub fn combined<M: Machine, L: Lane>(m: &mut M, op: &Op) -> Exec {
    let r = L::lane(m.d(), read(m, op.b, L::W), read(m, op.c, L::W));
    operand::write(m, op, op.a, L::W, r)
}

/// KNOT.
pub fn complement<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let r = m.d().complement(W, read(m, op.b, W));
    operand::write(m, op, op.a, W, r)
}

/// KUNPCK: `W` bits of the first source above as many of the second.
pub fn unpacked<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let r = m.d().concat(W, read(m, op.b, W), W, read(m, op.c, W));
    operand::write(m, op, op.a, 2 * W, r)
}

/// KSHIFTL, KSHIFTR.
pub fn shifted<M: Machine, S: Shift, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let amount = m.d().lit(W, u64::from(immediate(op).min(W)));
    let r = m.d().bin(S::OP, W, read(m, op.b, W), amount);
    operand::write(m, op, op.a, W, r)
}

/// KORTEST: ZF if no bit of either is set, CF if every bit of one of them is.
pub fn or_test<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let d = m.d();
    let any = d.bin(Bin::Or, W, read(m, op.a, W), read(m, op.b, W));
    let (carry, zero) = (d.is_zero(W, d.complement(W, any)), d.is_zero(W, any));
    set_carry_and_zero(m, carry, zero);
    Ok(())
}

/// KTEST: ZF if no bit of the second is set in the first, CF if all are.
pub fn and_test<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let d = m.d();
    let (a, b) = (read(m, op.a, W), read(m, op.b, W));
    let zero = d.is_zero(W, d.bin(Bin::And, W, a, b));
    let carry = d.is_zero(W, d.bin(Bin::And, W, d.complement(W, a), b));
    set_carry_and_zero(m, carry, zero);
    Ok(())
}

/// Sets CF and ZF, and clears the other flags.
fn set_carry_and_zero<M: Machine>(m: &mut M, carry: Bool<M>, zero: Bool<M>) {
    let clear = m.d().bool(false);
    let flags = Flags::from_bits(m.d(), [carry, clear, clear, zero, clear, clear]);
    m.set_flags(flags);
}

/// VPMOVM2B and its kin: lanes of `W` bits, all ones or all zeros.
pub fn spread<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let (d, bits) = (m.d(), read(m, op.b, 64));
    let r = from_lanes(d, op, W, |n| mask(d, W, d.bit(64, n, bits)));
    commit(m, op, W, r);
    Ok(())
}

/// VPBROADCASTMB2Q, VPBROADCASTMW2D: the low `FROM` bits in every lane of `TO`.
pub fn broadcast<M: Machine, const FROM: u32, const TO: u32>(m: &mut M, op: &Op) -> Exec {
    let v = m.d().zext(FROM, TO, read(m, op.b, FROM));
    let r = from_lanes(m.d(), op, TO, |_| v);
    commit(m, op, TO, r);
    Ok(())
}
