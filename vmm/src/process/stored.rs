//! A checkpoint as bytes: what is written of it to disk, and what is made of that again.
//!
//! Everything but the bytes of pages and files is encoded at once, since the kernel goes on; those are referred to, and stay as they
//! are until the checkpoint is released, so that another thread can write them while the program runs ([`Image`]).

use super::checkpoint::counts_since_event;
use super::{Checkpoint, Process};
use crate::engine::Counters;
use crate::failure::ProcessError;
use crate::linux::{Arena, Kernel, Spaces};
use crate::memory::space::SpaceError;
use crate::memory::stored::StoredSpace;
use crate::plain::{Blob, In, Out, Plain};
use crate::position::Position;
use crate::ram::stored::{Numbers, StoredObjects};
use crate::ram::{Memory, Phys, Virt};
use crate::signal::Death;
use std::sync::Arc;
use x86::state::State;

/// What a checkpoint is on disk.
pub(crate) struct Image {
    /// All but what follows.
    pub(crate) head: Vec<u8>,
    /// What files held, by their numbers in `head`.
    pub(crate) blobs: Vec<Blob>,
    /// The frames that hold the pages, by their numbers in `head`.
    pub(crate) frames: Vec<Phys>,
}

impl Checkpoint {
    /// What there is to write. `memory` is the one that it was taken in; the frames belong to the checkpoint.
    pub(crate) fn image(&self, memory: &Memory) -> Image {
        let (mut out, mut numbers) = (Out::default(), Numbers::default());
        let Checkpoint { spaces, space, objects, kernel, state, position, counters, .. } = self;
        position.put(&mut out);
        counters.filter(|_| !self.counts_late).put(&mut out);
        state.put(&mut out);
        self.slice_left.put(&mut out);
        self.dying.put(&mut out);
        self.first_death.put(&mut out);
        objects.put(&mut out, &mut numbers);
        space.put(&mut out);
        spaces.map(|space| StoredSpace::of(space, memory.ram(), &mut numbers)).put(&mut out);
        kernel.put(&mut out);
        Image { head: out.bytes, blobs: out.blobs, frames: numbers.sources }
    }
}

/// A checkpoint that was read, and is in no memory yet.
pub(crate) struct Stored {
    position: Position,
    counters: Option<Counters>,
    state: State,
    slice_left: u64,
    dying: Option<Death>,
    first_death: Option<Death>,
    objects: StoredObjects,
    space: u32,
    spaces: Arena<StoredSpace>,
    kernel: Kernel,
}

impl Stored {
    /// The number of the frame of a process's page, if it is there and no other address space stores to it.
    pub(crate) fn private_frame(&self, pid: i32, page: Virt) -> Option<u64> {
        self.spaces.get(self.kernel.tasks.space_of(pid)?).private_frame(page)
    }
}

impl Process {
    /// Reads the head of an [`Image`] that refers to these contents and to so many frames; `None` if it is none.
    pub(crate) fn read_stored(&self, head: &[u8], blobs: &[Arc<Vec<u8>>], frames: usize) -> Option<Stored> {
        let stored = self.look_at_stored(head, blobs, frames)?;
        let is_whole = stored.spaces.iter().all(|(_, space)| space.fits(frames));
        is_whole.then_some(stored)
    }

    /// The same for who will not build it: of its pages it is not known whether they are mapped and have frames.
    pub(crate) fn look_at_stored(
        &self,
        head: &[u8],
        blobs: &[Arc<Vec<u8>>],
        frames: usize,
    ) -> Option<Stored> {
        let mut from = In::new(head, blobs);
        let from = &mut from;
        let stored = Stored {
            position: Plain::take(from)?,
            counters: Plain::take(from)?,
            state: Plain::take(from)?,
            slice_left: Plain::take(from)?,
            dying: Plain::take(from)?,
            first_death: Plain::take(from)?,
            objects: StoredObjects::take(from, frames)?,
            space: Plain::take(from)?,
            spaces: Plain::take(from)?,
            kernel: Kernel::take(from, self.interrupter())?,
        };
        (from.is_at_end() && stored.kernel.fits(&stored.spaces, stored.space)).then_some(stored)
    }

    /// Makes a checkpoint of what was read; `frames` hold the pages, and stay the caller's.
    ///
    /// # Errors
    /// When the frames of guest memory are used up; then nothing was taken.
    pub(crate) fn build(&mut self, stored: Stored, frames: &[Phys]) -> Result<Checkpoint, ProcessError> {
        let memory = &mut self.machine.memory;
        let Stored { position, state, slice_left, dying, first_death, space, kernel, .. } = stored;
        let objects = stored.objects.build(memory, frames).map_err(SpaceError::from)?;
        let mut stored_spaces = stored.spaces;
        let spaces: Spaces = match stored_spaces.try_copy(|space| space.build(memory, frames)) {
            Ok(spaces) => spaces,
            Err((built, error)) => {
                built.into_things().for_each(|space| space.release(memory));
                objects.release(memory);
                return Err(error.into());
            }
        };
        // A processor that counts does so from somewhere: from the event before, where the recorder did not.
        let counts = self.machine.cpu.counters().is_some();
        let since_event = counts_since_event(position).unwrap_or_default();
        let counters = stored.counters.or_else(|| counts.then_some(since_event));
        let (counts_late, end) = (stored.counters.is_none(), None);
        Ok(Checkpoint {
            spaces,
            space,
            objects,
            kernel,
            state,
            position,
            counters,
            counts_late,
            slice_left,
            dying,
            first_death,
            end,
        })
    }

    /// The memory, for those who fill frames.
    pub(crate) fn memory_mut(&mut self) -> &mut Memory {
        &mut self.machine.memory
    }
}
