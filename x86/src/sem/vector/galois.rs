//! PCLMULQDQ, and GFNI: products without carries, and bytes as elements of a field. Opaque but for what is linear and
//! cheap.

use super::{commit, first, from_parts, immediate, in_blocks, second, second_whole};
use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;
use crate::opaque::{Field, Opaque};

/// PCLMULQDQ: bit 0 of the immediate chooses a half of the first source, bit 4 one of the second.
pub fn carryless_product<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = second_whole(m, op, 64)?;
    let a = first(m, op);
    let (d, halves) = (m.d(), immediate(op));
    let half = |block: [_; 2], bit: u32| block[usize::from(halves >> bit & 1 != 0)];
    let r = in_blocks(d, op, &a, &b, |_, a, b| {
        let [low, high, _] = d.opaque(Opaque::Field(Field::CarrylessProduct), &[half(a, 0), half(b, 4)]);
        [low, high]
    });
    commit(m, op, 64, r);
    Ok(())
}

/// GF2P8MULB.
pub fn multiply<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let b = second(m, op, 8)?;
    let a = first(m, op);
    let d = m.d();
    let r = from_parts(d, op, |n| d.opaque(Opaque::Field(Field::Multiply), &[a[n], b[n]])[0]);
    commit(m, op, 8, r);
    Ok(())
}

/// GF2P8AFFINEQB, and GF2P8AFFINEINVQB if `INVERSE`: the bytes of the first source, or their inverses, by the matrices
/// of the second; then the immediate is added to each.
pub fn affine<M: Machine, const INVERSE: bool>(m: &mut M, op: &Op) -> Exec {
    const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
    let matrices = second_whole(m, op, 64)?;
    let a = first(m, op);
    let d = m.d();
    let r = from_parts(d, op, |n| {
        let bytes = if INVERSE { d.opaque(Opaque::Field(Field::Inverse), &[a[n]])[0] } else { a[n] };
        let [product, _, _] = d.opaque(Opaque::Field(Field::Affine), &[bytes, matrices[n]]);
        d.bin(Bin::Xor, 64, product, d.lit(64, EACH_BYTE * u64::from(immediate(op))))
    });
    commit(m, op, 8, r);
    Ok(())
}
