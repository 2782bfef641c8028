//! The host's system calls, each behind a safe function: pointers come from slices, results are the kernel's
//! (a value, or a negative error number).

pub(super) mod sockets;

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A raw system call.
///
/// # Safety
/// The call must be one that only uses memory through pointers in `arguments` that are valid for it.
pub(super) unsafe fn raw(number: i64, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's obligation.
    let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if value == -1 {
        -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    } else {
        value
    }
}

fn fd(descriptor: RawFd) -> u64 {
    super::word(i64::from(descriptor))
}

/// A pointer as an argument.
pub(super) fn pointer<T>(at: *const T) -> u64 {
    at.addr() as u64
}

/// openat; the descriptor is closed on exec. The links in /proc that lead to open files are not followed, and nothing that is
/// gretel's own in there is opened: ENOENT.
pub(super) fn open(directory: RawFd, path: &CStr, flags: i32, mode: u32) -> Result<OwnedFd, i64> {
    // openat ignores what openat2 refuses: a mode without a file to be made, bits it does not know, and with O_PATH most.
    let known = if flags & libc::O_PATH != 0 { PATH_FLAGS } else { KNOWN_FLAGS };
    let flags = flags & known;
    let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let how = [
        super::word(i64::from(flags | libc::O_CLOEXEC)),
        if makes { u64::from(mode) } else { 0 },
        libc::RESOLVE_NO_MAGICLINKS,
    ];
    // SAFETY: the path is NUL-terminated, `how` is a `struct open_how` of its first size; both outlive the call.
    let value = unsafe {
        let size = size_of_val(&how) as u64;
        raw(libc::SYS_openat2, [fd(directory), pointer(path.as_ptr()), pointer(how.as_ptr()), size, 0, 0])
    };
    match owned(value) {
        Ok(file) if super::own::is_hosts(&file) => Err(-i64::from(libc::ENOENT)),
        Err(error) if error == -i64::from(libc::ELOOP) && is_in_proc(path) => Err(-i64::from(libc::ENOENT)),
        opened => opened,
    }
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

fn is_in_proc(path: &CStr) -> bool {
    path.to_bytes().starts_with(b"/proc/")
}

/// Takes ownership of a descriptor that the kernel just made.
fn owned(value: i64) -> Result<OwnedFd, i64> {
    match RawFd::try_from(value) {
        // SAFETY: the kernel just gave this descriptor to us and nothing else owns it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(value),
    }
}

/// Opens what is open under a descriptor once more, to read it from its start.
pub(super) fn reopen_for_reading(file: RawFd) -> Result<OwnedFd, i64> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("no zero byte");
    let flags = super::word(i64::from(libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK));
    // SAFETY: the path is NUL-terminated and outlives the call.
    owned(unsafe { raw(libc::SYS_openat, [fd(libc::AT_FDCWD), pointer(path.as_ptr()), flags, 0, 0, 0]) })
}

/// The content of a program's file: a regular one that may be executed.
pub(super) fn executable(file: OwnedFd) -> Result<crate::gate::FileContent, i64> {
    use std::io::Read;
    let failed = |error: std::io::Error| -i64::from(error.raw_os_error().unwrap_or(libc::EIO));
    let mut file = std::fs::File::from(file);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(-i64::from(libc::EACCES));
    }
    let effective = super::word(i64::from(libc::AT_EACCESS | libc::AT_EMPTY_PATH));
    let mode = super::word(i64::from(libc::X_OK));
    // SAFETY: the path is a NUL-terminated literal.
    let allowed = unsafe {
        raw(libc::SYS_faccessat2, [fd(file.as_raw_fd()), pointer(c"".as_ptr()), mode, effective, 0, 0])
    };
    if allowed < 0 {
        return Err(allowed);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    super::exec::content_of(&file, bytes)
}

