//! The end of a ring that is written: some stores to mapped memory for each crumb.

use super::record::{Crumb, WORDS};
use super::ring::{HEADER, Header, MAX_SLOTS, Origin, USED};
use crate::mapped::Mapped;
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

/// Writes the crumbs of one virtual CPU.
pub struct Writer {
    ring: Mapped,
    /// The number of the next crumb.
    next: u64,
    /// Where its record begins, in words.
    at: usize,
}

impl Writer {
    /// Makes a ring with room for `slots` crumbs in `file`, which is empty and open for reading and writing.
    ///
    /// # Errors
    /// When the file cannot be written or mapped, or `slots` is zero or more than [`MAX_SLOTS`].
    pub fn create(file: File, slots: u32, origin: Origin) -> io::Result<Writer> {
        let count = usize::try_from(slots).ok().filter(|_| (1..=MAX_SLOTS).contains(&slots));
        let count = count.ok_or_else(|| io::Error::other(format!("a ring has 1 to {MAX_SLOTS} crumbs")))?;
        let ring = Mapped::create(file, HEADER / 8 + count * WORDS)?;
        let header = Header { slots, origin, preemptions: true }.to_bytes();
        let (words, []) = header.as_chunks::<8>() else { unreachable!("{USED} is a multiple of eight") };
        // The magic last: a reader that sees it sees all of the header.
        for (slot, word) in ring.words().iter().zip(words).rev() {
            slot.store(u64::from_le_bytes(*word), Release);
        }
        Ok(Writer { ring, next: 1, at: HEADER / 8 })
    }

    /// Writes a crumb over the oldest.
    pub fn put(&mut self, crumb: &Crumb) {
        let record = crumb.to_words(self.next);
        let words = self.ring.words();
        let slot = &words[self.at..self.at + WORDS];
        // Without a number while it is being written, and the number last: readers and the checksum catch the rest.
        slot[0].store(0, Relaxed);
        fence(Release);
        for (to, word) in slot[1..].iter().zip(&record[1..]) {
            to.store(*word, Relaxed);
        }
        slot[0].store(record[0], Release);
        self.next += 1;
        self.at += WORDS;
        if self.at == words.len() {
            self.at = HEADER / 8;
        }
    }

    /// Whether somebody has truncated the file, so that crumbs are lost.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.ring.is_cut()
    }

    /// How many crumbs were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.next - 1
    }
}
