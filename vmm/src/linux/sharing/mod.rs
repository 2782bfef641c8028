//! Files that are mapped shared, and other memory that processes share.
//!
//! A file of the host that is mapped shared has one [`Object`], whoever maps it; its pages are taken from the host when they are
//! first mapped ([`pages`]). From then on the guest's own calls and stores are all that changes it: a call that writes to the file
//! or changes its size does the same to the object ([`calls`]), and what was stored to the object is written to the file before
//! a call reads it, and at the latest when nobody maps it any more ([`Kernel::write_back`]). What other programs of the host do
//! to the file meanwhile is not seen. A file that is mapped privately and may change is such an object, too: it is open for
//! writing, or ends before the mapping does. Its pages are copied when something is stored to them.
//!
//! Example: a process stores to a shared page and calls `pread` on the file. The page differs from what the file holds, so it is
//! written to the file, and the call reads from there what was stored.

mod calls;
mod memfd;
mod pages;

use super::descriptors::{Detached, OpenFile};
use super::{Guest, Kernel, Served, Stop, host};
use crate::memory::layout::USER_END;
use crate::memory::object::{Object, ObjectId};
use crate::memory::vma::Backing;
use crate::plain::plain;
use crate::ram::{Memory, StalePage};
pub(super) use calls::{fallocate, ftruncate, settled};
pub(super) use memfd::{create as memfd_create, seal};
pub(super) use pages::File;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Which file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}
plain!(struct Inode { device, number });

impl Inode {
    /// A regular file, from what [`host::stat`] says.
    fn of([device, number, mode, ..]: [u64; 5]) -> Option<Inode> {
        let regular = mode & u64::from(libc::S_IFMT) == u64::from(libc::S_IFREG);
        regular.then_some(Inode { device, number })
    }

    /// Whether it is on a block device, where no read waits for others: what looks like a regular file elsewhere may, as
    /// /proc/kmsg does.
    pub(super) fn is_on_block_device(self) -> bool {
        libc::major(self.device) != 0
    }

    /// As an input has it: nothing for what is no regular file.
    pub(super) fn bytes_of(file: i32) -> Vec<u8> {
        host::stat(file).ok().and_then(Inode::of).map_or_else(Vec::new, Inode::bytes)
    }

    /// The same, whatever kind of file it is.
    pub(super) fn bytes_of_any(file: i32) -> Vec<u8> {
        let inode = host::stat(file).map(|[device, number, ..]| Inode { device, number });
        inode.map_or_else(|_| Vec::new(), Inode::bytes)
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        [self.device.to_le_bytes(), self.number.to_le_bytes()].concat()
    }

    /// The other way round.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Inode> {
        let (device, number) = bytes.split_first_chunk()?;
        let number = number.try_into().ok()?;
        Some(Inode { device: u64::from_le_bytes(*device), number: u64::from_le_bytes(number) })
    }
}

/// A file that is mapped shared, or privately while it may change.
#[derive(Clone)]
struct Mapped {
    object: Arc<Object>,
    /// The open file by which it was first mapped; its number stays its own as long as this is open.
    file: Rc<OpenFile>,
    /// By which it is written to, if it may be.
    writer: Option<Rc<OpenFile>>,
}
plain!(struct Mapped { object, file, writer });

/// All memory that processes share by mapping it.
#[derive(Clone, Default)]
pub(super) struct Shared {
    files: BTreeMap<Inode, Mapped>,
    anonymous: BTreeSet<ObjectId>,
}
plain!(struct Shared { files, anonymous });

impl Shared {
    /// The open file by which a file was first mapped.
    pub(super) fn file(&self, inode: Inode) -> Option<&Rc<OpenFile>> {
        self.files.get(&inode).map(|mapped| &mapped.file)
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Shared {
        let mut copy = self.clone();
        for mapped in copy.files.values_mut() {
            mapped.file = files.file(&mapped.file);
            mapped.writer = mapped.writer.as_ref().map(|writer| files.file(writer));
        }
        copy
    }
}

/// The bytes of an object, from the first on.
const ALL: Range<u64> = 0..u64::MAX;

impl Kernel {
    /// The file of an open one, if it is an object.
    pub(super) fn mapped_shared(&self, file: &Rc<OpenFile>) -> Option<Inode> {
        if self.shared.files.is_empty() {
            return None;
        }
        match file.inode() {
            Some(inode) => self.shared.files.contains_key(&inode).then_some(inode),
            // Of a stream that was there from the start, only mmap asks what it is.
            None => {
                self.shared.files.iter().find(|(_, it)| Rc::ptr_eq(&it.file, file)).map(|(inode, _)| *inode)
            }
        }
    }

    /// New memory for MAP_SHARED without a file.
    pub(super) fn anonymous_backing(&mut self, memory: &mut Memory, length: u64) -> Backing {
        let id = self.new_object();
        self.shared.anonymous.insert(id);
        Backing::Shared(new_object(memory, id, "/dev/zero (deleted)", length), 0)
    }

    /// Writes what was stored in a part of a mapped file to the file.
    pub(super) fn write_back(
        &mut self,
        guest: &mut Guest<'_>,
        inode: Inode,
        range: Range<u64>,
    ) -> Served<()> {
        let Some(Mapped { object, writer: Some(writer), .. }) = self.shared.files.get(&inode) else {
            return Ok(());
        };
        let dirty = object.dirty(guest.memory, range);
        if dirty.is_empty() {
            return Ok(());
        }
        guest.input_number(|| write_runs(writer, &dirty))?;
        for (at, bytes) in &dirty {
            guest.memory.contents_mut().write(object.id, *at, bytes);
        }
        Ok(())
    }

