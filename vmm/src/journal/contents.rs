//! The bytes of files in a journal: which of them stand in it, and which are files beside it ([`crate::contents`]).
//!
//! ld.so maps a library whole, and then its segments over that: a content that is a part of an earlier one is told as such,
//! so that a library is on disk once. Files and parts are found from their record alone; only a content that stands in the
//! journal and comes again refers to an earlier record.
//!
//! Example: `mmap` of libc.so.6 (1.9 MB) is written as `files/9ff0…`; the `mmap` of its code, 1.4 MB from 0x28000 on, as the part
//! of 9ff0… at 0x28000; a file of 300 bytes stands in the record.

use crate::contents::{self, ContentError, Placed, Store, place};
use crate::gate::FileContent;
use crate::plain::numbers::{Cursor, put_bytes, put_digest, put_u64};
use std::collections::{HashMap, HashSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use xxhash_rust::xxh3::xxh3_64;

/// Parts begin at multiples of this: mappings do.
const PAGE: usize = 4096;
/// So many places of a part are compared to its end; a file may have the same page everywhere.
const TRIED: usize = 8;

/// Where the bytes of a file input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// 0: in an earlier input of the same journal file.
    Earlier,
    /// 1, bytes `b`: here.
    Here,
    /// 2: in the file of their digest.
    File,
    /// 3, digest `d`, offset `u`, length `u`: a part of the file of another digest.
    Part {
        /// The other digest.
        of: u64,
        /// Where the part begins.
        offset: u64,
    },
}

/// Appends a file input behind its tag.
pub(super) fn encode(file: &FileContent, digest: u64, held: Held, out: &mut Vec<u8>) {
    put_bytes(out, &file.name);
    put_digest(out, digest);
    match held {
        Held::Earlier => put_u64(out, 0),
        Held::Here => {
            put_u64(out, 1);
            put_bytes(out, &file.bytes);
        }
        Held::File => put_u64(out, 2),
        Held::Part { of, offset } => {
            put_u64(out, 3);
            put_digest(out, of);
            put_u64(out, offset);
            put_u64(out, file.bytes.len() as u64);
        }
    }
}

/// Decides where contents go while a journal is written, and puts them into files.
pub(super) struct Filing {
    /// The folder of the current journal file's contents.
    folder: PathBuf,
    store: Option<Store>,
    /// The digests of contents that stand in it.
    inline: HashSet<u64>,
    /// The largest content of each name that is a file, as long as somebody has it mapped.
    wholes: HashMap<Vec<u8>, (u64, Weak<Vec<u8>>)>,
    /// Where contents are that came before, by their addresses, which are not used again as long as they stand here.
    held: HashMap<usize, (Weak<Vec<u8>>, u64, Held)>,
    /// Bytes of files that were written, and not linked.
    written: u64,
}

/// Of so many contents it is known by their addresses where they are, and of others that are still there.
const MOST_HELD: usize = 1024;

impl Filing {
    /// For a journal, whose folder shares files with the store.
    pub(super) fn new(journal: &Path, store: Option<Store>) -> Filing {
        let (inline, wholes, held) = (HashSet::new(), HashMap::new(), HashMap::new());
        Filing { folder: folder_of(journal), store, inline, wholes, held, written: 0 }
    }

    /// It goes on in another file.
    pub(super) fn go_on(&mut self, journal: &Path) {
        *self = Filing::new(journal, self.store.take());
    }

    /// How many bytes were written beside the current journal file.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// How many bytes it takes to hold this content, at most.
    pub(super) fn cost(&self, file: &FileContent) -> u64 {
        let length = file.bytes.len() as u64;
        if self.held.contains_key(&Arc::as_ptr(&file.bytes).addr()) || self.part(file).is_some() {
            return 0;
        }
        let digest = xxh3_64(&file.bytes);
        let is_there = || {
            let linked = self.store.as_ref().is_some_and(|store| store.has(digest));
            linked || self.folder.join(contents::name(digest)).exists()
        };
        if file.bytes.len() >= contents::LEAST && is_there() { 0 } else { length }
    }

    /// Where this content is from now on, and its digest.
    pub(super) fn hold(&mut self, file: &FileContent) -> (u64, Held) {
        let address = Arc::as_ptr(&file.bytes).addr();
        if let Some((_, digest, held)) = self.held.get(&address) {
            return (*digest, *held);
        }
        let (digest, held) = self.hold_new(file);
        if self.held.len() >= MOST_HELD {
            self.held.retain(|_, (bytes, ..)| bytes.strong_count() > 0);
        }
        let from_now_on = if held == Held::Here { Held::Earlier } else { held };
        self.held.insert(address, (Arc::downgrade(&file.bytes), digest, from_now_on));
        (digest, held)
    }

