//! Memory: the heap, mmap and its kin. All of it is computed from the guest's own state; only the contents of a
//! file that is mapped come from outside.

use super::{Guest, Linux, Served, errno, host, int};
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite};
use crate::process::Rights;
use crate::process::layout::{MAPPINGS_LIMIT, USER_END, USER_START};
use crate::process::vma::{Backing, Content, page_up};
use crate::ram::PAGE;
use std::ops::Range;
use std::sync::Arc;

/// Largest file contents that are taken into a mapping.
const LARGEST_FILE: u64 = 1 << 30;

/// The page-aligned range of `length` bytes at `start`.
fn range(start: Virt, length: u64) -> Served<Range<Virt>> {
    let end = page_up(length).and_then(|length| start.checked_add(length)).filter(|&end| end <= USER_END);
    match end {
        Some(end) if start.is_multiple_of(PAGE) => Ok(start..end),
        _ => errno(libc::EINVAL),
    }
}

fn rights(protection: i32) -> Rights {
    Rights {
        read: protection & libc::PROT_READ != 0,
        write: protection & libc::PROT_WRITE != 0,
        execute: protection & libc::PROT_EXEC != 0,
    }
}

pub(super) fn brk(guest: &mut Guest<'_>, end: Virt) -> Served {
    Ok(guest.space.set_heap_end(guest.engine, end)?)
}

pub(super) fn mmap(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [address, length, protection, flags, descriptor, offset] = *a;
    let (rights, flags) = (rights(int(protection)), int(flags));
    let file = if flags & libc::MAP_ANONYMOUS == 0 { Some(linux.files.get(int(descriptor))?) } else { None };
    if length == 0 || !offset.is_multiple_of(PAGE) || flags & libc::MAP_TYPE == 0 {
        return errno(libc::EINVAL);
    }
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if shared && rights.write && file.is_some() {
        tracing::warn!("a file was to be mapped shared and writable, which is not supported: ENODEV");
        return errno(libc::ENODEV);
    }
    if guest.space.mappings().len() >= MAPPINGS_LIMIT {
        return errno(libc::ENOMEM);
    }
    let range = place(guest, address, length, flags)?;
    let backing = match file {
        None => Backing::Zero(""),
        Some(file) => file_backing(guest, file.host(), offset, &range)?,
    };
    let start = range.start;
    guest.space.map(guest.engine, range, rights, backing)?;
    Ok(start)
}

/// Where a new mapping goes.
fn place(guest: &Guest<'_>, address: Virt, length: u64, flags: i32) -> Served<Range<Virt>> {
    let Some(length) = page_up(length) else { return errno(libc::ENOMEM) };
    if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
        let range = range(address, length)?;
        if range.start < USER_START {
            return errno(libc::EPERM);
        }
        if flags & libc::MAP_FIXED_NOREPLACE != 0 && !guest.space.mappings().is_free(&range) {
            return errno(libc::EEXIST);
        }
        return Ok(range);
    }
    if let Some(hint) = page_up(address).filter(|&hint| hint >= USER_START)
        && let Ok(range) = range(hint, length)
        && guest.space.mappings().is_free(&range)
    {
        return Ok(range);
    }
    match guest.space.gap(length) {
        Some(start) => Ok(start..start + length),
        None => errno(libc::ENOMEM),
    }
}

/// Takes the contents of a file that is being mapped: an input, with the path in front of the bytes.
fn file_backing(guest: &mut Guest<'_>, file: i32, offset: u64, range: &Range<Virt>) -> Served<Backing> {
    let length = range.end - range.start;
    if length > LARGEST_FILE {
        return errno(libc::ENOMEM);
    }
    let input = guest.gate.input(&mut || match read_all(file, offset, length) {
        Ok(bytes) => {
            let name = host::path_of(&file).unwrap_or_default();
            let writes = [name, bytes].map(|bytes| MemoryWrite { address: range.start, bytes });
            Input { result: 0, writes: writes.into() }
        }
        Err(result) => Input { result, writes: Vec::new() },
    })?;
    super::result(input.result)?;
    let mut parts = input.writes.into_iter().map(|write| write.bytes);
    let name = String::from_utf8_lossy(&parts.next().unwrap_or_default()).into_owned();
    let bytes = parts.next().unwrap_or_default();
    Ok(Backing::File(Arc::new(Content { name, file_offset: offset, bytes }), 0))
}

