//! The commands of fcntl and ioctl about signals of files (fs/fcntl.c, fs/notify/dnotify).

use super::super::descriptors::OpenFile;
use super::super::files::open_host;
use super::super::host::{self, paths};
use super::super::network::Endpoint;
use super::super::{Guest, Kernel, Served, errno, int, word};
use super::watch::{Watch, take_edge};
use super::{Kind, Owner};
use crate::ram::Virt;
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// Commands of fcntl that libc does not name (asm-generic/fcntl.h).
pub(in super::super) const F_SETOWN: i32 = 8;
pub(in super::super) const F_GETOWN: i32 = 9;
pub(in super::super) const F_SETSIG: i32 = 10;
pub(in super::super) const F_GETSIG: i32 = 11;
pub(in super::super) const F_SETOWN_EX: i32 = 15;
pub(in super::super) const F_GETOWN_EX: i32 = 16;

/// Requests of sockets: FIOSETOWN and SIOCSPGRP, FIOGETOWN and SIOCGPGRP.
const SET_OWNER: [u64; 2] = [0x8901, 0x8902];
const GET_OWNER: [u64; 2] = [0x8903, 0x8904];

/// Kinds of files that send signals, as the host tells them.
const NONE: u64 = 0;
const PIPE: u64 = 1;
const TERMINAL: u64 = 2;
const OTHER: u64 = 3;

/// Changes of directories that F_NOTIFY tells of (linux/fcntl.h), and those of inotify.
const CHANGES: [(u64, u32); 6] = [
    (1, libc::IN_ACCESS),
    (2, libc::IN_MODIFY),
    (4, libc::IN_CREATE | libc::IN_MOVED_TO),
    (8, libc::IN_DELETE | libc::IN_MOVED_FROM),
    (16, libc::IN_MOVED_FROM | libc::IN_MOVED_TO),
    (32, libc::IN_ATTRIB),
];
/// DN_MULTISHOT.
const OFTEN: u64 = 1 << 31;

/// Who the signals of a file go to, and which.
pub(in super::super) fn fcntl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    command: i32,
    value: u64,
) -> Served {
    let owner = kernel.sigio.find(file).map(|asked| asked.owner).unwrap_or_default();
    match command {
        F_SETSIG if value > 64 => errno(libc::EINVAL),
        F_SETSIG => {
            kernel.sigio.entry(file).signal = int(value);
            Ok(0)
        }
        F_GETSIG => Ok(kernel.sigio.find(file).map_or(0, |asked| word(asked.signal.into()))),
        F_SETOWN => set_owner(kernel, guest, file, int(value)),
        F_SETOWN_EX => {
            let words: [u8; 8] = guest.read_array(value)?;
            let [kind, id] = [0, 4].map(|at| int(u64::from_le_bytes(words) >> (at * 8)));
            let kind = match kind {
                0 => Kind::Task,
                1 => Kind::Process,
                2 => Kind::ProcessGroup,
                _ => return errno(libc::EINVAL),
            };
            kernel.choose_owner(file, kind, id)?;
            watch_for_urgent(kernel, guest, file)
        }
        F_GETOWN_EX => {
            let kind = match owner.kind {
                Kind::Task => 0_i32,
                Kind::Process => 1,
                Kind::ProcessGroup => 2,
            };
            guest.write(value, [kind.to_le_bytes(), owner.id.to_le_bytes()].as_flattened())?;
            Ok(0)
        }
        _ => Ok(word(told(owner).into())),
    }
}

/// An owner as F_GETOWN tells it.
fn told(owner: Owner) -> i32 {
    if owner.kind == Kind::ProcessGroup { -owner.id } else { owner.id }
}

/// F_SETOWN: a process, or a negative process group.
fn set_owner(kernel: &mut Kernel, guest: &mut Guest<'_>, file: &Rc<OpenFile>, who: i32) -> Served {
    match who.checked_neg() {
        None => return errno(libc::EINVAL),
        Some(group @ 1..) => kernel.choose_owner(file, Kind::ProcessGroup, group)?,
        Some(_) => kernel.choose_owner(file, Kind::Process, who)?,
    };
    watch_for_urgent(kernel, guest, file)
}

