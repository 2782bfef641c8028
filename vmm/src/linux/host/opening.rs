//! Opening what a path leads to: over no link of /proc to what gretel has open, and nothing that is gretel's own in there.

use super::devices;
use super::{fd, just_made, owned, pointer, raw, statfs};
use crate::linux::proc::Place;
use crate::linux::word;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// openat; the descriptor is closed on exec. The links in /proc that lead to open files are not followed, and nothing in
/// there is opened: ENOENT. Nor are devices to which one writes addresses ([`devices`]).
pub(in crate::linux) fn open(directory: RawFd, path: &CStr, flags: i32, mode: u32) -> Result<OwnedFd, i64> {
    // openat ignores what openat2 refuses: a mode without a file to be made, bits it does not know, and with O_PATH most.
    let known = if flags & libc::O_PATH != 0 { PATH_FLAGS } else { KNOWN_FLAGS };
    // A terminal that the guest opens does not become gretel's own.
    let flags = flags & known | if flags & libc::O_PATH == 0 { libc::O_NOCTTY } else { 0 };
    let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let how = [
        word(i64::from(flags | libc::O_CLOEXEC)),
        if makes { u64::from(mode) } else { 0 },
        libc::RESOLVE_NO_MAGICLINKS,
    ];
    // SAFETY: the path is NUL-terminated, `how` is a `struct open_how` of its first size; both outlive the call.
    let value = unsafe {
        let size = size_of_val(&how) as u64;
        raw(libc::SYS_openat2, [fd(directory), pointer(path.as_ptr()), pointer(how.as_ptr()), size, 0, 0])
    };
    match owned(value) {
        // Whatever was put in its way since the path was looked up.
        Ok(file) if is_proc(file.as_raw_fd()) => Err(-i64::from(libc::ENOENT)),
        Ok(file) if flags & libc::O_PATH == 0 => devices::plain(file),
        opened => opened,
    }
}

/// Opens a file that poll always shows as ready for all: no device is that and can be in a set of epoll. It is the one file of the host's
/// /proc that stands for a guest's, which has no call by which it could read it; it would say what uname does.
pub(in crate::linux) fn open_ready(flags: i32) -> Result<OwnedFd, i64> {
    let flags = word(i64::from(flags | libc::O_CLOEXEC));
    // SAFETY: the path is NUL-terminated and outlives the call.
    owned(unsafe {
        raw(libc::SYS_openat, [fd(libc::AT_FDCWD), pointer(c"/proc/version".as_ptr()), flags, 0, 0, 0])
    })
}

/// So often a path is tried again that something else was renamed under.
const MOST_RACES: usize = 16;

/// openat2 with these flags, mode and rules; links of /proc to open files are not followed, and nothing in a /proc is opened: ENOENT.
pub(in crate::linux) fn open_by(directory: RawFd, path: &CStr, how: [u64; 3]) -> Result<OwnedFd, i64> {
    let missing = -i64::from(libc::ENOENT);
    let [flags, mode, rules] = how;
    let how = [flags | word(i64::from(libc::O_CLOEXEC)), mode, rules | libc::RESOLVE_NO_MAGICLINKS];
    let open = || {
        // SAFETY: the path is NUL-terminated, `how` is a `struct open_how` of its first size; both outlive the call.
        owned(unsafe {
            let size = size_of_val(&how) as u64;
            raw(libc::SYS_openat2, [fd(directory), pointer(path.as_ptr()), pointer(how.as_ptr()), size, 0, 0])
        })
    };
    // With rules, a way over `..` is to be tried again while somewhere in the system something is renamed (openat2(2)).
    let again =
        |opened: &Result<OwnedFd, i64>| matches!(opened, Err(error) if *error == -i64::from(libc::EAGAIN));
    let opened = (0..MOST_RACES).map(|_| open()).find(|opened| !again(opened)).unwrap_or_else(open);
    match opened {
        Ok(file) if is_proc(file.as_raw_fd()) => Err(missing),
        Ok(file) if flags & word(libc::O_PATH.into()) == 0 => devices::plain(file),
        Err(error) if error == -i64::from(libc::ELOOP) && rules & libc::RESOLVE_NO_SYMLINKS == 0 => {
            Err(missing)
        }
        opened => opened,
    }
}

