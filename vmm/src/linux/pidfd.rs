//! Descriptors of processes: pidfd_open, pidfd_send_signal and pidfd_getfd. The host's side is an eventfd, which becomes readable when the
//! process has ended, so that poll and epoll work on it as on any file.

use super::descriptors::OpenFile;
use super::files::open_host;
use super::memory::may_look;
use super::signals::calls;
use super::{Guest, Kernel, Served, errno, host, int};
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
    kernel.open_pidfd(guest, pid, flags)
}

/// pidfd_getfd: a descriptor of another process's file.
pub(super) fn get_file(kernel: &mut Kernel, descriptor: i32, number: i32, flags: u64) -> Served {
    if int(flags) != 0 {
        return errno(libc::EINVAL);
    }
    let pid = kernel.pid_of_descriptor(descriptor)?;
    let Some(files) = kernel.tasks.of_group(pid).next().map(|(_, task)| task.files) else {
        return errno(libc::ESRCH);
    };
    if pid != kernel.pid() && !may_look(kernel, pid) {
        return errno(libc::EPERM);
    }
    let file = kernel.tables.get(files).get(number)?;
    kernel.files_mut().install(file, true, 0)
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
    pub(super) fn open_pidfd(&mut self, guest: &mut Guest<'_>, pid: i32, flags: i32) -> Served {
        self.files().free(0)?;
        let ended = self.groups.get(pid).is_none_or(|group| group.ended.is_some());
        let file = open_host(guest, &mut || host::eventfd(u32::from(ended), flags))?;
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
