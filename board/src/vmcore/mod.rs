//! Cores of kernels: what a machine writes (`write`), and reading that or one that Linux's crash kernel or QEMU wrote (`read`).
//!
//! A core has the registers of each processor, what the kernel says of itself (VMCOREINFO), and physical memory. What Linux has put into
//! that memory is read by [`crate::linux`]. One of gretel's also has where the kernel crashed (`crashed`), which was before that, with the
//! newest branch records and exits there.

mod crashed;
mod read;
mod write;

pub use crashed::{Crashed, CrashedError};
pub use read::{Vmcore, VmcoreError, is_one, said};
pub use write::Beside;
