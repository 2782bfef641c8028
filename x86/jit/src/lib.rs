//! Compiles what the software CPU runs often.
//!
//! It is one more domain of the one semantics in `x86`: an instruction's description, run on values of Cranelift, leaves the code
//! behind that does the same. No instruction is described here.
//!
//! Reading order: [`jit`] (the driver: interpreter first, then code), `region` (what is compiled together), `translator` (from a
//! region to a function; `clif` and `domain`: values and their algebra; `machine`, `memory` and `spans`: state and accesses; `flags`;
//! `exits`: the ways out of it; `outcall`: instructions that the CPU runs), `compiler` and `worker` (Cranelift, on a thread of its own),
//! `codes` and `links` (which code may be entered), `context` (what code and driver share), and `native` (the fence).
//!
//! All unsafe code is in `native`.
#![deny(unsafe_code)]

mod clif;
mod codes;
mod compiler;
mod context;
mod domain;
mod exits;
mod flags;
pub mod jit;
mod links;
mod machine;
mod memory;
#[expect(unsafe_code, reason = "the fence: memory for code, and the calls into and out of it")]
mod native;
mod outcall;
mod region;
mod spans;
mod translator;
mod worker;

pub use jit::{Jit, Tuning, Work};
pub use region::Sought;
