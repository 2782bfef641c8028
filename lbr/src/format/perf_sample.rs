//! perf's sample records: where the branch stack is among the fields that the event asked for.
//!
//! Linux, include/uapi/linux/perf_event.h, the comment at `PERF_RECORD_SAMPLE`; kernel/events/core.c,
//! `perf_output_sample`, for what is written when.

use super::bit;
use super::perf::{PerfError, Stack, StackLayout, word};

/// What the event that made a sample says of its layout (`struct perf_event_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SampleLayout {
    /// `sample_type`: which fields a sample has.
    pub sample_type: u64,
    /// `read_format`: how the counters among them are laid out.
    pub read_format: u64,
    /// `branch_sample_type`: how the branch stack is.
    pub branch_sample_type: u64,
}

/// `PERF_SAMPLE_BRANCH_STACK`.
pub const BRANCH_STACK: u64 = 1 << 11;
/// `PERF_RECORD_SAMPLE`.
pub const RECORD_SAMPLE: u32 = 9;
/// The bytes of `struct perf_event_header`.
pub const HEADER: usize = 8;

/// The fields before the branch stack that take one word, by their bits of `sample_type`, in their order: identifier,
/// ip, pid and tid, time, addr, id, stream id, cpu, period.
const WORDS: [u32; 9] = [16, 0, 1, 2, 3, 6, 9, 7, 8];
const READ: u32 = 4;
const CALLCHAIN: u32 = 5;
const RAW: u32 = 10;

/// `struct perf_event_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the record, `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// The bytes of the record, with this header.
    pub size: u16,
}

impl Header {
    /// The header at the beginning of `bytes`, which begin at `offset` of what they were taken from.
    ///
    /// # Errors
    /// When they end before the record does, or when it is smaller than its header.
    pub fn read(bytes: &[u8], offset: usize) -> Result<Header, PerfError> {
        let cut = |what: &'static str, need: usize| PerfError::Cut {
            what,
            offset,
            need: need as u64,
            left: bytes.len(),
        };
        let header = bytes.first_chunk::<HEADER>().ok_or_else(|| cut("the header of a record", HEADER))?;
        let [k0, k1, k2, k3, m0, m1, s0, s1] = *header;
        let size = u16::from_le_bytes([s0, s1]);
        if usize::from(size) < HEADER {
            return Err(PerfError::Wrong {
                what: format!("a record of {size} bytes, and its header has 8"),
                offset,
            });
        }
        if bytes.len() < size.into() {
            return Err(cut("a record", size.into()));
        }
        Ok(Header { kind: u32::from_le_bytes([k0, k1, k2, k3]), misc: u16::from_le_bytes([m0, m1]), size })
    }
}

impl SampleLayout {
    /// The branch stack of a sample; `body` is the record without its header and begins at `offset` of what it was
    /// taken from. `None`: the event does not ask for one.
    ///
    /// # Errors
    /// When the body ends before the stack.
    pub fn stack(&self, body: &[u8], offset: usize) -> Result<Option<Stack>, PerfError> {
        if self.sample_type & BRANCH_STACK == 0 {
            return Ok(None);
        }
        let mut at = Cursor { body, offset, at: 0 };
        for shift in WORDS {
            if bit(self.sample_type, shift) {
                at.skip("a field of a sample", 1)?;
            }
        }
        if bit(self.sample_type, READ) {
            self.skip_read(&mut at)?;
        }
        if bit(self.sample_type, CALLCHAIN) {
            let count = at.word("the length of a call chain")?;
            at.skip("a call chain", count)?;
        }
        if bit(self.sample_type, RAW) {
            // A length of 32 bits and the data, together whole words.
            let size = at.word("the size of raw data")? & 0xffff_ffff;
            at.skip("raw data", (size + 4).div_ceil(8) - 1)?;
        }
        let rest = body.get(at.at..).unwrap_or_default();
        Stack::read(rest, StackLayout::of(self.branch_sample_type), offset + at.at)
            .map(|(stack, _)| Some(stack))
    }

    /// The counters' values (`PERF_FORMAT_*`).
    fn skip_read(&self, at: &mut Cursor<'_>) -> Result<(), PerfError> {
        const TOTAL_TIMES: [u32; 2] = [0, 1];
        const ID_AND_LOST: [u32; 2] = [2, 4];
        const GROUP: u32 = 3;
        let words =
            |bits: [u32; 2]| bits.iter().map(|shift| u64::from(bit(self.read_format, *shift))).sum::<u64>();
        let each = 1 + words(ID_AND_LOST);
        let times = words(TOTAL_TIMES);
        let count = if bit(self.read_format, GROUP) { at.word("the number of counters")? } else { 1 };
        at.skip("the counters of a sample", count.saturating_mul(each).saturating_add(times))
    }
}

