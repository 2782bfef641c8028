//! Reads checkpoints: which there are, and a machine in the state of one.

use super::{HEAD, Head, MAGIC, PAGES, VERSION};
use crate::devices::disk::{Image, Layers};
use crate::machine::{Machine, Moment};
use crate::memory::{PAGE, Page};
use lbr::regular;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use vmm::journal::frame::{Outline, PREAMBLE_SIZE, unpack_as};
use x86_jit::Tuning;

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file that goes on from it cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It is another file, or of another version.
    #[error("{} has no checkpoints of a machine: {why}", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// It has fewer.
    #[error("{} has no checkpoint {number}; it has {count}, counted from 0", path.display())]
    NoSuch {
        /// The file.
        path: PathBuf,
        /// Which was asked for.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// A checkpoint is damaged.
    #[error("checkpoint {number} of {} is damaged at offset {offset:#x}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which one.
        number: usize,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

/// So many frames of pages are unpacked before they are needed.
const AHEAD: usize = 8;

/// A frame of the file.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    sequence: u32,
    /// The number of its first page, and how many it has; of a head none.
    first: u64,
    count: u64,
}

/// How much of the file there was behind a checkpoint.
pub(super) struct Reach {
    pub(super) offset: u64,
    pub(super) sequence: u32,
    pub(super) pages: u64,
}

/// A file of checkpoints.
#[derive(Debug)]
pub struct Shelf {
    path: PathBuf,
    pages: Vec<Part>,
    heads: Vec<Part>,
    /// Where the last frame ends that is whole.
    end: u64,
    damage: Option<String>,
}

impl Shelf {
    /// Looks through a file, without reading its pages.
    ///
    /// # Errors
    /// When it cannot be read, or is another file.
    pub fn open(path: &Path) -> Result<Shelf, ShelfError> {
        let read = |error| ShelfError::Read { path: path.to_owned(), error };
        let mut input = BufReader::new(regular::open(path).map_err(read)?);
        let mut preamble = Vec::new();
        input.by_ref().take(PREAMBLE_SIZE as u64).read_to_end(&mut preamble).map_err(read)?;
        let other = |why: String| ShelfError::NotOurs { path: path.to_owned(), why };
        let version = preamble.strip_prefix(MAGIC.as_slice()).and_then(|rest| rest.try_into().ok());
        match version.map(u32::from_le_bytes) {
            Some(VERSION) => {}
            Some(found) => {
                return Err(other(format!("their format is {found}, this gretel reads {VERSION}")));
            }
            None => return Err(other("it does not begin with the magic GRETELP".to_owned())),
        }
        let end = PREAMBLE_SIZE as u64;
        let mut shelf =
            Shelf { path: path.to_owned(), pages: Vec::new(), heads: Vec::new(), end, damage: None };
        shelf.scan(input).map_err(read)?;
        Ok(shelf)
    }

    fn scan(&mut self, mut input: BufReader<File>) -> io::Result<()> {
        let size = input.get_ref().metadata()?.len();
        let (mut sequence, mut pages) = (0, 0);
        while self.end < size {
            let outline = Outline::read(&mut input)?;
            let whole = outline.filter(|it| it.sequence == sequence && self.end + it.size <= size);
            let Some(outline) = whole else {
                self.damage = Some(format!(
                    "{} is damaged; what is before offset {:#x} is used",
                    self.path.display(),
                    self.end
                ));
                return Ok(());
            };
            let count = if &outline.marker == PAGES { u64::from(outline.length) / PAGE as u64 } else { 0 };
            let part = Part { offset: self.end, sequence, first: pages, count };
            match &outline.marker {
                PAGES => self.pages.push(part),
                _ => self.heads.push(part),
            }
            pages += count;
            self.end += outline.size;
            sequence += 1;
            input.seek(SeekFrom::Start(self.end))?;
        }
        Ok(())
    }

