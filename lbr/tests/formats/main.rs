//! The forms of branch records: decoders against dumps written by hand, encoders as their inverses, bytes that nobody
//! wrote, and perf itself.

mod arbitrary;
mod dumps;
mod inverse;
mod perf_data;
mod perf_tool;

use lbr::format::perf::{Entry, Stack};

/// A perf.data with these stacks, one sample each. Its event asks for an instruction pointer, a process, a time and
/// branch stacks with an index.
fn perf_data(stacks: &[Stack]) -> Vec<u8> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let record = |kind: u32, misc: u16, body: &[u8]| {
        let size = u16::try_from(8 + body.len()).unwrap();
        [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
    };
    const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 11;
    // PERF_RECORD_COMM, so that perf knows the process.
    let process = words(&[42 << 32 | 42]);
    let mut data = record(3, 0, &[&process[..], b"prog\0\0\0\0", &process, &words(&[0])].concat());
    for stack in stacks {
        let indexed = Stack { hw_index: stack.hw_index.or(Some(0)), ..stack.clone() };
        let body = [words(&[0x40_0100]), process.clone(), words(&[1_000_000]), indexed.to_bytes()].concat();
        data.extend(record(9, 2, &body));
    }
    // The header is 104 bytes; the event's number follows, then the event, then the records.
    let mut attribute = vec![0; 128];
    attribute[..8].copy_from_slice(&words(&[1 | 128 << 32]));
    attribute[24..32].copy_from_slice(&words(&[SAMPLE_TYPE]));
    attribute[40..48].copy_from_slice(&words(&[1 << 18]));
    attribute[72..80].copy_from_slice(&words(&[1 | 1 << 3 | 1 << 17]));
    attribute.extend(words(&[104, 8]));
    let header =
        words(&[104, attribute.len() as u64, 112, attribute.len() as u64, 256, data.len() as u64, 0, 0]);
    [&b"PERFILE2"[..], &header, &[0; 32], &words(&[7]), &attribute, &data].concat()
}

/// Entries with every kind of flag.
fn entries() -> Vec<Entry> {
    let plain = Entry { from: 0x40_1000, to: 0x40_1008, predicted: true, ..Entry::default() };
    let kinds = (0..15).map(|kind| Entry { kind, ..plain });
    let new_types = (0..8).map(|new_type| Entry { kind: 15, new_type, ..plain });
    let others = [
        Entry { mispred: true, predicted: false, cycles: 0xffff, ..plain },
        Entry { predicted: false, ..plain },
        Entry { in_tx: true, abort: true, cycles: 1, ..plain },
        Entry { from: u64::MAX, to: 0xffff_ffff_8100_0000, privilege: 2, ..plain },
    ];
    let speculations = (0..4).map(|spec| Entry { spec, ..plain });
    kinds.chain(new_types).chain(others).chain(speculations).collect()
}
