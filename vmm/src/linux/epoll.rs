//! epoll and eventfd: the host's own, under the guest's descriptor numbers. What a program stores with a file comes back
//! as it is.

use super::descriptors::OpenFile;
use super::files::open_host;
use super::passthrough::check;
use super::wait::{Deadline, Interrupted, On, WOULD_WAIT, Wait, wait};
use super::{Guest, Linux, Served, Stop, errno, host, int};
use crate::gate::{Input, MemoryWrite};

/// The size of `struct epoll_event`, which is packed.
const EVENT: usize = 12;
/// As many events as one call gives.
const MOST: u64 = 1024;

pub(super) fn create(linux: &mut Linux, guest: &mut Guest<'_>, flags: i32) -> Served {
    if flags & !libc::EPOLL_CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    linux.files.free(0)?;
    let file = open_host(guest, &mut || host::epoll())?;
    linux.files.install(OpenFile::new(file), flags & libc::EPOLL_CLOEXEC != 0, 0)
}

pub(super) fn eventfd(linux: &mut Linux, guest: &mut Guest<'_>, value: u64, flags: i32) -> Served {
    linux.files.free(0)?;
    let value = u32::from_le_bytes(int(value).to_le_bytes());
    let file = open_host(guest, &mut || host::eventfd(value, flags))?;
    linux.files.install(OpenFile::new(file), flags & libc::EFD_CLOEXEC != 0, 0)
}

pub(super) fn control(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (set, file) = (linux.files.get(int(a[0]))?, linux.files.get(int(a[2]))?);
    let operation = int(a[1]);
    let mut event = [0; EVENT];
    if operation != libc::EPOLL_CTL_DEL {
        guest.read(a[3], &mut event)?;
    }
    guest.input_number(|| host::epoll_control(set.host(), operation, file.host(), event))
}

/// epoll_wait and epoll_pwait, in milliseconds.
pub(super) fn wait_for(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let milliseconds = u64::try_from(int(a[3])).ok();
    events(linux, guest, a, milliseconds.map(|milliseconds| milliseconds * 1_000_000))
}

/// epoll_pwait2, with a time.
pub(super) fn wait_until(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let limit = super::time::optional(guest, a[3])?;
    events(linux, guest, a, limit)
}

/// The events of a set; waits for the first until `limit` nanoseconds have passed, or for ever.
fn events(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6], limit: Option<u64>) -> Served {
    let (set, address, count) = (linux.files.get(int(a[0]))?, a[1], int(a[2]));
    let count = match count {
        ..=0 => return errno(libc::EINVAL),
        count => u64::from(count.unsigned_abs()).min(MOST),
    };
    check(guest, address, count * EVENT as u64)?;
    let deadline = linux.limit(guest, limit)?;
    let may_wait = deadline.is_none_or(|at: Deadline| !linux.has_passed(at));
    let room = usize::try_from(count).expect("at most MOST") * EVENT;
    let given = guest.input(&mut || {
        let mut bytes = vec![0; room];
        match host::epoll_wait(set.host(), &mut bytes) {
            0 if may_wait => Input { result: -i64::from(WOULD_WAIT), writes: Vec::new() },
            result => {
                bytes.truncate(usize::try_from(result).unwrap_or(0) * EVENT);
                Input { result, writes: vec![MemoryWrite { address, bytes }] }
            }
        }
    });
    match given {
        Err(Stop::Errno(WOULD_WAIT)) => {
            wait(Wait::new(On::Files(vec![(set, libc::POLLIN)]), deadline, Interrupted::Fails))
        }
        given => given,
    }
}
