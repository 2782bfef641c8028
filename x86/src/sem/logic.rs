//! Bitwise logic (Intel SDM vol. 1, 7.3.5). AF is undefined after all but NOT.

use super::operand::{Any, AnyWidth, Place, Width};
use crate::domain::{Bin, Domain};
use crate::flags::{By, Flags};
use crate::machine::{Exec, Machine};
use crate::op::Op;

/// The operation that a number in a table stands for: const generics take no enums.
const fn bitwise(which: u8) -> Bin {
    match which {
        AND => Bin::And,
        OR => Bin::Or,
        _ => Bin::Xor,
    }
}

/// Selects AND.
pub const AND: u8 = 0;
/// Selects OR.
pub const OR: u8 = 1;
/// Selects XOR.
pub const XOR: u8 = 2;

/// AND, OR and XOR; TEST is an AND where `STORE` is false.
#[inline]
pub fn logic<M: Machine, W: Width, const OP: u8, const STORE: bool, A: Place, B: Place>(
    m: &mut M,
    op: &Op,
) -> Exec {
    let w = W::of(op);
    let a = if STORE { A::get_for_update(m, op, w)? } else { A::get(m, op, w)? };
    let b = B::get(m, op, w)?;
    let r = m.d().bin(bitwise(OP), w, a, b);
    if STORE {
        A::put(m, op, w, r)?;
    }
    m.set_flags(Flags { by: By::Logic, w, a, b, r });
    Ok(())
}

/// NOT: no flags.
#[inline]
pub fn not<M: Machine, W: Width, A: Place>(m: &mut M, op: &Op) -> Exec {
    let w = W::of(op);
    let a = A::get_for_update(m, op, w)?;
    let r = m.d().complement(w, a);
    A::put(m, op, w, r)
}

/// ANDN.
pub fn andn<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let (a, b) = (Any::<1>::get(m, op, w)?, Any::<2>::get(m, op, w)?);
    let r = m.d().bin(Bin::And, w, m.d().complement(w, a), b);
    Any::<0>::put(m, op, w, r)?;
    m.set_flags(Flags { by: By::Logic, w, a, b, r });
    Ok(())
}
