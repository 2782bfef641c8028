//! Opening FIFOs. The host's call waits for the other end, which a task of the same guest may be about to open; so it is never
//! asked to wait. One who reads opens its end at once, and waits until one who writes has come. One who writes cannot open it
//! while nobody reads, and tries again ([`super::attempt`]). To processes outside, both look as they do natively.
//!
//! Example: a child opens a FIFO to write: ENXIO, so it waits. Its parent opens it to read: that succeeds, the child's end is
//! opened in the same input, and both go on.

use super::attempt::Attempt;
use super::descriptors::OpenFile;
use super::sharing::Inode;
use super::wait::{Interrupted, On, Wait, wait};
use super::{Guest, Kernel, Served, host};
use crate::plain::{In, Out, Plain};
use std::cell::RefCell;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// What an attempt came to: the call is done; the end was opened by this one.
const READY: u64 = 1;
const NEW: u64 = 2;

/// The flags of open that concern an open file, and not how it is found.
const STATE: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_ASYNC | libc::O_NOATIME | libc::O_DIRECT;

/// A FIFO that a task opens.
#[derive(Debug)]
pub(super) struct Opening {
    inode: Inode,
    flags: i32,
    /// None at replay.
    hosts: Option<Hosts>,
}

impl Plain for Opening {
    /// The host's side is left out.
    fn put(&self, out: &mut Out) {
        (self.inode, self.flags).put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        let (inode, flags) = Plain::take(from)?;
        Some(Opening { inode, flags, hosts: None })
    }
}

/// The host's side of it.
#[derive(Debug)]
pub(super) struct Hosts {
    /// By which it is opened.
    path: OwnedFd,
    /// Its end, once that is open.
    end: RefCell<Option<OwnedFd>>,
}

impl Hosts {
    /// The FIFO that a path names; `None` if openat would open something else, or nothing.
    pub(super) fn find(directory: RawFd, path: &CStr, flags: i32) -> Result<Option<Hosts>, i64> {
        let excluded = libc::O_EXCL | libc::O_PATH | libc::O_DIRECTORY;
        let follow = flags & libc::O_NOFOLLOW;
        if flags & excluded != 0 || !host::is_fifo(directory, path, follow == 0) {
            return Ok(None);
        }
        let path = host::open(directory, path, libc::O_PATH | follow, 0)?;
        Ok(Some(Hosts { path, end: RefCell::default() }))
    }

    /// Which one it is, as an input has it.
    pub(super) fn told(&self) -> Vec<u8> {
        Inode::bytes_of_any(self.path.as_raw_fd())
    }

    /// Opens the end if it is not open. Zero while the other one is not.
    fn attempt(&self, flags: i32) -> i64 {
        let mut end = self.end.borrow_mut();
        let waits = flags & libc::O_NONBLOCK == 0;
        let mut done = 0;
        if end.is_none() {
            match host::reopen(self.path.as_raw_fd(), flags & STATE | libc::O_NONBLOCK) {
                Ok(opened) => *end = Some(opened),
                Err(error) if waits && error == -i64::from(libc::ENXIO) => return 0,
                Err(error) => return error,
            }
            done |= NEW;
        }
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        if !(waits && reads) || end.as_ref().is_some_and(|end| host::has_writer(end.as_raw_fd())) {
            done |= READY;
        }
        super::long(done)
    }

    /// Gives the end away, as it was asked for.
    fn take(&self, flags: i32) -> Option<OwnedFd> {
        let end = self.end.take()?;
        if flags & libc::O_NONBLOCK == 0 {
            let now = host::fcntl(end.as_raw_fd(), libc::F_GETFL, 0);
            let without = super::word(now & !i64::from(libc::O_NONBLOCK));
            host::fcntl(end.as_raw_fd(), libc::F_SETFL, without);
        }
        Some(end)
    }
}

impl Opening {
    /// Whether the call would go on. Asks the host.
    pub(super) fn is_ready(&self) -> bool {
        let done = self.attempt();
        done < 0 || super::word(done) & READY != 0
    }

    fn attempt(&self) -> i64 {
        self.hosts.as_ref().map_or(0, |hosts| hosts.attempt(self.flags))
    }

    /// The same with no host's files.
    pub(super) fn detached(&self) -> Opening {
        Opening { hosts: None, ..*self }
    }
}

/// Opens the FIFO that was found.
pub(super) fn open(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    hosts: Option<Hosts>,
    inode: Inode,
    flags: i32,
) -> Served {
    let opening = Opening { inode, flags, hosts };
    go_on(kernel, guest, Rc::new(Attempt::Fifo(opening)))
}

/// Opens the FIFO that a task waited for, or waits on.
pub(super) fn go_on(kernel: &mut Kernel, guest: &mut Guest<'_>, attempt: Rc<Attempt>) -> Served {
    let Attempt::Fifo(opening) = &*attempt else { return super::errno(libc::EINVAL) };
    let same = |other: &Attempt| matches!(other, Attempt::Fifo(it) if it.inode == opening.inode);
    let others: Vec<_> = kernel.attempts().into_iter().filter(|(_, other)| same(other)).collect();
    let done = guest.input_number(|| {
        let first = opening.attempt();
        if first < 0 || first & super::long(NEW) == 0 {
            return first;
        }
        // Who waits for this end has it now, even if it closes again before that task runs.
        for (_, other) in &others {
            other.is_ready();
        }
        first | opening.attempt().max(0)
    })?;
    if done & NEW != 0 {
        kernel.wake_attempts(same);
    }
    if done & READY == 0 {
        return wait(Wait::new(On::Attempt(Rc::clone(&attempt)), None, Interrupted::MayRestart));
    }
    let end = opening.hosts.as_ref().and_then(|hosts| hosts.take(opening.flags));
    kernel.files_mut().install(OpenFile::new(end), opening.flags & libc::O_CLOEXEC != 0, 0)
}
