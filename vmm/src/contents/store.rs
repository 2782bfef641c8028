//! The store: a folder of files that recordings share by hard links.
//!
//! A file in it has two links or more, from its first moment on: a recorder writes the file into its own recording and links
//! that into the store. So a file with one link is used by no recording, and [`Store::sweep`] removes it. A recorder that links
//! a file while it is swept has its own link already, or finds none and writes the file again.
//!
//! XXH3 is no cryptographic hash: two files may have one digest, by chance or on purpose. So what the store has is compared, byte by
//! byte, behind the link; whoever has another file keeps it to himself. A store that somebody else may write to is not used.

use super::{digest_in, has, name};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of a store beside recordings.
const BESIDE: &str = ".gretel-files";

/// Where a store may be, as the environment says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    /// `GRETEL_STORE`: no other folder is used.
    pub given: Option<PathBuf>,
    /// The user's data: `$XDG_DATA_HOME` or `~/.local/share`. The store is `gretel/files` in it.
    pub data: Option<PathBuf>,
}

/// A store that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    dir: PathBuf,
}

impl Stores {
    /// From variables of the environment: `GRETEL_STORE`, `XDG_DATA_HOME`, `HOME`. One that is empty is one that is not set;
    /// the latter two count if they are absolute.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Stores {
        let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let absolute = |name| path(name).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".local/share"));
        Stores { given: path("GRETEL_STORE"), data: absolute("XDG_DATA_HOME").or_else(home) }
    }

    /// Makes the store of a recording, whose folder exists. `None`: it is to keep its own copies.
    #[must_use]
    pub fn make(&self, recording: &Path) -> Option<Store> {
        self.candidates(recording).into_iter().find_map(|dir| Store::make(dir, recording))
    }

    /// The stores that a recording may have links to, of those that are there.
    #[must_use]
    pub fn existing(&self, recording: &Path) -> Vec<Store> {
        self.candidates(recording).into_iter().filter_map(Store::existing).collect()
    }

    fn candidates(&self, recording: &Path) -> Vec<PathBuf> {
        if let Some(given) = &self.given {
            return vec![given.clone()];
        }
        let data = self.data.iter().map(|data| data.join("gretel").join(super::FOLDER));
        let own = recording.canonicalize().ok();
        let beside = own.and_then(|own| own.parent().map(|parent| parent.join(BESIDE)));
        data.chain(beside).collect()
    }
}

impl Store {
    /// Makes a store where it can share files with the recording.
    fn make(dir: PathBuf, recording: &Path) -> Option<Store> {
        let device = fs::metadata(recording).ok()?.dev();
        // Nothing is made on another file system.
        let there = dir.ancestors().find_map(|dir| fs::metadata(dir).ok()).map(|found| found.dev());
        if there.is_some_and(|there| there != device) {
            return None;
        }
        // It may be there; else the one who gave a relative path is in the file system that counts.
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).ok()?;
        Store::existing(dir).filter(|store| fs::metadata(&store.dir).is_ok_and(|found| found.dev() == device))
    }

    /// A folder that is our own, and that nobody else can write to.
    fn existing(dir: PathBuf) -> Option<Store> {
        is_own_folder(&dir).then_some(Store { dir })
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, digest: u64) -> PathBuf {
        self.dir.join(name(digest))
    }

    /// Whether there is a file with this digest.
    pub(crate) fn has(&self, digest: u64) -> bool {
        self.path(digest).exists()
    }

    /// Links the file with this digest to `path`, which must not exist, if it has these bytes, which are so many.
    pub(super) fn give(&self, digest: u64, path: &Path, bytes: impl Read, length: u64) -> bool {
        if fs::hard_link(self.path(digest), path).is_err() {
            return false;
        }
        // Behind the link, nobody can put another file in its place.
        let same = has(path, bytes, length);
        if !same {
            let _ = fs::remove_file(path);
        }
        same
    }

    /// Links `path` into the store, unless there is a file of its digest.
    pub(super) fn take(&self, digest: u64, path: &Path) -> bool {
        fs::hard_link(path, self.path(digest)).is_ok()
    }

    /// Removes the file with this digest if no recording has it. Gives how many bytes became free.
    pub(crate) fn release(&self, digest: u64) -> u64 {
        remove_unused(&self.path(digest))
    }

    /// When a file was put into it or removed the last time: by it one knows whether there is anything new to sweep for.
    #[must_use]
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(&self.dir).and_then(|found| found.modified()).ok()
    }

    /// Removes the files that no recording has. Gives how many bytes became free.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn sweep(&self) -> io::Result<u64> {
        Ok(self.files()?.iter().map(|path| remove_unused(path)).sum())
    }

    /// The files in it: all whose name is a digest.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_str().and_then(digest_in).is_some() {
                files.push(entry.path());
            }
        }
        Ok(files)
    }
}

/// Whether a folder is there, is our own, and nobody else can write to it.
#[must_use]
pub fn is_own_folder(dir: &Path) -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    // A link may lead anywhere by the time that it is used.
    fs::symlink_metadata(dir)
        .is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o022 == 0)
}

/// Removes a file of a store if it has no other link. A file that cannot be removed stays for the next time.
fn remove_unused(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.nlink() == 1 && fs::remove_file(path).is_ok() => {
            on_disk(&found)
        }
        _ => 0,
    }
}

/// How many bytes a file takes on the disk.
#[must_use]
pub fn on_disk(file: &Metadata) -> u64 {
    file.blocks() * 512
}
