//! The x87.

use crate::domain::{Bin, Domain};
use crate::machine::{Bv, Machine};
use crate::opaque::{exception, status};

/// The control word that a value loaded into it becomes: bit 6 is always set, the other reserved bits are clear.
pub(crate) fn fixed_control<D: Domain>(d: &D, v: D::Bv) -> D::Bv {
    d.bin(Bin::Or, 16, d.bin(Bin::And, 16, v, d.lit(16, 0x1f3f)), d.lit(16, 0x40))
}

/// A status word with its summary bits made to agree with its exceptions and the masks in `control`.
pub(crate) fn summarized<M: Machine>(d: &M::D, v: Bv<M>, control: Bv<M>) -> Bv<M> {
    const SUMMARIES: u64 = status::SUMMARY | status::BUSY;
    let pending = d.bin(Bin::And, 16, v, d.complement(16, control));
    let none = d.is_zero(16, d.bin(Bin::And, 16, pending, d.lit(16, exception::ALL)));
    let rest = d.bin(Bin::And, 16, v, d.lit(16, !SUMMARIES));
    d.ite(none, 16, rest, d.bin(Bin::Or, 16, rest, d.lit(16, SUMMARIES)))
}