    /// The same for all files, whether or not a file takes it.
    pub(crate) fn write_all_back(&mut self, guest: &mut Guest<'_>) -> Served<()> {
        let files: Vec<Inode> = self.shared.files.keys().copied().collect();
        for inode in files {
            match self.write_back(guest, inode, ALL) {
                Err(Stop::Errno(error)) => {
                    tracing::warn!("what was stored in a mapped file cannot be written to it: {error}")
                }
                written => written?,
            }
        }
        Ok(())
    }

    /// Writes to all files without a record of it: the recording ends here.
    pub(crate) fn abandon_shared(&self, memory: &Memory) {
        for mapped in self.shared.files.values() {
            if let Some(writer) = &mapped.writer {
                write_runs(writer, &mapped.object.dirty(memory, ALL));
            }
        }
    }

    /// Forgets the shared memory that nobody maps any more.
    pub(super) fn sweep_shared(&mut self, guest: &mut Guest<'_>) -> Served<()> {
        if self.shared.files.is_empty() && self.shared.anonymous.is_empty() && !self.ipc.has_segments() {
            return Ok(());
        }
        let mut mapped = BTreeSet::new();
        for (_, space) in guest.spaces.iter() {
            space.mappings().objects(&mut mapped);
        }
        self.ipc.sweep_segments(guest.memory, &mapped);
        let gone: Vec<ObjectId> = self.shared.anonymous.difference(&mapped).copied().collect();
        for object in gone {
            self.shared.anonymous.remove(&object);
            guest.memory.forget_object(object);
        }
        let unmapped = self.shared.files.iter().filter(|(_, it)| !mapped.contains(&it.object.id));
        let gone: Vec<Inode> = unmapped.map(|(inode, _)| *inode).collect();
        for inode in gone {
            match self.write_back(guest, inode, ALL) {
                Ok(()) | Err(Stop::Errno(_)) => {}
                Err(stop) => return Err(stop),
            }
            if let Some(mapped) = self.shared.files.remove(&inode) {
                guest.memory.forget_object(mapped.object.id);
            }
        }
        Ok(())
    }

    /// The file whose object this is, and by what it is written to.
    pub(super) fn writer_of(&self, object: ObjectId) -> Option<(Inode, Rc<OpenFile>)> {
        let inode = self.inode_of_object(object)?;
        Some((inode, Rc::clone(self.shared.files.get(&inode)?.writer.as_ref()?)))
    }

    /// The file whose object this is.
    pub(super) fn inode_of_object(&self, object: ObjectId) -> Option<Inode> {
        self.shared.files.iter().find(|(_, mapped)| mapped.object.id == object).map(|(inode, _)| *inode)
    }

    /// A file that is mapped shared has another size.
    pub(super) fn shared_resized(&mut self, guest: &mut Guest<'_>, inode: Inode, size: u64) -> Served<()> {
        let Some(mapped) = self.shared.files.get(&inode) else { return Ok(()) };
        let object = Arc::clone(&mapped.object);
        if size < object.size(guest.memory) {
            for space in guest.spaces.iter_mut() {
                space.cut_off(guest.memory, object.id, size)?;
            }
        }
        object.resize(guest.memory, size);
        Ok(())
    }
}

/// A new object of zeroes.
pub(super) fn new_object(memory: &mut Memory, id: ObjectId, name: &str, size: u64) -> Arc<Object> {
    let whole = size.div_ceil(crate::ram::PAGE);
    memory.contents_mut().add(id, whole * crate::ram::PAGE);
    memory.contents_mut().know(id, 0..whole, Arc::default());
    Arc::new(Object::new(id, name, Vec::new(), 0))
}

/// Writes runs of bytes to a file of the host: zero, or the first error.
fn write_runs(file: &OpenFile, runs: &[(u64, Vec<u8>)]) -> i64 {
    for (at, bytes) in runs {
        let mut done = 0;
        while done < bytes.len() {
            let offset = i64::try_from(at + done as u64).unwrap_or(i64::MAX);
            match host::write(file.host(), &bytes[done..], Some(offset)) {
                0 => return -i64::from(libc::EIO),
                error if error < 0 => return error,
                count => done += usize::try_from(count).unwrap_or(0),
            }
        }
    }
    0
}

/// Code in an object may have changed: processors forget what they derived from its frames.
fn invalidate_code(guest: &mut Guest<'_>, object: ObjectId) {
    let executed = guest.spaces.iter().any(|(_, space)| {
        space
            .mappings()
            .of_objects(&(0..USER_END))
            .any(|(_, id, _, mapping)| id == object && mapping.rights.execute)
    });
    if executed {
        let frames: Vec<u64> = guest.memory.object_pages(object, 0).map(|(_, frame)| frame).collect();
        guest.memory.invalidate(frames.into_iter().map(|frame| StalePage { page: 0, frame }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_file_is_known_by_its_bytes() {
        use std::os::fd::AsRawFd;
        let file = tempfile::tempfile().expect("a file");
        let bytes = Inode::bytes_of(file.as_raw_fd());
        let same = Inode::bytes_of(file.try_clone().expect("a descriptor").as_raw_fd());
        assert!(Inode::from_bytes(&bytes).is_some() && bytes == same);
        let null = std::fs::File::open("/dev/null").expect("it is everywhere");
        assert_eq!(Inode::from_bytes(&Inode::bytes_of(null.as_raw_fd())), None);
    }
}
