//! System V's shared memory: shmget, shmat, shmdt and shmctl.

use super::super::memory::unmap;
use super::super::sharing::new_object;
use super::super::{Guest, Kernel, Served, errno};
use super::{Entry, IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, Permission, READ, Record, WRITE, number};
use crate::memory::Rights;
use crate::memory::layout::{USER_END, USER_START};
use crate::memory::object::{Object, ObjectId};
use crate::memory::vma::{Attributes, Backing};
use crate::plain::plain;
use crate::ram::{PAGE, Virt};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const SHM_LOCK: i32 = 11;
const SHM_UNLOCK: i32 = 12;
const SHM_STAT: i32 = 13;
const SHM_INFO: i32 = 14;
const SHM_STAT_ANY: i32 = 15;
/// Flags of shmget and shmat.
const SHM_HUGETLB: i32 = 0o4000;
const SHM_RDONLY: i32 = 0o10000;
const SHM_RND: i32 = 0o20000;
const SHM_REMAP: i32 = 0o40000;
const SHM_EXEC: i32 = 0o100_000;
/// In a segment's mode: it goes with its last mapping; it is locked.
const SHM_DEST: u32 = 0o1000;
const SHM_LOCKED: u32 = 0o2000;
/// The limits that Linux has by default.
const SHMMAX: u64 = u64::MAX - (1 << 24);
const SHMMNI: u64 = 4096;
const SHMALL: u64 = SHMMAX;
/// The size of `struct shmid64_ds`.
const SEGMENT: usize = 112;

/// A segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    size: u64,
    object: Arc<Object>,
    removed: bool,
    /// When it was attached, detached and changed last, in seconds.
    times: [u64; 3],
    creator: i32,
    last: i32,
}
plain!(struct Segment { size, object, removed, times, creator, last });

impl Segment {
    /// Whether it was removed, and none of these objects is its own.
    pub(super) fn is_gone(&self, mapped: &BTreeSet<ObjectId>) -> bool {
        self.removed && !mapped.contains(&self.object.id)
    }

    /// The number of its memory.
    pub(super) fn id(&self) -> ObjectId {
        self.object.id
    }
}

pub(super) fn get(kernel: &mut Kernel, guest: &mut Guest<'_>, key: i32, size: u64, flags: i32) -> Served {
    let found = kernel.ipc.segments.find(&kernel.who(), key, flags, |segment| size <= segment.size)?;
    if let Some(id) = found {
        return Ok(number(id));
    }
    if size == 0 || size > SHMMAX {
        return errno(libc::EINVAL);
    }
    if kernel.ipc.segments.len() as u64 >= SHMMNI {
        return errno(libc::ENOSPC);
    }
    if flags & SHM_HUGETLB != 0 || size > guest.memory.ram().size() {
        return errno(libc::ENOMEM);
    }
    let permission = Permission::new(&kernel.who(), key, flags);
    let (now, creator) = (kernel.seconds(), kernel.pid());
    let object = kernel.new_object();
    let object = new_object(guest.memory, object, &format!("/SYSV{key:08x} (deleted)"), size);
    let segment = Segment { size, object, removed: false, times: [0, 0, now], creator, last: 0 };
    Ok(number(kernel.ipc.segments.add(permission, segment)?))
}

pub(super) fn attach(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    address: Virt,
    flags: i32,
) -> Served {
    let (now, pid) = (kernel.seconds(), kernel.pid());
    let at = match address % PAGE {
        0 => address,
        rest if flags & SHM_RND != 0 => address - rest,
        _ => return errno(libc::EINVAL),
    };
    if flags & SHM_REMAP != 0 && at == 0 {
        return errno(libc::EINVAL);
    }
    let (write, execute) = (flags & SHM_RDONLY == 0, flags & SHM_EXEC != 0);
    let wanted = if write { READ | WRITE } else { READ };
    let entry = kernel.ipc.segments.get(id)?;
    entry.permission.allows(&kernel.who(), if execute { wanted | 0o111 } else { wanted })?;
    let (object, length) = (Arc::clone(&entry.it.object), entry.it.size.next_multiple_of(PAGE));
    let range = match at {
        0 => {
            let Some(start) = guest.space().gap(length) else { return errno(libc::ENOMEM) };
            start..start + length
        }
        start => {
            let end = start.checked_add(length).filter(|end| *end <= USER_END && start >= USER_START);
            let Some(end) = end else { return errno(libc::EINVAL) };
            if flags & SHM_REMAP == 0 && !guest.space().mappings().is_free(&(start..end)) {
                return errno(libc::EINVAL);
            }
            start..end
        }
    };
    let attributes = Attributes { never_written: !write, ..Attributes::default() };
    unmap_others(kernel, guest, &range, object.id)?;
    let (space, memory) = guest.both();
    let rights = Rights { read: true, write, execute: execute || kernel.reading_is_executing() };
    space.map_as(memory, range.clone(), rights, Backing::Shared(object, 0), attributes)?;
    let segment = &mut kernel.ipc.segments.get_mut(id)?.it;
    (segment.times[0], segment.last) = (now, pid);
    Ok(range.start)
}

/// Makes room for a mapping of an object, which stays whoever maps it.
fn unmap_others(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    range: &Range<Virt>,
    object: ObjectId,
) -> Served<()> {
    let own = guest.space().mappings().shared(range).any(|(_, id, ..)| id == object);
    if own { Ok(()) } else { unmap(kernel, guest, range) }
}

