//! Reading what is there, in one call: without the question before it whether there is anything (poll).
//!
//! Example: of an empty pipe `preadv2` with RWF_NOWAIT says EAGAIN, and [`AtOnce::Unknown`] has the caller ask by poll; of a
//! terminal it says EOPNOTSUPP, and [`AtOnce::Never`] has the caller ask by poll from then on.

use super::{fd, pointer, raw, stat};
use crate::ram::PAGE_LEN;
use std::os::fd::RawFd;

/// What a read that may not wait came to.
pub(in crate::linux) enum AtOnce {
    /// What read gives: a length or an error.
    Done(i64),
    /// There is nothing to read now, or the file has another reason to ask for an ordinary read.
    Unknown,
    /// This file cannot be read so.
    Never,
}

/// How many bytes may be read so, so that it gives no fewer than read would. Of a pipe that is any number, and of a character device
/// a page: `/dev/zero` ends a longer read when another thread is to run. Of a regular file or block device it is none, since what
/// the host has not in memory would be missing.
pub(in crate::linux) fn most_at_once(file: RawFd) -> usize {
    let kind = stat(file).map_or(0, |[_, _, mode, ..]| mode & u64::from(libc::S_IFMT));
    match libc::mode_t::try_from(kind) {
        Ok(libc::S_IFIFO) => usize::MAX,
        Ok(libc::S_IFCHR) => PAGE_LEN,
        _ => 0,
    }
}

/// read, of at least one byte.
pub(in crate::linux) fn read_at_once(from: RawFd, bytes: &mut [u8]) -> AtOnce {
    /// The file's position, which moves.
    const HERE: u64 = u64::MAX;
    let buffer = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let flags = u64::from(libc::RWF_NOWAIT.cast_unsigned());
    // SAFETY: the one buffer is writable for its length, and `buffer` outlives the call.
    let result = unsafe { raw(libc::SYS_preadv2, [fd(from), pointer(&raw const buffer), 1, HERE, 0, flags]) };
    match i32::try_from(-result) {
        Ok(libc::EAGAIN | libc::EINTR) => AtOnce::Unknown,
        Ok(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::EPERM) => AtOnce::Never,
        _ => AtOnce::Done(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::host::{pipe, write};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn of_a_pipe_there_is_what_was_written_then_nothing_and_then_the_end() {
        let [from, to] = pipe(0).expect("a pipe");
        assert_eq!(most_at_once(from.as_raw_fd()), usize::MAX);
        write(to.as_raw_fd(), b"crumbs", None);
        let mut bytes = [0; 100];
        let read = read_at_once(from.as_raw_fd(), &mut bytes);
        if matches!(read, AtOnce::Never) {
            eprintln!("skipped: this host's kernel does not read pipes so");
            return;
        }
        assert!(matches!(read, AtOnce::Done(6)) && bytes.starts_with(b"crumbs"));
        assert!(matches!(read_at_once(from.as_raw_fd(), &mut bytes), AtOnce::Unknown));
        drop(to);
        assert!(matches!(read_at_once(from.as_raw_fd(), &mut bytes), AtOnce::Done(0)));
    }

    #[test]
    fn regular_files_are_not_read_so_and_devices_by_the_page() {
        let own = File::open("/proc/self/exe").expect("a program has a file");
        assert_eq!(most_at_once(own.as_raw_fd()), 0);
        let zero = File::open("/dev/zero").expect("a device");
        assert_eq!(most_at_once(zero.as_raw_fd()), PAGE_LEN);
    }
}
