//! Descriptors that gretel was started with.

use super::raw;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of a descriptor that stays open behind an exec; it does so no longer. `None` if it is not open, or was taken before,
/// and for what a program may not open.
pub(in crate::linux) fn take(number: u32) -> Option<OwnedFd> {
    let descriptor = RawFd::try_from(number).ok()?;
    let close_on_exec = i64::from(libc::FD_CLOEXEC);
    let flags = super::fcntl(descriptor, libc::F_GETFD, 0);
    if flags < 0 || flags & close_on_exec != 0 {
        return None;
    }
    super::fcntl(descriptor, libc::F_SETFD, super::super::word(flags | close_on_exec));
    // SAFETY: nothing here owns it. All that Rust and our libraries open is closed by an exec, so it came from outside; and who
    // took it before us would have marked it.
    super::devices::plain(unsafe { OwnedFd::from_raw_fd(descriptor) }).ok()
}

/// Whether two descriptors are the same open file. Where the kernel cannot compare, they are not.
pub(in crate::linux) fn is_same(one: u32, other: u32) -> bool {
    const KCMP_FILE: u64 = 0;
    let own = u64::from(std::process::id());
    // SAFETY: this comparison takes no pointer.
    let order = unsafe { raw(libc::SYS_kcmp, [own, own, KCMP_FILE, one.into(), other.into(), 0]) };
    order == 0
}
