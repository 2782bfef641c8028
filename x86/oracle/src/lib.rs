//! The processor as the oracle of the one semantics: random instructions and short blocks run natively in a worker process
//! and on the software CPU, from the same state and the same pages, and the complete outcomes are compared: registers,
//! flags, vector and x87 state, memory, and how it ended.
//!
//! Example: `imul eax, ecx` with random registers runs on both. eax, CF and OF must be equal; SF, ZF, AF and PF are not
//! compared, since the manual leaves them undefined. A difference is printed as a golden case: the bytes, the state before
//! and the state after as the processor has it.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | a case: its addresses, its outcome | [`layout`], [`case`] |
//! | the two halves | [`native`], [`interpreter`] |
//! | which cases | [`generate`], [`edges`] and [`values`] (operands that matter), [`random`], [`host`] (what this processor has) |
//! | what is not compared | [`dont_care`], [`vendor`] |
//! | the comparison, the loop, what is printed | [`compare`], [`campaign`], [`report`] |
//! | a finding made small, and as a golden case | [`shrink`], [`golden`] |
//! | figures that are kept, and the page of what there is, family by family | [`runs`], [`page`] |
//!
//! Unsafe code is in [`native`] only.

pub mod campaign;
pub mod case;
pub mod compare;
pub mod dont_care;
mod edges;
pub mod generate;
pub mod golden;
pub mod host;
pub mod interpreter;
pub mod layout;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod native;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
#[path = "native/absent.rs"]
pub mod native;
pub mod page;
mod random;
pub mod report;
pub mod runs;
mod shrink;
mod values;
pub mod vendor;