/// Opens a path only to know what it leads to, over no link of /proc to what is open; the flags are O_NOFOLLOW and O_DIRECTORY.
pub(in crate::linux) fn look_up(directory: RawFd, path: &CStr, flags: i32) -> Result<OwnedFd, i64> {
    let flags = flags | libc::O_PATH | libc::O_CLOEXEC;
    let how = [word(i64::from(flags)), 0, libc::RESOLVE_NO_MAGICLINKS];
    // SAFETY: the path is NUL-terminated, `how` is a `struct open_how` of its first size; both outlive the call.
    just_made(unsafe {
        let size = size_of_val(&how) as u64;
        raw(libc::SYS_openat2, [fd(directory), pointer(path.as_ptr()), pointer(how.as_ptr()), size, 0, 0])
    })
}

/// Calls with a name of what a path leads to, which is opened only for that: for calls that take no directory. `kept`: a link at the
/// path's end is meant itself.
pub(in crate::linux) fn by_name(place: &Place, kept: bool, mut call: impl FnMut(&CStr) -> i64) -> i64 {
    match place {
        Place::Host(directory, path) => {
            match look_up(*directory, path, if kept { libc::O_NOFOLLOW } else { 0 }) {
                Ok(file) if is_proc(file.as_raw_fd()) => -i64::from(libc::ENOENT),
                Ok(file) => call(&name_of_open(file.as_raw_fd())),
                Err(error) => error,
            }
        }
        Place::Open(file) => call(&name_of_open(file.host())),
        Place::Proc(_) => -i64::from(libc::ENOENT),
    }
}

/// The kind of file system that a file is in.
pub(in crate::linux) fn file_system(file: RawFd) -> Option<i64> {
    let (result, bytes) = statfs(file);
    let kind = bytes.first_chunk().map(|kind| i64::from_le_bytes(*kind));
    kind.filter(|_| result >= 0)
}

/// Whether a file is in a /proc.
pub(in crate::linux) fn is_proc(file: RawFd) -> bool {
    file_system(file) == Some(libc::PROC_SUPER_MAGIC)
}

/// Where the symbolic link leads that is open itself (O_PATH and O_NOFOLLOW); `None` for another file.
pub(in crate::linux) fn read_link(link: RawFd) -> Option<Vec<u8>> {
    let mut target = vec![0; 4096];
    let to = pointer(target.as_mut_ptr());
    // SAFETY: the path is a NUL-terminated literal, the buffer writable for its length.
    let length = unsafe {
        raw(libc::SYS_readlinkat, [fd(link), pointer(c"".as_ptr()), to, target.len() as u64, 0, 0])
    };
    target.truncate(usize::try_from(length).ok()?);
    Some(target)
}

/// The name under which the kernel gives what is open once more.
pub(in crate::linux) fn name_of_open(file: RawFd) -> std::ffi::CString {
    std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("no zero byte")
}

/// Another descriptor for the same open file, closed on exec.
pub(in crate::linux) fn again(file: RawFd) -> Result<OwnedFd, i64> {
    owned(super::fcntl(file, libc::F_DUPFD_CLOEXEC, 0))
}

/// Opens what is open under a descriptor once more, as a path in /proc/self/fd does.
pub(in crate::linux) fn open_again(file: RawFd, flags: i32, mode: u32) -> Result<OwnedFd, i64> {
    let path = name_of_open(file);
    let flags = word(i64::from(flags | libc::O_CLOEXEC));
    // SAFETY: the path is NUL-terminated and outlives the call.
    owned(unsafe {
        raw(libc::SYS_openat, [fd(libc::AT_FDCWD), pointer(path.as_ptr()), flags, u64::from(mode), 0, 0])
    })
}

const PATH_FLAGS: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// What openat knows.
const KNOWN_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_TMPFILE;
