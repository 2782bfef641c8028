//! From an iced instruction to its handler: the one place that says which instances of the semantics exist.
//!
//! One instance per instruction serves all its forms. The software CPU alone has more of them: the hot forms, by width
//! and operand shape, as steps of a block ([`hot`]). Instantiate the table in one crate per machine: it is most of
//! what there is to compile.

mod compiled;
mod crypto;
pub(crate) mod hot;
mod integer;
pub(crate) mod narrow;
pub mod privileged;
mod vector;
mod x87;

pub use compiled::{Compiled, lookup_compiled};
use iced_x86::{Code, Instruction};

use crate::decode;
use crate::machine::{Body, Handler, Machine};
use crate::op::Op;
use crate::sem::{vector::state, x87::control};

/// The handler and operands of `i`; `None` where there are no semantics.
#[must_use]
pub fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    integer::lookup::<M>(i)
        .or_else(|| vector::lookup(i))
        .or_else(|| crypto::lookup(i))
        .or_else(|| x87::lookup(i))
        .or_else(|| x87_pointers(i).map(|(body, op)| (Handler::Body(body), op)))
}

/// What [`lookup`] gives for the instructions that store the address of the last x87 instruction
/// ([`decode::stores_x87_pointers`]), without the rest of the table; `None` for all others.
#[must_use]
pub fn x87_pointers<M: Machine>(i: &Instruction) -> Option<(Body<M>, Op)> {
    let body: Body<M> = match i.code() {
        Code::Fnstenv_m14byte => control::store_environment_and_mask::<M, 16>,
        Code::Fnstenv_m28byte => control::store_environment_and_mask::<M, 32>,
        Code::Fnsave_m94byte => control::save::<M, 16>,
        Code::Fnsave_m108byte => control::save::<M, 32>,
        Code::Fxsave_m512byte | Code::Fxsave64_m512byte => state::fxsave::<M>,
        _ => return None,
    };
    Some((body, decode::op(i)))
}

/// The integer instructions alone, for a machine that has no others: most of the table is not compiled for it.
#[must_use]
pub fn lookup_integer<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    integer::lookup(i)
}
