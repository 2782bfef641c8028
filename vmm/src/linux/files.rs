//! Opening, closing and duplicating files, and what goes by paths beyond [`super::passthrough`].

use super::capabilities::SYS_CHROOT;
use super::descriptors::OpenFile;
use super::exit::forgive;
use super::passthrough::{check, path};
use super::proc::{self, Last, Place, find};
use super::sharing::{self, Inode};
use super::sigio::calls as sigio;
use super::{
    Guest, Kernel, Served, busy, clone, errno, fifo, host, int, ipc, leases, locks, retry, terminal, word,
};
use crate::gate::{Input, MemoryWrite};
use crate::memory::space::Access;
use crate::ram::Virt;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

pub(super) fn open(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    directory: i32,
    name: Virt,
    flags: i32,
    mode: u64,
) -> Served {
    if let Some(attempt) = kernel.again.attempt.take() {
        return fifo::go_on(kernel, guest, attempt);
    }
    let name = match path(guest, name)? {
        name if name.is_empty() => return errno(libc::ENOENT),
        name if name.as_c_str() == c"/dev/tty" => kernel.path_of_terminal()?,
        name => name,
    };
    let makes = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
    let last = if makes || flags & libc::O_NOFOLLOW != 0 { Last::Kept } else { Last::Followed };
    let place = match find(kernel, guest, directory, &name, last)? {
        Place::Proc(node) => return proc::open::open(kernel, guest, node, flags),
        place => place,
    };
    kernel.files().free(0)?;
    leases::before_open(kernel, guest, &place, flags)?;
    let mode = kernel.masked(mode);
    let interrupter = kernel.interrupter.clone();
    let running = kernel.running();
    let (mut file, mut hosts) = (None, None);
    let told = guest.input_bytes(&mut || {
        busy::check_open(&place, flags, &running)?;
        let fifo = match &place {
            Place::Host(directory, name) => fifo::Hosts::find(*directory, name, flags)?,
            _ => None,
        };
        if let Some(found) = fifo {
            return Ok([vec![FIFO], hosts.insert(found).told()].concat());
        }
        let result = retry(&interrupter, || match open_in_host(&place, flags, mode) {
            Ok(opened) => {
                file = Some(opened);
                0
            }
            Err(error) => error,
        });
        let opened = file.as_ref().ok_or(result)?.as_raw_fd();
        let inode = Inode::bytes_of(opened);
        Ok(if inode.is_empty() {
            [vec![SPECIAL], terminal::told(opened)].concat()
        } else {
            [vec![REGULAR], inode].concat()
        })
    })?;
    let (kind, told) = told.split_first().unwrap_or((&SPECIAL, &[]));
    let inode = Inode::from_bytes(told);
    if let (FIFO, Some(inode)) = (*kind, inode) {
        return fifo::open(kernel, guest, hosts, inode, flags);
    }
    if *kind == SPECIAL
        && let Some(opened) = kernel.terminal_file(told, &mut file)
    {
        kernel.take_opened_terminal(&opened, flags);
        return kernel.files_mut().install(opened, flags & libc::O_CLOEXEC != 0, 0);
    }
    kernel.after_open(guest, inode, flags)?;
    let file = match place {
        _ if flags & libc::O_PATH != 0 => OpenFile::of_path(file, inode),
        Place::Open(before) => OpenFile::opened_again(file, inode, &before),
        _ => OpenFile::of_file(file, inode),
    };
    kernel.files_mut().install(file, flags & libc::O_CLOEXEC != 0, 0)
}

/// Opens what a path leads to. /sys is for reading.
fn open_in_host(place: &Place, flags: i32, mode: u32) -> Result<OwnedFd, i64> {
    let file = match place {
        Place::Host(directory, name) => host::open(*directory, name, flags, mode)?,
        Place::Open(file) => host::open_again(file.host(), flags, mode)?,
        Place::Proc(_) => return Err(-i64::from(libc::ENOENT)),
    };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0;
    if writes && host::path_of(&file).is_ok_and(|path| path.starts_with(b"/sys/")) {
        return Err(-i64::from(libc::EROFS));
    }
    Ok(file)
}

