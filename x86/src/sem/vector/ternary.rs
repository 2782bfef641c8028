//! Operations on three lanes, of which the destination is the first.

use super::{commit, first, from_parts, immediate, register, second};
use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;

/// VPTERNLOGD, VPTERNLOGQ: bit by bit, the three bits are the number of a bit of the immediate; that of the destination
/// counts most. Lanes of `W` bits under the mask.
pub fn logic<M: Machine, const W: u32>(m: &mut M, op: &Op) -> Exec {
    let c = second(m, op, W)?;
    let (a, b) = (register(m, op.a), first(m, op));
    let r = from_parts(m.d(), op, |n| from_table(m.d(), immediate(op), &[a[n], b[n], c[n]]));
    commit(m, op, W, r);
    Ok(())
}

/// The function of `inputs`, bit by bit, whose value for all of them is a bit of `table`: its number has the first input
/// as its highest bit. What the table makes simple is made so: `a ^ b` is one operation.
fn from_table<D: Domain>(d: &D, table: u32, inputs: &[D::Bv]) -> D::Bv {
    let Some((&first, rest)) = inputs.split_first() else {
        return d.lit(64, if table & 1 == 0 { 0 } else { u64::MAX });
    };
    let half = 1 << rest.len();
    let all = (1 << half) - 1;
    let (clear, set) = (table & all, table >> half & all);
    let of = |table| from_table(d, table, rest);
    match (clear, set) {
        _ if clear == set => of(set),
        _ if clear == all ^ set => d.bin(Bin::Xor, 64, first, of(clear)),
        (0, _) => d.bin(Bin::And, 64, first, of(set)),
        (_, 0) => d.bin(Bin::And, 64, d.complement(64, first), of(clear)),
        _ if set == all => d.bin(Bin::Or, 64, first, of(clear)),
        _ if clear == all => d.bin(Bin::Or, 64, d.complement(64, first), of(set)),
        _ => {
            let kept = d.bin(Bin::And, 64, first, of(set));
            d.bin(Bin::Or, 64, kept, d.bin(Bin::And, 64, d.complement(64, first), of(clear)))
        }
    }
}
