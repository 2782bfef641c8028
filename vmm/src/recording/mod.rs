//! A recording: a folder. Replay needs nothing else.
//!
//! Example: `gretel record -o rec -- ./orders` of a dynamic program that crashes makes `rec` with these files:
//!
//! | file | what |
//! | --- | --- |
//! | `journal` | what happened |
//! | `program` | a copy of the executable |
//! | `interpreter` | its dynamic linker |
//! | `files` | the contents that the journal names, libc among them |
//! | `core` | the core of the crash |
//! | `crumbs-0`, `contexts-0` | a ring of the newest exits, and by what their calling contexts are decoded; replay does without |
//! | `checkpoints` | so that a replay need not begin at the start |
//! | `positions` | where replays found preemptions; only to save time |
//!
//! A flight recorder has a folder `flight` instead of the journal: numbered segments ([`Segment`]), each with a `journal`,
//! `files` and `checkpoints` of its own. All are readable by their owner only: they hold the program's memory and all that
//! it read.
//!
//! [`own`] says which files are a recording's own, and removes them. [`segment`] and [`window`] are of flight recorders.
//! While it is recorded, its journal is locked.

pub mod own;
mod segment;
/// A file that is not there is none to remove.
fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests;
mod window;

use crate::contents::{Store, Stores, place};
use crate::cpu_model::Model;
use crate::journal::{Header, JournalError, Reader, schema};
use crate::program::Launch;
use lbr::regular;
pub use segment::Segment;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
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
    /// It is a file.
    #[error("{} is a file; a recording is a folder: give another name with -o", dir.display())]
    NoFolder {
        /// The file.
        dir: PathBuf,
    },
    /// The program would begin in it.
    #[error("{} is the {what} of the program, which is kept from its recording; give another folder with -o", dir.display())]
    Inherited {
        /// The folder.
        dir: PathBuf,
        /// What the program has open of it.
        what: String,
    },
    /// There is no recording in it.
    #[error("{} is not a recording: it has no file `journal`, and no folder `flight` (a recorder that is killed at once leaves none)", dir.display())]
    NotARecording {
        /// The folder.
        dir: PathBuf,
    },
    /// There is nothing of that name.
    #[error("there is no recording {}: `gretel ls` shows those that are in a folder", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// No folder can be made in the working directory.
    #[error("cannot make {} in the working directory: {error}; give a folder elsewhere with -o", dir.display())]
    NotHere {
        /// The folder.
        dir: PathBuf,
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
    /// Somebody took the journal away, perhaps the program itself.
    #[error("there is no recording: {} was removed, replaced or cut while it was written", path.display())]
    Lost {
        /// The journal.
        path: PathBuf,
    },
    /// It is being recorded.
    #[error("{} is still being recorded: end the program first, or wait", dir.display())]
    Busy {
        /// The folder.
        dir: PathBuf,
    },
    /// There is something in it that is not its own.
    #[error("{} is left as it is: {} in it is no file of a recording; move it away first", dir.display(), other.display())]
    OtherThings {
        /// The folder.
        dir: PathBuf,
        /// What is in it.
        other: PathBuf,
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
        if dir.is_file() {
            return Err(RecordingError::NoFolder { dir: dir.to_owned() });
        }
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(write)?;
        if fs::read_dir(dir).map_err(write)?.next().is_none() {
            return Ok(recording);
        }
        let earlier = recording.journal().is_file() || recording.flight().is_dir();
        if !(earlier && force) {
            return Err(RecordingError::Occupied { dir: dir.to_owned(), recording: earlier });
        }
        recording.remove_own(&[])?;
        Ok(recording)
    }

    /// Makes the first of `gretel-PROGRAM-1`, `gretel-PROGRAM-2`, … in the current directory that does not exist.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create_numbered(program: &str) -> Result<Recording, RecordingError> {
        let made = Recording::create_first(|number| PathBuf::from(format!("gretel-{program}-{number}")));
        made.map_err(|error| match error {
            RecordingError::Write { path: dir, error } => RecordingError::NotHere { dir, error },
            other => other,
        })
    }

    /// Makes the first of these folders, by number from 1 up, that does not exist.
    fn create_first(named: impl Fn(u64) -> PathBuf) -> Result<Recording, RecordingError> {
        let mut number = 1;
        loop {
            let dir = named(number);
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
    /// When there is no `dir`, no journal in it, or it cannot be looked at.
    pub fn open(dir: &Path) -> Result<Recording, RecordingError> {
        let recording = Recording { dir: dir.to_owned() };
        let unreadable = |path: &Path, error| RecordingError::Read { path: path.to_owned(), error };
        match fs::metadata(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(RecordingError::Missing { dir: dir.to_owned() });
            }
            looked => looked.map_err(|error| unreadable(dir, error))?,
        };
        let journal = recording.journal();
        if let Err(error) = fs::metadata(&journal)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Err(unreadable(&journal, error));
        }
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

    /// How many bytes its files have.
    #[must_use]
    pub fn size(&self) -> u64 {
        let files =
            fs::read_dir(&self.dir).into_iter().flatten().flatten().filter_map(|file| file.metadata().ok());
        let files: u64 = files.filter(|file| file.is_file()).map(|file| file.len()).sum();
        let segments = self.segments().unwrap_or_default();
        files + segments.iter().map(Segment::size).sum::<u64>()
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

    /// The path for checkpoints that are to be in place of those, where nothing is: what a replay has left that was killed goes.
    ///
    /// # Errors
    /// When it cannot go.
    pub fn begin_checkpoints(&self) -> io::Result<PathBuf> {
        let new = self.dir.join("checkpoints.new");
        unless_missing(fs::remove_file(&new))?;
        Ok(new)
    }

    /// Puts them in place of those that are there, if they are whole; else takes them away. There are none where none was due.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn end_checkpoints(&self, whole: bool) -> io::Result<()> {
        let new = self.dir.join("checkpoints.new");
        unless_missing(if whole { fs::rename(new, self.checkpoints()) } else { fs::remove_file(new) })
    }

    /// The path of a flight recorder's segments, whether or not there are any.
    #[must_use]
    pub fn flight(&self) -> PathBuf {
        self.dir.join("flight")
    }

    /// A segment of a flight recorder, whether or not it is there.
    #[must_use]
    pub fn segment(&self, number: u64) -> Segment {
        Segment::new(&self.flight(), number)
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

    /// The processes that are not the first and left cores, by their numbers.
    #[must_use]
    pub fn others_with_cores(&self) -> Vec<i32> {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|it| it.file_name());
        let pid = |name: OsString| name.to_str()?.strip_prefix("core.")?.parse().ok();
        let mut pids: Vec<i32> = names.filter_map(pid).collect();
        pids.sort_unstable();
        pids
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

    /// Puts the executable and its dynamic linker into the folder: links to those in the store, or copies.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn store_programs(&self, launch: &Launch, store: Option<&Store>) -> Result<(), RecordingError> {
        let interpreter = launch.interpreter.iter().map(|i| (self.interpreter(), &i.executable));
        for (path, bytes) in std::iter::once((self.program(), &launch.executable)).chain(interpreter) {
            let placed = place(store, &path, schema::digest_executable(bytes), bytes);
            placed.map_err(|error| RecordingError::Write { path, error })?;
        }
        Ok(())
    }

    /// The store that it shares files with, made where it is to be.
    #[must_use]
    pub fn store(&self, stores: &Stores) -> Option<Store> {
        stores.make(&self.dir)
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
