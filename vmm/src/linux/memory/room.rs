//! How large an address space may be (RLIMIT_AS), and how much of it may be data (RLIMIT_DATA): `may_expand_vm` of mm/mmap.c.

use super::super::groups::limit;
use super::super::{Guest, Kernel, Served, errno};
use crate::memory::vma::{Backing, Mapping};

/// By how much an address space is to grow.
#[derive(Clone, Copy)]
pub(super) struct Grows {
    pub(super) bytes: u64,
    /// Whether these are data: private, to be written, and no stack.
    pub(super) data: bool,
}

/// Whether a mapping is data (`is_data_mapping`).
pub(super) fn is_data(mapping: &Mapping) -> bool {
    mapping.rights.write && !mapping.attributes.grows_down && !matches!(mapping.backing, Backing::Shared(..))
}

/// Whether the address space of the process that runs may grow so.
///
/// # Errors
/// ENOMEM, if a limit forbids it.
pub(super) fn has_room(kernel: &Kernel, guest: &Guest<'_>, grows: Grows) -> Served<()> {
    let whole = fits(guest, kernel.group().limits[limit::AS][0], grows.bytes, |_| true);
    if whole && (!grows.data || data_has_room(kernel, guest, grows.bytes)) {
        Ok(())
    } else {
        errno(libc::ENOMEM)
    }
}

/// Whether there may be so many more bytes of data.
pub(super) fn data_has_room(kernel: &Kernel, guest: &Guest<'_>, bytes: u64) -> bool {
    let limit = match kernel.group().limits[limit::DATA] {
        // Who sets zero, as valgrind does, means that brk fails and not mmap.
        [0, hard] => hard,
        [soft, _] => soft,
    };
    fits(guest, limit, bytes, is_data)
}

/// Whether what is mapped and counts is within a limit with so many bytes more.
fn fits(guest: &Guest<'_>, limit: u64, bytes: u64, counts: fn(&Mapping) -> bool) -> bool {
    if limit == libc::RLIM_INFINITY {
        return true;
    }
    let mappings = guest.space().mappings().iter().filter(|(_, mapping)| counts(mapping));
    let used: u64 = mappings.map(|(start, mapping)| mapping.end - start).sum();
    used.saturating_add(bytes) <= limit
}
