//! The newest crumbs of a run as a core holds them.

use super::reader::Snapshot;
use super::record::{Counts, Entry, Exit, RECORD};
use super::ring::{Origin, VERSION, tells_preemptions, version_with};

/// Crumbs before a moment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Crumbs {
    /// Where and when the run began.
    pub origin: Origin,
    /// The crumbs, oldest first, by number.
    pub entries: Vec<Entry>,
    /// Preemptions left crumbs.
    pub preemptions: bool,
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
const HEADER: usize = 40;

impl Crumbs {
    /// How many of the newest system calls were `thread`'s, with nothing of another thread behind them: each exit left a crumb, and between
    /// two of them no event began that left none, such as a preemption.
    #[must_use]
    pub fn calls_alone(&self, thread: u32) -> usize {
        let mut calls = 0;
        let mut newer = None;
        for crumb in self.entries.iter().rev().map(|entry| &entry.crumb) {
            // What begins an event, and what none.
            let events = match crumb.exit {
                Exit::Syscall { .. } | Exit::MachineRead | Exit::Preempted => 1,
                Exit::PageFault { .. } => 0,
                // The crash itself.
                Exit::Exception { .. } if newer.is_none() => 0,
                _ => break,
            };
            if crumb.thread != thread || newer.is_some_and(|newer: u64| newer != crumb.event + events) {
                break;
            }
            calls += usize::from(matches!(crumb.exit, Exit::Syscall { .. }));
            newer = Some(crumb.event);
        }
        calls
    }

    /// The newest `count` crumbs of a ring.
    #[must_use]
    pub fn newest(origin: Origin, mut snapshot: Snapshot, count: usize) -> Crumbs {
        let surplus = snapshot.entries.len().saturating_sub(count);
        snapshot.entries.drain(..surplus);
        Crumbs { origin, entries: snapshot.entries, preemptions: snapshot.preemptions }
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
        bytes.extend_from_slice(&version_with(self.preemptions).to_le_bytes());
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
        let preemptions = tells_preemptions(half(8)).ok_or_else(|| CrumbsError::Version(half(8)))?;
        if word(32) != 0 {
            return Err(CrumbsError::Reserved);
        }
        let (records, []) = records.as_chunks() else { return Err(CrumbsError::Length(bytes.len())) };
        let origin = Origin { vcpu: half(12), real: word(16), monotonic: word(24) };
        let mut crumbs = Crumbs { origin, entries: Vec::with_capacity(records.len()), preemptions };
        for (n, record) in records.iter().enumerate() {
            let newer = |entry: &Entry| crumbs.entries.last().is_none_or(|last| entry.number > last.number);
            let entry = Entry::from_bytes(record).filter(newer);
            crumbs.entries.push(entry.ok_or(CrumbsError::Record(HEADER + RECORD * n))?);
        }
        Ok(crumbs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crumb::Crumb;

    fn crumbs(all: &[(Exit, u64, u32)]) -> Crumbs {
        let entry = |(number, &(exit, event, thread))| {
            let (rip, rsp, counts) = (0x1000, 0x2000, Counts::default());
            Entry {
                number,
                crumb: Crumb { exit, event, thread, rip, rsp, time: None, counts, context: None },
            }
        };
        Crumbs { entries: (1..).zip(all).map(entry).collect(), ..Crumbs::default() }
    }

    #[test]
    fn calls_are_alone_while_each_event_left_a_crumb_of_the_thread() {
        let call = Exit::Syscall { number: 1 };
        let fault = Exit::PageFault { address: 0x5000, error_code: 4 };
        let own = [(call, 10, 7), (fault, 11, 7), (Exit::MachineRead, 11, 7), (call, 12, 7), (fault, 13, 7)];
        assert_eq!(crumbs(&own).calls_alone(7), 2);
        assert_eq!(crumbs(&own).calls_alone(8), 0);
        let preempted = [(call, 10, 7), (fault, 12, 7), (call, 12, 7), (fault, 13, 7)];
        assert_eq!(crumbs(&preempted).calls_alone(7), 1, "an event between that left no crumb");
        let other = [(call, 10, 7), (fault, 11, 8), (call, 11, 7)];
        assert_eq!(crumbs(&other).calls_alone(7), 1);
        let crash = [(call, 10, 7), (Exit::Exception { vector: 6, error_code: 0 }, 11, 7)];
        assert_eq!(crumbs(&crash).calls_alone(7), 1);
        assert_eq!(Crumbs::default().calls_alone(7), 0);
    }
}
