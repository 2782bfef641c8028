//! The processor as the oracle of the one semantics.
pub mod case;
pub mod layout;
pub mod native;
