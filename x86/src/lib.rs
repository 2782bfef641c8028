//! What an x86-64 instruction does, written once, generic over the domain of values.
//!
//! Example: `29 d8` is `sub eax, ebx`. [`decode`] makes an [`op::Op`] of it, [`table`] names its description, `sub` in
//! [`sem`], and the machine that runs the description decides what comes out:
//!
//! | machine | eax, ebx before | eax after | a `jl` behind it asks |
//! | --- | --- | --- | --- |
//! | the software CPU ([`cpu`]) | 5, 7 | 0xfffffffe | 5 < 7: taken |
//! | the terms of `synth` | unknown a, b | the term a - b | the term a < b |
//! | Cranelift's values in `x86-jit` | values v, w | the code of a subtraction | the code of a comparison |
//!
//! The rule that makes one copy serve every domain: a semantic function is straight-line. It never branches on a guest
//! value; choices are [`domain::Domain::ite`], [`machine::Machine::trap_if`] and a returned [`machine::Flow`]. `if` on a
//! field of [`op::Op`] (a decoded constant) is fine.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | values | [`domain`] (their algebra), [`packed`] (of lanes), [`opaque`] (floating point, ciphers), [`concrete`] (machine integers) |
//! | an instruction | [`machine`] (the state it may touch), [`flags`] (lazy arithmetic flags), [`op`] (decoded), [`decode`] (from iced's to ours), [`sem`] (the semantics, one file per family), [`table`] (iced instruction to handler) |
//! | the software CPU | [`state`] and [`xsave`] (the registers as data, and their images), [`vectors`], [`bus`] (what it needs of memory), [`flat`] (the simplest one), [`guard`] (memory that is watched), [`cpu`] (the concrete machine), [`bulk`] (REP), [`tlb`], [`frames`] (code and written pages), [`interpreter`] (counters, stops) |
//! | what makes it fast | [`origin`], [`block`] and [`cache`] (decoding, once), [`overlong`] (instructions that are too long), [`step`] (how the instructions of a block run), [`quick`] (the machine of the hot forms of [`table`]) |
//! | what checks it | [`faulty`] (a fault injected at the n-th access), [`golden`] (cases as text) |
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
pub mod guard;
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
