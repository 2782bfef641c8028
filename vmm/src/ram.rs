//! Guest-physical memory: one anonymous file, mapped here, and a second time by the KVM engine for the guest.
//!
//! The one virtual CPU runs on the thread that owns the [`Ram`], so while a slice of it is borrowed the guest
//! is stopped and the bytes do not change under the borrow.

use crate::engine::{EngineError, Phys};
use memmap2::MmapMut;
use std::fs::File;
use std::os::fd::FromRawFd;

/// Size of a page and of a frame.
pub const PAGE: u64 = 4096;
/// [`PAGE`], as the length of a slice.
pub const PAGE_LEN: usize = 4096;

/// Guest-physical memory from address 0 up.
pub struct Ram {
    file: File,
    map: MmapMut,
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
        Ok(Ram { file, map })
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

    /// The file behind it, for a second mapping.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
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
}

/// A physical address as an index; RAM is smaller than the host's address space.
fn index(at: Phys) -> usize {
    usize::try_from(at).expect("guest memory fits the host's address space")
}
