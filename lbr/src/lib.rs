//! Branch records: what the processor remembers of the last taken branches, and a model of that memory.
//!
//! Reading order: [`filter`] and [`kind`] (which branches are recorded), [`trail`] (what is known of the last branches, and its form
//! in a core), [`msr`] (the registers), [`format`](mod@format) (how branches lie in them, and in what perf writes), [`dump`] and
//! [`registers`] (from a dump of registers to a trail), [`file`](mod@file) (from any file to trails), [`code`] (what the program's
//! bytes add to one), [`model`] (those registers in software, fed by the software CPU), [`capture`] (arm, run, read back, decode: one
//! path for hardware and model), [`crumb`] (one record for each exit, in a ring that outlives its writer), [`context`] (a calling
//! context in one word, and back), [`perf`] (the kernel's counters, samples and branch stacks); [`regular`] (files that are read
//! whole), [`View`] (one that is mapped).
//!
//! What a host does not have is an error with a reason, never a trail of zeros.
#![deny(unsafe_code)]

pub mod capture;
pub mod code;
pub mod context;
pub mod crumb;
pub mod dump;
pub mod file;
pub mod filter;
pub mod format;
pub mod kind;
mod mapped;
pub mod model;
pub mod msr;
pub mod perf;
pub mod registers;
pub mod regular;
pub mod trail;

pub use capture::{Armed, CaptureError, MsrAccess, Unavailable};
pub use crumb::{Crumb, Crumbs};
pub use dump::Dump;
pub use filter::Filter;
pub use kind::Kind;
pub use mapped::View;
pub use model::{Model, Processor};
pub use registers::Registers;
pub use trail::{BranchRecord, Family, Provenance, Trail};
