//! From an iced instruction to its handler: the one place that says which instances of the semantics exist.
//!
//! With `FAST` the hot forms get handlers specialised on width and operand shape ([`hot`]); a symbolic machine
//! asks without it, and one instance per instruction serves all forms. Instantiate the table in one crate per
//! machine: it is most of what there is to compile.

mod crypto;
mod hot;
mod integer;
mod vector;
mod x87;

use iced_x86::Instruction;

use crate::machine::{Handler, Machine};
use crate::op::Op;

/// The handler and operands of `i`; `None` where there are no semantics.
#[must_use]
pub fn lookup<M: Machine, const FAST: bool>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    integer::lookup::<M, FAST>(i)
        .or_else(|| vector::lookup(i))
        .or_else(|| crypto::lookup(i))
        .or_else(|| x87::lookup(i))
}
