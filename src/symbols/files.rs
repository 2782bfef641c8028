//! Where the bytes of a module are: in the recording's folder, else on this machine.
//!
//! What is mapped of a file's beginning says which file it is: the program headers, the section headers' place, and, as linkers lay
//! files out, the build-id are in it.

use crate::log::say;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use vmm::contents;
use vmm::recording::Recording;

/// So many bytes of a file's beginning are compared.
pub(super) const HEADERS: usize = 4096;
/// Less than this is no ELF header.
const LEAST: usize = 64;

/// The files of one recording.
pub(super) struct Files {
    dir: PathBuf,
    /// The ELF files among them, with their beginnings; looked at when first asked for.
    kept: OnceCell<Vec<(PathBuf, Vec<u8>)>>,
    /// Whose absence was said.
    said: HashSet<String>,
}

impl Files {
    pub(super) fn of(dir: &Path) -> Files {
        Files { dir: dir.to_owned(), kept: OnceCell::new(), said: HashSet::new() }
    }

    /// The first file that begins as what is mapped and of which `read` makes something: the recording's, or this machine's of that
    /// name. A recording has only that part of a file that was mapped, so a library with its section headers behind that is read here.
    pub(super) fn find<T>(
        &mut self,
        name: &str,
        mapped: &[u8],
        read: impl Fn(&Path) -> Option<T>,
    ) -> Option<T> {
        let kept = self.kept.get_or_init(|| elf_files(&self.dir));
        let fits = |begins: &Vec<u8>| mapped.starts_with(begins) && begins.len() >= LEAST;
        let mut recorded = kept.iter().filter(|(_, begins)| fits(begins));
        let found = recorded.find_map(|(path, _)| read(path));
        if found.is_some() {
            return found;
        }
        let here = begins(Path::new(name));
        let is_it = here.as_ref().is_some_and(fits);
        let found = if is_it { read(Path::new(name)) } else { None };
        if found.is_none() && self.said.insert(name.to_owned()) {
            let why = match here {
                _ if is_it => "cannot be read as a program",
                Some(_) => {
                    "is another file here than was recorded, and the recording has no whole copy of it"
                }
                None => "is not here, and the recording has no whole copy of it",
            };
            say!("gretel: {name} {why}: its functions have no names");
        }
        found
    }
}

/// The beginning of a file; `None` where there is none, or it is no ordinary file.
fn begins(path: &Path) -> Option<Vec<u8>> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(HEADERS as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The ELF files in a recording's folder, and in the segments of a flight recorder.
fn elf_files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths = Vec::new();
    let mut folders = vec![dir.join(contents::FOLDER)];
    if let Ok(recording) = Recording::open(dir) {
        paths.extend([recording.program(), recording.interpreter()]);
        let segments = fs::read_dir(recording.flight()).into_iter().flatten().flatten();
        folders.extend(segments.map(|segment| segment.path().join(contents::FOLDER)));
    }
    for folder in folders {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.sort();
        paths.extend(inside);
    }
    let with_beginning = paths.into_iter().filter_map(|path| Some((begins(&path)?, path)));
    with_beginning.filter(|(begins, _)| begins.starts_with(b"\x7fELF")).map(|(it, path)| (path, it)).collect()
}