/// read, or pread at `offset`.
pub(super) fn read(from: RawFd, bytes: &mut [u8], offset: Option<i64>) -> i64 {
    let (number, offset) =
        offset.map_or((libc::SYS_read, 0), |offset| (libc::SYS_pread64, super::word(offset)));
    // SAFETY: the buffer is writable for its length.
    unsafe { raw(number, [fd(from), pointer(bytes.as_mut_ptr()), bytes.len() as u64, offset, 0, 0]) }
}

/// write, or pwrite at `offset`.
pub(super) fn write(to: RawFd, bytes: &[u8], offset: Option<i64>) -> i64 {
    let (number, offset) =
        offset.map_or((libc::SYS_write, 0), |offset| (libc::SYS_pwrite64, super::word(offset)));
    // SAFETY: the buffer is readable for its length.
    unsafe { raw(number, [fd(to), pointer(bytes.as_ptr()), bytes.len() as u64, offset, 0, 0]) }
}

/// pipe2.
pub(super) fn pipe(flags: i32) -> Result<[OwnedFd; 2], i64> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let flags = super::word(i64::from(flags | libc::O_CLOEXEC));
    // SAFETY: the kernel writes two descriptors into `ends`.
    let value = unsafe { raw(libc::SYS_pipe2, [pointer(ends.as_mut_ptr()), flags, 0, 0, 0, 0]) };
    if value < 0 {
        return Err(value);
    }
    Ok([owned(i64::from(ends[0]))?, owned(i64::from(ends[1]))?])
}

/// fcntl with a number as its argument.
pub(super) fn fcntl(descriptor: RawFd, command: i32, value: u64) -> i64 {
    // SAFETY: only commands that take no pointer are passed (see `files::fcntl`).
    unsafe { raw(libc::SYS_fcntl, [fd(descriptor), super::word(i64::from(command)), value, 0, 0, 0]) }
}

/// fcntl with a `struct flock` as its argument.
pub(super) fn fcntl_lock(descriptor: RawFd, command: i32, lock: &mut [u8; 32]) -> i64 {
    // SAFETY: the commands for locks read and write a `struct flock`, which has 32 bytes.
    unsafe {
        raw(
            libc::SYS_fcntl,
            [fd(descriptor), super::word(i64::from(command)), pointer(lock.as_mut_ptr()), 0, 0, 0],
        )
    }
}

/// ioctl with a pointer to `bytes`, whose length is that which the request reads or writes.
pub(super) fn ioctl(descriptor: RawFd, request: u64, bytes: &mut [u8]) -> i64 {
    // SAFETY: only the requests of `terminal::REQUESTS` and `network::requests` are passed, with a buffer of the size that
    // is listed there.
    unsafe { raw(libc::SYS_ioctl, [fd(descriptor), request, pointer(bytes.as_mut_ptr()), 0, 0, 0]) }
}

/// poll; `milliseconds` is negative to wait for ever.
pub(super) fn poll(files: &mut [libc::pollfd], milliseconds: i32) -> i64 {
    let timeout = super::word(i64::from(milliseconds));
    // SAFETY: the vector is writable for its length.
    unsafe { raw(libc::SYS_poll, [pointer(files.as_mut_ptr()), files.len() as u64, timeout, 0, 0, 0]) }
}

/// ppoll for so many nanoseconds.
pub(super) fn poll_for(files: &mut [libc::pollfd], nanoseconds: u64) -> i64 {
    const SECOND: u64 = 1_000_000_000;
    let mut limit = [nanoseconds / SECOND, nanoseconds % SECOND];
    let limit = pointer(limit.as_mut_ptr());
    // SAFETY: the vector is writable for its length, the time a `struct timespec`: two 64-bit words. There is no mask.
    unsafe { raw(libc::SYS_ppoll, [pointer(files.as_mut_ptr()), files.len() as u64, limit, 0, 0, 0]) }
}

