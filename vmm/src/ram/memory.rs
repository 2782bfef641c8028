//! The guest's memory as a whole, and what processors have yet to forget of it.

use super::files::{FileFrames, FilePage};
use super::stale::{Stale, Stales};
use super::{Contents, Frames, NoMemory, OutOfFrames, PAGE, Phys, Ram, StalePage, Virt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Guest memory: the bytes, who owns which frame, and the translations that are no longer true.
///
/// Whoever takes something away from a present page ([`super::paging`]), or writes to code, says so by
/// [`Memory::invalidate`]. A processor looks at that before it runs ([`Memory::take_stale`]).
pub struct Memory {
    ram: Ram,
    frames: Frames,
    /// The entry that every top-level page table has at index 511, zero for none: a processor's own pages.
    engine_entry: u64,
    stale: Stales,
    /// The frames of shared objects, by object and page.
    objects: BTreeMap<(u64, u64), Phys>,
    /// What their pages hold that have no frame.
    contents: Contents,
    /// The frames of pages of files that nobody has written to.
    files: FileFrames,
    /// How many frames were ever copied because they had other owners.
    copied: u64,
    /// Whether each page is copied for itself alone.
    copies_alone: bool,
    /// Frames from which somebody sees whether their pages are stored to.
    held: Vec<Phys>,
    /// What the kernel writes, if somebody wants to know.
    written: Option<Vec<Written>>,
}

/// Bytes that the kernel has written for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The address space, by the root of its page tables.
    pub root: Phys,
    /// The first.
    pub address: Virt,
    /// How many.
    pub len: u64,
}

/// So many former page tables wait before the processors are made to forget them. For KVM the memory slot is made anew, which costs
/// all shadow pages (about 0.1 ms, and as much again for each hundred pages in use).
pub const MOST_QUARANTINED: usize = 8192;

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
            stale: Stales::default(),
            objects: BTreeMap::new(),
            contents: Contents::default(),
            files: FileFrames::default(),
            copied: 0,
            copies_alone: false,
            held: Vec::new(),
            written: None,
        })
    }

    /// From now on it is noted what the kernel writes; or no longer.
    pub fn note_writes(&mut self, note: bool) {
        self.written = note.then(Vec::new);
    }

    /// The kernel writes this.
    pub(crate) fn writes(&mut self, written: Written) {
        if let Some(all) = &mut self.written {
            all.push(written);
        }
    }

    /// What it has written since the last call.
    pub fn take_writes(&mut self) -> Vec<Written> {
        self.written.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether no page is copied from now on because others beside it are: a frame that is another one than at a checkpoint says then that
    /// something was stored to its page. That costs a fault for each page in place of seven for sixty-four.
    pub(crate) fn copy_alone(&mut self, alone: bool) {
        self.copies_alone = alone;
    }

    /// Whether that is so.
    pub(crate) fn copies_alone(&self) -> bool {
        self.copies_alone
    }

    /// Whether an owner of this frame is to see from it alone whether somebody has stored to its page.
    pub(crate) fn is_held(&self, frame: Phys) -> bool {
        self.held.contains(&frame)
    }

    /// Counts an owner more of this page's frame, who is to see from it whether somebody has stored to the page.
    pub(crate) fn hold_page(&mut self, frame: Phys) {
        self.frames.share(frame);
        self.held.push(frame);
    }

    /// That owner has seen it.
    pub(crate) fn let_page_go(&mut self, frame: Phys) {
        if let Some(at) = self.held.iter().position(|held| *held == frame) {
            self.held.swap_remove(at);
        }
        self.frames.release(frame);
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
        let (frame, used) = self.take()?;
        self.ram.populate(frame + PAGE);
        if used {
            self.ram.frame_mut(frame).fill(0);
            self.stale.rewritten(frame);
        }
        Ok(frame)
    }

    /// A frame, and whether it was used before; one of a file that nobody has mapped, if there is no other.
    fn take(&mut self) -> Result<(Phys, bool), OutOfFrames> {
        self.frames.take().or_else(|_| {
            self.drop_unused_files();
            self.frames.take()
        })
    }

    /// The frame with a page of a content, which is for all who do not write to it; they are owners of it beside the cache.
    pub(crate) fn file_frame(&self, content: &Arc<Vec<u8>>, page: FilePage) -> Option<Phys> {
        self.files.find(content, page)
    }

    /// Has others find this frame, which holds that page.
    pub(crate) fn keep_file_frame(&mut self, content: &Arc<Vec<u8>>, page: FilePage, frame: Phys) {
        self.files.keep(&mut self.frames, content, page, frame);
    }

    /// Gives back the frames of files that nobody has mapped any more, if there are many.
    pub(crate) fn tidy_files(&mut self) {
        self.files.tidy(&mut self.frames);
    }

    /// Gives them all back.
    pub(crate) fn drop_unused_files(&mut self) {
        self.files.drop_unused(&mut self.frames);
    }

    /// A frame with one owner and the bytes of `from`.
    ///
    /// # Errors
    /// When all are in use.
    pub fn copy(&mut self, from: Phys) -> Result<Phys, OutOfFrames> {
        let (copy, used) = self.take()?;
        self.ram.populate(copy + PAGE);
        self.ram.copy_frame(from, copy);
        if used {
            self.stale.rewritten(copy);
        }
        Ok(copy)
    }

    /// Gives the frame `to` the bytes of `from`.
    pub fn overwrite(&mut self, from: Phys, to: Phys) {
        self.ram.copy_frame(from, to);
        self.stale.rewritten(to);
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
        self.stale.pages(stale);
    }

    /// Says that no translation is to be relied on.
    pub fn invalidate_all(&mut self) {
        self.stale.everything();
    }

    /// Whether the processor that runs has something to forget before it does.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale.is_any()
    }

    /// What the processor that runs has to forget before it does; it is told once.
    pub fn take_stale(&mut self) -> Stale {
        self.stale.take()
    }

    /// Another processor runs against this memory from here on: the one that did before the last exchange, which hears
    /// what it has missed, or a new one.
    pub fn exchange_processor(&mut self) {
        self.stale.exchange();
    }

    /// Says that a frame can be written by a translation and executed by another, or by the same: a processor that was away
    /// does not hear of what the other one has written there.
    pub fn code_changes_unseen(&mut self) {
        self.stale.code_changes_unseen();
    }

    /// Has former page tables used again, for a processor that derives nothing from them; another one that takes turns with
    /// it is told, if it is worth while.
    pub fn reuse_tables(&mut self) {
        if !self.stale.has_two() {
            self.frames.end_quarantine();
        } else if self.frames.quarantined() > MOST_QUARANTINED {
            self.frames.end_quarantine();
            self.stale.tables_are_used_again();
        }
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
}
