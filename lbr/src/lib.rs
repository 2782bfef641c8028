//! Branch records: what the processor remembers of the last taken branches, and a model of that memory.
//!
//! Reading order: [`filter`] (which branches are recorded), [`trail`] (what is known of the last branches, and
//! its form in a core), [`msr`] (the registers of Intel's model-specific branch records), [`model`] (those
//! registers in software, fed by the software CPU), [`capture`] (arm, run, read back, decode: one path for
//! hardware and model), [`crumb`] (one record for each exit, in a ring that outlives its writer).
//!
//! What a host does not have is an error with a reason, never a trail of zeros.
#![deny(unsafe_code)]

pub mod capture;
pub mod crumb;
pub mod filter;
mod mapped;
pub mod model;
pub mod msr;
pub mod trail;

pub use capture::{Armed, CaptureError, MsrAccess, Unavailable};
pub use crumb::{Crumb, Crumbs};
pub use filter::Filter;
pub use model::Model;
pub use trail::{BranchRecord, Family, Provenance, Trail};
