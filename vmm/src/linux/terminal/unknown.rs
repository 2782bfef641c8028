//! Requests that are not passed on. Most files know no more than those that are, so natively they are ENOTTY as well: nothing is said of
//! these. What is said is what a kernel might have served.
//!
//! Example: a shell whose standard input is /dev/null asks TIOCSPGRP of it. /dev/null is no terminal, on any kernel.

use super::super::descriptors::OpenFile;
use super::super::{Guest, Kernel, Served, errno, host};
use std::os::fd::RawFd;

/// What an open file is, as far as requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No request is its own: pipes, /dev/null and its kin, what the guest alone has.
    Mute,
    Terminal,
    Socket,
    /// A file or a folder: its file system's requests.
    File,
    /// A device with a driver of its own.
    Device,
}

/// The drivers of /dev/null, /dev/zero, /dev/full and their kin.
const MEMORY: u32 = 1;
/// The groups of requests (asm-generic/ioctl.h: the second byte) of terminals, of sockets and wireless interfaces, of file systems.
const TERMINALS: u64 = 0x54;
const SOCKETS: [u64; 2] = [0x89, 0x8b];
const FILE_SYSTEMS: [u64; 7] = [0, b'f' as u64, b'X' as u64, 0x94, b'v' as u64, b'r' as u64, b'E' as u64];

/// Answers a request that is not passed on.
pub(super) fn refuse(kernel: &mut Kernel, guest: &mut Guest<'_>, file: &OpenFile, request: u64) -> Served {
    if may_be_served(kind(guest, file)?, request) {
        kernel.say_ioctl(request);
    }
    errno(libc::ENOTTY)
}

fn kind(guest: &mut Guest<'_>, file: &OpenFile) -> Served<Kind> {
    if file.terminal().is_some() {
        return Ok(Kind::Terminal);
    }
    if file.endpoint().is_some() {
        return Ok(Kind::Socket);
    }
    if file.source().is_some() || file.queue().is_some() || file.process().is_some() {
        return Ok(Kind::Mute);
    }
    Ok(match guest.input_number(|| of_host(file.host()))? {
        TOLD_TERMINAL => Kind::Terminal,
        TOLD_FILE => Kind::File,
        TOLD_DEVICE => Kind::Device,
        _ => Kind::Mute,
    })
}

/// What the journal has for a file of the host.
const TOLD_TERMINAL: u64 = 1;
const TOLD_FILE: u64 = 2;
const TOLD_DEVICE: u64 = 3;

fn of_host(file: RawFd) -> i64 {
    let Ok([_, _, mode, device, _]) = host::stat(file) else { return 0 };
    let kind = u32::try_from(mode).unwrap_or(0) & libc::S_IFMT;
    let told = match kind {
        libc::S_IFREG | libc::S_IFDIR => TOLD_FILE,
        libc::S_IFCHR if libc::major(device) == MEMORY => 0,
        libc::S_IFCHR if host::ioctl(file, libc::TCGETS, &mut [0; super::KERNEL_TERMIOS]) == 0 => {
            TOLD_TERMINAL
        }
        libc::S_IFCHR | libc::S_IFBLK => TOLD_DEVICE,
        _ => 0,
    };
    i64::try_from(told).unwrap_or(0)
}

/// Whether some kernel serves a request of such a file.
fn may_be_served(kind: Kind, request: u64) -> bool {
    let group = request >> 8 & 0xff;
    match kind {
        Kind::Mute => false,
        Kind::Terminal => group == TERMINALS,
        Kind::Socket => SOCKETS.contains(&group),
        Kind::File => FILE_SYSTEMS.contains(&group),
        Kind::Device => group != TERMINALS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_no_kernel_serves_is_not_said() {
        let request = libc::TIOCSPGRP;
        let kinds = [Kind::Mute, Kind::Socket, Kind::File, Kind::Device, Kind::Terminal];
        assert_eq!(kinds.map(|kind| may_be_served(kind, request)), [false, false, false, false, true]);
        // SIOCGIWNAME, FS_IOC_FIEMAP, KVM_GET_API_VERSION.
        assert!(may_be_served(Kind::Socket, 0x8b01) && may_be_served(Kind::File, 0xc020_660b));
        assert!(may_be_served(Kind::Device, 0xae00) && !may_be_served(Kind::File, 0xae00));
    }

    #[test]
    fn files_of_the_host_are_told_apart() {
        let told = |path: &str| of_host(File::open(path).expect("it is everywhere").as_raw_fd());
        assert_eq!([told("/dev/null"), told("/dev/zero"), told("/"), told("/etc/passwd")], [0, 0, 2, 2]);
        assert_eq!(told("/dev/ptmx"), 1);
    }
}
