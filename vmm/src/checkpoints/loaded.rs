//! The pages of a checkpoint that was brought into memory, by their numbers in its file.
//!
//! Two checkpoints of a file have most of their pages in common. Who brings one into memory while another is there shares those frames,
//! and reads no more than the others: stores to a frame that somebody else has, too, are stores to a copy.

use super::index::Filled;
use crate::ram::{Memory, Phys};
use rustc_hash::FxHashMap;

/// Frames that hold pages of a file of checkpoints. They are held until they are let go.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Which journal's file it is.
    file: usize,
    /// By the page's number. Where several frames hold the same page, it is one of them.
    frames: FxHashMap<u64, Phys>,
}

impl Loaded {
    /// Takes over these frames of a journal's checkpoints.
    pub(super) fn new(file: usize, filled: Filled, memory: &mut Memory) -> Loaded {
        let mut by_number = FxHashMap::default();
        for (number, frame) in filled.numbers.into_iter().zip(filled.frames) {
            if let Some(other) = by_number.insert(number, frame) {
                memory.frames_mut().release(other);
            }
        }
        Loaded { file, frames: by_number }
    }

    /// The frame that holds a page of this journal's checkpoints.
    pub(super) fn frame(&self, file: usize, number: u64) -> Option<Phys> {
        if self.file == file { self.frames.get(&number).copied() } else { None }
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
