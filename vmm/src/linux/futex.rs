//! Futexes: threads wait for a word of memory to change, and wake each other. All addresses are of one address space, so
//! private futexes and shared ones are the same. Those that lend their owner's priority are refused.

use super::wait::{Deadline, Interrupted, On, Wait, Why, wait};
use super::{Guest, Linux, Served, errno, int};
use crate::engine::Virt;

/// Bits of a word of a robust futex (linux/futex.h).
const OWNER: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;

/// A set of all bits.
const ANY: u32 = u32::MAX;

pub(super) fn futex(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [address, operation, value, fourth, second, last] = *a;
    if !address.is_multiple_of(4) {
        return errno(libc::EINVAL);
    }
    let operation = int(operation);
    let real = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let half = |word: u64| u32::from_le_bytes(int(word).to_le_bytes());
    let count = |word: u64| usize::try_from(int(word)).unwrap_or(0);
    match operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT => {
            let deadline = linux.deadline(guest, fourth)?;
            wait_at(linux, guest, address, half(value), ANY, deadline)
        }
        libc::FUTEX_WAIT_BITSET => {
            let deadline = linux.deadline_at(guest, fourth, real)?;
            wait_at(linux, guest, address, half(value), half(last), deadline)
        }
        libc::FUTEX_WAKE => Ok(wake(linux, address, count(value).max(1), ANY)),
        libc::FUTEX_WAKE_BITSET if half(last) == 0 => errno(libc::EINVAL),
        libc::FUTEX_WAKE_BITSET => Ok(wake(linux, address, count(value).max(1), half(last))),
        libc::FUTEX_REQUEUE => requeue(linux, address, second, count(value), count(fourth)),
        libc::FUTEX_CMP_REQUEUE => {
            if word_at(guest, address)? != half(last) {
                return errno(libc::EAGAIN);
            }
            requeue(linux, address, second, count(value), count(fourth))
        }
        _ => errno(libc::ENOSYS),
    }
}

fn word_at(guest: &mut Guest<'_>, address: Virt) -> Served<u32> {
    Ok(u32::from_le_bytes(guest.read_array(address)?))
}

/// Waits at `address` while it holds `value`.
fn wait_at(
    linux: &Linux,
    guest: &mut Guest<'_>,
    address: Virt,
    value: u32,
    set: u32,
    deadline: Option<Deadline>,
) -> Served {
    match linux.again.why {
        Some(Why::Ready) => return Ok(0),
        Some(Why::TimedOut) => return errno(libc::ETIMEDOUT),
        _ => {}
    }
    if set == 0 {
        return errno(libc::EINVAL);
    }
    if word_at(guest, address)? != value {
        return errno(libc::EAGAIN);
    }
    if deadline.is_some_and(|at| linux.has_passed(at)) {
        return errno(libc::ETIMEDOUT);
    }
    let interrupted = if deadline.is_none() { Interrupted::MayRestart } else { Interrupted::Fails };
    wait(Wait::new(On::Futex(address, set), deadline, interrupted))
}

/// The threads that wait at `address` for a bit of `set`, the longest-waiting first.
fn waiting(linux: &Linux, address: Virt, set: u32) -> Vec<i32> {
    linux.threads.waiting(|wait| matches!(wait.on, On::Futex(at, bits) if at == address && bits & set != 0))
}

/// Wakes up to `count` threads; gives how many there were.
pub(super) fn wake(linux: &mut Linux, address: Virt, count: usize, set: u32) -> u64 {
    let mut woken = waiting(linux, address, set);
    woken.truncate(count);
    woken.iter().for_each(|id| linux.threads.wake(*id, Why::Ready));
    woken.len() as u64
}

/// Wakes up to `count` threads, and has up to `moved` more wait at `to` instead.
fn requeue(linux: &mut Linux, from: Virt, to: Virt, count: usize, moved: usize) -> Served {
    if !to.is_multiple_of(4) {
        return errno(libc::EINVAL);
    }
    let woken = wake(linux, from, count, ANY);
    let mut movers = waiting(linux, from, ANY);
    movers.truncate(moved);
    for id in &movers {
        if let Some(Wait { on: On::Futex(at, _), .. }) = linux.threads.wait_mut(*id) {
            *at = to;
        }
    }
    Ok(woken + movers.len() as u64)
}

/// Marks a robust futex of a thread that ends while it owns it, and wakes who waits there.
pub(super) fn owner_died(linux: &mut Linux, guest: &mut Guest<'_>, address: Virt) -> Served<()> {
    let word = word_at(guest, address)?;
    if word & OWNER == linux.threads.id().unsigned_abs() {
        guest.write(address, &(word & WAITERS | OWNER_DIED).to_le_bytes())?;
        if word & WAITERS != 0 {
            wake(linux, address, 1, ANY);
        }
    }
    Ok(())
}
