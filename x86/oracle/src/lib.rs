//! The processor as the oracle of the one semantics: random instructions and short blocks run natively in a
//! worker process and on the software CPU, from the same state and the same pages, and the complete outcomes
//! are compared: registers, flags, vector and x87 state, memory, and how it ended.
//!
//! Reading order: [`layout`] (addresses), [`case`] (a case and its outcome), [`native`] and [`interpreter`] (the
//! two halves), [`generate`] (which cases), [`dont_care`] and [`vendor`] (what is not compared), [`compare`],
//! [`campaign`] (the loop), [`report`], [`golden`] (a finding as a golden case), [`runs`] (figures that are kept) and
//! [`page`] (what there is, family by family).
//!
//! Unsafe code is in `native` only.

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
