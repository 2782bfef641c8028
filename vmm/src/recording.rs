//! A recording: a folder that replay needs nothing but.
//!
//! `journal` (what happened), `program` (a copy of the executable), `core` (when it crashed), `crumbs-0` (a ring of the
//! newest exits; replay does without) with `contexts-0` (by which their calling contexts are decoded), `checkpoints` (so that a replay
//! need not begin at the start), `positions` (where replays found preemptions; only to save time). A flight recorder has a folder
//! `flight` instead of the journal: numbered segments, each with a `journal` and `checkpoints` of its own, the first of which is
//! where the segment begins. All are readable by their owner only: they hold the program's memory and all that it read.

use crate::cpu_model::Model;
use crate::journal::{Header, JournalError, Reader, schema};
use crate::program::Launch;
use lbr::regular;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    dir: PathBuf,
}

/// Why a folder cannot be recorded into, or replayed from.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It has other things in it.
    #[error("{} exists and is not empty; give another folder with -o{}", dir.display(), if *recording {
        ", or --force to replace the recording in it"
    } else {
        ""
    })]
    Occupied {
        /// The folder.
        dir: PathBuf,
        /// Whether it holds an earlier recording.
        recording: bool,
    },
    /// There is no recording in it.
    #[error("{} is not a recording: it has no file `journal`, and no folder `flight` (a recorder that is killed at once leaves none)", dir.display())]
    NotARecording {
        /// The folder.
        dir: PathBuf,
    },
    /// A file cannot be made or written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Somebody took the journal away, perhaps the program itself.
    #[error("there is no recording: {} was removed, replaced or cut while it was written", path.display())]
    Lost {
        /// The journal.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The copy of the program is not what was recorded.
    #[error("{} is not the program that was recorded (digest {found:#018x}, recorded {expected:#018x}): put the \
        original back", path.display())]
    OtherProgram {
        /// The copy.
        path: PathBuf,
        /// The journal's digest.
        expected: u64,
        /// The file's digest.
        found: u64,
    },
    /// It was made by a gretel under which programs see other things, so that a replay could not be equal.
    #[error("{} was recorded with {what} {recorded}, this gretel replays {what} {}: replay it with the gretel {gretel} that \
        recorded it (`gretel --version` shows what it replays), or record again", dir.display(), current)]
    OtherGuest {
        /// The folder.
        dir: PathBuf,
        /// What differs: the behaviour or the CPU model.
        what: &'static str,
        /// The recording's.
        recorded: String,
        /// What this gretel has.
        current: String,
        /// The version of gretel that recorded it.
        gretel: String,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Recording {
    /// Makes the folder for a new recording, or takes an empty one. With `force`, an earlier recording there is
    /// removed (its own files, nothing else).
    ///
    /// # Errors
    /// When there is something else in it, or it cannot be made.
    pub fn create(dir: &Path, force: bool) -> Result<Recording, RecordingError> {
        let recording = Recording { dir: dir.to_owned() };
        let write = |error| RecordingError::Write { path: dir.to_owned(), error };
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(write)?;
        if fs::read_dir(dir).map_err(write)?.next().is_none() {
            return Ok(recording);
        }
        let earlier = recording.journal().is_file() || recording.flight().is_dir();
        if !(earlier && force) {
            return Err(RecordingError::Occupied { dir: dir.to_owned(), recording: earlier });
        }
        for path in recording.other_cores().map_err(write)? {
            removed(fs::remove_file(&path), path)?;
        }
        for path in [
            recording.journal(),
            recording.program(),
            recording.interpreter(),
            recording.core(),
            recording.crumbs(),
            recording.contexts(),
            recording.positions(),
            recording.checkpoints(),
            recording.new_checkpoints(),
        ] {
            removed(fs::remove_file(&path), path)?;
        }
        for segment in recording.segments().map_err(write)? {
            segment.remove().map_err(|error| RecordingError::Write { path: segment.dir.clone(), error })?;
        }
        removed(fs::remove_dir(recording.flight()), recording.flight())?;
        Ok(recording)
    }

    /// Makes the first of `gretel-PROGRAM-1`, `gretel-PROGRAM-2`, … in the current directory that does not exist.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_numbered(program: &str) -> Result<Recording, RecordingError> {
        let mut number = 1_u64;
        loop {
            let dir = PathBuf::from(format!("gretel-{program}-{number}"));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Recording { dir }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(RecordingError::Write { path: dir, error }),
            }
        }
    }

    /// A recording that exists.
    ///
    /// # Errors
    /// When there is no journal in `dir`.
    pub fn open(dir: &Path) -> Result<Recording, RecordingError> {
        let recording = Recording { dir: dir.to_owned() };
        if !recording.journal().is_file() && !recording.flight().is_dir() {
            return Err(RecordingError::NotARecording { dir: dir.to_owned() });
        }
        Ok(recording)
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The journal's path.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// The path of the checkpoints, whether or not there are any.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// The path of checkpoints that are to be in place of those, while they are written.
    #[must_use]
    pub fn new_checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints.new")
    }

    /// The path of a flight recorder's segments, whether or not there are any.
    #[must_use]
    pub fn flight(&self) -> PathBuf {
        self.dir.join("flight")
    }

    /// A segment of a flight recorder, whether or not it is there.
    #[must_use]
    pub fn segment(&self, number: u64) -> Segment {
        Segment { number, dir: self.flight().join(format!("{number:06}")) }
    }

    /// The segments of a flight recorder, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn segments(&self) -> io::Result<Vec<Segment>> {
        let entries = match fs::read_dir(self.flight()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut segments = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().filter(|name| name.len() >= 6).and_then(|name| name.parse().ok());
            segments.extend(number.map(|number| self.segment(number)));
        }
        segments.sort_by_key(|segment| segment.number);
        Ok(segments)
    }

    /// The path of the executable's copy.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.dir.join("program")
    }

    /// The path of the dynamic linker's copy, whether or not there is one.
    #[must_use]
    pub fn interpreter(&self) -> PathBuf {
        self.dir.join("interpreter")
    }

    /// The core's path, whether or not there is one.
    #[must_use]
    pub fn core(&self) -> PathBuf {
        self.dir.join("core")
    }

    /// The path of the core of a process that is not the first, whether or not there is one.
    #[must_use]
    pub fn core_of(&self, pid: i32) -> PathBuf {
        self.dir.join(format!("core.{pid}"))
    }

    /// The cores of processes that are not the first.
    fn other_cores(&self) -> io::Result<Vec<PathBuf>> {
        let is_pid = |name: &str| name.strip_prefix("core.").is_some_and(|pid| pid.parse::<i32>().is_ok());
        let mut cores = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_pid) {
                cores.push(entry.path());
            }
        }
        Ok(cores)
    }

    /// The path of the one virtual CPU's crumbs, whether or not there are any.
    #[must_use]
    pub fn crumbs(&self) -> PathBuf {
        self.dir.join("crumbs-0")
    }

    /// The path of the words of call sites by which contexts are decoded, whether or not there are any.
    #[must_use]
    pub fn contexts(&self) -> PathBuf {
        self.dir.join("contexts-0")
    }

    /// The path of the places at which replays found preemptions, whether or not there are any ([`crate::found`]).
    #[must_use]
    pub fn positions(&self) -> PathBuf {
        self.dir.join("positions")
    }

    /// Stores the copies of the executable and of its dynamic linker.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn store_programs(&self, launch: &Launch) -> Result<(), RecordingError> {
        let interpreter = launch.interpreter.iter().map(|i| (self.interpreter(), &i.executable));
        for (path, bytes) in std::iter::once((self.program(), &launch.executable)).chain(interpreter) {
            let stored = private_file(&path).and_then(|mut file| file.write_all(bytes));
            stored.map_err(|error| RecordingError::Write { path, error })?;
        }
        Ok(())
    }

    /// Opens the journal, which is these files, and puts together what was launched.
    ///
    /// # Errors
    /// When a file is missing, cannot be used, or is not the one that was recorded.
    pub fn load(&self, journals: Vec<PathBuf>) -> Result<(Reader, Launch), RecordingError> {
        let reader = Reader::open_all(journals)?;
        self.check_guest(reader.header())?;
        let header = reader.header();
        let mut launch = header.launch.clone();
        launch.executable = stored(self.program(), header.executable_digest)?;
        if let (Some(interpreter), Some(digest)) = (&mut launch.interpreter, header.interpreter_digest) {
            interpreter.executable = stored(self.interpreter(), digest)?;
        }
        Ok((reader, launch))
    }

    /// Whether this gretel gives a program all that the recorder gave it.
    fn check_guest(&self, header: &Header) -> Result<(), RecordingError> {
        let (behaviour, current) = (header.behaviour.to_string(), schema::BEHAVIOUR.to_string());
        let models = Model::ALL.map(Model::name);
        let differs = match Model::named(&header.model) {
            _ if behaviour != current => Some(("guest behaviour", behaviour, current)),
            None => Some(("CPU model", header.model.clone(), models.join(", "))),
            Some(_) => None,
        };
        differs.map_or(Ok(()), |(what, recorded, current)| {
            let (dir, gretel) = (self.dir.clone(), header.gretel.clone());
            Err(RecordingError::OtherGuest { dir, what, recorded, current, gretel })
        })
    }
}