/// Up to `length` bytes of a file.
fn read_all(file: i32, offset: u64, length: u64) -> Result<Vec<u8>, i64> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| -i64::from(libc::ENOMEM))?];
    let mut filled = 0;
    while filled < bytes.len() {
        let at = i64::try_from(offset + filled as u64).map_err(|_| -i64::from(libc::EOVERFLOW))?;
        match host::read(file, &mut bytes[filled..], Some(at)) {
            0 => break,
            count if count < 0 => return Err(count),
            count => filled += usize::try_from(count).unwrap_or(0),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

pub(super) fn munmap(guest: &mut Guest<'_>, start: Virt, length: u64) -> Served {
    if length == 0 {
        return errno(libc::EINVAL);
    }
    let range = range(start, length)?;
    guest.space.unmap(guest.engine, &range)?;
    Ok(0)
}

pub(super) fn mprotect(guest: &mut Guest<'_>, start: Virt, length: u64, protection: u64) -> Served {
    let range = range(start, length)?;
    if !guest.space.mappings().is_full(&range) {
        return errno(libc::ENOMEM);
    }
    guest.space.protect(guest.engine, &range, rights(int(protection)))?;
    Ok(0)
}

pub(super) fn mremap(guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [start, old_length, new_length, flags, target, _] = *a;
    let flags = int(flags);
    let (old, new) = (range(start, old_length)?, range(start, new_length)?);
    if flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) != 0 || old.is_empty() || new.is_empty() {
        return errno(libc::EINVAL);
    }
    // Only one mapping can be resized, as on Linux.
    let Some((_, mapping)) = guest.space.mappings().find(start) else { return errno(libc::EFAULT) };
    if mapping.end < old.end {
        return errno(libc::EFAULT);
    }
    let mapping = mapping.clone();
    if flags & libc::MREMAP_FIXED == 0 {
        if new.end <= old.end {
            guest.space.unmap(guest.engine, &(new.end..old.end))?;
            return Ok(start);
        }
        if mapping.end == old.end && guest.space.mappings().is_free(&(old.end..new.end)) {
            return extend(guest, &old, new.end);
        }
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return errno(if flags & libc::MREMAP_FIXED == 0 { libc::ENOMEM } else { libc::EINVAL });
    }
    let length = new.end - new.start;
    let to = if flags & libc::MREMAP_FIXED != 0 {
        let to = range(target, length)?;
        if to.start < old.end && old.start < to.end {
            return errno(libc::EINVAL);
        }
        guest.space.unmap(guest.engine, &to)?;
        to.start
    } else {
        let Some(to) = guest.space.gap(length) else { return errno(libc::ENOMEM) };
        to
    };
    if length < old.end - old.start {
        guest.space.unmap(guest.engine, &(start + length..old.end))?;
    }
    let moved = start..old.end.min(start + length);
    guest.space.relocate(guest.engine, &moved, to)?;
    extend(guest, &(to..to + (moved.end - moved.start)), to + length)
}

/// Extends the mapping that covers `range` up to `end`, where nothing is mapped.
fn extend(guest: &mut Guest<'_>, range: &Range<Virt>, end: Virt) -> Served {
    if end > range.end {
        let Some((start, mapping)) = guest.space.mappings().find(range.start) else {
            return errno(libc::EFAULT);
        };
        let (rights, backing) = (mapping.rights, mapping.backing.after(range.end - start));
        guest.space.map(guest.engine, range.end..end, rights, backing)?;
    }
    Ok(range.start)
}

pub(super) fn madvise(guest: &mut Guest<'_>, start: Virt, length: u64, advice: i32) -> Served {
    let range = range(start, length)?;
    if !guest.space.mappings().is_full(&range) {
        return errno(libc::ENOMEM);
    }
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE => guest.space.discard(guest.engine, &range)?,
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP => {}
        _ => return errno(libc::EINVAL),
    }
    Ok(0)
}

/// A byte for each page, that it is in memory: nothing is ever swapped.
pub(super) fn mincore(guest: &mut Guest<'_>, start: Virt, length: u64, answer: Virt) -> Served {
    let range = match range(start, length) {
        Ok(range) if guest.space.mappings().is_full(&range) => range,
        _ if start.is_multiple_of(PAGE) => return errno(libc::ENOMEM),
        _ => return errno(libc::EINVAL),
    };
    const PIECE: [u8; 4096] = [1; 4096];
    let mut left = (range.end - range.start) / PAGE;
    let mut at = answer;
    while left > 0 {
        let count = left.min(PIECE.len() as u64);
        guest.write(at, &PIECE[..usize::try_from(count).expect("at most a piece")])?;
        (at, left) = (at + count, left - count);
    }
    Ok(0)
}

/// For calls that have no effect here: whether the range is mapped.
pub(super) fn mapped(guest: &Guest<'_>, start: Virt, length: u64) -> Served {
    let range = range(start, length)?;
    if guest.space.mappings().is_full(&range) { Ok(0) } else { errno(libc::ENOMEM) }
}
