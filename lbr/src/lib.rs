//! Branch records: what the processor remembers of the last taken branches, and a model of that memory.
//!
//! Example: a dump of registers has 0x1c9 = 0, 0x680 = 0x401000 and 0x6c0 = 0x402000. [`Dump`] reads it as Intel's format 1
//! with a depth of one, and gives a [`trail`] of one record: a branch from 0x401000 to 0x402000.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | which branches are recorded | [`filter`], [`kind`] |
//! | what is known of the last branches, and its form in a core | [`trail`] |
//! | the registers, and how branches lie in them and in what perf writes | [`msr`], [`format`](mod@format) |
//! | from a dump of registers to a trail, from any file to trails | [`dump`], [`registers`], [`file`](mod@file) |
//! | trails that were taken now and then, and where files were mapped then | [`samples`] |
//! | what the program's bytes add to a trail | [`code`] |
//! | the registers in software, fed by the software CPU | [`model`] |
//! | arm, run, read back, decode: one path for hardware and model | [`capture`] |
//! | one record for each exit, in a ring that outlives its writer | [`crumb`] |
//! | a calling context in one word, and back | [`context`] |
//! | the kernel's counters, samples and branch stacks | [`perf`] |
//! | files that are read whole, and one that is mapped | [`regular`], [`mapped`], [`View`] |
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
pub mod samples;
pub mod trail;

pub use capture::{Armed, CaptureError, MsrAccess, Unavailable};
pub use crumb::{Crumb, Crumbs};
pub use dump::Dump;
pub use filter::Filter;
pub use kind::Kind;
pub use mapped::View;
pub use model::{Model, Processor};
pub use registers::Registers;
pub use samples::Sampled;
pub use trail::{BranchRecord, Family, Provenance, Trail};
