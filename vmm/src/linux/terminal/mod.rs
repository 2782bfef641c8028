//! Terminals: ioctl, and pseudo-terminals between processes of the guest.
//!
//! What is written and read, the settings and the line discipline are the host's. Sessions and process groups are the guest's
//! own, which the host knows nothing of, so a terminal that the guest has made has its job control here: whose controlling
//! terminal it is and who is in the foreground ([`control`]), and the signals of keys ([`keys`]). The terminal of the session that gretel
//! itself was started in is one more ([`OUTER`]): who of the guest is in its foreground is kept here, too, while to the host that is
//! gretel as a whole; the host sends its signals to gretel, which passes them on to them.
//!
//! Example: sshd opens a master, and a shell on the slave makes it its controlling terminal and runs a command in a group of
//! its own. A byte 3 that is written to the master is a SIGINT to that group.

mod control;
mod keys;
mod unknown;

use super::descriptors::OpenFile;
use super::passthrough::check;
use super::sigio::calls as sigio;
use super::{Guest, Kernel, Served, errno, host, identity, int, network, reflink};
use crate::gate::{Input, MemoryWrite};
use crate::plain::plain;
use crate::program::{Launch, OuterTerminal};
use crate::ram::Virt;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};

/// Which way a request's data goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The host reads it.
    In,
    /// The host writes it.
    Out,
    /// It is the argument itself.
    Value,
}

/// The requests that are passed on: number, direction and size of what the argument points to
/// (asm-generic/ioctls.h).
const REQUESTS: &[(u64, Way, usize)] = &[
    (libc::TCGETS, Way::Out, KERNEL_TERMIOS),
    (libc::TCSETS, Way::In, KERNEL_TERMIOS),
    (libc::TCSETSW, Way::In, KERNEL_TERMIOS),
    (libc::TCSETSF, Way::In, KERNEL_TERMIOS),
    (TCGETS2, Way::Out, KERNEL_TERMIOS2),
    (TCSETS2, Way::In, KERNEL_TERMIOS2),
    (TCSETSW2, Way::In, KERNEL_TERMIOS2),
    (TCSETSF2, Way::In, KERNEL_TERMIOS2),
    (libc::TCFLSH, Way::Value, 0),
    (libc::TCSBRK, Way::Value, 0),
    (libc::TCXONC, Way::Value, 0),
    (libc::TIOCGWINSZ, Way::Out, size_of::<libc::winsize>()),
    (libc::TIOCSWINSZ, Way::In, size_of::<libc::winsize>()),
    (libc::TIOCGPGRP, Way::Out, 4),
    (libc::TIOCGETD, Way::Out, 4),
    (libc::TIOCSETD, Way::In, 4),
    (libc::TIOCOUTQ, Way::Out, 4),
    (libc::TIOCGPTN, Way::Out, 4),
    (libc::TIOCSPTLCK, Way::In, 4),
    (TIOCGPTLCK, Way::Out, 4),
    (libc::TIOCPKT, Way::In, 4),
    (TIOCGPKT, Way::Out, 4),
    (TIOCGEXCL, Way::Out, 4),
    (RNDGETENTCNT, Way::Out, 4),
    (libc::TIOCEXCL, Way::Value, 0),
    (libc::TIOCNXCL, Way::Value, 0),
    (libc::FIONREAD, Way::Out, 4),
    (libc::FIONBIO, Way::In, 4),
    (FIGETBSZ, Way::Out, 4),
    (FS_IOC_GETFLAGS, Way::Out, 4),
    (FS_IOC_SETFLAGS, Way::In, 4),
    (FIOQSIZE, Way::Out, 8),
    (FS_IOC_GETVERSION, Way::Out, 4),
    (FS_IOC_FSGETXATTR, Way::Out, 28),
    (libc::TIOCMGET, Way::Out, 4),
    (TIOCGDEV, Way::Out, 4),
];

/// Those that are not passed on while the caller is in the background of its terminal (`tty_ioctl` of drivers/tty).
const IN_FOREGROUND: [u64; 4] = [libc::TCFLSH, libc::TCSBRK, libc::TCXONC, libc::TIOCSETD];

