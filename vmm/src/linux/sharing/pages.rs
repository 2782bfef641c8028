//! Mapping a file shared: what the host says of the file, and the pages that are taken from it.

use super::super::descriptors::OpenFile;
use super::super::files::open_host;
use super::super::memory::{LARGEST_FILE, is_noexec, sparse_content};
use super::super::{Guest, Kernel, Served, errno, host};
use super::{Inode, Mapped};
use crate::memory::Rights;
use crate::memory::object::Object;
use crate::memory::vma::{Attributes, Backing};
use crate::ram::PAGE;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The device that is zeroes: to map it is to map no file.
const DEV_ZERO: u64 = 0x105;
/// That a file may be written, in what [`ask`] gives.
const WRITABLE: u64 = 1;

/// What is mapped.
pub(in super::super) enum File {
    /// A regular one.
    Regular(Backing, Attributes),
    /// Zeroes.
    Zero(Attributes),
}

/// What the host says of a file that is to be mapped: what [`host::stat`] does, and whether it may be written. An error where it may not
/// be mapped with such rights.
fn ask(file: i32, wanted: Rights) -> Result<Vec<u8>, i64> {
    let failed = |error: i32| -i64::from(error);
    let flags = host::fcntl(file, libc::F_GETFL, 0);
    if flags < 0 {
        return Err(flags);
    }
    if flags & i64::from(libc::O_PATH) != 0 {
        return Err(failed(libc::EBADF));
    }
    let access = flags & i64::from(libc::O_ACCMODE);
    if access == i64::from(libc::O_WRONLY) {
        return Err(failed(libc::EACCES));
    }
    let mut writable = access == i64::from(libc::O_RDWR);
    if wanted.write && !writable {
        return Err(failed(libc::EACCES));
    }
    if wanted.execute && is_noexec(file) {
        return Err(failed(libc::EPERM));
    }
    // What is no memfd has no seals.
    let seals = host::fcntl(file, libc::F_GET_SEALS, 0).max(0);
    if seals & i64::from(libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) != 0 {
        if wanted.write {
            return Err(failed(libc::EPERM));
        }
        writable = false;
    }
    let stat = host::stat(file)?;
    Ok(stat.into_iter().chain([if writable { WRITABLE } else { 0 }]).flat_map(u64::to_le_bytes).collect())
}

