//! A flight recorder's window, kept: what there is now stays when the recorder removes its oldest segments.

use super::{Recording, RecordingError};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Folders of kept windows are this and a number, in the recording's folder.
pub(super) const KEPT: &str = "kept-";

impl Recording {
    /// Keeps the window as a recording of its own in this one's folder, `kept-1` or the next that is free. Its files are links, so it takes
    /// no room until the recorder removes a segment; the newest segment goes on until the next begins.
    ///
    /// # Errors
    /// When there is no window, or it cannot be linked.
    pub fn keep_window(&self) -> Result<Recording, RecordingError> {
        let kept = Recording::create_first(|number| self.dir().join(format!("{KEPT}{number}")))?;
        let write = |error| RecordingError::Write { path: kept.dir().to_owned(), error };
        for (path, _) in self.inventory()?.files {
            if is_of_window(&path) {
                link(&self.dir().join(&path), &kept.dir().join(&path)).map_err(write)?;
            }
        }
        // A segment that went or came meanwhile.
        for segment in kept.segments().map_err(write)? {
            if !segment.journal().exists() {
                segment.remove(None).map_err(write)?;
            }
        }
        Ok(kept)
    }
}

fn is_of_window(path: &Path) -> bool {
    path.starts_with("flight") || ["program", "interpreter"].iter().any(|name| path == Path::new(name))
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    }
}
