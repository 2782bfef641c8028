//! A program that runs is not written, and a file that is open to write is not run: ETXTBSY (`deny_write_access` of Linux).
//!
//! Which file a process runs is known to the host alone, so this is asked inside the inputs that open files and read programs, and is in
//! the journal as their error. Of those outside of the guest, who write or run a file, nothing is known.
//!
//! Example: a child writes a file, forgets to close it and calls exec with it. The file is among the guest's open ones, F_GETFL says
//! that it may be written, and exec fails.

use super::descriptors::OpenFile;
use super::proc::Place;
use super::sharing::Inode;
use super::{Kernel, host};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// The regular file that an open with these flags would open, if there is one and this thread may.
pub(super) fn found(place: &Place, flags: i32) -> Option<Inode> {
    let mode = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => libc::R_OK,
        libc::O_WRONLY => libc::W_OK,
        _ => libc::R_OK | libc::W_OK,
    };
    let of = |file: RawFd| match host::may(file, mode) {
        0 => Inode::from_bytes(&Inode::bytes_of(file)),
        _ => None,
    };
    match place {
        Place::Host(directory, path) => {
            of(host::look_up(*directory, path, flags & libc::O_NOFOLLOW).ok()?.as_raw_fd())
        }
        Place::Open(file) => of(file.host()),
        Place::Proc(_) => None,
    }
}

/// Whether an open with these flags may change a file that is there.
pub(super) fn changes(flags: i32) -> bool {
    let is_made = libc::O_CREAT | libc::O_EXCL;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    writes && flags & libc::O_PATH == 0 && flags & is_made != is_made
}

/// Refuses to open a file to write that is one of the programs which run.
pub(super) fn check_open(place: &Place, flags: i32, running: &[Inode]) -> Result<(), i64> {
    let is_running = || found(place, flags).is_some_and(|inode| running.contains(&inode));
    if changes(flags) && is_running() { Err(-i64::from(libc::ETXTBSY)) } else { Ok(()) }
}

/// Refuses to run a file that one of these has open to write.
pub(super) fn check_run(program: RawFd, open: &[Rc<OpenFile>]) -> Result<(), i64> {
    let Some(inode) = Inode::from_bytes(&Inode::bytes_of(program)) else { return Ok(()) };
    let is_written = |file: &&Rc<OpenFile>| {
        let flags = host::fcntl(file.host(), libc::F_GETFL, 0);
        let writes = flags & i64::from(libc::O_ACCMODE) != i64::from(libc::O_RDONLY)
            && flags & i64::from(libc::O_PATH) == 0;
        // Who made a memfd may run it.
        writes && !host::path_of(&file.host()).is_ok_and(|path| path.starts_with(b"/memfd:"))
    };
    match open.iter().filter(|file| file.inode() == Some(inode)).find(is_written) {
        Some(_) => Err(-i64::from(libc::ETXTBSY)),
        None => Ok(()),
    }
}

/// The file of a program that runs, which stays open: no other file gets its number.
pub(super) fn program(file: OwnedFd) -> Rc<OpenFile> {
    let inode = Inode::from_bytes(&Inode::bytes_of(file.as_raw_fd()));
    OpenFile::of_file(Some(file), inode)
}

/// The same, by its path.
pub(super) fn program_at(path: &CStr) -> Option<Rc<OpenFile>> {
    host::open(libc::AT_FDCWD, path, libc::O_PATH, 0).ok().map(program)
}

impl Kernel {
    /// The files of the programs that run; none at replay.
    pub(super) fn running(&self) -> Vec<Inode> {
        let alive = self.groups.iter().filter(|(_, group)| group.ended.is_none());
        alive.filter_map(|(_, group)| group.program.as_ref()?.inode()).collect()
    }

    /// The regular files that the guest has open.
    pub(super) fn open_regular(&self) -> Vec<Rc<OpenFile>> {
        self.open_files().filter(|file| file.inode().is_some()).cloned().collect()
    }
}
