//! All that a recording has of the past: the files of its journal, and the checkpoints beside them.
//!
//! A whole recording is one journal, and perhaps checkpoints, which it does without if they are damaged. A window is the segments
//! that a flight recorder has left: it begins at the first one that begins with a whole checkpoint, or with the program; what is
//! before that is not used, and [`Shelf::notes`] says so.

use super::index::Index;
use super::loaded::Loaded;
use super::{About, CheckpointError, identity};
use crate::journal::reader::{Place, whole_to};
use crate::journal::{Cut, JournalError, Reader};
use crate::position::Position;
use crate::process::{Checkpoint, Process};
use crate::ram::Virt;
use crate::recording::{Recording, Segment};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// The journal's files and their checkpoints.
pub struct Shelf {
    journals: Vec<PathBuf>,
    /// By journal.
    indexes: Vec<Option<Index>>,
    /// Whether there is a checkpoint that the window begins with.
    is_window: bool,
    notes: Vec<String>,
    /// The journal's file with the first damage, or the last one, and up to which offset it is whole.
    whole: OnceCell<(usize, u64)>,
}

/// A checkpoint on the shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    file: usize,
    number: usize,
}

/// The versions of frames at a checkpoint, which compare with those at others of its file.
#[derive(PartialEq, Eq)]
pub(crate) struct Versions {
    file: usize,
    frames: Vec<u64>,
}

impl Shelf {
    /// Looks at what a recording has.
    ///
    /// # Errors
    /// When it is a window that cannot be begun with.
    pub fn open(recording: &Recording) -> Result<Shelf, CheckpointError> {
        if recording.journal().is_file() {
            return Ok(Shelf::whole(recording));
        }
        let io = |error| CheckpointError::Io { path: recording.flight(), error };
        let mut segments = recording.segments().map_err(io)?;
        let (mut notes, mut first_error) = (Vec::new(), None);
        while let Some(segment) = segments.first() {
            match begin(segment) {
                Ok(index) => return Ok(Shelf::window(&segments, index, notes)),
                Err(Unusable::Incomplete(why)) => {
                    notes.push(format!("segment {} is not used: {why}", segment.journal().display()));
                }
                Err(Unusable::Damaged(error)) => {
                    notes.push(format!("segment {} is not used: {error}", segment.journal().display()));
                    first_error = first_error.or(Some(error));
                }
            }
            segments.remove(0);
        }
        Err(first_error.unwrap_or_else(|| CheckpointError::NoBeginning {
            path: recording.flight(),
            why: notes.iter().map(|note| format!("; {note}")).collect(),
        }))
    }

    fn whole(recording: &Recording) -> Shelf {
        let (journal, checkpoints) = (recording.journal(), recording.checkpoints());
        let mut notes = Vec::new();
        let index = index_of(&journal, &checkpoints).unwrap_or_else(|error| {
            notes.push(format!("{error}; replay does without"));
            None
        });
        let damage = index.iter().filter_map(Index::damage);
        notes.extend(damage.map(|damage| format!("{damage}; checkpoints before that are used")));
        Shelf {
            journals: vec![journal],
            indexes: vec![index],
            is_window: false,
            notes,
            whole: OnceCell::new(),
        }
    }

    fn window(segments: &[Segment], first: Option<Index>, notes: Vec<String>) -> Shelf {
        let is_window = segments.first().is_some_and(|segment| segment.number > 0);
        // A recorder that was killed at once may have left a folder without a journal behind the last.
        let segments = segments.iter().take_while(|segment| segment.journal().is_file());
        let (mut journals, mut indexes, mut first) = (Vec::new(), Vec::new(), Some(first));
        for segment in segments {
            // Those behind the first only save time.
            let index = |()| index_of(&segment.journal(), &segment.checkpoints()).unwrap_or_default();
            indexes.push(first.take().unwrap_or_else(|| index(())));
            journals.push(segment.journal());
        }
        Shelf { journals, indexes, is_window, notes, whole: OnceCell::new() }
    }

    /// The files of the journal.
    #[must_use]
    pub fn journals(&self) -> Vec<PathBuf> {
        self.journals.clone()
    }

    /// What is not used, and why: to be told.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The checkpoint that the window begins with; `None` if the recording begins with the program.
    #[must_use]
    pub fn beginning(&self) -> Option<At> {
        self.is_window.then_some(At { file: 0, number: 0 })
    }

    /// The checkpoints, the last one first.
    pub fn newest_first(&self) -> impl Iterator<Item = (At, About)> {
        let files = self.indexes.iter().enumerate().rev();
        files.flat_map(|(file, index)| {
            let all = index.iter().flat_map(|index| index.all().copied().enumerate());
            let mut all: Vec<_> = all.map(|(number, about)| (At { file, number }, about)).collect();
            all.reverse();
            all
        })
    }

