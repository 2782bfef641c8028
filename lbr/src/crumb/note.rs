//! The newest crumbs of a run as a core holds them.

use super::reader::Snapshot;
use super::record::{Counts, Entry, RECORD};
use super::ring::Origin;

/// Crumbs before a moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Crumbs {
    /// Where and when the run began.
    pub origin: Origin,
    /// The crumbs, oldest first, by number.
    pub entries: Vec<Entry>,
}

/// Bytes that are not crumbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrumbsError {
    /// They do not begin as such.
    #[error("not crumbs: the first eight bytes are not 'gtrcrmbs'")]
    Magic,
    /// Another version of the layout.
    #[error("crumbs of version {0}; this gretel reads version {VERSION}")]
    Version(u32),
    /// The length is not that of a header and whole records.
    #[error("{0} bytes cannot be crumbs: 40 bytes and 96 for each were expected")]
    Length(usize),
    /// A record is damaged, or out of order.
    #[error("the crumb at offset {0:#x} is damaged")]
    Record(usize),
    /// Reserved bytes are not zero.
    #[error("crumbs: reserved bytes are set")]
    Reserved,
}

const MAGIC: &[u8; 8] = b"gtrcrmbs";
const VERSION: u32 = 1;
const HEADER: usize = 40;

impl Crumbs {
    /// The newest `count` crumbs of a ring.
    #[must_use]
    pub fn newest(origin: Origin, mut snapshot: Snapshot, count: usize) -> Crumbs {
        let surplus = snapshot.entries.len().saturating_sub(count);
        snapshot.entries.drain(..surplus);
        Crumbs { origin, entries: snapshot.entries }
    }

    /// Takes the counts of `other`, the same run's, for the crumbs that have none.
    pub fn take_counts(&mut self, other: &Crumbs) {
        for Entry { number, crumb } in &mut self.entries {
            let found = other.entries.binary_search_by_key(number, |entry| entry.number);
            if let Ok(at) = found
                && crumb.counts == Counts::default()
                && self.origin == other.origin
            {
                crumb.counts = other.entries[at].crumb.counts;
            }
        }
    }

    /// The bytes: `gtrcrmbs` (8), version (4), virtual CPU (4), CLOCK_REALTIME (8) and CLOCK_MONOTONIC (8) of the start,
    /// zero (8); then the records as in a ring, oldest first.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + RECORD * self.entries.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.origin.vcpu.to_le_bytes());
        bytes.extend_from_slice(&self.origin.real.to_le_bytes());
        bytes.extend_from_slice(&self.origin.monotonic.to_le_bytes());
        bytes.resize(HEADER, 0);
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.to_bytes());
        }
        bytes
    }

    /// Reads what [`Crumbs::to_bytes`] wrote; the bytes may be anything.
    ///
    /// # Errors
    /// When they are something else, or damaged: in a core that is whole, crumbs are whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Crumbs, CrumbsError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(CrumbsError::Magic);
        }
        let Some((header, records)) = bytes.split_at_checked(HEADER) else {
            return Err(CrumbsError::Length(bytes.len()));
        };
        let half =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        if half(8) != VERSION {
            return Err(CrumbsError::Version(half(8)));
        }
        if word(32) != 0 {
            return Err(CrumbsError::Reserved);
        }
        let (records, []) = records.as_chunks() else { return Err(CrumbsError::Length(bytes.len())) };
        let origin = Origin { vcpu: half(12), real: word(16), monotonic: word(24) };
        let mut crumbs = Crumbs { origin, entries: Vec::with_capacity(records.len()) };
        for (n, record) in records.iter().enumerate() {
            let newer = |entry: &Entry| crumbs.entries.last().is_none_or(|last| entry.number > last.number);
            let entry = Entry::from_bytes(record).filter(newer);
            crumbs.entries.push(entry.ok_or(CrumbsError::Record(HEADER + RECORD * n))?);
        }
        Ok(crumbs)
    }
}
