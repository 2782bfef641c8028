//! Appending to a journal while the guest runs.
//!
//! The guest's thread only encodes records, and hands over each event that is whole. A thread of its own compresses and writes
//! them, when there is enough for a frame and at the latest [`FLUSH_EVERY`] after it was recorded, also while the
//! guest computes or waits in a system call. So a recorder that is killed loses no more than that.
//!
//! A [`Cut`] makes a frame begin at a certain record, so that a checkpoint can name it; or a file, with which a flight recorder
//! begins a new segment.

use super::contents::Filing;
use super::frame;
use super::header::Header;
use super::schema::{Record, encode_file, encode_input};
use crate::contents::Store;
use crate::gate::Input;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a whole event may wait to be written.
pub const FLUSH_EVERY: Duration = Duration::from_millis(100);
/// Bytes of records that make a frame worth writing.
const FRAME_TARGET: usize = 128 << 10;
/// Bytes of records that may wait: beyond them the guest waits for the disk.
const BACKLOG_LIMIT: usize = 16 << 20;

/// Where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// In bytes from the file's start.
    pub offset: u64,
    /// Its number.
    pub sequence: u32,
}

/// A frame, or a file, that is to begin in front of the next record.
struct Wanted {
    /// So many encoded bytes are before it.
    before: usize,
    /// The file, if it is to be another one.
    path: Option<PathBuf>,
    /// Is told where it begins.
    tell: Sender<Cut>,
}

/// What the guest's thread and the writing thread share.
#[derive(Default)]
struct Pending {
    /// Encoded records, of whole events.
    records: Vec<u8>,
    /// No more will come.
    closed: bool,
    /// Why the file cannot be written any more.
    failed: Option<io::Error>,
    /// The frames that are to begin at a certain record.
    wanted: VecDeque<Wanted>,
    /// Bytes in the file.
    written: u64,
    /// The file, its device and its number.
    path: PathBuf,
    file: (u64, u64),
    /// Bytes in the files before it.
    earlier: u64,
    /// Somebody else has changed the file's size.
    altered: bool,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    /// [`Pending::failed`] says why.
    has_failed: AtomicBool,
    /// Rung when there is enough for a frame, and when there is room again.
    bell: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        // A panic on the other thread leaves the buffer as it was between two records.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A journal being written.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Encoded records of the event that is going on.
    unfinished: RefCell<Vec<u8>>,
    /// Where the contents of files go.
    filing: RefCell<Filing>,
}

