//! Lanes made narrower or wider.

use super::lanes::{saturate_signed, saturate_unsigned};
use super::{block_from_lanes, by_blocks, commit, from_lanes, lane, length, source_of, sources};
use crate::domain::Domain;
use crate::machine::{Exec, Machine};
use crate::op::Op;

/// PACKSSWB, PACKSSDW, PACKUSWB, PACKUSDW: in each 128 bits, the lanes of first and second source, saturated to `W`
/// bits.
pub fn narrow<M: Machine, const W: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let per_block = 64 / W;
    by_blocks(m, op, sources(op), [2 * W, W], |d, _, a, b| {
        block_from_lanes(d, W, |n| {
            let v = lane(d, 2 * W, n % per_block, if n < per_block { &a } else { &b });
            if SIGNED { saturate_signed(d, 2 * W, W, v) } else { saturate_unsigned(d, 2 * W, W, v) }
        })
    })
}

/// PMOVSX, PMOVZX: the low lanes of `FROM` bits, extended to `TO` bits.
pub fn widen<M: Machine, const FROM: u32, const TO: u32, const SIGNED: bool>(m: &mut M, op: &Op) -> Exec {
    let b = source_of(m, op, op.b, length(op) / TO * FROM, FROM)?;
    let d = m.d();
    let r = from_lanes(d, op, TO, |n| {
        let v = lane(d, FROM, n, &b);
        if SIGNED { d.sext(FROM, TO, v) } else { d.zext(FROM, TO, v) }
    });
    commit(m, op, TO, r);
    Ok(())
}
