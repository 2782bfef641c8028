//! An address space as a checkpoint on disk has it: what is mapped, what was rewritten, and which page is in which frame.

use super::layout::USER_END;
use super::sites::Sites;
use super::space::{AddressSpace, SpaceError};
use super::turns::Turns;
use super::vma::Mappings;
use crate::plain::numbers::{put_i64, put_u64};
use crate::plain::{In, Out, Plain, plain};
use crate::ram::stored::{Numbers, numbered};
use crate::ram::{Memory, PAGE, Phys, Ram, Virt};

/// An address space that is in no memory.
pub(crate) struct StoredSpace {
    mappings: Mappings,
    sites: Sites,
    turns: Turns,
    heap: Virt,
    heap_end: Virt,
    locks_future: bool,
    pages: Pages,
}
plain!(struct StoredSpace { mappings, sites, turns, heap, heap_end, locks_future, pages });

/// The resident pages in order, each with its frame's number.
struct Pages(Vec<(Virt, u64)>);

impl Plain for Pages {
    /// Most pages lie behind the one before, in memory and in the order of the numbers: what differs is small.
    fn put(&self, out: &mut Out) {
        put_u64(&mut out.bytes, self.0.len() as u64);
        let mut last = (0, 0);
        for (page, number) in &self.0 {
            put_u64(&mut out.bytes, (page - last.0) / PAGE);
            put_i64(&mut out.bytes, number.wrapping_sub(last.1).cast_signed());
            last = (*page, *number);
        }
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        let mut last = (0_u64, 0_u64);
        let count = from.cursor.u64()?;
        let mut next = || {
            let page = last.0.checked_add(from.cursor.u64()?.checked_mul(PAGE)?)?;
            last = (page, last.1.wrapping_add(from.cursor.i64()?.cast_unsigned()));
            (page < USER_END).then_some(last)
        };
        (0..count).map(|_| next()).collect::<Option<_>>().map(Pages)
    }
}

impl StoredSpace {
    /// What there is to store of an address space.
    pub(crate) fn of(space: &AddressSpace, ram: &Ram, numbers: &mut Numbers) -> StoredSpace {
        let pages = space.resident(ram, &(0..USER_END)).into_iter();
        StoredSpace {
            mappings: space.mappings.clone(),
            sites: space.sites.clone(),
            turns: space.turns.clone(),
            heap: space.heap,
            heap_end: space.heap_end,
            locks_future: space.locks_future,
            pages: Pages(pages.map(|(page, frame)| (page, numbers.of(frame))).collect()),
        }
    }

    /// Whether every page is mapped, comes once, and is in one of so many frames.
    pub(crate) fn fits(&self, frames: usize) -> bool {
        let in_order = self.pages.0.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let fits =
            |(page, number): &(Virt, u64)| *number < frames as u64 && self.mappings.find(*page).is_some();
        in_order && self.pages.0.iter().all(fits)
    }

    /// The number of a page's frame, where [`AddressSpace::private_frame`] would give the frame; none of a page of an object, which may
    /// still be the object's.
    pub(crate) fn private_frame(&self, page: Virt) -> Option<u64> {
        let (_, mapping) = self.mappings.find(page)?;
        let at = self.pages.0.binary_search_by_key(&page, |(page, _)| *page).ok()?;
        mapping.backing.object().is_none().then(|| self.pages.0[at].1)
    }

    /// Makes it an address space, whose pages are those frames.
    ///
    /// # Errors
    /// When all frames are in use; then nothing was taken.
    pub(crate) fn build(&self, memory: &mut Memory, frames: &[Phys]) -> Result<AddressSpace, SpaceError> {
        let mut space = AddressSpace::new(memory)?;
        (space.mappings, space.sites) = (self.mappings.clone(), self.sites.clone());
        space.turns = self.turns.clone();
        (space.heap, space.heap_end) = (self.heap, self.heap_end);
        space.locks_future = self.locks_future;
        for (page, number) in &self.pages.0 {
            let Some(frame) = numbered(frames, *number) else { continue };
            let rights = space.mappings.find(*page).map(|(_, mapping)| mapping.rights).unwrap_or_default();
            memory.frames_mut().share(frame);
            if let Err(error) = space.enter(memory, *page, frame, rights) {
                memory.frames_mut().release(frame);
                space.release(memory);
                return Err(error);
            }
        }
        Ok(space)
    }
}
