//! A segment of a flight recorder: a folder with a journal, the checkpoints of it, and the files that it names.

use crate::contents::{self, Store};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A segment of a flight recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number: zero for the one that begins with the program.
    pub number: u64,
    dir: PathBuf,
}

impl Segment {
    /// The one with this number, in the folder of all.
    pub(super) fn new(flight: &Path, number: u64) -> Segment {
        Segment { number, dir: flight.join(format!("{number:06}")) }
    }

    /// Makes its folder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    /// Its journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Its checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// The contents that its journal names.
    pub(super) fn files(&self) -> Vec<(u64, PathBuf)> {
        let entries = fs::read_dir(self.dir.join(contents::FOLDER)).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let digest = entry.file_name().to_str().and_then(contents::digest_in)?;
            Some((digest, entry.path()))
        });
        named.collect()
    }

    /// Where these contents are, if its journal names them.
    pub(super) fn file(&self, digest: u64) -> PathBuf {
        self.dir.join(contents::FOLDER).join(contents::name(digest))
    }

    /// How many bytes go with it: those of its files that no other segment or recording has. A store may have them too.
    #[must_use]
    pub fn size(&self) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        let only_here = |path: &Path| {
            fs::metadata(path).map_or(0, |found| if found.nlink() > 2 { 0 } else { found.len() })
        };
        let files: u64 = self.files().iter().map(|(_, path)| only_here(path)).sum();
        size(self.journal()) + size(self.checkpoints()) + files
    }

    /// Removes it, and what only it had in the store. The journal goes first: without it, what is left is no segment.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(&self, store: Option<&Store>) -> io::Result<()> {
        is_gone(fs::remove_file(self.journal()))?;
        is_gone(fs::remove_file(self.checkpoints()))?;
        for (digest, path) in self.files() {
            is_gone(fs::remove_file(path))?;
            store.into_iter().for_each(|store| {
                store.release(digest);
            });
        }
        is_gone(fs::remove_dir(self.dir.join(contents::FOLDER)))?;
        is_gone(fs::remove_dir(&self.dir))
    }
}

/// What came of removing something that may not have been there.
pub(super) fn is_gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
