//! The system calls that the host serves as they are, once descriptors, paths and buffers are translated: a
//! table of what each argument is.

use super::descriptors::Source as Sourced;
use super::proc::{self, Last, Place};
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
    /// The directory and path arguments of an `*at` call, which the host has as two; a null path is passed on.
    At(usize, usize, Link),
    /// A path from the working directory, as the host's `*at` call has it.
    Here(usize, Link),
    /// A text that is no path yet.
    Text(usize),
    /// A pointer to this many bytes that the host reads; may be null.
    In(usize, usize),
    /// A pointer to two counts of seconds, which the host reads with their microseconds; may be null.
    Seconds(usize),
    /// A pointer to this many bytes that the host writes if it succeeds; may be null.
    Out(usize, usize),
    /// A pointer, and the argument with its length: the host writes as many bytes as its result says.
    Buffer(usize, usize),
    /// The length of the buffer at this pointer argument, as it was cut to what is accessible.
    LengthOf(usize),
}

/// Whether a link at a path's end is followed.
#[derive(Clone, Copy)]
enum Link {
    Followed,
    Kept,
    /// It is kept if this argument has AT_SYMLINK_NOFOLLOW.
    KeptBy(usize),
    /// It is followed if this argument has AT_SYMLINK_FOLLOW.
    FollowedBy(usize),
}

impl Link {
    fn last(self, arguments: &[u64; 6]) -> Last {
        let has = |n: usize, flag: i32| int(arguments[n]) & flag != 0;
        let kept = match self {
            Link::Followed => false,
            Link::Kept => true,
            Link::KeptBy(n) => has(n, libc::AT_SYMLINK_NOFOLLOW),
            Link::FollowedBy(n) => !has(n, libc::AT_SYMLINK_FOLLOW),
        };
        if kept { Last::Kept } else { Last::Followed }
    }
}

use Link::{Followed, FollowedBy, Kept, KeptBy};
use Source::{At, Buffer, Constant, File, Here, In, LengthOf, Mode, Out, Seconds, Text, Value, With};

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
/// As libc does not have them: the call, `struct cachestat_range` and `struct cachestat`.
const SYS_CACHESTAT: i64 = 451;
const CACHE_RANGE: usize = 16;
const CACHESTAT: usize = 40;
const TIMES: usize = 2 * size_of::<libc::timespec>();
/// This thread is the one who asks ([`super::users`]), as whom its effective user does.
const EACCESS: u64 = libc::AT_EACCESS as u64;
const EFFECTIVE: Source = Constant(EACCESS);
const NO_FOLLOW: Source = Constant(libc::AT_SYMLINK_NOFOLLOW as u64);

