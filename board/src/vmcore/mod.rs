//! Cores of kernels: what a machine writes (`write`), and reading that or one that Linux's crash kernel or QEMU wrote (`read`).
//!
//! A core has the registers of each processor, what the kernel says of itself (VMCOREINFO), and physical memory. What Linux has put into
//! that memory is read by [`crate::linux`].

mod read;
mod write;

pub use read::{Vmcore, VmcoreError, is_one, said};
