//! Guest-physical memory: one anonymous file, mapped here, and a second time by the KVM engine for the guest.
//!
//! The one virtual CPU runs on the thread that owns the [`Ram`], so while a slice of it is borrowed the guest
//! is stopped and the bytes do not change under the borrow.

use crate::engine::{EngineError, Phys};
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw, UncheckedAdvice};
use std::fs::File;
use std::os::fd::FromRawFd;

/// Size of a page and of a frame.
pub const PAGE: u64 = 4096;
/// [`PAGE`], as the length of a slice.
pub const PAGE_LEN: usize = 4096;
/// How much is populated at once, ahead of use: large enough that the call does not matter, small enough that
/// a small guest starts at once.
const POPULATE: u64 = 4 << 20;

/// Guest-physical memory from address 0 up.
pub struct Ram {
    file: File,
    map: MmapMut,
    /// The mapping that KVM's slot points to, where there is one.
    second: Option<MmapRaw>,
    /// Everything below has been populated.
    populated: Phys,
}

impl Ram {
    /// Makes `bytes` of zeroed memory (a multiple of [`PAGE`]); frames cost host memory when first touched.
    pub fn new(bytes: u64) -> Result<Ram, EngineError> {
        let failed = |error| EngineError::Memory { bytes, error };
        // SAFETY: the name is a NUL-terminated literal; the result is checked.
        let fd = unsafe { libc::memfd_create(c"gretel-ram".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        // SAFETY: `fd` was just created and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes).map_err(failed)?;
        // SAFETY: the file is anonymous and private to this process, so no one else changes or truncates it;
        // the guest writes to it only while its thread sits in `Engine::run`, which holds `&mut Ram`.
        let map = unsafe { MmapMut::map_mut(&file) }.map_err(failed)?;
        Ok(Ram { file, map, second: None, populated: 0 })
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// All of it, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.map.len() as u64
    }

    /// The page-sized frame at `at`, which must be aligned and inside.
    #[must_use]
    pub fn frame(&self, at: Phys) -> &[u8; PAGE_LEN] {
        self.map[index(at)..][..PAGE_LEN].try_into().expect("a frame is one page")
    }

    /// The page-sized frame at `at`, writable.
    pub fn frame_mut(&mut self, at: Phys) -> &mut [u8; PAGE_LEN] {
        (&mut self.map[index(at)..][..PAGE_LEN]).try_into().expect("a frame is one page")
    }

    /// The 64-bit word at `at`, which must be inside.
    #[must_use]
    pub fn word(&self, at: Phys) -> u64 {
        u64::from_le_bytes(self.map[index(at)..][..8].try_into().expect("eight bytes"))
    }

    /// Writes the 64-bit word at `at`, which must be inside.
    pub fn set_word(&mut self, at: Phys, word: u64) {
        self.map[index(at)..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Has the host back the memory from 0 to at least `end` with pages, in both mappings: done ahead, in large
    /// steps, it costs a fifth of what the same costs page by page inside KVM's fault handler. A host that
    /// cannot do it loses nothing but that time.
    pub fn populate(&mut self, end: Phys) {
        if end <= self.populated {
            return;
        }
        let end = end.next_multiple_of(POPULATE).min(self.size());
        let (offset, len) = (index(self.populated), index(end - self.populated));
        let _ = self.map.advise_range(Advice::PopulateWrite, offset, len);
        if let Some(second) = &self.second {
            let _ = second.advise_range(Advice::PopulateWrite, offset, len);
        }
        self.populated = end;
    }

    /// Maps the memory a second time, at an address that stays as long as this is; the guest runs on that
    /// mapping, so that [`Ram::drop_second`] can make KVM forget frames without touching ours.
    pub(crate) fn map_second(&mut self) -> Result<(), EngineError> {
        let bytes = self.size();
        let map =
            MmapOptions::new().map_raw(&self.file).map_err(|error| EngineError::Memory { bytes, error })?;
        self.second = Some(map);
        Ok(())
    }

    /// Where the second mapping is.
    pub(crate) fn second(&self) -> Option<*mut u8> {
        self.second.as_ref().map(MmapRaw::as_mut_ptr)
    }

    /// Drops the host translations of `len` bytes at `at` in the second mapping. The content stays, since it is
    /// the file's; KVM is told by its MMU notifier, and forgets what it derived from them.
    pub(crate) fn drop_second(&mut self, at: Phys, len: u64) -> std::io::Result<()> {
        match &self.second {
            // SAFETY: a shared file mapping without private pages: the advice changes no content.
            Some(map) => unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, index(at), index(len))
            },
            None => Ok(()),
        }
    }
}

/// A physical address as an index; RAM is smaller than the host's address space.
fn index(at: Phys) -> usize {
    usize::try_from(at).expect("guest memory fits the host's address space")
}
