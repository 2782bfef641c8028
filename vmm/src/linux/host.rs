//! The host's system calls, each behind a safe function: pointers come from slices, results are the kernel's
//! (a value, or a negative error number).

mod at_once;
mod devices;
pub(super) mod inherited;
pub(super) mod opening;
pub(super) mod paths;
pub(super) mod pipes;
mod rights;
pub(super) mod sockets;

use crate::host::room_for_files;
pub(super) use at_once::{AtOnce, most_at_once, read_at_once};
pub(super) use opening::{
    by_name, file_system, is_proc, look_up, name_of_open, open, open_again, open_by, open_ready, read_link,
};
pub(super) use rights::act_as;
use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Once;

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

/// Takes ownership of a descriptor that the kernel just made.
fn just_made(value: i64) -> Result<OwnedFd, i64> {
    match RawFd::try_from(value) {
        // SAFETY: the kernel just gave this descriptor to us and nothing else owns it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(value),
    }
}

/// The same, for a file of the program's: ENFILE where only gretel's own files have room.
fn owned(value: i64) -> Result<OwnedFd, i64> {
    match just_made(value) {
        Ok(file) if file.as_raw_fd() >= room_for_files() => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    "all files are open that this process may have (`ulimit -n`): the program is told ENFILE"
                );
            });
            Err(-i64::from(libc::ENFILE))
        }
        made => made,
    }
}

/// Two at once, of which none is left open if one is not to be had.
fn both(ends: [i32; 2]) -> Result<[OwnedFd; 2], i64> {
    let [one, other] = ends.map(|end| owned(i64::from(end)));
    Ok([one?, other?])
}

/// Opens what is open under a descriptor once more, to read it from its start.
pub(super) fn reopen_for_reading(file: RawFd) -> Result<OwnedFd, i64> {
    reopen(file, libc::O_RDONLY | libc::O_NONBLOCK)
}

/// That a file is a regular one that may be executed.
pub(super) fn check_executable(file: &std::fs::File) -> Result<(), i64> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(-i64::from(libc::EACCES));
    }
    // SAFETY: it takes no pointer; for this user, it only asks.
    let user = unsafe { raw(libc::SYS_setfsuid, [u32::MAX.into(), 0, 0, 0, 0, 0]) };
    if metadata.mode() & libc::S_ISUID != 0 && i64::from(metadata.uid()) != user {
        tracing::warn!(
            "the set-user-id bit of a program of user {} is not supported: it has no effect",
            metadata.uid()
        );
    }
    match may(file.as_raw_fd(), libc::X_OK) {
        error if error < 0 => Err(error),
        _ => Ok(()),
    }
}

/// The content of a program's file.
pub(super) fn program(mut file: std::fs::File) -> Result<crate::gate::FileContent, i64> {
    use std::io::Read;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    super::exec::content_of(&file, bytes)
}

/// The kernel's number of an error.
fn failed(error: std::io::Error) -> i64 {
    -i64::from(error.raw_os_error().unwrap_or(libc::EIO))
}

/// What the memory of a transfer without the page cache is aligned to, for any file system.
const ALIGNED: usize = 4096;

/// Whether a transfer failed because the memory was not aligned as O_DIRECT wants it. The guest's own memory may have been.
fn wants_alignment(result: i64, file: RawFd, bytes: &[u8]) -> bool {
    result == -i64::from(libc::EINVAL)
        && bytes.as_ptr().align_offset(ALIGNED) != 0
        && fcntl(file, libc::F_GETFL, 0) & i64::from(libc::O_DIRECT) != 0
}

/// read, or pread at `offset`.
pub(super) fn read(from: RawFd, bytes: &mut [u8], offset: Option<i64>) -> i64 {
    let result = read_into(from, bytes, offset);
    if !wants_alignment(result, from, bytes) {
        return result;
    }
    let mut room = vec![0; bytes.len() + ALIGNED];
    let start = room.as_ptr().align_offset(ALIGNED);
    let aligned = &mut room[start..start + bytes.len()];
    let result = read_into(from, aligned, offset);
    bytes.copy_from_slice(aligned);
    result
}

fn read_into(from: RawFd, bytes: &mut [u8], offset: Option<i64>) -> i64 {
    let (number, offset) =
        offset.map_or((libc::SYS_read, 0), |offset| (libc::SYS_pread64, super::word(offset)));
    // SAFETY: the buffer is writable for its length.
    unsafe { raw(number, [fd(from), pointer(bytes.as_mut_ptr()), bytes.len() as u64, offset, 0, 0]) }
}

/// write, or pwrite at `offset`.
pub(super) fn write(to: RawFd, bytes: &[u8], offset: Option<i64>) -> i64 {
    let result = write_from(to, bytes, offset);
    if !wants_alignment(result, to, bytes) {
        return result;
    }
    let mut room = vec![0; bytes.len() + ALIGNED];
    let start = room.as_ptr().align_offset(ALIGNED);
    let aligned = &mut room[start..start + bytes.len()];
    aligned.copy_from_slice(bytes);
    write_from(to, aligned, offset)
}

