//! Opening, closing and duplicating files, and what goes by paths beyond [`super::passthrough`].

use super::descriptors::{LIMIT, OpenFile};
use super::exit::forgive;
use super::own::{self, Own};
use super::passthrough::{self, check, path};
use super::sharing::{self, Inode};
use super::{Guest, Kernel, Served, errno, host, int, ipc, retry, word};
use crate::gate::{Input, MemoryWrite};
use crate::memory::space::Access;
use crate::ram::Virt;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

pub(super) fn open(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    directory: i32,
    name: Virt,
    flags: i32,
    mode: u64,
) -> Served {
    let name = match path(guest, name)? {
        name if !name.to_bytes().starts_with(b"/") => name,
        name => match own::named(&name, kernel) {
            None => name,
            Some(Own::Executable) => kernel.group().path.clone(),
            // What it shows is opened once more: here, it is the same open file.
            Some(Own::Descriptor(number)) => return reopen(kernel, number, flags),
            Some(Own::Other) => return errno(libc::ENOENT),
        },
    };
    kernel.files().free(0)?;
    let directory = kernel.host_directory(directory);
    let mode = kernel.masked(mode);
    let interrupter = kernel.interrupter.clone();
    let (file, inode) = open_file(guest, &mut || {
        let mut file = None;
        let result = retry(&interrupter, || match host::open(directory, &name, flags, mode) {
            Ok(opened) => {
                file = Some(opened);
                0
            }
            Err(error) => error,
        });
        file.ok_or(result)
    })?;
    kernel.after_open(guest, inode, flags)?;
    kernel.files_mut().install(OpenFile::of_file(file, inode), flags & libc::O_CLOEXEC != 0, 0)
}

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

/// Opens what the guest has open under another number.
fn reopen(kernel: &mut Kernel, number: i32, flags: i32) -> Served {
    match kernel.files().get(number) {
        Ok(file) => kernel.files_mut().install(file, flags & libc::O_CLOEXEC != 0, 0),
        Err(_) => errno(libc::ENOENT),
    }
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
    drop(file);
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
    if first > last || flags & !CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    for number in first..=last.min(LIMIT as u64) {
        let number = int(number);
        let done = if flags & CLOEXEC != 0 {
            kernel.files_mut().set_close_on_exec(number, true)
        } else {
            close(kernel, guest, number).map(drop)
        };
        // Numbers that are not open are passed over.
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
    kernel.files_mut().replace(to, file, false)
}

pub(super) fn dup3(kernel: &mut Kernel, from: i32, to: i32, flags: i32) -> Served {
    if from == to || flags & !libc::O_CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    let file = kernel.files().get(from)?;
    kernel.files_mut().replace(to, file, flags & libc::O_CLOEXEC != 0)
}

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
        libc::F_GETFL | libc::F_SETFL | libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => {
            guest.input_number(|| host::fcntl(file.host(), command, value))
        }
        libc::F_SETOWN => {
            kernel.say_once("SIGIO is not sent when something happens on a file (F_SETOWN)");
            Ok(0)
        }
        libc::F_GETOWN => Ok(0),
        libc::F_ADD_SEALS => sharing::seal(kernel, guest, &file, value),
        libc::F_GET_SEALS => guest.input_number(|| host::fcntl(file.host(), command, 0)),
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => {
            let mut lock = guest.read_array(value)?;
            guest.input(&mut || {
                let result = host::fcntl_lock(file.host(), command, &mut lock);
                let told = command == libc::F_GETLK && result >= 0;
                let writes = told.then(|| MemoryWrite { address: value, bytes: lock.to_vec() });
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

/// readlink and readlinkat: links to the program's own files are ours, the rest the host's.
pub(super) fn readlink(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    call: i64,
    a: &[u64; 6],
    name: Virt,
    (buffer, length): (Virt, u64),
) -> Served {
    let usable = guest.space_mut().accessible(buffer, length.min(4096), Access::Write);
    let usable = usize::try_from(usable).unwrap_or(usize::MAX);
    match own::named(&path(guest, name)?, kernel) {
        None => passthrough::serve(kernel, guest, call, a).unwrap_or_else(|| errno(libc::ENOSYS)),
        Some(Own::Executable) => {
            let target = kernel.group().path.as_bytes();
            let length = usable.min(target.len());
            guest.write(buffer, &target[..length])?;
            Ok(length as u64)
        }
        Some(Own::Descriptor(number)) => {
            let Ok(file) = kernel.files().get(number) else { return errno(libc::ENOENT) };
            guest.input(&mut || match host::path_of(&file.host()) {
                Ok(mut bytes) => {
                    bytes.truncate(usable);
                    let result = i64::try_from(bytes.len()).unwrap_or(0);
                    Input::Bytes { result, writes: vec![MemoryWrite { address: buffer, bytes }] }
                }
                Err(result) => Input::Bytes { result, writes: Vec::new() },
            })
        }
        Some(Own::Other) => errno(libc::ENOENT),
    }
}

/// Runs `call` on a file that is opened by its path for this alone: calls that have no `*at` form.
fn with_opened(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    name: Virt,
    flags: i32,
    call: &mut dyn FnMut(i32) -> Input,
) -> Served {
    let name = passthrough::path_of_another(kernel, guest, name)?;
    let directory = kernel.place().directory.host();
    guest.input(&mut || match host::open(directory, &name, flags, 0) {
        Ok(file) => call(file.as_raw_fd()),
        Err(result) => Input::Bytes { result, writes: Vec::new() },
    })
}

pub(super) fn truncate(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt, length: u64) -> Served {
    kernel.check_length(length)?;
    let name = passthrough::path_of_another(kernel, guest, name)?;
    let directory = kernel.place().directory.host();
    let told = guest.input_bytes(&mut || {
        let file = host::open(directory, &name, libc::O_WRONLY, 0)?;
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

pub(super) fn statfs(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt, address: Virt) -> Served {
    check(guest, address, size_of::<libc::statfs>() as u64)?;
    with_opened(kernel, guest, name, libc::O_PATH, &mut |file| {
        let (result, bytes) = host::statfs(file);
        let writes = (result >= 0).then_some(MemoryWrite { address, bytes });
        Input::Bytes { result, writes: writes.into_iter().collect() }
    })
}

pub(super) fn getcwd(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt, size: u64) -> Served {
    let directory = kernel.place().directory.host();
    let usable = guest.space_mut().accessible(address, size.min(4096), Access::Write);
    guest.input(&mut || {
        let mut bytes = match host::path_of(&directory) {
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

pub(super) fn chdir(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt) -> Served {
    let name = path(guest, name)?;
    enter(kernel, guest, libc::AT_FDCWD, &name)
}

pub(super) fn fchdir(kernel: &mut Kernel, guest: &mut Guest<'_>, descriptor: i32) -> Served {
    kernel.files().get(descriptor)?;
    enter(kernel, guest, descriptor, c".")
}

/// Makes a directory the working directory.
fn enter(kernel: &mut Kernel, guest: &mut Guest<'_>, from: i32, name: &CStr) -> Served {
    let from = kernel.host_directory(from);
    let opened = open_host(guest, &mut || host::open(from, name, libc::O_PATH | libc::O_DIRECTORY, 0))?;
    kernel.place_mut().directory = OpenFile::new(opened);
    Ok(0)
}
