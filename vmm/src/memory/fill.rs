//! Making pages resident, and writable again: at a fault, the page and its neighbours, since each fault is an exit.
//!
//! Which pages become resident is decided by the mapping and the address alone, never by the order of faults, which differs between
//! processors.
//!
//! Example: the first instruction in libc's code brings all 341 pages of that mapping, in frames that are shared with every other
//! process that maps it ([`Memory::file_frame`]).

use super::Rights;
use super::layout::{PAGE_BYTES, PAGES_PER_FAULT, SMALL_FILE_PAGES};
use super::space::{AddressSpace, Refusal, SpaceError};
use super::vma::{Backing, Mapping, page_of};
use crate::ram::{FilePage, Memory, PAGE, Phys, Virt};
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Which pages are copied ahead of the store that would fault for them: those behind the page that was copied last, if the
/// program walks through its memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// The page behind the last that was copied.
    next: Virt,
    /// How many were copied at once.
    pages: u64,
}

impl Ahead {
    /// How many pages to copy from `page` on.
    fn pages(self, page: Virt) -> u64 {
        if page == self.next { (self.pages * 2).clamp(1, PAGES_PER_FAULT) } else { 1 }
    }
}

/// The aligned group of pages around an address, as far as it is inside.
fn group(address: Virt, inside: &Range<Virt>) -> Range<Virt> {
    let group = PAGES_PER_FAULT * PAGE;
    let first = address / group * group;
    first.max(inside.start)..(first + group).min(inside.end)
}

impl AddressSpace {
    /// Makes the page at `address`, which is not resident, resident, and its neighbours, whatever its rights are.
    pub(super) fn bring(
        &mut self,
        memory: &mut Memory,
        address: Virt,
    ) -> Result<Result<(), Refusal>, SpaceError> {
        let Some((start, mapping)) = self.mappings.find(address) else { return Ok(Err(Refusal::NotMapped)) };
        let Mapping { end, rights, backing, .. } = mapping.clone();
        let shares_frames = !rights.write && matches!(backing, Backing::File(..));
        let pages = match (end - start) / PAGE {
            pages if shares_frames && pages <= SMALL_FILE_PAGES => start..end,
            _ => group(address, &(start..end)),
        };
        for page in pages.step_by(PAGE_BYTES) {
            if self.frame(memory.ram(), page).is_some() {
                continue;
            }
            if !self.fill(memory, page, rights, &backing, page - start)? && page == page_of(address) {
                return Ok(Err(Refusal::BehindFile));
            }
        }
        Ok(Ok(()))
    }

    /// Makes one page resident; false if its file has ended.
    fn fill(
        &mut self,
        memory: &mut Memory,
        page: Virt,
        rights: Rights,
        backing: &Backing,
        distance: u64,
    ) -> Result<bool, SpaceError> {
        if let Some((object, at)) = backing.object() {
            let Some(frame) = object.frame(memory, (at + distance) / PAGE)? else { return Ok(false) };
            memory.frames_mut().share(frame);
            self.enter(memory, page, frame, rights)?;
            if !backing.is_shared() && self.sites.has_any(page) {
                self.unshare(memory, page, frame, rights)?;
                if let Some(own) = self.frame(memory.ram(), page) {
                    self.sites.hide(page, memory.ram_mut().frame_mut(own));
                }
            }
            return Ok(true);
        }
        if matches!(backing, Backing::Zero(_)) && !self.sites.has_any(page) {
            // Which holds zeros.
            let frame = memory.allocate()?;
            self.enter(memory, page, frame, rights)?;
            return Ok(true);
        }
        let of_file = match backing {
            Backing::File(content, at) if !rights.write => {
                let file_page = FilePage { at: at + distance, changed: self.changed(page) };
                Some((Arc::clone(&content.bytes), file_page))
            }
            _ => None,
        };
        if let Some((content, file_page)) = &of_file
            && let Some(frame) = memory.file_frame(content, *file_page)
        {
            memory.frames_mut().share(frame);
            self.enter(memory, page, frame, rights)?;
            return Ok(true);
        }
        let mut bytes = [0; PAGE_BYTES];
        if !backing.fill(distance, &mut bytes) {
            return Ok(false);
        }
        self.sites.hide(page, &mut bytes);
        let frame = memory.allocate()?;
        *memory.ram_mut().frame_mut(frame) = bytes;
        if let Some((content, file_page)) = &of_file {
            memory.keep_file_frame(content, *file_page, frame);
        }
        self.enter(memory, page, frame, rights)?;
        Ok(true)
    }

