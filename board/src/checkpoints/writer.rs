//! Writes checkpoints: of each, the pages that have changed since the one before.

use super::{HEAD, Head, MAGIC, PAGES, Shelf, ShelfError, TOGETHER, VERSION};
use crate::machine::Machine;
use crate::memory::{Dirty, PAGE, Page, page};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vmm::journal::frame::pack_as;

/// A file of checkpoints that is being written.
pub struct Writer {
    path: PathBuf,
    file: File,
    /// Where its last whole checkpoint ends.
    size: u64,
    sequence: u32,
    /// How many pages are in the file.
    pages: u64,
    /// How many checkpoints.
    count: u64,
    frames: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, u64>,
    /// When the last one was taken.
    last: u64,
}

impl Writer {
    /// Makes the file, which must not exist.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut writer = Writer::of(path, file);
        writer.append(&[MAGIC.as_slice(), &VERSION.to_le_bytes()].concat())?;
        Ok(writer)
    }

    fn of(path: &Path, file: File) -> Writer {
        Writer {
            path: path.to_owned(),
            file,
            size: 0,
            sequence: 0,
            pages: 0,
            count: 0,
            frames: BTreeMap::new(),
            blocks: BTreeMap::new(),
            last: 0,
        }
    }

    /// Makes a file that begins with the checkpoints of another up to one of them, to go on from that.
    ///
    /// # Errors
    /// What the file system says, or what is wrong with the other file.
    pub fn go_on(path: &Path, shelf: &Shelf, checkpoint: usize) -> Result<Writer, ShelfError> {
        let head = shelf.head(checkpoint)?;
        let written = |error| ShelfError::Write { path: path.to_owned(), error };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(written)?;
        let mut writer = Writer::of(path, file);
        let end = shelf.end_of(checkpoint);
        writer.size = shelf.copy(end.offset, &mut writer.file).map_err(written)?;
        writer.sequence = end.sequence;
        writer.pages = end.pages;
        writer.count = checkpoint as u64 + 1;
        writer.last = head.retired;
        (writer.frames, writer.blocks) = (head.frames, head.blocks);
        Ok(writer)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many checkpoints are in it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many instructions had retired at the last one.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Adds a checkpoint of a machine that rests, behind so many records. One that cannot be written leaves the file as it was, and the
    /// next one has what it would have had.
    ///
    /// # Errors
    /// What the file system says.
    pub fn add(&mut self, machine: &mut Machine, records: u64) -> io::Result<()> {
        let dirty = machine.take_unsaved();
        let before = (self.size, self.sequence, self.pages, self.frames.clone(), self.blocks.clone());
        let added = self.write(machine, &dirty, records);
        if added.is_err() {
            (self.size, self.sequence, self.pages, self.frames, self.blocks) = before;
            machine.keep_unsaved(&dirty);
            // Where it cannot be cut, the next checkpoint is written over what is there.
            let _ = self.file.set_len(self.size);
        }
        added
    }

    #[cfg(test)]
    pub(super) fn swap_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    fn write(&mut self, machine: &Machine, dirty: &Dirty, records: u64) -> io::Result<()> {
        let (Dirty { frames, blocks }, ram) = (dirty, machine.ram());
        let frames = frames.iter().filter_map(|frame| Some((frame / PAGE as u64, page(ram, *frame)?)));
        let frames: Vec<_> = frames.collect();
        let blocks: Vec<_> = blocks.iter().filter_map(|n| Some((*n, machine.block(*n)?))).collect();
        self.add_frames(&frames)?;
        self.add_blocks(&blocks)?;
        let at = machine.moment();
        let head = Head {
            retired: at.retired,
            time: at.time,
            records,
            memory: ram.len() as u64,
            state: machine.state(),
            frames: self.frames.clone(),
            blocks: self.blocks.clone(),
        };
        self.frame(HEAD, &head.encode())?;
        (self.count, self.last) = (self.count + 1, at.retired);
        Ok(())
    }

    /// Frames of memory; zeros are what a machine begins with.
    fn add_frames(&mut self, changed: &[(u64, &Page)]) -> io::Result<()> {
        let is_zero = |page: &Page| page.iter().all(|byte| *byte == 0);
        let (zeros, others): (Vec<_>, Vec<_>) = changed.iter().partition(|(_, page)| is_zero(page));
        for (number, _) in zeros {
            self.frames.remove(&number);
        }
        self.frames.extend(others.iter().map(|(number, _)| *number).zip(self.pages..));
        self.put_pages(&others)
    }

    /// Blocks of the disk; its image has no zeros to rely on.
    fn add_blocks(&mut self, changed: &[(u64, &Page)]) -> io::Result<()> {
        self.blocks.extend(changed.iter().map(|(number, _)| *number).zip(self.pages..));
        self.put_pages(changed)
    }

    fn put_pages(&mut self, pages: &[(u64, &Page)]) -> io::Result<()> {
        for together in pages.chunks(TOGETHER) {
            let bytes: Vec<u8> = together.iter().flat_map(|(_, page)| page.iter().copied()).collect();
            self.frame(PAGES, &bytes)?;
            self.pages += together.len() as u64;
        }
        Ok(())
    }

    fn frame(&mut self, marker: &[u8; 4], content: &[u8]) -> io::Result<()> {
        let frame = pack_as(marker, self.sequence, content)?;
        self.sequence += 1;
        self.append(&frame)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}
