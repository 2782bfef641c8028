//! Guest-physical memory: what every processor of the guest runs against.
//!
//! | part | what |
//! | --- | --- |
//! | [`Ram`] | the bytes |
//! | [`Frames`] | who uses which page of them |
//! | [`paging`] | the page tables that lie in it |
//! | [`files`] | the frames with pages of files |
//! | [`contents`], [`objects`] | pages of shared objects: those without a frame, and as they were at a checkpoint |
//! | [`stale`] | what the processors have yet to forget |
//! | [`stored`] | frames and objects in a checkpoint on disk |
//! | [`Memory`] | all of that as one |
//!
//! A processor never owns memory. It is handed a `&mut Memory` to run, so the guest is stopped whenever a slice of it is
//! borrowed, and another processor can go on in the same memory (see [`crate::engine::Cpu`]).
//!
//! Example: `fork` counts a second owner for each frame of the parent ([`Frames::share`]) and takes the right to write
//! away; the first store faults, [`Memory::unshare`] copies the frame, and the store goes on.

mod contents;
mod files;
mod frames;
mod memory;
mod objects;
pub mod paging;
mod stale;
pub(crate) mod stored;

pub use contents::{Contents, pieces};
pub(crate) use files::FilePage;
pub use frames::{Frames, OutOfFrames};
pub use memory::{MOST_QUARANTINED, Memory, Written};
pub use objects::SavedObjects;

use rustix::fs::{SeekFrom, seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use vm_memory::{Address, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, MmapRegion};

/// A guest-physical address, in bytes.
pub type Phys = u64;
/// A guest-virtual address.
pub type Virt = u64;

/// Size of a page and of a frame.
pub const PAGE: u64 = 4096;
/// [`PAGE`], as the length of a slice.
pub const PAGE_LEN: usize = 4096;
/// How much is populated at once, ahead of use, at least and at most: a quarter of what there is already, so that little is
/// made that nobody uses, and the calls do not matter.
const POPULATE: [u64; 2] = [256 << 10, 4 << 20];
/// What new pages are made of, so many bytes at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How much memory a replay's guest may use, in bytes: whatever a recorder's may, and room for what the replay keeps besides.
#[must_use]
pub fn for_replay() -> u64 {
    const LEAST: u64 = 4 << 30;
    crate::host::memory().max(LEAST) / PAGE * PAGE
}

/// How much memory a recorded guest may use unless it is said: three quarters of what this process may.
#[must_use]
pub fn for_recording() -> u64 {
    crate::host::memory() / 4 * 3 / PAGE * PAGE
}

/// How much memory there has to be for a recorded guest that may use `limit` bytes: the call in which it uses them up is served to
/// its end before a process is killed for that.
#[must_use]
pub fn with_reserve(limit: u64) -> u64 {
    const LEAST: u64 = 128 << 20;
    limit.saturating_add(limit / 4).saturating_add(LEAST) / PAGE * PAGE
}

/// A page whose translation was withdrawn, narrowed or moved to another frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePage {
    /// The page's first virtual address.
    pub page: Virt,
    /// The frame it was mapped to.
    pub frame: Phys,
}

/// Guest memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot get {bytes} bytes of guest memory: {error}")]
pub struct NoMemory {
    /// How much was asked for.
    pub bytes: u64,
    /// Why not.
    pub error: std::io::Error,
}

/// Guest-physical memory from address 0 up: one anonymous file, mapped here, and a second time for the guest of KVM.
pub struct Ram {
    guest: GuestMemoryMmap,
    file: FileOffset,
    base: *mut u8,
    len: usize,
    second: Option<Second>,
    /// Everything below has been populated.
    populated: Phys,
}

/// Reads guest-physical memory by its file, on whichever thread.
pub(crate) struct View {
    file: Arc<std::fs::File>,
}

impl View {
    /// Reads the frames from `at` on that fit `bytes`.
    ///
    /// # Errors
    /// What the host says.
    pub(crate) fn read(&self, at: Phys, bytes: &mut [u8]) -> std::io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&*self.file, bytes, at)
    }
}

/// The mapping that KVM's slot points to; a virtual machine keeps it alive.
pub type Second = Arc<MmapRegion>;

// SAFETY: `base` points into `guest`, which is a plain shared mapping that any thread may use.
unsafe impl Send for Ram {}

