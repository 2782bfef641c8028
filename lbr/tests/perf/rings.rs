//! Ring buffers as bytes: written as the kernel writes them, cut, torn, and random.

use lbr::format::perf::{Entry, Stack};
use lbr::perf::ring::{End, Mode, Record, RingError, Sample, newest_first, oldest_first};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A ring as the kernel fills it (kernel/events/ring_buffer.c).
struct Ring {
    bytes: Vec<u8>,
    head: u64,
    tail: u64,
    lost: u64,
}

impl Ring {
    /// The positions begin anywhere: they are counted for ever, and wrap.
    fn new(size: usize, start: u64) -> Ring {
        Ring { bytes: vec![0; size], head: start, tail: start, lost: 0 }
    }

    fn put(&mut self, at: u64, record: &[u8]) {
        for (n, byte) in (0..).zip(record) {
            let place = usize::try_from(at.wrapping_add(n)).unwrap() & (self.bytes.len() - 1);
            self.bytes[place] = *byte;
        }
    }

    /// Over what is oldest, towards lower positions.
    fn write_backward(&mut self, record: &[u8]) {
        self.head = self.head.wrapping_sub(record.len() as u64);
        self.put(self.head, record);
    }

    /// If there is room; what is lost is said before the next record that fits.
    fn write_forward(&mut self, record: &[u8]) {
        let notice = if self.lost > 0 { encode(2, 0, &words(&[7, self.lost])) } else { Vec::new() };
        let all = [notice, record.to_vec()].concat();
        let used = usize::try_from(self.head.wrapping_sub(self.tail)).unwrap();
        if used + all.len() > self.bytes.len() {
            self.lost += 1;
            return;
        }
        self.put(self.head, &all);
        self.head = self.head.wrapping_add(all.len() as u64);
        self.lost = 0;
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn encode(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

fn record() -> impl Strategy<Value = Record> {
    let body = prop::collection::vec(any::<u64>(), 0..12).prop_map(|body| words(&body));
    (1..20u32, any::<u16>(), body).prop_map(|(kind, misc, body)| Record { kind, misc, body })
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(record(), 0..60)
}

proptest! {
    /// The newest that are whole, and no other, wherever the ring's positions wrap.
    #[test]
    fn a_backward_ring_gives_the_newest_that_fit(records in records(), start in any::<u64>(), bits in 6..12u32) {
        let size = 1usize << bits;
        let mut ring = Ring::new(size, start & !7);
        let mut kept: VecDeque<&Record> = VecDeque::new();
        let records: Vec<&Record> = records.iter().filter(|record| record.body.len() + 8 <= size).collect();
        for record in &records {
            ring.write_backward(&encode(record.kind, record.misc, &record.body));
            kept.push_front(record);
            while kept.iter().map(|record| record.body.len() + 8).sum::<usize>() > size {
                kept.pop_back();
            }
        }
        let (found, end) = newest_first(&ring.bytes, ring.head).unwrap();
        prop_assert_eq!(found.iter().collect::<Vec<_>>(), Vec::from(kept.clone()));
        let filled = kept.iter().map(|record| record.body.len() + 8).sum::<usize>();
        let expected = match (filled == size, kept.len() == records.len()) {
            (true, _) => Some(End::Whole),
            (false, true) => Some(End::Unwritten),
            // What is left of an old record may look like anything.
            (false, false) => None,
        };
        prop_assert!(expected.is_none_or(|expected| expected == end), "{end:?}, not {expected:?}");
    }

    /// Every record that was not lost, in order, with the number of those that were.
    #[test]
    fn a_forward_ring_gives_all_but_the_lost(
        rounds in prop::collection::vec(records(), 1..6),
        start in any::<u64>(),
        bits in 7..12u32,
    ) {
        let mut ring = Ring::new(1 << bits, start & !7);
        let (mut written, mut seen, mut lost) = (0, 0, 0);
        for records in rounds {
            for record in records.iter().filter(|record| ![2, 13].contains(&record.kind)) {
                ring.write_forward(&encode(record.kind, record.misc, &record.body));
                written += 1;
            }
            let (found, end) = oldest_first(&ring.bytes, ring.tail, ring.head).unwrap();
            prop_assert_eq!(end, End::Whole);
            seen += found.iter().filter(|record| record.lost().is_none()).count() as u64;
            lost += found.iter().filter_map(Record::lost).sum::<u64>();
            ring.tail = ring.head;
        }
        prop_assert_eq!(seen + lost + ring.lost, written);
    }

    #[test]
    fn any_bytes_are_read_without_harm(
        bits in 3..10u32,
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(8)], 1024),
        head in any::<u64>(),
        tail in any::<u64>(),
        near in 0..2048u64,
    ) {
        let ring = &bytes[..1 << bits];
        let (records, _) = newest_first(ring, head).unwrap();
        prop_assert!(records.iter().map(|record| record.body.len() + 8).sum::<usize>() <= ring.len());
        for tail in [tail, head.wrapping_sub(near)] {
            match oldest_first(ring, tail, head) {
                Ok((records, _)) => {
                    let read = records.iter().map(|record| record.body.len() + 8).sum::<usize>();
                    prop_assert!(read as u64 <= head.wrapping_sub(tail));
                }
                Err(error) => prop_assert_eq!(error, RingError::Ends { head, tail, size: ring.len() }),
            }
        }
        for record in records {
            for branches in [0, 9, 9 | 1 << 17, 9 | 1 << 19] {
                let _ = Sample::from_record(&record, branches);
            }
        }
    }

    /// One byte of a header is another: the records in front of it are as they were.
    #[test]
    fn a_torn_record_costs_none_before_it(records in prop::collection::vec(record(), 2..20), at in 0..20usize, byte in 4..8usize, flip in 1..=255u8) {
        let mut ring = Ring::new(4096, 0);
        records.iter().for_each(|record| ring.write_backward(&encode(record.kind, record.misc, &record.body)));
        let newest: Vec<&Record> = records.iter().rev().collect();
        let at = at % newest.len();
        let before: usize = newest[..at].iter().map(|record| record.body.len() + 8).sum();
        let place = (usize::try_from(ring.head & 4095).unwrap() + before + byte) & 4095;
        ring.bytes[place] ^= flip;
        let (found, _) = newest_first(&ring.bytes, ring.head).unwrap();
        prop_assert!(found.len() >= at);
        prop_assert_eq!(found[..at].iter().collect::<Vec<_>>(), &newest[..at]);
    }
}

#[test]
fn the_place_of_what_is_no_record_is_said() {
    let mut ring = Ring::new(64, 64);
    ring.write_backward(&encode(9, 0, &words(&[1])));
    ring.write_backward(&encode(9, 0, &words(&[2])));
    let (records, end) = newest_first(&ring.bytes, ring.head).unwrap();
    assert_eq!((records.len(), end), (2, End::Unwritten));
    // The older one says that it has four bytes, then thirteen.
    for size in [4, 13] {
        ring.bytes[48 + 6] = size;
        let (records, end) = newest_first(&ring.bytes, ring.head).unwrap();
        assert_eq!((records.len(), end), (1, End::Torn(48)));
    }
    ring.bytes[48 + 6] = 56;
    assert_eq!(newest_first(&ring.bytes, ring.head).unwrap().1, End::Overwritten);
    assert_eq!(
        oldest_first(&ring.bytes, 48, 64).unwrap(),
        (vec![], End::Torn(48)),
        "longer than what was written"
    );
    assert_eq!(newest_first(&[0; 24], 0), Err(RingError::Size(24)));
    assert_eq!(newest_first(&[0; 4], 0), Err(RingError::Size(4)));
}

#[test]
fn a_sample_has_its_place_and_its_branches() {
    let entries = (1..4).map(|n| Entry { from: n, to: n + 100, ..Entry::default() }).collect();
    let stack = Stack { hw_index: Some(2), entries, counters: None };
    let fields = words(&[0x40_1000, 5 << 32 | 4, 99]);
    let record = Record { kind: 9, misc: 5, body: [fields.clone(), stack.to_bytes()].concat() };
    let sample = Sample::from_record(&record, 9 | 1 << 17).unwrap().unwrap();
    assert_eq!((sample.mode, sample.ip, sample.process, sample.thread), (Mode::GuestUser, 0x40_1000, 4, 5));
    assert_eq!((sample.time, sample.branches), (99, Some(stack)));
    let without =
        Sample::from_record(&Record { body: fields, misc: 2, ..record.clone() }, 0).unwrap().unwrap();
    assert_eq!((without.mode, without.branches), (Mode::User, None));
    assert_eq!(Sample::from_record(&Record { kind: 3, ..record.clone() }, 0), Ok(None));
    let short = Record { body: record.body[..20].to_vec(), ..record };
    let error = Sample::from_record(&short, 9).unwrap_err().to_string();
    assert_eq!(error, "offset 0x0: a sample is cut: 24 bytes, and 20 are left");
}