/// Those that change the settings.
const SETTING: [u64; 6] = [libc::TCSETS, libc::TCSETSW, libc::TCSETSF, TCSETS2, TCSETSW2, TCSETSF2];

/// Size of the kernel's `struct termios`, which is not libc's.
const KERNEL_TERMIOS: usize = 36;
/// The same with speeds (`struct termios2`), which newer libraries use alone.
const KERNEL_TERMIOS2: usize = 44;
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;
const TCSETSW2: u64 = 0x402c_542c;
const TCSETSF2: u64 = 0x402c_542d;
/// Requests of files (linux/fs.h); the flags are an `int`, whatever the numbers say.
const FIGETBSZ: u64 = 2;
const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_GETVERSION: u64 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
const FIOQSIZE: u64 = 0x5460;
const TIOCGDEV: u64 = 0x8004_5432;
const TIOCGPTLCK: u64 = 0x8004_5439;
const TIOCGPKT: u64 = 0x8004_5438;
const TIOCGEXCL: u64 = 0x8004_5440;
/// Of /dev/random: how much it has gathered, in bits (linux/random.h).
const RNDGETENTCNT: u64 = 0x8004_5200;

/// The number here of the terminal that gretel was started on; the guest's own have others.
pub(super) const OUTER: u64 = 0;

/// Which end of a pseudo-terminal of the guest's an open file is, by the terminal's number here; of [`OUTER`] it is always the slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Master(u64),
    Slave(u64),
}
plain!(enum Side { 0 = Master(a), 1 = Slave(a) });

impl Side {
    fn terminal(self) -> u64 {
        match self {
            Side::Master(terminal) | Side::Slave(terminal) => terminal,
        }
    }
}

/// A terminal that the guest knows.
#[derive(Clone, Debug)]
struct Terminal {
    /// Its number in /dev/pts, if it is there.
    index: Option<u32>,
    /// The terminal is hung up when the master is closed; nothing here is the master of [`OUTER`].
    master: Weak<OpenFile>,
    /// The session whose controlling terminal it is, or zero, and that session's foreground group.
    session: i32,
    foreground: i32,
    /// The next byte is no key.
    literal: bool,
}
plain!(struct Terminal { index, master, session, foreground, literal });

/// All of them, by their numbers here: the host's are used again.
#[derive(Clone, Default)]
pub(super) struct Terminals {
    all: BTreeMap<u64, Terminal>,
}
plain!(struct Terminals { all });

impl Terminals {
    /// What is there when the first process begins: the terminal of its session.
    pub(super) fn outside(launch: &Launch) -> Terminals {
        let outer = launch.terminal.map(|OuterTerminal { index, .. }| Terminal {
            index,
            master: Weak::new(),
            session: launch.parents.session,
            foreground: identity::process_group(launch),
            literal: false,
        });
        Terminals { all: outer.into_iter().map(|outer| (OUTER, outer)).collect() }
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut super::descriptors::Detached) -> Terminals {
        let mut copy = self.clone();
        for terminal in copy.all.values_mut() {
            let master = terminal.master.upgrade().map(|file| Rc::downgrade(&files.file(&file)));
            terminal.master = master.unwrap_or_default();
        }
        copy
    }
}

