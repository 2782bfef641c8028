//! Single bits, bit scans and counts (Intel SDM vol. 1, 7.3.7), and BMI1.

use super::operand::{
    Any, AnyWidth, Place, Width, cut_to_address_size, effective_address, effective_offset, non_canonical,
    read, with_segment, write,
};
use crate::domain::{Bin, Domain, Un};
use crate::flags::{Flag, Flags};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::{Loc, Op};

/// Selects BT.
pub const TEST: u8 = 0;
/// Selects BTS.
pub const SET: u8 = 1;
/// Selects BTR.
pub const RESET: u8 = 2;
/// Selects BTC.
pub const COMPLEMENT: u8 = 3;

/// Sets the flags that are listed; the others are undefined.
fn set_some_flags<M: Machine>(m: &mut M, known: &[(Flag, Bool<M>)]) {
    let mut bits = Flag::ALL.map(|_| m.d().undef_bool());
    for &(flag, set) in known {
        bits[flag as usize] = set;
    }
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
}

/// The address of the word that holds bit `offset` (signed) of the bit string at the memory operand.
fn word_address<M: Machine>(m: &M, op: &Op, w: u32, offset: Bv<M>) -> Bv<M> {
    let d = m.d();
    let offset = d.sext(w, 64, offset);
    let words = d.bin(Bin::Sar, 64, offset, d.lit(64, u64::from(w.trailing_zeros())));
    let bytes = d.bin(Bin::Mul, 64, words, d.lit(64, u64::from(w / 8)));
    let offset = d.bin(Bin::Add, 64, effective_offset(m, op), bytes);
    with_segment(m, op.mem.segment, cut_to_address_size(m, op, offset))
}

/// BT, BTS, BTR and BTC. With a memory operand and a register offset the bit may be anywhere in memory; an
/// immediate offset stays inside the operand.
pub fn bit_test<M: Machine, const OP: u8>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let offset = read(m, op, op.b, w)?;
    let far = op.a == Loc::Mem && op.b != Loc::Imm;
    let va = if far { word_address(m, op, w, offset) } else { effective_address(m, op) };
    let a = match op.a {
        Loc::Mem if OP != TEST => m.load_for_update(w, va).map_err(|trap| non_canonical(op, trap))?,
        Loc::Mem => m.load(w, va).map_err(|trap| non_canonical(op, trap))?,
        _ => read(m, op, op.a, w)?,
    };
    let n = m.d().bin(Bin::And, w, offset, m.d().lit(w, u64::from(w) - 1));
    let carry = m.d().bit(w, 0, m.d().bin(Bin::Shr, w, a, n));
    if OP != TEST {
        let bit = m.d().bin(Bin::Shl, w, m.d().lit(w, 1), n);
        let r = match OP {
            SET => m.d().bin(Bin::Or, w, a, bit),
            RESET => m.d().bin(Bin::And, w, a, m.d().complement(w, bit)),
            _ => m.d().bin(Bin::Xor, w, a, bit),
        };
        match op.a {
            Loc::Mem => m.store(w, va, r).map_err(|trap| non_canonical(op, trap))?,
            _ => write(m, op, op.a, w, r)?,
        }
    }
    let zero = m.flags().get(m.d(), Flag::Zero);
    set_some_flags(m, &[(Flag::Carry, carry), (Flag::Zero, zero)]);
    Ok(())
}

/// BSF, and BSR where `REVERSE`. The manual leaves the destination undefined when the source is zero; every
/// processor keeps all of it, and programs rely on that.
pub fn scan<M: Machine, const REVERSE: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = Any::<1>::get(m, op, w)?;
    let r = if REVERSE {
        let zeros = m.d().un(Un::LeadingZeros, w, v);
        m.d().bin(Bin::Sub, w, m.d().lit(w, u64::from(w) - 1), zeros)
    } else {
        m.d().un(Un::TrailingZeros, w, v)
    };
    let zero = m.d().is_zero(w, v);
    if let (Loc::Reg(destination), 32) = (op.a, w) {
        let whole = m.d().ite(zero, 64, m.reg(destination), m.d().zext(32, 64, r));
        m.set_reg(destination, whole);
    } else {
        let old = Any::<0>::get(m, op, w)?;
        let kept = m.d().ite(zero, w, old, r);
        Any::<0>::put(m, op, w, kept)?;
    }
    set_some_flags(m, &[(Flag::Zero, zero)]);
    Ok(())
}

/// TZCNT, and LZCNT where `LEADING`.
pub fn count_zeros<M: Machine, const LEADING: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = Any::<1>::get(m, op, w)?;
    let r = m.d().un(if LEADING { Un::LeadingZeros } else { Un::TrailingZeros }, w, v);
    let (carry, zero) = (m.d().is_zero(w, v), m.d().is_zero(w, r));
    Any::<0>::put(m, op, w, r)?;
    set_some_flags(m, &[(Flag::Carry, carry), (Flag::Zero, zero)]);
    Ok(())
}

