//! Reverse execution synthesis: from a core back to a certified execution suffix.
//!
//! Reading order: [`program`] (the executable: instructions, symbols, who can come before whom), [`term`] (values), [`facts`] (what
//! is known, propagated both ways), [`smt`] (the solver on what propagation leaves over), [`fuel`] (how much work all this may be;
//! `shares`: which part of it has how much), [`past`] (a path and what it implies), [`search`] (which paths are tried, in which
//! order), [`realize`] (values for all that is still unknown), [`origins`] (which of them were forced), [`suffix`] (the result as
//! data), [`certificate`] (the forward run that proves it), [`flips`] (a core that is damaged by one bit), [`refutations`] (why no
//! way led there, for other solvers), [`report`] (what people and scripts see), [`synthesis`] (all of it, in order; [`phases`] count
//! where the time goes).

pub mod certificate;
mod core_image;
pub mod evidence;
pub mod facts;
pub mod flips;
pub mod fuel;
pub mod origins;
pub mod past;
pub mod phases;
pub mod program;
pub mod realize;
pub mod refutations;
pub mod report;
pub mod search;
mod shares;
pub mod smt;
pub mod suffix;
pub mod synthesis;
pub mod term;
