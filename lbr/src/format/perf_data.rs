//! The file `perf.data` that `perf record` writes: the events that were opened, and the records that came.
//!
//! Linux, tools/perf/Documentation/perf.data-file-format.txt. Only what leads to branch stacks is read, and where files were mapped.

use super::mapping::Mapping;
use super::perf::{PerfError, Stack, word};
use super::perf_sample::{BRANCH_STACK, HEADER, Header, RECORD_SAMPLE, SampleLayout};
use crate::filter::Filter;

/// The first eight bytes of the file.
pub const MAGIC: &[u8; 8] = b"PERFILE2";

/// `PERF_RECORD_AUXTRACE`: data that its size does not count follows it.
const RECORD_AUXTRACE: u32 = 71;
/// `PERF_RECORD_COMPRESSED` and `PERF_RECORD_COMPRESSED2`.
const RECORDS_COMPRESSED: [u32; 2] = [81, 83];

/// `PERF_SAMPLE_IDENTIFIER`: the first word of a sample says of which event it is.
const IDENTIFIER: u64 = 1 << 16;

/// An event of the file.
struct Event {
    layout: SampleLayout,
    ids: Vec<u64>,
}

/// What is read of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A sample's branch stack, with the filter that its event asked for, if a filter can say it.
    Stack(Stack, Option<Filter>),
    /// A file was mapped.
    Mapping(Mapping),
}

/// The branch stacks of a `perf.data`, in the order of its records, each with the filter that its event asked for,
/// if a filter can say it.
///
/// # Errors
/// When the file is cut, is none of this form, or has no branch stacks.
pub fn stacks(file: &[u8]) -> Result<Vec<(Stack, Option<Filter>)>, PerfError> {
    let of_stack = |record| match record {
        Record::Stack(stack, filter) => Some((stack, filter)),
        Record::Mapping(_) => None,
    };
    Ok(records(file)?.into_iter().filter_map(of_stack).collect())
}

/// The branch stacks of a `perf.data` and the mappings of files, in the order of its records.
///
/// # Errors
/// As [`stacks`].
pub fn records(file: &[u8]) -> Result<Vec<Record>, PerfError> {
    let events = events(file)?;
    let wrong = |what: &str, offset: usize| PerfError::Wrong { what: what.to_owned(), offset };
    if events.iter().all(|event| event.layout.sample_type & BRANCH_STACK == 0) {
        return Err(wrong("no event of this file has branch stacks: record with perf record -b or -j", 0));
    }
    let (start, data) = section(file, 40, "the records")?;
    let (mut found, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let header = Header::read(&data[at..], start + at)?;
        let (body, offset) = (&data[at + HEADER..at + usize::from(header.size)], start + at + HEADER);
        if RECORDS_COMPRESSED.contains(&header.kind) {
            return Err(wrong("the records are compressed: record without -z", start + at));
        }
        if header.kind == RECORD_SAMPLE {
            let event =
                event_of(&events, body).ok_or_else(|| wrong("a sample of no event of the file", offset))?;
            let filter = Filter::from_branch_sample_type(event.layout.branch_sample_type);
            found.extend(event.layout.stack(body, offset)?.map(|stack| Record::Stack(stack, filter)));
        }
        found.extend(Mapping::of_record(header.kind, body).map(Record::Mapping));
        at = at.saturating_add(header.size.into());
        if header.kind == RECORD_AUXTRACE {
            let size = body.get(..8).map_or(0, word);
            at = at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        }
    }
    Ok(found)
}

/// The event of a sample.
fn event_of<'e>(events: &'e [Event], body: &[u8]) -> Option<&'e Event> {
    let first = events.first()?;
    if events.iter().all(|event| event.layout == first.layout) {
        return Some(first);
    }
    let id = body.get(..8).map(word)?;
    events.iter().find(|event| event.layout.sample_type & IDENTIFIER != 0 && event.ids.contains(&id))
}

/// The events that the header lists.
fn events(file: &[u8]) -> Result<Vec<Event>, PerfError> {
    let wrong = |what: String, offset: usize| PerfError::Wrong { what, offset };
    if number(file, 8, "the header of perf.data")? == 16 {
        let what = "a perf.data that went through a pipe: write it to a file with perf record -o".to_owned();
        return Err(wrong(what, 8));
    }
    let size = number(file, 16, "the header of perf.data")?;
    // An attribute and the section of its ids.
    let size = usize::try_from(size).ok().filter(|size| (80 + 16..4096).contains(size));
    let size = size.ok_or_else(|| wrong("an event's attributes cannot have this size".to_owned(), 16))?;
    let (start, attributes) = section(file, 24, "the events")?;
    let mut events = Vec::new();
    for (n, attribute) in attributes.chunks_exact(size).enumerate() {
        let field = |at: usize| word(&attribute[at..at + 8]);
        let layout =
            SampleLayout { sample_type: field(24), read_format: field(32), branch_sample_type: field(72) };
        let (_, ids) = section(file, start + n * size + size - 16, "the numbers of an event")?;
        events.push(Event { layout, ids: ids.chunks_exact(8).map(word).collect() });
    }
    Ok(events)
}

/// The part of the file that a section (offset and size, at `at`) names, and where it begins.
fn section<'f>(file: &'f [u8], at: usize, what: &'static str) -> Result<(usize, &'f [u8]), PerfError> {
    let (offset, size) = (number(file, at, what)?, number(file, at.saturating_add(8), what)?);
    let start = usize::try_from(offset).map_or(file.len(), |start| start.min(file.len()));
    let rest = &file[start..];
    let found = usize::try_from(size).ok().and_then(|size| rest.get(..size));
    found.map(|part| (start, part)).ok_or(PerfError::Cut {
        what,
        offset: start,
        need: size,
        left: rest.len(),
    })
}

fn number(file: &[u8], at: usize, what: &'static str) -> Result<u64, PerfError> {
    let bytes = at.checked_add(8).and_then(|end| file.get(at..end));
    let left = file.len().saturating_sub(at);
    bytes.map(word).ok_or(PerfError::Cut { what, offset: at, need: 8, left })
}
