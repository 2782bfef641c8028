//! Futexes: tasks wait for a word of memory to change, and wake each other. A futex in shared memory is the same for all who
//! map it ([`FutexKey`]), whatever the flag FUTEX_PRIVATE says. [`pi`] are those with an owner, [`vector`] waits for many.

mod pi;
mod vector;

pub(super) use pi::{Owned, owner_ended};
pub(super) use vector::waitv;

use super::wait::{Deadline, FutexKey, Interrupted, On, Wait, Why, wait};
use super::{Guest, Kernel, Served, errno, int};
use crate::memory::vma::Backing;
use crate::ram::Virt;

/// Bits of a word of a robust futex (linux/futex.h).
const OWNER: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;

/// A set of all bits.
const ANY: u32 = u32::MAX;

pub(super) fn futex(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [address, operation, value, fourth, second, last] = *a;
    if !address.is_multiple_of(4) {
        return errno(libc::EINVAL);
    }
    let operation = int(operation);
    let real = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let takes_clock = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET, libc::FUTEX_WAIT_REQUEUE_PI, pi::LOCK_PI2];
    if real && !takes_clock.contains(&command) {
        return errno(libc::ENOSYS);
    }
    let half = |word: u64| u32::from_le_bytes(int(word).to_le_bytes());
    let count = |word: u64| usize::try_from(int(word)).unwrap_or(0);
    if operation & libc::FUTEX_PRIVATE_FLAG == 0 {
        reach(guest, command, [address, second])?;
    }
    let requeues = [libc::FUTEX_REQUEUE, libc::FUTEX_CMP_REQUEUE, libc::FUTEX_CMP_REQUEUE_PI];
    if requeues.contains(&command) && (int(value) < 0 || int(fourth) < 0) {
        return errno(libc::EINVAL);
    }
    match command {
        libc::FUTEX_WAIT => {
            let deadline = kernel.deadline(guest, fourth)?;
            wait_at(kernel, guest, address, half(value), ANY, deadline)
        }
        libc::FUTEX_WAIT_BITSET => {
            let deadline = kernel.deadline_at(guest, fourth, real)?;
            wait_at(kernel, guest, address, half(value), half(last), deadline)
        }
        libc::FUTEX_WAKE => Ok(wake(kernel, key(guest, address), count(value).max(1), ANY)),
        libc::FUTEX_WAKE_BITSET if half(last) == 0 => errno(libc::EINVAL),
        libc::FUTEX_WAKE_BITSET => Ok(wake(kernel, key(guest, address), count(value).max(1), half(last))),
        libc::FUTEX_WAKE_OP => {
            wake_op(kernel, guest, [address, second], [count(value), count(fourth)], half(last))
        }
        libc::FUTEX_REQUEUE => requeue(kernel, guest, address, second, count(value), count(fourth)),
        libc::FUTEX_CMP_REQUEUE => {
            if word_at(guest, address)? != half(last) {
                return errno(libc::EAGAIN);
            }
            requeue(kernel, guest, address, second, count(value), count(fourth))
        }
        libc::FUTEX_LOCK_PI => {
            let deadline = kernel.deadline_at(guest, fourth, true)?;
            pi::lock(kernel, guest, address, deadline)
        }
        pi::LOCK_PI2 => {
            let deadline = kernel.deadline_at(guest, fourth, real)?;
            pi::lock(kernel, guest, address, deadline)
        }
        libc::FUTEX_TRYLOCK_PI => pi::try_lock(kernel, guest, address),
        libc::FUTEX_UNLOCK_PI => pi::unlock(kernel, guest, address),
        libc::FUTEX_WAIT_REQUEUE_PI => {
            let deadline = kernel.deadline_at(guest, fourth, real)?;
            pi::wait_requeue(kernel, guest, address, second, half(value), deadline)
        }
        libc::FUTEX_CMP_REQUEUE_PI if count(value) != 1 => errno(libc::EINVAL),
        libc::FUTEX_CMP_REQUEUE_PI => {
            if word_at(guest, address)? != half(last) {
                return errno(libc::EAGAIN);
            }
            pi::requeue(kernel, guest, address, second, count(fourth))
        }
        _ => errno(libc::ENOSYS),
    }
}

/// A futex that others may share is found by the memory that it is in, which must be there; one of the process's own is but an
/// address. Those who wait have read theirs, and may find it gone when they are woken.
fn reach(guest: &mut Guest<'_>, command: i32, [first, second]: [Virt; 2]) -> Served<()> {
    match command {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => word_at(guest, first).map(drop),
        libc::FUTEX_WAKE_OP | libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            word_at(guest, first)?;
            word_at(guest, second).map(drop)
        }
        _ => Ok(()),
    }
}

