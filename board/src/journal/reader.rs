//! Reads a journal back, up to its end or its first damage.

use super::{BEHAVIOUR, Header, JournalError, MARKER, Record, VERSION};
use lbr::regular;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use vmm::journal::frame::{MAGIC_OF_MACHINES, PREAMBLE_SIZE, ends_in_magic, unpack_as};
use vmm::journal::numbers::Cursor;

/// Where and why a journal ends before its end record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("journal {} is used up to offset {offset:#x}: {why}", path.display())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where the first bytes are that cannot be used.
    pub offset: u64,
    /// What is wrong.
    pub why: String,
}

/// A journal that is being read.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    header: Header,
    ready: VecDeque<Record>,
    offset: u64,
    sequence: u32,
    has_ended: bool,
}

impl Reader {
    /// Opens a journal and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, is something else, or is damaged before its first record.
    pub fn open(path: &Path) -> Result<Reader, JournalError> {
        let read = |error| JournalError::Read { path: path.to_owned(), error };
        let mut input = BufReader::new(regular::open(path).map_err(read)?);
        check_preamble(&mut input, path)?;
        let no_header = |why: String| JournalError::NoHeader { path: path.to_owned(), why };
        let frame = unpack_as(MARKER, &mut input, 0).map_err(read)?.map_err(no_header)?;
        let frame = frame.ok_or_else(|| no_header("the file ends".to_owned()))?;
        let header = Header::decode(&frame.records)
            .ok_or_else(|| no_header("the header cannot be read".to_owned()))?;
        if header.behaviour != BEHAVIOUR {
            return Err(other(path, "guest behaviour", header.behaviour, BEHAVIOUR));
        }
        let offset = PREAMBLE_SIZE as u64 + frame.size;
        let path = path.to_owned();
        Ok(Reader { path, input, header, ready: VecDeque::new(), offset, sequence: 1, has_ended: false })
    }

    /// What was booted.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next record; `None` behind the end.
    ///
    /// # Errors
    /// Where it is damaged, or ends without an end.
    pub fn take(&mut self) -> Result<Option<Record>, Damage> {
        if self.has_ended {
            return Ok(None);
        }
        if self.ready.is_empty() {
            self.fill()?;
        }
        let record = self.ready.pop_front();
        self.has_ended = matches!(record, Some(Record::End { .. }));
        Ok(record)
    }

    /// Unpacks the next frame.
    fn fill(&mut self) -> Result<(), Damage> {
        let read: io::Result<_> = unpack_as(MARKER, &mut self.input, self.sequence);
        let frame = match read.map_err(|error| self.damage(error.to_string()))? {
            Err(why) => return Err(self.damage(why)),
            Ok(None) => {
                return Err(
                    self.damage("it has no end: the recorder was killed, or could not write".to_owned())
                );
            }
            Ok(Some(frame)) => frame,
        };
        let mut cursor = Cursor(&frame.records);
        while !cursor.0.is_empty() {
            let record = Record::decode(&mut cursor);
            self.ready.push_back(record.ok_or_else(|| self.damage("a record cannot be read".to_owned()))?);
        }
        self.offset += frame.size;
        self.sequence += 1;
        Ok(())
    }

    fn damage(&self, why: String) -> Damage {
        Damage { path: self.path.clone(), offset: self.offset, why }
    }
}

fn check_preamble(input: &mut impl Read, path: &Path) -> Result<(), JournalError> {
    let mut preamble = Vec::new();
    let read = input.take(PREAMBLE_SIZE as u64).read_to_end(&mut preamble);
    read.map_err(|error| JournalError::Read { path: path.to_owned(), error })?;
    let cut = || JournalError::NoHeader { path: path.to_owned(), why: "the file ends".to_owned() };
    if ends_in_magic(&preamble, MAGIC_OF_MACHINES) {
        return Err(cut());
    }
    let Some(version) = preamble.strip_prefix(MAGIC_OF_MACHINES) else {
        return Err(JournalError::NotAJournal { path: path.to_owned() });
    };
    match version.try_into().map(u32::from_le_bytes) {
        Ok(VERSION) => Ok(()),
        Ok(found) => Err(other(path, "format", found, VERSION)),
        Err(_) => Err(cut()),
    }
}

fn other(path: &Path, what: &'static str, found: u32, current: u32) -> JournalError {
    JournalError::Version { path: path.to_owned(), what, found, current }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::header;
    use crate::journal::{End, Writer};
    use crate::machine::{Digests, Moment};
    use std::fs;

    fn check(retired: u64) -> Record {
        Record::Check { at: Moment { retired, time: retired }, digests: Digests::default() }
    }

    /// Two frames of a record each, and one with the end.
    fn written(path: &Path) {
        let mut writer = Writer::create(path, &header()).unwrap();
        let (at, digests) = (Moment { retired: 3, time: 3 }, Digests::default());
        for record in [check(1), check(2), Record::End { at, digests, end: End::Stopped }] {
            writer.put(&record).unwrap();
            writer.flush().unwrap();
        }
    }

    fn read(path: &Path) -> Result<(usize, Option<Damage>), JournalError> {
        let mut reader = Reader::open(path)?;
        let mut records = 0;
        loop {
            match reader.take() {
                Ok(Some(_)) => records += 1,
                Ok(None) => return Ok((records, None)),
                Err(damage) => return Ok((records, Some(damage))),
            }
        }
    }

    #[test]
    fn a_torn_journal_is_used_up_to_the_tear_and_nothing_panics() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        written(&path);
        assert_eq!(read(&path).unwrap(), (3, None));
        let whole = fs::read(&path).unwrap();
        let mut most = 0;
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            match read(&path) {
                Ok((records, damage)) => {
                    assert!(damage.is_some() && records >= most, "cut at {length}");
                    most = records;
                }
                Err(JournalError::NoHeader { .. }) => assert_eq!(most, 0, "cut at {length}"),
                Err(other) => panic!("cut at {length}: {other}"),
            }
        }
        assert_eq!(most, 2);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, bytes).unwrap();
            assert!(!matches!(read(&path), Ok((_, None))), "a flipped bit at {at} was not seen");
        }
    }

    #[test]
    fn other_versions_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let old = Header { behaviour: 0, ..header() };
        drop(Writer::create(&path, &old).unwrap());
        assert!(Reader::open(&path).unwrap_err().to_string().contains("guest behaviour 0"));
    }
}
