//! Contents of files that were taken before, so that each is in memory once, however often it is mapped or executed.
//!
//! A shell script maps libc once for each of its commands. The file is read each time, since it may have changed, and compared with
//! what it held the last time; where that is the same, the earlier copy is what is mapped. Whoever keeps what follows from a content
//! ([`crate::memory`]'s search for machine reads, the journal's digests) then knows it by its address.
//!
//! Example: the second `ls` of a script maps the 1.9 MB of libc, is given the content that the first one has, and nothing of it is
//! digested or searched again.

use super::host;
use crate::gate::FileContent;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Contents of more bytes than this together are forgotten.
const MOST_BYTES: usize = 128 << 20;
/// A content of more bytes is not kept.
const LARGEST: usize = 32 << 20;

/// Which part of which file: its device and number, where the part begins, and how long it was to be.
pub(in crate::linux) type Part = (u64, u64, u64, u64);

/// A part of a file that is open: from `offset` on, so many bytes.
pub(in crate::linux) fn part(file: RawFd, offset: u64, length: u64) -> Option<Part> {
    let [device, number, ..] = host::stat(file).ok()?;
    Some((device, number, offset, length))
}

/// What was taken of files. A copy has none of it: it is of use to who reads files, and no copy does.
#[derive(Debug, Default)]
pub(in crate::linux) struct Taken {
    known: HashMap<Part, Arc<FileContent>>,
    bytes: usize,
}

impl Clone for Taken {
    fn clone(&self) -> Taken {
        Taken::default()
    }
}

impl Taken {
    /// This content; the earlier copy of it, if it is what the part of the file held the last time.
    pub(in crate::linux) fn share(&mut self, part: Option<Part>, content: FileContent) -> Arc<FileContent> {
        let Some(part) = part else { return Arc::new(content) };
        if let Some(known) = self.known.get(&part).filter(|known| ***known == content) {
            return Arc::clone(known);
        }
        let content = Arc::new(content);
        if content.bytes.len() <= LARGEST {
            self.keep(part, Arc::clone(&content));
        }
        content
    }

    fn keep(&mut self, part: Part, content: Arc<FileContent>) {
        self.bytes += content.bytes.len();
        if self.bytes > MOST_BYTES {
            self.known.clear();
            self.bytes = content.bytes.len();
        }
        if let Some(before) = self.known.insert(part, content) {
            self.bytes = self.bytes.saturating_sub(before.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: &[u8]) -> FileContent {
        FileContent { name: b"/lib".to_vec(), bytes: Arc::new(bytes.to_vec()) }
    }

    #[test]
    fn the_same_content_is_shared_and_a_changed_one_is_not() {
        let mut taken = Taken::default();
        let part = Some((1, 2, 0, 4096));
        let first = taken.share(part, content(b"abc"));
        assert!(Arc::ptr_eq(&first, &taken.share(part, content(b"abc"))));
        let changed = taken.share(part, content(b"abd"));
        assert_eq!(changed.bytes.as_slice(), b"abd");
        assert!(Arc::ptr_eq(&changed, &taken.share(part, content(b"abd"))));
        assert!(!Arc::ptr_eq(&changed, &taken.share(None, content(b"abd"))));
    }

    #[test]
    fn many_bytes_are_forgotten() {
        let mut taken = Taken::default();
        let large = vec![7; LARGEST];
        (0..20).for_each(|n| drop(taken.share(Some((1, n, 0, 0)), content(&large))));
        assert!(taken.bytes <= MOST_BYTES && taken.known.len() <= MOST_BYTES / LARGEST);
    }
}