/// FUTEX_WAKE_OP: changes the second word, wakes at the first, and at the second if its old value compares as asked.
fn wake_op(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    [first, second]: [Virt; 2],
    [count, also]: [usize; 2],
    what: u32,
) -> Served {
    const SHIFTS: u32 = 8;
    if !second.is_multiple_of(4) {
        return errno(libc::EINVAL);
    }
    // Two numbers of twelve bits with their signs.
    let signed = |bits: u32| (bits << 20).cast_signed() >> 20;
    let (operation, comparison) = (what >> 28, what >> 24 & 15);
    let (argument, compared) = (signed(what >> 12 & 0xfff), signed(what & 0xfff));
    let argument = match operation & SHIFTS {
        0 => argument.cast_unsigned(),
        _ => 1 << (argument & 31),
    };
    let old = word_at(guest, second)?;
    let new = match operation & 7 {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        4 => old ^ argument,
        _ => return errno(libc::ENOSYS),
    };
    let signed_old = old.cast_signed();
    let holds = match comparison {
        0 => signed_old == compared,
        1 => signed_old != compared,
        2 => signed_old < compared,
        3 => signed_old <= compared,
        4 => signed_old > compared,
        5 => signed_old >= compared,
        _ => return errno(libc::ENOSYS),
    };
    guest.write(second, &new.to_le_bytes())?;
    let (first, second) = (key(guest, first), key(guest, second));
    let woken = wake(kernel, first, count.max(1), ANY);
    Ok(woken + if holds { wake(kernel, second, also.max(1), ANY) } else { 0 })
}

/// Where the futex at an address is.
pub(super) fn key(guest: &Guest<'_>, address: Virt) -> FutexKey {
    match guest.space().mappings().find(address) {
        Some((start, mapping)) if let Backing::Shared(object, at) = &mapping.backing => {
            FutexKey::Shared(object.id, at + (address - start))
        }
        _ => FutexKey::Private(*guest.space, address),
    }
}

fn word_at(guest: &mut Guest<'_>, address: Virt) -> Served<u32> {
    Ok(u32::from_le_bytes(guest.read_array(address)?))
}

/// Waits at `address` while it holds `value`.
fn wait_at(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    address: Virt,
    value: u32,
    set: u32,
    deadline: Option<Deadline>,
) -> Served {
    match kernel.again.why {
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
    if deadline.is_some_and(|at| kernel.has_passed(at)) {
        return errno(libc::ETIMEDOUT);
    }
    let interrupted = if deadline.is_none() { Interrupted::MayRestart } else { Interrupted::Fails };
    let key = key(guest, address);
    wait(Wait::new(On::Futex(key, set), deadline, interrupted))
}

/// The tasks that wait at `key` for a bit of `set`, the longest-waiting first.
fn waiting(kernel: &Kernel, key: FutexKey, set: u32) -> Vec<i32> {
    kernel.tasks.waiting(|wait| match &wait.on {
        On::Futex(at, bits) => *at == key && bits & set != 0,
        On::Futexes(keys) => keys.contains(&key),
        _ => false,
    })
}

/// Wakes up to `count` tasks; gives how many there were.
pub(super) fn wake(kernel: &mut Kernel, key: FutexKey, count: usize, set: u32) -> u64 {
    let mut woken = waiting(kernel, key, set);
    woken.truncate(count);
    for id in &woken {
        // One that waits for many is told which.
        if let Some(wait) = kernel.tasks.wait_mut(*id)
            && let On::Futexes(keys) = &wait.on
        {
            wait.done = keys.iter().position(|at| *at == key).unwrap_or(0);
        }
        kernel.tasks.wake(*id, Why::Ready);
    }
    woken.len() as u64
}

/// Wakes up to `count` tasks that wait at an address.
pub(super) fn wake_at(kernel: &mut Kernel, guest: &Guest<'_>, address: Virt, count: usize) {
    wake(kernel, key(guest, address), count, ANY);
}

/// Wakes up to `count` tasks, and has up to `moved` more wait at `to` instead.
fn requeue(
    kernel: &mut Kernel,
    guest: &Guest<'_>,
    from: Virt,
    to: Virt,
    count: usize,
    moved: usize,
) -> Served {
    if !to.is_multiple_of(4) {
        return errno(libc::EINVAL);
    }
    let (from, to) = (key(guest, from), key(guest, to));
    let woken = wake(kernel, from, count, ANY);
    let mut movers = waiting(kernel, from, ANY);
    movers.truncate(moved);
    for id in &movers {
        match kernel.tasks.wait_mut(*id).map(|wait| &mut wait.on) {
            Some(On::Futex(at, _)) => *at = to,
            Some(On::Futexes(keys)) => keys.iter_mut().filter(|at| **at == from).for_each(|at| *at = to),
            _ => {}
        }
    }
    Ok(woken + movers.len() as u64)
}

/// Marks a robust futex of a task that ends while it owns it, and wakes who waits there. `has_owner` says that it is one of
/// those of [`pi`], which are handed over, and `pending` that the task was about to take it or to let it go.
pub(super) fn owner_died(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    address: Virt,
    owner: i32,
    has_owner: bool,
    pending: bool,
) -> Served<()> {
    if !address.is_multiple_of(4) {
        return errno(libc::EINVAL);
    }
    let word = word_at(guest, address)?;
    if pending && !has_owner && word & OWNER == 0 {
        wake_at(kernel, guest, address, 1);
        return Ok(());
    }
    if word & OWNER == owner.unsigned_abs() {
        guest.write(address, &(word & WAITERS | OWNER_DIED).to_le_bytes())?;
        if word & WAITERS != 0 && !has_owner {
            wake_at(kernel, guest, address, 1);
        }
    }
    Ok(())
}
