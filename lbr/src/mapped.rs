//! A file of 64-bit words that is written through memory: no system call for a write, and what was written outlives
//! the process however it ends, since the pages are the file's. A [`View`] reads a file in the same way. With perf's system calls the
//! one place with unsafe code in this crate.

mod cut;
mod view;

pub use view::View;

use cut::Guarded;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::AtomicU64;

/// The file grows in pieces of this size while it is made.
const PIECE: usize = 1 << 16;

/// A mapped file. The writer alone stores; whoever reads opens the file for itself.
pub(crate) struct Mapped {
    /// Dropped before the mapping is.
    guarded: Guarded,
    map: MmapRaw,
    /// Kept open for its lock, by which readers know that the writer lives.
    _file: File,
}

impl Mapped {
    /// Fills an empty file, open for reading and writing, with `words` zeros, locks it, and maps it.
    ///
    /// Zeros are written rather than left as holes: a disk that fills up later would end the process with SIGBUS.
    pub(crate) fn create(mut file: File, words: usize) -> io::Result<Mapped> {
        // A file system without locks costs readers the knowledge that the writer lives, and nothing else.
        let _ = file.try_lock();
        let mut left = words * size_of::<u64>();
        while left > 0 {
            let piece = left.min(PIECE);
            file.write_all(&[0; PIECE][..piece])?;
            left -= piece;
        }
        let map = MmapOptions::new().len(words * size_of::<u64>()).populate().map_raw(&file)?;
        let guarded = Guarded::new(map.as_ptr().addr(), map.len())?;
        Ok(Mapped { guarded, map, _file: file })
    }

    /// Whether somebody has truncated the file: what was stored behind its end since is lost.
    pub(crate) fn is_cut(&self) -> bool {
        self.guarded.is_cut()
    }

    /// The words, as they are in the file (little-endian, as everything on this architecture).
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let count = self.map.len() / size_of::<u64>();
        // SAFETY: the mapping is `len` bytes at a page boundary, readable and writable, and lives as long as
        // `self`; in this process it is only ever seen as atomics, which any number of threads may share.
        // Another process that truncates the file takes the pages away: that is a signal, not undefined behaviour (`cut`).
        #[allow(unsafe_code, reason = "a mapping has no safe view")]
        unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().cast(), count)
        }
    }
}