/// What came of removing a file or folder that may not have been there.
fn removed(result: io::Result<()>, path: PathBuf) -> Result<(), RecordingError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RecordingError::Write { path, error }),
        _ => Ok(()),
    }
}

/// A segment of a flight recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number: zero for the one that begins with the program.
    pub number: u64,
    dir: PathBuf,
}

impl Segment {
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

    /// How many bytes its files have.
    #[must_use]
    pub fn size(&self) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        size(self.journal()) + size(self.checkpoints())
    }

    /// Removes it. The journal goes first: without it, what is left is no segment.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(&self) -> io::Result<()> {
        let is_gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        is_gone(fs::remove_file(self.journal()))?;
        is_gone(fs::remove_file(self.checkpoints()))?;
        is_gone(fs::remove_dir(&self.dir))
    }
}

/// Reads the copy of a program, which has this digest.
fn stored(path: PathBuf, expected: u64) -> Result<Vec<u8>, RecordingError> {
    let bytes = regular::read(&path).map_err(|error| RecordingError::Read { path: path.clone(), error })?;
    match schema::digest_executable(&bytes) {
        found if found != expected => Err(RecordingError::OtherProgram { path, expected, found }),
        _ => Ok(bytes),
    }
}

/// Makes a file that only its owner can read.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes such a file for writing through memory.
pub(crate) fn shared_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_things_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), "x").unwrap();
        for force in [false, true] {
            let refused = Recording::create(dir.path(), force);
            assert!(matches!(refused, Err(RecordingError::Occupied { recording: false, .. })));
        }
        assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"x");
    }

    #[test]
    fn an_earlier_recording_is_replaced_only_by_force() {
        let dir = tempfile::tempdir().unwrap();
        let recording = Recording::create(&dir.path().join("new/dir"), false).unwrap();
        fs::write(recording.journal(), "x").unwrap();
        let refused = Recording::create(recording.dir(), false);
        assert!(matches!(refused, Err(RecordingError::Occupied { recording: true, .. })));
        Recording::create(recording.dir(), true).unwrap();
        assert!(!recording.journal().exists());
    }
}