/// Watches a stream that has an owner for urgent data (`sk_send_sigurg` of net/core/sock.c), and one that has none no more.
fn watch_for_urgent(kernel: &mut Kernel, guest: &mut Guest<'_>, file: &Rc<OpenFile>) -> Served {
    if !file.endpoint().is_some_and(Endpoint::is_stream) {
        return Ok(0);
    }
    let asked = kernel.sigio.entry(file);
    if asked.owner.id == 0 {
        asked.urgent = None;
    } else if asked.urgent.is_none() {
        let teller = edges_of(guest, file, libc::EPOLLPRI)?;
        kernel.sigio.entry(file).urgent = Some(Watch::urgent(teller));
    }
    Ok(0)
}

/// A set of the host's that tells of these edges of a file from now on.
fn edges_of(guest: &mut Guest<'_>, file: &OpenFile, events: i32) -> Served<Rc<OpenFile>> {
    let teller = open_host(guest, &mut || {
        let epoll = host::epoll()?;
        let mut event = [0; 12];
        event[..4].copy_from_slice(&(events | libc::EPOLLET).to_le_bytes());
        match host::epoll_control(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, file.host(), event) {
            0 => {
                // What was there before is no news.
                take_edge(epoll.as_raw_fd());
                Ok(epoll)
            }
            error => Err(error),
        }
    })?;
    Ok(OpenFile::new(teller))
}

/// The requests of ioctl that are about signals; `None` for others.
pub(in super::super) fn ioctl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    file: &Rc<OpenFile>,
    request: u64,
    address: Virt,
) -> Option<Served> {
    match request {
        libc::FIOASYNC => Some(switch_by_pointer(kernel, guest, number, file, address)),
        _ if file.endpoint().is_none() => None,
        _ if SET_OWNER.contains(&request) => Some(match guest.read_array(address) {
            Ok(who) => set_owner(kernel, guest, file, i32::from_le_bytes(who)),
            Err(stop) => Err(stop),
        }),
        _ if GET_OWNER.contains(&request) => {
            let owner = kernel.sigio.find(file).map(|asked| asked.owner).unwrap_or_default();
            Some(guest.write(address, &told(owner).to_le_bytes()).map(|()| 0))
        }
        _ => None,
    }
}

/// FIOASYNC.
fn switch_by_pointer(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    file: &Rc<OpenFile>,
    address: Virt,
) -> Served {
    let on = guest.read_array(address)? != [0; 4];
    if on != kernel.is_asynchronous(file) && !switch(kernel, guest, number, file, on)? {
        return errno(libc::ENOTTY);
    }
    Ok(0)
}

/// F_GETFL.
pub(in super::super) fn flags(kernel: &Kernel, guest: &mut Guest<'_>, file: &Rc<OpenFile>) -> Served {
    let flags = guest.input_number(|| host::fcntl(file.host(), libc::F_GETFL, 0))?;
    let own = if kernel.is_asynchronous(file) { libc::O_ASYNC } else { 0 };
    Ok(flags | u64::from(own.unsigned_abs()))
}

/// F_SETFL. The host is not told of O_ASYNC: its signals would be gretel's.
pub(in super::super) fn set_flags(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    file: &Rc<OpenFile>,
    flags: u64,
) -> Served {
    let asynchronous = u64::from(libc::O_ASYNC.unsigned_abs());
    let on = flags & asynchronous != 0;
    guest.input_number(|| host::fcntl(file.host(), libc::F_SETFL, flags & !asynchronous))?;
    if on != kernel.is_asynchronous(file) {
        // A file that sends no signals keeps the flag off, and nobody is told.
        switch(kernel, guest, number, file, on)?;
    }
    Ok(0)
}

