//! A hypothesis of the past: a path that ends in the core, and what it implies for the state before it.
//!
//! Reading order: [`image`] (what the core gives), [`snapshot`] (the registers at a point of the past, as terms), [`history`] (memory
//! at every point of the past), [`machine`] (one instruction, run on terms), [`prepared`] (what of an instruction does not depend on
//! the point), `instruction` (what one implies that ran) and `kernel` (what a system call did in between, by the table in
//! [`vmm::syscalls`]), [`turns`] (another thread had the processor before), [`hypothesis`] (a path that grows backwards, and shrinks again), [`deferred`] (accesses whose addresses are
//! not known yet), [`addresses`] (what to do about addresses that nothing determines: [`pointers`], `traces` and `contents` say where
//! to look first). [`audit`] tells others of what was refuted.
//!
//! Steps are numbered backwards: step 0 is the core, step 1 the last instruction that ran, and so on.

pub mod addresses;
pub mod audit;
mod contents;
pub mod deferred;
pub mod history;
pub mod hypothesis;
pub mod image;
mod instruction;
mod kernel;
pub mod machine;
pub mod pointers;
pub mod prepared;
pub mod snapshot;
mod telling;
mod traces;
pub mod turns;
