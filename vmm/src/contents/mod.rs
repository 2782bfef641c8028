//! Files that do not change, kept once: the program, its dynamic linker, and the files that it maps.
//!
//! A recording's folder has a folder `files`, in which a file's name is the digest of its bytes ([`name`]); [`place`] puts it there,
//! [`read`] gets it back; [`place_file`] and [`open`] do so with what need not fit into memory. On disk such a file is a hard link to
//! one in a [`Store`] that recordings share ([`store`] says where that is), so ten recordings of one program hold one copy of libc,
//! and each folder is whole without the store.
//!
//! Example: two recordings map libc.so.6. The first writes `rec-1/files/9ff0…` and links it to `STORE/9ff0…`. The second
//! finds `STORE/9ff0…`, links it to `rec-2/files/9ff0…`, and compares all bytes. When both recordings are removed, the file in the
//! store has no other link, and [`Store::sweep`] removes it.
//!
//! A store is never needed: where there is none, or it cannot be linked to, a recording has a copy of its own.

mod large;
pub mod store;
#[cfg(test)]
mod tests;

pub use large::{open, place_file};
use lbr::regular;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
pub use store::{Store, Stores};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The name of the folder, beside a journal.
pub const FOLDER: &str = "files";
/// Contents with fewer bytes stay in the journal, where they are compressed together with their neighbours.
pub const LEAST: usize = 16 << 10;
/// So many bytes are compared at once.
const PIECE: usize = 64 << 10;

/// Why the file of a digest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It is not there, or cannot be read.
    #[error("cannot read {}, which the recording needs: {error}; {REMEDY}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It holds something else.
    #[error("{} is not what was recorded (its bytes have digest {found:016x}); {REMEDY}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// What its name should be.
        found: u64,
    },
}

/// What helps: any file of the same name has the same bytes.
const REMEDY: &str =
    "put back the file of that name from the store, another recording or a pack, or record again";

/// Whether bytes are on the disk once more than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// The store has them.
    Linked,
    /// They were written.
    Written,
}

/// The name of the file with this digest: 16 hexadecimal digits.
#[must_use]
pub fn name(digest: u64) -> String {
    format!("{digest:016x}")
}

/// The digest that a file's name says, if it is such a name.
#[must_use]
pub fn digest_in(file_name: &str) -> Option<u64> {
    let digest = u64::from_str_radix(file_name, 16).ok()?;
    (name(digest) == file_name).then_some(digest)
}

/// Has `path` be a file with these bytes, linked to the store's if that is possible. If it is there and has them, it stays.
///
/// # Errors
/// When the file cannot be written, and when there is another one: digests of 64 bits can be equal.
pub fn place(store: Option<&Store>, path: &Path, digest: u64, bytes: &[u8]) -> io::Result<Placed> {
    if store.is_some_and(|store| store.give(digest, path, bytes, bytes.len() as u64)) {
        return Ok(Placed::Linked);
    }
    match write(path, bytes) {
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists && has(path, bytes, bytes.len() as u64) =>
        {
            return Ok(Placed::Linked);
        }
        result => result?,
    }
    let Some(store) = store else { return Ok(Placed::Written) };
    if store.take(digest, path) || !store.has(digest) {
        return Ok(Placed::Written);
    }
    // Another recorder was faster: there should be one copy of the two.
    fs::remove_file(path)?;
    if store.give(digest, path, bytes, bytes.len() as u64) {
        return Ok(Placed::Linked);
    }
    write(path, bytes).map(|()| Placed::Written)
}

/// Writes a file that must not exist, and that nobody is to change. What cannot be written whole is not left.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)?;
    file.write_all(bytes).inspect_err(|_| {
        // The error that counts is the first.
        let _ = fs::remove_file(path);
    })
}

/// Whether a file has these bytes, which are so many.
fn has(path: &Path, mut bytes: impl Read, length: u64) -> bool {
    let mut same = || -> io::Result<bool> {
        let mut file = regular::open(path)?;
        if file.metadata()?.len() != length {
            return Ok(false);
        }
        let (mut found, mut expected) = (vec![0; PIECE], vec![0; PIECE]);
        let mut left = length;
        while left > 0 {
            let piece = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
            file.read_exact(&mut found[..piece])?;
            bytes.read_exact(&mut expected[..piece])?;
            if found[..piece] != expected[..piece] {
                return Ok(false);
            }
            left -= piece as u64;
        }
        Ok(true)
    };
    same().unwrap_or(false)
}

/// Has a file that is there, whose bytes have this digest, be a link to the store's. It stays as it is where that cannot be done.
///
/// # Errors
/// When the file cannot be read, or replaced.
pub(crate) fn share(store: &Store, path: &Path, digest: u64) -> io::Result<()> {
    if store.take(digest, path) {
        return Ok(());
    }
    let file = regular::open(path)?;
    let (length, linked) = (file.metadata()?.len(), path.with_extension("linked"));
    if store.give(digest, &linked, file, length) {
        fs::rename(linked, path)?;
    }
    Ok(())
}

/// The bytes of the file with this digest in a folder of such files.
///
/// # Errors
/// When it cannot be read, or has other bytes.
pub fn read(folder: &Path, digest: u64) -> Result<Vec<u8>, ContentError> {
    let path = folder.join(name(digest));
    match regular::read(&path) {
        Err(error) => Err(ContentError::Read { path, error }),
        Ok(bytes) => match xxh3_64(&bytes) {
            found if found != digest => Err(ContentError::Altered { path, found }),
            _ => Ok(bytes),
        },
    }
}

/// The digest of a file's bytes, which need not fit into memory.
pub(crate) fn digest_of_file(path: &Path) -> io::Result<u64> {
    let mut file = regular::open(path)?;
    let (mut hasher, mut piece) = (Xxh3::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.digest()),
            n => hasher.update(&piece[..n]),
        }
    }
}
