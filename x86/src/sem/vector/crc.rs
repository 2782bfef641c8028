//! CRC32: a linear function over bits, one step of the shift register a bit.

use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;
use crate::sem::operand;

/// The Castagnoli polynomial 11EDC6F41H, its bits reversed, as the register shifts right.
const POLYNOMIAL: u64 = 0x82f6_3b78;

/// CRC32 of a source of `W` bits into a 32-bit register; the upper half of a 64-bit one becomes zero.
pub fn crc32<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let data = operand::read(m, op, op.b, W)?;
    let old = operand::read(m, op, op.a, 32)?;
    let d = m.d();
    let widest = W.max(32);
    let mut crc = d.bin(Bin::Xor, widest, d.zext(32, widest, old), d.zext(W, widest, data));
    for _ in 0..W {
        let out = d.bit(widest, 0, crc);
        let shifted = d.bin(Bin::Shr, widest, crc, d.lit(widest, 1));
        let fed = d.bin(Bin::Xor, widest, shifted, d.lit(widest, POLYNOMIAL));
        crc = d.ite(out, widest, fed, shifted);
    }
    let r = d.zext(32, 64, d.trunc(widest, 32, crc));
    operand::write(m, op, op.a, 64, r)
}
