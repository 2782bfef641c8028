//! Addition and subtraction, with and without carry (Intel SDM vol. 1, 7.3.2).

use super::operand::{Place, Width};
use crate::domain::{Bin, Domain};
use crate::flags::{By, Flag, Flags};
use crate::machine::{Bool, Bv, Exec, Machine};
use crate::op::Op;

/// ADD.
#[inline]
pub fn add<M: Machine, W: Width, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let (a, b) = (A::get_for_update(m, op, w)?, B::get(m, op, w)?);
    let r = m.d().bin(Bin::Add, w, a, b);
    A::put(m, op, w, r)?;
    m.set_flags(Flags { by: By::Add, w, a, b, r });
    Ok(())
}

/// SUB, and CMP where `STORE` is false.
#[inline]
pub fn sub<M: Machine, W: Width, const STORE: bool, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let a = if STORE { A::get_for_update(m, op, w)? } else { A::get(m, op, w)? };
    let b = B::get(m, op, w)?;
    let r = m.d().bin(Bin::Sub, w, a, b);
    if STORE {
        A::put(m, op, w, r)?;
    }
    m.set_flags(Flags { by: By::Sub, w, a, b, r });
    Ok(())
}

/// CF as a vector of `w` bits.
#[inline]
fn carry_in<M: Machine>(m: &M, w: u32) -> Bv<M> {
    let carry = m.flags().get(m.d(), Flag::Carry);
    m.d().from_bool(w, carry)
}

/// The top bit of `(x and y) or ((x or y) and z)`: the carry out of a sum of x and y whose complement is z.
#[inline]
fn carry_out<M: Machine>(m: &M, w: u32, x: Bv<M>, y: Bv<M>, z: Bv<M>) -> Bool<M> {
    let d = m.d();
    let either = d.bin(Bin::And, w, d.bin(Bin::Or, w, x, y), z);
    d.sign(w, d.bin(Bin::Or, w, d.bin(Bin::And, w, x, y), either))
}

/// ADC.
#[inline]
pub fn adc<M: Machine, W: Width, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let (a, b) = (A::get_for_update(m, op, w)?, B::get(m, op, w)?);
    let sum = m.d().bin(Bin::Add, w, a, b);
    let r = m.d().bin(Bin::Add, w, sum, carry_in(m, w));
    let carry = carry_out(m, w, a, b, m.d().complement(w, r));
    A::put(m, op, w, r)?;
    m.set_flags(Flags { by: By::Inc(carry), w, a, b, r });
    Ok(())
}

/// SBB.
#[inline]
pub fn sbb<M: Machine, W: Width, A: Place, B: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let (a, b) = (A::get_for_update(m, op, w)?, B::get(m, op, w)?);
    let difference = m.d().bin(Bin::Sub, w, a, b);
    let r = m.d().bin(Bin::Sub, w, difference, carry_in(m, w));
    let borrow = carry_out(m, w, m.d().complement(w, a), b, r);
    A::put(m, op, w, r)?;
    m.set_flags(Flags { by: By::Dec(borrow), w, a, b, r });
    Ok(())
}

/// INC, and DEC where `UP` is false.
#[inline]
pub fn increment<M: Machine, W: Width, const UP: bool, A: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let a = A::get_for_update(m, op, w)?;
    let b = m.d().lit(w, 1);
    let r = m.d().bin(if UP { Bin::Add } else { Bin::Sub }, w, a, b);
    let carry = m.flags().get(m.d(), Flag::Carry);
    A::put(m, op, w, r)?;
    m.set_flags(Flags { by: if UP { By::Inc(carry) } else { By::Dec(carry) }, w, a, b, r });
    Ok(())
}

/// NEG.
#[inline]
pub fn neg<M: Machine, W: Width, A: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let b = A::get_for_update(m, op, w)?;
    let a = m.d().lit(w, 0);
    let r = m.d().bin(Bin::Sub, w, a, b);
    A::put(m, op, w, r)?;
    m.set_flags(Flags { by: By::Sub, w, a, b, r });
    Ok(())
}

/// ADCX (`flag` CF) and ADOX (`flag` OF): an addition that reads and writes one flag only.
pub fn add_with<M: Machine, const OVERFLOW: bool>(m: &mut M, op: &Op) -> Exec {
    use super::operand::{Any, AnyWidth};
    let flag = if OVERFLOW { Flag::Overflow } else { Flag::Carry };
    let w = AnyWidth::of(op);
    let (a, b) = (Any::<0>::get(m, op, w)?, Any::<1>::get(m, op, w)?);
    let mut bits = m.flags().bits(m.d());
    let sum = m.d().bin(Bin::Add, w, a, b);
    let r = m.d().bin(Bin::Add, w, sum, m.d().from_bool(w, bits[flag as usize]));
    bits[flag as usize] = carry_out(m, w, a, b, m.d().complement(w, r));
    Any::<0>::put(m, op, w, r)?;
    let flags = Flags::from_bits(m.d(), bits);
    m.set_flags(flags);
    Ok(())
}
