//! Multiplication and division (Intel SDM vol. 1, 7.3.2). A product defines only CF and OF, a quotient no flag.

use super::operand::{Any, AnyWidth, Place, Width, read, register, set_register};
use crate::domain::{Bin, Cmp, Domain};
use crate::flags::{Flag, Flags};
use crate::machine::{Bool, Bv, Exec, Machine, Trap};
use crate::op::{Gpr, Op};

/// CF and OF are `overflow`; the others are undefined.
fn set_product_flags<M: Machine>(m: &mut M, overflow: Bool<M>) {
    let mut bits = Flag::ALL.map(|_| m.d().undef_bool());
    bits[Flag::Carry as usize] = overflow;
    bits[Flag::Overflow as usize] = overflow;
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
}

/// The high half of a product.
const fn high(signed: bool) -> Bin {
    if signed { Bin::MulHiS } else { Bin::MulHiU }
}

/// Whether a signed product with these halves does not fit in the low one.
fn overflows_signed<M: Machine>(m: &M, w: u32, low: Bv<M>, high: Bv<M>) -> Bool<M> {
    let d = m.d();
    let sign = d.bin(Bin::Sar, w, low, d.lit(w, u64::from(w) - 1));
    d.not(d.cmp(Cmp::Eq, w, sign, high))
}

/// Writes the double-width `hi:lo` to ax, dx:ax, edx:eax or rdx:rax.
fn set_double<M: Machine>(m: &mut M, w: u32, lo: Bv<M>, hi: Bv<M>) {
    if w == 8 {
        let ax = m.d().concat(8, hi, 8, lo);
        set_register(m, Gpr::RAX, 16, ax);
    } else {
        set_register(m, Gpr::RAX, w, lo);
        set_register(m, Gpr::RDX, w, hi);
    }
}

/// MUL, and one-operand IMUL where `SIGNED`.
pub fn multiply_accumulator<M: Machine, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (a, b) = (register(m, Gpr::RAX, w), Any::<0>::get(m, op, w)?);
    let (lo, hi) = (m.d().bin(Bin::Mul, w, a, b), m.d().bin(high(SIGNED), w, a, b));
    let overflow = if SIGNED { overflows_signed(m, w, lo, hi) } else { m.d().not(m.d().is_zero(w, hi)) };
    set_double(m, w, lo, hi);
    set_product_flags(m, overflow);
    Ok(())
}

/// IMUL of two operands, or of three: `R` is the destination, `A` and `B` are the factors.
#[inline]
pub fn multiply<M: Machine, W: Width, R: Place, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let (a, b) = (A::get(m, op, w)?, B::get(m, op, w)?);
    let (lo, hi) = (m.d().bin(Bin::Mul, w, a, b), m.d().bin(Bin::MulHiS, w, a, b));
    let overflow = overflows_signed(m, w, lo, hi);
    R::put(m, op, w, lo)?;
    set_product_flags(m, overflow);
    Ok(())
}

/// MULX: no flags; if both destinations are the same register it holds the high half.
pub fn mulx<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (a, b) = (register(m, Gpr::RDX, w), read(m, op, op.c, w)?);
    let (lo, hi) = (m.d().bin(Bin::Mul, w, a, b), m.d().bin(Bin::MulHiU, w, a, b));
    Any::<1>::put(m, op, w, lo)?;
    Any::<0>::put(m, op, w, hi)
}

/// DIV, and IDIV where `SIGNED`.
pub fn divide<M: Machine, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let divisor = Any::<0>::get(m, op, w)?;
    let lo = register(m, Gpr::RAX, w);
    let hi = match w {
        8 => m.d().extract(64, 8, 8, m.reg(Gpr::RAX)),
        _ => register(m, Gpr::RDX, w),
    };
    let division = m.d().divide(SIGNED, w, hi, lo, divisor);
    m.trap_if(division.fault, Trap::Divide)?;
    set_double(m, w, division.quotient, division.remainder);
    let bits = Flag::ALL.map(|_| m.d().undef_bool());
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
    Ok(())
}
