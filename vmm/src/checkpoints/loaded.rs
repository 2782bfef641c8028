//! The frames of a checkpoint that was brought into memory.
//!
//! Two checkpoints of a file have most of their frames in common. Who brings one into memory while another is there shares those, and
//! reads no more than the others: stores to a frame that somebody else has, too, are stores to a copy.
//!
//! Not all that hold the same are the same frame: that two checkpoints have one says that nothing was stored to it in between
//! ([`crate::travel`] passes over such a stretch). A word that was changed and changed back is in another frame, with the same bytes.

use super::index::Filled;
use crate::ram::{Memory, Phys};
use rustc_hash::FxHashMap;

/// What a frame has in a file of checkpoints: two with the same were not stored to in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Same {
    /// The number of the page that it holds.
    pub(super) page: u64,
    /// Its version.
    pub(super) version: u64,
}

/// Frames that hold pages of a file of checkpoints. They are held until they are let go.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Which journal's file it is.
    file: usize,
    frames: FxHashMap<Same, Phys>,
}

impl Loaded {
    /// Takes over these frames of a journal's checkpoints.
    pub(super) fn new(file: usize, filled: Filled, memory: &mut Memory) -> Loaded {
        let mut frames = FxHashMap::default();
        for (same, frame) in filled.known_by.into_iter().zip(filled.frames) {
            if let Some(other) = frames.insert(same, frame) {
                memory.frames_mut().release(other);
            }
        }
        Loaded { file, frames }
    }

    /// The frame that a checkpoint of this journal has so.
    pub(super) fn frame(&self, file: usize, same: Same) -> Option<Phys> {
        if self.file == file { self.frames.get(&same).copied() } else { None }
    }

    /// Whether it has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Gives the frames back.
    pub(crate) fn release(self, memory: &mut Memory) {
        self.frames.into_values().for_each(|frame| memory.frames_mut().release(frame));
    }
}
