//! epoll and eventfd: the host's own, under the guest's descriptor numbers. What a program stores with a file comes back
//! as it is.

use super::descriptors::{OpenFile, Source};
use super::files::open_host;
use super::signals::calls::with_mask;
use super::wait::{Deadline, Interrupted, On, WOULD_WAIT, Wait, wait};
use super::{Guest, Kernel, Served, Stop, errno, host, int};
use crate::gate::{Input, MemoryWrite};
use crate::memory::space::Access;
use std::collections::btree_map::Entry;
use std::os::fd::{AsRawFd, RawFd};

/// The size of `struct epoll_event`, which is packed.
const EVENT: usize = 12;
/// So many are refused, whatever there is (EP_MAX_EVENTS).
const TOO_MANY: i32 = i32::MAX / 12 + 1;
/// As many events as one call gives.
const MOST: u64 = 1024;

impl OpenFile {
    /// The host's descriptor by which an epoll set knows it under this number of the guest's.
    fn host_in_sets(&self, number: i32) -> Result<RawFd, i64> {
        let mut numbers = self.numbers.borrow_mut();
        let is_first = numbers.is_empty();
        let known = match numbers.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if is_first => new.insert(None),
            Entry::Vacant(new) => new.insert(Some(host::opening::again(self.host())?)),
        };
        Ok(known.as_ref().map_or_else(|| self.host(), AsRawFd::as_raw_fd))
    }
}

pub(super) fn create(kernel: &mut Kernel, guest: &mut Guest<'_>, flags: i32) -> Served {
    if flags & !libc::EPOLL_CLOEXEC != 0 {
        return errno(libc::EINVAL);
    }
    kernel.files().free(0)?;
    let file = open_host(guest, &mut || host::epoll())?;
    let file = OpenFile::computed(file, Source::Set);
    kernel.files_mut().install(file, flags & libc::EPOLL_CLOEXEC != 0, 0)
}

/// epoll_create, whose size only has to be above zero.
pub(super) fn create_sized(kernel: &mut Kernel, guest: &mut Guest<'_>, size: i32) -> Served {
    if size <= 0 { errno(libc::EINVAL) } else { create(kernel, guest, 0) }
}

pub(super) fn eventfd(kernel: &mut Kernel, guest: &mut Guest<'_>, value: u64, flags: i32) -> Served {
    kernel.files().free(0)?;
    let value = u32::from_le_bytes(int(value).to_le_bytes());
    let file = open_host(guest, &mut || host::eventfd(value, flags))?;
    kernel.files_mut().install(OpenFile::new(file), flags & libc::EFD_CLOEXEC != 0, 0)
}

pub(super) fn control(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let number = int(a[2]);
    let (set, file) = (kernel.files().get(int(a[0]))?, kernel.files().get(number)?);
    let operation = int(a[1]);
    let mut event = [0; EVENT];
    if operation != libc::EPOLL_CTL_DEL {
        guest.read(a[3], &mut event)?;
    }
    // The events of epoll are those of poll.
    let never = u32::from(file.never_told().cast_unsigned());
    let [a, b, c, d, ..] = event;
    let events = u32::from_le_bytes([a, b, c, d]) & !never;
    event[..4].copy_from_slice(&events.to_le_bytes());
    guest.input_number(|| match file.host_in_sets(number) {
        Ok(file) => host::epoll_control(set.host(), operation, file, event),
        Err(error) => error,
    })
}

/// epoll_wait, in milliseconds.
pub(super) fn wait_for(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let milliseconds = u64::try_from(int(a[3])).ok();
    events(kernel, guest, a, milliseconds.map(|milliseconds| milliseconds * 1_000_000))
}

/// epoll_pwait: under another mask.
pub(super) fn wait_masked(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    with_mask(kernel, guest, a[4], a[5])?;
    wait_for(kernel, guest, a)
}

/// epoll_pwait2: under another mask, and with a time.
pub(super) fn wait_until(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    with_mask(kernel, guest, a[4], a[5])?;
    let limit = super::time::optional(guest, a[3])?;
    events(kernel, guest, a, limit)
}

/// The events of a set; waits for the first until `limit` nanoseconds have passed, or for ever.
fn events(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6], limit: Option<u64>) -> Served {
    let (set, address, count) = (kernel.files().get(int(a[0]))?, a[1], int(a[2]));
    let count = match count {
        ..=0 | TOO_MANY.. => return errno(libc::EINVAL),
        count => u64::from(count.unsigned_abs()).min(MOST),
    };
    // A buffer that ends too early is told when there is an event for which there is no room.
    let usable = guest.accessible(address, count * EVENT as u64, Access::Write) / EVENT as u64;
    let deadline = kernel.limit(guest, limit)?;
    let may_wait = deadline.is_none_or(|at: Deadline| !kernel.has_passed(at));
    let room = usize::try_from(usable.max(1)).expect("at most MOST") * EVENT;
    let given = guest.input(&mut || {
        let mut bytes = vec![0; room];
        match host::epoll_wait(set.host(), &mut bytes) {
            0 if may_wait => Input::Bytes { result: -i64::from(WOULD_WAIT), writes: Vec::new() },
            1.. if usable == 0 => Input::Bytes { result: -i64::from(libc::EFAULT), writes: Vec::new() },
            result => {
                bytes.truncate(usize::try_from(result).unwrap_or(0) * EVENT);
                Input::Bytes { result, writes: vec![MemoryWrite { address, bytes }] }
            }
        }
    });
    match given {
        Err(Stop::Errno(WOULD_WAIT)) => {
            wait(Wait::new(On::Files(vec![(set, libc::POLLIN)]), deadline, Interrupted::FailsEvenStopped))
        }
        given => given,
    }
}
