//! What an x86-64 instruction does, written once, generic over the domain of values.
//!
//! Reading order: [`domain`] (the algebra of values; [`packed`]: of lanes), [`machine`] (the state an instruction may touch),
//! [`flags`] (lazy arithmetic flags), [`op`] (a decoded instruction) and [`decode`] (from iced's to ours), [`sem`] (the semantics,
//! one file per family), [`table`] (iced instruction to handler); then the software CPU: [`state`] and [`xsave`] (the registers as
//! data, and their images), [`bus`] (what it needs of memory), [`cpu`] (the concrete machine; `bulk`: REP; `tlb`; `frames`: code and
//! written pages), [`interpreter`] (counters, stops), and what makes it fast: `origin`, `block` and `cache` (decoding, once;
//! `overlong`: what is too long), `step` (how the instructions of a block run), `quick` (the machine of the hot forms of [`table`]);
//! then what checks it: [`faulty`] (a fault injected at the n-th access), [`golden`] (cases as text).
//!
//! The rule that makes one copy serve every domain: a semantic function is straight-line. It never branches on
//! a guest value; choices are [`domain::Domain::ite`], [`machine::Machine::trap_if`] and a returned
//! [`machine::Flow`]. `if` on a field of [`op::Op`] (a decoded constant) is fine.
//!
//! This crate depends on no other crate of the workspace, has no unsafe code and does no I/O.
#![forbid(unsafe_code)]

mod block;
mod bulk;
pub mod bus;
mod cache;
pub mod concrete;
pub mod cpu;
pub mod decode;
pub mod domain;
pub mod faulty;
pub mod flags;
pub mod flat;
mod frames;
pub mod golden;
pub mod interpreter;
pub mod machine;
pub mod op;
pub mod opaque;
mod origin;
mod overlong;
pub mod packed;
mod quick;
pub mod sem;
pub mod state;
mod step;
pub mod table;
mod tlb;
mod vectors;
pub mod xsave;

pub use block::Bytes;
