//! Flags as data: RFLAGS in memory and registers, and the instructions that set single flags.

use crate::domain::{Bin, Domain};
use crate::flags::{Flag, Flags};
use crate::machine::{Bv, Exec, Machine};
use crate::op::{Gpr, Loc, Op};
use crate::state::RFLAGS_FIXED;

/// RFLAGS bit 10.
const DIRECTION_BIT: u32 = 10;
/// NT, AC and ID: what else of RFLAGS a program can change, and reads back.
pub const SYSTEM: u64 = 1 << 14 | 1 << 18 | 1 << 21;

/// Writes those bits of [`Machine::system_flags`] that are in `mask`.
pub fn set_system<M: Machine>(m: &mut M, mask: u64, v: Bv<M>) {
    let d = m.d();
    let kept = d.bin(Bin::And, 64, m.system_flags(), d.lit(64, !mask));
    let new = d.bin(Bin::Or, 64, kept, d.bin(Bin::And, 64, v, d.lit(64, mask)));
    m.set_system_flags(new);
}

/// RFLAGS as PUSHF sees it.
pub fn rflags<M: Machine>(m: &M) -> Bv<M> {
    with_arithmetic(m, m.system_flags())
}

/// `others` with the arithmetic flags and DF, which are clear in it.
fn with_arithmetic<M: Machine>(m: &M, others: Bv<M>) -> Bv<M> {
    let d = m.d();
    let down = (DIRECTION_BIT, m.direction());
    let flags = m.flags();
    Flag::ALL.map(|f| (f.bit(), flags.get(d, f))).into_iter().chain([down]).fold(others, |all, (bit, set)| {
        let v = d.ite(set, 64, d.lit(64, 1 << bit), d.lit(64, 0));
        d.bin(Bin::Or, 64, all, v)
    })
}

/// Sets the arithmetic flags and DF from an RFLAGS image.
pub fn set_rflags<M: Machine>(m: &mut M, v: Bv<M>) {
    let bits = Flag::ALL.map(|f| m.d().bit(64, f.bit(), v));
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
    let down = m.d().bit(64, DIRECTION_BIT, v);
    m.set_direction(down);
}

/// LAHF: ah = SF, ZF, 0, AF, 0, PF, 1, CF.
pub fn lahf<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let image = with_arithmetic(m, m.d().lit(64, RFLAGS_FIXED));
    let low = m.d().trunc(64, 8, image);
    super::operand::write(m, op, Loc::RegHigh(Gpr::RAX), 8, low)
}

/// SAHF: OF stays.
pub fn sahf<M: Machine>(m: &mut M, _op: &Op) -> Exec {
    let ah = m.d().extract(64, 8, 8, m.reg(Gpr::RAX));
    let overflow = m.flags().get(m.d(), Flag::Overflow);
    let bits = Flag::ALL.map(|f| if f == Flag::Overflow { overflow } else { m.d().bit(8, f.bit(), ah) });
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
    Ok(())
}

/// CLC (selector 0), STC (1), CMC (2); the selector is `op.cc`.
pub fn carry<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let mut bits = m.flags().bits(m.d());
    let old = bits[Flag::Carry as usize];
    bits[Flag::Carry as usize] = match op.cc.0 {
        2 => m.d().not(old),
        n => m.d().bool(n == 1),
    };
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
    Ok(())
}

/// CLD (selector 0), STD (1).
pub fn direction<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let down = m.d().bool(op.cc.0 == 1);
    m.set_direction(down);
    Ok(())
}
