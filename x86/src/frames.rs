//! The frames of RAM: which hold decoded instructions, how often each of those has changed, and which were written.
//!
//! A decoded block remembers the generations of the frames it came from ([`Stamp`]). A write to such a frame
//! raises its generation, so a block of the old content is never entered again. Blocks of other frames stay.

use crate::bus::PAGE_SIZE;
use xxhash_rust::xxh3::xxh3_64;

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
    /// In [`Frames::code`].
    is_listed: bool,
    /// Hash of what the frame held when the first instruction was decoded from it.
    content: u64,
}

/// The frames of RAM. The table grows with the frames that are used, as RAM may.
#[derive(Default)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    /// Rises whenever a block may no longer be what its address leads to.
    epoch: u64,
    /// The frames with `is_written`.
    written: Vec<u64>,
    /// The frames with `is_listed`: all with `has_code`, and some that had it.
    code: Vec<u64>,
}

const fn number(frame: u64) -> usize {
    (frame / PAGE_SIZE) as usize
}

/// [`PAGE_SIZE`], of a slice.
const FRAME: usize = 0x1000;

/// The hash of what a frame holds; of one outside of RAM, of nothing.
fn hash(frame: u64, ram: &[u8]) -> u64 {
    let bytes = usize::try_from(frame).ok().and_then(|start| ram.get(start..));
    xxh3_64(bytes.and_then(|bytes| bytes.first_chunk::<FRAME>()).map_or(&[], |frame| frame))
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

    /// Notes that instructions are decoded from `frame` of `ram`; true if there were none before.
    pub(crate) fn add_code(&mut self, frame: u64, ram: &[u8]) -> bool {
        let entry = self.entry(frame);
        if std::mem::replace(&mut entry.has_code, true) {
            return false;
        }
        entry.content = hash(frame, ram);
        if !std::mem::replace(&mut entry.is_listed, true) {
            self.code.push(frame);
        }
        true
    }

    /// Notes that frames of `ram` may have been written unseen: those that instructions were decoded from are compared.
    pub(crate) fn compare_code(&mut self, ram: &[u8]) {
        for frame in std::mem::take(&mut self.code) {
            let entry = self.entry(frame);
            let has_changed = entry.has_code && entry.content != hash(frame, ram);
            entry.is_listed = entry.has_code && !has_changed;
            if entry.is_listed {
                self.code.push(frame);
            }
            if has_changed {
                self.changed(frame);
            }
        }
    }

    /// So many bytes of RAM from its beginning have anything noted of them.
    pub(crate) fn noted(&self) -> u64 {
        self.frames.len() as u64 * PAGE_SIZE
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

    /// Whether stores to `frame` were allowed since the last [`Frames::take_written`].
    pub(crate) fn is_written(&self, frame: u64) -> bool {
        self.frames.get(number(frame)).is_some_and(|f| f.is_written)
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