    /// A digest of where instructions were rewritten in a page; zero if nowhere.
    fn changed(&self, page: Virt) -> u64 {
        if !self.sites.has_any(page) {
            return 0;
        }
        let places = self.sites.originals_in(page.saturating_sub(1)..page + PAGE);
        let places: Vec<u8> = places.flat_map(|(at, _)| at.wrapping_sub(page).to_le_bytes()).collect();
        xxh3_64(&places).max(1)
    }

    /// Makes more pages of a mapping writable beside `page`, which was made writable, as far as the program seems to write to them
    /// too: those behind it where it walks through its memory, and else as many as its group has of others that it may write to.
    ///
    /// So a whole group costs seven faults in whatever order it is written, and a single page no copy of another. Example: the
    /// collector of a Haskell program writes to all of the heap in the order of its pointers, after each checkpoint again. Not where
    /// checkpoints are to say what was stored to ([`Memory::copy_alone`]).
    pub(super) fn unshare_ahead(
        &mut self,
        memory: &mut Memory,
        page: Virt,
        inside: &Range<Virt>,
        rights: Rights,
    ) {
        // The pages of an object show what is written to it until they are stored to themselves.
        let alone = |mapping: &Mapping| mapping.has_turns() || mapping.backing.object().is_some();
        if memory.copies_alone() || self.mappings.find(page).is_none_or(|(_, mapping)| alone(mapping)) {
            return;
        }
        let pages = self.ahead.pages(page);
        let next = match pages {
            1 => self.unshare_beside(memory, page, &group(page, inside), rights),
            _ => self.unshare_behind(memory, page..inside.end.min(page + pages * PAGE), rights),
        };
        self.ahead = Ahead { next, pages };
    }

    /// Makes the pages behind the first of `range` writable; gives where that ends: at one that needs no copy.
    fn unshare_behind(&mut self, memory: &mut Memory, range: Range<Virt>, rights: Rights) -> Virt {
        let mut next = range.start + PAGE;
        while next < range.end && self.unshare_if_shared(memory, next, rights) {
            next += PAGE;
        }
        next
    }

    /// Makes as many pages of a group writable as there are writable ones beside `page`, those behind it first; gives where those
    /// end that follow it.
    fn unshare_beside(
        &mut self,
        memory: &mut Memory,
        page: Virt,
        group: &Range<Virt>,
        rights: Rights,
    ) -> Virt {
        let mut next = page + PAGE;
        let others = (next..group.end).chain(group.start..page).step_by(PAGE_BYTES);
        let is_writable = |other: &Virt| {
            let found = self.tables.walk(memory.ram(), *other);
            found.and_then(|found| found.rights).is_some_and(|rights| rights.write)
        };
        let mut wanted = others.clone().filter(is_writable).count();
        for other in others {
            if wanted == 0 {
                break;
            }
            if self.unshare_if_shared(memory, other, rights) {
                wanted -= 1;
                next += if other == next { PAGE } else { 0 };
            }
        }
        next
    }

