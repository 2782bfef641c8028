//! Branch records that were taken now and then while a program ran, as `perf record -b` takes them.
//!
//! Where its code lies differs from run to run, so a sample's addresses mean something only beside the mappings of files that perf
//! tells of: in `perf.data` they are there, and `perf script --show-mmap-events` prints them.

use crate::file::{self, FileError, Form, Known};
use crate::format::brstack;
use crate::format::mapping::Mapping;
use crate::format::perf_data::{self, Record};
use crate::trail::Trail;

/// Samples of branch records.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Sampled {
    mappings: Vec<Mapping>,
    /// What was recorded, and how many of the mappings were told of before.
    samples: Vec<(Trail, usize)>,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'s> {
    /// The last branches at its moment.
    pub trail: &'s Trail,
    /// What was mapped, the newest last.
    mappings: &'s [Mapping],
}

impl Sampled {
    /// The samples of a file: what [`file::trails`] reads, each trail a sample.
    ///
    /// # Errors
    /// As [`file::trails`].
    pub fn read(bytes: &[u8], known: &Known) -> Result<Sampled, FileError> {
        match Form::of(bytes)? {
            Form::PerfData => Ok(Sampled::of_records(perf_data::records(bytes)?, known)),
            Form::Brstack => Sampled::of_text(&String::from_utf8_lossy(bytes), known),
            _ => {
                let samples = file::trails(bytes, known)?.into_iter().map(|trail| (trail, 0)).collect();
                Ok(Sampled { mappings: Vec::new(), samples })
            }
        }
    }

    fn of_records(records: Vec<Record>, known: &Known) -> Sampled {
        let mut sampled = Sampled::default();
        for record in records {
            match record {
                Record::Mapping(mapping) => sampled.map(mapping),
                Record::Stack(stack, asked) => sampled.push(stack.trail(known.dump.filter.or(asked))),
            }
        }
        sampled
    }

    fn of_text(text: &str, known: &Known) -> Result<Sampled, FileError> {
        let mut sampled = Sampled::default();
        for (line, stack) in brstack::by_line(text) {
            match stack? {
                None => sampled.mappings.extend(Mapping::parse(line)),
                Some(stack) => sampled.push(stack.trail(known.dump.filter)),
            }
        }
        Ok(sampled)
    }

    /// A file was mapped, behind all that was sampled so far.
    pub fn map(&mut self, mapping: Mapping) {
        self.mappings.push(mapping);
    }

    /// A sample, behind all others.
    pub fn push(&mut self, trail: Trail) {
        self.samples.push((trail, self.mappings.len()));
    }

    /// The samples of another run.
    pub fn append(&mut self, other: Sampled) {
        let before = self.mappings.len();
        self.mappings.extend(other.mappings);
        self.samples.extend(other.samples.into_iter().map(|(trail, mapped)| (trail, before + mapped)));
    }

    /// Whether it is known where files were mapped.
    #[must_use]
    pub fn has_mappings(&self) -> bool {
        !self.mappings.is_empty()
    }

    /// The samples, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample<'_>> {
        self.samples.iter().map(|(trail, mapped)| Sample { trail, mappings: &self.mappings[..*mapped] })
    }
}

impl<'s> Sample<'s> {
    /// In which file an address was, and at which offset.
    #[must_use]
    pub fn place(&self, address: u64) -> Option<(&'s str, u64)> {
        let mapping = self.mappings.iter().rev().find(|it| (it.start..it.end).contains(&address))?;
        Some((&mapping.file, address - mapping.start + mapping.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
prog 7 PERF_RECORD_MMAP2 7/7: [0x1000(0x1000) @ 0x3000 00:00 0 0]: r-xp /bin/prog
prog 7 1.0: 0x1010/0x1020/P/-/-/0
prog 7 PERF_RECORD_MMAP2 7/7: [0x1800(0x800) @ 0 00:00 0 0]: r-xp /lib/plugin.so
prog 7 2.0: 0x1900/0x1020/P/-/-/0  0x1010/0x1900/P/-/-/0
";

    #[test]
    fn an_address_is_where_it_was_at_the_time() {
        let sampled = Sampled::read(TEXT.as_bytes(), &Known::default()).unwrap();
        let places: Vec<_> = sampled
            .iter()
            .flat_map(|sample| sample.trail.records.iter().map(move |record| sample.place(record.from)))
            .collect();
        let prog = Some(("/bin/prog", 0x3010));
        assert_eq!(places, [prog, prog, Some(("/lib/plugin.so", 0x100))]);
        assert_eq!(sampled.iter().next().unwrap().place(0x5000), None);
    }

    #[test]
    fn a_line_that_does_not_read_is_named() {
        let torn = format!("{TEXT}prog 7 3.0: 0x1010/0x10");
        let error = Sampled::read(torn.as_bytes(), &Known::default()).unwrap_err();
        assert!(error.to_string().starts_with("line 5: "), "{error}");
    }
}
