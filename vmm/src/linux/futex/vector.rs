//! futex_waitv: waits for any of several futexes.

use super::super::wait::{FutexKey, Interrupted, On, Wait, Why, wait};
use super::super::{Guest, Kernel, Served, errno, int};
use super::{key, word_at};
use crate::ram::Virt;

/// The most futexes of a call (FUTEX_WAITV_MAX).
const MOST: u64 = 128;
/// The size of `struct futex_waitv`.
const SIZE: u64 = 24;
/// Flags of each: a word of 32 bits, and private memory.
const SIZE_U32: u64 = 2;
const PRIVATE: u64 = 128;

pub(in super::super) fn waitv(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [at, count, flags, timeout, clock, _] = *a;
    let count = count & 0xffff_ffff;
    if flags & 0xffff_ffff != 0 || !(1..=MOST).contains(&count) || at == 0 {
        return errno(libc::EINVAL);
    }
    let real = match int(clock) {
        libc::CLOCK_REALTIME => true,
        libc::CLOCK_MONOTONIC => false,
        _ if timeout == 0 => false,
        _ => return errno(libc::EINVAL),
    };
    let deadline = kernel.deadline_at(guest, timeout, real)?;
    match kernel.again.why {
        Some(Why::Ready) => return Ok(kernel.again.done as u64),
        Some(Why::TimedOut) => return errno(libc::ETIMEDOUT),
        _ => {}
    }
    let mut keys: Vec<FutexKey> = Vec::new();
    let mut wanted = Vec::new();
    for entry in 0..count {
        let [value, address, rest] = guest.read_words(at.wrapping_add(entry * SIZE))?;
        if rest & !PRIVATE != SIZE_U32 || !address.is_multiple_of(4) {
            return errno(libc::EINVAL);
        }
        keys.push(key(guest, address));
        wanted.push((address, value));
    }
    if !hold(guest, &wanted)? {
        return errno(libc::EAGAIN);
    }
    if deadline.is_some_and(|at| kernel.has_passed(at)) {
        return errno(libc::ETIMEDOUT);
    }
    wait(Wait::new(On::Futexes(keys), deadline, Interrupted::MayRestart))
}

/// Whether all words have the values that were expected.
fn hold(guest: &mut Guest<'_>, wanted: &[(Virt, u64)]) -> Served<bool> {
    for (address, value) in wanted {
        if u64::from(word_at(guest, *address)?) != value & 0xffff_ffff {
            return Ok(false);
        }
    }
    Ok(true)
}