impl Ram {
    /// Makes `bytes` of zeroed memory (a multiple of [`PAGE`]); frames cost host memory when first touched.
    ///
    /// # Errors
    /// When the host does not give it.
    pub fn new(bytes: u64) -> Result<Ram, NoMemory> {
        let failed = |error| NoMemory { bytes, error };
        // SAFETY: the name is a NUL-terminated literal; the result is checked.
        let fd = unsafe { libc::memfd_create(c"gretel-ram".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        // SAFETY: `fd` was just created and nothing else owns it.
        let file = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        file.set_len(bytes).map_err(failed)?;
        let file = FileOffset::new(file, 0);
        let len = index(bytes);
        let ranges = [(GuestAddress(0), len, Some(file.clone()))];
        let guest = GuestMemoryMmap::from_ranges_with_files(ranges)
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        let base = guest.get_host_address(GuestAddress(0)).expect("the region begins at zero");
        Ok(Ram { guest, file, base, len, second: None, populated: 0 })
    }

    /// The same bytes for another thread, which reads frames that nobody writes to meanwhile.
    pub(crate) fn view(&self) -> View {
        View { file: self.file.arc().clone() }
    }

    /// The memory as the crates of rust-vmm take it.
    #[must_use]
    pub fn guest(&self) -> &GuestMemoryMmap {
        &self.guest
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `len` bytes long and lives as long as `self.guest`. The file is anonymous and private to
        // this process, and the guest writes to it only while a processor runs, which holds the memory by `&mut`.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }

    /// All of it, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.guest.last_addr().raw_value() + 1
    }

    /// The page-sized frame at `at`, which must be aligned and inside.
    #[must_use]
    pub fn frame(&self, at: Phys) -> &[u8; PAGE_LEN] {
        self.bytes()[index(at)..][..PAGE_LEN].try_into().expect("a frame is one page")
    }

    /// The page-sized frame at `at`, writable.
    pub fn frame_mut(&mut self, at: Phys) -> &mut [u8; PAGE_LEN] {
        (&mut self.bytes_mut()[index(at)..][..PAGE_LEN]).try_into().expect("a frame is one page")
    }

    /// Gives the frame `to` the bytes of `from`; both must be aligned and inside.
    pub fn copy_frame(&mut self, from: Phys, to: Phys) {
        let from = index(from);
        self.bytes_mut().copy_within(from..from + PAGE_LEN, index(to));
    }

    /// The 64-bit word at `at`, which must be inside.
    #[must_use]
    pub fn word(&self, at: Phys) -> u64 {
        u64::from_le_bytes(self.bytes()[index(at)..][..8].try_into().expect("eight bytes"))
    }

    /// Writes the 64-bit word at `at`, which must be inside.
    pub fn set_word(&mut self, at: Phys, word: u64) {
        self.bytes_mut()[index(at)..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Has the host back the memory from 0 to at least `end` with pages, in both mappings: done ahead, in large steps, it
    /// costs a fifth of what the same costs page by page inside KVM's fault handler. A host that cannot do it loses nothing
    /// but that time.
    pub fn populate(&mut self, end: Phys) {
        if end <= self.populated {
            return;
        }
        let [least, most] = POPULATE;
        let step = (self.populated / 4).next_multiple_of(least).clamp(least, most);
        let end = end.next_multiple_of(least).max(self.populated + step).min(self.size());
        self.make_pages(self.populated, end);
        let (from, len) = (index(self.populated), index(end - self.populated));
        let second = self.second.as_ref().map(|second| second.as_ptr());
        for base in std::iter::once(self.base).chain(second) {
            map_pages(base, from, len);
        }
        self.populated = end;
    }

    /// Has the file have pages, zeros all of them, where it is a hole: a write makes them for two thirds of what faults cost.
    /// Where something may have been written the pages are left to the faults.
    fn make_pages(&self, from: Phys, end: Phys) {
        let file = self.file.file();
        let is_hole = match seek(file, SeekFrom::Data(from)) {
            Ok(data) => data >= end,
            Err(error) => error == rustix::io::Errno::NXIO,
        };
        let mut at = if is_hole { from } else { end };
        while at < end {
            let piece = index(end - at).min(ZEROS.len());
            // A limit on the size of files refuses what a fault does not; what else is refused, a fault tells.
            let Ok(()) = file.write_all_at(&ZEROS[..piece], at) else { return };
            at += piece as u64;
        }
    }

    /// The second mapping, at an address that stays; made when first asked for. The guest of KVM runs on it, so that
    /// [`Ram::renew_second`] can make KVM forget frames without touching ours.
    ///
    /// # Errors
    /// When the host does not map it.
    pub fn second(&mut self) -> Result<Second, NoMemory> {
        if let Some(second) = &self.second {
            return Ok(Arc::clone(second));
        }
        let region = MmapRegion::from_file(self.file.clone(), self.len);
        let region = region.map_err(|error| NoMemory {
            bytes: self.len as u64,
            error: std::io::Error::other(error.to_string()),
        })?;
        map_pages(region.as_ptr(), 0, index(self.populated));
        Ok(Arc::clone(self.second.insert(Arc::new(region))))
    }

    /// Drops the host's translations of `len` bytes at `at` in the second mapping, if there is one, and makes them anew. The
    /// content stays, since it is the file's; KVM is told by its MMU notifier, and forgets what it derived from them.
    ///
    /// Without new ones, which are made where memory is backed ahead, KVM would take each page that the guest comes back to at
    /// a fault of its own: it takes neighbours with it (eight: `PTE_PREFETCH_NUM` in Linux, arch/x86/kvm/mmu/mmu.c)
    /// only where the host has them mapped.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn renew_second(&mut self, at: Phys, len: u64) -> std::io::Result<()> {
        let Some(second) = &self.second else { return Ok(()) };
        assert!(at + len <= self.len as u64, "inside guest memory");
        // SAFETY: the range is inside a shared file mapping without private pages: the advice changes no content.
        match unsafe { libc::madvise(second.as_ptr().add(index(at)).cast(), index(len), libc::MADV_DONTNEED) }
        {
            0 => {}
            _ => return Err(std::io::Error::last_os_error()),
        }
        let end = (at + len).min(self.populated);
        if at < end {
            map_pages(second.as_ptr(), index(at), index(end - at));
        }
        Ok(())
    }
}

/// Has one of the mappings, which is shared, readable and writable, map a part of the file. The kernel maps many pages that are
/// there at one fault for a read, and one at a fault for a write; what it maps of shared memory can be written either way.
fn map_pages(mapping: *mut u8, from: usize, len: usize) {
    // SAFETY: the callers' range is inside of a mapping of guest memory: nothing changes but that pages are there.
    unsafe { libc::madvise(mapping.add(from).cast(), len, libc::MADV_POPULATE_READ) };
}

/// A physical address as an index; RAM is smaller than the host's address space.
fn index(at: Phys) -> usize {
    usize::try_from(at).expect("guest memory fits the host's address space")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};

    /// Whether the host has this address mapped: bit 63 of the page's word in /proc/self/pagemap (Linux,
    /// Documentation/admin-guide/mm/pagemap.rst).
    fn is_mapped(address: *const u8) -> bool {
        let mut word = [0; 8];
        let at = address as u64 / PAGE * 8;
        std::fs::File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut word, at).unwrap();
        u64::from_le_bytes(word) >> 63 == 1
    }

    #[test]
    fn what_kvm_is_to_forget_is_mapped_again() {
        let mut ram = Ram::new(16 << 20).unwrap();
        let second = ram.second().unwrap();
        ram.populate(1);
        ram.renew_second(3 * PAGE, 2 * PAGE).unwrap();
        ram.renew_second(POPULATE[0] - PAGE, 2 * PAGE).unwrap();
        let mapped = |ram: &Ram| {
            (0..ram.size()).step_by(PAGE_LEN).filter(|at| is_mapped(second.as_ptr().wrapping_add(index(*at))))
        };
        assert_eq!(mapped(&ram).count() as u64, POPULATE[0] / PAGE);
        ram.renew_second(0, ram.size()).unwrap();
        assert_eq!(
            mapped(&ram).last(),
            Some(POPULATE[0] - PAGE),
            "what is not backed yet is not backed by that"
        );
    }

    #[test]
    fn pages_are_made_ahead_and_what_is_there_stays() {
        const MIB: usize = 1 << 20;
        let mut ram = Ram::new(16 << 20).unwrap();
        ram.populate(1);
        let on_host = |ram: &Ram| ram.file.file().metadata().unwrap().blocks() * 512;
        assert_eq!((ram.populated, on_host(&ram)), (POPULATE[0], POPULATE[0]));
        // Written before it is populated, as by who restores a checkpoint.
        ram.bytes_mut()[5 * MIB + 7] = 9;
        let second = ram.second().unwrap();
        ram.populate(4 << 20);
        ram.populate(6 << 20);
        assert_eq!(on_host(&ram), ram.populated);
        ram.populate(8 << 20);
        assert!(ram.populated >= 8 << 20 && on_host(&ram) == ram.populated);
        // SAFETY: the mapping is as long as the memory, and nobody writes to it meanwhile.
        let seen = unsafe { std::slice::from_raw_parts(second.as_ptr(), ram.len) };
        for bytes in [ram.bytes(), seen] {
            let others = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
            assert_eq!(others.map(|(at, byte)| (at, *byte)).collect::<Vec<_>>(), [(5 * MIB + 7, 9)]);
        }
        ram.populate(16 << 20);
        assert_eq!(ram.populated, ram.size());
    }
}
