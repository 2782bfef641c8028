//! Reverse execution synthesis: from a core back to a certified execution suffix.
//!
//! Example: a program crashed at `add rsi, [rax+0x10]`, and its core has 16 branch records. The search goes back one
//! instruction at a time: the newest record says that a `jne` came before, the map of predecessors says that
//! `test rax, rax` came before that. After 86 instructions it meets a `read` that wrote an unknown amount, and stops. What
//! is unknown at the start gets values, the suffix is run forward on the software CPU and under KVM, both end in exactly
//! this core, and the verdict is *certified*, with 86 instructions.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | the core, and what its crumbs know of the past | [`core_image`], [`evidence`] |
//! | the executable: instructions, symbols, who can come before whom | [`program`] |
//! | values; what is known of them, propagated both ways; the solver on what propagation leaves over | [`term`], [`facts`], [`smt`] |
//! | how much work all this may be, and which part of it has how much | [`fuel`], [`shares`] |
//! | a path and what it implies; which paths are tried, in which order | [`past`], [`search`] |
//! | values for all that is still unknown, and which of them were forced | [`realize`], [`origins`] |
//! | the result as data, and the forward run that proves it | [`suffix`], [`certificate`] |
//! | a core that is damaged by one bit; why no way led there, for other solvers | [`flips`], [`refutations`] |
//! | what people and scripts see | [`report`] |
//! | all of it, in order; where the time goes | [`synthesis`], [`phases`] |

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
