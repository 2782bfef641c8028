//! What the bytes of a ring buffer say: records in the order that they were written, or backwards.
//!
//! The kernel writes a ring either forwards, and drops what does not fit before the reader has gone on, or backwards
//! (`write_backward`) over what is oldest: then the head is where the newest record begins, and behind it come older
//! ones up to one that is partly overwritten (kernel/events/ring_buffer.c). The bytes may be anything; a record that
//! cannot be ends the reading.

use crate::format::perf::{PerfError, Stack, word};
use crate::format::perf_sample::{BRANCH_STACK, HEADER, RECORD_SAMPLE, SampleLayout};

/// `PERF_RECORD_LOST`: so many records did not fit.
const RECORD_LOST: u32 = 2;
/// `PERF_RECORD_LOST_SAMPLES`: so many samples did not fit.
const RECORD_LOST_SAMPLES: u32 = 13;

/// A record, whole, with the wrap-around undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its type, `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// What is behind its header.
    pub body: Vec<u8>,
}

/// Where the reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was read.
    Whole,
    /// Behind the last record that was read the ring was never written.
    Unwritten,
    /// The next record is partly overwritten by the newest.
    Overwritten,
    /// At this offset of the ring there is something that is not a record.
    Torn(usize),
}

/// A ring that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Rings are a power of two of bytes.
    #[error("a ring of {0} bytes: it must be a power of two, of 8 or more")]
    Size(usize),
    /// The reader and the writer are further apart than the ring is long.
    #[error("the ring of {size} bytes has its head at {head:#x} and its tail at {tail:#x}")]
    Ends {
        /// Where the writer is.
        head: u64,
        /// Where the reader is.
        tail: u64,
        /// The ring's size.
        size: usize,
    },
}

/// The records of a ring that is written backwards, newest first; `head` is where the newest begins.
///
/// # Errors
/// When the bytes are not as many as a ring has.
pub fn newest_first(ring: &[u8], head: u64) -> Result<(Vec<Record>, End), RingError> {
    let ring = Circle::new(ring)?;
    let mut records = Vec::new();
    let mut used = 0;
    let end = loop {
        let left = ring.len() - used;
        match ring.record(head.wrapping_add(used as u64), left) {
            // A record of a whole ring is thinkable: then nothing is left behind it.
            _ if left == 0 => break End::Whole,
            Next::Record(record, size) => {
                used += size;
                records.push(record);
            }
            Next::Zero => break End::Unwritten,
            Next::Longer => break End::Overwritten,
            Next::Nonsense(at) => break End::Torn(at),
        }
    };
    Ok((records, end))
}

/// The records between `tail` and `head` of a ring that is written forwards, oldest first.
///
/// # Errors
/// When the ends do not fit the ring, or the bytes are not as many as a ring has.
pub fn oldest_first(ring: &[u8], tail: u64, head: u64) -> Result<(Vec<Record>, End), RingError> {
    let circle = Circle::new(ring)?;
    let ends = RingError::Ends { head, tail, size: ring.len() };
    let filled =
        usize::try_from(head.wrapping_sub(tail)).ok().filter(|filled| *filled <= ring.len()).ok_or(ends)?;
    let mut records = Vec::new();
    let mut used = 0;
    while used < filled {
        let at = tail.wrapping_add(used as u64);
        match circle.record(at, filled - used) {
            Next::Record(record, size) => {
                used += size;
                records.push(record);
            }
            Next::Zero | Next::Longer | Next::Nonsense(_) => {
                return Ok((records, End::Torn(circle.place(at))));
            }
        }
    }
    Ok((records, End::Whole))
}

/// What stands at a place of a ring.
enum Next {
    /// A record, and its size.
    Record(Record, usize),
    /// A header of zeros.
    Zero,
    /// A record that is longer than what is left.
    Longer,
    /// Not a record.
    Nonsense(usize),
}

/// Bytes without an end.
struct Circle<'a> {
    bytes: &'a [u8],
}

