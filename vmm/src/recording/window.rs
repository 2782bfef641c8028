//! A flight recorder's window, kept: what there is now stays when the recorder removes its oldest segments.

use super::{Recording, RecordingError, Segment, private_file};
use crate::journal::{Cut, End, Record, frame};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Folders of kept windows are this and a number, in the recording's folder.
pub(super) const KEPT: &str = "kept-";

impl Recording {
    /// Keeps the window as a recording of its own in this one's folder, `kept-1` or the next that is free. It ends at `cut`, up to which
    /// the recorder has written the journal `newest`; of that segment it has copies, since the recorder goes on with it. All other files
    /// are links, so they take no room until the recorder removes a segment.
    ///
    /// # Errors
    /// When there is no window, or it cannot be written.
    pub fn keep_window(&self, newest: &Path, cut: Cut) -> Result<Recording, RecordingError> {
        let kept = Recording::create_first(|number| self.dir().join(format!("{KEPT}{number}")))?;
        self.keep_in(&kept, newest, cut)
            .map_err(|error| RecordingError::Write { path: kept.dir().to_owned(), error })?;
        Ok(kept)
    }

    fn keep_in(&self, kept: &Recording, newest: &Path, cut: Cut) -> io::Result<()> {
        link(&self.program(), &kept.program())?;
        link(&self.interpreter(), &kept.interpreter())?;
        for segment in self.segments()? {
            let copy = kept.segment(segment.number);
            match segment.journal() == newest {
                true => copy_up_to(&segment, &copy, cut)?,
                false => link_all(&segment, &copy)?,
            }
        }
        // A segment that went meanwhile.
        for segment in kept.segments()? {
            if !segment.journal().exists() {
                segment.remove(None)?;
            }
        }
        Ok(())
    }
}

/// Links a segment that is whole. The journal comes last, since it goes first when the recorder removes the segment: where there is one
/// still, all that it names was there.
fn link_all(from: &Segment, to: &Segment) -> io::Result<()> {
    link_files(from, to)?;
    link(&from.checkpoints(), &to.checkpoints())?;
    link(&from.journal(), &to.journal())
}

/// Copies a segment that is being written: its journal up to `cut`, and then an end. Contents are in place before the journal names them,
/// so those that it names up to there are among those of now.
fn copy_up_to(from: &Segment, to: &Segment, cut: Cut) -> io::Result<()> {
    link_files(from, to)?;
    if let Some(mut written) = open(&from.checkpoints())? {
        io::copy(&mut written, &mut private_file(&to.checkpoints())?)?;
    }
    let Some(written) = open(&from.journal())? else { return Ok(()) };
    let mut journal = private_file(&to.journal())?;
    io::copy(&mut written.take(cut.offset), &mut journal)?;
    let mut end = Vec::new();
    Record::End(End::Kept).encode(&mut end);
    journal.write_all(&frame::pack(cut.sequence, &end)?)
}

fn link_files(from: &Segment, to: &Segment) -> io::Result<()> {
    to.create()?;
    for (digest, file) in from.files() {
        link(&file, &to.file(digest))?;
    }
    Ok(())
}

/// Links a file, if it is there.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    }
}

/// Opens a file, if it is there.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}
