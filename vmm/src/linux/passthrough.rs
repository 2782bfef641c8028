//! The system calls that the host serves as they are, once descriptors, paths and buffers are translated: a
//! table of what each argument is.

use super::own::{self, Own};
use super::{Guest, Kernel, Served, host, int};
use crate::gate::{Input, MemoryWrite};
use crate::memory::space::Access;
use crate::ram::Virt;
use std::ffi::CString;
use std::os::fd::RawFd;

/// Where an argument of the host's call comes from. Numbers are the guest's arguments, counted from zero.
#[derive(Clone, Copy)]
enum Source {
    /// Passed on as it is.
    Value(usize),
    /// The rights of a new file: those of the umask are taken away.
    Mode(usize),
    /// The same, with these bits.
    With(usize, u64),
    /// Always this.
    Constant(u64),
    /// A descriptor.
    File(usize),
    /// The directory argument of an `*at` call.
    Directory(usize),
    /// The working directory, for calls that take none.
    WorkingDirectory,
    /// A path; a null pointer is passed on.
    Path(usize),
    /// The same, of a file that is only asked about: it may be the link to the program's own.
    Asked(usize),
    /// A pointer to this many bytes that the host reads; may be null.
    In(usize, usize),
    /// A pointer to this many bytes that the host writes if it succeeds; may be null.
    Out(usize, usize),
    /// A pointer, and the argument with its length: the host writes as many bytes as its result says.
    Buffer(usize, usize),
    /// The length of the buffer at this pointer argument, as it was cut to what is accessible.
    LengthOf(usize),
}

use Source::{
    Asked, Buffer, Constant, Directory, File, In, LengthOf, Mode, Out, Path, Value, With, WorkingDirectory,
};

/// A call of the guest and the host's call for it.
struct Pass {
    guest: i64,
    host: i64,
    arguments: &'static [Source],
}

const fn pass(guest: i64, host: i64, arguments: &'static [Source]) -> Pass {
    Pass { guest, host, arguments }
}

/// The longest buffer that is passed on; the calls in question may return less than was asked for.
const LONGEST: u64 = 1 << 20;

const STAT: usize = size_of::<libc::stat>();
const STATX: usize = size_of::<libc::statx>();
const STATFS: usize = size_of::<libc::statfs>();
const TIMES: usize = 2 * size_of::<libc::timespec>();
/// This thread is the one who asks ([`super::users`]), as whom its effective user does.
const EACCESS: u64 = libc::AT_EACCESS as u64;
const EFFECTIVE: Source = Constant(EACCESS);
const NO_FOLLOW: Source = Constant(libc::AT_SYMLINK_NOFOLLOW as u64);

