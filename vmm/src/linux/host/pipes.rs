//! The host's calls that copy between files.

use super::sockets::without_waiting;
use super::{fd, pointer, raw, write};
use std::os::fd::RawFd;

/// A file, and the offset in it; without one, its position.
type Side<'a> = (RawFd, &'a mut Option<i64>);

fn offset(at: &mut Option<i64>) -> u64 {
    at.as_mut().map_or(0, |offset| pointer(std::ptr::from_mut(offset)))
}

/// splice, which never waits.
pub(in crate::linux) fn splice(from: Side<'_>, to: Side<'_>, count: u64, flags: u32) -> i64 {
    let flags = u64::from(flags | libc::SPLICE_F_NONBLOCK);
    let arguments = [fd(from.0), offset(from.1), fd(to.0), offset(to.1), count, flags];
    // SAFETY: the kernel reads and writes one 64-bit number for each offset, or there is none; they outlive the call.
    without_waiting(from.0, || without_waiting(to.0, || unsafe { raw(libc::SYS_splice, arguments) }))
}

/// tee, which never waits.
pub(in crate::linux) fn tee(from: RawFd, to: RawFd, count: u64, flags: u32) -> i64 {
    let flags = u64::from(flags | libc::SPLICE_F_NONBLOCK);
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_tee, [fd(from), fd(to), count, flags, 0, 0]) }
}

/// copy_file_range.
pub(in crate::linux) fn copy_file_range(from: Side<'_>, to: Side<'_>, count: u64) -> i64 {
    let arguments = [fd(from.0), offset(from.1), fd(to.0), offset(to.1), count, 0];
    // SAFETY: as for splice.
    unsafe { raw(libc::SYS_copy_file_range, arguments) }
}

/// Writes to a pipe as much as it has room for; nothing if it is full.
pub(in crate::linux) fn fill(pipe: RawFd, bytes: &[u8]) -> i64 {
    match without_waiting(pipe, || write(pipe, bytes, None)) {
        full if full == -i64::from(libc::EAGAIN) => 0,
        result => result,
    }
}
