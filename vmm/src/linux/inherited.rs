//! Open files that gretel was started with, besides its standard streams, and that the program has from its start: a shell's
//! `3<file`, the sockets of systemd (LISTEN_FDS), make's job server.
//!
//! Each is what it would be if it had come with a message from outside: a socket, a regular file, or something that only the host
//! knows. The recording's header has them, so that a replay has the same numbers open, and nothing behind them.

use super::Kernel;
use super::descriptors::{LIMIT, OpenFile};
use super::host::{inherited as host, sockets};
use super::sharing::Inode;
use super::terminal::{self, Side};
use crate::host::is_terminal;
use crate::program::Inherited;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// The open files above the standard streams that a program would have which is executed here, by number. From now on they are
/// the caller's, and of no other program that is executed here; so a second call finds none.
#[must_use]
pub fn take() -> Vec<(Inherited, OwnedFd)> {
    let mut all: Vec<(Inherited, OwnedFd)> = Vec::new();
    for number in numbers() {
        if number as usize >= LIMIT {
            tracing::warn!("descriptor {number} is not passed on: the program may have {LIMIT}");
            continue;
        }
        let Some(file) = host::take(number) else { continue };
        let before = [0, 1, 2].into_iter().chain(all.iter().map(|(it, _)| it.number));
        let copy_of = before.into_iter().find(|before| host::is_same(*before, number));
        let option = |name| sockets::number_option(file.as_raw_fd(), libc::SOL_SOCKET, name)?.try_into().ok();
        let socket = option(libc::SO_DOMAIN).zip(option(libc::SO_TYPE)).map(<[u32; 2]>::from);
        let inode = Inode::bytes_of(file.as_raw_fd());
        let words: Vec<u64> = inode.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let file_of = words.first_chunk().copied();
        let terminal = is_terminal(number);
        all.push((Inherited { number, copy_of, socket, file: file_of, terminal }, file));
    }
    all
}

/// The descriptors above the standard streams that stay open behind an exec.
fn numbers() -> Vec<u32> {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|n| *n > 2).collect();
    numbers.retain(|number| {
        fs::read_to_string(format!("/proc/self/fdinfo/{number}")).is_ok_and(|info| stays_open(&info))
    });
    numbers.sort_unstable();
    numbers
}

/// Whether a descriptor with these lines in /proc is open behind an exec.
fn stays_open(info: &str) -> bool {
    const CLOSED: u32 = 0o2_000_000;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & CLOSED == 0)
}

impl Kernel {
    /// Gives the first process what it inherits. At replay the host has none of it open, and a header may say anything.
    pub(super) fn inherit(&mut self, inherited: &[Inherited], files: Vec<OwnedFd>) {
        let mut files = files.into_iter();
        for it in inherited.iter().filter(|it| (it.number as usize) < LIMIT) {
            let host = files.next();
            let copied = it.copy_of.and_then(|of| self.files().get(RawFd::try_from(of).ok()?).ok());
            let file = copied.unwrap_or_else(|| self.inherited(it, host));
            self.files_mut().begin_with(it.number as usize, file);
        }
    }

    /// The open file that it is.
    fn inherited(&mut self, it: &Inherited, host: Option<OwnedFd>) -> Rc<OpenFile> {
        if let Some([family, kind]) = it.socket {
            return OpenFile::of_socket(host, self.endpoint(family.cast_signed(), kind.cast_signed()));
        }
        if it.terminal {
            return OpenFile::of_terminal(host, Side::Slave(terminal::OUTER));
        }
        let inode = it.file.and_then(|words| Inode::from_bytes(&words.map(u64::to_le_bytes).concat()));
        OpenFile::of_file(host, inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_descriptor_are_read() {
        assert!(stays_open("pos:\t0\nflags:\t0100000\nmnt_id:\t29\n"));
        assert!(!stays_open("pos:\t0\nflags:\t02100000\nmnt_id:\t29\n"));
        assert!(!stays_open(""));
    }
}
