//! From an iced instruction to its handler: the one place that says which instances of the semantics exist.
//!
//! One instance per instruction serves all its forms. The software CPU alone has more of them: the hot forms, by width
//! and operand shape, as steps of a block ([`hot`]). Instantiate the table in one crate per machine: it is most of
//! what there is to compile.

mod crypto;
pub(crate) mod hot;
mod integer;
pub mod privileged;
mod vector;
mod x87;

use iced_x86::Instruction;

use crate::machine::{Handler, Machine};
use crate::op::Op;

/// The handler and operands of `i`; `None` where there are no semantics.
#[must_use]
pub fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    integer::lookup::<M>(i)
        .or_else(|| vector::lookup(i))
        .or_else(|| crypto::lookup(i))
        .or_else(|| x87::lookup(i))
}
