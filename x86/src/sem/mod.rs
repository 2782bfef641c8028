//! The semantics, one file per family.
//!
//! Every function is generic over the machine, and where it pays over the width and the places of its operands.
//! It reads what can trap first and commits last, so that a faulting instruction leaves no trace.

pub mod arithmetic;
pub mod bits;
pub mod control;
pub mod exchange;
pub mod flag;
pub mod logic;
pub mod multiply;
pub mod narrow;
pub mod operand;
pub mod shift;
pub mod stack;
pub mod string;
pub mod system;
pub mod transfer;
pub mod vector;
pub mod x87;