/// openat2. With rules of its own for the way, a path leads to nothing in /proc.
pub(super) fn open_by(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    const SIZE: usize = 24;
    const MAKES: u64 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned() as u64;
    let [directory, name, at, size, ..] = *a;
    if size < SIZE as u64 {
        return errno(libc::EINVAL);
    }
    let mut how @ [flags, mode, rules] = guest.read_words(at)?;
    // It is read again for what is behind, which must be zero.
    guest.grown(at, size, SIZE)?;
    if mode != 0 && flags & MAKES == 0 {
        return errno(libc::EINVAL);
    }
    if rules == 0 {
        let known = i32::try_from(flags).ok().filter(|_| mode & !0o7777 == 0);
        let Some(flags) = known else { return errno(libc::EINVAL) };
        return open(kernel, guest, int(directory), name, flags, mode);
    }
    let name = path(guest, name)?;
    let closes = flags & u64::from(libc::O_CLOEXEC.unsigned_abs()) != 0;
    kernel.files().free(0)?;
    let directory = kernel.host_directory(int(directory));
    how[1] = mode & !u64::from(kernel.place().umask);
    let place = Place::Host(directory, name.clone());
    leases::before_open(kernel, guest, &place, int(flags))?;
    let (guarded, running) = (kernel.guarded.clone(), kernel.running());
    let (file, inode) = open_file(guest, &mut || {
        busy::check_open(&place, int(flags), &running)?;
        match guarded.open_by(directory, &name, how) {
            // What may not be looked at in the host's /proc is not there either.
            Err(error) if error == -i64::from(libc::EACCES) && proc::is_in_proc(directory, &name) => {
                Err(-i64::from(libc::ENOENT))
            }
            opened => opened,
        }
    })?;
    kernel.after_open(guest, inode, int(flags))?;
    kernel.files_mut().install(OpenFile::of_file(file, inode), closes, 0)
}

/// What a path was found to be: a FIFO, which is not open yet, or something that is: a regular file, or another.
const FIFO: u8 = b'f';
const REGULAR: u8 = b'r';
const SPECIAL: u8 = b's';

/// Asks the host to open a file, and which one it is if it is a regular one.
pub(super) fn open_file(
    guest: &mut Guest<'_>,
    open: &mut dyn FnMut() -> Result<OwnedFd, i64>,
) -> Served<(Option<OwnedFd>, Option<Inode>)> {
    let mut opened = None;
    let told = guest.input_bytes(&mut || {
        let file = opened.insert(open()?);
        Ok(Inode::bytes_of(file.as_raw_fd()))
    })?;
    Ok((opened, Inode::from_bytes(&told)))
}

/// Asks the host to open something; `None` at replay, if it was opened when recording.
pub(super) fn open_host(
    guest: &mut Guest<'_>,
    open: &mut dyn FnMut() -> Result<OwnedFd, i64>,
) -> Served<Option<OwnedFd>> {
    let mut opened = None;
    guest.input_number(|| match open() {
        Ok(file) => {
            opened = Some(file);
            0
        }
        Err(error) => error,
    })?;
    Ok(opened)
}