/// POPCNT: ZF tells whether the source is zero, the other flags are clear.
pub fn popcnt<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = Any::<1>::get(m, op, w)?;
    let r = m.d().un(Un::Popcount, w, v);
    let zero = m.d().is_zero(w, v);
    Any::<0>::put(m, op, w, r)?;
    let mut bits = Flag::ALL.map(|_| m.d().bool(false));
    bits[Flag::Zero as usize] = zero;
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
    Ok(())
}

/// Selects BLSR: clears the lowest set bit.
pub const BLSR: u8 = 0;
/// Selects BLSI: isolates the lowest set bit.
pub const BLSI: u8 = 1;
/// Selects BLSMSK: a mask up to the lowest set bit.
pub const BLSMSK: u8 = 2;

/// BLSR, BLSI and BLSMSK. AF and PF are undefined.
pub fn lowest_bit<M: Machine, const OP: u8>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = Any::<1>::get(m, op, w)?;
    let below = m.d().bin(Bin::Sub, w, v, m.d().lit(w, 1));
    let r = match OP {
        BLSR => m.d().bin(Bin::And, w, v, below),
        BLSI => m.d().bin(Bin::And, w, v, m.d().negate(w, v)),
        _ => m.d().bin(Bin::Xor, w, v, below),
    };
    let zero = m.d().is_zero(w, v);
    let carry = if OP == BLSI { m.d().not(zero) } else { zero };
    put_with_carry(m, op, w, r, carry)
}

/// Puts `r`, and sets the flags by it; CF is `carry`, and OF is clear. AF and PF are undefined.
fn put_with_carry<M: Machine>(m: &mut M, op: &Op, w: u32, r: Bv<M>, carry: Bool<M>) -> Exec {
    let known = [
        (Flag::Carry, carry),
        (Flag::Overflow, m.d().bool(false)),
        (Flag::Sign, m.d().sign(w, r)),
        (Flag::Zero, m.d().is_zero(w, r)),
    ];
    Any::<0>::put(m, op, w, r)?;
    set_some_flags(m, &known);
    Ok(())
}

/// BEXTR: `length` bits of the source from `start`, as the third operand says.
pub fn bextr<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (v, control) = (Any::<1>::get(m, op, w)?, Any::<2>::get(m, op, w)?);
    let start = m.d().zext(8, w, m.d().extract(w, 0, 8, control));
    let length = m.d().zext(8, w, m.d().extract(w, 8, 8, control));
    let r = low_bits(m, w, m.d().bin(Bin::Shr, w, v, start), length);
    let zero = m.d().is_zero(w, r);
    Any::<0>::put(m, op, w, r)?;
    let clear = m.d().bool(false);
    set_some_flags(m, &[(Flag::Zero, zero), (Flag::Carry, clear), (Flag::Overflow, clear)]);
    Ok(())
}

/// The low `n` bits of `v`: all of it where `n` is the width or more.
fn low_bits<M: Machine>(m: &M, w: u32, v: Bv<M>, n: Bv<M>) -> Bv<M> {
    let d = m.d();
    let above = d.bin(Bin::Shl, w, d.lit(w, u64::MAX), n);
    d.bin(Bin::And, w, v, d.complement(w, above))
}

/// BZHI: clears the bits from the index in the low byte of the third operand. CF: the index is too large.
pub fn bzhi<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (v, index) = (Any::<1>::get(m, op, w)?, Any::<2>::get(m, op, w)?);
    let n = m.d().zext(8, w, m.d().extract(w, 0, 8, index));
    let r = low_bits(m, w, v, n);
    let carry = m.d().cmp(crate::domain::Cmp::Ult, w, m.d().lit(w, u64::from(w) - 1), n);
    put_with_carry(m, op, w, r, carry)
}

/// PDEP: scatters the low bits of the source to the set bits of the mask.
pub fn pdep<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (v, mask) = (Any::<1>::get(m, op, w)?, Any::<2>::get(m, op, w)?);
    let (mut left, mut r) = (v, m.d().lit(w, 0));
    for n in 0..w {
        let d = m.d();
        let wanted = d.bit(w, n, mask);
        let bit = d.ite(d.bit(w, 0, left), w, d.lit(w, 1 << n), d.lit(w, 0));
        r = d.bin(Bin::Or, w, r, d.ite(wanted, w, bit, d.lit(w, 0)));
        left = d.ite(wanted, w, d.bin(Bin::Shr, w, left, d.lit(w, 1)), left);
    }
    Any::<0>::put(m, op, w, r)
}

/// PEXT: gathers the bits of the source at the set bits of the mask.
pub fn pext<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (v, mask) = (Any::<1>::get(m, op, w)?, Any::<2>::get(m, op, w)?);
    let mut r = m.d().lit(w, 0);
    for n in (0..w).rev() {
        let d = m.d();
        let bit = d.from_bool(w, d.bit(w, n, v));
        let longer = d.bin(Bin::Or, w, d.bin(Bin::Shl, w, r, d.lit(w, 1)), bit);
        r = d.ite(d.bit(w, n, mask), w, longer, r);
    }
    Any::<0>::put(m, op, w, r)
}
