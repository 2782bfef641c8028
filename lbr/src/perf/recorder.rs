//! The two ways of using a ring: the newest samples of all time, or all samples since the last look.

use super::event::{Event, OpenError};
use super::ring::{End, Record, RingError, Sample, newest_first, oldest_first};
use super::sys::{self, Control, Mapping, page_size};
use crate::format::perf::PerfError;
use std::fs::File;
use std::io;

/// Why a ring has no samples.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The kernel does not let the ring be read.
    #[error("cannot read the ring: {0}")]
    Control(#[from] io::Error),
    /// It is not one.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A sample is not whole.
    #[error("a sample in the ring: {0}")]
    Sample(#[from] PerfError),
}

/// What a flight recorder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The samples, newest first.
    pub samples: Vec<Sample>,
    /// Where they end.
    pub end: End,
}

/// An event whose newest samples are kept, as many as fit: the kernel writes the ring backwards, over what is oldest.
/// Nobody has to read it until something happens.
#[derive(Debug)]
pub struct FlightRecorder {
    event: File,
    ring: Mapping,
    branches: u64,
}

impl FlightRecorder {
    /// Opens the event for a thread (0: the calling one), stopped, with a ring of `bytes` at least.
    ///
    /// # Errors
    /// When the event or the ring cannot be had.
    pub fn open(event: &Event, thread: i32, bytes: usize) -> Result<FlightRecorder, OpenError> {
        let file = event.open(thread, None, 0, true)?;
        // What cannot be written by the reader is overwritten by the kernel.
        let ring = map(&file, bytes, false)?;
        Ok(FlightRecorder { event: file, ring, branches: branches(event) })
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn start(&self) -> io::Result<()> {
        sys::control(&self.event, Control::Enable)
    }

    /// Stops sampling; what is there stays.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn stop(&self) -> io::Result<()> {
        sys::control(&self.event, Control::Disable)
    }

    /// The samples that are there. While they are copied nothing is recorded.
    ///
    /// # Errors
    /// When the ring holds something else.
    pub fn samples(&self) -> Result<Flight, TakeError> {
        sys::control(&self.event, Control::Pause)?;
        let (head, ring) = (self.ring.head(), self.ring.ring());
        sys::control(&self.event, Control::Resume)?;
        let (records, end) = newest_first(&ring, head)?;
        Ok(Flight { samples: samples(&records, self.branches)?, end })
    }
}

/// What came since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The samples, oldest first.
    pub samples: Vec<Sample>,
    /// How many the kernel dropped, since the ring was full.
    pub lost: u64,
    /// Where they end.
    pub end: End,
}

/// An event whose samples are read one after the other; what comes while the ring is full is lost, and counted.
#[derive(Debug)]
pub struct Stream {
    event: File,
    ring: Mapping,
    tail: u64,
    branches: u64,
}

impl Stream {
    /// Opens the event for a thread (0: the calling one), stopped, with a ring of `bytes` at least.
    ///
    /// # Errors
    /// When the event or the ring cannot be had.
    pub fn open(event: &Event, thread: i32, bytes: usize) -> Result<Stream, OpenError> {
        let file = event.open(thread, None, 0, false)?;
        let ring = map(&file, bytes, true)?;
        Ok(Stream { event: file, ring, tail: 0, branches: branches(event) })
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn start(&self) -> io::Result<()> {
        sys::control(&self.event, Control::Enable)
    }

    /// Stops sampling; what is there stays.
    ///
    /// # Errors
    /// Those of the ioctl.
    pub fn stop(&self) -> io::Result<()> {
        sys::control(&self.event, Control::Disable)
    }

    /// Takes what has come, and makes room for more.
    ///
    /// # Errors
    /// When the ring holds something else.
    pub fn take(&mut self) -> Result<Taken, TakeError> {
        let head = self.ring.head();
        let ring = self.ring.ring();
        let (records, end) = oldest_first(&ring, self.tail, head)?;
        self.tail = head;
        self.ring.set_tail(head);
        let lost = records.iter().filter_map(Record::lost).fold(0, u64::saturating_add);
        Ok(Taken { samples: samples(&records, self.branches)?, lost, end })
    }
}

fn branches(event: &Event) -> u64 {
    event.sampling.map_or(0, |sampling| sampling.branches)
}

fn samples(records: &[Record], branches: u64) -> Result<Vec<Sample>, PerfError> {
    records.iter().filter_map(|record| Sample::from_record(record, branches).transpose()).collect()
}

/// Maps a ring of `bytes` at least: a power of two of pages.
fn map(event: &File, bytes: usize, writable: bool) -> Result<Mapping, OpenError> {
    let pages = bytes.div_ceil(page_size()).max(1).next_power_of_two();
    Mapping::new(event, pages, writable).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::NoRing,
        _ => OpenError::Other(error.to_string()),
    })
}
