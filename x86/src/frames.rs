//! Which frames of RAM hold decoded instructions, and how often each has changed since.
//!
//! A decoded block remembers the generation of the frames it came from ([`Stamp`]). A write to such a frame
//! raises its generation, so a block of the old content is never entered again.

use crate::bus::PAGE_SIZE;

/// A frame at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Byte offset of the frame in RAM.
    pub(crate) frame: u64,
    /// Its generation then.
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Default)]
struct Frame {
    generation: u32,
    has_code: bool,
}

/// The frames of RAM.
pub(crate) struct CodeFrames {
    frames: Vec<Frame>,
    /// Rises whenever a block may no longer be what its address leads to.
    epoch: u64,
}

const fn number(frame: u64) -> usize {
    (frame / PAGE_SIZE) as usize
}

impl CodeFrames {
    pub(crate) fn new(frames: usize) -> CodeFrames {
        CodeFrames { frames: vec![Frame::default(); frames], epoch: 0 }
    }

    /// A block checked in this epoch needs no further check.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn bump_epoch(&mut self) {
        self.epoch += 1;
    }

    pub(crate) fn contains(&self, frame: u64) -> bool {
        self.frames.get(number(frame)).is_some_and(|f| f.has_code)
    }

    /// Notes that instructions were decoded from `frame`; true if there were none before.
    pub(crate) fn insert(&mut self, frame: u64) -> bool {
        self.frames.get_mut(number(frame)).is_some_and(|f| !std::mem::replace(&mut f.has_code, true))
    }

    /// Notes that `frame` has new content.
    pub(crate) fn changed(&mut self, frame: u64) {
        if let Some(f) = self.frames.get_mut(number(frame))
            && f.has_code
        {
            f.has_code = false;
            f.generation += 1;
            self.epoch += 1;
        }
    }

    pub(crate) fn stamp(&self, frame: u64) -> Stamp {
        let generation = self.frames.get(number(frame)).map_or(0, |f| f.generation);
        Stamp { frame, generation }
    }

    pub(crate) fn is_current(&self, stamp: Stamp) -> bool {
        self.stamp(stamp.frame) == stamp
    }
}
