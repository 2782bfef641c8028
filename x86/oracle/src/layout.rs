//! The addresses that the native half and the interpreter half share.
//!
//! Code and data are where the golden cases of x86 have them, so that a finding can become one. All lie below
//! 2 GiB, so that every addressing form (absolute, rip-relative, 32-bit) reaches them, and far from where Linux
//! puts a position-independent program. Missing pages surround each region.

/// Size of a page in bytes.
pub const PAGE: usize = 0x1000;
/// The code page: readable and executable.
pub const CODE: u64 = 0x40_0000;
/// The first data page that can be written.
pub const DATA: u64 = 0x1_0000;
/// How much can be written from there on, in bytes.
pub const WRITABLE: usize = 4 * PAGE;
/// The one data page that can only be read.
pub const READ_ONLY: u64 = DATA + (WRITABLE + PAGE) as u64;
/// The contents of all data pages, those that can be written first, in bytes.
pub const DATA_SIZE: usize = WRITABLE + PAGE;
/// Where the native half keeps the mailbox of its trampoline, a page. The interpreter has nothing there; generated
/// addresses avoid it.
pub(crate) const MAILBOX: u64 = 0x5a3c_9000;

/// The most code that a case may have, in bytes: sixteen instructions of the longest kind.
pub const CODE_MAX: usize = 16 * 15;
/// Bytes that both halves append to a case's code: the jump back to the host.
pub const EXIT_JUMP: usize = 7;
/// The slot that it jumps through, at the end of the mailbox's page. On the interpreter it faults there.
pub(crate) const LEAVE: u64 = MAILBOX + PAGE as u64 - 8;

/// JMP qword ptr [LEAVE], with an absolute 32-bit address.
pub(crate) fn exit_jump() -> [u8; EXIT_JUMP] {
    let slot = LEAVE.to_le_bytes();
    [0xff, 0x24, 0x25, slot[0], slot[1], slot[2], slot[3]]
}

/// The address of a byte of the data pages by its offset in their contents.
#[must_use]
pub const fn data_address(offset: usize) -> u64 {
    if offset < WRITABLE { DATA + offset as u64 } else { READ_ONLY + (offset - WRITABLE) as u64 }
}
