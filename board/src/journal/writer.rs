//! Appends to a journal: records wait for a tenth of a second at most, then they are a frame.

use super::{Header, MARKER, Record, VERSION};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmm::journal::frame::{MAGIC_OF_MACHINES, pack_as};

/// So long do records wait.
const LATEST: Duration = Duration::from_millis(100);
/// So many bytes of them are a frame.
const ENOUGH: usize = 64 << 10;

/// A journal that is being written. It is locked as long.
pub struct Writer {
    path: PathBuf,
    file: File,
    sequence: u32,
    waiting: Vec<u8>,
    since: Instant,
    written: u64,
    records: u64,
    events: u64,
}

impl Writer {
    /// Makes the file, which must not exist, and writes the header.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, header: &Header) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // Where a file system has no locks, nobody can tell that it is being recorded.
        let _ = file.try_lock();
        let mut writer = Writer {
            path: path.to_owned(),
            file,
            sequence: 0,
            waiting: Vec::new(),
            since: Instant::now(),
            written: 0,
            records: 0,
            events: 0,
        };
        writer.append(&[MAGIC_OF_MACHINES.as_slice(), &VERSION.to_le_bytes()].concat())?;
        writer.frame(&header.encode())?;
        Ok(writer)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// What the file system says.
    pub fn put(&mut self, record: &Record) -> io::Result<()> {
        if self.waiting.is_empty() {
            self.since = Instant::now();
        }
        self.records += 1;
        self.events += u64::from(matches!(record, Record::Input { .. }));
        record.encode(&mut self.waiting);
        self.tick()
    }

    /// Writes what has waited long enough.
    ///
    /// # Errors
    /// What the file system says.
    pub fn tick(&mut self) -> io::Result<()> {
        let is_due = self.waiting.len() >= ENOUGH || self.since.elapsed() >= LATEST;
        if is_due { self.flush() } else { Ok(()) }
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// What the file system says.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.waiting);
        self.frame(&records)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the file.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many records it has.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many events it has.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    fn frame(&mut self, content: &[u8]) -> io::Result<()> {
        let frame = pack_as(MARKER, self.sequence, content)?;
        self.sequence += 1;
        self.append(&frame)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let appended = self.file.write_all_at(bytes, self.written);
        match appended {
            Ok(()) => self.written += bytes.len() as u64,
            // A part of a frame is of no use.
            Err(_) => drop(self.file.set_len(self.written)),
        }
        appended
    }
}