    /// Whether a replay has left the checkpoints, page by page: a recorder begins a frame of the journal at each of its own.
    #[must_use]
    pub fn is_of_replay(&self) -> bool {
        self.newest_first().any(|(_, about)| about.record > 0)
    }

    /// What is known of a checkpoint.
    #[must_use]
    pub fn about(&self, at: At) -> Option<About> {
        self.indexes.get(at.file)?.as_ref()?.all().nth(at.number).copied()
    }

    /// What says of two checkpoints that nothing was stored to these processes' pages between them: it is the same. `None` where no
    /// checkpoint is at this position, and where its file does not say it.
    pub(crate) fn versions(
        &self,
        position: Position,
        process: &Process,
        pages: &[(i32, Virt)],
    ) -> Option<Versions> {
        let (at, _) = self.newest_first().find(|(_, about)| about.position == position)?;
        let index = self.indexes.get(at.file)?.as_ref()?;
        Some(Versions { file: at.file, frames: index.versions(at.number, process, pages)? })
    }

    /// Whether the journal is whole up to a checkpoint, so that nothing is passed over by who begins there.
    pub(crate) fn is_reached(&self, at: At) -> bool {
        let whole = *self.whole.get_or_init(|| whole(&self.journals));
        self.about(at).is_some_and(|about| (at.file, about.offset) <= whole)
    }

    /// Brings a checkpoint into a program's memory, and what frames it has; with them, where the journal goes on. Those that others of
    /// `there` have as well are shared with them.
    ///
    /// # Errors
    /// When it is damaged, and when the frames of memory are used up.
    pub(crate) fn load(
        &self,
        at: At,
        process: &mut Process,
        there: &[&Loaded],
    ) -> Result<(Checkpoint, Loaded, Place, About), CheckpointError> {
        let found = self.indexes.get(at.file).and_then(Option::as_ref).zip(self.about(at));
        let (index, about) = found.expect("a checkpoint that is on the shelf");
        let there = |same| there.iter().find_map(|it| it.frame(at.file, same));
        let (checkpoint, filled) = index.load(at.number, process, there)?;
        let loaded = Loaded::new(at.file, filled, process.memory_mut());
        Ok((checkpoint, loaded, goes_on(at, about), about))
    }

    /// The newest checkpoint: where the journal goes on behind it, and how many events are before.
    pub(crate) fn newest(&self) -> Option<(Place, u64)> {
        self.newest_first().next().map(|(at, about)| (goes_on(at, about), about.position.event))
    }
}

/// The first of a journal's files that ends in damage, or the last one; and up to which offset it is whole.
fn whole(journals: &[PathBuf]) -> (usize, u64) {
    let mut reached = (0, 0);
    for (file, path) in journals.iter().enumerate() {
        let to = whole_to(path).unwrap_or_default();
        reached = (file, to);
        if std::fs::metadata(path).map_or(0, |metadata| metadata.len()) > to {
            break;
        }
    }
    reached
}

/// Where the journal goes on behind a checkpoint.
fn goes_on(at: At, about: About) -> Place {
    let cut = Cut { offset: about.offset, sequence: about.sequence };
    Place::of_frame(at.file, cut, about.record)
}

/// Why a window does not begin with a segment.
enum Unusable {
    /// It was being made, or removed, when the recorder ended.
    Incomplete(String),
    /// It is not what was written.
    Damaged(CheckpointError),
}

/// The checkpoints of the segment, if a window can begin with it.
fn begin(segment: &Segment) -> Result<Option<Index>, Unusable> {
    if !segment.journal().is_file() {
        return Err(Unusable::Incomplete("it has no journal".to_owned()));
    }
    if let (1.., Err(error)) = (segment.number, Reader::open(&segment.journal())) {
        return Err(Unusable::Incomplete(error.to_string()));
    }
    let index = index_of(&segment.journal(), &segment.checkpoints());
    if segment.number == 0 {
        return Ok(index.unwrap_or_default());
    }
    match index {
        Ok(Some(index)) if index.all().next().is_some_and(|first| first.sequence == 1) => Ok(Some(index)),
        Ok(Some(index)) => Err(Unusable::Incomplete(match index.damage() {
            Some(damage) => format!("its first checkpoint is not whole: {damage}"),
            None => "it does not begin with a checkpoint".to_owned(),
        })),
        Ok(None) => Err(Unusable::Incomplete("it has no checkpoints".to_owned())),
        Err(error) => Err(Unusable::Damaged(error)),
    }
}

/// The checkpoints beside a journal, if there are any.
fn index_of(journal: &Path, checkpoints: &Path) -> Result<Option<Index>, CheckpointError> {
    if !checkpoints.is_file() {
        return Ok(None);
    }
    // What is wrong with the journal is said when it is opened.
    let opened: Result<Reader, JournalError> = Reader::open(journal);
    opened.map_or(Ok(None), |reader| Index::open(checkpoints, identity(reader.header())).map(Some))
}
