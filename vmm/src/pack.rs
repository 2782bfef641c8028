//! A recording in one file, for another machine: a tar of its own files under zstd, with a checksum of the whole.
//!
//! Example: `pack(rec, "rec.tar.zst")` writes `program`, `interpreter`, `files/…`, `crumbs-0`, and last `journal`; `unpack` of it
//! on another machine makes the same folder, whose files are linked into the store there.
//!
//! A pack may come from anybody. Only the names that a recording has are taken ([`is_own_file`]), none twice, and of regular files
//! alone; sizes are what there is, not what is said; zeros become holes. `files/DIGEST` has the bytes that its name says, or
//! the pack is refused, so that nobody's store gets others. Journals come last: what an interruption leaves is no recording.

use crate::contents::{self, Store, digest_of_file, share};
use crate::recording::own::is_own_file;
use crate::recording::{Recording, RecordingError};
use lbr::regular;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};
use zstd::stream::{read::Decoder, write::Encoder};

/// What is copied at once, and the unit of holes.
const PIECE: usize = 64 << 10;
const BLOCK: usize = 4096;
/// Two MB that come again, as the files of a flight recorder's segments do, are found this far back: 128 MB, which every zstd reads.
const WINDOW_LOG: u32 = 27;
/// So much may be behind the last entry: tars end in blocks of zeros.
const PADDING: u64 = 1 << 20;

/// Why a recording cannot be packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The folder.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file cannot be made or written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It is no pack, or not a whole one.
    #[error("{} cannot be unpacked: {why}; nothing of it was kept, get it again from where it was packed", path.display())]
    Damaged {
        /// The pack.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What was packed or unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Writes a recording to a file, which must not exist. If that fails, there is none.
///
/// # Errors
/// When the recording is still being recorded, or something cannot be read or written.
pub fn pack(recording: &Recording, path: &Path) -> Result<Packed, PackError> {
    if recording.is_being_recorded() {
        return Err(RecordingError::Busy { dir: recording.dir().to_owned() }.into());
    }
    let unwritable = |error| PackError::Write { path: path.to_owned(), error };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    let packed = write_pack(recording, file, &unwritable);
    if packed.is_err() {
        // The error that counts is the first.
        let _ = fs::remove_file(path);
    }
    packed
}

fn write_pack(
    recording: &Recording,
    file: File,
    unwritable: &impl Fn(io::Error) -> PackError,
) -> Result<Packed, PackError> {
    let mut files = recording.inventory()?.files;
    files.sort_by_key(|(path, _)| (path.ends_with("journal"), path.clone()));
    let encoder = || -> io::Result<Encoder<'static, BufWriter<File>>> {
        let mut encoder = Encoder::new(BufWriter::new(file), 0)?;
        encoder.include_checksum(true)?;
        encoder.long_distance_matching(true)?;
        encoder.window_log(WINDOW_LOG)?;
        Ok(encoder)
    };
    let mut builder = Builder::new(encoder().map_err(unwritable)?);
    let mut packed = Packed::default();
    for (name, _) in files {
        let whole = recording.dir().join(&name);
        let unreadable = |error| PackError::Read { path: whole.clone(), error };
        let mut content = Exactly { left: 0, file: regular::open(&whole).map_err(unreadable)?, failed: None };
        let found = content.file.metadata().map_err(unreadable)?;
        content.left = found.len();
        let mut header = Header::new_ustar();
        header.set_size(found.len());
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
        header.set_entry_type(EntryType::Regular);
        let appended = builder.append_data(&mut header, &name, &mut content);
        if let Some(error) = content.failed {
            return Err(unreadable(error));
        }
        appended.map_err(unwritable)?;
        packed.files += 1;
        packed.bytes += found.len();
    }
    let finished = builder.into_inner().and_then(Encoder::finish).and_then(|mut file| file.flush());
    finished.map_err(unwritable)?;
    Ok(packed)
}

/// So many bytes of a file; fewer are an error, which is kept to be told from those of writing.
struct Exactly {
    left: u64,
    file: File,
    failed: Option<io::Error>,
}

impl Read for Exactly {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let read = match self.file.read(&mut into[..wanted]) {
            Ok(0) if wanted > 0 => Err(io::Error::other("it was cut while it was packed")),
            read => read,
        };
        read.inspect(|n| self.left -= *n as u64).map_err(|error| {
            let told = io::Error::from(error.kind());
            self.failed = Some(error);
            told
        })
    }
}

