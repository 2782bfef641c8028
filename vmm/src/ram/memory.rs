//! The guest's memory as a whole, and what processors have yet to forget of it.

use super::{Contents, Frames, NoMemory, OutOfFrames, PAGE, Phys, Ram, StalePage};
use std::collections::BTreeMap;

/// So many stale pages are told one by one; more are told as "all".
const MOST_STALE: usize = 1 << 16;

/// Guest memory: the bytes, who owns which frame, and the translations that are no longer true.
///
/// Whoever takes something away from a present page ([`super::paging`]), or writes to code, says so by
/// [`Memory::invalidate`]. A processor looks at that before it runs ([`Memory::take_stale`]).
pub struct Memory {
    ram: Ram,
    frames: Frames,
    /// The entry that every top-level page table has at index 511, zero for none: a processor's own pages.
    engine_entry: u64,
    stale: Stale,
    /// The frames of shared objects, by object and page.
    objects: BTreeMap<(u64, u64), Phys>,
    /// What their pages hold that have no frame.
    contents: Contents,
    /// How many frames were ever copied because they had other owners.
    copied: u64,
}

/// What is no longer true of translations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// These pages.
    pub pages: Vec<StalePage>,
    /// And all others.
    pub all: bool,
    /// Frames that hold something else than before, without a translation that is no longer true: for processors that keep
    /// what they derived from a frame's bytes.
    pub rewritten: Vec<Phys>,
    /// And all other frames.
    pub all_rewritten: bool,
}

impl Memory {
    /// `bytes` of memory. Frame zero stays unused, so that no page table is ever at physical address zero.
    ///
    /// # Errors
    /// When the host does not give it.
    pub fn new(bytes: u64) -> Result<Memory, NoMemory> {
        let bytes = bytes.max(PAGE).next_multiple_of(PAGE);
        let ram = Ram::new(bytes)?;
        Ok(Memory {
            ram,
            frames: Frames::new(PAGE, bytes),
            engine_entry: 0,
            stale: Stale::default(),
            objects: BTreeMap::new(),
            contents: Contents::default(),
            copied: 0,
        })
    }

    /// The bytes.
    #[must_use]
    pub fn ram(&self) -> &Ram {
        &self.ram
    }

    /// The bytes, writable. Whoever writes to a page that the guest may execute tells it by [`Memory::invalidate`].
    pub fn ram_mut(&mut self) -> &mut Ram {
        &mut self.ram
    }

    /// The frames.
    #[must_use]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// The frames, to count owners.
    pub fn frames_mut(&mut self) -> &mut Frames {
        &mut self.frames
    }

    /// The top-level entry of the processor's own pages.
    #[must_use]
    pub fn engine_entry(&self) -> u64 {
        self.engine_entry
    }

    /// Keeps the frames below `end` for a processor, which appear in each address space by `entry`. Only before the first
    /// address space is made.
    pub fn reserve(&mut self, end: Phys, entry: u64) {
        self.frames.reserve(end);
        self.ram.populate(end);
        self.engine_entry = entry;
    }

    /// A frame of zeros with one owner.
    ///
    /// # Errors
    /// When all are in use.
    pub fn allocate(&mut self) -> Result<Phys, OutOfFrames> {
        let (frame, used) = self.frames.take()?;
        self.ram.populate(frame + PAGE);
        if used {
            self.ram.frame_mut(frame).fill(0);
            self.rewritten(frame);
        }
        Ok(frame)
    }

    /// A frame with one owner and the bytes of `from`.
    ///
    /// # Errors
    /// When all are in use.
    pub fn copy(&mut self, from: Phys) -> Result<Phys, OutOfFrames> {
        let (copy, used) = self.frames.take()?;
        self.ram.populate(copy + PAGE);
        self.ram.copy_frame(from, copy);
        if used {
            self.rewritten(copy);
        }
        Ok(copy)
    }

    /// Gives the frame `to` the bytes of `from`.
    pub fn overwrite(&mut self, from: Phys, to: Phys) {
        self.ram.copy_frame(from, to);
        self.rewritten(to);
    }

    fn rewritten(&mut self, frame: Phys) {
        if self.stale.rewritten.len() >= MOST_STALE {
            self.stale.rewritten.clear();
            self.stale.all_rewritten = true;
        }
        self.stale.rewritten.push(frame);
    }

