//! Counters that are read together, by one system call: all of the same moment.

use super::event::{Event, OpenError};
use super::sys::{self, Control};
use perf_event_open_sys::bindings;
use std::fs::File;
use std::io::{self, Read};

/// The layout of what is read: a number of counters, the times, and of each its value, its number, its lost samples.
const FORMAT: u64 = (bindings::PERF_FORMAT_GROUP
    | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
    | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING
    | bindings::PERF_FORMAT_ID
    | bindings::PERF_FORMAT_LOST) as u64;
const HEADER: usize = 3;
const COUNTER: usize = 3;
const WORD: usize = 8;

/// The counters of a group at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Nanoseconds since the group was enabled.
    pub enabled: u64,
    /// Nanoseconds of these in which it counted.
    pub running: u64,
    /// The counters, the leader first.
    pub counters: Vec<Counter>,
}

/// One counter of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What it has counted.
    pub value: u64,
    /// The kernel's number for it.
    pub id: u64,
    /// Samples that did not fit a ring.
    pub lost: u64,
}

/// Why a group has no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The kernel gave the counters to someone else for good: a pinned group that could not be scheduled.
    #[error("the counters were taken away: more events are pinned than the processor has counters")]
    Evicted,
    /// The kernel let others count for a part of the time, so that the values have holes.
    #[error("the counters ran for {running} of {enabled} ns: others shared them, and the counts have holes")]
    Shared {
        /// Nanoseconds in which they counted.
        running: u64,
        /// Nanoseconds in which they should have.
        enabled: u64,
    },
    /// The bytes are not those of a group.
    #[error("{bytes} bytes of counters, where {expected} belong to {counters} of them")]
    Length {
        /// How many there are.
        bytes: usize,
        /// What the first word says how many counters there are.
        counters: u64,
        /// How many bytes that makes.
        expected: u64,
    },
    /// The system call failed.
    #[error("cannot read the counters: {0}")]
    Failed(String),
}

impl Reading {
    /// Reads the bytes that the kernel gives for a group; they may be anything.
    ///
    /// # Errors
    /// When they are empty (the group lost its counters), or not as long as their first word says.
    pub fn from_bytes(bytes: &[u8]) -> Result<Reading, ReadError> {
        if bytes.is_empty() {
            return Err(ReadError::Evicted);
        }
        let (words, rest) = bytes.as_chunks::<WORD>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let count = words.first().copied().unwrap_or(0);
        let expected = count.saturating_mul((COUNTER * WORD) as u64).saturating_add((HEADER * WORD) as u64);
        match words.as_slice() {
            [_, enabled, running, counters @ ..] if rest.is_empty() && expected == bytes.len() as u64 => {
                let (counters, _) = counters.as_chunks::<COUNTER>();
                let counters =
                    counters.iter().map(|&[value, id, lost]| Counter { value, id, lost }).collect();
                Ok(Reading { enabled: *enabled, running: *running, counters })
            }
            _ => Err(ReadError::Length { bytes: bytes.len(), counters: count, expected }),
        }
    }

    /// The values, if the group counted all the time.
    ///
    /// # Errors
    /// When it did not: then they are too small, and nobody knows by how much.
    pub fn whole(&self) -> Result<Vec<u64>, ReadError> {
        if self.running != self.enabled {
            return Err(ReadError::Shared { running: self.running, enabled: self.enabled });
        }
        Ok(self.counters.iter().map(|counter| counter.value).collect())
    }
}

/// A group of counters of one thread.
#[derive(Debug)]
pub struct Group {
    leader: File,
    /// Open for as long as the group: closing a counter ends it.
    members: Vec<File>,
}

impl Group {
    /// Opens the counters for a thread (0: the calling one), stopped; the first leads.
    ///
    /// # Errors
    /// When one of them cannot be opened. An empty group cannot.
    pub fn open(events: &[Event], thread: i32) -> Result<Group, OpenError> {
        let (first, others) = events.split_first().ok_or(OpenError::NoPmu)?;
        let leader = first.open(thread, None, FORMAT, false)?;
        let members = others.iter().map(|event| event.open(thread, Some(&leader), FORMAT, false));
        let members = members.collect::<Result<_, _>>()?;
        Ok(Group { leader, members })
    }

    /// Starts all counters at once.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn enable(&self) -> io::Result<()> {
        sys::control(&self.leader, Control::Enable)
    }

    /// Stops all counters at once.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn disable(&self) -> io::Result<()> {
        sys::control(&self.leader, Control::Disable)
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// When they were taken away, or the kernel gives something else than a group.
    pub fn read(&self) -> Result<Reading, ReadError> {
        let mut bytes = vec![0; (HEADER + COUNTER * (1 + self.members.len())) * WORD];
        let len = (&self.leader).read(&mut bytes).map_err(|error| ReadError::Failed(error.to_string()))?;
        Reading::from_bytes(&bytes[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn the_values_come_in_the_order_of_the_group() {
        let reading = Reading::from_bytes(&bytes(&[2, 10, 10, 100, 7, 0, 200, 8, 1])).unwrap();
        assert_eq!(reading.whole(), Ok(vec![100, 200]));
        assert_eq!(reading.counters[1], Counter { value: 200, id: 8, lost: 1 });
    }

    #[test]
    fn a_count_with_holes_is_none() {
        let shared = Reading::from_bytes(&bytes(&[1, 10, 6, 100, 7, 0])).unwrap();
        assert_eq!(shared.whole(), Err(ReadError::Shared { running: 6, enabled: 10 }));
        assert_eq!(Reading::from_bytes(&[]), Err(ReadError::Evicted));
        let short = Reading::from_bytes(&bytes(&[2, 10, 10, 100, 7, 0]));
        assert_eq!(short, Err(ReadError::Length { bytes: 48, counters: 2, expected: 72 }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_reading_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(reading) = Reading::from_bytes(&bytes) {
                prop_assert_eq!(bytes.len(), 24 + 24 * reading.counters.len());
            }
        }
    }
}
