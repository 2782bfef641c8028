//! A file that is seen where it is mapped: what is not looked at costs neither time nor memory.

use super::cut::Guarded;
use memmap2::{Mmap, MmapOptions};
use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io;
use std::ops::Deref;

/// A mapped file, to be read.
pub struct View {
    /// Dropped before the mapping is.
    guarded: Guarded,
    map: Mmap,
}

impl View {
    /// Maps a file. Nobody should write to it meanwhile: what is seen then may be the new or the old bytes.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub fn of(file: &File) -> io::Result<View> {
        // SAFETY: the view is private and read-only. The files that are seen like this are written once, under another name or
        // by a process that is gone; one that is cut all the same takes pages away: that is a signal, which is handled (`cut`).
        #[allow(unsafe_code, reason = "who else writes to a file cannot be known")]
        let map = unsafe { MmapOptions::new().map(file)? };
        let guarded = Guarded::new(map.as_ptr().addr(), map.len().next_multiple_of(4096))?;
        Ok(View { guarded, map })
    }

    /// Whether somebody has truncated the file: zeros were seen in place of what is gone.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.guarded.is_cut()
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Debug for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} mapped bytes", self.map.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_view_survives_the_truncation_of_its_file_and_says_so() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let view = View::of(&file).unwrap();
        assert_eq!((view.len(), view[9_999], view.is_cut()), (10_000, 7, false));
        file.set_len(1).unwrap();
        assert_eq!((view[5_000], view.is_cut()), (0, true));
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        assert!(View::of(&tempfile::tempfile().unwrap()).unwrap().is_empty());
    }
}
