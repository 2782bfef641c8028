//! Reading a journal back, one record at a time, up to its end or its first damage.
//!
//! A flight recorder's journal is a sequence of files; where one ends in order, the next goes on. A place anywhere may be gone to
//! ([`Reader::seek_to`]): contents that stand in an earlier record, which was not read on the way, are looked for then.

use super::contents::Contents;
use super::frame::{self, MAGIC, MAGIC_OF_MACHINES, PREAMBLE_SIZE};
use super::header::{Header, recorder};
use super::schema::{Record, VERSION};
use super::{Cut, Damage, JournalError};
use crate::plain::numbers::Cursor;
use lbr::regular;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Where a record is in its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of its file, among those that were opened.
    file: usize,
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
        Place { file: 0, offset: 0, sequence: 0, record }
    }

    /// In a file's frame, behind so many of its records.
    pub(crate) fn of_frame(file: usize, cut: Cut, record: u64) -> Place {
        let record = usize::try_from(record).unwrap_or(usize::MAX);
        Place { file, offset: cut.offset, sequence: cut.sequence, record }
    }

    /// The frame in its file, and how many of its records are before.
    pub(crate) fn in_file(self) -> (Cut, u64) {
        (Cut { offset: self.offset, sequence: self.sequence }, self.record as u64)
    }

    /// Its number in such a list.
    pub(crate) fn record(self) -> usize {
        self.record
    }
}

