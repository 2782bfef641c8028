//! A file of branch records, whatever wrote it: what it is is told from its bytes.

use crate::dump::{Dump, DumpError};
use crate::filter::Filter;
use crate::format::brstack::{self, BrstackError};
use crate::format::perf::{PerfError, Stack};
use crate::format::perf_data;
use crate::format::perf_sample::{self, SampleLayout};
use crate::registers::{self, TextError};
use crate::trail::{Trail, TrailError};

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A trail, as [`Trail::to_bytes`] writes it.
    Trail,
    /// The text of a dump of registers ([`registers::parse`]).
    Registers,
    /// What `perf script -F brstack` prints.
    Brstack,
    /// A file of `perf record`.
    PerfData,
    /// Records of perf's ring buffer.
    PerfRecords,
    /// A branch stack as it is in a sample.
    PerfStack,
}

/// What is known of a file besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Known {
    /// What the text of a dump of registers does not say. Its filter is that of all forms that do not tell theirs.
    pub dump: Dump,
    /// How samples are laid out that stand alone; `None`: a branch stack and nothing else.
    pub layout: Option<SampleLayout>,
}

/// Why a file is not one of branch records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// Nothing that is known looks like it.
    #[error(
        "its format is not known: no trail of gretel's, no text, and nothing of perf's (docs/formats.md has the forms)"
    )]
    Unknown,
    /// It is an executable or a core.
    #[error("it is an ELF file: gretel core shows the branch records of a core")]
    Elf,
    /// A trail that does not read.
    #[error(transparent)]
    Trail(#[from] TrailError),
    /// A text that is not a dump of registers.
    #[error("{0} (docs/formats.md has the grammar)")]
    Text(#[from] TextError),
    /// A dump of registers that is not a trail.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// A text of branches that does not read.
    #[error(transparent)]
    Brstack(#[from] BrstackError),
    /// Bytes of perf that do not read.
    #[error(transparent)]
    Perf(#[from] PerfError),
}

/// Records of perf's ring buffer have types up to this one (include/uapi/linux/perf_event.h has 22 so far).
const LAST_RECORD: u8 = 63;

impl Form {
    /// What the bytes are. Binary bytes without a magic number are perf's: records, if they begin with the header of
    /// one, else a stack.
    ///
    /// # Errors
    /// When they can be none of these.
    pub fn of(bytes: &[u8]) -> Result<Form, FileError> {
        let is_control = |c: char| c.is_control() && !c.is_whitespace();
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(is_control));
        match (bytes, text) {
            ([], _) => Err(FileError::Empty),
            _ if bytes.starts_with(b"\x7fELF") => Err(FileError::Elf),
            _ if bytes.starts_with(b"gtrtrail") => Ok(Form::Trail),
            _ if bytes.starts_with(perf_data::MAGIC) => Ok(Form::PerfData),
            (_, Some(text)) if brstack::is_brstack(text) => Ok(Form::Brstack),
            (_, Some(_)) => Ok(Form::Registers),
            // The upper half of a number of branches is zero, the size of a record is not.
            _ if bytes.get(6..8).is_some_and(|size| size != [0, 0]) => match bytes {
                [kind, 0, 0, 0, ..] if (1..=LAST_RECORD).contains(kind) => Ok(Form::PerfRecords),
                _ => Err(FileError::Unknown),
            },
            // No processor has 65536 of them.
            _ if bytes.get(2..4).is_none_or(|upper| upper == [0, 0]) => Ok(Form::PerfStack),
            _ => Err(FileError::Unknown),
        }
    }
}

/// The trails of a file, oldest first: one for each sample of perf, one of anything else.
///
/// # Errors
/// With the line, the offset or the register that is wrong, and what may help.
pub fn trails(bytes: &[u8], known: &Known) -> Result<Vec<Trail>, FileError> {
    let filter = known.dump.filter;
    let alone = |stacks: Vec<Stack>| stacks.iter().map(|stack| stack.trail(filter)).collect();
    Ok(match Form::of(bytes)? {
        Form::Trail => vec![Trail::from_bytes(bytes)?],
        Form::Registers => {
            let (said, registers) = registers::parse(&String::from_utf8_lossy(bytes))?;
            vec![known.dump.or(said).decode(&registers)?]
        }
        Form::Brstack => alone(brstack::parse(&String::from_utf8_lossy(bytes))?),
        Form::PerfData => {
            let stacks = perf_data::stacks(bytes)?;
            let trail = |(stack, asked): &(Stack, Option<Filter>)| stack.trail(filter.or(*asked));
            stacks.iter().map(trail).collect()
        }
        Form::PerfRecords => alone(perf_sample::stacks(bytes, known.layout.as_ref())?),
        Form::PerfStack => vec![Stack::alone(bytes, 0)?.trail(filter)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;
    use crate::format::perf::Entry;

    fn stack() -> Stack {
        let entries =
            vec![Entry { from: 3, to: 4, ..Entry::default() }, Entry { from: 1, to: 2, ..Entry::default() }];
        Stack { entries, ..Stack::default() }
    }

    fn froms(bytes: &[u8]) -> Vec<Vec<u64>> {
        let trails = trails(bytes, &Known::default()).unwrap();
        trails.iter().map(|trail| trail.records.iter().map(|r| r.from).collect()).collect()
    }

    #[test]
    fn every_form_is_told_from_its_bytes() {
        let stack_bytes = stack().to_bytes();
        assert_eq!((Form::of(&stack_bytes), froms(&stack_bytes)), (Ok(Form::PerfStack), vec![vec![1, 3]]));
        let size = u8::try_from(8 + stack_bytes.len()).unwrap();
        let sample = [&[9, 0, 0, 0, 2, 0, size, 0], &stack_bytes[..]].concat();
        let samples = [&sample[..], &sample].concat();
        assert_eq!((Form::of(&samples), froms(&samples).len()), (Ok(Form::PerfRecords), 2));
        let text = brstack::print(&stack());
        assert_eq!(
            (Form::of(text.as_bytes()), froms(text.as_bytes())),
            (Ok(Form::Brstack), vec![vec![1, 3]])
        );
        let dump = b"family intel-legacy:1\n1c9 0\n40 11\n60 22\n";
        assert_eq!((Form::of(dump), froms(dump)), (Ok(Form::Registers), vec![vec![0x11]]));
        let trail = stack().trail(Some(Filter::ANY)).to_bytes();
        assert_eq!((Form::of(&trail), froms(&trail)), (Ok(Form::Trail), vec![vec![1, 3]]));
        assert_eq!(Form::of(b""), Err(FileError::Empty));
        assert_eq!(Form::of(b"\x7fELF\x02\x01\x01"), Err(FileError::Elf));
        assert_eq!(Form::of(b"PERFILE2"), Ok(Form::PerfData));
    }

    #[test]
    fn what_is_given_goes_before_what_the_text_says() {
        let text = b"family intel-legacy:1\n1c9 0\n40 8000000000000011\n60 22\n";
        let given = Known { dump: Dump::of(Family::IntelLegacy { format: 3 }), ..Known::default() };
        let trail = &trails(text, &given).unwrap()[0];
        assert_eq!(
            (trail.family, trail.records[0].mispredicted),
            (Family::IntelLegacy { format: 3 }, Some(true))
        );
    }
}
