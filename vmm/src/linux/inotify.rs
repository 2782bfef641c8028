//! inotify: the host's own. What gretel itself does to files for the program (to look a path up, to read what is mapped) is an event, too.

use super::descriptors::OpenFile;
use super::files::open_host;
use super::host::{self, paths};
use super::passthrough::path;
use super::proc::{Last, Place, find};
use super::{Guest, Kernel, Served, errno, int};

pub(super) fn create(kernel: &mut Kernel, guest: &mut Guest<'_>, flags: i32) -> Served {
    kernel.files().free(0)?;
    let file = open_host(guest, &mut || paths::inotify(flags))?;
    kernel.files_mut().install(OpenFile::new(file), flags & libc::IN_CLOEXEC != 0, 0)
}

pub(super) fn add_watch(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let mask = u32::from_le_bytes(int(a[2]).to_le_bytes());
    if mask == 0 {
        return errno(libc::EINVAL);
    }
    let inotify = kernel.files().get(int(a[0]))?;
    let name = path(guest, a[1])?;
    let kept = mask & libc::IN_DONT_FOLLOW != 0;
    let place = find(kernel, guest, libc::AT_FDCWD, &name, if kept { Last::Kept } else { Last::Followed })?;
    if matches!(place, Place::Proc(_)) {
        // Nothing tells of changes in the guest's /proc.
        return errno(libc::EACCES);
    }
    // The name of what is open leads to it, a link or not.
    let mask = mask & !libc::IN_DONT_FOLLOW;
    guest.input_number(|| host::by_name(&place, kept, |path| paths::watch(inotify.host(), path, mask)))
}

pub(super) fn remove_watch(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let inotify = kernel.files().get(int(a[0]))?;
    guest.input_number(|| paths::unwatch(inotify.host(), int(a[1])))
}
