//! The frames of RAM: which hold decoded instructions, how often each of those has changed, and which were written.
//!
//! A decoded block remembers the generations of the frames it came from ([`Stamp`]). A write to such a frame
//! raises its generation, so a block of the old content is never entered again. Blocks of other frames stay.

use crate::bus::PAGE_SIZE;

/// A frame at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    is_written: bool,
}

/// The frames of RAM. The table grows with the frames that are used, as RAM may.
#[derive(Default)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    /// Rises whenever a block may no longer be what its address leads to.
    epoch: u64,
    /// The frames with `is_written`.
    written: Vec<u64>,
}

const fn number(frame: u64) -> usize {
    (frame / PAGE_SIZE) as usize
}

impl Frames {
    /// A block checked in this epoch needs no further check.
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn bump_epoch(&mut self) {
        self.epoch += 1;
    }

    /// `frame`, which is inside RAM.
    fn entry(&mut self, frame: u64) -> &mut Frame {
        let n = number(frame);
        if n >= self.frames.len() {
            self.frames.resize(n + 1, Frame::default());
        }
        &mut self.frames[n]
    }

    pub(crate) fn has_code(&self, frame: u64) -> bool {
        self.frames.get(number(frame)).is_some_and(|f| f.has_code)
    }

    /// Notes that instructions were decoded from `frame`; true if there were none before.
    pub(crate) fn add_code(&mut self, frame: u64) -> bool {
        !std::mem::replace(&mut self.entry(frame).has_code, true)
    }

    /// Notes that `frame`, inside RAM or not, has new content.
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

    /// Notes that stores to `frame` may follow.
    pub(crate) fn add_written(&mut self, frame: u64) {
        if !std::mem::replace(&mut self.entry(frame).is_written, true) {
            self.written.push(frame);
        }
    }

    /// The frames of [`Frames::add_written`] since the last call, in order.
    pub(crate) fn take_written(&mut self) -> Vec<u64> {
        let mut written = std::mem::take(&mut self.written);
        for frame in &written {
            self.entry(*frame).is_written = false;
        }
        written.sort_unstable();
        written
    }
}
