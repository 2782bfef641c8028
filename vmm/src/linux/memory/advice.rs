//! madvise and mincore.

use super::super::{Guest, Kernel, Served, Stop, errno, host};
use super::lock::populate;
use super::remap::is_anonymous;
use crate::memory::space::{Access, allows};
use crate::memory::vma::{Backing, Mapping, page_up};
use crate::ram::{PAGE, Virt};
use std::ops::Range;
use std::sync::Arc;

/// Advice that changes nothing that a program can see.
const WITHOUT_EFFECT: [i32; 12] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
];
/// Advice that is followed.
const FOLLOWED: [i32; 9] = [
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_REMOVE,
    libc::MADV_DONTFORK,
    libc::MADV_DOFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_KEEPONFORK,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
];

/// Follows advice on each mapped part of a range; holes are passed over, and told in the end.
pub(in super::super) fn madvise(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    start: Virt,
    length: u64,
    advice: i32,
) -> Served {
    if !WITHOUT_EFFECT.contains(&advice) && !FOLLOWED.contains(&advice) || !start.is_multiple_of(PAGE) {
        return errno(libc::EINVAL);
    }
    let Some(end) = page_up(length).and_then(|length| start.checked_add(length)) else {
        return errno(libc::EINVAL);
    };
    let range = start..end;
    let parts: Vec<(Range<Virt>, Mapping)> =
        guest.space().mappings().parts(&range).map(|(part, mapping)| (part, mapping.clone())).collect();
    for (part, mapping) in &parts {
        follow(kernel, guest, part, mapping, advice)?;
    }
    if guest.space().mappings().is_full(&range) { Ok(0) } else { errno(libc::ENOMEM) }
}

fn follow(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    part: &Range<Virt>,
    mapping: &Mapping,
    advice: i32,
) -> Served<()> {
    let (locked, anonymous) = (mapping.attributes.locked, is_anonymous(&mapping.backing));
    let (space, memory) = guest.both();
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE if locked => return errno(libc::EINVAL),
        libc::MADV_FREE | libc::MADV_WIPEONFORK if !anonymous => return errno(libc::EINVAL),
        libc::MADV_DONTNEED | libc::MADV_FREE => space.discard(memory, part)?,
        libc::MADV_REMOVE => return remove(kernel, guest, part, mapping),
        libc::MADV_DONTFORK => space.set_attributes(part, |it| it.not_forked = true),
        libc::MADV_DOFORK => space.set_attributes(part, |it| it.not_forked = false),
        libc::MADV_WIPEONFORK => space.set_attributes(part, |it| it.wiped_on_fork = true),
        libc::MADV_KEEPONFORK => space.set_attributes(part, |it| it.wiped_on_fork = false),
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => {
            let access = if advice == libc::MADV_POPULATE_READ { Access::Read } else { Access::Write };
            if !allows(mapping.rights, access) {
                return errno(libc::EINVAL);
            }
            return populate(guest, part);
        }
        _ => {}
    }
    Ok(())
}

/// Makes a hole in what is shared: it is zero for all who map it, and in the file.
fn remove(kernel: &mut Kernel, guest: &mut Guest<'_>, part: &Range<Virt>, mapping: &Mapping) -> Served<()> {
    let Backing::Shared(object, _) = &mapping.backing else { return errno(libc::EINVAL) };
    if !mapping.rights.write {
        return errno(libc::EACCES);
    }
    let object = Arc::clone(object);
    let at = guest.space().mappings().shared(part).map(|(_, _, at, _)| at).next();
    let Some(at) = at else { return Ok(()) };
    let range = at..at.saturating_add(part.end - part.start);
    if let Some((inode, writer)) = kernel.writer_of(object.id) {
        kernel.write_back(guest, inode, range.clone())?;
        guest.input_number(|| host::punch(writer.host(), range.start, range.end - range.start))?;
    }
    object.zero(guest.memory, range);
    Ok(())
}

/// A byte for each page that says whether it is in memory: it was touched, or a file holds it. Nothing is ever swapped.
pub(in super::super) fn mincore(guest: &mut Guest<'_>, start: Virt, length: u64, answer: Virt) -> Served {
    if !start.is_multiple_of(PAGE) {
        return errno(libc::EINVAL);
    }
    let range = match super::range(start, length) {
        Ok(range) if guest.space().mappings().is_full(&range) => range,
        Ok(_) | Err(Stop::Errno(_)) => return errno(libc::ENOMEM),
        Err(stop) => return Err(stop),
    };
    const PIECE: usize = 4096;
    let mut bytes = Vec::with_capacity(PIECE);
    let mut at = answer;
    for page in range.step_by(crate::ram::PAGE_LEN) {
        bytes.push(u8::from(is_in_memory(guest, page)));
        if bytes.len() == PIECE {
            guest.write(at, &bytes)?;
            at = at.saturating_add(PIECE as u64);
            bytes.clear();
        }
    }
    guest.write(at, &bytes)?;
    Ok(0)
}

fn is_in_memory(guest: &Guest<'_>, page: Virt) -> bool {
    let space = guest.space();
    if space.frame(guest.memory.ram(), page).is_some() {
        return true;
    }
    let Some((start, mapping)) = space.mappings().find(page) else { return false };
    match &mapping.backing {
        Backing::Zero(_) => false,
        Backing::File(..) | Backing::Copied(..) => true,
        Backing::Shared(object, at) => {
            guest.memory.object_frame(object.id, (at + (page - start)) / PAGE).is_some()
        }
    }
}
