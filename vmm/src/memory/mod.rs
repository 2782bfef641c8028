//! Address spaces, which are values: many at once in one [`crate::ram::Memory`], copied on write.
//!
//! Example: `mmap` of 1 MiB adds one entry to the [`vma::Mappings`] and touches no page; the first store there is a page
//! fault, [`space::AddressSpace::touch`] makes the 64 pages around it resident, and the store is tried again.
//!
//! | part | modules |
//! | --- | --- |
//! | what is mapped where, and where things go | [`vma`], [`layout`], [`growth`] (the heap and the stack) |
//! | which of it is resident in which frame | [`space`], [`frame`], [`fill`] (at a fault), [`fork`] (a second space with the same content) |
//! | how the personality reads and writes it | [`access`], [`forced`] (where the guest itself may not) |
//! | memory that several spaces share | [`object`], [`sharing`] (what a space knows of it) |
//! | its content as one number, and what a core has to look at | [`digest`], [`held`] |
//! | instructions that read the machine (CPUID, RDTSC), rewritten when a page becomes executable | [`code`] (does it), [`rewritten`] (which), [`sites`] (finds them), [`tables`] and [`reached`] (what is certainly code), [`ordinary`] (judges the rest), [`turns`] (code that a program makes while it runs) |
//! | the search in a file, and what was found, kept in memory and on disk | [`search`], [`candidates`] (where it is worth decoding), [`searched`], [`findings`] |
//! | a space in a checkpoint on disk | [`stored`] |

pub mod access;
mod candidates;
mod code;
mod digest;
mod fill;
pub mod findings;
mod forced;
mod fork;
mod frame;
mod growth;
mod held;
pub mod layout;
pub mod object;
mod ordinary;
mod reached;
pub mod rewritten;
mod search;
mod searched;
mod sharing;
pub mod sites;
pub mod space;
pub(crate) mod stored;
pub(crate) mod tables;
mod turns;
pub mod vma;

use crate::plain::plain;
use crate::ram::Virt;
pub(crate) use digest::PageDigests;
pub use space::AddressSpace;

/// A part of the address space with the same rights and the same backing, as /proc/PID/maps shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingInfo {
    /// First address.
    pub start: Virt,
    /// First address after it.
    pub end: Virt,
    /// What the guest may do.
    pub rights: Rights,
    /// The file's path, `[stack]`, `[heap]`, `[vdso]`, `[vvar]`, or empty.
    pub name: String,
    /// Where in the file it begins.
    pub file_offset: u64,
}

/// What the guest may do with memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Load from it.
    pub read: bool,
    /// Store to it.
    pub write: bool,
    /// Execute it.
    pub execute: bool,
}
plain!(struct Rights { read, write, execute });
