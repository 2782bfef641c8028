//! Reading a journal back, one record at a time, up to its end or its first damage.

use super::codec::Cursor;
use super::frame::{self, MAGIC, PREAMBLE_SIZE};
use super::schema::{Contents, Header, Record, VERSION, recorder};
use super::{Damage, JournalError};
use lbr::regular;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Where a record is in its journal. The contents of files that records before it have stay known to the reader that
/// gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where its frame begins, in bytes from the file's start.
    offset: u64,
    /// The frame's number.
    sequence: u32,
    /// How many records of the frame are before it.
    record: usize,
}

impl Place {
    /// The place of a record in a list of records that is no file.
    pub(crate) fn of_record(record: usize) -> Place {
        Place { offset: 0, sequence: 0, record }
    }

    /// Its number in such a list.
    pub(crate) fn record(self) -> usize {
        self.record
    }
}

/// A journal being read.
pub struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    header: Header,
    /// Records of the current frame that were not taken yet.
    ready: VecDeque<Record>,
    /// Where the current frame begins, its number, and how many records it has.
    frame: (u64, u32, usize),
    contents: Contents,
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
        let mut input = BufReader::with_capacity(1 << 16, regular::open(path).map_err(io)?);
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
        Ok(Reader {
            path,
            input,
            header,
            ready: VecDeque::new(),
            frame: (offset, 1, 0),
            contents: Contents::default(),
            offset,
            sequence: 1,
            end: None,
        })
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

    /// The record behind the next one, if it is of the same event.
    #[must_use]
    pub fn second(&self) -> Option<&Record> {
        self.ready.get(1)
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// As [`Reader::peek`].
    pub fn take(&mut self) -> Result<Option<Record>, JournalError> {
        self.peek()?;
        Ok(self.ready.pop_front())
    }

    /// Where the next record is.
    #[must_use]
    pub fn tell(&self) -> Place {
        let (offset, sequence, records) = self.frame;
        match self.ready.len() {
            0 => Place { offset: self.offset, sequence: self.sequence, record: 0 },
            left => Place { offset, sequence, record: records - left },
        }
    }

    /// Goes on from a place that [`Reader::tell`] gave.
    ///
    /// # Errors
    /// As [`Reader::peek`].
    pub fn seek_to(&mut self, place: Place) -> Result<(), JournalError> {
        let io = |error| JournalError::Io { path: self.path.clone(), error };
        self.input.seek(SeekFrom::Start(place.offset)).map_err(io)?;
        (self.offset, self.sequence, self.end) = (place.offset, place.sequence, None);
        self.frame = (place.offset, place.sequence, 0);
        self.ready.clear();
        if place.record > 0 {
            self.fill()?;
            self.ready.drain(..place.record.min(self.ready.len()));
        }
        Ok(())
    }

    /// What is wrong behind the last record that can be used, once it was read: there is no [`Record::End`], or it is not
    /// the last.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.end.as_ref().and_then(|end| end.as_ref().err())
    }

    /// What is wrong behind the frame with the end record: that there is something.
    fn behind_end(&self) -> io::Result<Option<Damage>> {
        let lost = self.input.get_ref().metadata()?.len().saturating_sub(self.offset);
        let why = "it goes on behind its end record, where nothing was recorded".to_owned();
        Ok((lost > 0).then(|| Damage { path: self.path.clone(), offset: self.offset, lost, why }))
    }

    /// Reads the next frame.
    fn fill(&mut self) -> Result<(), JournalError> {
        let io = |error| JournalError::Io { path: self.path.clone(), error };
        let damage = match frame::unpack(&mut self.input, self.sequence).map_err(io)? {
            Ok(Some(frame)) => match decode_all(&frame.records, &mut self.contents) {
                Some(records) => {
                    let is_last = matches!(records.back(), Some(Record::End(_)));
                    self.frame = (self.offset, self.sequence, records.len());
                    self.ready = records;
                    self.offset += frame.size;
                    if is_last {
                        self.end = Some(self.behind_end().map_err(io)?.map_or(Ok(()), Err));
                    }
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
fn decode_all(bytes: &[u8], contents: &mut Contents) -> Option<VecDeque<Record>> {
    let mut cursor = Cursor(bytes);
    let mut records = VecDeque::new();
    while !cursor.0.is_empty() {
        if matches!(records.back(), Some(Record::End(_))) {
            return None;
        }
        records.push_back(Record::decode(&mut cursor, contents)?);
    }
    Some(records)
}