pub(super) fn create(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt, mode: u64) -> Served {
    open(kernel, guest, libc::AT_FDCWD, name, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
}

/// close; late write errors, which the host's close could tell, are left to fsync.
pub(super) fn close(kernel: &mut Kernel, guest: &mut Guest<'_>, descriptor: i32) -> Served {
    let file = kernel.files().get(descriptor)?;
    // Who reads the file next may be no program of ours.
    if let Some(inode) = kernel.mapped_shared(&file) {
        forgive(kernel.write_back(guest, inode, 0..u64::MAX))?;
    }
    kernel.files_mut().close(descriptor)?;
    kernel.closed(&file);
    let socket = file.endpoint().is_some();
    kernel.unlock_closed(file);
    if socket {
        kernel.sweep_flights(guest)?;
    }
    Ok(0)
}

pub(super) fn close_range(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    first: u64,
    last: u64,
    flags: u64,
) -> Served {
    const CLOEXEC: u64 = libc::CLOSE_RANGE_CLOEXEC as u64;
    const UNSHARE: u64 = libc::CLOSE_RANGE_UNSHARE as u64;
    if first > last || flags & !(CLOEXEC | UNSHARE) != 0 {
        return errno(libc::EINVAL);
    }
    if flags & UNSHARE != 0 {
        clone::own_files(kernel);
    }
    let open: Vec<usize> = kernel.files().iter().map(|(number, _)| number).collect();
    for number in open.into_iter().map(|number| number as u64).filter(|it| (first..=last).contains(it)) {
        let number = int(number);
        let done = if flags & CLOEXEC != 0 {
            kernel.files_mut().set_close_on_exec(number, true)
        } else {
            close(kernel, guest, number).map(drop)
        };
        forgive(done)?;
    }
    Ok(0)
}

pub(super) fn dup(kernel: &mut Kernel, descriptor: i32) -> Served {
    let file = kernel.files().get(descriptor)?;
    kernel.files_mut().install(file, false, 0)
}

pub(super) fn dup2(kernel: &mut Kernel, from: i32, to: i32) -> Served {
    let file = kernel.files().get(from)?;
    if from == to {
        return Ok(word(i64::from(to)));
    }
    replace(kernel, to, file, false)
}

/// Makes a number a descriptor of a file; what it was is closed.
fn replace(kernel: &mut Kernel, to: i32, file: Rc<OpenFile>, close_on_exec: bool) -> Served {
    let before = kernel.files().get(to).ok();
    let number = kernel.files_mut().replace(to, file, close_on_exec)?;
    if let Some(closed) = before {
        kernel.unlock_closed(closed);
    }
    Ok(number)
}

pub(super) fn dup3(kernel: &mut Kernel, from: i32, to: i32, flags: i32) -> Served {
    if from == to || flags & !libc::O_CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    let file = kernel.files().get(from)?;
    replace(kernel, to, file, flags & libc::O_CLOEXEC != 0)
}

/// How long what is written will live (linux/fcntl.h); RocksDB says it of its files.
const F_GET_RW_HINT: i32 = 1035;
const F_SET_RW_HINT: i32 = 1036;
const F_GET_FILE_RW_HINT: i32 = 1037;
const F_SET_FILE_RW_HINT: i32 = 1038;

pub(super) fn fcntl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    command: i32,
    value: u64,
) -> Served {
    let file = kernel.files().get(number)?;
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => match usize::try_from(int(value)) {
            Ok(from) if from < kernel.files().limit() => {
                kernel.files_mut().install(file, command == libc::F_DUPFD_CLOEXEC, from)
            }
            _ => errno(libc::EINVAL),
        },
        libc::F_GETFD => Ok(u64::from(kernel.files().close_on_exec(number)?)),
        libc::F_SETFD => {
            kernel.files_mut().set_close_on_exec(number, value & 1 != 0)?;
            Ok(0)
        }
        libc::F_GETFL if let Some(open) = file.queue() => ipc::mq::flags(kernel, open),
        libc::F_SETFL if let Some(open) = file.queue() => ipc::mq::set_flags(kernel, open, int(value)),
        sigio::F_SETSIG
        | sigio::F_GETSIG
        | sigio::F_SETOWN
        | sigio::F_GETOWN
        | sigio::F_SETOWN_EX
        | sigio::F_GETOWN_EX => sigio::fcntl(kernel, guest, &file, command, value),
        libc::F_SETLEASE => leases::set(kernel, guest, number, &file, int(value)),
        libc::F_GETLEASE => Ok(leases::get(kernel, &file)),
        libc::F_NOTIFY => sigio::notify(kernel, guest, number, &file, value),
        libc::F_GETFL => sigio::flags(kernel, guest, &file),
        libc::F_SETFL => sigio::set_flags(kernel, guest, number, &file, value),
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => {
            guest.input_number(|| host::fcntl(file.host(), command, value))
        }
        libc::F_ADD_SEALS => sharing::seal(kernel, guest, &file, value),
        libc::F_GET_SEALS => guest.input_number(|| host::fcntl(file.host(), command, 0)),
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => locks::record(kernel, guest, &file, command, value),
        F_GET_RW_HINT | F_SET_RW_HINT | F_GET_FILE_RW_HINT | F_SET_FILE_RW_HINT => {
            let mut hint: [u8; 8] = guest.read_array(value)?;
            guest.input(&mut || {
                let result = host::fcntl_hint(file.host(), command, &mut hint);
                let told = result >= 0 && matches!(command, F_GET_RW_HINT | F_GET_FILE_RW_HINT);
                let writes = told.then(|| MemoryWrite { address: value, bytes: hint.to_vec() });
                Input::Bytes { result, writes: writes.into_iter().collect() }
            })
        }
        _ => errno(libc::EINVAL),
    }
}

