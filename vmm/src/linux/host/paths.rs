//! The host's calls that take a path and no directory. Each is given what the path leads to, opened only to be named.

use super::{fd, owned, pointer, raw};
use std::ffi::CStr;
use std::os::fd::{OwnedFd, RawFd};

/// inotify_init1; the descriptor is closed on exec.
pub(in crate::linux) fn inotify(flags: i32) -> Result<OwnedFd, i64> {
    let flags = crate::linux::word(i64::from(flags | libc::IN_CLOEXEC));
    // SAFETY: it takes no pointer.
    owned(unsafe { raw(libc::SYS_inotify_init1, [flags, 0, 0, 0, 0, 0]) })
}

/// inotify_add_watch.
pub(in crate::linux) fn watch(inotify: RawFd, path: &CStr, mask: u32) -> i64 {
    // SAFETY: the path is NUL-terminated.
    unsafe { raw(libc::SYS_inotify_add_watch, [fd(inotify), pointer(path.as_ptr()), mask.into(), 0, 0, 0]) }
}

/// inotify_rm_watch.
pub(in crate::linux) fn unwatch(inotify: RawFd, watch: i32) -> i64 {
    let watch = crate::linux::word(i64::from(watch));
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_inotify_rm_watch, [fd(inotify), watch, 0, 0, 0, 0]) }
}

/// What has extended attributes.
#[derive(Clone, Copy)]
pub(in crate::linux) enum Bearer<'a> {
    /// What a path leads to.
    Path(&'a CStr),
    /// An open file.
    File(RawFd),
}

impl Bearer<'_> {
    /// The call for it, and its first argument.
    fn call(self, by_path: i64, by_file: i64) -> (i64, u64) {
        match self {
            Bearer::Path(path) => (by_path, pointer(path.as_ptr())),
            Bearer::File(file) => (by_file, fd(file)),
        }
    }
}

/// getxattr.
pub(in crate::linux) fn attribute(of: Bearer<'_>, name: &CStr, value: &mut [u8]) -> i64 {
    let (number, of) = of.call(libc::SYS_getxattr, libc::SYS_fgetxattr);
    let (at, size) = (pointer(value.as_mut_ptr()), value.len() as u64);
    // SAFETY: path and name are NUL-terminated, the buffer is writable for its length.
    unsafe { raw(number, [of, pointer(name.as_ptr()), at, size, 0, 0]) }
}

/// setxattr.
pub(in crate::linux) fn set_attribute(of: Bearer<'_>, name: &CStr, value: &[u8], flags: i32) -> i64 {
    let (number, of) = of.call(libc::SYS_setxattr, libc::SYS_fsetxattr);
    let (at, size) = (pointer(value.as_ptr()), value.len() as u64);
    let flags = crate::linux::word(i64::from(flags));
    // SAFETY: path and name are NUL-terminated, the buffer is readable for its length.
    unsafe { raw(number, [of, pointer(name.as_ptr()), at, size, flags, 0]) }
}

/// listxattr.
pub(in crate::linux) fn attributes(of: Bearer<'_>, list: &mut [u8]) -> i64 {
    let (number, of) = of.call(libc::SYS_listxattr, libc::SYS_flistxattr);
    let (at, size) = (pointer(list.as_mut_ptr()), list.len() as u64);
    // SAFETY: the path is NUL-terminated, the buffer writable for its length.
    unsafe { raw(number, [of, at, size, 0, 0, 0]) }
}

/// removexattr.
pub(in crate::linux) fn remove_attribute(of: Bearer<'_>, name: &CStr) -> i64 {
    let (number, of) = of.call(libc::SYS_removexattr, libc::SYS_fremovexattr);
    // SAFETY: path and name are NUL-terminated.
    unsafe { raw(number, [of, pointer(name.as_ptr()), 0, 0, 0, 0]) }
}