impl Circle<'_> {
    fn new(bytes: &[u8]) -> Result<Circle<'_>, RingError> {
        let fits = bytes.len().is_power_of_two() && bytes.len() >= HEADER;
        if fits { Ok(Circle { bytes }) } else { Err(RingError::Size(bytes.len())) }
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The offset in the ring of a position that only grows, or only falls.
    fn place(&self, at: u64) -> usize {
        let mask = self.len() as u64 - 1;
        usize::try_from(at & mask).expect("less than the ring's size")
    }

    /// `len` bytes from a position on; not more than the ring has.
    fn copy(&self, at: u64, len: usize) -> Vec<u8> {
        let start = self.place(at);
        let before_wrap = len.min(self.len() - start);
        [&self.bytes[start..start + before_wrap], &self.bytes[..len - before_wrap]].concat()
    }

    /// What stands at a position, where `left` bytes are left.
    fn record(&self, at: u64, left: usize) -> Next {
        if left < HEADER {
            return Next::Longer;
        }
        let header = word(&self.copy(at, HEADER));
        let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX);
        let [kind, misc, size] = [low(header), low(header >> 32) & 0xffff, low(header >> 48)];
        // The kernel pads every record to whole words.
        match size as usize {
            0 if header == 0 => Next::Zero,
            size if size < HEADER || !size.is_multiple_of(8) => Next::Nonsense(self.place(at)),
            size if size > left => Next::Longer,
            size => {
                let body = self.copy(at.wrapping_add(HEADER as u64), size - HEADER);
                Next::Record(Record { kind, misc: u16::try_from(misc).unwrap_or(0), body }, size)
            }
        }
    }
}

impl Record {
    /// How many records did not fit into the ring before this one, if it says so.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        let at = match self.kind {
            RECORD_LOST => 8,
            RECORD_LOST_SAMPLES => 0,
            _ => return None,
        };
        self.body.get(at..at + 8).map(word)
    }
}

/// Whose instruction a sample was taken at (`PERF_RECORD_MISC_CPUMODE_MASK`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel's.
    Kernel,
    /// A process's.
    User,
    /// The kernel's of a guest.
    GuestKernel,
    /// A process's in a guest.
    GuestUser,
    /// A hypervisor's, or not told.
    Other,
}

/// A sample with the fields that [`super::Event`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Whose instruction.
    pub mode: Mode,
    /// Its address.
    pub ip: u64,
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// Nanoseconds, by the clock of perf.
    pub time: u64,
    /// The last branches, if the event asks for them.
    pub branches: Option<Stack>,
}

impl Sample {
    /// The sample that a record is, if it is one. `branch_sample_type`: as the event asked, zero for no branches.
    ///
    /// # Errors
    /// When its body ends before its fields do.
    pub fn from_record(record: &Record, branch_sample_type: u64) -> Result<Option<Sample>, PerfError> {
        const FIELDS: usize = 24;
        if record.kind != RECORD_SAMPLE {
            return Ok(None);
        }
        let left = record.body.len();
        let Some(fields) = record.body.first_chunk::<FIELDS>() else {
            return Err(PerfError::Cut { what: "a sample", offset: 0, need: FIELDS as u64, left });
        };
        let [ip, ids, time] = [0, 8, 16].map(|at| word(&fields[at..at + 8]));
        let half = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX);
        let sample_type = if branch_sample_type == 0 { 0 } else { BRANCH_STACK };
        let layout = SampleLayout { sample_type, read_format: 0, branch_sample_type };
        Ok(Some(Sample {
            mode: match record.misc & 7 {
                1 => Mode::Kernel,
                2 => Mode::User,
                4 => Mode::GuestKernel,
                5 => Mode::GuestUser,
                _ => Mode::Other,
            },
            ip,
            process: half(ids),
            thread: half(ids >> 32),
            time,
            branches: layout.stack(&record.body[FIELDS..], FIELDS)?,
        }))
    }
}
