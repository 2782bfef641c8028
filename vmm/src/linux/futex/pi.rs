//! Futexes with an owner, whose id is in the word (FUTEX_LOCK_PI and its kin).
//!
//! A task that lets one go, or ends, hands it to the task that has waited longest, by writing that one's id into the word. On
//! one processor nobody's priority needs lending.

use super::super::arena::Id;
use super::super::wait::{Deadline, FutexKey, Interrupted, On, Wait, Why, wait};
use super::super::{Guest, Kernel, Served, errno};
use super::{OWNER, OWNER_DIED, WAITERS, key, word_at};
use crate::plain::plain;
use crate::ram::Virt;

pub(super) const LOCK_PI2: i32 = 13;

/// What a task that waits to own a futex has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Owned {
    pub(in super::super) key: FutexKey,
    /// Where the word is, in this address space.
    pub(in super::super) address: Virt,
    pub(in super::super) space: Id,
    /// Who owns it; zero while the task waits for another futex, from which it is to come here.
    pub(in super::super) owner: i32,
}
plain!(struct Owned { key, address, space, owner });

/// Takes a futex that nobody owns; gives who does otherwise.
fn take(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt) -> Served<Option<i32>> {
    let word = word_at(guest, address)?;
    let own = kernel.tasks.id();
    let owner = i32::from_le_bytes((word & OWNER).to_le_bytes());
    if owner == own {
        return errno(libc::EDEADLK);
    }
    if owner == 0 {
        let waited_for = if waiting(kernel, key(guest, address)).is_empty() { 0 } else { WAITERS };
        guest.write(address, &(word & OWNER_DIED | waited_for | own.unsigned_abs()).to_le_bytes())?;
        return Ok(None);
    }
    if kernel.tasks.get(owner).is_none() {
        return errno(libc::ESRCH);
    }
    Ok(Some(owner))
}

/// The tasks that wait to own the futex, the longest-waiting first.
fn waiting(kernel: &Kernel, key: FutexKey) -> Vec<i32> {
    kernel.tasks.waiting(|wait| matches!(wait.on, On::Owned(owned) if owned.key == key && owned.owner != 0))
}

pub(super) fn lock(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    address: Virt,
    deadline: Option<Deadline>,
) -> Served {
    match kernel.again.why {
        Some(Why::Ready) => return Ok(0),
        Some(Why::TimedOut) => return errno(libc::ETIMEDOUT),
        _ => {}
    }
    let Some(owner) = take(kernel, guest, address)? else { return Ok(0) };
    let word = word_at(guest, address)?;
    guest.write(address, &(word | WAITERS).to_le_bytes())?;
    if deadline.is_some_and(|at| kernel.has_passed(at)) {
        return errno(libc::ETIMEDOUT);
    }
    let owned = Owned { key: key(guest, address), address, space: *guest.space, owner };
    wait(Wait::new(On::Owned(owned), deadline, Interrupted::Restarts))
}

pub(super) fn try_lock(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    match take(kernel, guest, address)? {
        None => Ok(0),
        Some(_) => errno(libc::EAGAIN),
    }
}

pub(super) fn unlock(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    let word = word_at(guest, address)?;
    if word & OWNER != kernel.tasks.id().unsigned_abs() {
        return errno(libc::EPERM);
    }
    let key = key(guest, address);
    if !hand_over(kernel, guest, key, 0)? {
        guest.write(address, &[0; 4])?;
    }
    Ok(0)
}

/// Gives the futex to the task that has waited longest; false if there is none. `bits` go into its word.
fn hand_over(kernel: &mut Kernel, guest: &mut Guest<'_>, key: FutexKey, bits: u32) -> Served<bool> {
    let waiters = waiting(kernel, key);
    let Some(next) = waiters.first().copied() else { return Ok(false) };
    let Some(Wait { on: On::Owned(owned), .. }) = kernel.tasks.get(next).and_then(|task| task.wait()) else {
        return Ok(false);
    };
    let (space, address) = (owned.space, owned.address);
    guest.write_to_space(space, address, &(next.unsigned_abs() | WAITERS | bits).to_le_bytes())?;
    for id in &waiters {
        if let Some(Wait { on: On::Owned(owned), .. }) = kernel.tasks.wait_mut(*id) {
            owned.owner = next;
        }
    }
    kernel.tasks.wake(next, Why::Ready);
    Ok(true)
}

