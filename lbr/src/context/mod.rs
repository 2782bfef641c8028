//! Calling contexts in one word, and back: Bond and McKinley, *Probabilistic Calling Context* (OOPSLA 2007); Bond, Baker
//! and Guyer, *Breadcrumbs* (PLDI 2010).
//!
//! A stack of call sites becomes a word by p' = 3p + c ([`word`]). The recorder keeps, for each call site, the words that
//! it saw there ([`sets`]), up to a number of looks that makes the site *hot*: from then on only some are kept.
//! [`table`] is these sets on disk and in a core. [`mod@decode`] peels the call sites off a word again:
//! where a set knows the word below, there is one way to go; where all sites are hot, it searches.

pub mod decode;
pub mod sets;
pub mod table;
pub mod word;

pub use decode::{CallGraph, Decoder, Undecoded};
pub use sets::{Policy, Site, Tracker};
pub use table::{Table, TableError, TableWriter};
