//! What there is to say of the recordings in a folder, without replaying them.
//!
//! Example: a folder with `rec-1` and `rec-2` of one server gives two [`Summary`]s, each with the program's arguments, when it
//! began, how it ended, and [`Size`]: what would be free without it, and what it shares.
//!
//! Events are counted from the newest checkpoint on, so the journal of a long recording is read in part only.

use crate::checkpoints::{CheckpointError, Shelf};
use crate::contents::Stores;
use crate::contents::store::on_disk;
use crate::gate::Time;
use crate::journal::{End, JournalError, Reader, Record};
use crate::recording::own::Inventory;
use crate::recording::{Recording, RecordingError};
use lbr::crumb;
use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The records at its beginning among which a journal's first time is looked for.
const FIRST: usize = 64;

/// What is known of a recording.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Which.
    pub recording: Recording,
    /// When the program began, in nanoseconds since the epoch: if the recording does not say, when its journal was written last.
    pub began: u64,
    /// When its journal was written last, in nanoseconds since the epoch.
    pub written: u64,
    /// The program and its arguments; none if the journal cannot be read.
    pub argv: Vec<Vec<u8>>,
    /// How it ended.
    pub state: State,
    /// How many events it has; of one that cannot be read, `None`.
    pub events: Option<u64>,
    /// Its cores, by name.
    pub cores: Vec<String>,
    /// What it takes on the disk.
    pub size: Size,
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not: its recorder is at work.
    BeingRecorded,
    /// In order.
    Ended(End),
    /// It has no end record: the recorder was killed, or the journal is cut.
    NoEnd,
    /// The journal cannot be used, and why.
    Unreadable(String),
}

/// Bytes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Of files that no other recording has.
    pub own: u64,
    /// Of files that others have too.
    pub shared: u64,
}

/// The recordings in a folder, or the one that it is, in the order in which they began.
///
/// # Errors
/// When the folder cannot be read.
pub fn recordings(dir: &Path) -> io::Result<Vec<Recording>> {
    if let Ok(recording) = Recording::open(dir) {
        return Ok(vec![recording]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            // Named as the user would: without the dot of the current directory.
            let name = entry.file_name();
            let path = if dir == Path::new(".") { PathBuf::from(name) } else { dir.join(name) };
            found.extend(Recording::open(&path));
        }
    }
    Ok(found)
}

/// Looks at recordings; the oldest comes first.
#[must_use]
pub fn summaries(recordings: Vec<Recording>, stores: &Stores) -> Vec<Summary> {
    let mut in_stores = InStores { stores, known: HashMap::new() };
    let all = recordings.into_iter().map(|recording| summary(recording, &mut in_stores));
    let mut all: Vec<Summary> = all.collect();
    all.sort_by(|a, b| (a.began, a.recording.dir()).cmp(&(b.began, b.recording.dir())));
    all
}

/// What these recordings take on the disk together, with what they share once.
#[must_use]
pub fn size_of_all(recordings: &[Summary]) -> u64 {
    let mut known = HashSet::new();
    let inventories = recordings.iter().filter_map(|summary| summary.recording.inventory().ok());
    let files = inventories.flat_map(|inventory| inventory.files);
    files.filter(|(_, found)| known.insert(identity(found))).map(|(_, found)| on_disk(&found)).sum()
}