/// Whether a read (POLLIN) or write (POLLOUT) of a file would wait: it may, and there is nothing to read or no room.
pub(super) fn would_wait(descriptor: RawFd, events: i16) -> bool {
    let may_wait = fcntl(descriptor, libc::F_GETFL, 0) & i64::from(libc::O_NONBLOCK) == 0;
    may_wait && poll(&mut [libc::pollfd { fd: descriptor, events, revents: 0 }], 0) == 0
}

/// Whether a descriptor is a pipe's.
pub(super) fn is_pipe(descriptor: RawFd) -> bool {
    fcntl(descriptor, libc::F_GETPIPE_SZ, 0) > 0
}

/// epoll_create1; the descriptor is closed on exec.
pub(super) fn epoll() -> Result<OwnedFd, i64> {
    let flags = super::word(i64::from(libc::EPOLL_CLOEXEC));
    // SAFETY: it takes no pointer.
    owned(unsafe { raw(libc::SYS_epoll_create1, [flags, 0, 0, 0, 0, 0]) })
}

/// epoll_ctl with a `struct epoll_event`.
pub(super) fn epoll_control(set: RawFd, operation: i32, file: RawFd, event: [u8; 12]) -> i64 {
    let operation = super::word(i64::from(operation));
    // SAFETY: the kernel reads one `struct epoll_event`, which has 12 bytes and no alignment.
    unsafe { raw(libc::SYS_epoll_ctl, [fd(set), operation, fd(file), pointer(event.as_ptr()), 0, 0]) }
}

/// epoll_wait without waiting: as many `struct epoll_event`s as there are, and as `events` has room for.
pub(super) fn epoll_wait(set: RawFd, events: &mut [u8]) -> i64 {
    let room = events.len() as u64 / 12;
    // SAFETY: the kernel writes at most `room` structures of 12 bytes. There is no mask.
    unsafe { raw(libc::SYS_epoll_pwait, [fd(set), pointer(events.as_mut_ptr()), room, 0, 0, 0]) }
}

/// eventfd2; the descriptor is closed on exec.
pub(super) fn eventfd(value: u32, flags: i32) -> Result<OwnedFd, i64> {
    let flags = super::word(i64::from(flags | libc::EFD_CLOEXEC));
    // SAFETY: it takes no pointer.
    owned(unsafe { raw(libc::SYS_eventfd2, [value.into(), flags, 0, 0, 0, 0]) })
}

/// clock_gettime: seconds and nanoseconds.
pub(super) fn clock(clock: i32) -> (i64, [u64; 2]) {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes a `struct timespec`: two 64-bit words.
    let value = unsafe {
        raw(libc::SYS_clock_gettime, [super::word(i64::from(clock)), pointer(time.as_mut_ptr()), 0, 0, 0, 0])
    };
    (value, time)
}

/// getrusage: the bytes of the `struct rusage`.
pub(super) fn rusage(who: i32) -> Result<Vec<u8>, i64> {
    let mut bytes = vec![0; size_of::<libc::rusage>()];
    // SAFETY: the kernel writes one `struct rusage`.
    let result = unsafe {
        raw(libc::SYS_getrusage, [super::word(i64::from(who)), pointer(bytes.as_mut_ptr()), 0, 0, 0, 0])
    };
    if result < 0 { Err(result) } else { Ok(bytes) }
}

/// Where a write to a regular file begins: at `offset`, its position, or its end. EINVAL for another kind of file.
pub(super) fn position_in_regular(file: RawFd, offset: Option<i64>) -> i64 {
    // SAFETY: all zero is a `struct stat`.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `struct stat`.
    let result = unsafe { raw(libc::SYS_fstat, [fd(file), pointer(&raw mut status), 0, 0, 0, 0]) };
    if result < 0 || status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return -i64::from(libc::EINVAL);
    }
    let appends = fcntl(file, libc::F_GETFL, 0) & i64::from(libc::O_APPEND) != 0;
    match offset {
        _ if appends => status.st_size,
        Some(offset) => offset,
        // SAFETY: lseek takes plain numbers.
        None => unsafe { raw(libc::SYS_lseek, [fd(file), 0, super::word(libc::SEEK_CUR.into()), 0, 0, 0]) },
    }
}