impl Writer {
    /// Makes the file (which must not exist), readable by its owner only, locks it, and writes the header. Contents of files go
    /// into a folder beside it, which shares them with the store.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, header: &Header, store: Option<Store>) -> io::Result<Writer> {
        let start = [frame::preamble(), frame::pack(0, &header.encode())?].concat();
        let shared = Arc::new(Shared::default());
        let file = begin(&shared, path, &start)?;
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || write_frames(&theirs, file, &start))?;
        let filing = RefCell::new(Filing::new(path, store));
        Ok(Writer { shared, thread: Mutex::new(Some(thread)), unfinished: RefCell::default(), filing })
    }

    /// Has the next record begin a frame, and with `path` a file of its own, which begins with the same header. What was put so
    /// far must be whole. The frame's place is told when it is known; never, if the journal cannot be written any more.
    #[must_use]
    pub fn cut(&self, path: Option<PathBuf>) -> Receiver<Cut> {
        path.iter().for_each(|path| self.filing.borrow_mut().go_on(path));
        let (tell, told) = mpsc::channel();
        let mut pending = self.shared.lock();
        let before = pending.records.len();
        pending.wanted.push_back(Wanted { before, path, tell });
        self.shared.bell.notify_all();
        told
    }

    /// How many bytes the file that is written has, with those that wait, which will be fewer, and with the contents that were
    /// written beside it.
    #[must_use]
    pub fn size(&self) -> u64 {
        let pending = self.shared.lock();
        let waiting =
            pending.wanted.back().map_or(pending.records.len(), |it| pending.records.len() - it.before);
        let waiting = waiting + self.unfinished.borrow().len();
        let begins_anew = pending.wanted.iter().any(|wanted| wanted.path.is_some());
        self.filing.borrow().written() + waiting as u64 + if begins_anew { 0 } else { pending.written }
    }

    /// How many bytes an input would take, at most: as a frame of its own, or as a file that is not there yet.
    ///
    /// # Errors
    /// When it is too long for a frame.
    pub fn cost(&self, input: &Input) -> io::Result<u64> {
        if let Input::File(Ok(file)) = input {
            return Ok(self.filing.borrow().cost(file));
        }
        let mut records = Vec::new();
        encode_input(input, &mut records);
        Ok(frame::pack(0, &records)?.len() as u64)
    }

    /// Waits until the events that are whole are written.
    pub fn settle(&self) {
        // A journal that cannot be written any more tells nothing, and the next record says why.
        let _ = self.cut(None).recv();
    }

    /// The file that is written, and how many bytes it has.
    #[must_use]
    pub fn place(&self) -> (PathBuf, u64) {
        let pending = self.shared.lock();
        (pending.path.clone(), pending.written)
    }

    /// Adds a record to the event that is going on.
    ///
    /// # Errors
    /// When an earlier record could not be written: the error of that time.
    pub fn put(&self, record: &Record) -> io::Result<()> {
        self.append(|out| record.encode(out))
    }

    /// Adds an input to the event that is going on.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn put_input(&self, input: &Input) -> io::Result<()> {
        match input {
            Input::File(Ok(file)) => {
                // The file is whole before a record names it.
                let held = self.filing.borrow_mut().hold(file);
                self.append(|out| encode_file(file, held, out))
            }
            _ => self.append(|out| encode_input(input, out)),
        }
    }

    /// Drops what was put since the last whole event: the recorder cannot finish the event that is going on.
    pub fn drop_unfinished(&self) {
        self.unfinished.borrow_mut().clear();
    }

    /// Says that what was put so far is whole: an event is complete.
    pub fn mark_whole(&self) {
        let mut unfinished = self.unfinished.borrow_mut();
        if unfinished.is_empty() {
            return;
        }
        let mut pending = self.shared.lock();
        while pending.records.len() > BACKLOG_LIMIT && pending.failed.is_none() {
            pending = self.shared.bell.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        let before = pending.records.len();
        pending.records.append(&mut unfinished);
        // Who does not wait looks by itself.
        if before < FRAME_TARGET && pending.records.len() >= FRAME_TARGET {
            self.shared.bell.notify_all();
        }
    }

    /// Writes what is left and closes the file; gives how much was written to it and to those before it.
    ///
    /// # Errors
    /// When anything could not be written.
    pub fn finish(&self) -> io::Result<u64> {
        self.mark_whole();
        self.close();
        let mut pending = self.shared.lock();
        pending.failed.take().map_or(Ok(pending.earlier + pending.written), Err)
    }

    /// Whether the file is still where it was made, with as many bytes as were written: it is the user's, and so the
    /// recorded program's.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let pending = self.shared.lock();
        let is_whole = |found: &Metadata| !pending.altered && found.len() == pending.written;
        fs::metadata(&pending.path).is_ok_and(|found| identity(&found) == pending.file && is_whole(&found))
    }

    fn append(&self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        if self.shared.has_failed.load(Ordering::Acquire)
            && let Some(error) = &self.shared.lock().failed
        {
            return Err(again(error));
        }
        encode(&mut self.unfinished.borrow_mut());
        Ok(())
    }

    fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.bell.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // If it panicked, its message is on stderr and the file ends with its last whole frame.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    /// A writer that is dropped on the way out of an error still leaves every whole event in the file.
    fn drop(&mut self) {
        self.close();
    }
}

