//! Memory: the heap, mmap and its kin. All of it is computed from the guest's own state; only the contents of a
//! file that is mapped come from outside.
//!
//! [`protect`] and [`remap`] change what is mapped, [`advice`] and [`lock`] what is asked for it, [`room`] says how much there may be;
//! [`sync`] writes it to files, [`peer`] copies it between processes, and [`taken`] keeps the contents of files that were mapped.

mod advice;
mod lock;
mod peer;
mod protect;
mod remap;
mod room;
mod sync;
mod taken;

use super::exit::forgive;
use super::groups::limit;
use super::sharing::File;
use super::{Guest, Kernel, Served, Stop, errno, host, int};
use crate::gate::{FileContent, Input};
use crate::memory::Rights;
use crate::memory::layout::{MAPPINGS_LIMIT, USER_END, USER_START};
use crate::memory::vma::{Attributes, Backing, Content, page_up};
use crate::ram::PAGE;
use crate::ram::Virt;
pub(super) use advice::{madvise, mincore};
pub(super) use lock::{mlock, mlockall, munlock, munlockall};
pub(super) use peer::{Direction, may_look, peer};
pub(super) use protect::{mprotect, pkey_alloc, pkey_free, pkey_mprotect};
pub(super) use remap::{mremap, remap_file_pages};
use room::{Grows, has_room};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
pub(super) use sync::msync;
pub(super) use taken::{Taken, part};

/// Largest file contents that are taken into a mapping.
pub(super) const LARGEST_FILE: u64 = 1 << 30;
/// How a file is open (F_GETFL), and that it is for writing alone.
const ACCESS: i64 = libc::O_ACCMODE as i64;
const WRITES: i64 = libc::O_WRONLY as i64;

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

pub(super) fn brk(kernel: &Kernel, guest: &mut Guest<'_>, end: Virt) -> Served {
    let now = guest.space().heap().end;
    if end > now {
        let room = has_room(kernel, guest, Grows { bytes: end - now, data: true });
        let begin = guest.space().heap().start;
        let allowed = end.saturating_sub(begin) <= kernel.group().limits[limit::DATA][0];
        if room.is_err() || !allowed || kernel.overcommits(end - now) {
            return Ok(now);
        }
    }
    let (space, memory) = guest.both();
    Ok(space.set_heap_end(memory, end, kernel.reading_is_executing())?)
}

impl Kernel {
    /// Whether so many bytes at once are more than there can ever be: what Linux refuses unless it is told to
    /// (`vm.overcommit_memory` 0).
    fn overcommits(&self, bytes: u64) -> bool {
        self.memory != 0 && bytes > self.memory
    }
}

/// What mmap is asked for.
struct Wanted {
    rights: Rights,
    flags: i32,
    offset: u64,
    range: Range<Virt>,
}

impl Wanted {
    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn is_shared(&self) -> bool {
        self.flags & libc::MAP_TYPE != libc::MAP_PRIVATE
    }
}

/// The flags that mmap knows, for those who ask for just these (MAP_SHARED_VALIDATE).
const KNOWN_FLAGS: i32 = libc::MAP_TYPE
    | libc::MAP_FIXED
    | libc::MAP_ANONYMOUS
    | libc::MAP_32BIT
    | libc::MAP_GROWSDOWN
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_LOCKED
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_STACK
    | libc::MAP_HUGETLB
    | libc::MAP_FIXED_NOREPLACE;

/// Where MAP_32BIT puts mappings (`find_start_end` of arch/x86/kernel/sys_x86_64.c).
const IN_32_BITS: Range<Virt> = 0x4000_0000..0x8000_0000;