pub(super) fn pipe(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt, flags: i32) -> Served {
    check(guest, address, 8)?;
    let first = kernel.files().free(0)?;
    kernel.files().free(first + 1)?;
    let mut ends = None;
    guest.input_number(|| match host::pipe(flags) {
        Ok(made) => {
            ends = Some(made);
            0
        }
        Err(error) => error,
    })?;
    let [from, to] = ends.map_or([None, None], |ends| ends.map(Some));
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    let from = kernel.files_mut().install(OpenFile::new(from), close_on_exec, 0)?;
    let to = kernel.files_mut().install(OpenFile::new(to), close_on_exec, 0)?;
    let pair: Vec<u8> = [int(from), int(to)].into_iter().flat_map(i32::to_le_bytes).collect();
    guest.write(address, &pair)?;
    Ok(0)
}

pub(super) fn truncate(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt, length: u64) -> Served {
    kernel.check_length(length)?;
    let place = place_of(kernel, guest, name)?;
    if matches!(place, Place::Proc(_)) {
        return errno(libc::EINVAL);
    }
    leases::before_open(kernel, guest, &place, libc::O_WRONLY)?;
    let running = kernel.running();
    let told = guest.input_bytes(&mut || {
        busy::check_open(&place, libc::O_WRONLY, &running)?;
        // A FIFO is no reason to wait, but as natively one not to go on.
        let file = open_in_host(&place, libc::O_WRONLY | libc::O_NONBLOCK, 0).map_err(|error| {
            if error == -i64::from(libc::ENXIO) { -i64::from(libc::EINVAL) } else { error }
        })?;
        match host::truncate(file.as_raw_fd(), length) {
            0 => Ok(Inode::bytes_of(file.as_raw_fd())),
            error => Err(error),
        }
    })?;
    if let Some(inode) = Inode::from_bytes(&told) {
        kernel.shared_resized(guest, inode, length)?;
    }
    Ok(0)
}

/// What a path from the working directory leads to, over a link at its end.
fn place_of(kernel: &Kernel, guest: &mut Guest<'_>, name: Virt) -> Served<Place> {
    let name = path(guest, name)?;
    if name.is_empty() {
        return errno(libc::ENOENT);
    }
    find(kernel, guest, libc::AT_FDCWD, &name, Last::Followed)
}

pub(super) fn statfs(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt, address: Virt) -> Served {
    check(guest, address, size_of::<libc::statfs>() as u64)?;
    let place = place_of(kernel, guest, name)?;
    if matches!(place, Place::Proc(_)) {
        return proc::attributes::statfs(guest, address);
    }
    guest.input(&mut || {
        let (result, bytes) = match open_in_host(&place, libc::O_PATH, 0) {
            Ok(file) => host::statfs(file.as_raw_fd()),
            Err(result) => (result, Vec::new()),
        };
        let writes = (result >= 0).then_some(MemoryWrite { address, bytes });
        Input::Bytes { result, writes: writes.into_iter().collect() }
    })
}

