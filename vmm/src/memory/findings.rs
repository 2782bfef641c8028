//! What was found in code ([`super::search`]), kept on disk for later recordings: libc alone takes some milliseconds to look through.
//!
//! A file for each program or part of a library, in the folder that [`keep_in`] names; its name is a digest of all that decides
//! what is found: the bytes, the tables, and the text of what searches. A file that is missing or damaged is as good as none.
//!
//! Format: the numbers as eight bytes each, little-endian; XXH3-64 of them.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// What searches, and what it searches with: findings of another are not these.
const SEARCHER: [&[u8]; 8] = [
    include_bytes!("search.rs"),
    include_bytes!("candidates.rs"),
    include_bytes!("ordinary.rs"),
    include_bytes!("rewritten.rs"),
    include_bytes!("tables.rs"),
    include_bytes!("../elf/mod.rs"),
    include_bytes!("../elf/functions.rs"),
    include_bytes!("../../Cargo.toml"),
];

/// More numbers than this are not kept.
const MOST: usize = 1 << 16;

/// Has findings be kept in a folder that is there, and where nobody else may write: who can could have instructions overlooked.
pub fn keep_in(folder: PathBuf) {
    // Another folder is as good.
    let _ = FOLDER.set(folder);
}

/// What identifies a finding; `None` where nothing is kept.
pub(crate) fn key<'a>(bytes: impl IntoIterator<Item = &'a [u8]>) -> Option<u128> {
    FOLDER.get()?;
    let mut state = Xxh3::new();
    for part in SEARCHER.into_iter().chain(bytes) {
        state.update(&(part.len() as u64).to_le_bytes());
        state.update(part);
    }
    Some(state.digest128())
}

fn path(key: u128) -> Option<PathBuf> {
    Some(FOLDER.get()?.join(format!("{key:032x}")))
}

/// The numbers that were found.
pub(crate) fn load(key: u128) -> Option<Vec<u64>> {
    decode(&std::fs::read(path(key)?).ok()?)
}

/// Keeps them. Where that cannot be done, they are found again the next time.
pub(crate) fn keep(key: u128, numbers: &[u64]) {
    let Some(path) = path(key).filter(|_| numbers.len() <= MOST) else { return };
    let write = || -> std::io::Result<()> {
        // By another name first: whoever reads finds all of it or nothing.
        let unfinished = path.with_extension(std::process::id().to_string());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let written = file.write_all(&encode(numbers)).and_then(|()| std::fs::rename(&unfinished, &path));
        written.inspect_err(|_| drop(std::fs::remove_file(&unfinished)))
    };
    if let Err(error) = write() {
        tracing::debug!("{} is not kept: {error}", path.display());
    }
}

fn encode(numbers: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let digest = xxh3_64(&bytes);
    bytes.extend(digest.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<u64>> {
    let (numbers, digest) = bytes.split_last_chunk::<8>()?;
    let (words, []) = numbers.as_chunks::<8>() else { return None };
    (xxh3_64(numbers) == u64::from_le_bytes(*digest) && words.len() <= MOST)
        .then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_and_what_is_damaged_is_not() {
        let bytes = encode(&[3, u64::MAX]);
        assert_eq!(decode(&bytes), Some(vec![3, u64::MAX]));
        assert_eq!(decode(&encode(&[])), Some(vec![]));
        assert!((0..bytes.len()).all(|length| decode(&bytes[..length]).is_none()));
        assert!((0..bytes.len()).all(|at| {
            let mut other = bytes.clone();
            other[at] ^= 4;
            decode(&other).is_none()
        }));
    }

    #[test]
    fn keys_tell_parts_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        keep_in(folder.path().to_owned());
        let key = |parts: &[&'static [u8]]| key(parts.iter().copied()).expect("a folder is named");
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        keep(key(&[b"x"]), &[7]);
        assert_eq!((load(key(&[b"x"])), load(key(&[b"y"]))), (Some(vec![7]), None));
    }
}
