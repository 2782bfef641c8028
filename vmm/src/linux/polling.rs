//! poll and select, both as the host's poll.

use super::passthrough::check;
use super::{Guest, Linux, Served, errno, host, retry};
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite};
use crate::linux::descriptors::LIMIT;

/// What poll waits for; negative is for ever.
fn milliseconds(time: Option<[u64; 2]>, nanoseconds_per_unit: u64) -> Served<i32> {
    let Some([seconds, part]) = time else { return Ok(-1) };
    if part.saturating_mul(nanoseconds_per_unit) >= 1_000_000_000 {
        return errno(libc::EINVAL);
    }
    let part = (part * nanoseconds_per_unit).div_ceil(1_000_000);
    Ok(i32::try_from(seconds.saturating_mul(1000).saturating_add(part)).unwrap_or(i32::MAX))
}

fn optional_time(guest: &mut Guest<'_>, address: Virt) -> Served<Option<[u64; 2]>> {
    if address == 0 { Ok(None) } else { guest.read_words(address).map(Some) }
}

pub(super) fn ppoll(linux: &mut Linux, guest: &mut Guest<'_>, files: Virt, count: u64, time: Virt) -> Served {
    let time = optional_time(guest, time)?;
    poll(linux, guest, files, count, milliseconds(time, 1)?)
}

pub(super) fn poll(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    files: Virt,
    count: u64,
    timeout: i32,
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
    let timeout = if closed.contains(&true) { 0 } else { timeout };
    let interrupter = linux.interrupter.clone();
    guest.input(&mut || {
        let mut result = retry(&interrupter, || host::poll(&mut polled, timeout));
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
    })
}

/// The events of poll that put a descriptor into each of select's three sets, as the kernel defines them.
const SETS: [i16; 3] =
    [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];

/// select and pselect6; the time that is left is not told.
pub(super) fn select(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    a: &[u64; 6],
    nanoseconds_per_unit: u64,
) -> Served {
    let count = usize::try_from(a[0]).unwrap_or(usize::MAX);
    if count > LIMIT {
        return errno(libc::EINVAL);
    }
    let time = optional_time(guest, a[4])?;
    let timeout = milliseconds(time, nanoseconds_per_unit)?;
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
    let mut numbers = Vec::new();
    for number in 0..count {
        let wanted = (0..3).filter(|&n| has(&sets[n], number)).fold(0, |events, n| events | SETS[n]);
        if wanted != 0 {
            let file = linux.files.get(i32::try_from(number).expect("below LIMIT"))?;
            polled.push(libc::pollfd { fd: file.host(), events: wanted, revents: 0 });
            numbers.push(number);
        }
    }
    let interrupter = linux.interrupter.clone();
    guest.input(&mut || {
        let polled_result = retry(&interrupter, || host::poll(&mut polled, timeout));
        if polled_result < 0 {
            return Input { result: polled_result, writes: Vec::new() };
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
    })
}
