//! The addresses that the native half and the interpreter half share.
//!
//! All lie below 2 GiB, so that every addressing form (absolute, rip-relative, 32-bit) reaches them, and far
//! from where Linux puts a position-independent program. A missing page surrounds each region.

/// Size of a page in bytes.
pub const PAGE: usize = 0x1000;
/// The code page: readable and executable. The page after it is missing.
pub const CODE: u64 = 0x2000_0000;
/// The data pages: [`WRITABLE`] bytes that can be written, then one page that can only be read.
pub const DATA: u64 = 0x2010_0000;
/// How much of the data can be written, in bytes.
pub const WRITABLE: usize = 2 * PAGE;
/// The data pages in all, in bytes.
pub const DATA_SIZE: usize = 3 * PAGE;
/// Where the native half keeps the mailbox of its trampoline. The interpreter has nothing there; generated
/// addresses avoid it.
pub(crate) const MAILBOX: u64 = 0x5a3c_9000;

/// The most code that a case may have, in bytes: eight instructions of the longest kind.
pub const CODE_MAX: usize = 8 * 15;
/// Bytes that the native half appends to a case's code: the jump back to the host.
pub const EXIT_JUMP: usize = 7;
