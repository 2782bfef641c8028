//! Compiles what the software CPU runs often.
//!
//! The compiler is one more domain of the one semantics in `x86`: an instruction's description, run on values of Cranelift,
//! leaves the code behind that does the same. No instruction is described here.
//!
//! Example: the block of a loop that adds up an array has run 5,000 times. [`region`] takes it as one run that leads to
//! itself; [`translator`] runs the descriptions of its instructions on Cranelift's values; [`worker`] compiles that while
//! the interpreter goes on. The next time the driver meets the address, [`codes`] has code for it and [`native`] calls it.
//! A load whose page has no cached translation leaves the code before its instruction, which the interpreter then runs.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | the driver: interpreter first, then code | [`jit`] |
//! | what is compiled together | [`region`] |
//! | from a region to a function | [`translator`]; [`clif`] and [`domain`] (values and their algebra), [`block`], [`all_lanes`] and [`floats`] (of vectors and of floats), [`machine`], [`vectors`], [`memory`] and [`spans`] (state and accesses), [`flags`], [`exits`] (the ways out), [`outcall`] (instructions that the CPU runs) |
//! | Cranelift, on a thread of its own | [`compiler`], [`worker`] |
//! | which code may be entered, and which has to be made anew | [`codes`], [`links`]; [`spread`], [`around`] |
//! | code of earlier runs | [`kept`] |
//! | what code and driver share | [`context`] |
//! | the fence: memory for code, and the calls into and out of it | [`native`] |
//!
//! All unsafe code is in [`native`].
#![deny(unsafe_code)]

mod all_lanes;
mod around;
mod block;
mod clif;
mod codes;
mod compiler;
mod context;
mod domain;
mod exits;
mod flags;
mod floats;
pub mod jit;
mod kept;
mod links;
mod machine;
mod memory;
#[expect(unsafe_code, reason = "the fence: memory for code, and the calls into and out of it")]
mod native;
mod outcall;
mod region;
mod spans;
mod spread;
mod translator;
mod vectors;
mod worker;

pub use jit::{Jit, Tuning, Work};
pub use kept::Kept;
pub use native::kept_from_bytes;
pub use region::Sought;