fn write_from(to: RawFd, bytes: &[u8], offset: Option<i64>) -> i64 {
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
    both(ends)
}

/// fcntl with a number as its argument.
pub(super) fn fcntl(descriptor: RawFd, command: i32, value: u64) -> i64 {
    // SAFETY: only commands that take no pointer are passed (see `files::fcntl`).
    unsafe { raw(libc::SYS_fcntl, [fd(descriptor), super::word(i64::from(command)), value, 0, 0, 0]) }
}

/// fcntl with a hint about the life of what is written (F_GET_RW_HINT and its kin).
pub(super) fn fcntl_hint(descriptor: RawFd, command: i32, hint: &mut [u8; 8]) -> i64 {
    let command = super::word(i64::from(command));
    // SAFETY: these commands read or write one word of 64 bits.
    unsafe { raw(libc::SYS_fcntl, [fd(descriptor), command, pointer(hint.as_mut_ptr()), 0, 0, 0]) }
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
    // SAFETY: only the requests of `terminal::REQUESTS`, `network::requests` and `reflink` are passed, with a buffer of the size
    // that is listed there.
    unsafe { raw(libc::SYS_ioctl, [fd(descriptor), request, pointer(bytes.as_mut_ptr()), 0, 0, 0]) }
}

/// ioctl with a number as its argument.
pub(super) fn ioctl_value(descriptor: RawFd, request: u64, value: i32) -> i64 {
    // SAFETY: only the requests of `terminal::REQUESTS` and `reflink` that take a number are passed.
    unsafe { raw(libc::SYS_ioctl, [fd(descriptor), request, super::word(i64::from(value)), 0, 0, 0]) }
}

/// The process group in the foreground of gretel's own terminal; zero if that is gretel's.
pub(super) fn other_foreground(terminal: RawFd) -> i32 {
    // SAFETY: these calls take no pointer; they cannot fail for a terminal of the session, and -1 is told as nobody.
    let (foreground, own) = unsafe { (libc::tcgetpgrp(terminal), libc::getpgrp()) };
    if foreground == own { 0 } else { foreground.max(0) }
}

/// Opens the slave of a pseudo-terminal; it is nobody's controlling terminal by that.
pub(super) fn open_peer(master: RawFd, flags: i32) -> Result<OwnedFd, i64> {
    let flags = super::word(i64::from(flags | libc::O_NOCTTY | libc::O_CLOEXEC));
    // SAFETY: the argument is a number.
    owned(unsafe { raw(libc::SYS_ioctl, [fd(master), libc::TIOCGPTPEER, flags, 0, 0, 0]) })
}

/// poll without waiting. Where nothing is ready and a signal is on its way, the host tells of that instead; it is asked again.
pub(super) fn poll(files: &mut [libc::pollfd]) -> i64 {
    loop {
        // SAFETY: the vector is writable for its length.
        let ready =
            unsafe { raw(libc::SYS_poll, [pointer(files.as_mut_ptr()), files.len() as u64, 0, 0, 0, 0]) };
        if ready != -i64::from(libc::EINTR) {
            return ready;
        }
    }
}

/// ppoll for so many nanoseconds.
pub(super) fn poll_for(files: &mut [libc::pollfd], nanoseconds: u64) -> i64 {
    const SECOND: u64 = 1_000_000_000;
    let mut limit = [nanoseconds / SECOND, nanoseconds % SECOND];
    let limit = pointer(limit.as_mut_ptr());
    // SAFETY: the vector is writable for its length, the time a `struct timespec`: two 64-bit words. There is no mask.
    unsafe { raw(libc::SYS_ppoll, [pointer(files.as_mut_ptr()), files.len() as u64, limit, 0, 0, 0]) }
}

/// Whether a read (POLLIN) or write (POLLOUT) of a file would wait: it may, and there is nothing to read or no room. What is not open
/// for that fails at once.
pub(super) fn would_wait(descriptor: RawFd, events: i16) -> bool {
    if poll(&mut [libc::pollfd { fd: descriptor, events, revents: 0 }]) != 0 {
        return false;
    }
    let flags = fcntl(descriptor, libc::F_GETFL, 0);
    let other_way = if events == libc::POLLIN { libc::O_WRONLY } else { libc::O_RDONLY };
    let is_open_for_it = flags & i64::from(libc::O_ACCMODE) != i64::from(other_way);
    let waits = is_open_for_it && flags & i64::from(libc::O_NONBLOCK) == 0;
    // Of a FIFO that nobody has opened to write, poll says nothing, and a read finds the end.
    waits && (events != libc::POLLIN || !is_pipe(descriptor) || has_writer(descriptor))
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
    let word = status(file)?;
    Ok([word(0), word(8), word(24) & 0xffff_ffff, word(40), word(48)])
}

/// The user whose file it is.
pub(super) fn owner(file: RawFd) -> Result<u64, i64> {
    Ok(status(file)?(24) >> 32)
}