pub(super) fn mmap(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [address, length, protection, flags, descriptor, offset] = *a;
    let (mut rights, flags) = (rights(int(protection)), int(flags));
    if !offset.is_multiple_of(PAGE) {
        return errno(libc::EINVAL);
    }
    let file =
        if flags & libc::MAP_ANONYMOUS == 0 { Some(kernel.files().get(int(descriptor))?) } else { None };
    if length == 0 {
        return errno(libc::EINVAL);
    }
    if page_up(length).is_none() {
        return errno(libc::ENOMEM);
    }
    let is_in_a_file = offset.checked_add(length).is_some_and(|end| i64::try_from(end).is_ok());
    if file.is_some() && !is_in_a_file {
        return errno(libc::EOVERFLOW);
    }
    if guest.space().mappings().len() >= MAPPINGS_LIMIT {
        return errno(libc::ENOMEM);
    }
    if flags & libc::MAP_HUGETLB != 0 {
        // As where no huge pages are set aside.
        return errno(if file.is_some() { libc::EINVAL } else { libc::ENOMEM });
    }
    if rights.read && !rights.execute && kernel.reading_is_executing() {
        rights.execute = match &file {
            Some(file) => guest.input_number(|| i64::from(!is_noexec(file.host())))? != 0,
            None => true,
        };
    }
    let wanted = Wanted { rights, flags, offset, range: place(guest, address, length, flags)? };
    let checked = match flags & libc::MAP_TYPE {
        libc::MAP_SHARED_VALIDATE if file.is_some() && flags & !KNOWN_FLAGS != 0 => errno(libc::EOPNOTSUPP),
        libc::MAP_SHARED_VALIDATE if file.is_none() => errno(libc::EINVAL),
        libc::MAP_SHARED_VALIDATE | libc::MAP_SHARED | libc::MAP_PRIVATE => Ok(()),
        _ => errno(libc::EINVAL),
    };
    checked?;
    if wanted.has(libc::MAP_GROWSDOWN) && (file.is_some() || wanted.is_shared()) {
        return errno(libc::EINVAL);
    }
    let length = wanted.range.end - wanted.range.start;
    let replaced: u64 =
        guest.space().mappings().parts(&wanted.range).map(|(part, _)| part.end - part.start).sum();
    let data = wanted.rights.write && !wanted.is_shared() && !wanted.has(libc::MAP_GROWSDOWN);
    has_room(kernel, guest, Grows { bytes: length - replaced, data })?;
    let counts = file.is_none() && (wanted.rights.write || wanted.is_shared());
    if counts && !wanted.has(libc::MAP_NORESERVE) && kernel.overcommits(length) {
        return errno(libc::ENOMEM);
    }
    let locked = wanted.has(libc::MAP_LOCKED) || guest.space().locks_future;
    if locked {
        lock::may_lock(kernel, guest, wanted.range.end - wanted.range.start)?;
    }
    let backing = match &file {
        None if wanted.is_shared() => {
            let length = wanted.range.end - wanted.range.start;
            Ok((kernel.anonymous_backing(guest.memory, length), Attributes::default()))
        }
        None => {
            let grows_down = wanted.has(libc::MAP_GROWSDOWN);
            Ok((Backing::Zero(""), Attributes { grows_down, ..Attributes::default() }))
        }
        Some(file) => file_backing(kernel, guest, file, &wanted),
    };
    let (backing, attributes) = match backing {
        Ok(found) => found,
        Err(stop) => {
            // What was found before the error may be mapped by nobody.
            kernel.sweep_shared(guest)?;
            return Err(stop);
        }
    };
    let attributes = Attributes { locked, ..attributes };
    let range = wanted.range.clone();
    let replaces = maps_object(guest, &range);
    let (space, memory) = guest.both();
    space.map_as(memory, range.clone(), rights, backing, attributes)?;
    if replaces {
        kernel.sweep_shared(guest)?;
    }
    if locked || wanted.has(libc::MAP_POPULATE) && !wanted.has(libc::MAP_NONBLOCK) {
        forgive(lock::populate(guest, &range))?;
    }
    Ok(range.start)
}

/// Whether a file is on a file system of which nothing is executed.
pub(super) fn is_noexec(file: RawFd) -> bool {
    /// `f_flags` of a `struct statfs`.
    const FLAGS: Range<usize> = 80..88;
    let (result, bytes) = host::statfs(file);
    let flags = bytes.get(FLAGS).and_then(|flags| flags.try_into().ok()).map_or(0, u64::from_le_bytes);
    result == 0 && flags & libc::ST_NOEXEC != 0
}

