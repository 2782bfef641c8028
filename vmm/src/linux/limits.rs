//! Limits of processes: remembered, told, and kept where programs notice: descriptors, lengths of files, processes, processor
//! time (see [`super::timers`]), pending signals, cores and priorities.

use super::capabilities::{SYS_ADMIN, SYS_RESOURCE};
use super::descriptors::{LIMIT, OpenFile};
use super::groups::limit;
use super::{Guest, Kernel, Served, errno, host, int};
use crate::ram::Virt;

/// A process that the caller may ask or set limits of.
fn named(kernel: &Kernel, pid: u64) -> Served<i32> {
    let pid = int(pid);
    let id = if pid == 0 { kernel.tasks.id() } else { pid };
    let Some(task) = kernel.tasks.get(id) else { return errno(libc::ESRCH) };
    let (own, theirs) = (&kernel.group().credentials, kernel.groups.get(task.group));
    let Some(theirs) = theirs.map(|group| &group.credentials) else { return errno(libc::ESRCH) };
    let same = theirs.uid[..3].iter().all(|id| *id == own.uid[0])
        && theirs.gid[..3].iter().all(|id| *id == own.gid[0]);
    if same || task.group == kernel.pid() || own.has(SYS_RESOURCE) {
        Ok(task.group)
    } else {
        errno(libc::EPERM)
    }
}

pub(super) fn prlimit(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [pid, resource, new, old, ..] = *a;
    let new = if new == 0 { None } else { Some(guest.read_words::<2>(new)?) };
    let pid = named(kernel, pid)?;
    let resource = resource & 0xffff_ffff;
    let before = *of(kernel, pid, resource)?;
    if let Some(new) = new {
        set(kernel, pid, resource, new)?;
    }
    if old != 0 {
        guest.write_words(old, &before)?;
    }
    Ok(0)
}

pub(super) fn getrlimit(kernel: &mut Kernel, guest: &mut Guest<'_>, resource: u64, address: Virt) -> Served {
    let words = *of(kernel, kernel.pid(), resource & 0xffff_ffff)?;
    guest.write_words(address, &words)?;
    Ok(0)
}

pub(super) fn setrlimit(kernel: &mut Kernel, guest: &mut Guest<'_>, resource: u64, address: Virt) -> Served {
    let new = guest.read_words(address)?;
    set(kernel, kernel.pid(), resource & 0xffff_ffff, new)
}

fn of(kernel: &mut Kernel, pid: i32, resource: u64) -> Served<&mut [u64; 2]> {
    let slot = usize::try_from(resource)
        .ok()
        .and_then(|resource| kernel.groups.get_mut(pid)?.limits.get_mut(resource));
    slot.map_or_else(|| errno(libc::EINVAL), Ok)
}

fn set(kernel: &mut Kernel, pid: i32, resource: u64, new: [u64; 2]) -> Served {
    let privileged = kernel.group().credentials.has(SYS_RESOURCE);
    let limit = of(kernel, pid, resource)?;
    if new[0] > new[1] {
        return errno(libc::EINVAL);
    }
    if new[1] > limit[1] && !privileged {
        return errno(libc::EPERM);
    }
    if resource == limit::NOFILE as u64 && new[1] > LIMIT as u64 {
        return errno(libc::EPERM);
    }
    *limit = new;
    if resource == limit::NOFILE as u64 {
        let tables: Vec<_> = kernel.tasks.of_group(pid).map(|(_, task)| task.files).collect();
        for table in tables {
            kernel.tables.get_mut(table).set_limit(new[0]);
        }
    }
    Ok(0)
}

impl Kernel {
    /// Whether the user of the process that runs has as many tasks as its limit allows.
    pub(super) fn user_is_full(&self) -> bool {
        let group = self.group();
        let (most, user) = (group.limits[limit::NPROC][0], group.credentials.uid[0]);
        let exempt = user == 0 || group.credentials.has(SYS_RESOURCE) || group.credentials.has(SYS_ADMIN);
        if most == libc::RLIM_INFINITY || exempt {
            return false;
        }
        let of_user = |pid: i32| self.groups.get(pid).is_some_and(|group| group.credentials.uid[0] == user);
        self.tasks.living().filter(|(_, task)| of_user(task.group)).count() as u64 >= most
    }

    /// How many of so many bytes may be written to a file before it is longer than the program's limit allows; SIGXFSZ if none.
    pub(super) fn room_in_file(
        &mut self,
        guest: &mut Guest<'_>,
        file: &OpenFile,
        offset: Option<i64>,
        length: usize,
    ) -> Served<usize> {
        let most = self.group().limits[limit::FSIZE][0];
        if most == libc::RLIM_INFINITY || length == 0 {
            return Ok(length);
        }
        let at = match guest.input_number(|| host::position_in_regular(file.host(), offset)) {
            Ok(at) => at,
            // Not a regular file.
            Err(super::Stop::Errno(_)) => return Ok(length),
            Err(stop) => return Err(stop),
        };
        match most.saturating_sub(at) {
            0 => self.too_long(),
            room => Ok(usize::try_from(room).unwrap_or(usize::MAX).min(length)),
        }
    }

    /// Fails if a file may not be as long as this.
    pub(super) fn check_length(&mut self, length: u64) -> Served<()> {
        if length > self.group().limits[limit::FSIZE][0] { self.too_long() } else { Ok(()) }
    }

    fn too_long<T>(&mut self) -> Served<T> {
        self.raise_here(libc::SIGXFSZ, libc::SI_USER);
        errno(libc::EFBIG)
    }
}