/// A place in a sample's body.
struct Cursor<'a> {
    body: &'a [u8],
    offset: usize,
    at: usize,
}

impl Cursor<'_> {
    fn word(&mut self, what: &'static str) -> Result<u64, PerfError> {
        let start = self.at;
        self.skip(what, 1)?;
        Ok(word(&self.body[start..start + 8]))
    }

    fn skip(&mut self, what: &'static str, words: u64) -> Result<(), PerfError> {
        let need = words.saturating_mul(8);
        let left = self.body.len() - self.at;
        match usize::try_from(need) {
            Ok(bytes) if bytes <= left => self.at += bytes,
            _ => return Err(PerfError::Cut { what, offset: self.offset + self.at, need, left }),
        }
        Ok(())
    }
}

/// The branch stacks of a row of records, oldest first; records of other types are passed over. Without a `layout`, a
/// sample is a branch stack and nothing else.
///
/// # Errors
/// At the first record that is not whole.
pub fn stacks(bytes: &[u8], layout: Option<&SampleLayout>) -> Result<Vec<Stack>, PerfError> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let header = Header::read(&bytes[at..], at)?;
        let end = at + usize::from(header.size);
        let (body, offset) = (&bytes[at + HEADER..end], at + HEADER);
        if header.kind == RECORD_SAMPLE {
            match layout {
                Some(layout) => found.extend(layout.stack(body, offset)?),
                None => found.push(Stack::alone(body, offset)?),
            }
        }
        at = end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::perf::Entry;
    use super::*;

    fn stack() -> Stack {
        let entries = (1..4).map(|n| Entry { from: n, to: n + 100, ..Entry::default() }).collect();
        Stack { hw_index: Some(2), entries, counters: None }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len()).unwrap();
        [&kind.to_le_bytes()[..], &[2, 0], &size.to_le_bytes(), body].concat()
    }

    /// All fields before the stack, with the forms of counters that there are.
    #[test]
    fn the_stack_is_found_behind_all_that_may_stand_before_it() {
        let before = words(&[16, 0, 1, 2, 3, 6, 9, 7, 8]);
        let chain = words(&[2, 0xc0, 0xc1]);
        // Twelve bytes of raw data after their length: two words.
        let raw = words(&[0xaaaa_aaaa_0000_000c, 0xbbbb_bbbb_bbbb_bbbb]);
        let behind = words(&[0xffff; 3]);
        let reads: [(u64, Vec<u64>); 4] = [
            (0, vec![1]),
            (0b10111, vec![1, 2, 3, 4, 5]),
            (0b01000, vec![2, 1, 1]),
            (0b11111, vec![2, 0xe, 0xf, 1, 2, 3, 1, 2, 3]),
        ];
        for (read_format, values) in reads {
            let layout = SampleLayout { sample_type: 0x1_0fff, read_format, branch_sample_type: 1 << 17 };
            let body = [
                before.clone(),
                words(&values),
                chain.clone(),
                raw.clone(),
                stack().to_bytes(),
                behind.clone(),
            ];
            assert_eq!(layout.stack(&body.concat(), 0), Ok(Some(stack())), "{read_format:#b}");
        }
        let without = SampleLayout { sample_type: 0x7, ..SampleLayout::default() };
        assert_eq!(without.stack(&before, 0), Ok(None));
    }

    #[test]
    fn records_are_told_apart_and_what_is_cut_is_said_with_its_place() {
        let layout = SampleLayout {
            sample_type: BRANCH_STACK,
            branch_sample_type: 1 << 17,
            ..SampleLayout::default()
        };
        let samples =
            [record(3, &[0; 16]), record(9, &stack().to_bytes()), record(9, &words(&[0, 0]))].concat();
        let empty = Stack { hw_index: Some(0), ..Stack::default() };
        assert_eq!(stacks(&samples, Some(&layout)), Ok(vec![stack(), empty.clone()]));
        assert_eq!(stacks(&samples, None), Ok(vec![stack(), empty]), "by their lengths");
        let why = |bytes: &[u8]| stacks(bytes, Some(&layout)).unwrap_err().to_string();
        assert_eq!(why(&samples[..40]), "offset 0x18: a record is cut: 96 bytes, and 16 are left");
        assert_eq!(why(&[9, 0, 0, 0, 0, 0, 4, 0]), "offset 0x0: a record of 4 bytes, and its header has 8");
        assert_eq!(
            why(&record(9, &words(&[7, 0]))),
            "offset 0x18: a branch stack is cut: 168 bytes, and 0 are left"
        );
    }
}
