//! Reading a journal back, one record at a time, up to its end or its first damage.

use super::codec::Cursor;
use super::frame::{self, MAGIC, PREAMBLE_SIZE};
use super::schema::{Header, Record, VERSION, recorder};
use super::{Damage, JournalError};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A journal being read.
pub struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    header: Header,
    /// Records of the current frame that were not taken yet.
    ready: VecDeque<Record>,
    /// Where the next frame begins, and its number.
    offset: u64,
    sequence: u32,
    /// Why there are no further frames, once that is known.
    end: Option<Result<(), Damage>>,
}

impl Reader {
    /// Opens a journal and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, is something else, or is damaged before the first event.
    pub fn open(path: &Path) -> Result<Reader, JournalError> {
        let io = |error| JournalError::Io { path: path.to_owned(), error };
        let mut input = BufReader::with_capacity(1 << 16, File::open(path).map_err(io)?);
        let mut preamble = Vec::new();
        (&mut input).take(PREAMBLE_SIZE as u64).read_to_end(&mut preamble).map_err(io)?;
        let Some(version) = preamble.strip_prefix(MAGIC) else {
            return Err(JournalError::NotAJournal { path: path.to_owned() });
        };
        let no_header =
            |why| JournalError::NoHeader { path: path.to_owned(), offset: PREAMBLE_SIZE as u64, why };
        let cut = || no_header("the file ends before the first frame".to_owned());
        let found = version.try_into().map(u32::from_le_bytes).map_err(|_| cut())?;
        let first = frame::unpack(&mut input, 0).map_err(io)?;
        if found != VERSION {
            let gretel = first.ok().flatten().and_then(|first| recorder(&first.records));
            return Err(JournalError::Version { path: path.to_owned(), found, gretel });
        }
        let first = first.map_err(no_header)?.ok_or_else(cut)?;
        let header = Header::decode(&first.records)
            .ok_or_else(|| no_header("the header does not decode".to_owned()))?;
        let offset = PREAMBLE_SIZE as u64 + first.size;
        let path = path.to_owned();
        Ok(Reader { path, input, header, ready: VecDeque::new(), offset, sequence: 1, end: None })
    }

    /// What was recorded.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next record without taking it; `None` at the end of what can be used.
    ///
    /// # Errors
    /// When the file cannot be read. Damage is no error: see [`Reader::damage`].
    pub fn peek(&mut self) -> Result<Option<&Record>, JournalError> {
        while self.ready.is_empty() && self.end.is_none() {
            self.fill()?;
        }
        Ok(self.ready.front())
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// As [`Reader::peek`].
    pub fn take(&mut self) -> Result<Option<Record>, JournalError> {
        self.peek()?;
        Ok(self.ready.pop_front())
    }

    /// Why the journal ends where it does, when all records have been taken and the last was no
    /// [`Record::End`]: known only then.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.end.as_ref().and_then(|end| end.as_ref().err())
    }

    /// Reads the next frame.
    fn fill(&mut self) -> Result<(), JournalError> {
        let io = |error| JournalError::Io { path: self.path.clone(), error };
        let damage = match frame::unpack(&mut self.input, self.sequence).map_err(io)? {
            Ok(Some(frame)) => match decode_all(&frame.records) {
                Some(records) => {
                    if matches!(records.back(), Some(Record::End(_))) {
                        self.end = Some(Ok(()));
                    }
                    self.ready = records;
                    self.offset += frame.size;
                    self.sequence = self.sequence.wrapping_add(1);
                    return Ok(());
                }
                None => "a frame holds something that is no record".to_owned(),
            },
            Ok(None) => "there is no end record, the recorder was killed".to_owned(),
            Err(why) => why,
        };
        let size = self.input.get_ref().metadata().map_err(io)?.len();
        let lost = size.saturating_sub(self.offset);
        self.end = Some(Err(Damage { path: self.path.clone(), offset: self.offset, lost, why: damage }));
        Ok(())
    }
}

/// All records of a frame, or `None` if they do not decode to its last byte, or go on behind an end record.
fn decode_all(bytes: &[u8]) -> Option<VecDeque<Record>> {
    let mut cursor = Cursor(bytes);
    let mut records = VecDeque::new();
    while !cursor.0.is_empty() {
        if matches!(records.back(), Some(Record::End(_))) {
            return None;
        }
        records.push_back(Record::decode(&mut cursor)?);
    }
    Some(records)
}