/// Sizes and positions here are what makes the call in [`call`] safe.
const TABLE: &[Pass] = &[
    pass(libc::SYS_stat, libc::SYS_newfstatat, &[Here(0, Followed), Out(1, STAT), Constant(0)]),
    pass(libc::SYS_lstat, libc::SYS_newfstatat, &[Here(0, Kept), Out(1, STAT), NO_FOLLOW]),
    pass(libc::SYS_fstat, libc::SYS_fstat, &[File(0), Out(1, STAT)]),
    pass(libc::SYS_newfstatat, libc::SYS_newfstatat, &[At(0, 1, KeptBy(3)), Out(2, STAT), Value(3)]),
    pass(libc::SYS_statx, libc::SYS_statx, &[At(0, 1, KeptBy(2)), Value(2), Value(3), Out(4, STATX)]),
    pass(libc::SYS_fstatfs, libc::SYS_fstatfs, &[File(0), Out(1, STATFS)]),
    pass(libc::SYS_access, libc::SYS_faccessat2, &[Here(0, Followed), Value(1), EFFECTIVE]),
    pass(libc::SYS_faccessat, libc::SYS_faccessat2, &[At(0, 1, Followed), Value(2), EFFECTIVE]),
    pass(libc::SYS_faccessat2, libc::SYS_faccessat2, &[At(0, 1, KeptBy(3)), Value(2), With(3, EACCESS)]),
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
    pass(SYS_CACHESTAT, SYS_CACHESTAT, &[File(0), In(1, CACHE_RANGE), Out(2, CACHESTAT), Value(3)]),
    pass(libc::SYS_getdents, libc::SYS_getdents, &[File(0), Buffer(1, 2), LengthOf(1)]),
    pass(libc::SYS_getdents64, libc::SYS_getdents64, &[File(0), Buffer(1, 2), LengthOf(1)]),
    pass(libc::SYS_mkdir, libc::SYS_mkdirat, &[Here(0, Kept), Mode(1)]),
    pass(libc::SYS_mkdirat, libc::SYS_mkdirat, &[At(0, 1, Kept), Mode(2)]),
    pass(libc::SYS_mknod, libc::SYS_mknodat, &[Here(0, Kept), Mode(1), Value(2)]),
    pass(libc::SYS_mknodat, libc::SYS_mknodat, &[At(0, 1, Kept), Mode(2), Value(3)]),
    pass(libc::SYS_unlink, libc::SYS_unlinkat, &[Here(0, Kept), Constant(0)]),
    pass(libc::SYS_rmdir, libc::SYS_unlinkat, &[Here(0, Kept), Constant(libc::AT_REMOVEDIR as u64)]),
    pass(libc::SYS_unlinkat, libc::SYS_unlinkat, &[At(0, 1, Kept), Value(2)]),
    pass(libc::SYS_rename, libc::SYS_renameat, &[Here(0, Kept), Here(1, Kept)]),
    pass(libc::SYS_renameat, libc::SYS_renameat, &[At(0, 1, Kept), At(2, 3, Kept)]),
    pass(libc::SYS_renameat2, libc::SYS_renameat2, &[At(0, 1, Kept), At(2, 3, Kept), Value(4)]),
    pass(libc::SYS_link, libc::SYS_linkat, &[Here(0, Kept), Here(1, Kept), Constant(0)]),
    pass(libc::SYS_linkat, libc::SYS_linkat, &[At(0, 1, FollowedBy(4)), At(2, 3, Kept), Value(4)]),
    pass(libc::SYS_symlink, libc::SYS_symlinkat, &[Text(0), Here(1, Kept)]),
    pass(libc::SYS_symlinkat, libc::SYS_symlinkat, &[Text(0), At(1, 2, Kept)]),
    pass(libc::SYS_readlink, libc::SYS_readlinkat, &[Here(0, Kept), Buffer(1, 2), LengthOf(1)]),
    pass(libc::SYS_readlinkat, libc::SYS_readlinkat, &[At(0, 1, Kept), Buffer(2, 3), LengthOf(2)]),
    pass(libc::SYS_chmod, libc::SYS_fchmodat, &[Here(0, Followed), Value(1)]),
    pass(libc::SYS_fchmod, libc::SYS_fchmod, &[File(0), Value(1)]),
    pass(libc::SYS_fchmodat, libc::SYS_fchmodat, &[At(0, 1, Followed), Value(2)]),
    pass(libc::SYS_fchmodat2, libc::SYS_fchmodat2, &[At(0, 1, KeptBy(3)), Value(2), Value(3)]),
    pass(libc::SYS_chown, libc::SYS_fchownat, &[Here(0, Followed), Value(1), Value(2), Constant(0)]),
    pass(libc::SYS_lchown, libc::SYS_fchownat, &[Here(0, Kept), Value(1), Value(2), NO_FOLLOW]),
    pass(libc::SYS_fchown, libc::SYS_fchown, &[File(0), Value(1), Value(2)]),
    pass(libc::SYS_fchownat, libc::SYS_fchownat, &[At(0, 1, KeptBy(4)), Value(2), Value(3), Value(4)]),
    pass(libc::SYS_utimensat, libc::SYS_utimensat, &[At(0, 1, KeptBy(3)), In(2, TIMES), Value(3)]),
    pass(libc::SYS_utime, libc::SYS_futimesat, &[Here(0, Followed), Seconds(1)]),
    pass(libc::SYS_utimes, libc::SYS_futimesat, &[Here(0, Followed), In(1, TIMES)]),
    pass(libc::SYS_futimesat, libc::SYS_futimesat, &[At(0, 1, Followed), In(2, TIMES)]),
    pass(libc::SYS_sysinfo, libc::SYS_sysinfo, &[Out(0, size_of::<libc::sysinfo>())]),
];

/// Whether a call is in the table.
pub(super) const fn passes(number: i64) -> bool {
    let mut n = 0;
    while n < TABLE.len() {
        if TABLE[n].guest == number {
            return true;
        }
        n += 1;
    }
    false
}

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
    if let Err(stop) = check_first(number, arguments) {
        return Some(Err(stop));
    }
    Some(serve_entry(kernel, guest, entry, arguments))
}

