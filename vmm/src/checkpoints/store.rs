//! Writing checkpoints to a file. A page whose bytes are in the file already is referred to.
//!
//! Whether they are is known by a digest of 128 bits. For most pages not even that is needed: a frame that the checkpoint
//! before had as well, and which nobody gave back since, holds what it held.

use super::{About, CHECKPOINT, IDENTITY, MAGIC, MARK, PAGES, VERSION};
use crate::journal::frame;
use crate::plain::numbers::{put_bytes, put_i64, put_u64};
use crate::plain::{Blob, Out, Plain};
use crate::process::stored::Image;
use crate::ram::{PAGE_LEN, Phys, View};
use crate::recording::private_file;
use rustc_hash::FxHashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// So many pages go into a frame.
const TOGETHER: usize = 64;

/// A file of checkpoints that is written.
pub(super) struct Store {
    file: File,
    /// Bytes in the file, and how many it may have.
    size: u64,
    most: u64,
    /// The number of the next frame.
    sequence: u32,
    /// The numbers of pages by their digests.
    known: FxHashMap<u128, u64>,
    /// Pages that are in no frame yet.
    waiting: Vec<u8>,
    /// What the frames held at the checkpoint before.
    frames: FxHashMap<Phys, Held>,
    /// How many versions of frames there were.
    versions: u64,
    /// The same for what files held: as long as we own it, its address is nobody else's.
    blobs: FxHashMap<usize, (Blob, Arc<[u64]>)>,
}

/// What a frame holds.
#[derive(Clone, Copy)]
struct Held {
    /// The number of its page.
    page: u64,
    /// The same as long as nothing was stored to it; every other frame, and this one after a store, has another.
    version: u64,
}

impl Store {
    /// Makes the file, which must not exist, for the journal with this identity; it will have no more than `most` bytes.
    pub(super) fn create(path: &Path, identity: u64, most: u64) -> io::Result<Store> {
        let mut file = private_file(path)?;
        let start =
            [&MAGIC[..], &VERSION.to_le_bytes(), &frame::pack_as(IDENTITY, 0, &identity.to_le_bytes())?]
                .concat();
        file.write_all(&start)?;
        Ok(Store {
            file,
            size: start.len() as u64,
            most,
            sequence: 1,
            known: FxHashMap::default(),
            waiting: Vec::new(),
            frames: FxHashMap::default(),
            versions: 0,
            blobs: FxHashMap::default(),
        })
    }

    /// How many bytes the file has.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Forgets which frames held what: they have been given back.
    pub(super) fn forget_frames(&mut self) {
        self.frames.clear();
    }

    /// Has the disk keep what was written.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Adds the pages of a checkpoint that are new, the checkpoint, and what `about` says then of it. If it fails, the file ends with
    /// the checkpoint before.
    pub(super) fn add(
        &mut self,
        image: &Image,
        view: &View,
        about: impl FnOnce() -> io::Result<About>,
    ) -> io::Result<()> {
        let before = self.size;
        let added = self.add_pages(image, view).and_then(|checkpoint| {
            self.append(CHECKPOINT, &checkpoint)?;
            let mut mark = Out::default();
            about()?.put(&mut mark);
            self.append(MARK, &mark.bytes)
        });
        if added.is_err() {
            // If that fails too, the reader does without what comes behind.
            let _ = self.file.set_len(before);
        }
        added
    }

    /// Writes new pages; gives the encoded checkpoint, which refers to them.
    fn add_pages(&mut self, image: &Image, view: &View) -> io::Result<Vec<u8>> {
        let mut frames = FxHashMap::default();
        let mut held = Vec::with_capacity(image.frames.len());
        let mut page = [0; PAGE_LEN];
        for frame in &image.frames {
            let now = match self.frames.get(frame) {
                Some(held) => *held,
                None => {
                    view.read(*frame, &mut page)?;
                    self.versions += 1;
                    Held { page: self.page(&page)?, version: self.versions }
                }
            };
            frames.insert(*frame, now);
            held.push(now);
        }
        self.frames = frames;
        let mut out = Vec::new();
        put_numbers(&mut out, &held.iter().map(|held| held.page).collect::<Vec<_>>());
        put_numbers(&mut out, &held.iter().map(|held| held.version).collect::<Vec<_>>());
        put_u64(&mut out, image.blobs.len() as u64);
        let mut blobs = FxHashMap::default();
        for blob in &image.blobs {
            let numbers = self.blob(blob)?;
            put_u64(&mut out, blob.as_ref().as_ref().len() as u64);
            put_numbers(&mut out, &numbers);
            blobs.insert(address(blob), (Arc::clone(blob), numbers));
        }
        self.blobs = blobs;
        self.flush()?;
        put_bytes(&mut out, &image.head);
        Ok(out)
    }

    /// The numbers of the pages of a byte string; the last one has zeroes behind it.
    fn blob(&mut self, blob: &Blob) -> io::Result<Arc<[u64]>> {
        if let Some((_, numbers)) = self.blobs.get(&address(blob)) {
            return Ok(Arc::clone(numbers));
        }
        let mut page = [0; PAGE_LEN];
        let bytes: &[u8] = blob.as_ref().as_ref();
        bytes
            .chunks(PAGE_LEN)
            .map(|part| {
                page[..part.len()].copy_from_slice(part);
                page[part.len()..].fill(0);
                self.page(&page)
            })
            .collect()
    }

    /// The number of a page, which is written if it is new.
    fn page(&mut self, page: &[u8; PAGE_LEN]) -> io::Result<u64> {
        let next = self.known.len() as u64;
        let number = *self.known.entry(xxh3_128(page)).or_insert(next);
        if number == next {
            self.waiting.extend(page);
            if self.waiting.len() >= TOGETHER * PAGE_LEN {
                self.flush()?;
            }
        }
        Ok(number)
    }

    /// Writes the pages that wait.
    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let pages = std::mem::take(&mut self.waiting);
        self.append(PAGES, &pages)
    }

    fn append(&mut self, marker: &[u8; 4], content: &[u8]) -> io::Result<()> {
        let frame = frame::pack_as(marker, self.sequence, content)?;
        if self.size + frame.len() as u64 > self.most {
            let why = format!("the next would not fit into the {} bytes that they may have", self.most);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        self.file.write_all(&frame)?;
        self.sequence = self.sequence.wrapping_add(1);
        self.size += frame.len() as u64;
        Ok(())
    }
}

fn address(blob: &Blob) -> usize {
    Arc::as_ptr(blob).addr()
}

/// Appends numbers, most of which are one more than the number before.
fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    put_u64(out, numbers.len() as u64);
    let mut last = 0;
    for number in numbers {
        put_i64(out, number.wrapping_sub(last).cast_signed());
        last = *number;
    }
}
