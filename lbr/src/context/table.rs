//! The sets as a file that grows while a program runs, and as a note in a core.
//!
//! A header, then entries that are only appended: a call site and a word, a call site and the mark that it is hot, or a
//! place and the call site from which its function was called. What was appended before the site became hot stays, and
//! helps. Whether there was room for all, the number of entries tells.

use super::sets::{News, Policy};
use super::word::{called, id};
use crate::mapped::Mapped;
use crate::regular;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};

const MAGIC: &[u8; 8] = b"gtrctxts";
const VERSION: u32 = 1;
/// The size of the header in a note, and the used part of that in a file.
const USED: usize = 24;
/// The size of a file's header.
const HEADER: usize = 4096;
const ENTRY: usize = 16;
/// In an entry's site: the site is hot. Addresses of programs have 47 bits.
const HOT: u64 = 1 << 63;
/// In an entry's site: it is a place, and the word the call site from which its function was called.
const CALLED: u64 = 1 << 62;
const ADDRESS: u64 = !(HOT | CALLED);

/// Appends to the file.
pub struct TableWriter {
    table: Mapped,
    /// Where the next entry goes, in words.
    at: usize,
}

impl TableWriter {
    /// Makes a table in `file`, which is empty and open for reading and writing.
    ///
    /// # Errors
    /// When the file cannot be written or mapped.
    pub fn create(file: File, policy: Policy) -> io::Result<TableWriter> {
        let count = usize::try_from(policy.room).map_err(io::Error::other)?;
        let table = Mapped::create(file, (HEADER + count * ENTRY) / 8)?;
        let header = header(policy);
        for (slot, word) in table.words().iter().zip(header.as_chunks::<8>().0).rev() {
            slot.store(u64::from_le_bytes(*word), Release);
        }
        Ok(TableWriter { table, at: HEADER / 8 })
    }

    /// Whether somebody has truncated the file, so that entries are lost.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.table.is_cut()
    }

    /// Appends what is new. A table that is full stays as it is; what it does not know then proves nothing.
    pub fn append(&mut self, news: News) {
        let (site, word) = match news {
            News::Word { site, word } => (site & ADDRESS, word),
            News::Hot { site } => (site | HOT, 0),
            News::Caller { at, caller } => (at & ADDRESS | CALLED, caller),
        };
        if let Some([first, second]) = self.table.words().get(self.at..self.at + 2) {
            // The site last: an entry without one is none.
            second.store(word, Relaxed);
            first.store(site, Release);
            self.at += 2;
        }
    }
}

/// Magic (8 bytes), version (4), and the policy: threshold (4), every (4), room (4).
fn header(policy: Policy) -> [u8; USED] {
    let mut bytes = [0; USED];
    bytes[..8].copy_from_slice(MAGIC);
    for (n, half) in [VERSION, policy.threshold, policy.every, policy.room].into_iter().enumerate() {
        bytes[8 + 4 * n..12 + 4 * n].copy_from_slice(&half.to_le_bytes());
    }
    bytes
}

/// Why bytes are not such sets.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// They do not begin as such.
    #[error("not the words of call sites: the first eight bytes are not 'gtrctxts'")]
    Magic,
    /// Another version of the layout.
    #[error("words of call sites, version {0}; this gretel reads version {VERSION}")]
    Version(u32),
    /// The header is cut, or its reserved bytes are set.
    #[error("words of call sites: the header is damaged")]
    Header,
}

/// The sets, read, and turned around: of a callee's word, who called.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Table {
    policy: Policy,
    entries: Vec<(u64, u64)>,
    callers: FxHashMap<u64, u64>,
    hot: FxHashSet<u64>,
    /// The call sites from which the function around a place was called.
    seen: FxHashMap<u64, Vec<u64>>,
}

impl Table {
    /// Reads the file of a run, also while it grows.
    ///
    /// # Errors
    /// When it cannot be read, or is something else.
    pub fn open(path: &Path) -> Result<Table, TableError> {
        let bytes = regular::read(path).map_err(|error| TableError::Read { path: path.to_owned(), error })?;
        Table::parse(&bytes, HEADER)
    }

    /// Reads what [`Table::to_bytes`] wrote; the bytes may be anything.
    ///
    /// # Errors
    /// When they are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Table, TableError> {
        Table::parse(bytes, USED)
    }

    /// The bytes of a note: the used part of the file's header, and the entries.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = header(self.policy).to_vec();
        for (site, word) in &self.entries {
            bytes.extend_from_slice(&site.to_le_bytes());
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8], entries_at: usize) -> Result<Table, TableError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(TableError::Magic);
        }
        let Some((header, entries)) = bytes.split_at_checked(entries_at) else {
            return Err(TableError::Header);
        };
        let half =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if half(8) != VERSION {
            return Err(TableError::Version(half(8)));
        }
        if header[USED..].iter().any(|byte| *byte != 0) {
            return Err(TableError::Header);
        }
        let policy = Policy { threshold: half(12), every: half(16), room: half(20) };
        let mut table = Table { policy, ..Table::default() };
        for [site, word] in entries.as_chunks::<8>().0.as_chunks::<2>().0 {
            match u64::from_le_bytes(*site) {
                0 => break,
                site => table.add(site, u64::from_le_bytes(*word)),
            }
        }
        Ok(table)
    }

    fn add(&mut self, site: u64, word: u64) {
        self.entries.push((site, word));
        match site & !ADDRESS {
            0 => _ = self.callers.insert(called(word, id(site)), site),
            CALLED => self.seen.entry(site & ADDRESS).or_default().push(word),
            _ => _ = self.hot.insert(site & ADDRESS),
        }
    }

    /// The call site at which a callee got `word`, by its return address. Where there is one, it is the one: another
    /// would have to give the same 64 bits.
    #[must_use]
    pub fn caller(&self, word: u64) -> Option<u64> {
        self.callers.get(&word).copied()
    }

    /// The call sites from which the function around `at` was ever called; `None` if that was not kept.
    #[must_use]
    pub fn seen_callers(&self, at: u64) -> Option<&[u64]> {
        let seen = self.seen.get(&at).map_or(&[][..], Vec::as_slice);
        (self.policy.every != 0 && self.is_complete()).then_some(seen)
    }

    /// Whether words at this call site may be missing: it was hot, or the table was full.
    #[must_use]
    pub fn may_miss(&self, site: u64) -> bool {
        self.hot.contains(&site) || !self.is_complete()
    }

    /// Whether everything that was new found room.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        u32::try_from(self.entries.len()).is_ok_and(|count| count < self.policy.room)
    }

    /// The call sites that were hot, in no order.
    pub fn hot(&self) -> impl Iterator<Item = u64> {
        self.hot.iter().copied()
    }

    /// What was kept.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How many words were kept, and how many sites were hot.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.callers.len(), self.hot.len())
    }
}