    /// How many checkpoints there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// What is wrong with the end of the file.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// When a checkpoint was taken, and how many records of the journal were before it.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn about(&self, checkpoint: usize) -> Result<(Moment, u64), ShelfError> {
        self.head(checkpoint).map(|head| (head.at(), head.records))
    }

    /// A machine in the state of a checkpoint, with this image on its disk.
    ///
    /// # Errors
    /// When it is damaged, or was of a machine with another disk.
    pub fn machine(&self, checkpoint: usize, image: Option<Image>) -> Result<Machine, ShelfError> {
        let head = self.head(checkpoint)?;
        let mut machine = Machine::empty(head.memory, Some(Tuning::default()));
        let mut layers = image.map(Layers::new);
        self.pages_of(checkpoint, &head.frames, |frame, page| {
            machine.put_page(frame * PAGE as u64, page).is_some()
        })?;
        if let Some(layers) = &mut layers {
            self.pages_of(checkpoint, &head.blocks, |block, page| {
                layers.written.insert(block, Arc::new(*page));
                true
            })?;
        }
        let put = machine.put_state(&head.state, layers);
        put.ok_or_else(|| self.damaged(checkpoint, "its state cannot be read".to_owned()))?;
        Ok(machine)
    }

    pub(super) fn head(&self, checkpoint: usize) -> Result<Head, ShelfError> {
        let Some(part) = self.heads.get(checkpoint) else {
            let (path, count) = (self.path.clone(), self.heads.len());
            return Err(ShelfError::NoSuch { path, number: checkpoint, count });
        };
        let bytes = self.unpack(checkpoint, HEAD, part)?;
        let head = Head::decode(&bytes, part.first);
        head.ok_or_else(|| self.damaged(checkpoint, "it cannot be read".to_owned()))
    }

    pub(super) fn end_of(&self, checkpoint: usize) -> Reach {
        let next = |part: &Part| (part.offset, part.sequence);
        let after = self.heads[checkpoint].sequence + 1;
        let parts = self.pages.iter().chain(&self.heads);
        let following = parts.filter(|part| part.sequence == after).map(next).next();
        let (offset, sequence) = following.unwrap_or((self.end, after));
        Reach { offset, sequence, pages: self.heads[checkpoint].first }
    }

    /// Copies the first bytes of the file: how many.
    pub(super) fn copy(&self, bytes: u64, to: &mut File) -> io::Result<u64> {
        let copied = io::copy(&mut regular::open(&self.path)?.take(bytes), to)?;
        to.flush()?;
        Ok(copied)
    }

    /// Gives each page that a map refers to, with its number there; `put` says whether it could be used.
    fn pages_of(
        &self,
        checkpoint: usize,
        map: &BTreeMap<u64, u64>,
        mut put: impl FnMut(u64, &Page) -> bool,
    ) -> Result<(), ShelfError> {
        let mut wanted: Vec<(u64, u64)> = map.iter().map(|(number, page)| (*page, *number)).collect();
        wanted.sort_unstable();
        let mut rest = wanted.as_slice();
        let mut parts = Vec::new();
        for part in &self.pages {
            let count = rest.partition_point(|(page, _)| *page < part.first + part.count);
            let (here, behind) = rest.split_at(count);
            rest = behind;
            parts.extend((!here.is_empty()).then_some((*part, here)));
        }
        if !rest.is_empty() {
            return Err(self.damaged(checkpoint, "pages are missing".to_owned()));
        }
        let missing = || self.damaged(checkpoint, "a page is missing".to_owned());
        // One thread unpacks what the other one puts into memory.
        thread::scope(|scope| {
            let (to, unpacked) = mpsc::sync_channel(AHEAD);
            let parts = parts.as_slice();
            scope.spawn(move || {
                let mut all = parts.iter().map(|(part, _)| self.unpack(checkpoint, PAGES, part));
                // Who does not want the next one has met an error.
                all.try_for_each(|bytes| to.send(bytes).map_err(drop))
            });
            for ((part, here), bytes) in parts.iter().zip(unpacked) {
                let bytes = bytes?;
                let (pages, _) = bytes.as_chunks::<PAGE>();
                for (page, number) in *here {
                    let page = usize::try_from(page - part.first).ok().and_then(|n| pages.get(n));
                    if !page.is_some_and(|page| put(*number, page)) {
                        return Err(missing());
                    }
                }
            }
            Ok(())
        })
    }

    fn unpack(&self, checkpoint: usize, marker: &[u8; 4], part: &Part) -> Result<Vec<u8>, ShelfError> {
        let read = |error| ShelfError::Read { path: self.path.clone(), error };
        let mut file = regular::open(&self.path).map_err(read)?;
        file.seek(SeekFrom::Start(part.offset)).map_err(read)?;
        let why = match unpack_as(marker, &mut file, part.sequence).map_err(read)? {
            Ok(Some(frame)) => return Ok(frame.records),
            Ok(None) => "the file ends".to_owned(),
            Err(why) => why,
        };
        Err(ShelfError::Damaged { path: self.path.clone(), number: checkpoint, offset: part.offset, why })
    }

    fn damaged(&self, checkpoint: usize, why: String) -> ShelfError {
        let offset = self.heads.get(checkpoint).map_or(0, |part| part.offset);
        ShelfError::Damaged { path: self.path.clone(), number: checkpoint, offset, why }
    }
}
