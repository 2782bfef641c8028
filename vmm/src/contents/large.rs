//! Contents that need not fit into memory, as images of disks: they are read in pieces, and zeros become holes.

use super::{ContentError, PIECE, Store, digest_of_file, name};
use lbr::regular;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Has the folder hold a file with the bytes of `source`, linked to the store's if that is possible; what its name is, the digest.
///
/// # Errors
/// When a file cannot be read or written, or has changed meanwhile.
pub fn place_file(store: Option<&Store>, folder: &Path, source: &Path) -> io::Result<u64> {
    let digest = digest_of_file(source)?;
    let file = regular::open(source)?;
    let (length, path) = (file.metadata()?.len(), folder.join(name(digest)));
    if store.is_some_and(|store| store.give(digest, &path, file, length)) {
        return Ok(digest);
    }
    let copied = copy(source, &path).and_then(|found| match found == digest {
        true => Ok(digest),
        false => Err(io::Error::other("it has changed while it was read")),
    });
    if copied.is_err() {
        // The error that counts is the first.
        let _ = fs::remove_file(&path);
    } else if let Some(store) = store {
        // Where it is there already it has other bytes, and this one stays alone.
        store.take(digest, &path);
    }
    copied
}

/// Copies a file to one that must not exist, and that nobody is to change: the digest of what was copied.
fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let (mut from, mut hasher) = (regular::open(from)?, Xxh3::new());
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o400).open(to)?;
    let (mut piece, mut length) = (vec![0; PIECE], 0);
    loop {
        let n = from.read(&mut piece)?;
        if n == 0 {
            to.set_len(length)?;
            return Ok(hasher.digest());
        }
        hasher.update(&piece[..n]);
        length += n as u64;
        if piece[..n].iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Start(length))?;
        } else {
            to.write_all(&piece[..n])?;
        }
    }
}

/// Opens the file with this digest in a folder of such files, when its bytes have been looked through.
///
/// # Errors
/// When it cannot be read, or has other bytes.
pub fn open(folder: &Path, digest: u64) -> Result<File, ContentError> {
    let path = folder.join(name(digest));
    match regular::open(&path).and_then(|file| Ok((file, digest_of_file(&path)?))) {
        Err(error) => Err(ContentError::Read { path, error }),
        Ok((_, found)) if found != digest => Err(ContentError::Altered { path, found }),
        Ok((file, _)) => Ok(file),
    }
}
