//! Opening, closing and duplicating files, and what goes by paths beyond [`super::passthrough`].

use super::descriptors::{LIMIT, OpenFile};
use super::own::{self, Own};
use super::passthrough::{self, check, path};
use super::{Guest, Linux, Served, errno, host, int, retry, word};
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite};
use crate::process::space::Access;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

pub(super) fn open(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    directory: i32,
    name: Virt,
    flags: i32,
    mode: u64,
) -> Served {
    let name = match path(guest, name)? {
        name if !name.to_bytes().starts_with(b"/") => name,
        name => match own::named(&name) {
            None => name,
            Some(Own::Executable) => linux.identity.path.clone(),
            // What it shows is opened once more: here, it is the same open file.
            Some(Own::Descriptor(number)) => return reopen(linux, number, flags),
            Some(Own::Other) => return errno(libc::ENOENT),
        },
    };
    linux.files.free(0)?;
    let directory = linux.files.host_directory(directory);
    let mode = u32::try_from(mode & 0o7777).expect("twelve bits");
    let interrupter = linux.interrupter.clone();
    let file = open_host(guest, &mut || {
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
    linux.files.install(OpenFile::new(file), flags & libc::O_CLOEXEC != 0, 0)
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
fn reopen(linux: &mut Linux, number: i32, flags: i32) -> Served {
    match linux.files.get(number) {
        Ok(file) => linux.files.install(file, flags & libc::O_CLOEXEC != 0, 0),
        Err(_) => errno(libc::ENOENT),
    }
}

pub(super) fn create(linux: &mut Linux, guest: &mut Guest<'_>, name: Virt, mode: u64) -> Served {
    open(linux, guest, libc::AT_FDCWD, name, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
}

/// close; late write errors, which the host's close could tell, are left to fsync.
pub(super) fn close(linux: &mut Linux, descriptor: i32) -> Served {
    linux.files.close(descriptor)?;
    Ok(0)
}

pub(super) fn close_range(linux: &mut Linux, first: u64, last: u64, flags: u64) -> Served {
    const CLOEXEC: u64 = libc::CLOSE_RANGE_CLOEXEC as u64;
    if first > last || flags & !CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    for number in first..=last.min(LIMIT as u64) {
        let number = int(number);
        let done = if flags & CLOEXEC != 0 {
            linux.files.set_close_on_exec(number, true)
        } else {
            linux.files.close(number)
        };
        // Numbers that are not open are passed over.
        drop(done);
    }
    Ok(0)
}

pub(super) fn dup(linux: &mut Linux, descriptor: i32) -> Served {
    let file = linux.files.get(descriptor)?;
    linux.files.install(file, false, 0)
}

pub(super) fn dup2(linux: &mut Linux, from: i32, to: i32) -> Served {
    let file = linux.files.get(from)?;
    if from == to {
        return Ok(word(i64::from(to)));
    }
    linux.files.replace(to, file, false)
}

pub(super) fn dup3(linux: &mut Linux, from: i32, to: i32, flags: i32) -> Served {
    if from == to || flags & !libc::O_CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    let file = linux.files.get(from)?;
    linux.files.replace(to, file, flags & libc::O_CLOEXEC != 0)
}

pub(super) fn fcntl(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    number: i32,
    command: i32,
    value: u64,
) -> Served {
    let file = linux.files.get(number)?;
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => match usize::try_from(int(value)) {
            Ok(from) if from < LIMIT => linux.files.install(file, command == libc::F_DUPFD_CLOEXEC, from),
            _ => errno(libc::EINVAL),
        },
        libc::F_GETFD => Ok(u64::from(linux.files.close_on_exec(number)?)),
        libc::F_SETFD => {
            linux.files.set_close_on_exec(number, value & 1 != 0)?;
            Ok(0)
        }
        libc::F_GETFL | libc::F_SETFL | libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => {
            guest.input_number(|| host::fcntl(file.host(), command, value))
        }
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => {
            let mut lock = guest.read_array(value)?;
            guest.input(&mut || {
                let result = host::fcntl_lock(file.host(), command, &mut lock);
                let told = command == libc::F_GETLK && result >= 0;
                let writes = told.then(|| MemoryWrite { address: value, bytes: lock.to_vec() });
                Input { result, writes: writes.into_iter().collect() }
            })
        }
        _ => errno(libc::EINVAL),
    }
}

pub(super) fn pipe(linux: &mut Linux, guest: &mut Guest<'_>, address: Virt, flags: i32) -> Served {
    check(guest, address, 8)?;
    let first = linux.files.free(0)?;
    linux.files.free(first + 1)?;
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
    let from = linux.files.install(OpenFile::new(from), close_on_exec, 0)?;
    let to = linux.files.install(OpenFile::new(to), close_on_exec, 0)?;
    let pair: Vec<u8> = [int(from), int(to)].into_iter().flat_map(i32::to_le_bytes).collect();
    guest.write(address, &pair)?;
    Ok(0)
}

/// readlink and readlinkat: links to the program's own files are ours, the rest the host's.
pub(super) fn readlink(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    call: i64,
    a: &[u64; 6],
    name: Virt,
    (buffer, length): (Virt, u64),
) -> Served {
    let usable = guest.space.accessible(buffer, length.min(4096), Access::Write);
    let usable = usize::try_from(usable).unwrap_or(usize::MAX);
    match own::named(&path(guest, name)?) {
        None => passthrough::serve(linux, guest, call, a).unwrap_or_else(|| errno(libc::ENOSYS)),
        Some(Own::Executable) => {
            let target = linux.identity.path.as_bytes();
            let length = usable.min(target.len());
            guest.write(buffer, &target[..length])?;
            Ok(length as u64)
        }
        Some(Own::Descriptor(number)) => {
            let Ok(file) = linux.files.get(number) else { return errno(libc::ENOENT) };
            guest.input(&mut || match host::path_of(&file.host()) {
                Ok(mut bytes) => {
                    bytes.truncate(usable);
                    let result = i64::try_from(bytes.len()).unwrap_or(0);
                    Input { result, writes: vec![MemoryWrite { address: buffer, bytes }] }
                }
                Err(result) => Input { result, writes: Vec::new() },
            })
        }
        Some(Own::Other) => errno(libc::ENOENT),
    }
}

/// Runs `call` on a file that is opened by its path for this alone: calls that have no `*at` form.
fn with_opened(
    linux: &Linux,
    guest: &mut Guest<'_>,
    name: Virt,
    flags: i32,
    call: &mut dyn FnMut(i32) -> Input,
) -> Served {
    use std::os::fd::AsRawFd;
    let name = passthrough::path_of_another(guest, name)?;
    let directory = linux.files.directory().host();
    guest.input(&mut || match host::open(directory, &name, flags, 0) {
        Ok(file) => call(file.as_raw_fd()),
        Err(result) => Input { result, writes: Vec::new() },
    })
}

pub(super) fn truncate(linux: &mut Linux, guest: &mut Guest<'_>, name: Virt, length: u64) -> Served {
    with_opened(linux, guest, name, libc::O_WRONLY, &mut |file| Input {
        result: host::truncate(file, length),
        writes: Vec::new(),
    })
}

pub(super) fn statfs(linux: &mut Linux, guest: &mut Guest<'_>, name: Virt, address: Virt) -> Served {
    check(guest, address, size_of::<libc::statfs>() as u64)?;
    with_opened(linux, guest, name, libc::O_PATH, &mut |file| {
        let (result, bytes) = host::statfs(file);
        let writes = (result >= 0).then_some(MemoryWrite { address, bytes });
        Input { result, writes: writes.into_iter().collect() }
    })
}

pub(super) fn getcwd(linux: &mut Linux, guest: &mut Guest<'_>, address: Virt, size: u64) -> Served {
    let directory = linux.files.directory().host();
    let usable = guest.space.accessible(address, size.min(4096), Access::Write);
    guest.input(&mut || {
        let mut bytes = match host::path_of(&directory) {
            Ok(path) => path,
            Err(result) => return Input { result, writes: Vec::new() },
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
            Ok(()) => Input {
                result: i64::try_from(needed).unwrap_or(0),
                writes: vec![MemoryWrite { address, bytes }],
            },
            Err(error) => Input { result: -i64::from(error), writes: Vec::new() },
        }
    })
}

pub(super) fn chdir(linux: &mut Linux, guest: &mut Guest<'_>, name: Virt) -> Served {
    let name = path(guest, name)?;
    enter(linux, guest, libc::AT_FDCWD, &name)
}

pub(super) fn fchdir(linux: &mut Linux, guest: &mut Guest<'_>, descriptor: i32) -> Served {
    linux.files.get(descriptor)?;
    enter(linux, guest, descriptor, c".")
}

/// Makes a directory the working directory.
fn enter(linux: &mut Linux, guest: &mut Guest<'_>, from: i32, name: &CStr) -> Served {
    let from = linux.files.host_directory(from);
    let opened = open_host(guest, &mut || host::open(from, name, libc::O_PATH | libc::O_DIRECTORY, 0))?;
    linux.files.set_directory(OpenFile::new(opened));
    Ok(0)
}