/// Sizes and positions here are what makes the call in [`call`] safe.
const TABLE: &[Pass] = &[
    pass(libc::SYS_stat, libc::SYS_newfstatat, &[WorkingDirectory, Asked(0), Out(1, STAT), Constant(0)]),
    pass(libc::SYS_lstat, libc::SYS_newfstatat, &[WorkingDirectory, Path(0), Out(1, STAT), NO_FOLLOW]),
    pass(libc::SYS_fstat, libc::SYS_fstat, &[File(0), Out(1, STAT)]),
    pass(libc::SYS_newfstatat, libc::SYS_newfstatat, &[Directory(0), Asked(1), Out(2, STAT), Value(3)]),
    pass(libc::SYS_statx, libc::SYS_statx, &[Directory(0), Asked(1), Value(2), Value(3), Out(4, STATX)]),
    pass(libc::SYS_fstatfs, libc::SYS_fstatfs, &[File(0), Out(1, STATFS)]),
    pass(libc::SYS_access, libc::SYS_faccessat2, &[WorkingDirectory, Asked(0), Value(1), EFFECTIVE]),
    pass(libc::SYS_faccessat, libc::SYS_faccessat2, &[Directory(0), Asked(1), Value(2), EFFECTIVE]),
    pass(libc::SYS_faccessat2, libc::SYS_faccessat2, &[Directory(0), Asked(1), Value(2), With(3, EACCESS)]),
    pass(libc::SYS_lseek, libc::SYS_lseek, &[File(0), Value(1), Value(2)]),
    pass(libc::SYS_ftruncate, libc::SYS_ftruncate, &[File(0), Value(1)]),
    pass(libc::SYS_fallocate, libc::SYS_fallocate, &[File(0), Value(1), Value(2), Value(3)]),
    pass(libc::SYS_fadvise64, libc::SYS_fadvise64, &[File(0), Value(1), Value(2), Value(3)]),
    pass(libc::SYS_fsync, libc::SYS_fsync, &[File(0)]),
    pass(libc::SYS_fdatasync, libc::SYS_fdatasync, &[File(0)]),
    pass(libc::SYS_sync, libc::SYS_sync, &[]),
    pass(libc::SYS_syncfs, libc::SYS_syncfs, &[File(0)]),
    pass(libc::SYS_sync_file_range, libc::SYS_sync_file_range, &[File(0), Value(1), Value(2), Value(3)]),
    pass(libc::SYS_readahead, libc::SYS_readahead, &[File(0), Value(1), Value(2)]),
    pass(libc::SYS_getdents, libc::SYS_getdents, &[File(0), Buffer(1, 2), LengthOf(1)]),
    pass(libc::SYS_getdents64, libc::SYS_getdents64, &[File(0), Buffer(1, 2), LengthOf(1)]),
    pass(libc::SYS_mkdir, libc::SYS_mkdirat, &[WorkingDirectory, Path(0), Mode(1)]),
    pass(libc::SYS_mkdirat, libc::SYS_mkdirat, &[Directory(0), Path(1), Mode(2)]),
    pass(libc::SYS_mknod, libc::SYS_mknodat, &[WorkingDirectory, Path(0), Mode(1), Value(2)]),
    pass(libc::SYS_mknodat, libc::SYS_mknodat, &[Directory(0), Path(1), Mode(2), Value(3)]),
    pass(libc::SYS_unlink, libc::SYS_unlinkat, &[WorkingDirectory, Path(0), Constant(0)]),
    pass(
        libc::SYS_rmdir,
        libc::SYS_unlinkat,
        &[WorkingDirectory, Path(0), Constant(libc::AT_REMOVEDIR as u64)],
    ),
    pass(libc::SYS_unlinkat, libc::SYS_unlinkat, &[Directory(0), Path(1), Value(2)]),
    pass(libc::SYS_rename, libc::SYS_renameat, &[WorkingDirectory, Path(0), WorkingDirectory, Path(1)]),
    pass(libc::SYS_renameat, libc::SYS_renameat, &[Directory(0), Path(1), Directory(2), Path(3)]),
    pass(libc::SYS_renameat2, libc::SYS_renameat2, &[Directory(0), Path(1), Directory(2), Path(3), Value(4)]),
    pass(
        libc::SYS_link,
        libc::SYS_linkat,
        &[WorkingDirectory, Path(0), WorkingDirectory, Path(1), Constant(0)],
    ),
    pass(libc::SYS_linkat, libc::SYS_linkat, &[Directory(0), Path(1), Directory(2), Path(3), Value(4)]),
    pass(libc::SYS_symlink, libc::SYS_symlinkat, &[Path(0), WorkingDirectory, Path(1)]),
    pass(libc::SYS_symlinkat, libc::SYS_symlinkat, &[Path(0), Directory(1), Path(2)]),
    pass(libc::SYS_readlink, libc::SYS_readlinkat, &[WorkingDirectory, Path(0), Buffer(1, 2), LengthOf(1)]),
    pass(libc::SYS_readlinkat, libc::SYS_readlinkat, &[Directory(0), Path(1), Buffer(2, 3), LengthOf(2)]),
    pass(libc::SYS_chmod, libc::SYS_fchmodat, &[WorkingDirectory, Path(0), Value(1)]),
    pass(libc::SYS_fchmod, libc::SYS_fchmod, &[File(0), Value(1)]),
    pass(libc::SYS_fchmodat, libc::SYS_fchmodat, &[Directory(0), Path(1), Value(2)]),
    pass(libc::SYS_chown, libc::SYS_fchownat, &[WorkingDirectory, Path(0), Value(1), Value(2), Constant(0)]),
    pass(libc::SYS_lchown, libc::SYS_fchownat, &[WorkingDirectory, Path(0), Value(1), Value(2), NO_FOLLOW]),
    pass(libc::SYS_fchown, libc::SYS_fchown, &[File(0), Value(1), Value(2)]),
    pass(libc::SYS_fchownat, libc::SYS_fchownat, &[Directory(0), Path(1), Value(2), Value(3), Value(4)]),
    pass(libc::SYS_utimensat, libc::SYS_utimensat, &[Directory(0), Path(1), In(2, TIMES), Value(3)]),
    pass(libc::SYS_utimes, libc::SYS_futimesat, &[WorkingDirectory, Path(0), In(1, TIMES)]),
    pass(libc::SYS_futimesat, libc::SYS_futimesat, &[Directory(0), Path(1), In(2, TIMES)]),
    pass(libc::SYS_sysinfo, libc::SYS_sysinfo, &[Out(0, size_of::<libc::sysinfo>())]),
];

/// An argument, translated.
enum Prepared {
    Value(u64),
    /// The path, or null.
    Path(Option<CString>),
    /// What the host reads, or null.
    In(Option<Vec<u8>>),
    /// Where in the guest, room for what the host writes, and whether its result is its length.
    Out {
        address: Virt,
        bytes: Vec<u8>,
        counted: bool,
    },
}

/// Serves a call that is in the table.
pub(super) fn serve(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i64,
    arguments: &[u64; 6],
) -> Option<Served> {
    let entry = TABLE.iter().find(|entry| entry.guest == number)?;
    Some(serve_entry(kernel, guest, entry, arguments))
}

fn serve_entry(kernel: &Kernel, guest: &mut Guest<'_>, entry: &Pass, arguments: &[u64; 6]) -> Served {
    let mut prepared = Vec::with_capacity(entry.arguments.len());
    for from in entry.arguments {
        let argument = prepare(kernel, guest, *from, arguments)?;
        prepared.push(argument);
    }
    guest.input(&mut || call(entry, &mut prepared))
}

