//! mremap: other sizes, other places.

use super::super::{Guest, Kernel, Served, errno, int};
use super::room::is_data;
use super::{Grows, has_room, range, unmap};
use crate::memory::vma::{Attributes, Backing, Mapping};
use crate::ram::Virt;
use std::ops::Range;

const KNOWN: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;

pub(in super::super) fn mremap(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [start, old_length, new_length, flags, target, _] = *a;
    let flags = int(flags);
    let (fixed, may_move) = (flags & libc::MREMAP_FIXED != 0, flags & libc::MREMAP_MAYMOVE != 0);
    let stays = flags & libc::MREMAP_DONTUNMAP != 0;
    let (old, new) = (range(start, old_length)?, range(start, new_length)?);
    let length = new.end - new.start;
    let wrong = flags & !KNOWN != 0
        || new.is_empty()
        || (fixed || stays) && !may_move
        || stays && length != old.end - old.start;
    if wrong {
        return errno(libc::EINVAL);
    }
    let Some((first, mapping)) = guest.space().mappings().find(start) else { return errno(libc::EFAULT) };
    let mapping = mapping.clone();
    if old.is_empty() && !(mapping.backing.is_shared() && may_move) {
        return errno(libc::EINVAL);
    }
    if !fixed && !stays && !old.is_empty() && new.end <= old.end {
        unmap(kernel, guest, &(new.end..old.end))?;
        return Ok(start);
    }
    // Only one mapping can be moved or grow, as on Linux.
    if mapping.end < old.end {
        return errno(libc::EFAULT);
    }
    let bytes = if stays || old.is_empty() { length } else { new.end.saturating_sub(old.end) };
    has_room(kernel, guest, Grows { bytes, data: is_data(&mapping) })?;
    if !fixed
        && !stays
        && !old.is_empty()
        && mapping.end == old.end
        && guest.space().mappings().is_free(&(old.end..new.end))
    {
        return extend(kernel, guest, &old, new.end);
    }
    if !may_move {
        return errno(libc::ENOMEM);
    }
    let to = if fixed {
        let to = range(target, length)?;
        if to.start < old.end && old.start < to.end {
            return errno(libc::EINVAL);
        }
        unmap(kernel, guest, &to)?;
        to.start
    } else {
        let Some(to) = guest.space().gap(length) else { return errno(libc::ENOMEM) };
        to
    };
    let part = Mapping { backing: mapping.backing.after(start - first), ..mapping };
    if old.is_empty() {
        // A second mapping of the same.
        place(guest, to..to + length, &part)?;
        know(kernel, guest, &(to..to + length))?;
        return Ok(to);
    }
    if length < old.end - old.start {
        unmap(kernel, guest, &(start + length..old.end))?;
    }
    let moved = start..old.end.min(start + length);
    let (space, memory) = guest.both();
    space.relocate(memory, &moved, to)?;
    if stays {
        let attributes = Attributes { locked: false, ..part.attributes };
        place(guest, moved.clone(), &Mapping { attributes, ..part })?;
    }
    extend(kernel, guest, &(to..to + (moved.end - moved.start)), to + length)
}

/// Maps a range as `like`.
fn place(guest: &mut Guest<'_>, range: Range<Virt>, like: &Mapping) -> Served<()> {
    let (space, memory) = guest.both();
    Ok(space.map_as(memory, range, like.rights, like.backing.clone(), like.attributes)?)
}

/// Extends the mapping that covers `range` up to `end`, where nothing is mapped.
fn extend(kernel: &mut Kernel, guest: &mut Guest<'_>, range: &Range<Virt>, end: Virt) -> Served {
    if end > range.end {
        let Some((start, mapping)) = guest.space().mappings().find(range.start) else {
            return errno(libc::EFAULT);
        };
        let more = Mapping { backing: mapping.backing.after(range.end - start), ..mapping.clone() };
        place(guest, range.end..end, &more)?;
        know(kernel, guest, &(range.end..end))?;
    }
    Ok(range.start)
}

/// Takes from the host what a file holds that is an object and mapped in a range.
fn know(kernel: &mut Kernel, guest: &mut Guest<'_>, range: &Range<Virt>) -> Served<()> {
    let found = guest
        .space()
        .mappings()
        .of_objects(range)
        .map(|(part, id, at, _)| (id, at, part.end - part.start))
        .next();
    let Some((object, at, length)) = found else { return Ok(()) };
    let Some(inode) = kernel.inode_of_object(object) else { return Ok(()) };
    kernel.know(guest, inode, at, length)
}

/// remap_file_pages, which Linux only emulates, is not served: nothing has used it since 32-bit databases.
pub(in super::super) fn remap_file_pages() -> Served {
    errno(libc::EINVAL)
}

/// Whether it is private memory without a file.
pub(super) fn is_anonymous(backing: &Backing) -> bool {
    matches!(backing, Backing::Zero(_))
}