/// Fills `bytes` with random bytes.
pub(super) fn random(bytes: &mut [u8]) -> i64 {
    // SAFETY: the buffer is writable for its length.
    unsafe { raw(libc::SYS_getrandom, [pointer(bytes.as_mut_ptr()), bytes.len() as u64, 0, 0, 0, 0]) }
}

/// fstat: the device, the file's number, its mode, the device that it is, its size.
pub(super) fn stat(file: RawFd) -> Result<[u64; 5], i64> {
    let mut bytes = [0_u8; size_of::<libc::stat>()];
    // SAFETY: the kernel writes one `struct stat`.
    let result = unsafe { raw(libc::SYS_fstat, [fd(file), pointer(bytes.as_mut_ptr()), 0, 0, 0, 0]) };
    if result < 0 {
        return Err(result);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Ok([word(0), word(8), word(24) & 0xffff_ffff, word(40), word(48)])
}

/// lseek.
pub(super) fn seek(file: RawFd, offset: i64, whence: i32) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_lseek, [fd(file), super::word(offset), super::word(i64::from(whence)), 0, 0, 0]) }
}

/// memfd_create; the descriptor is closed on exec.
pub(super) fn memfd(name: &CStr, flags: u32) -> Result<OwnedFd, i64> {
    let flags = u64::from(flags | libc::MFD_CLOEXEC);
    // SAFETY: the name is NUL-terminated and outlives the call.
    owned(unsafe { raw(libc::SYS_memfd_create, [pointer(name.as_ptr()), flags, 0, 0, 0, 0]) })
}

/// Opens what is open under a descriptor once more, to write anywhere in it.
pub(super) fn reopen_for_writing(file: RawFd) -> Result<OwnedFd, i64> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("no zero byte");
    let flags = super::word(i64::from(libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK));
    // SAFETY: the path is NUL-terminated and outlives the call.
    let opened =
        owned(unsafe { raw(libc::SYS_openat, [fd(libc::AT_FDCWD), pointer(path.as_ptr()), flags, 0, 0, 0]) });
    opened.or_else(|_| owned(fcntl(file, libc::F_DUPFD_CLOEXEC, 0)))
}

/// What a symbolic link in /proc/self/fd says.
pub(super) fn path_of(descriptor: &impl AsRawFd) -> Result<Vec<u8>, i64> {
    use std::os::unix::ffi::OsStringExt;
    match std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())) {
        Ok(path) => Ok(path.into_os_string().into_vec()),
        Err(error) => Err(-i64::from(error.raw_os_error().unwrap_or(libc::EIO))),
    }
}

/// ftruncate.
pub(super) fn truncate(file: RawFd, length: u64) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_ftruncate, [fd(file), length, 0, 0, 0, 0]) }
}

/// fdatasync.
pub(super) fn sync_data(file: RawFd) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_fdatasync, [fd(file), 0, 0, 0, 0, 0]) }
}

/// Makes a hole in a file.
pub(super) fn punch(file: RawFd, offset: u64, length: u64) -> i64 {
    let mode = super::word(i64::from(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE));
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_fallocate, [fd(file), mode, offset, length, 0, 0]) }
}

/// fstatfs: its result, and the bytes of the `struct statfs`.
pub(super) fn statfs(file: RawFd) -> (i64, Vec<u8>) {
    let mut bytes = vec![0; size_of::<libc::statfs>()];
    // SAFETY: the kernel writes one `struct statfs`.
    let result = unsafe { raw(libc::SYS_fstatfs, [fd(file), pointer(bytes.as_mut_ptr()), 0, 0, 0, 0]) };
    (result, bytes)
}