/// Whether an object is mapped in a range.
fn maps_object(guest: &Guest<'_>, range: &Range<Virt>) -> bool {
    guest.space().mappings().of_objects(range).next().is_some()
}

/// Where a new mapping goes.
fn place(guest: &Guest<'_>, address: Virt, length: u64, flags: i32) -> Served<Range<Virt>> {
    let Some(length) = page_up(length) else { return errno(libc::ENOMEM) };
    if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0 {
        let range = range(address, length)?;
        if range.start < USER_START {
            return errno(libc::EPERM);
        }
        if flags & libc::MAP_FIXED_NOREPLACE != 0 && !guest.space().mappings().is_free(&range) {
            return errno(libc::EEXIST);
        }
        return Ok(range);
    }
    if let Some(hint) = page_up(address).filter(|&hint| hint >= USER_START)
        && let Ok(range) = range(hint, length)
        && guest.space().mappings().is_free(&range)
    {
        return Ok(range);
    }
    let gap = match flags & libc::MAP_32BIT {
        0 => guest.space().gap(length),
        _ => guest.space().mappings().highest_gap(length, &IN_32_BITS),
    };
    match gap {
        Some(start) => Ok(start..start + length),
        None => errno(libc::ENOMEM),
    }
}

/// What an ELF file begins with.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// What a mapping of a file holds: a copy of its contents, or what all see who map it.
fn file_backing(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &std::rc::Rc<super::descriptors::OpenFile>,
    wanted: &Wanted,
) -> Served<(Backing, Attributes)> {
    let length = wanted.range.end - wanted.range.start;
    let offset = wanted.offset;
    if file.queue().is_some() || kernel.proc_file(file).is_some() {
        return errno(libc::ENODEV);
    }
    let mut attributes = Attributes::default();
    if wanted.is_shared() {
        match kernel.shared_file(guest, file, (offset, length), wanted.rights)? {
            File::Zero(attributes) => {
                return Ok((kernel.anonymous_backing(guest.memory, length), attributes));
            }
            // Code is rewritten in copies only. As nobody may write here, this is one.
            File::Regular(_, found) if wanted.rights.execute && found.never_written => attributes = found,
            File::Regular(backing, attributes) => return Ok((backing, attributes)),
        }
    }
    let copied = usize::try_from(length).unwrap_or(usize::MAX);
    if kernel.mapped_shared(file).is_some() {
        kernel.taken.read_anew();
    }
    kernel.before_read(guest, file, i64::try_from(offset).ok(), copied)?;
    let extent = extent(guest, file.host(), offset, length)?;
    // One byte at the least, which says whether the program may read at all.
    let taken = extent.map_or(length, |[data, _]| data.max(1));
    let part = (offset, taken, wanted.rights);
    let content = file_content(&mut kernel.taken, guest, file.host(), part)?;
    let name = String::from_utf8_lossy(&content.name).into_owned();
    let bytes = Arc::clone(&content.bytes);
    let size = extent.map_or(bytes.len() as u64, |[_, size]| size);
    // A linker maps a library from its start to behind its end: its tables are looked up there (`memory/code.rs`), and it does not
    // grow.
    let is_library = bytes.starts_with(ELF_MAGIC);
    let grows = page_up(size).is_some_and(|end| end < length);
    if !wanted.rights.execute
        && !is_library
        && let Some(backing) = kernel.changing_file(guest, file, (offset, length), grows)?
    {
        return Ok((backing, attributes));
    }
    Ok((Backing::File(Arc::new(Content { name, file_offset: offset, bytes, size }), 0), attributes))
}