/// Makes a recording in a folder, new or empty, from a pack. If that fails, nothing is left in it.
///
/// # Errors
/// When there is something in the folder, or the pack is damaged, or no pack, or something cannot be written.
pub fn unpack(
    pack: &Path,
    dir: &Path,
    store: impl FnOnce(&Recording) -> Option<Store>,
) -> Result<Packed, PackError> {
    let file = regular::open(pack).map_err(|error| PackError::Read { path: pack.to_owned(), error })?;
    let made = !dir.exists();
    let recording = Recording::create(dir, false)?;
    let store = store(&recording);
    let unpacking = Unpacking { pack, recording: &recording, store: store.as_ref() };
    let unpacked = unpacking.unpack(file);
    if unpacked.is_err() {
        // The error that counts is the first.
        let _ = recording.remove_own(store.as_slice());
        if made {
            let _ = fs::remove_dir(dir);
        }
    }
    unpacked
}

/// A pack that is being unpacked.
struct Unpacking<'a> {
    pack: &'a Path,
    recording: &'a Recording,
    store: Option<&'a Store>,
}

impl Unpacking<'_> {
    fn damaged(&self, why: impl ToString) -> PackError {
        PackError::Damaged { path: self.pack.to_owned(), why: why.to_string() }
    }

    fn unpack(&self, file: File) -> Result<Packed, PackError> {
        let decoder =
            Decoder::with_buffer(BufReader::with_capacity(PIECE, file)).map_err(|e| self.damaged(e))?;
        let mut archive = Archive::new(decoder);
        let mut packed = Packed::default();
        // Raw: names that do not fit into a header, and all else that is not a file, are none of a recording's.
        for entry in archive.entries().map_err(|e| self.damaged(e))?.raw(true) {
            let mut entry = entry.map_err(|e| self.damaged(e))?;
            let name = entry.path().map_err(|e| self.damaged(e))?.into_owned();
            if entry.header().entry_type() != EntryType::Regular || !is_own_file(&name) {
                return Err(self.damaged(format!("{name:?} in it is no file of a recording")));
            }
            let (size, said) = (self.take(&name, &mut entry)?, entry.size());
            if size != said {
                return Err(self.damaged(format!("{name:?} in it is cut")));
            }
            packed.bytes += size;
            packed.files += 1;
        }
        // To the end, where the checksum of the whole is.
        let behind = io::copy(&mut archive.into_inner().take(PADDING + 1), &mut io::sink());
        match behind {
            Err(error) => return Err(self.damaged(error)),
            Ok(behind) if behind > PADDING => return Err(self.damaged("something is behind its end")),
            Ok(_) => {}
        }
        match Recording::open(self.recording.dir()) {
            Err(_) => Err(self.damaged("it has no journal")),
            Ok(_) => Ok(packed),
        }
    }

    /// Writes a file of the recording; gives its size.
    fn take(&self, name: &Path, entry: &mut impl Read) -> Result<u64, PackError> {
        let path = self.recording.dir().join(name);
        let unwritable = |error| PackError::Write { path: path.clone(), error };
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritable)?;
        }
        let digest = digest_of(name);
        let mode = if is_constant(name) { 0o400 } else { 0o600 };
        let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(self.damaged(format!("{name:?} is in it twice")));
            }
            made => made.map_err(unwritable)?,
        };
        let size = self.copy(entry, &mut file, &unwritable)?;
        if !is_constant(name) {
            return Ok(size);
        }
        let found = digest_of_file(&path).map_err(unwritable)?;
        if digest.is_some_and(|digest| digest != found) {
            return Err(
                self.damaged(format!("{name:?} in it has other bytes than its name says ({found:016x})"))
            );
        }
        self.store.map_or(Ok(()), |store| share(store, &path, found)).map_err(unwritable)?;
        Ok(size)
    }

    /// Copies to the end, and leaves holes for zeros.
    fn copy(
        &self,
        entry: &mut impl Read,
        file: &mut File,
        unwritable: &impl Fn(io::Error) -> PackError,
    ) -> Result<u64, PackError> {
        let (mut piece, mut size) = (Vec::with_capacity(PIECE), 0);
        loop {
            piece.clear();
            entry.by_ref().take(PIECE as u64).read_to_end(&mut piece).map_err(|e| self.damaged(e))?;
            if piece.is_empty() {
                file.set_len(size).map_err(unwritable)?;
                return Ok(size);
            }
            for block in piece.chunks(BLOCK) {
                let written = match block.iter().all(|byte| *byte == 0) {
                    true => file.seek(SeekFrom::Start(size + block.len() as u64)).map(|_| ()),
                    false => file.write_all(block),
                };
                written.map_err(unwritable)?;
                size += block.len() as u64;
            }
        }
    }
}

/// Whether a file of a recording never changes, and may be a link.
fn is_constant(name: &Path) -> bool {
    digest_of(name).is_some()
        || [OsStr::new("program"), OsStr::new("interpreter")].contains(&name.as_os_str())
}

/// The digest that the name of a content says.
fn digest_of(name: &Path) -> Option<u64> {
    let folder = name.parent().and_then(Path::file_name);
    let is_content = folder.is_some_and(|folder| folder == contents::FOLDER);
    name.file_name().and_then(OsStr::to_str).filter(|_| is_content).and_then(contents::digest_in)
}