fn summary(recording: Recording, in_stores: &mut InStores<'_>) -> Summary {
    let is_being_recorded = recording.is_being_recorded();
    let inventory = recording.inventory().unwrap_or_default();
    let read = read(&recording);
    let (argv, first, events, state) = match read {
        Ok(Read { argv, first, events, end }) => {
            (argv, first, Some(events), end.map_or(State::NoEnd, State::Ended))
        }
        Err(why) => (Vec::new(), None, None, State::Unreadable(why)),
    };
    let state = if is_being_recorded { State::BeingRecorded } else { state };
    let journals = inventory.files.iter().filter(|(path, _)| path.ends_with("journal"));
    let written = journals.map(|(_, found)| changed(found)).max().unwrap_or(0);
    let ring = crumb::Reader::open(&recording.crumbs());
    let began = ring.map(|ring| ring.origin().real).ok().or(first).unwrap_or(written);
    let name = |(path, _): &(PathBuf, Metadata)| path.to_str().map(str::to_owned);
    let is_core =
        |name: &String| name == "core" || name.starts_with("core.") && !name.ends_with("unfinished");
    let mut cores: Vec<String> = inventory.files.iter().filter_map(name).filter(is_core).collect();
    cores.sort();
    let size = size(&inventory, in_stores.of(recording.dir()));
    Summary { recording, began, written, argv, state, events, cores, size }
}

/// When a file was changed, in nanoseconds since the epoch.
fn changed(file: &Metadata) -> u64 {
    let time = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// What a journal says.
struct Read {
    argv: Vec<Vec<u8>>,
    /// Its first time.
    first: Option<u64>,
    events: u64,
    end: Option<End>,
}

/// Reads a journal, or says why it cannot be read.
fn read(recording: &Recording) -> Result<Read, String> {
    let shelf = Shelf::open(recording).map_err(|error: CheckpointError| error.to_string())?;
    let text = |error: JournalError| error.to_string();
    let mut reader = Reader::open_all(shelf.journals()).map_err(text)?;
    reader.leave_files();
    let argv = reader.header().launch.argv.clone();
    let first = first_time(&mut reader).map_err(text)?;
    let mut reader = Reader::open_all(shelf.journals()).map_err(text)?;
    reader.leave_files();
    let mut events = 0;
    if let Some((place, before)) = shelf.newest() {
        reader.seek_to(place).map_err(text)?;
        events = before;
    }
    let mut end = None;
    while let Some(record) = reader.take().map_err(text)? {
        match record {
            Record::Begin { .. } => events += 1,
            Record::End(record) => end = Some(record),
            _ => {}
        }
    }
    Ok(Read { argv, first, events, end })
}

fn first_time(reader: &mut Reader) -> Result<Option<u64>, JournalError> {
    for _ in 0..FIRST {
        match reader.take()? {
            Some(Record::Time(Time { real, .. })) => return Ok(Some(real)),
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

/// A file, whatever its names.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Which files stores have.
struct InStores<'a> {
    stores: &'a Stores,
    known: HashMap<PathBuf, HashSet<(u64, u64)>>,
}

impl InStores<'_> {
    /// Those of the stores that this recording may have links to.
    fn of(&mut self, dir: &Path) -> HashSet<(u64, u64)> {
        let mut all = HashSet::new();
        for store in self.stores.existing(dir) {
            let files = self.known.entry(store.dir().to_owned()).or_insert_with(|| {
                let files = store.files().unwrap_or_default();
                files
                    .iter()
                    .filter_map(|file| fs::symlink_metadata(file).ok())
                    .map(|it| identity(&it))
                    .collect()
            });
            all.extend(files.iter().copied());
        }
        all
    }
}

/// A file is the recording's own if all its links are here and in the store.
fn size(inventory: &Inventory, in_stores: HashSet<(u64, u64)>) -> Size {
    let mut links: HashMap<(u64, u64), (u64, &Metadata)> = HashMap::new();
    for (_, found) in &inventory.files {
        links.entry(identity(found)).or_insert((0, found)).0 += 1;
    }
    let mut size = Size::default();
    for (identity, (here, found)) in links {
        let known = here + u64::from(in_stores.contains(&identity));
        match known >= found.nlink() {
            true => size.own += on_disk(found),
            false => size.shared += on_disk(found),
        }
    }
    size
}

/// Removes a recording, and from the stores that it may have links to what only it used. Gives how many bytes became free.
///
/// # Errors
/// As [`Recording::remove`].
pub fn remove(recording: &Recording, stores: &Stores) -> Result<u64, RecordingError> {
    let stores = stores.existing(recording.dir());
    recording.remove(&stores)
}
