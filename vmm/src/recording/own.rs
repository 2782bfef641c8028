//! Which files are a recording's own: what is removed with it, what goes into a pack, and what may come out of one.

use super::segment::is_gone;
use super::window::KEPT;
use super::{Recording, RecordingError};
use crate::contents::store::on_disk;
use crate::contents::{self, Store};
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What there is in a recording's folder.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Its own files, by their path below the folder.
    pub files: Vec<(PathBuf, Metadata)>,
    /// Folders, each behind those that are in it.
    folders: Vec<PathBuf>,
    /// Anything else.
    pub others: Vec<PathBuf>,
}

/// Whether a path below a recording's folder is one of a file of its own.
#[must_use]
pub fn is_own_file(path: &Path) -> bool {
    let Some(names) = names(path) else { return false };
    match names[..] {
        [contents::FOLDER, name] => contents::digest_in(name).is_some(),
        ["flight", segment, "journal" | "checkpoints"] => is_segment(segment),
        ["flight", segment, contents::FOLDER, name] => {
            is_segment(segment) && contents::digest_in(name).is_some()
        }
        [name] => is_own_name(name),
        [kept, ..] if is_kept(kept) => below_kept(path).is_some_and(is_own_file),
        _ => false,
    }
}

/// Whether it may be one of a folder in which such files are.
fn is_own_folder(path: &Path) -> bool {
    match names(path).as_deref() {
        Some([contents::FOLDER | "flight"]) => true,
        Some(["flight", segment] | ["flight", segment, contents::FOLDER]) => is_segment(segment),
        Some([kept]) => is_kept(kept),
        Some([kept, ..]) if is_kept(kept) => below_kept(path).is_some_and(is_own_folder),
        _ => false,
    }
}

/// Whether a name is that of a kept window.
fn is_kept(name: &str) -> bool {
    name.strip_prefix(KEPT).is_some_and(is_number)
}

/// The rest of a path into a kept window, which has none in it itself.
fn below_kept(path: &Path) -> Option<&Path> {
    let below = path.strip_prefix(path.iter().next()?).ok()?;
    let first = below.iter().next().and_then(|name| name.to_str());
    (!first.is_some_and(is_kept)).then_some(below)
}

/// The parts of a path that goes only downwards.
fn names(path: &Path) -> Option<Vec<&str>> {
    let name = |part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    path.components().map(name).collect()
}

/// At the top of the folder. Cores and positions are written beside their place first.
fn is_own_name(name: &str) -> bool {
    match name {
        "journal" | "program" | "interpreter" | "core" | "core.unfinished" | "crumbs-0" | "contexts-0"
        | "positions" | "checkpoints" | "checkpoints.new" => true,
        _ => ["core.", "positions."].iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_number)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_segment(name: &str) -> bool {
    name.len() >= 6 && name.bytes().all(|byte| byte.is_ascii_digit())
}

impl Recording {
    /// Looks through the folder. Links are not followed.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn inventory(&self) -> Result<Inventory, RecordingError> {
        let mut inventory = Inventory::default();
        let read = |error| RecordingError::Read { path: self.dir().to_owned(), error };
        self.look_into(Path::new(""), &mut inventory).map_err(read)?;
        Ok(inventory)
    }

    fn look_into(&self, folder: &Path, inventory: &mut Inventory) -> io::Result<()> {
        for entry in fs::read_dir(self.dir().join(folder))? {
            let entry = entry?;
            let (path, found) = (folder.join(entry.file_name()), entry.metadata());
            let found = match found {
                // A replay may have renamed or removed its file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            if found.is_dir() && is_own_folder(&path) {
                self.look_into(&path, inventory)?;
                inventory.folders.push(path);
            } else if found.is_file() && is_own_file(&path) {
                inventory.files.push((path, found));
            } else {
                inventory.others.push(path);
            }
        }
        Ok(())
    }

    /// Whether a recorder is writing it, as far as locks tell: they end with the recorder, however that ends.
    #[must_use]
    pub fn is_being_recorded(&self) -> bool {
        self.journals().iter().any(|journal| {
            let file = File::open(journal);
            file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
        })
    }

    /// The journal, or those of all segments.
    fn journals(&self) -> Vec<PathBuf> {
        let segments = self.segments().unwrap_or_default();
        let journals = segments.iter().map(super::Segment::journal);
        journals.chain([self.journal()]).filter(|journal| journal.is_file()).collect()
    }

    /// Removes the recording and its folder, and from these stores what only it used. Gives how many bytes became free.
    ///
    /// # Errors
    /// When it is being recorded, or there is something else in its folder, or files cannot be removed.
    pub fn remove(&self, stores: &[Store]) -> Result<u64, RecordingError> {
        if let Some(other) = self.inventory()?.others.into_iter().next() {
            return Err(RecordingError::OtherThings { dir: self.dir().to_owned(), other });
        }
        let freed = self.remove_own(stores)?;
        let write = |error| RecordingError::Write { path: self.dir().to_owned(), error };
        is_gone(fs::remove_dir(self.dir())).map_err(write)?;
        Ok(freed)
    }

    /// Removes its own files, and the folders in which nothing else is. The journals go last: what an interruption leaves is
    /// a recording that can be removed.
    pub(crate) fn remove_own(&self, stores: &[Store]) -> Result<u64, RecordingError> {
        if self.is_being_recorded() {
            return Err(RecordingError::Busy { dir: self.dir().to_owned() });
        }
        let mut inventory = self.inventory()?;
        inventory.files.sort_by_key(|(path, _)| path.ends_with("journal"));
        let mut freed = 0;
        for (path, found) in &inventory.files {
            let whole = self.dir().join(path);
            // Others may have gone since: of two links in this folder, the second one frees it.
            let links = fs::symlink_metadata(&whole).map_or_else(|_| found.nlink(), |found| found.nlink());
            let removed = is_gone(fs::remove_file(&whole));
            removed.map_err(|error| RecordingError::Write { path: whole, error })?;
            freed += if links == 1 { on_disk(found) } else { 0 };
        }
        for folder in &inventory.folders {
            match is_gone(fs::remove_dir(self.dir().join(folder))) {
                Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => {
                    return Err(RecordingError::Write { path: self.dir().join(folder), error });
                }
                _ => {}
            }
        }
        Ok(freed + stores.iter().map(|store| store.sweep().unwrap_or(0)).sum::<u64>())
    }
}