/// Device and number of a file.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// An error that can be reported more than once.
fn again(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}

/// Makes a file that begins so; it must not exist.
fn begin(shared: &Shared, path: &Path, start: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // By the lock others know that the recorder lives. A file system without locks costs them that, and nothing else.
    let _ = file.try_lock();
    file.write_all(start)?;
    let made = identity(&file.metadata()?);
    let mut pending = shared.lock();
    pending.earlier += pending.written;
    (pending.written, pending.file, pending.path) = (start.len() as u64, made, path.to_owned());
    Ok(file)
}

/// What the writing thread does next.
enum Batch {
    /// Writes these records.
    Records(Vec<u8>),
    /// Begins a frame.
    Cut(Wanted),
}

/// The writing thread: until closed, takes what is whole and writes it as a frame.
fn write_frames(shared: &Shared, mut file: File, start: &[u8]) {
    let mut sequence = 1;
    while let Some(batch) = next_batch(shared) {
        let result = match batch {
            Batch::Records(records) => write_frame(shared, &mut file, sequence, &records).map(|()| {
                sequence = sequence.wrapping_add(1);
            }),
            Batch::Cut(Wanted { path, tell, .. }) => {
                let begun = path.map_or(Ok(None), |path| begin(shared, &path, start).map(Some));
                begun.map(|begun| {
                    if let Some(begun) = begun {
                        (file, sequence) = (begun, 1);
                    }
                    // Whoever asked may have gone.
                    let _ = tell.send(Cut { offset: shared.lock().written, sequence });
                })
            }
        };
        let failed = result.is_err();
        let mut pending = shared.lock();
        if failed {
            pending.wanted.clear();
            shared.has_failed.store(true, Ordering::Release);
        }
        pending.failed = result.err();
        drop(pending);
        shared.bell.notify_all();
        if failed {
            return;
        }
    }
}

/// Appends a frame.
fn write_frame(shared: &Shared, file: &mut File, sequence: u32, records: &[u8]) -> io::Result<()> {
    let written = shared.lock().written;
    let altered = file.metadata().is_ok_and(|found| found.len() != written);
    let result = frame::pack(sequence, records).and_then(|frame| {
        file.write_all(&frame)?;
        Ok(frame.len() as u64)
    });
    let mut pending = shared.lock();
    pending.altered |= altered;
    match result {
        Ok(size) => {
            pending.written = written + size;
            Ok(())
        }
        Err(error) => {
            // Cut off what a full disk left of the frame; if that fails too, the reader does it.
            let _ = file.set_len(written);
            Err(error)
        }
    }
}

/// Waits for whole events; `None` when there will be no more.
fn next_batch(shared: &Shared) -> Option<Batch> {
    let mut pending = shared.lock();
    loop {
        let mut timed_out = false;
        if !is_due(&pending) {
            let waited = shared.bell.wait_timeout(pending, FLUSH_EVERY);
            let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            (pending, timed_out) = (guard, result.timed_out());
        }
        if let Some(wanted) = pending.wanted.pop_front_if(|wanted| wanted.before == 0) {
            return Some(Batch::Cut(wanted));
        }
        if !pending.records.is_empty() && (timed_out || is_due(&pending)) {
            let now = pending.wanted.front().map_or(pending.records.len(), |wanted| wanted.before);
            pending.wanted.iter_mut().for_each(|wanted| wanted.before -= now);
            let mut rest = Vec::with_capacity(FRAME_TARGET);
            rest.extend(pending.records.drain(now..));
            return Some(Batch::Records(std::mem::replace(&mut pending.records, rest)));
        }
        if pending.closed {
            return None;
        }
    }
}

/// Whether there is a reason not to wait for more.
fn is_due(pending: &Pending) -> bool {
    pending.closed || pending.records.len() >= FRAME_TARGET || !pending.wanted.is_empty()
}
