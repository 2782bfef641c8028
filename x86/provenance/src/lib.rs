//! Where each byte that an instruction writes comes from: the semantics of [`x86`], run in a domain whose values know it.
//!
//! [`trace`] runs one instruction from a known state. Of every byte that the instruction writes it says which bytes of the
//! state before it is made of ([`Origin`]): the same byte, unaltered, or a result of several. Bytes that only said where in
//! memory these were, and bytes that only chose among them, are told apart from that.
//!
//! Example: `mov eax, [rbx+8]` writes eight bytes of rax. The lower four are copies of four bytes of memory, which the
//! bytes of rbx led to; the upper four are of no byte at all.
//!
//! The map, in reading order:
//!
//! | module | what |
//! | --- | --- |
//! | [`byte`] | what a byte of the state is called |
//! | [`origin`] | what a byte is made of |
//! | [`values`] | the domain |
//! | [`machine`] | the state of one instruction |
//! | [`instruction`] | running it |
//! | [`repeat`] | the copying string instructions, which may move megabytes |
//!
//! What is not followed: the depth of the x87 stack, which is a number of the machine and not of a value; the last x87
//! instruction and operand; and whether an instruction runs at all, which is the affair of the branches before it.
#![forbid(unsafe_code)]

mod byte;
mod instruction;
mod machine;
mod origin;
mod repeat;
mod values;

pub use byte::Byte;
pub use instruction::{Before, Memory, Provenance, Trapped, Untraced, trace};
pub use origin::Origin;