/// Begins or ends to watch a file; false if it is of a kind that sends no signals.
fn switch(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    file: &Rc<OpenFile>,
    on: bool,
) -> Served<bool> {
    if !on {
        kernel.sigio.entry(file).ready = None;
        return Ok(true);
    }
    let kind = guest.input_number(|| kind_of(file))?;
    if kind == NONE {
        return Ok(false);
    }
    let teller = edges_of(guest, file, libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP)?;
    if kind == TERMINAL && kernel.sigio.entry(file).owner.id == 0 {
        own_terminal(kernel, file)?;
    }
    kernel.sigio.entry(file).ready = Some(Watch::ready(number, teller, kind == PIPE));
    Ok(true)
}

/// Which kind of a file the host has.
fn kind_of(file: &OpenFile) -> i64 {
    let Ok([_, _, mode, ..]) = host::stat(file.host()) else { return 0 };
    let is = |kind: u32| mode & u64::from(libc::S_IFMT) == u64::from(kind);
    let kind = if is(libc::S_IFIFO) {
        PIPE
    } else if is(libc::S_IFSOCK) {
        OTHER
    } else if is(libc::S_IFCHR) && host::ioctl(file.host(), libc::TCGETS, &mut [0; 36]) == 0 {
        TERMINAL
    } else {
        NONE
    };
    i64::try_from(kind).unwrap_or(0)
}

/// A terminal without an owner gets its foreground, or else the caller (`__tty_fasync`).
fn own_terminal(kernel: &mut Kernel, file: &Rc<OpenFile>) -> Served {
    match kernel.foreground_of(file) {
        0 => kernel.choose_owner(file, Kind::Process, kernel.pid()),
        group => kernel.choose_owner(file, Kind::ProcessGroup, group),
    }
}

/// F_NOTIFY: changes of a directory, of which nothing asks again for none.
pub(in super::super) fn notify(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    file: &Rc<OpenFile>,
    wanted: u64,
) -> Served {
    if wanted & !OFTEN == 0 {
        kernel.sigio.entry(file).changes = None;
        return Ok(0);
    }
    let (before, often) =
        kernel.sigio.find(file).and_then(|asked| asked.changes.as_ref()).map_or((0, false), Watch::wanted);
    let chosen = CHANGES.iter().filter(|(change, _)| wanted & change != 0);
    let events = chosen.fold(before, |events, (_, of)| events | of);
    let inotify = open_host(guest, &mut || {
        let inotify = paths::inotify(libc::IN_NONBLOCK)?;
        let name = host::name_of_open(file.host());
        match paths::watch(inotify.as_raw_fd(), &name, events | libc::IN_ONLYDIR) {
            ..0 => Err(-i64::from(libc::ENOTDIR)),
            _ => Ok(inotify),
        }
    })?;
    if kernel.sigio.entry(file).owner.id == 0 {
        kernel.choose_owner(file, Kind::Process, kernel.pid())?;
    }
    let watch = Watch::changes(number, OpenFile::new(inotify), events, often || wanted & OFTEN != 0);
    kernel.sigio.entry(file).changes = Some(watch);
    Ok(0)
}

impl Kernel {
    /// Whether O_ASYNC is set.
    fn is_asynchronous(&self, file: &Rc<OpenFile>) -> bool {
        self.sigio.find(file).is_some_and(|asked| asked.ready.is_some())
    }

    /// Makes somebody of the guest the owner of a file; nobody, if the id is zero.
    fn choose_owner(&mut self, file: &Rc<OpenFile>, kind: Kind, id: i32) -> Served {
        if id < 0 || id != 0 && self.tasks.get(id).is_none() && !self.groups.uses(id) {
            return errno(libc::ESRCH);
        }
        let [real, effective, ..] = self.group().credentials.uid;
        self.sigio.entry(file).owner = Owner { kind, id, users: [real, effective] };
        Ok(0)
    }
}
