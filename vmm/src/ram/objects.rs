//! The pages of shared objects as they were: shared memory is not copied on write, so a checkpoint copies it at once.

use super::{Contents, Memory, OutOfFrames, Phys};

/// Copies of the pages of all shared objects. Owns one count of each page's frame, and the frame of each copy;
/// [`SavedObjects::release`] gives them back.
#[derive(Debug, Default)]
pub struct SavedObjects {
    pub(super) pages: Vec<Saved>,
    /// What the pages held that had no frame.
    pub(super) contents: Contents,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) object: u64,
    pub(super) page: u64,
    /// The frame that mappings of the page have.
    pub(super) frame: Phys,
    /// What it held.
    pub(super) copy: Phys,
}

impl SavedObjects {
    /// Copies them.
    ///
    /// # Errors
    /// When all frames are in use; then nothing was taken.
    pub fn save(memory: &mut Memory) -> Result<SavedObjects, OutOfFrames> {
        let pages: Vec<_> = memory.all_object_pages().collect();
        let contents = memory.contents().clone();
        SavedObjects::copy(memory, contents, pages)
    }

    /// Copies these pages: of which object, which of its pages, and the frame that it is in.
    ///
    /// # Errors
    /// When all frames are in use; then nothing was taken.
    pub(super) fn copy(
        memory: &mut Memory,
        contents: Contents,
        pages: impl IntoIterator<Item = (u64, u64, Phys)>,
    ) -> Result<SavedObjects, OutOfFrames> {
        let mut saved = SavedObjects { pages: Vec::new(), contents };
        for (object, page, frame) in pages {
            match memory.copy(frame) {
                Ok(copy) => {
                    memory.frames_mut().share(frame);
                    saved.pages.push(Saved { object, page, frame, copy });
                }
                Err(error) => {
                    saved.release(memory);
                    return Err(error);
                }
            }
        }
        Ok(saved)
    }

    /// Makes the objects what they were, in the frames that they had.
    pub fn restore(&self, memory: &mut Memory) {
        memory.drop_objects();
        *memory.contents_mut() = self.contents.clone();
        for Saved { object, page, frame, copy } in &self.pages {
            memory.frames_mut().share(*frame);
            memory.set_object_frame(*object, *page, *frame);
            memory.overwrite(*copy, *frame);
        }
    }

    /// Gives the frames back.
    pub fn release(self, memory: &mut Memory) {
        for Saved { frame, copy, .. } in self.pages {
            memory.frames_mut().release(frame);
            memory.frames_mut().release(copy);
        }
    }

    /// How many pages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ram::PAGE;

    #[test]
    fn a_shared_page_is_what_it_was_in_its_own_frame() {
        let mut memory = Memory::new(16 * PAGE).unwrap();
        let used = memory.frames().used();
        let frame = memory.allocate().unwrap();
        memory.set_object_frame(7, 3, frame);
        memory.ram_mut().frame_mut(frame)[0] = 1;
        let saved = SavedObjects::save(&mut memory).unwrap();
        memory.ram_mut().frame_mut(frame)[0] = 2;
        memory.drop_object(7, 0);
        let other = memory.allocate().unwrap();
        memory.set_object_frame(8, 0, other);
        saved.restore(&mut memory);
        assert_eq!(memory.all_object_pages().collect::<Vec<_>>(), [(7, 3, frame)]);
        assert_eq!(memory.ram().frame(frame)[0], 1);
        saved.release(&mut memory);
        memory.drop_objects();
        assert_eq!(memory.frames().used(), used);
    }
}
