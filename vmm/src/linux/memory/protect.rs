//! mprotect, and the calls for protection keys, which no CPU model has.

use super::super::{Guest, Kernel, Served, errno, int};
use super::rights;
use super::room::{data_has_room, is_data};
use crate::memory::vma::{Mapping, page_up};
use crate::ram::PAGE;

/// PROT_SEM, PROT_GROWSDOWN and PROT_GROWSUP.
const SEM: i32 = 8;
const GROWS_DOWN: i32 = 0x0100_0000;
const GROWS_UP: i32 = 0x0200_0000;
const KNOWN: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC | SEM | GROWS_DOWN | GROWS_UP;

/// Changes rights up to the first hole, or up to the first mapping that cannot have them (`do_mprotect_pkey` of mm/mprotect.c).
pub(in super::super) fn mprotect(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    [start, length, protection, ..]: &[u64; 6],
) -> Served {
    let (start, length, protection) = (*start, *length, *protection);
    let protection = int(protection);
    let grows = protection & (GROWS_DOWN | GROWS_UP);
    if grows == GROWS_DOWN | GROWS_UP || !start.is_multiple_of(PAGE) {
        return errno(libc::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let Some(end) = page_up(length).and_then(|length| start.checked_add(length)).filter(|end| *end > start)
    else {
        return errno(libc::ENOMEM);
    };
    if protection & !KNOWN != 0 {
        return errno(libc::EINVAL);
    }
    let mappings = guest.space().mappings();
    let Some((first, mapping)) = mappings.at_or_after(start).filter(|(first, _)| *first < end) else {
        return errno(libc::ENOMEM);
    };
    let from = if grows == GROWS_DOWN { first } else { start };
    match grows {
        GROWS_DOWN if !mapping.attributes.grows_down => return errno(libc::EINVAL),
        GROWS_DOWN => {}
        _ if first > start => return errno(libc::ENOMEM),
        GROWS_UP => return errno(libc::EINVAL),
        _ => {}
    }
    let mut rights = rights(protection);
    rights.execute |= rights.read && kernel.reading_is_executing();
    let (mut at, mut refused, mut data) = (from, None, 0);
    for (part, mapping) in mappings.parts(&(from..end)) {
        if part.start != at {
            break;
        }
        if rights.write && mapping.attributes.never_written {
            refused = Some(libc::EACCES);
            break;
        }
        // What becomes data by this counts as such.
        let becomes = Mapping { rights, ..mapping.clone() };
        if is_data(&becomes) && !is_data(mapping) {
            data += part.end - part.start;
        }
        if data > 0 && !data_has_room(kernel, guest, data) {
            refused = Some(libc::ENOMEM);
            break;
        }
        at = part.end;
    }
    let (space, memory) = guest.both();
    space.protect(memory, &(from..at), rights)?;
    match refused {
        Some(error) => errno(error),
        None if at < end => errno(libc::ENOMEM),
        None => Ok(0),
    }
}

/// pkey_mprotect on a processor without protection keys, as the CPU models are: the key that means none is all there is.
pub(in super::super) fn pkey_mprotect(kernel: &Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    const NONE: i32 = -1;
    if int(a[3]) != NONE {
        return errno(libc::EINVAL);
    }
    mprotect(kernel, guest, a)
}

/// pkey_alloc: there is no key.
pub(in super::super) fn pkey_alloc(flags: u64, rights: u64) -> Served {
    const DISABLE_ACCESS: u64 = 1;
    const DISABLE_WRITE: u64 = 2;
    let valid = flags == 0 && rights & !(DISABLE_ACCESS | DISABLE_WRITE) == 0;
    errno(if valid { libc::ENOSPC } else { libc::EINVAL })
}

/// pkey_free: nobody has one.
pub(in super::super) fn pkey_free() -> Served {
    errno(libc::EINVAL)
}