    /// A frame of zeros for a page table: one that was never used.
    ///
    /// # Errors
    /// When all are in use.
    pub fn allocate_table(&mut self) -> Result<Phys, OutOfFrames> {
        let frame = match self.frames.take_fresh() {
            Ok(frame) => frame,
            Err(_) => self.frames.take()?.0,
        };
        self.ram.populate(frame + PAGE);
        self.ram.frame_mut(frame).fill(0);
        Ok(frame)
    }

    /// A frame with the content of `frame`, of which the caller was an owner, that has no other owner: itself if it has
    /// none.
    ///
    /// # Errors
    /// When all frames are in use.
    pub fn unshare(&mut self, frame: Phys) -> Result<Phys, OutOfFrames> {
        if self.frames.owners(frame) == 1 {
            return Ok(frame);
        }
        let copy = self.copy(frame)?;
        self.copied += 1;
        self.frames.release(frame);
        Ok(copy)
    }

    /// Says that translations are no longer true, or that code has changed.
    pub fn invalidate(&mut self, stale: impl IntoIterator<Item = StalePage>) {
        self.stale.pages.extend(stale);
        if self.stale.pages.len() > MOST_STALE {
            self.stale.pages.clear();
            self.stale.all = true;
        }
    }

    /// Says that no translation is to be relied on.
    pub fn invalidate_all(&mut self) {
        self.stale = Stale { all: true, all_rewritten: true, ..Stale::default() };
    }

    /// What a processor has to forget before it runs.
    pub fn take_stale(&mut self) -> Stale {
        std::mem::take(&mut self.stale)
    }

    /// What the pages of shared objects hold that have no frame.
    #[must_use]
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The same, to be changed.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// How many frames were ever copied because they had other owners: what forks and checkpoints cost behind them.
    #[must_use]
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// The pages of all shared objects that have a frame: object, page and frame.
    pub fn all_object_pages(&self) -> impl Iterator<Item = (u64, u64, Phys)> {
        self.objects.iter().map(|((object, page), frame)| (*object, *page, *frame))
    }

    /// Takes the pages of all shared objects away; those that are still mapped keep their frames.
    pub fn drop_objects(&mut self) {
        for frame in std::mem::take(&mut self.objects).into_values() {
            self.frames.release(frame);
        }
    }

    /// The frame of a shared object's page, if it has one.
    #[must_use]
    pub fn object_frame(&self, object: u64, page: u64) -> Option<Phys> {
        self.objects.get(&(object, page)).copied()
    }

    /// Gives a shared object's page a frame, of which the object is the owner.
    pub fn set_object_frame(&mut self, object: u64, page: u64, frame: Phys) {
        self.objects.insert((object, page), frame);
    }

    /// The pages of a shared object that have a frame, from page `from` on.
    pub fn object_pages(&self, object: u64, from: u64) -> impl Iterator<Item = (u64, Phys)> {
        self.objects.range((object, from)..=(object, u64::MAX)).map(|((_, page), frame)| (*page, *frame))
    }

    /// Takes the pages of a shared object from page `from` on away; those that are still mapped keep their frames.
    pub fn drop_object(&mut self, object: u64, from: u64) {
        let pages: Vec<(u64, Phys)> = self.object_pages(object, from).collect();
        for (page, frame) in pages {
            self.objects.remove(&(object, page));
            self.frames.release(frame);
        }
    }

    /// Forgets a shared object and what it holds.
    pub fn forget_object(&mut self, object: u64) {
        self.drop_object(object, 0);
        self.contents.remove(object);
    }

    /// Exchanges the bytes with those of `other`: a processor that must own them while it runs.
    pub(crate) fn swap_ram(&mut self, other: &mut Ram) {
        std::mem::swap(&mut self.ram, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_frame_is_copied_and_one_that_is_not_stays() {
        let mut memory = Memory::new(16 * PAGE).unwrap();
        let frame = memory.allocate().unwrap();
        memory.ram_mut().frame_mut(frame)[5] = 7;
        assert_eq!(memory.unshare(frame), Ok(frame));
        memory.frames_mut().share(frame);
        let copy = memory.unshare(frame).unwrap();
        assert_ne!(copy, frame);
        assert_eq!((memory.ram().frame(copy)[5], memory.frames().owners(frame)), (7, 1));
    }

    #[test]
    fn many_stale_pages_become_all() {
        let mut memory = Memory::new(PAGE).unwrap();
        memory.invalidate((0..).take(MOST_STALE + 1).map(|n| StalePage { page: n * PAGE, frame: 0 }));
        let stale = memory.take_stale();
        assert!(stale.all && stale.pages.is_empty());
        assert_eq!(memory.take_stale(), Stale::default());
    }
}
