//! Compiled code kept on disk for later runs of the same program ([`x86_jit::Kept`]): most of what a short program costs on the software
//! CPU is compiling, and interpreting until that is done.
//!
//! A file for each program, in the folder that [`keep_in`] names. Its name is a digest of the program and of this executable: code of
//! another build is never read. A file that is missing or damaged is as good as none. It decides nothing but the time that a run takes.
//!
//! Format: what [`x86_jit::Kept::to_bytes`] gives; XXH3-64 of it.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use x86_jit::Kept;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Bytes of all files at most; the oldest go.
const MOST: u64 = 256 << 20;
/// Written again when so much of the code is new: one part in this.
const NEWS: usize = 32;

/// Has code be kept in a folder that is there, and where nobody else may write: who can has gretel run what they like.
pub fn keep_in(folder: PathBuf) {
    // Another folder is as good.
    let _ = FOLDER.set(folder);
}

/// The file of the program with this digest; `None` where nothing is kept.
#[must_use]
pub fn file(program: u64) -> Option<PathBuf> {
    let folder = FOLDER.get()?;
    Some(folder.join(format!("{:032x}", key(program, &fs::metadata("/proc/self/exe").ok()?))))
}

/// What identifies a program's code: who can change an executable without its time of change can change the code, too.
fn key(program: u64, executable: &fs::Metadata) -> u128 {
    let mut state = Xxh3::new();
    for number in [program, executable.dev(), executable.ino(), executable.size()] {
        state.update(&number.to_le_bytes());
    }
    for number in [executable.mtime(), executable.mtime_nsec(), executable.ctime(), executable.ctime_nsec()] {
        state.update(&number.to_le_bytes());
    }
    state.digest128()
}

/// The code in a file ([`file`]), or none.
#[must_use]
pub fn load(file: &Path) -> Kept {
    let bytes = fs::read(file).unwrap_or_default();
    let Some(code) = undamaged(&bytes) else { return Kept::new() };
    // SAFETY: nobody else writes to the folder, the file's name says that this executable wrote it, and it is as it was written.
    unsafe { x86_jit::kept_from_bytes(code) }.unwrap_or_default()
}

fn undamaged(bytes: &[u8]) -> Option<&[u8]> {
    let (code, digest) = bytes.split_last_chunk()?;
    (xxh3_64(code) == u64::from_le_bytes(*digest)).then_some(code)
}

/// Keeps code for the next run, if enough of it is new. Where that cannot be done, it is compiled again the next time.
pub fn save(file: &Path, kept: &Kept) {
    let (made, all) = kept.sizes();
    if made == 0 || made < all / NEWS {
        return;
    }
    let mut bytes = kept.to_bytes();
    let digest = xxh3_64(&bytes);
    bytes.extend(digest.to_le_bytes());
    let folder = file.parent().unwrap_or_else(|| Path::new("/"));
    if let Err(error) = write(file, &bytes).and_then(|()| make_room(folder, MOST)) {
        tracing::debug!("{} is not kept: {error}", file.display());
    }
}

/// By another name first: whoever reads finds all of it or nothing.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = file.with_extension(std::process::id().to_string());
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = new.write_all(bytes).and_then(|()| fs::rename(&unfinished, file));
    written.inspect_err(|_| drop(fs::remove_file(&unfinished)))
}

/// Removes the oldest files of a folder while there are more bytes than `most`.
fn make_room(folder: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        if about.is_file() && is_name(&entry.file_name()) {
            files.push((about.modified()?, about.len(), entry.path()));
        }
    }
    files.sort_unstable();
    let mut bytes: u64 = files.iter().map(|(_, len, _)| len).sum();
    for (_, len, path) in files {
        if bytes <= most {
            break;
        }
        fs::remove_file(path)?;
        bytes -= len;
    }
    Ok(())
}

/// Whether a file is one of these, finished or not.
fn is_name(name: &OsStr) -> bool {
    let digits = name.as_encoded_bytes().split(|byte| *byte == b'.').next().unwrap_or_default();
    digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_is_not_read() {
        let code = Kept::new().to_bytes();
        let mut bytes = code.clone();
        bytes.extend(xxh3_64(&code).to_le_bytes());
        assert_eq!(undamaged(&bytes), Some(&code[..]));
        assert!((0..bytes.len()).all(|length| undamaged(&bytes[..length]).is_none()));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_eq!(undamaged(&other), None);
        }
    }

    #[test]
    fn the_oldest_files_go_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let names = ["0", "1", "2"].map(|digit| digit.repeat(32));
        for (age, name) in (1..).zip(&names) {
            let file = fs::File::create(path(name)).expect("a file");
            file.set_len(100).expect("its length");
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(100 * age);
            file.set_modified(time).expect("its time");
        }
        fs::write(path("something else"), [0; 1000]).expect("a file");
        make_room(folder.path(), 150).expect("room");
        assert_eq!(names.each_ref().map(|name| path(name).exists()), [true, false, false]);
        assert!(path("something else").exists());
    }

    #[test]
    fn a_program_and_an_executable_have_one_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("executable");
        fs::write(&file, "one").expect("a file");
        let about = fs::metadata(&file).expect("it is there");
        assert_eq!(key(1, &about), key(1, &about));
        assert_ne!(key(1, &about), key(2, &about));
        fs::write(&file, "two more").expect("a file");
        assert_ne!(key(1, &about), key(1, &fs::metadata(&file).expect("it is there")));
    }
}