    fn hold_new(&mut self, file: &FileContent) -> (u64, Held) {
        let digest = xxh3_64(&file.bytes);
        if let Some(part) = self.part(file) {
            return (digest, part);
        }
        if file.bytes.len() >= contents::LEAST && self.put(file, digest) {
            return (digest, Held::File);
        }
        // The journal has room where no file can be made, or its write fails and says why.
        (digest, if self.inline.insert(digest) { Held::Here } else { Held::Earlier })
    }

    /// The content as a part of an earlier one of the same file.
    fn part(&self, file: &FileContent) -> Option<Held> {
        let (of, whole) = self.wholes.get(&file.name)?;
        let (whole, part) = (whole.upgrade()?, file.bytes.as_slice());
        let (first, last) = (part.get(..part.len().min(64))?, whole.len().checked_sub(part.len())?);
        if part.is_empty() || part.len() == whole.len() {
            return None;
        }
        let mut places = (0..=last).step_by(PAGE).filter(|at| whole[*at..].starts_with(first)).take(TRIED);
        let offset = places.find(|at| &whole[*at..*at + part.len()] == part)?;
        Some(Held::Part { of: *of, offset: offset as u64 })
    }

    /// Has the content be a file. Whether it is.
    fn put(&mut self, file: &FileContent, digest: u64) -> bool {
        // It may be there; if it cannot be made, neither can the file.
        let _ = DirBuilder::new().mode(0o700).create(&self.folder);
        let path = self.folder.join(contents::name(digest));
        match place(self.store.as_ref(), &path, digest, &file.bytes) {
            Ok(Placed::Linked) => {}
            Ok(Placed::Written) => self.written += file.bytes.len() as u64,
            Err(error) => {
                tracing::debug!("{} stays in the journal: {error}", path.display());
                return false;
            }
        }
        let known = self.wholes.get(&file.name).and_then(|(_, whole)| whole.upgrade());
        if known.is_none_or(|known| known.len() <= file.bytes.len()) {
            self.wholes.insert(file.name.clone(), (digest, Arc::downgrade(&file.bytes)));
        }
        true
    }
}

/// The folder of the contents that a journal names.
fn folder_of(journal: &Path) -> PathBuf {
    journal.with_file_name(contents::FOLDER)
}

/// The contents of files that a journal has so far, by digest.
#[derive(Debug, Default)]
pub(super) struct Contents {
    known: HashMap<u64, Arc<Vec<u8>>>,
    folder: PathBuf,
    /// Files are not read: their contents are empty.
    pub(super) leaves_files: bool,
    /// Why the last record was none: a file cannot be used.
    failed: Option<ContentError>,
}

impl Contents {
    /// None of a journal is known yet.
    pub(super) fn of(journal: &Path) -> Contents {
        Contents { folder: folder_of(journal), ..Contents::default() }
    }

    /// The journal goes on in another file, of which none is known.
    pub(super) fn go_on(&mut self, journal: &Path) {
        *self = Contents { leaves_files: self.leaves_files, ..Contents::of(journal) };
    }

    /// Why the last record could not be read, if that was for a file.
    pub(super) fn take_failure(&mut self) -> Option<ContentError> {
        self.failed.take()
    }

    /// Takes a file input off; `None` if there is no whole one, or its bytes are not to be had.
    pub(super) fn decode(&mut self, c: &mut Cursor<'_>) -> Option<FileContent> {
        let (name, digest) = (c.bytes()?.to_vec(), c.digest()?);
        let bytes = match c.u64()? {
            0 => self.known.get(&digest).cloned()?,
            1 => self.given(digest, c.bytes()?)?,
            2 => self.file(digest)?,
            3 => {
                let (of, offset, length) = (c.digest()?, c.u64()?, c.u64()?);
                self.part(digest, of, offset, length)?
            }
            _ => return None,
        };
        Some(FileContent { name, bytes })
    }

    fn given(&mut self, digest: u64, bytes: &[u8]) -> Option<Arc<Vec<u8>>> {
        if xxh3_64(bytes) != digest {
            return None;
        }
        Some(Arc::clone(self.known.entry(digest).or_insert_with(|| Arc::new(bytes.to_vec()))))
    }

    fn file(&mut self, digest: u64) -> Option<Arc<Vec<u8>>> {
        if self.leaves_files {
            return Some(Arc::default());
        }
        if let Some(known) = self.known.get(&digest) {
            return Some(Arc::clone(known));
        }
        let bytes = contents::read(&self.folder, digest).map_err(|error| self.failed = Some(error)).ok()?;
        let bytes = Arc::new(bytes);
        self.known.insert(digest, Arc::clone(&bytes));
        Some(bytes)
    }

    fn part(&mut self, digest: u64, of: u64, offset: u64, length: u64) -> Option<Arc<Vec<u8>>> {
        let whole = self.file(of)?;
        if self.leaves_files {
            return Some(whole);
        }
        if let Some(known) = self.known.get(&digest) {
            return Some(Arc::clone(known));
        }
        let (start, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let part = whole.get(start..start.checked_add(length)?)?;
        self.given(digest, part)
    }
}