/// What an open file of the host is: the kind, and the number in /dev/pts; nothing for what is no terminal.
pub(super) fn told(file: RawFd) -> Vec<u8> {
    const OWN: u64 = 5 << 8;
    const MULTIPLEXER: u64 = 5 << 8 | 2;
    const SLAVES: std::ops::RangeInclusive<u32> = 136..=143;
    let Ok([_, _, mode, device, _]) = host::stat(file) else { return Vec::new() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    if mode & u64::from(libc::S_IFMT) != u64::from(libc::S_IFCHR) {
        return Vec::new();
    }
    if device == MULTIPLEXER {
        let mut index = [0; 4];
        host::ioctl(file, libc::TIOCGPTN, &mut index);
        return [&b"m"[..], &index].concat();
    }
    if device == OWN {
        return b"o".to_vec();
    }
    match SLAVES.contains(&major) {
        true => [&b"s"[..], &((major - SLAVES.start()) << 8 | minor).to_le_bytes()].concat(),
        false => Vec::new(),
    }
}

impl Kernel {
    /// The open file of a terminal, from what [`told`] said of it; `None` if it is none that the guest knows.
    pub(super) fn terminal_file(
        &mut self,
        told: &[u8],
        file: &mut Option<std::os::fd::OwnedFd>,
    ) -> Option<Rc<OpenFile>> {
        let (kind, index) = told.split_first()?;
        if *kind == b'o' {
            let file = self.terminals.all.contains_key(&OUTER).then(|| file.take());
            return Some(OpenFile::of_terminal(file?, Side::Slave(OUTER)));
        }
        let index = u32::from_le_bytes(index.try_into().ok()?);
        if *kind == b's' {
            let found = self.terminals.all.iter().find(|(_, terminal)| terminal.index == Some(index));
            let side = Side::Slave(*found?.0);
            return Some(OpenFile::of_terminal(file.take(), side));
        }
        let number = self.new_object();
        let master = OpenFile::of_terminal(file.take(), Side::Master(number));
        let terminal = Terminal {
            index: Some(index),
            master: Rc::downgrade(&master),
            session: 0,
            foreground: 0,
            literal: false,
        };
        self.terminals.all.insert(number, terminal);
        Some(master)
    }
}

pub(super) fn ioctl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    request: u64,
    address: Virt,
) -> Served {
    let file = kernel.files().get(number)?;
    let request = request & 0xffff_ffff;
    if request == libc::FIOCLEX || request == libc::FIONCLEX {
        kernel.files_mut().set_close_on_exec(number, request == libc::FIOCLEX)?;
        return Ok(0);
    }
    if let Some(served) = sigio::ioctl(kernel, guest, number, &file, request, address) {
        return served;
    }
    if let Some(side) = file.terminal() {
        if let Some(served) = control::ioctl(kernel, guest, &file, side, request, address) {
            return served;
        }
        // The settings are those of the slave, by whichever end they are set.
        let by_slave = IN_FOREGROUND.contains(&request) && matches!(side, Side::Slave(_));
        if by_slave || SETTING.contains(&request) {
            kernel.check_foreground(side, libc::SIGTTOU)?;
        }
    }
    if file.endpoint().is_some()
        && let Some(served) = network::requests::serve(kernel, guest, &file, request, address)
    {
        return served;
    }
    if request == libc::TIOCSTI {
        // As kernels since 6.2 answer whose dev.tty.legacy_tiocsti is off.
        return errno(libc::EIO);
    }
    if let Some(served) = reflink::ioctl(kernel, guest, &file, request, address) {
        return served;
    }
    pass(kernel, guest, &file, request, address)
}

/// Passes a request on to the host.
fn pass(kernel: &mut Kernel, guest: &mut Guest<'_>, file: &OpenFile, request: u64, address: Virt) -> Served {
    let Some(&(_, way, size)) = REQUESTS.iter().find(|(known, ..)| *known == request) else {
        return unknown::refuse(kernel, guest, file, request);
    };
    let mut bytes = vec![0; size];
    match way {
        Way::In => guest.read(address, &mut bytes)?,
        Way::Out => check(guest, address, size as u64)?,
        Way::Value => {}
    }
    guest.input(&mut || {
        let result = match way {
            Way::Value => host::ioctl_value(file.host(), request, int(address)),
            _ => host::ioctl(file.host(), request, &mut bytes),
        };
        let told = way == Way::Out && result >= 0;
        let writes = told.then(|| MemoryWrite { address, bytes: bytes.clone() });
        Input::Bytes { result, writes: writes.into_iter().collect() }
    })
}

/// Opens the slave of a master (TIOCGPTPEER).
fn open_peer(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    master: &OpenFile,
    terminal: u64,
    flags: i32,
) -> Served {
    kernel.files().free(0)?;
    let opened = super::files::open_host(guest, &mut || host::open_peer(master.host(), flags))?;
    let file = OpenFile::of_terminal(opened, Side::Slave(terminal));
    kernel.files_mut().install(file, flags & libc::O_CLOEXEC != 0, 0)
}