/// The same, as an input.
fn about(guest: &mut Guest<'_>, file: &OpenFile, wanted: Rights) -> Served<[u64; 6]> {
    let told = guest.input_bytes(&mut || ask(file.host(), wanted))?;
    let mut words = [0; 6];
    for (word, bytes) in words.iter_mut().zip(told.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Ok(words)
}

impl Kernel {
    /// Has a file mapped shared: `length` bytes from `offset` on.
    pub(in super::super) fn shared_file(
        &mut self,
        guest: &mut Guest<'_>,
        file: &Rc<OpenFile>,
        (offset, length): (u64, u64),
        rights: Rights,
    ) -> Served<File> {
        let [device, number, mode, is, size, writable] = about(guest, file, rights)?;
        let stat = [device, number, mode, is, size];
        let attributes = Attributes { never_written: writable != WRITABLE, ..Attributes::default() };
        let Some(inode) = Inode::of(stat) else {
            let device = mode & u64::from(libc::S_IFMT) == u64::from(libc::S_IFCHR);
            return if device && is == DEV_ZERO { Ok(File::Zero(attributes)) } else { errno(libc::ENODEV) };
        };
        let object = self.object_of(guest, inode, file, size)?;
        if writable == WRITABLE {
            self.open_writer(guest, inode, file)?;
        }
        self.know(guest, inode, offset, length)?;
        Ok(File::Regular(Backing::Shared(object, offset), attributes))
    }

    /// Has a file mapped privately that may change: it ends before the mapping does (`grows`), and what it grows by is there at once; or
    /// it is open for writing, and what is written to it is seen. `None` for what is no regular file, or is neither.
    pub(in super::super) fn changing_file(
        &mut self,
        guest: &mut Guest<'_>,
        file: &Rc<OpenFile>,
        (offset, length): (u64, u64),
        grows: bool,
    ) -> Served<Option<Backing>> {
        let Some(inode) = file.inode() else { return Ok(None) };
        let [.., size, writable] = about(guest, file, Rights::default())?;
        if !grows && writable != WRITABLE {
            return Ok(None);
        }
        let object = self.object_of(guest, inode, file, size)?;
        self.know(guest, inode, offset, length)?;
        Ok(Some(Backing::Copied(object, offset)))
    }

    /// The object of a file.
    fn object_of(
        &mut self,
        guest: &mut Guest<'_>,
        inode: Inode,
        file: &Rc<OpenFile>,
        size: u64,
    ) -> Served<Arc<Object>> {
        if let Some(mapped) = self.shared.files.get(&inode) {
            let object = Arc::clone(&mapped.object);
            // Another program of the host may have changed it.
            if object.size(guest.memory) != size {
                self.shared_resized(guest, inode, size)?;
            }
            return Ok(object);
        }
        let name = guest.input_bytes(&mut || Ok(host::path_of(&file.host()).unwrap_or_default()))?;
        let id = self.new_object();
        guest.memory.contents_mut().add(id, size);
        let object = Arc::new(Object::new(id, &String::from_utf8_lossy(&name), Vec::new(), 0));
        let mapped = Mapped { object: Arc::clone(&object), file: Rc::clone(file), writer: None };
        self.shared.files.insert(inode, mapped);
        Ok(object)
    }

    /// Opens a file a second time, for what is written back: the program's own position and flags are its own.
    fn open_writer(&mut self, guest: &mut Guest<'_>, inode: Inode, file: &Rc<OpenFile>) -> Served<()> {
        let Some(mapped) = self.shared.files.get_mut(&inode).filter(|mapped| mapped.writer.is_none()) else {
            return Ok(());
        };
        let opened = open_host(guest, &mut || host::reopen_for_writing(file.host()))?;
        mapped.writer = Some(OpenFile::new(opened));
        Ok(())
    }

    /// Takes the pages of a part of a file from the host that are not known yet.
    pub(in super::super) fn know(
        &mut self,
        guest: &mut Guest<'_>,
        inode: Inode,
        offset: u64,
        length: u64,
    ) -> Served<()> {
        let Some(mapped) = self.shared.files.get(&inode) else { return Ok(()) };
        let (id, file, size) = (mapped.object.id, Rc::clone(&mapped.file), mapped.object.size(guest.memory));
        let pages = offset / PAGE..offset.saturating_add(length).div_ceil(PAGE);
        for gap in guest.memory.contents().unknown(id, pages) {
            let inside = gap.start..gap.end.min(size.div_ceil(PAGE)).max(gap.start);
            let mut known = gap.start;
            for data in data_pages(guest, file.host(), &inside)? {
                let (from, to) = (data.start * PAGE, (data.end * PAGE).min(size));
                let bytes = Arc::clone(&sparse_content(guest, file.host(), from, to - from)?.bytes);
                guest.memory.contents_mut().know(id, known..data.start, Arc::default());
                known = data.end;
                guest.memory.contents_mut().know(id, data, bytes);
            }
            guest.memory.contents_mut().know(id, known..gap.end, Arc::default());
        }
        Ok(())
    }
}

/// The pages of a part of a file that hold anything, in order. Holes are looked for where the part is too large to be taken at
/// once: databases map files of a terabyte that hold a few pages.
fn data_pages(guest: &mut Guest<'_>, file: i32, pages: &Range<u64>) -> Served<Vec<Range<u64>>> {
    if pages.is_empty() {
        return Ok(Vec::new());
    }
    if pages.end - pages.start <= LARGEST_FILE / PAGE {
        return Ok(vec![pages.clone()]);
    }
    let told = guest.input_bytes(&mut || {
        let runs = host::data(file, pages.start * PAGE..pages.end * PAGE)?;
        Ok(runs.iter().flat_map(|run| [run.start, run.end]).flat_map(u64::to_le_bytes).collect())
    })?;
    let mut found: Vec<Range<u64>> = Vec::new();
    for bounds in told.chunks_exact(16) {
        let number = |at: usize| u64::from_le_bytes(bounds[at..at + 8].try_into().expect("eight bytes"));
        let behind = found.last().map_or(pages.start, |run| run.end);
        let run = (number(0) / PAGE).max(behind)..number(8).div_ceil(PAGE).min(pages.end);
        if !run.is_empty() {
            found.push(run);
        }
    }
    let total: u64 = found.iter().map(|run| run.end - run.start).sum();
    if total > LARGEST_FILE / PAGE { errno(libc::ENOMEM) } else { Ok(found) }
}