/// A journal being read.
pub struct Reader {
    /// Its files, of which this one is read.
    paths: Vec<PathBuf>,
    file: usize,
    input: BufReader<File>,
    header: Header,
    /// Records of the current frame that were not taken yet.
    ready: VecDeque<Record>,
    /// Where the current frame begins, its number, and how many records it has.
    frame: (u64, u32, usize),
    contents: Contents,
    /// All frames of the file up to this offset were read since its beginning: their contents are known.
    known_to: u64,
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
        Reader::open_all(vec![path.to_owned()])
    }

    /// Opens a journal that is these files, one at least, one behind the other.
    ///
    /// # Errors
    /// As [`Reader::open`], for the first of them.
    pub fn open_all(paths: Vec<PathBuf>) -> Result<Reader, JournalError> {
        let first = paths.first().expect("a journal has a file");
        let Begun { input, header, offset } = begin(first)?;
        let contents = Contents::of(first);
        Ok(Reader {
            paths,
            file: 0,
            input,
            header,
            ready: VecDeque::new(),
            frame: (offset, 1, 0),
            contents,
            known_to: offset,
            offset,
            sequence: 1,
            end: None,
        })
    }

    /// From here on the contents of files beside the journal are not read, and are empty: for those who only count.
    pub fn leave_files(&mut self) {
        self.contents.leaves_files = true;
    }

    /// The file that is read.
    fn path(&self) -> &PathBuf {
        &self.paths[self.file]
    }

    fn io(&self, error: io::Error) -> JournalError {
        JournalError::Io { path: self.path().clone(), error }
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
            0 => Place { file: self.file, offset: self.offset, sequence: self.sequence, record: 0 },
            left => Place { file: self.file, offset, sequence, record: records - left },
        }
    }

    /// Goes on from a place that [`Reader::tell`] gave, of this journal or when it was written.
    ///
    /// # Errors
    /// As [`Reader::peek`].
    pub fn seek_to(&mut self, place: Place) -> Result<(), JournalError> {
        if place.file != self.file {
            self.enter(place.file)?;
        }
        self.input.seek(SeekFrom::Start(place.offset)).map_err(|error| self.io(error))?;
        (self.offset, self.sequence, self.end) = (place.offset, place.sequence, None);
        self.frame = (place.offset, place.sequence, 0);
        self.ready.clear();
        if place.record > 0 {
            self.fill()?;
            self.ready.drain(..place.record.min(self.ready.len()));
        }
        Ok(())
    }

    /// Stands at the beginning of another file.
    fn enter(&mut self, file: usize) -> Result<(), JournalError> {
        let Begun { input, header, offset } = begin(&self.paths[file])?;
        if header != self.header {
            let why = "it is of another recording than the file before it".to_owned();
            return Err(JournalError::NoHeader { path: self.paths[file].clone(), offset: PREAMBLE, why });
        }
        (self.file, self.input) = (file, input);
        (self.offset, self.sequence, self.frame) = (offset, 1, (offset, 1, 0));
        self.contents.go_on(&self.paths[file]);
        self.known_to = offset;
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
        Ok((lost > 0).then(|| Damage { path: self.path().clone(), offset: self.offset, lost, why }))
    }

    /// Reads the next frame.
    fn fill(&mut self) -> Result<(), JournalError> {
        let unpacked = frame::unpack(&mut self.input, self.sequence).map_err(|error| self.io(error))?;
        let damage = match unpacked {
            Ok(Some(frame)) => match self.decode(&frame.records)? {
                Some(records) => return self.take_up(records, frame.size),
                None => "a frame holds something that is no record".to_owned(),
            },
            Ok(None) if self.file + 1 < self.paths.len() => match self.enter(self.file + 1) {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            },
            Ok(None) => "there is no end record: the recorder was killed, or could not write".to_owned(),
            Err(why) => why,
        };
        let size = self.input.get_ref().metadata().map_err(|error| self.io(error))?.len();
        let lost = size.saturating_sub(self.offset);
        self.end = Some(Err(Damage { path: self.path().clone(), offset: self.offset, lost, why: damage }));
        Ok(())
    }

    /// Has the records of the frame ready that was read.
    fn take_up(&mut self, records: VecDeque<Record>, size: u64) -> Result<(), JournalError> {
        let is_last = matches!(records.back(), Some(Record::End(_)));
        self.frame = (self.offset, self.sequence, records.len());
        self.ready = records;
        if self.known_to == self.offset {
            self.known_to += size;
        }
        self.offset += size;
        if is_last {
            let behind = self.behind_end().map_err(|error| self.io(error))?;
            self.end = Some(behind.map_or(Ok(()), Err));
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// The records of a frame; `None` if there are none in it. If one refers to a content that is not known, the frames that were
    /// left out are looked through first.
    fn decode(&mut self, bytes: &[u8]) -> Result<Option<VecDeque<Record>>, JournalError> {
        if let Some(records) = decode_all(bytes, &mut self.contents) {
            return Ok(Some(records));
        }
        if let Some(failure) = self.contents.take_failure() {
            return Err(failure.into());
        }
        if self.known_to >= self.offset {
            return Ok(None);
        }
        // What is looked for stands in the journal.
        let leaves_files = std::mem::replace(&mut self.contents.leaves_files, true);
        let known_to = self.look_back();
        self.contents.leaves_files = leaves_files;
        self.known_to = self.known_to.max(known_to?);
        let records = decode_all(bytes, &mut self.contents);
        self.contents.take_failure().map_or(Ok(records), |failure| Err(failure.into()))
    }

    /// Reads the frames of the file that were left out, for their contents; gives how far.
    fn look_back(&mut self) -> Result<u64, JournalError> {
        let Begun { mut input, offset, .. } = begin(self.path())?;
        let (mut at, mut sequence) = (offset, 1);
        while at < self.offset {
            match frame::unpack(&mut input, sequence).map_err(|error| self.io(error))? {
                Ok(Some(frame)) => {
                    at += frame.size;
                    decode_all(&frame.records, &mut self.contents);
                    sequence = sequence.wrapping_add(1);
                }
                // What the record refers to may have been before.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(at)
    }
}

/// Up to which offset all frames of a journal's file are whole, as far as their checksums tell.
///
/// # Errors
/// When it cannot be read, or is damaged before its first frame.
pub fn whole_to(path: &Path) -> Result<u64, JournalError> {
    let Begun { mut input, mut offset, .. } = begin(path)?;
    let io = |error| JournalError::Io { path: path.to_owned(), error };
    let mut sequence = 1;
    while let Some(size) = frame::skip(&mut input, sequence).map_err(io)? {
        (offset, sequence) = (offset + size, sequence.wrapping_add(1));
    }
    Ok(offset)
}

/// A file whose header was read.
struct Begun {
    input: BufReader<File>,
    header: Header,
    /// Where the next frame begins.
    offset: u64,
}

const PREAMBLE: u64 = PREAMBLE_SIZE as u64;

/// Opens a file and reads its header.
fn begin(path: &Path) -> Result<Begun, JournalError> {
    let io = |error| JournalError::Io { path: path.to_owned(), error };
    let mut input = BufReader::with_capacity(1 << 16, regular::open(path).map_err(io)?);
    let mut preamble = Vec::new();
    (&mut input).take(PREAMBLE).read_to_end(&mut preamble).map_err(io)?;
    if preamble.starts_with(MAGIC_OF_MACHINES) {
        return Err(JournalError::OfAMachine { path: path.to_owned() });
    }
    let offset = preamble.len() as u64;
    let no_header = |why| JournalError::NoHeader { path: path.to_owned(), offset, why };
    let cut = || no_header("the file ends before the first frame".to_owned());
    if frame::ends_in_magic(&preamble, MAGIC) {
        return Err(cut());
    }
    let Some(version) = preamble.strip_prefix(MAGIC) else {
        return Err(JournalError::NotAJournal { path: path.to_owned() });
    };
    let found = version.try_into().map(u32::from_le_bytes).map_err(|_| cut())?;
    let first = frame::unpack(&mut input, 0).map_err(io)?;
    if found != VERSION {
        let gretel = first.ok().flatten().and_then(|first| recorder(&first.records));
        return Err(JournalError::Version { path: path.to_owned(), found, gretel });
    }
    let first = first.map_err(no_header)?.ok_or_else(cut)?;
    let header =
        Header::decode(&first.records).ok_or_else(|| no_header("the header does not decode".to_owned()))?;
    Ok(Begun { input, header, offset: PREAMBLE + first.size })
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
