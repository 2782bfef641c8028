//! Frames and shared objects as a checkpoint on disk has them: a frame is a number there, and is told once whoever owns it.

use super::objects::Saved;
use super::{Contents, Memory, OutOfFrames, Phys, SavedObjects};
use crate::plain::numbers::put_u64;
use crate::plain::{In, Out, Plain};
use rustc_hash::FxHashMap;

/// Numbers for the frames that a checkpoint refers to.
#[derive(Default)]
pub(crate) struct Numbers {
    numbers: FxHashMap<Phys, u64>,
    /// By number, the frame that holds the bytes: it, or a copy of it.
    pub(crate) sources: Vec<Phys>,
}

impl Numbers {
    /// The number of a frame.
    pub(crate) fn of(&mut self, frame: Phys) -> u64 {
        self.of_copied(frame, frame)
    }

    /// The number of a frame whose bytes are those of `source`, if it is new.
    fn of_copied(&mut self, frame: Phys, source: Phys) -> u64 {
        let next = self.sources.len() as u64;
        let number = *self.numbers.entry(frame).or_insert(next);
        if number == next {
            self.sources.push(source);
        }
        number
    }
}

/// The frame of a number, if there is one.
pub(crate) fn numbered(frames: &[Phys], number: u64) -> Option<Phys> {
    frames.get(usize::try_from(number).ok()?).copied()
}

impl SavedObjects {
    /// Appends them. Their frames have to be numbered before those of mappings are.
    pub(crate) fn put(&self, out: &mut Out, numbers: &mut Numbers) {
        put_u64(&mut out.bytes, self.pages.len() as u64);
        for Saved { object, page, frame, copy } in &self.pages {
            for number in [*object, *page, numbers.of_copied(*frame, *copy)] {
                put_u64(&mut out.bytes, number);
            }
        }
        self.contents.put(out);
    }
}

/// Shared objects that were read, and are in no memory yet.
pub(crate) struct StoredObjects {
    /// Object, page, and the number of the frame.
    pages: Vec<(u64, u64, u64)>,
    contents: Contents,
}

impl StoredObjects {
    /// Takes them off; `None` if there are none, or they refer to more than `frames` frames.
    pub(crate) fn take(from: &mut In<'_>, frames: usize) -> Option<StoredObjects> {
        let page = |from: &mut In<'_>| {
            let (object, page, number) = (from.cursor.u64()?, from.cursor.u64()?, from.cursor.u64()?);
            (number < frames as u64).then_some((object, page, number))
        };
        let count = from.cursor.u64()?;
        let pages: Option<Vec<_>> = (0..count).map(|_| page(from)).collect();
        Some(StoredObjects { pages: pages?, contents: Plain::take(from)? })
    }

    /// Makes them what [`SavedObjects::save`] gives, from frames that hold their bytes.
    ///
    /// # Errors
    /// When all frames are in use; then nothing was taken.
    pub(crate) fn build(self, memory: &mut Memory, frames: &[Phys]) -> Result<SavedObjects, OutOfFrames> {
        let framed = |(object, page, number)| Some((object, page, numbered(frames, number)?));
        SavedObjects::copy(memory, self.contents, self.pages.into_iter().filter_map(framed))
    }
}