/// fstat: the words of its `struct stat`, by where they lie.
fn status(file: RawFd) -> Result<impl Fn(usize) -> u64, i64> {
    let mut bytes = [0_u8; size_of::<libc::stat>()];
    // SAFETY: the kernel writes one `struct stat`.
    let result = unsafe { raw(libc::SYS_fstat, [fd(file), pointer(bytes.as_mut_ptr()), 0, 0, 0, 0]) };
    if result < 0 {
        return Err(result);
    }
    Ok(move |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

/// Whether this thread may do so with a file (R_OK and its kin).
pub(super) fn may(file: RawFd, mode: i32) -> i64 {
    let effective = super::word(i64::from(libc::AT_EACCESS | libc::AT_EMPTY_PATH));
    let mode = super::word(i64::from(mode));
    // SAFETY: the path is a NUL-terminated literal.
    unsafe { raw(libc::SYS_faccessat2, [fd(file), pointer(c"".as_ptr()), mode, effective, 0, 0]) }
}

/// lseek.
pub(super) fn seek(file: RawFd, offset: i64, whence: i32) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_lseek, [fd(file), super::word(offset), super::word(i64::from(whence)), 0, 0, 0]) }
}

/// Where a part of a file holds data, as far as its file system says; its position stays.
pub(super) fn data(file: RawFd, part: Range<u64>) -> Result<Vec<Range<u64>>, i64> {
    let position = seek(file, 0, libc::SEEK_CUR);
    let find = |at: u64, whence| match seek(file, i64::try_from(at).unwrap_or(i64::MAX), whence) {
        found if found == -i64::from(libc::ENXIO) => Ok(part.end),
        found => u64::try_from(found).map(|found| found.min(part.end)).map_err(|_| found),
    };
    let mut runs = Vec::new();
    let mut at = part.start;
    let complete = loop {
        let run = find(at, libc::SEEK_DATA).and_then(|start| Ok(start..find(start, libc::SEEK_HOLE)?));
        match run {
            Ok(run) if run.is_empty() => break Ok(runs),
            Ok(run) => {
                at = run.end;
                runs.push(run);
            }
            Err(error) => break Err(error),
        }
    };
    seek(file, position, libc::SEEK_SET);
    complete
}

/// memfd_create; the descriptor is closed on exec.
pub(super) fn memfd(name: &CStr, flags: u32) -> Result<OwnedFd, i64> {
    let flags = u64::from(flags | libc::MFD_CLOEXEC);
    // SAFETY: the name is NUL-terminated and outlives the call.
    owned(unsafe { raw(libc::SYS_memfd_create, [pointer(name.as_ptr()), flags, 0, 0, 0, 0]) })
}

/// Opens what is open under a descriptor once more, to write anywhere in it.
pub(super) fn reopen_for_writing(file: RawFd) -> Result<OwnedFd, i64> {
    reopen(file, libc::O_RDWR | libc::O_NONBLOCK).or_else(|_| owned(fcntl(file, libc::F_DUPFD_CLOEXEC, 0)))
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

/// Whether a path names a FIFO, as openat would follow it.
pub(super) fn is_fifo(directory: RawFd, path: &CStr, follow: bool) -> bool {
    let mut bytes = [0_u8; size_of::<libc::stat>()];
    let flags = super::word(i64::from(if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }));
    let at = pointer(bytes.as_mut_ptr());
    // SAFETY: the path is NUL-terminated, and the kernel writes one `struct stat`; both outlive the call.
    let result =
        unsafe { raw(libc::SYS_newfstatat, [fd(directory), pointer(path.as_ptr()), at, flags, 0, 0]) };
    let mode = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
    result == 0 && mode & libc::S_IFMT == libc::S_IFIFO
}

/// Opens what is open under a descriptor once more.
pub(super) fn reopen(file: RawFd, flags: i32) -> Result<OwnedFd, i64> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{file}")).expect("no zero byte");
    let flags = super::word(i64::from(flags | libc::O_CLOEXEC));
    // SAFETY: the path is NUL-terminated and outlives the call.
    owned(unsafe { raw(libc::SYS_openat, [fd(libc::AT_FDCWD), pointer(path.as_ptr()), flags, 0, 0, 0]) })
}

/// Whether a pipe or FIFO that is open for reading has, or has had since then, one who writes. Poll does not tell of one who has
/// written nothing; tee does, as it fails instead of finding the end, and takes nothing out.
pub(super) fn has_writer(fifo: RawFd) -> bool {
    if poll(&mut [libc::pollfd { fd: fifo, events: libc::POLLIN, revents: 0 }]) != 0 {
        return true;
    }
    let Ok([_from, to]) = pipe(libc::O_NONBLOCK) else { return true };
    let flags = u64::from(libc::SPLICE_F_NONBLOCK);
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_tee, [fd(fifo), fd(to.as_raw_fd()), 1, flags, 0, 0]) != 0 }
}

/// flock.
pub(super) fn flock(file: RawFd, operation: i32) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_flock, [fd(file), super::word(i64::from(operation)), 0, 0, 0, 0]) }
}