pub(super) fn getcwd(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt, size: u64) -> Served {
    let directory = Rc::clone(&kernel.place().directory);
    let usable = guest.accessible(address, size.min(4096), Access::Write);
    let own = kernel.proc_file(&directory).map(|opened| opened.path());
    let root = kernel.root();
    guest.input(&mut || {
        let path = own.clone().map_or_else(|| path_of_directory(directory.host()), Ok);
        let path = match root {
            Some(root) => path.and_then(|path| proc::rooted::seen_from(root, path)),
            None => path,
        };
        let mut bytes = match path {
            Ok(path) => path,
            Err(result) => return Input::Bytes { result, writes: Vec::new() },
        };
        bytes.push(0);
        let needed = bytes.len() as u64;
        let fits = if needed > size {
            Err(libc::ERANGE)
        } else if needed > usable {
            Err(libc::EFAULT)
        } else {
            Ok(())
        };
        match fits {
            Ok(()) => Input::Bytes {
                result: i64::try_from(needed).unwrap_or(0),
                writes: vec![MemoryWrite { address, bytes }],
            },
            Err(error) => Input::Bytes { result: -i64::from(error), writes: Vec::new() },
        }
    })
}

/// The path of a directory; ENOENT of one that was removed, whose name the kernel tells with a word behind it.
fn path_of_directory(directory: RawFd) -> Result<Vec<u8>, i64> {
    let path = host::path_of(&directory)?;
    let is_there = || {
        let name = CString::new(path.clone()).ok()?;
        let found = host::look_up(libc::AT_FDCWD, &name, libc::O_DIRECTORY | libc::O_NOFOLLOW).ok()?;
        Some(host::stat(found.as_raw_fd()).ok()? == host::stat(directory).ok()?)
    };
    if path.ends_with(b" (deleted)") && is_there() != Some(true) {
        return Err(-i64::from(libc::ENOENT));
    }
    Ok(path)
}

pub(super) fn chdir(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt) -> Served {
    let place = place_of(kernel, guest, name)?;
    enter(kernel, guest, &place)
}

pub(super) fn fchdir(kernel: &mut Kernel, guest: &mut Guest<'_>, descriptor: i32) -> Served {
    kernel.files().get(descriptor)?;
    let place = find(kernel, guest, descriptor, c".", Last::Followed)?;
    enter(kernel, guest, &place)
}

/// Makes a directory the working directory.
fn enter(kernel: &mut Kernel, guest: &mut Guest<'_>, place: &Place) -> Served {
    let directory = match place {
        Place::Proc(node) => proc::open::open_directory(kernel, guest, node.clone())?,
        place => open_directory(guest, place)?,
    };
    kernel.place_mut().directory = directory;
    Ok(0)
}

/// A directory of the host's in which names are looked up, by one who may.
fn open_directory(guest: &mut Guest<'_>, place: &Place) -> Served<Rc<OpenFile>> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let opened = open_host(guest, &mut || {
        let directory = open_in_host(place, flags, 0)?;
        // The way to a directory does not ask for the right to search it, the way on does.
        host::open(directory.as_raw_fd(), c".", flags, 0)
    })?;
    Ok(OpenFile::new(opened))
}

/// Makes a directory of the host's the root: paths are followed from there ([`proc::rooted`]).
pub(super) fn chroot(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt) -> Served {
    let place = place_of(kernel, guest, name)?;
    if matches!(place, Place::Proc(_)) {
        return kernel.refuse("chroot into /proc", libc::EACCES);
    }
    let root = open_directory(guest, &place)?;
    if !kernel.group().credentials.has(SYS_CHROOT) {
        return errno(libc::EPERM);
    }
    kernel.place_mut().root = Some(root);
    Ok(0)
}
