//! mlock and its kin. Nothing is ever swapped, so that to lock is to touch, and to be told of.

use super::super::{Guest, Kernel, Served, errno};
use crate::memory::layout::USER_END;
use crate::memory::space::{Access, Refusal};
use crate::memory::vma::{page_of, page_up};
use crate::ram::{PAGE_LEN, Virt};
use std::ops::Range;

/// Which of a process's limits is that of locked memory.
const RLIMIT_MEMLOCK: usize = 8;
const MLOCK_ONFAULT: u64 = 1;
/// So many frames stay free when a range is touched ahead.
const RESERVE: u64 = 1024;

/// Whether so many more bytes may be locked.
pub(super) fn may_lock(kernel: &Kernel, guest: &Guest<'_>, more: u64) -> Served<()> {
    let limit = kernel.group().limits[RLIMIT_MEMLOCK][0];
    let privileged = kernel.group().credentials.uid[1] == 0;
    if privileged || limit == libc::RLIM_INFINITY {
        return Ok(());
    }
    if limit == 0 {
        return errno(libc::EPERM);
    }
    let mappings = guest.space().mappings().iter();
    let locked = mappings.filter(|(_, it)| it.attributes.locked).map(|(start, it)| it.end - start);
    if locked.sum::<u64>().saturating_add(more) > limit { errno(libc::ENOMEM) } else { Ok(()) }
}

/// Makes a range resident. What cannot be touched is told as mlock tells it.
pub(super) fn populate(guest: &mut Guest<'_>, range: &Range<Virt>) -> Served<()> {
    for page in range.clone().step_by(PAGE_LEN) {
        let (space, memory) = guest.both();
        if space.frame(memory.ram(), page).is_some() {
            continue;
        }
        if memory.frames().available() < RESERVE {
            return errno(libc::EAGAIN);
        }
        match space.touch(memory, page, Access::Read)? {
            Ok(()) => {}
            Err(Refusal::BehindFile) => return errno(libc::EFAULT),
            Err(Refusal::NotMapped | Refusal::Forbidden) => return errno(libc::ENOMEM),
        }
    }
    Ok(())
}

/// The pages that a range touches.
fn pages(start: Virt, length: u64) -> Served<Range<Virt>> {
    let first = page_of(start);
    match length.checked_add(start - first).and_then(page_up).and_then(|length| first.checked_add(length)) {
        Some(end) => Ok(first..end),
        None => errno(libc::EINVAL),
    }
}

/// The part of a range up to its first hole.
fn up_to_hole(guest: &Guest<'_>, range: &Range<Virt>) -> Range<Virt> {
    let mut at = range.start;
    for (part, _) in guest.space().mappings().parts(range) {
        if part.start != at {
            break;
        }
        at = part.end;
    }
    range.start..at
}

pub(in super::super) fn mlock(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    start: Virt,
    length: u64,
    flags: u64,
) -> Served {
    if flags & !MLOCK_ONFAULT != 0 {
        return errno(libc::EINVAL);
    }
    let range = pages(start, length)?;
    may_lock(kernel, guest, range.end - range.start)?;
    let mapped = up_to_hole(guest, &range);
    guest.space_mut().set_attributes(&mapped, |it| it.locked = true);
    if mapped != range {
        return errno(libc::ENOMEM);
    }
    if flags & MLOCK_ONFAULT == 0 {
        populate(guest, &range)?;
    }
    Ok(0)
}

pub(in super::super) fn munlock(guest: &mut Guest<'_>, start: Virt, length: u64) -> Served {
    let range = pages(start, length)?;
    let mapped = up_to_hole(guest, &range);
    guest.space_mut().set_attributes(&mapped, |it| it.locked = false);
    if mapped == range { Ok(0) } else { errno(libc::ENOMEM) }
}

pub(in super::super) fn mlockall(kernel: &Kernel, guest: &mut Guest<'_>, flags: i32) -> Served {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags == 0 || flags & !known != 0 || flags == libc::MCL_ONFAULT {
        return errno(libc::EINVAL);
    }
    if flags & libc::MCL_CURRENT != 0 {
        let mappings = guest.space().mappings().iter();
        let all = mappings.filter(|(_, it)| !it.attributes.locked).map(|(start, it)| it.end - start).sum();
        may_lock(kernel, guest, all)?;
        guest.space_mut().set_attributes(&(0..USER_END), |it| it.locked = true);
        if flags & libc::MCL_ONFAULT == 0 {
            let parts: Vec<Range<Virt>> =
                guest.space().mappings().iter().map(|(start, mapping)| start..mapping.end).collect();
            for part in parts {
                // As on Linux, what cannot be touched is not told here.
                super::super::exit::forgive(populate(guest, &part))?;
            }
        }
    } else {
        may_lock(kernel, guest, 0)?;
    }
    guest.space_mut().locks_future = flags & libc::MCL_FUTURE != 0;
    Ok(0)
}

pub(in super::super) fn munlockall(_kernel: &Kernel, guest: &mut Guest<'_>) -> Served {
    let space = guest.space_mut();
    space.set_attributes(&(0..USER_END), |it| it.locked = false);
    space.locks_future = false;
    Ok(0)
}
