//! poll and select, both as the host's poll. The host is asked what is ready and never to wait: the thread does that.

use super::descriptors::{LIMIT, OpenFile, Source};
use super::groups::limit;
use super::passthrough::check;
use super::signals::calls::with_mask;
use super::time::{self, NANOSECONDS};
use super::wait::{Deadline, Interrupted, On, WOULD_WAIT, Wait, wait};
use super::{Guest, Kernel, Served, Stop, errno, host, int};
use crate::gate::{Input, MemoryWrite};
use crate::ram::Virt;
use std::rc::Rc;

/// What poll and epoll tell of a file to which something can be written.
const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;

impl OpenFile {
    /// What the host is to be asked by poll: nothing can ever be written to what is computed, though its eventfd has room.
    pub(super) fn polled(&self, events: i16) -> libc::pollfd {
        libc::pollfd { fd: self.host(), events: events & !self.never_told(), revents: 0 }
    }

    /// What poll and epoll never tell of it: where the host has an eventfd for it, only that it is readable means anything.
    pub(super) fn never_told(&self) -> i16 {
        let is_told_by_eventfd =
            self.process().is_some() || matches!(self.source(), Some(Source::Timer(_) | Source::Signals(_)));
        if is_told_by_eventfd { WRITABLE } else { 0 }
    }
}

/// ppoll: under another mask; the time that is left is told.
pub(super) fn ppoll(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [files, count, time, mask, size, _] = *a;
    // Its own writing of the time that is left does not change the deadline when it is served again.
    let limit = time::optional(guest, time)?;
    with_mask(kernel, guest, mask, size)?;
    let served = poll(kernel, guest, files, count, limit);
    tell_left(kernel, guest, served, limit, time, 1)
}

/// Writes the time that is left of a call's limit, whatever came of it; of one that waits, when it is interrupted.
fn tell_left(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    served: Served,
    limit: Option<u64>,
    at: Virt,
    unit: u64,
) -> Served {
    let Some(limit) = limit.filter(|_| !kernel.keeps_timeouts()) else { return served };
    match served {
        Err(Stop::Wait(waits)) => wait(Wait { interrupted: Interrupted::LeavesTimeLeft(at, unit), ..waits }),
        Err(Stop::Fatal(error)) => Err(Stop::Fatal(error)),
        served => {
            let deadline = kernel.limit(guest, Some(limit))?;
            match write_left(kernel, guest, deadline, at, unit) {
                Err(Stop::Fatal(error)) => Err(Stop::Fatal(error)),
                // A time that cannot be written is not told.
                _ => served,
            }
        }
    }
}

/// Writes how long it is until a deadline: seconds, and the rest in units of so many nanoseconds.
pub(super) fn write_left(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    deadline: Option<Deadline>,
    at: Virt,
    unit: u64,
) -> Served<()> {
    let left = deadline.map_or(0, |deadline| deadline.left(kernel.clock.shown()));
    guest.write_words(at, &[left / NANOSECONDS, left % NANOSECONDS / unit])
}

/// poll, for so many nanoseconds or for ever.
pub(super) fn poll(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    files: Virt,
    count: u64,
    limit: Option<u64>,
) -> Served {
    const SIZE: usize = size_of::<libc::pollfd>();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > LIMIT || count as u64 > kernel.group().limits[limit::NOFILE][0] {
        return errno(libc::EINVAL);
    }
    check(guest, files, (count * SIZE) as u64)?;
    let mut asked = Vec::with_capacity(count);
    for at in (files..).step_by(SIZE).take(count) {
        let [a, b, c, d, low, high, _, _] = guest.read_array(at)?;
        asked.push((i32::from_le_bytes([a, b, c, d]), i16::from_le_bytes([low, high])));
    }
    let mut polled: Vec<libc::pollfd> = asked
        .iter()
        .map(|&(number, events)| {
            // A negative number is passed over; one that is not open is told below.
            let none = libc::pollfd { fd: -1, events, revents: 0 };
            kernel.files().get(number).map_or(none, |file| file.polled(events))
        })
        .collect();
    let closed: Vec<bool> =
        asked.iter().map(|&(number, _)| number >= 0 && kernel.files().get(number).is_err()).collect();
    let deadline = kernel.limit(guest, limit)?;
    let may_wait = !closed.contains(&true) && deadline.is_none_or(|at| !kernel.has_passed(at));
    let given = guest.input(&mut || {
        let mut result = host::poll(&mut polled);
        if result == 0 && may_wait {
            return would_wait();
        }
        let mut bytes = Vec::with_capacity(count * SIZE);
        for ((&(number, events), file), closed) in asked.iter().zip(&polled).zip(&closed) {
            let told = if *closed { libc::POLLNVAL } else { file.revents };
            result += i64::from(*closed && result >= 0);
            bytes.extend(number.to_le_bytes());
            bytes.extend(events.to_le_bytes());
            bytes.extend(told.to_le_bytes());
        }
        let writes = if result >= 0 { vec![MemoryWrite { address: files, bytes }] } else { Vec::new() };
        Input::Bytes { result, writes }
    });
    let wanted =
        asked.iter().filter_map(|&(number, events)| Some((kernel.files().get(number).ok()?, events)));
    or_wait(given, wanted.collect(), deadline)
}