    /// Makes a page writable that is resident and shared; whether it was one.
    fn unshare_if_shared(&mut self, memory: &mut Memory, page: Virt, rights: Rights) -> bool {
        let Some(found) = self.tables.walk(memory.ram(), page) else { return false };
        let is_shared = found.rights.is_some_and(|rights| !rights.write);
        let is_shared = is_shared && !memory.is_held(found.frame);
        // Without a frame for it, the store that needs it says so.
        is_shared && self.unshare(memory, page, found.frame, rights).is_ok()
    }

    /// Makes the neighbours of a page that was made writable writable again that nobody else has any more: a child that has
    /// executed another program, or a checkpoint that is gone, has left them.
    pub(super) fn regain(&mut self, memory: &mut Memory, page: Virt, rights: Rights) {
        let Some((start, mapping)) = self.mappings.find(page) else { return };
        if mapping.has_turns() {
            return;
        }
        let pages = group(page, &(start..mapping.end));
        let left = |memory: &Memory, frame: Phys| memory.frames().owners(frame) == 1;
        for page in pages.step_by(PAGE_BYTES) {
            if let Some(found) = self.tables.walk(memory.ram(), page)
                && found.rights.is_some_and(|rights| !rights.write)
                && left(memory, found.frame)
            {
                let entry = self.entry_rights(memory, page, found.frame, rights);
                let stale = self.tables.protect(memory.ram_mut(), page, entry);
                memory.invalidate(stale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::object::Object;
    use crate::memory::space::Access;
    use crate::memory::vma::Content;

    const AT: Virt = 0x40_0000;
    const CODE: Rights = Rights { read: true, write: false, execute: true };
    const DATA: Rights = Rights { read: true, write: true, execute: false };

    fn memory() -> Memory {
        Memory::new(1024 * PAGE).expect("little memory")
    }

    /// A file of 100 pages, the second of which begins with CPUID.
    fn file() -> Backing {
        let mut bytes = vec![0x90; 100 * PAGE_BYTES];
        bytes[PAGE_BYTES..PAGE_BYTES + 2].copy_from_slice(&[0x0f, 0xa2]);
        let size = bytes.len() as u64;
        Backing::File(
            Arc::new(Content { name: String::new(), file_offset: 0, bytes: Arc::new(bytes), size }),
            0,
        )
    }

    fn space(memory: &mut Memory, backing: &Backing, rights: Rights) -> AddressSpace {
        let mut space = AddressSpace::new(memory).expect("a frame");
        space.map(memory, AT..AT + 100 * PAGE, rights, backing.clone()).expect("room");
        space
    }

    fn touch(space: &mut AddressSpace, memory: &mut Memory, address: Virt, access: Access) {
        space.touch(memory, address, access).expect("frames").expect("allowed");
    }

    #[test]
    fn a_file_that_is_not_written_comes_whole_and_once() {
        let (mut memory, file) = (memory(), file());
        let (mut first, mut second) = (space(&mut memory, &file, CODE), space(&mut memory, &file, CODE));
        touch(&mut first, &mut memory, AT + 99 * PAGE, Access::Execute);
        let used = memory.frames().used();
        touch(&mut second, &mut memory, AT, Access::Read);
        assert!(memory.frames().used() - used < 5, "page tables alone");
        for page in (AT..AT + 100 * PAGE).step_by(PAGE_BYTES) {
            assert_eq!(first.frame(memory.ram(), page), second.frame(memory.ram(), page));
        }
        let own = first.frame(memory.ram(), AT + PAGE).expect("resident");
        assert_eq!(memory.ram().frame(own)[..3], [0x0f, 0x0b, 0x90], "rewritten in both");
    }

    #[test]
    fn who_rewrote_other_instructions_has_another_frame() {
        let (mut memory, file) = (memory(), file());
        let (mut code, mut data) =
            (space(&mut memory, &file, CODE), space(&mut memory, &file, Rights { execute: false, ..CODE }));
        touch(&mut code, &mut memory, AT, Access::Read);
        touch(&mut data, &mut memory, AT, Access::Read);
        let second = |space: &AddressSpace| space.frame(memory.ram(), AT + PAGE).expect("resident");
        assert_eq!(memory.ram().frame(second(&data))[..2], [0x0f, 0xa2]);
        assert_ne!(second(&code), second(&data));
        assert_eq!(code.frame(memory.ram(), AT), data.frame(memory.ram(), AT));
    }

    #[test]
    fn a_store_behind_mprotect_is_to_a_copy() {
        let (mut memory, file) = (memory(), file());
        let (mut first, mut second) = (space(&mut memory, &file, CODE), space(&mut memory, &file, CODE));
        touch(&mut first, &mut memory, AT, Access::Read);
        touch(&mut second, &mut memory, AT, Access::Read);
        first.protect(&mut memory, &(AT..AT + 100 * PAGE), DATA).expect("frames");
        first.write(&mut memory, AT + 5, b"x").expect("writable");
        let mut bytes = [0; 2];
        assert!(
            second.copy(&memory, AT + 5, &mut bytes[..1]) && first.copy(&memory, AT + 5, &mut bytes[1..])
        );
        assert_eq!(bytes, [0x90, b'x']);
    }

    #[test]
    fn a_group_that_is_written_in_any_order_costs_seven_faults() {
        let mut memory = memory();
        let mut space = space(&mut memory, &Backing::Zero(""), DATA);
        touch(&mut space, &mut memory, AT, Access::Write);
        let child = space.fork(&mut memory).expect("frames");
        let is_writable = |memory: &Memory, space: &AddressSpace, page| {
            let found = space.tables.walk(memory.ram(), page).expect("resident");
            found.rights.is_some_and(|rights| rights.write)
        };
        let pages = |step: u64| (0..64).map(move |n| AT + n * step % 64 * PAGE);
        touch(&mut space, &mut memory, AT + 40 * PAGE, Access::Write);
        assert_eq!(pages(1).filter(|page| is_writable(&memory, &space, *page)).count(), 1, "one alone");
        let mut faults = 1;
        for page in pages(27) {
            if !is_writable(&memory, &space, page) {
                faults += 1;
                touch(&mut space, &mut memory, page, Access::Write);
            }
        }
        assert_eq!(faults, 7);
        assert!(pages(1).all(|page| space.frame(memory.ram(), page) != child.frame(memory.ram(), page)));
    }

    #[test]
    fn what_shows_a_file_until_it_is_stored_to_is_copied_page_by_page() {
        let mut memory = memory();
        let object = Arc::new(Object::new(7, "/file", Vec::new(), 100 * PAGE));
        let mut space = space(&mut memory, &Backing::Copied(object, 0), DATA);
        (0..3).for_each(|n| touch(&mut space, &mut memory, AT + n * PAGE, Access::Write));
        let writable = |page| {
            let found = space.tables.walk(memory.ram(), AT + page * PAGE).expect("resident");
            found.rights.is_some_and(|rights| rights.write)
        };
        assert_eq!([0, 1, 2, 3, 4].map(writable), [true, true, true, false, false]);
    }

    #[test]
    fn what_a_child_has_left_is_writable_again_at_one_fault() {
        let mut memory = memory();
        let mut space = space(&mut memory, &Backing::Zero(""), DATA);
        touch(&mut space, &mut memory, AT, Access::Write);
        let child = space.fork(&mut memory).expect("frames");
        let writable = |memory: &Memory, space: &AddressSpace| {
            let pages = space.tables.mapped(memory.ram(), AT, AT + 100 * PAGE);
            pages.filter(|(_, found)| found.rights.is_some_and(|rights| rights.write)).count()
        };
        touch(&mut space, &mut memory, AT, Access::Write);
        assert_eq!(writable(&memory, &space), 1);
        child.release(&mut memory);
        touch(&mut space, &mut memory, AT + 9 * PAGE, Access::Write);
        assert_eq!(writable(&memory, &space), 64);
    }
}