pub(super) fn detach(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    let (now, pid) = (kernel.seconds(), kernel.pid());
    if !address.is_multiple_of(PAGE) || address >= USER_END {
        return errno(libc::EINVAL);
    }
    // The program may have unmapped parts, the first as well: what counts is where the segment would begin.
    let mappings = guest.space().mappings();
    let parts: Vec<(Range<Virt>, ObjectId)> = mappings
        .shared(&(address..USER_END))
        .filter(|(part, _, at, _)| part.start - address == *at)
        .map(|(part, id, ..)| (part, id))
        .collect();
    let is_segment = |id: &ObjectId| kernel.ipc.segments.iter().any(|(_, entry)| entry.it.id() == *id);
    let Some(object) = parts.iter().map(|(_, id)| *id).find(is_segment) else { return errno(libc::EINVAL) };
    for (_, entry) in kernel.ipc.segments.iter_mut().filter(|(_, entry)| entry.it.id() == object) {
        (entry.it.times[1], entry.it.last) = (now, pid);
    }
    let its = parts.iter().filter(|(_, id)| *id == object);
    its.map(|(part, _)| part).try_for_each(|part| unmap(kernel, guest, part))?;
    Ok(0)
}

/// How often an object is mapped.
fn attached(guest: &Guest<'_>, object: ObjectId) -> u64 {
    let spaces = guest.spaces.iter().map(|(_, space)| space.mappings());
    spaces
        .map(|mappings| mappings.shared(&(0..USER_END)).filter(|(_, id, ..)| *id == object).count() as u64)
        .sum()
}

pub(super) fn control(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    command: i32,
    address: Virt,
) -> Served {
    if id < 0 || command < 0 {
        return errno(libc::EINVAL);
    }
    match command {
        IPC_INFO | SHM_INFO => return info(kernel, guest, command, address),
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => return tell(kernel, guest, id, command, address),
        _ => {}
    }
    let now = kernel.seconds();
    let entry = kernel.ipc.segments.get(id)?;
    match command {
        IPC_RMID | IPC_SET | SHM_LOCK | SHM_UNLOCK => entry.permission.owned_by(&kernel.who())?,
        _ => return errno(libc::EINVAL),
    }
    let entry = kernel.ipc.segments.get_mut(id)?;
    match command {
        IPC_RMID => {
            entry.it.removed = true;
            entry.permission.key = libc::IPC_PRIVATE;
            entry.permission.mode |= SHM_DEST;
            kernel.sweep_shared(guest)?;
        }
        IPC_SET => {
            entry.permission.set(guest, address)?;
            entry.it.times[2] = now;
        }
        SHM_LOCK => entry.permission.mode |= SHM_LOCKED,
        _ => entry.permission.mode &= !SHM_LOCKED,
    }
    Ok(0)
}

fn tell(kernel: &Kernel, guest: &mut Guest<'_>, id: i32, command: i32, address: Virt) -> Served {
    let segments = &kernel.ipc.segments;
    let id = if command == IPC_STAT { id } else { segments.at_place(id)? };
    let entry = segments.get(id)?;
    if command != SHM_STAT_ANY {
        entry.permission.allows(&kernel.who(), READ)?;
    }
    let segment = &entry.it;
    let [attach, detach, change] = segment.times;
    let record = entry
        .permission
        .record(SEGMENT)
        .long(48, segment.size)
        .long(56, attach)
        .long(64, detach)
        .long(72, change)
        .word(80, segment.creator)
        .word(84, segment.last)
        .long(88, attached(guest, segment.object.id));
    guest.write(address, &record.bytes)?;
    Ok(if command == IPC_STAT { 0 } else { number(id) })
}

fn info(kernel: &Kernel, guest: &mut Guest<'_>, command: i32, address: Virt) -> Served {
    let segments = &kernel.ipc.segments;
    let record = if command == IPC_INFO {
        Record::new(72).long(0, SHMMAX).long(8, 1).long(16, SHMMNI).long(24, SHMMNI).long(32, SHMALL)
    } else {
        let pages: u64 = segments.iter().map(|(_, entry)| entry.it.size.div_ceil(PAGE)).sum();
        let resident: usize =
            segments.iter().map(|(_, entry)| guest.memory.object_pages(entry.it.object.id, 0).count()).sum();
        let used = i32::try_from(segments.len()).unwrap_or(i32::MAX);
        Record::new(48).word(0, used).long(8, pages).long(16, resident as u64)
    };
    guest.write(address, &record.bytes)?;
    Ok(number(segments.last_place()))
}

/// /proc/sysvipc/shm.
pub(in super::super) fn listing(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served<Vec<u8>> {
    let mut text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n".to_owned();
    for (id, Entry { permission, it }) in kernel.ipc.segments.iter() {
        let (Permission { key, mode, .. }, ids) = (permission, permission.shown());
        let Segment { size, object, times: [attach, detach, change], creator, last, .. } = it;
        let attached = attached(guest, object.id);
        let resident = guest.memory.object_pages(object.id, 0).count() as u64 * PAGE;
        text += &format!(
            "{key:10} {id:10}  {mode:4o} {size:21} {creator:5} {last:5}  {attached:5} {ids} {attach:10} {detach:10} {change:10} \
             {resident:21} {:21}\n",
            0
        );
    }
    Ok(text.into_bytes())
}
