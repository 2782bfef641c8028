//! A hypothesis of the past: a path that ends in the core, and what it implies for the state before it.
//!
//! Example: the core has 7 in rax and 3 in rbx, and `add rax, rbx` is put before it. In the state before, rax is a new
//! variable r, since the instruction wrote it, and rbx is 3. The description of ADD, run on these terms, gives r + 3, which
//! must be the 7 of the state after: [`crate::facts`] concludes that r is 4.
//!
//! Steps are numbered backwards: step 0 is the core, step 1 the last instruction that ran, and so on.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | what the core gives | [`image`] |
//! | the registers, and memory, at a point of the past | [`snapshot`], [`history`] |
//! | one instruction, run on terms; what of it does not depend on the point; of a kernel's | [`machine`], [`prepared`], [`system`], [`smap`] |
//! | what an instruction implies that ran, and what a system call did in between (by the table in [`vmm::syscalls`]); what a kernel was given from outside | [`instruction`], [`kernel`]; [`asked`] |
//! | another thread had the processor before; a signal came, or its handler returned | [`turns`]; [`signals`] |
//! | a path that grows backwards, and shrinks again | [`hypothesis`] |
//! | accesses whose addresses are not known yet, and what to do where nothing determines them | [`deferred`], [`choosing`], [`addresses`]; [`pointers`], [`traces`], [`contents`] and [`telling`] say where to look first |
//! | what was refuted, told to others | [`audit`] |

pub mod addresses;
pub mod asked;
pub mod audit;
mod choosing;
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
pub mod signals;
mod smap;
pub mod snapshot;
mod system;
mod telling;
mod traces;
pub mod turns;