/// How far a part of a file holds data, and how much of the part there is; asked where it is too large to be read to its end.
fn extent(guest: &mut Guest<'_>, file: i32, offset: u64, length: u64) -> Served<Option<[u64; 2]>> {
    if length <= LARGEST_FILE {
        return Ok(None);
    }
    let told = guest.input_bytes(&mut || {
        let [_, _, mode, _, size] = host::stat(file)?;
        if mode & u64::from(libc::S_IFMT) != u64::from(libc::S_IFREG) {
            return Err(-i64::from(libc::ENOMEM));
        }
        let size = size.saturating_sub(offset).min(length);
        let runs = host::data(file, offset..offset + size)?;
        let data = runs.last().map_or(0, |run| run.end - offset);
        Ok([data, size].into_iter().flat_map(u64::to_le_bytes).collect())
    })?;
    match told.as_chunks() {
        ([data, size], []) => Ok(Some([data, size].map(|bytes| u64::from_le_bytes(*bytes)))),
        _ => errno(libc::EIO),
    }
}

/// Up to so many bytes of a file from an offset on, to be mapped with these rights.
fn file_content(
    taken: &mut Taken,
    guest: &mut Guest<'_>,
    file: i32,
    (offset, length, rights): (u64, u64, Rights),
) -> Served<Arc<FileContent>> {
    content(guest, length, &mut || {
        let part = part(file, offset, length);
        let may_run = !rights.execute || !is_noexec(file);
        if let Some(known) = taken.unchanged(part, file).filter(|_| may_run) {
            return Ok(known);
        }
        match read_all(file, offset, length) {
            Ok(_) if !may_run => Err(-i64::from(libc::EPERM)),
            // A file that is open for writing alone.
            Err(error)
                if error == -i64::from(libc::EBADF)
                    && host::fcntl(file, libc::F_GETFL, 0) & ACCESS == WRITES =>
            {
                Err(-i64::from(libc::EACCES))
            }
            Err(error) if error == -i64::from(libc::EISDIR) => Err(-i64::from(libc::ENODEV)),
            read => Ok(taken.share(part, named(file, read?))),
        }
    })
}

/// The same, without the zeroes at the end.
pub(super) fn sparse_content(
    guest: &mut Guest<'_>,
    file: i32,
    offset: u64,
    length: u64,
) -> Served<Arc<FileContent>> {
    content(guest, length, &mut || {
        let from = i64::try_from(offset).map_err(|_| -i64::from(libc::EOVERFLOW))?;
        let position = host::seek(file, 0, libc::SEEK_CUR);
        let data = host::seek(file, from, libc::SEEK_DATA);
        host::seek(file, position, libc::SEEK_SET);
        if data == -i64::from(libc::ENXIO) {
            return Ok(Arc::new(named(file, Vec::new())));
        }
        let mut bytes = read_all(file, offset, length)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        Ok(Arc::new(named(file, bytes)))
    })
}

/// Bytes of a file, with its name.
fn named(file: i32, bytes: Vec<u8>) -> FileContent {
    FileContent { name: host::path_of(&file).unwrap_or_default(), bytes: Arc::new(bytes) }
}

/// The content of a part of a file, which is so long at the most, as an input.
fn content(
    guest: &mut Guest<'_>,
    length: u64,
    read: &mut dyn FnMut() -> Result<Arc<FileContent>, i64>,
) -> Served<Arc<FileContent>> {
    if length > LARGEST_FILE {
        return errno(libc::ENOMEM);
    }
    match guest.gate.input(&mut || Input::File(read()))? {
        Input::File(Ok(content)) => Ok(content),
        Input::File(Err(error)) => Err(super::result(error).err().unwrap_or(Stop::Errno(libc::EIO))),
        other => Err(guest.unexpected(&other)),
    }
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

pub(super) fn munmap(kernel: &mut Kernel, guest: &mut Guest<'_>, start: Virt, length: u64) -> Served {
    if length == 0 {
        return errno(libc::EINVAL);
    }
    let range = range(start, length)?;
    unmap(kernel, guest, &range)?;
    Ok(0)
}

/// Unmaps a range; an object that nobody maps any more goes.
pub(super) fn unmap(kernel: &mut Kernel, guest: &mut Guest<'_>, range: &Range<Virt>) -> Served<()> {
    let maps_object = maps_object(guest, range);
    let (space, memory) = guest.both();
    space.unmap(memory, range)?;
    if maps_object { kernel.sweep_shared(guest) } else { Ok(()) }
}