/// What the journal has where nothing was ready, and the call may wait.
fn would_wait() -> Input {
    Input::Bytes { result: -i64::from(WOULD_WAIT), writes: Vec::new() }
}

/// What was given, or a wait for one of the files.
fn or_wait(given: Served, files: Vec<(Rc<OpenFile>, i16)>, deadline: Option<Deadline>) -> Served {
    match given {
        Err(Stop::Errno(WOULD_WAIT)) => wait(Wait::new(On::Files(files), deadline, Interrupted::Fails)),
        given => given,
    }
}

/// The events of poll that put a descriptor into each of select's three sets, as the kernel defines them.
const SETS: [i16; 3] =
    [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];

/// pselect6: under another mask, of which the last argument points to the address and size.
pub(super) fn pselect(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    if a[5] != 0 {
        let [mask, size] = guest.read_words(a[5])?;
        with_mask(kernel, guest, mask, size)?;
    }
    select(kernel, guest, a, 1)
}

/// select, whose time counts units of so many nanoseconds; the time that is left is told.
pub(super) fn select(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6], unit: u64) -> Served {
    let limit = match a[4] {
        0 => None,
        at => {
            let [seconds, part]: [u64; 2] = guest.read_words(at)?;
            let part = if unit == 1 && part >= NANOSECONDS { None } else { part.checked_mul(unit) };
            // Microseconds may be more than a second, as in the kernel.
            let Some(part) = part.filter(|_| super::long(seconds) >= 0) else { return errno(libc::EINVAL) };
            Some(seconds.saturating_mul(NANOSECONDS).saturating_add(part))
        }
    };
    let served = select_until(kernel, guest, a, limit);
    tell_left(kernel, guest, served, limit, a[4], unit)
}

/// select, for so many nanoseconds or for ever.
fn select_until(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6], limit: Option<u64>) -> Served {
    let Ok(count) = usize::try_from(int(a[0])) else { return errno(libc::EINVAL) };
    // What is behind the table of descriptors is not looked at.
    let count = count.min(kernel.files().room());
    let size = count.div_ceil(64) * 8;
    let mut sets: [Option<Vec<u8>>; 3] = [const { None }; 3];
    for (set, &address) in sets.iter_mut().zip(&a[1..4]) {
        if address != 0 {
            check(guest, address, size as u64)?;
            let mut bytes = vec![0; size];
            guest.read(address, &mut bytes)?;
            *set = Some(bytes);
        }
    }
    let has =
        |set: &Option<Vec<u8>>, n: usize| set.as_ref().is_some_and(|set| set[n / 8] >> (n % 8) & 1 == 1);
    let mut polled = Vec::new();
    let (mut numbers, mut files) = (Vec::new(), Vec::new());
    for number in 0..count {
        let wanted = (0..3).filter(|&n| has(&sets[n], number)).fold(0, |events, n| events | SETS[n]);
        if wanted != 0 {
            let file = kernel.files().get(i32::try_from(number).expect("below LIMIT"))?;
            polled.push(file.polled(wanted));
            files.push((file, wanted));
            numbers.push(number);
        }
    }
    let deadline = kernel.limit(guest, limit)?;
    let may_wait = deadline.is_none_or(|at| !kernel.has_passed(at));
    let given = guest.input(&mut || {
        match host::poll(&mut polled) {
            0 if may_wait => return would_wait(),
            result @ ..0 => return Input::Bytes { result, writes: Vec::new() },
            _ => {}
        }
        let mut result = 0;
        let mut writes = Vec::new();
        for (n, &address) in a[1..4].iter().enumerate().filter(|(n, _)| sets[*n].is_some()) {
            let mut bytes = vec![0; size];
            for (&number, file) in numbers.iter().zip(&polled) {
                if has(&sets[n], number) && file.revents & SETS[n] != 0 {
                    bytes[number / 8] |= 1 << (number % 8);
                    result += 1;
                }
            }
            writes.push(MemoryWrite { address, bytes });
        }
        Input::Bytes { result, writes }
    });
    or_wait(given, files, deadline)
}