/// What the kernel looks at before it looks at descriptors and paths.
fn check_first(number: i64, a: &[u64; 6]) -> Served<()> {
    let wrong = match number {
        libc::SYS_readlink => int(a[2]) <= 0,
        libc::SYS_readlinkat => int(a[3]) <= 0,
        libc::SYS_ftruncate => super::long(a[1]) < 0,
        _ => false,
    };
    if wrong { super::errno(libc::EINVAL) } else { Ok(()) }
}

fn serve_entry(kernel: &mut Kernel, guest: &mut Guest<'_>, entry: &Pass, arguments: &[u64; 6]) -> Served {
    if let Some(File(n)) = entry.arguments.first()
        && let Some(Sourced::Proc(object)) = kernel.files().get(int(arguments[*n]))?.source()
        && let Some(served) = proc::calls::by_descriptor(kernel, guest, entry.guest, object, arguments)
    {
        return served;
    }
    let mut prepared = Vec::with_capacity(entry.arguments.len() + 2);
    for from in entry.arguments {
        let (directory, path, link) = match *from {
            At(directory, path, link) => (int(arguments[directory]), arguments[path], link),
            Here(path, link) => (libc::AT_FDCWD, arguments[path], link),
            other => {
                prepared.push(prepare(kernel, guest, other, arguments)?);
                continue;
            }
        };
        match place(kernel, guest, directory, path, link.last(arguments))? {
            Ok(both) => prepared.extend(both),
            Err(node) => return proc::calls::by_path(kernel, guest, entry.guest, &node, arguments),
        }
    }
    let takes_away = matches!(entry.host, libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_unlinkat);
    guest.input(&mut || {
        if takes_away && is_on_the_way(kernel, &prepared) {
            return Input::Result(-i64::from(libc::EBUSY));
        }
        match (entry.host, prepared.first()) {
            (libc::SYS_getdents64, Some(&Prepared::Value(folder))) => {
                kernel.guarded.list(int(folder), 19, &mut || call(entry, &mut prepared))
            }
            (libc::SYS_getdents, Some(&Prepared::Value(folder))) => {
                kernel.guarded.list(int(folder), 18, &mut || call(entry, &mut prepared))
            }
            _ => call(entry, &mut prepared),
        }
    })
}

/// Whether one of the paths of a call is on the way to the recording.
fn is_on_the_way(kernel: &Kernel, prepared: &[Prepared]) -> bool {
    prepared.windows(2).any(|pair| match pair {
        [Prepared::Value(directory), Prepared::Path(Some(path))] => {
            kernel.guarded.is_on_the_way(int(*directory), path)
        }
        _ => false,
    })
}

/// What a path leads to, as the two arguments of the host's call; or a file of /proc.
fn place(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    directory: i32,
    address: Virt,
    last: Last,
) -> Served<Result<[Prepared; 2], proc::Node>> {
    let descriptor = |descriptor: RawFd| Prepared::Value(super::word(i64::from(descriptor)));
    let name = if address == 0 { CString::default() } else { path(guest, address)? };
    Ok(match proc::find(kernel, guest, directory, &name, last)? {
        Place::Proc(node) => Err(node),
        Place::Host(directory, name) => {
            Ok([descriptor(directory), Prepared::Path((address != 0).then_some(name))])
        }
        // gretel's own /proc leads to it, where the call follows the link.
        Place::Open(file) => {
            Ok([descriptor(libc::AT_FDCWD), Prepared::Path(Some(host::name_of_open(file.host())))])
        }
    })
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
        Text(n) => Prepared::Path(Some(path(guest, arguments[n])?)),
        At(..) | Here(..) => unreachable!("paths become two arguments"),
        In(n, _) | Seconds(n) if arguments[n] == 0 => Prepared::In(None),
        In(n, size) => {
            let mut bytes = vec![0; size];
            guest.read(arguments[n], &mut bytes)?;
            Prepared::In(Some(bytes))
        }
        Seconds(n) => {
            let [accessed, modified] = guest.read_words(arguments[n])?;
            Prepared::In(Some(
                [accessed, 0, modified, 0].iter().flat_map(|word| word.to_le_bytes()).collect(),
            ))
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

/// That the guest may write `length` bytes there.
pub(super) fn check(guest: &mut Guest<'_>, address: Virt, length: u64) -> Served<()> {
    if guest.accessible(address, length, Access::Write) < length {
        return super::errno(libc::EFAULT);
    }
    Ok(())
}

/// How much of a buffer the host may fill.
fn cut(guest: &mut Guest<'_>, address: Virt, length: u64) -> Served<usize> {
    let usable = guest.accessible(address, length.min(LONGEST), Access::Write);
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
