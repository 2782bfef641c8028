//! The end of a ring that is read: by ordinary reads of the file, so that neither a file that is cut nor one that
//! lies can do more than be refused. The writer may be at work, or have been killed in the middle of a record.

use super::record::{Entry, RECORD};
use super::ring::{HEADER, Header, HeaderError, Origin, USED};
use crate::regular;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How many records are read at once.
const BATCH: u64 = 1024;

/// Why a ring cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It is something else, or its header is damaged.
    #[error("{} is not a ring of crumbs: {error}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What shows that it is not.
        error: HeaderError,
    },
}

/// A ring that is open for reading.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
    header: Header,
    /// The number of the next crumb that [`Reader::follow`] has not given yet.
    next: u64,
}

/// What a ring holds at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The crumbs, oldest first, by number.
    pub entries: Vec<Entry>,
    /// How many numbers between the oldest and the newest are not there. A writer that is at work overwrites some
    /// while they are being read; in a file that is not written, records were damaged.
    pub missing: u64,
    /// How many slots hold something that is not a record: the one that was being written when the writer was killed,
    /// or damage.
    pub torn: u64,
    /// Preemptions left crumbs, so that of each switch of tasks one tells.
    pub preemptions: bool,
}

impl Reader {
    /// Opens the ring at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or has no header in order.
    pub fn open(path: &Path) -> Result<Reader, RingError> {
        let failed = |error| RingError::Read { path: path.to_owned(), error };
        let file = regular::open(path).map_err(failed)?;
        let mut header = [0; USED];
        let have = read_up_to(&file, &mut header, 0).map_err(failed)?;
        let header = Header::from_bytes(&header[..have]);
        let header = header.map_err(|error| RingError::Header { path: path.to_owned(), error })?;
        Ok(Reader { path: path.to_owned(), file, header, next: 1 })
    }

    /// Where and when the run began.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.header.origin
    }

    /// How many crumbs it has room for.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.header.slots
    }

    /// Whether its writer is alive, as far as the file's lock tells.
    ///
    /// # Errors
    /// When the file system cannot tell.
    pub fn is_written(&self) -> Result<bool, RingError> {
        match self.file.try_lock_shared() {
            Ok(()) => self.file.unlock().map(|()| false).map_err(|e| self.failed(e)),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(self.failed(error)),
        }
    }

    /// Everything that is there now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, RingError> {
        let slots = u64::from(self.header.slots);
        let mut snapshot = Snapshot { preemptions: self.header.preemptions, ..Snapshot::default() };
        let mut first = 0;
        while first < slots {
            let records = self.records(first, BATCH.min(slots - first))?;
            if records.is_empty() {
                break;
            }
            for (slot, record) in (first..).zip(&records) {
                match self.entry(slot, record) {
                    Some(entry) => snapshot.entries.push(entry),
                    None if record.iter().all(|byte| *byte == 0) => {}
                    None => snapshot.torn += 1,
                }
            }
            first += records.len() as u64;
        }
        snapshot.entries.sort_by_key(|entry| entry.number);
        let newest = snapshot.entries.last().map_or(0, |entry| entry.number);
        // A record that is a whole lap older than the newest was about to be overwritten, or is a lie.
        let behind = snapshot.entries.partition_point(|entry| entry.number <= newest.saturating_sub(slots));
        snapshot.entries.drain(..behind);
        if let Some(oldest) = snapshot.entries.first() {
            snapshot.missing = newest - oldest.number + 1 - snapshot.entries.len() as u64;
        }
        Ok(snapshot)
    }

    /// From now on [`Reader::follow`] gives what comes after crumb `number`.
    pub fn skip_to(&mut self, number: u64) {
        self.next = number.saturating_add(1);
    }

    /// The crumbs since the last call, and how many were overwritten before they could be read.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn follow(&mut self) -> Result<(Vec<Entry>, u64), RingError> {
        let mut found = Vec::new();
        let slots = u64::from(self.header.slots);
        loop {
            let slot = (self.next - 1) % slots;
            let records = self.records(slot, BATCH.min(slots - slot))?;
            let before = found.len();
            for (slot, record) in (slot..).zip(&records) {
                match self.entry(slot, record) {
                    Some(entry) if entry.number == self.next => {
                        found.push(entry);
                        self.next += 1;
                    }
                    // The writer is a lap ahead.
                    Some(entry) if entry.number > self.next => return self.catch_up(found),
                    _ => return Ok((found, 0)),
                }
            }
            if found.len() == before {
                return Ok((found, 0));
            }
        }
    }

    /// Goes on with the oldest crumb that is still there.
    fn catch_up(&mut self, mut found: Vec<Entry>) -> Result<(Vec<Entry>, u64), RingError> {
        let mut entries = self.snapshot()?.entries;
        entries.retain(|entry| entry.number >= self.next);
        let Some(newest) = entries.last() else { return Ok((found, 0)) };
        let lost = newest.number - self.next + 1 - entries.len() as u64;
        self.next = newest.number + 1;
        found.append(&mut entries);
        Ok((found, lost))
    }

    /// The record in a slot, if it is one that belongs there. No writer comes to the last number of all, behind which
    /// there would be no next one.
    fn entry(&self, slot: u64, record: &[u8; RECORD]) -> Option<Entry> {
        let slots = u64::from(self.header.slots);
        let belongs = |entry: &Entry| entry.number != u64::MAX && (entry.number - 1) % slots == slot;
        Entry::from_bytes(record).filter(belongs)
    }

    /// As many of the `count` records from slot `first` on as the file has.
    fn records(&self, first: u64, count: u64) -> Result<Vec<[u8; RECORD]>, RingError> {
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * RECORD];
        let at = HEADER as u64 + first * RECORD as u64;
        let have = read_up_to(&self.file, &mut bytes, at).map_err(|e| self.failed(e))?;
        Ok(bytes[..have].as_chunks().0.to_vec())
    }

    fn failed(&self, error: io::Error) -> RingError {
        RingError::Read { path: self.path.clone(), error }
    }
}

/// Fills `bytes` from offset `at` as far as the file goes; gives how far.
fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut have = 0;
    while have < bytes.len() {
        match file.read_at(&mut bytes[have..], at + have as u64) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}
