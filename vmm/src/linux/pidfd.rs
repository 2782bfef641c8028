//! Descriptors of processes: pidfd_open and pidfd_send_signal. The host's side is an eventfd, which becomes readable when the
//! process has ended, so that poll and epoll work on it as on any file.

use super::descriptors::OpenFile;
use super::files::open_host;
use super::signals::calls;
use super::{Guest, Kernel, Served, errno, host};
use crate::ram::Virt;

/// PIDFD_NONBLOCK.
const NONBLOCK: i32 = libc::O_NONBLOCK;

pub(super) fn open(kernel: &mut Kernel, guest: &mut Guest<'_>, pid: i32, flags: i32) -> Served {
    if pid <= 0 || flags & !NONBLOCK != 0 {
        return errno(libc::EINVAL);
    }
    if kernel.groups.get(pid).is_none() {
        let thread = kernel.tasks.get(pid).is_some();
        return errno(if thread { libc::EINVAL } else { libc::ESRCH });
    }
    kernel.open_pidfd(guest, pid)
}

pub(super) fn send_signal(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    descriptor: i32,
    signal: i32,
    info: Virt,
) -> Served {
    let pid = kernel.pid_of_descriptor(descriptor)?;
    match info {
        0 => calls::kill(kernel, pid, signal),
        info => calls::queue(kernel, guest, pid, None, signal, info),
    }
}

impl Kernel {
    /// Opens a descriptor of a process that exists.
    pub(super) fn open_pidfd(&mut self, guest: &mut Guest<'_>, pid: i32) -> Served {
        self.files().free(0)?;
        let ended = self.groups.get(pid).is_none_or(|group| group.ended.is_some());
        let file = open_host(guest, &mut || host::eventfd(u32::from(ended), 0))?;
        self.files_mut().install(OpenFile::of_process(file, pid), true, 0)
    }

    /// The process of a pidfd.
    pub(super) fn pid_of_descriptor(&self, descriptor: i32) -> Served<i32> {
        let file = self.files().get(descriptor)?;
        file.process().map_or_else(|| errno(libc::EBADF), Ok)
    }

    /// Makes the descriptors of processes that have ended readable.
    pub(super) fn wake_pidfds(&self) {
        for (_, table) in self.tables.iter() {
            for (_, file) in table.iter() {
                let ended = |pid: i32| self.groups.get(pid).is_none_or(|group| group.ended.is_some());
                if file.process().is_some_and(ended) && file.host() >= 0 {
                    host::write(file.host(), &1_u64.to_le_bytes(), None);
                }
            }
        }
    }
}
