//! Frames that hold pages of files as they are: all who map a page and do not write to it share one frame.
//!
//! Each frame here has the cache as one owner, so that a store anywhere is to a copy. What nobody has mapped any more goes when there is
//! much of it, and when memory is used up.
//!
//! Example: each command of a shell script maps libc's code, 341 pages. The first has them copied into frames; all others have
//! them entered in their page tables.

use super::{Frames, Phys};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Weak};

/// So many frames may be here that nobody has mapped, before they go.
const MOST_FRAMES: usize = 4096;

/// What of a content a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FilePage {
    /// Where in the content it begins.
    pub(crate) at: u64,
    /// What was changed in it, as a digest: zero if nothing.
    pub(crate) changed: u64,
}

/// The pages of one content. It is known here, so that no other one has its address.
struct Pages {
    _content: Weak<Vec<u8>>,
    frames: FxHashMap<FilePage, Phys>,
}

/// The frames of all contents, by their addresses.
#[derive(Default)]
pub(super) struct FileFrames {
    contents: FxHashMap<usize, Pages>,
    /// How many frames are here.
    count: usize,
}

impl FileFrames {
    /// The frame that holds a page.
    pub(super) fn find(&self, content: &Arc<Vec<u8>>, page: FilePage) -> Option<Phys> {
        self.contents.get(&Arc::as_ptr(content).addr())?.frames.get(&page).copied()
    }

    /// Keeps a frame that holds a page and is not kept yet.
    pub(super) fn keep(&mut self, owners: &mut Frames, content: &Arc<Vec<u8>>, page: FilePage, frame: Phys) {
        let new = || Pages { _content: Arc::downgrade(content), frames: FxHashMap::default() };
        let pages = self.contents.entry(Arc::as_ptr(content).addr()).or_insert_with(new);
        owners.share(frame);
        if let Some(before) = pages.frames.insert(page, frame) {
            owners.release(before);
        } else {
            self.count += 1;
        }
    }

    /// Gives back the frames that nobody has mapped, if there are many.
    pub(super) fn tidy(&mut self, owners: &mut Frames) {
        if self.count > MOST_FRAMES {
            self.drop_unused(owners);
        }
    }

    /// Gives back the frames that nobody has mapped.
    pub(super) fn drop_unused(&mut self, owners: &mut Frames) {
        let count = &mut self.count;
        self.contents.retain(|_, pages| {
            pages.frames.retain(|_, frame| {
                let is_used = owners.owners(*frame) > 1;
                if !is_used {
                    owners.release(*frame);
                    *count -= 1;
                }
                is_used
            });
            !pages.frames.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::PAGE;

    const FIRST: FilePage = FilePage { at: 0, changed: 0 };

    #[test]
    fn a_frame_stays_as_long_as_somebody_has_it_mapped() {
        let (mut frames, mut files) = (Frames::new(PAGE, 8 * PAGE), FileFrames::default());
        let content = Arc::new(vec![1, 2, 3]);
        let (frame, _) = frames.take().unwrap();
        files.keep(&mut frames, &content, FIRST, frame);
        assert_eq!((files.find(&content, FIRST), frames.owners(frame)), (Some(frame), 2));
        assert_eq!(files.find(&content, FilePage { changed: 1, ..FIRST }), None);
        assert_eq!(files.find(&Arc::new(vec![1, 2, 3]), FIRST), None, "another content");
        files.drop_unused(&mut frames);
        assert_eq!(files.find(&content, FIRST), Some(frame));
        frames.release(frame);
        files.tidy(&mut frames);
        assert_eq!(files.find(&content, FIRST), Some(frame), "it is only one");
        files.drop_unused(&mut frames);
        assert_eq!((files.find(&content, FIRST), frames.used(), files.count), (None, 1, 0));
    }
}
