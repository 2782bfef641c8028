//! Pushes: FLD, FILD and the constants.

use super::{Effect, Number, STACK_UNDERFLOW, check_pending, choose, indefinite, is_empty, number, place};
use crate::domain::{Bin, Cmp, Domain, Un};
use crate::machine::{Bool, Bv, Control, Exec, Machine};
use crate::op::Op;
use crate::opaque::Opaque;
use crate::sem::operand;
use crate::sem::vector::float::Float;

/// FLD of a single or a double.
pub fn float<M: Machine, F: Float>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let v = operand::load(m, op, F::W)?;
    let (v, found) = from_float::<M, F>(m.d(), v, true);
    Effect::new(m, found).loading().push(m, v).commit(m);
    Ok(())
}

/// Widens a float: the number and the status.
pub(super) fn from_float<M: Machine, F: Float>(d: &M::D, v: Bv<M>, quiet: bool) -> (Number<M>, Bv<M>) {
    let [significand, sign_exponent, found] =
        d.opaque(Opaque::X87FromFloat { format: F::FORMAT, quiet }, &[v]);
    ((significand, sign_exponent), found)
}

/// The address of the sign and exponent of an 80-bit number at the memory operand.
pub(super) fn upper_address<M: Machine>(m: &M, op: &Op) -> Bv<M> {
    m.d().bin(Bin::Add, 64, operand::effective_address(m, op), m.d().lit(64, 8))
}

/// FLD of an 80-bit number, which raises nothing.
pub fn extended<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let significand = operand::load(m, op, 64)?;
    let above = upper_address(m, op);
    let sign_exponent = m.load(16, above).map_err(|trap| operand::non_canonical(op, trap))?;
    let nothing = m.d().lit(16, 0);
    Effect::new(m, nothing).push(m, (significand, sign_exponent)).commit(m);
    Ok(())
}

/// FLD ST(i).
pub fn register<M: Machine>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let i = place(op.a);
    let empty = is_empty(m, i);
    let d = m.d();
    let v = choose(d, empty, indefinite(d), number(m, i));
    let found = d.ite(empty, 16, d.lit(16, STACK_UNDERFLOW), d.lit(16, 0));
    Effect::new(m, found).push(m, v).commit(m);
    Ok(())
}

/// A signed integer of `w` bits as a number, which is exact.
pub(super) fn from_integer<D: Domain>(d: &D, w: u32, v: D::Bv) -> (D::Bv, D::Bv) {
    /// The biased exponent of a number whose integer bit is bit 63 of an integer.
    const EXPONENT_OF_BIT_63: u64 = 16383 + 63;
    let v = d.sext(w, 64, v);
    let negative = d.sign(64, v);
    let magnitude = d.ite(negative, 64, d.negate(64, v), v);
    let zeros = d.un(Un::LeadingZeros, 64, magnitude);
    let exponent = d.bin(Bin::Sub, 16, d.lit(16, EXPONENT_OF_BIT_63), d.trunc(64, 16, zeros));
    let signed = d.bin(Bin::Or, 16, exponent, d.ite(negative, 16, d.lit(16, 0x8000), d.lit(16, 0)));
    let sign_exponent = d.ite(d.is_zero(64, v), 16, d.lit(16, 0), signed);
    (d.bin(Bin::Shl, 64, magnitude, zeros), sign_exponent)
}

/// FILD.
pub fn integer<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    check_pending(m)?;
    let v = operand::load(m, op, W)?;
    let v = from_integer(m.d(), W, v);
    let nothing = m.d().lit(16, 0);
    Effect::new(m, nothing).push(m, v).commit(m);
    Ok(())
}

/// A constant of the processor, chosen by the table.
pub trait Constant {
    /// Sign and exponent.
    const SIGN_EXPONENT: u64;
    /// The significand, rounded to nearest.
    const NEAREST: u64;
    /// The significand, rounded down and toward zero.
    const DOWN: u64 = Self::NEAREST;
    /// The significand, rounded up.
    const UP: u64 = Self::NEAREST;
}

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident = $sign_exponent:literal, $down:literal, $nearest:literal, $up:literal;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl Constant for $name {
            const SIGN_EXPONENT: u64 = $sign_exponent;
            const NEAREST: u64 = $nearest;
            const DOWN: u64 = $down;
            const UP: u64 = $up;
        }
    )*};
}

constants! {
    /// FLD1.
    One = 0x3fff, 0x8000_0000_0000_0000, 0x8000_0000_0000_0000, 0x8000_0000_0000_0000;
    /// FLDZ.
    Zero = 0, 0, 0, 0;
    /// FLDPI.
    Pi = 0x4000, 0xc90f_daa2_2168_c234, 0xc90f_daa2_2168_c235, 0xc90f_daa2_2168_c235;
    /// FLDL2T: the binary logarithm of 10.
    Log2Of10 = 0x4000, 0xd49a_784b_cd1b_8afe, 0xd49a_784b_cd1b_8afe, 0xd49a_784b_cd1b_8aff;
    /// FLDL2E: the binary logarithm of e.
    Log2OfE = 0x3fff, 0xb8aa_3b29_5c17_f0bb, 0xb8aa_3b29_5c17_f0bc, 0xb8aa_3b29_5c17_f0bc;
    /// FLDLG2: the decimal logarithm of 2.
    Log10Of2 = 0x3ffd, 0x9a20_9a84_fbcf_f798, 0x9a20_9a84_fbcf_f799, 0x9a20_9a84_fbcf_f799;
    /// FLDLN2: the natural logarithm of 2.
    LnOf2 = 0x3ffe, 0xb172_17f7_d1cf_79ab, 0xb172_17f7_d1cf_79ac, 0xb172_17f7_d1cf_79ac;
}

/// FLD1, FLDZ, FLDPI and the logarithms, rounded as the control word says.
pub fn constant<M: Machine, C: Constant>(m: &mut M, _op: &Op) -> Exec {
    check_pending(m)?;
    let d = m.d();
    let rounding = d.extract(16, 10, 2, m.control(Control::X87Control));
    let is = |rc| -> Bool<M> { d.cmp(Cmp::Eq, 2, rounding, d.lit(2, rc)) };
    let low = d.ite(d.or(is(1), is(3)), 64, d.lit(64, C::DOWN), d.lit(64, C::NEAREST));
    let significand = d.ite(is(2), 64, d.lit(64, C::UP), low);
    let (v, nothing) = ((significand, d.lit(16, C::SIGN_EXPONENT)), d.lit(16, 0));
    Effect::new(m, nothing).push(m, v).commit(m);
    Ok(())
}
