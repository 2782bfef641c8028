//! Reverse execution synthesis: from a core back to a certified execution suffix.
//!
//! Reading order: [`program`] (the executable: instructions, symbols, who can come before whom), [`term`]
//! (values), [`facts`] (what is known, propagated both ways), [`smt`] (the solver on what propagation leaves
//! over), [`past`] (a path and what it implies), [`search`] (which paths are tried, in which order).

pub mod certificate;
pub mod facts;
pub mod past;
pub mod program;
pub mod report;
pub mod smt;
pub mod suffix;
pub mod term;