/// Hands over the futexes that a task owns which ends, as far as others wait for them.
pub(in super::super) fn owner_ended(kernel: &mut Kernel, guest: &mut Guest<'_>, owner: i32) -> Served<()> {
    loop {
        let waiters =
            kernel.tasks.waiting(|wait| matches!(wait.on, On::Owned(owned) if owned.owner == owner));
        let Some(Wait { on: On::Owned(owned), .. }) =
            waiters.first().and_then(|id| kernel.tasks.get(*id)).and_then(|task| task.wait())
        else {
            return Ok(());
        };
        let key = owned.key;
        match super::super::exit::forgive(hand_over(kernel, guest, key, OWNER_DIED).map(|_| ()))? {
            true => {}
            // Nobody can say any more who owns it.
            false => waiters.iter().for_each(|id| kernel.tasks.wake(*id, Why::TimedOut)),
        }
    }
}

/// FUTEX_WAIT_REQUEUE_PI: waits at one futex until it is woken as the owner of another one.
pub(super) fn wait_requeue(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    from: Virt,
    to: Virt,
    value: u32,
    deadline: Option<Deadline>,
) -> Served {
    match kernel.again.why {
        Some(Why::Ready) => return Ok(0),
        Some(Why::TimedOut) => return errno(libc::ETIMEDOUT),
        _ => {}
    }
    let (at, target) = (key(guest, from), key(guest, to));
    if !to.is_multiple_of(4) || at == target {
        return errno(libc::EINVAL);
    }
    if word_at(guest, from)? != value {
        return errno(libc::EAGAIN);
    }
    let owned = Owned { key: target, address: to, space: *guest.space, owner: 0 };
    wait(Wait::new(On::ToBeOwned(at, owned), deadline, Interrupted::Restarts))
}

/// FUTEX_CMP_REQUEUE_PI: one of those who wait at `from` gets `to` if nobody owns it; up to `moved` more, or that one, wait
/// for it.
pub(super) fn requeue(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    from: Virt,
    to: Virt,
    moved: usize,
) -> Served {
    let (from, target) = (key(guest, from), key(guest, to));
    if !to.is_multiple_of(4) || from == target {
        return errno(libc::EINVAL);
    }
    let mut movers = kernel.tasks.waiting(|wait| matches!(wait.on, On::ToBeOwned(at, _) if at == from));
    let fits = |id: &i32| {
        let wait = kernel.tasks.get(*id).and_then(|task| task.wait());
        matches!(wait, Some(Wait { on: On::ToBeOwned(_, owned), .. }) if owned.key == target)
    };
    if !movers.iter().all(fits) {
        return errno(libc::EINVAL);
    }
    movers.truncate(moved.saturating_add(1));
    let word = word_at(guest, to)?;
    let mut owner = i32::from_le_bytes((word & OWNER).to_le_bytes());
    let mut bits = word & OWNER_DIED;
    let count = movers.len() as u64;
    let mut rest = &movers[..];
    if owner == 0
        && let Some((next, behind)) = rest.split_first()
    {
        (owner, rest) = (*next, behind);
        bits |= next.unsigned_abs();
        guest.write(to, &bits.to_le_bytes())?;
        kernel.tasks.wake(*next, Why::Ready);
    }
    if kernel.tasks.get(owner).is_none() && !rest.is_empty() {
        return errno(libc::ESRCH);
    }
    if !rest.is_empty() {
        let word = word_at(guest, to)?;
        guest.write(to, &(word | WAITERS).to_le_bytes())?;
    }
    for id in rest {
        if let Some(wait) = kernel.tasks.wait_mut(*id)
            && let On::ToBeOwned(_, owned) = wait.on
        {
            wait.on = On::Owned(Owned { owner, ..owned });
        }
    }
    Ok(count)
}