fn prepare(kernel: &Kernel, guest: &mut Guest<'_>, from: Source, arguments: &[u64; 6]) -> Served<Prepared> {
    let descriptor = |descriptor: RawFd| Prepared::Value(super::word(i64::from(descriptor)));
    Ok(match from {
        Value(n) => Prepared::Value(arguments[n]),
        // The file's type is among the mode's bits for mknod.
        Mode(n) => Prepared::Value(arguments[n] & !u64::from(kernel.place().umask)),
        With(n, bits) => Prepared::Value(arguments[n] | bits),
        Constant(value) => Prepared::Value(value),
        File(n) => descriptor(kernel.files().get(int(arguments[n]))?.host()),
        Directory(n) => descriptor(kernel.host_directory(int(arguments[n]))),
        WorkingDirectory => descriptor(kernel.place().directory.host()),
        Path(n) if arguments[n] == 0 => Prepared::Path(None),
        Path(n) => Prepared::Path(Some(path_of_another(kernel, guest, arguments[n])?)),
        Asked(n) if arguments[n] == 0 => Prepared::Path(None),
        Asked(n) => Prepared::Path(Some(path_or_executable(kernel, guest, arguments[n])?)),
        In(n, _) if arguments[n] == 0 => Prepared::In(None),
        In(n, size) => {
            let mut bytes = vec![0; size];
            guest.read(arguments[n], &mut bytes)?;
            Prepared::In(Some(bytes))
        }
        Out(n, _) if arguments[n] == 0 => Prepared::In(None),
        Out(n, size) => {
            check(guest, arguments[n], size as u64)?;
            Prepared::Out { address: arguments[n], bytes: vec![0; size], counted: false }
        }
        Buffer(n, length) => {
            let length = cut(guest, arguments[n], arguments[length])?;
            Prepared::Out { address: arguments[n], bytes: vec![0; length], counted: true }
        }
        LengthOf(n) => {
            let length = arguments.get(n + 1).copied().unwrap_or(0);
            Prepared::Value(cut(guest, arguments[n], length)? as u64)
        }
    })
}

/// A path as the host takes it.
pub(super) fn path(guest: &mut Guest<'_>, address: Virt) -> Served<CString> {
    let path = guest.path(address)?;
    CString::new(path).map_or_else(|_| super::errno(libc::EINVAL), Ok)
}

/// A path, but not to one of the program's own files in /proc: those would be gretel's.
pub(super) fn path_of_another(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt) -> Served<CString> {
    let path = path(guest, address)?;
    if own::named(&path, kernel).is_some() { super::errno(libc::ENOENT) } else { Ok(path) }
}

/// A path; of its own files, the program may ask about its executable.
fn path_or_executable(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt) -> Served<CString> {
    let path = path(guest, address)?;
    match own::named(&path, kernel) {
        None => Ok(path),
        Some(Own::Executable) => Ok(kernel.group().path.clone()),
        Some(Own::Descriptor(_) | Own::Other) => super::errno(libc::ENOENT),
    }
}

/// That the guest may write `length` bytes there.
pub(super) fn check(guest: &mut Guest<'_>, address: Virt, length: u64) -> Served<()> {
    if guest.space_mut().accessible(address, length, Access::Write) < length {
        return super::errno(libc::EFAULT);
    }
    Ok(())
}

/// How much of a buffer the host may fill.
fn cut(guest: &mut Guest<'_>, address: Virt, length: u64) -> Served<usize> {
    let usable = guest.space_mut().accessible(address, length.min(LONGEST), Access::Write);
    if usable == 0 && length > 0 {
        return super::errno(libc::EFAULT);
    }
    Ok(usize::try_from(usable).expect("at most LONGEST"))
}

/// Calls the host.
fn call(entry: &Pass, prepared: &mut [Prepared]) -> Input {
    let mut arguments = [0; 6];
    for (slot, argument) in arguments.iter_mut().zip(prepared.iter_mut()) {
        *slot = match argument {
            Prepared::Value(value) => *value,
            Prepared::Path(path) => path.as_ref().map_or(0, |path| host::pointer(path.as_ptr())),
            Prepared::In(bytes) => bytes.as_ref().map_or(0, |bytes| host::pointer(bytes.as_ptr())),
            Prepared::Out { bytes, .. } => host::pointer(bytes.as_mut_ptr()),
        };
    }
    // SAFETY: the call is one of `TABLE`: its pointers are NUL-terminated paths and buffers with the sizes
    // that it reads or writes (a counted buffer's length is passed as `LengthOf`), or null; all outlive the
    // call.
    let result = unsafe { host::raw(entry.host, arguments) };
    let mut writes = Vec::new();
    for argument in prepared {
        if let Prepared::Out { address, bytes, counted } = argument
            && let Ok(count) = usize::try_from(result)
        {
            let length = if *counted { count.min(bytes.len()) } else { bytes.len() };
            writes.push(MemoryWrite { address: *address, bytes: bytes[..length].to_vec() });
        }
    }
    Input::Bytes { result, writes }
}
