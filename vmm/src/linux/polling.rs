//! poll and select, both as the host's poll. The host is asked what is ready and never to wait: the thread does that.

use super::descriptors::{LIMIT, OpenFile};
use super::passthrough::check;
use super::time::{self, NANOSECONDS};
use super::wait::{Deadline, Interrupted, On, WOULD_WAIT, Wait, wait};
use super::{Guest, Linux, Served, Stop, errno, host};
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite};
use std::rc::Rc;

/// ppoll; its mask is not applied.
pub(super) fn ppoll(linux: &mut Linux, guest: &mut Guest<'_>, files: Virt, count: u64, time: Virt) -> Served {
    let limit = time::optional(guest, time)?;
    poll(linux, guest, files, count, limit)
}

/// poll, for so many nanoseconds or for ever.
pub(super) fn poll(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    files: Virt,
    count: u64,
    limit: Option<u64>,
) -> Served {
    const SIZE: usize = size_of::<libc::pollfd>();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > LIMIT {
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
            let host = linux.files.get(number).map_or(-1, |file| file.host());
            libc::pollfd { fd: host, events, revents: 0 }
        })
        .collect();
    let closed: Vec<bool> =
        asked.iter().map(|&(number, _)| number >= 0 && linux.files.get(number).is_err()).collect();
    let deadline = linux.limit(guest, limit)?;
    let may_wait = !closed.contains(&true) && deadline.is_none_or(|at| !linux.has_passed(at));
    let given = guest.input(&mut || {
        let mut result = host::poll(&mut polled, 0);
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
        Input { result, writes }
    });
    let wanted = asked.iter().filter_map(|&(number, events)| Some((linux.files.get(number).ok()?, events)));
    or_wait(given, wanted.collect(), deadline)
}

/// What the journal has where nothing was ready, and the call may wait.
fn would_wait() -> Input {
    Input { result: -i64::from(WOULD_WAIT), writes: Vec::new() }
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

/// select, whose time counts microseconds, and pselect6; the time that is left is not told, a mask not applied.
pub(super) fn select(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6], unit: u64) -> Served {
    let count = usize::try_from(a[0]).unwrap_or(usize::MAX);
    if count > LIMIT {
        return errno(libc::EINVAL);
    }
    let limit = match a[4] {
        0 => None,
        at => {
            let [seconds, part]: [u64; 2] = guest.read_words(at)?;
            if part.saturating_mul(unit) >= NANOSECONDS || super::long(seconds) < 0 {
                return errno(libc::EINVAL);
            }
            Some(seconds.saturating_mul(NANOSECONDS).saturating_add(part * unit))
        }
    };
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
            let file = linux.files.get(i32::try_from(number).expect("below LIMIT"))?;
            polled.push(libc::pollfd { fd: file.host(), events: wanted, revents: 0 });
            files.push((file, wanted));
            numbers.push(number);
        }
    }
    let deadline = linux.limit(guest, limit)?;
    let may_wait = deadline.is_none_or(|at| !linux.has_passed(at));
    let given = guest.input(&mut || {
        match host::poll(&mut polled, 0) {
            0 if may_wait => return would_wait(),
            result @ ..0 => return Input { result, writes: Vec::new() },
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
        Input { result, writes }
    });
    or_wait(given, files, deadline)
}
