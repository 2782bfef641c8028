//! The guest's page tables: ordinary 4-level x86-64 tables that live in guest memory (Intel SDM vol. 3, 4.5).
//!
//! The host alone writes them. The accessed and dirty bits are set from the start, so no processor ever writes
//! an entry back and guest memory stays a function of what the guest did. A change that takes something away
//! from a present page gives a [`StalePage`], which the caller hands to [`Memory::invalidate`]
//! before the guest runs again; new pages and wider rights need no call.
//!
//! A frame that was a page table is never used for anything else: on hosts that shadow page tables, KVM keeps
//! what it derived from it by its number. So tables are only ever added.

use super::{Memory, OutOfFrames, PAGE, Phys, Ram, StalePage, Virt};

/// Entry bit: the page is there.
const PRESENT: u64 = 1;
/// Entry bit: it may be written.
const WRITE: u64 = 1 << 1;
/// Entry bit: ring 3 may use it.
const USER: u64 = 1 << 2;
/// Entry bits: it has been accessed and written.
const ACCESSED_DIRTY: u64 = 3 << 5;
/// A bit that processors ignore: not present, but the frame is kept (an mprotect to PROT_NONE).
const KEPT: u64 = 1 << 9;
/// Entry bit: it may not be executed.
const NO_EXECUTE: u64 = 1 << 63;
/// Where the frame is.
const FRAME: u64 = 0x000f_ffff_ffff_f000;
/// An entry of an upper level: it restricts nothing, so that the last level decides.
const TABLE: u64 = PRESENT | WRITE | USER | ACCESSED_DIRTY;
/// Entries in a table.
const ENTRIES: u64 = 512;
/// The first address behind the lower half, which is the program's.
pub const USER_END: Virt = 1 << 47;
/// The top-level entry that belongs to the engine.
const KERNEL_INDEX: u64 = 511;

/// What the guest may do with a page besides reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Store to it.
    pub write: bool,
    /// Execute it.
    pub execute: bool,
}

/// A page of the lower half and what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its frame.
    pub frame: Phys,
    /// What the guest may do; `None`: nothing, but the frame is kept (PROT_NONE).
    pub rights: Option<Rights>,
}

/// Why a page table cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PagingError {
    /// Every frame is taken.
    #[error(transparent)]
    OutOfFrames(#[from] OutOfFrames),
    /// The address is not one of a page in the lower half.
    #[error("{0:#x} is not the address of a page in the lower half of the address space")]
    BadAddress(Virt),
}

/// The page tables of one address space.
#[derive(Debug)]
pub struct PageTables {
    root: Phys,
}

impl PageTables {
    /// Tables that map nothing of the lower half.
    ///
    /// # Errors
    /// When all frames are in use.
    pub fn new(memory: &mut Memory) -> Result<PageTables, OutOfFrames> {
        let root = memory.allocate_table()?;
        let entry = memory.engine_entry();
        memory.ram_mut().set_word(root + KERNEL_INDEX * 8, entry);
        Ok(PageTables { root })
    }

    /// The top level's frame, for [`crate::engine::Cpu::set_page_table`].
    #[must_use]
    pub fn root(&self) -> Phys {
        self.root
    }

    /// Maps the page `va` to `frame`. Gives the old translation if it must be invalidated.
    ///
    /// # Errors
    /// When a table is needed and all frames are in use, and for an address that is not one of a page.
    pub fn map(
        &mut self,
        memory: &mut Memory,
        va: Virt,
        frame: Phys,
        rights: Rights,
    ) -> Result<Option<StalePage>, PagingError> {
        if !va.is_multiple_of(PAGE) || va >= USER_END {
            return Err(PagingError::BadAddress(va));
        }
        let mut table = self.root;
        for level in (1..4).rev() {
            let at = table + index(va, level) * 8;
            let entry = memory.ram().word(at);
            table = if entry & PRESENT == 0 {
                let lower = memory.allocate_table()?;
                memory.ram_mut().set_word(at, lower | TABLE);
                lower
            } else {
                entry & FRAME
            };
        }
        Ok(replace(memory.ram_mut(), va, table + index(va, 0) * 8, leaf(frame, Some(rights))))
    }

    /// Tables that map the same pages to the same frames, of each of which one owner more is counted. In both, pages that
    /// are not `shared` are no longer written. Gives with them the translations to invalidate.
    ///
    /// # Errors
    /// When all frames are in use; then there are no other tables, and no owner more.
    pub fn fork(
        &mut self,
        memory: &mut Memory,
        fate: &mut dyn FnMut(Virt) -> Fate,
    ) -> Result<(PageTables, Vec<StalePage>), OutOfFrames> {
        let twin = PageTables::new(memory)?;
        let mut stale = Vec::new();
        match fork_table(memory, (self.root, twin.root), (3, 0), fate, &mut stale) {
            Ok(()) => Ok((twin, stale)),
            Err(error) => {
                let frames: Vec<Phys> =
                    twin.mapped(memory.ram(), 0, USER_END).map(|(_, it)| it.frame).collect();
                frames.into_iter().for_each(|frame| memory.frames_mut().release(frame));
                twin.release(memory);
                memory.invalidate(stale);
                Err(error)
            }
        }
    }

    /// Gives the tables' frames back. What they map must have been taken away or counted before.
    pub fn release(self, memory: &mut Memory) {
        let mut tables = vec![self.root];
        let mut level = vec![self.root];
        for _ in 1..4 {
            let entries = |table: Phys| (0..ENTRIES).map(move |n| table + n * 8);
            let lower = level
                .iter()
                .flat_map(|table| entries(*table))
                .filter(|at| *at != self.root + KERNEL_INDEX * 8);
            let lower = lower.map(|at| memory.ram().word(at)).filter(|entry| entry & PRESENT != 0);
            level = lower.map(|entry| entry & FRAME).collect();
            tables.extend(&level);
        }
        tables.into_iter().for_each(|table| memory.frames_mut().release_table(table));
    }

    /// Takes the page `va` away. Gives what it was mapped to, and the translation to invalidate before the
    /// frame is used again.
    pub fn unmap(&mut self, ram: &mut Ram, va: Virt) -> Option<(Mapping, Option<StalePage>)> {
        let at = self.slot(ram, va)?;
        let mapping = decode(ram.word(at))?;
        Some((mapping, replace(ram, va, at, 0)))
    }

    /// Changes the rights of the page `va`, if it is mapped; `None` withdraws all and keeps the frame.
    pub fn protect(&mut self, ram: &mut Ram, va: Virt, rights: Option<Rights>) -> Option<StalePage> {
        let at = self.slot(ram, va)?;
        let mapping = decode(ram.word(at))?;
        replace(ram, va, at, leaf(mapping.frame, rights))
    }

    /// What the page of `va` leads to.
    #[must_use]
    pub fn walk(&self, ram: &Ram, va: Virt) -> Option<Mapping> {
        decode(ram.word(self.slot(ram, va)?))
    }

    /// The mapped pages from `from` (rounded down) up to `end`, in order of address. Costs nothing for the
    /// parts of the address space that have no tables.
    pub fn mapped<'a>(
        &'a self,
        ram: &'a Ram,
        from: Virt,
        end: Virt,
    ) -> impl Iterator<Item = (Virt, Mapping)> + 'a {
        let end = end.min(USER_END);
        let mut next = from / PAGE * PAGE;
        std::iter::from_fn(move || {
            while next < end {
                let (at, level) = descend(ram, self.root, next);
                let page = next;
                let span = PAGE << (9 * level);
                next = page / span * span + span;
                if level == 0
                    && let Some(mapping) = decode(ram.word(at))
                {
                    return Some((page, mapping));
                }
            }
            None
        })
    }

    /// Where the last-level entry of `va` is, if there is a table for it.
    fn slot(&self, ram: &Ram, va: Virt) -> Option<Phys> {
        if va >= USER_END {
            return None;
        }
        match descend(ram, self.root, va) {
            (at, 0) => Some(at),
            _ => None,
        }
    }
}

/// Copies one table of a level, which begins at an address, and those below it ([`PageTables::fork`]).
fn fork_table(
    memory: &mut Memory,
    (from, to): (Phys, Phys),
    (level, start): (u32, Virt),
    fate: &mut dyn FnMut(Virt) -> Fate,
    stale: &mut Vec<StalePage>,
) -> Result<(), OutOfFrames> {
    let entries = if level == 3 { ENTRIES / 2 } else { ENTRIES };
    for n in 0..entries {
        let entry = memory.ram().word(from + n * 8);
        let va = start + n * (PAGE << (9 * level));
        if entry & (PRESENT | KEPT) == 0 {
            continue;
        }
        if level > 0 {
            let lower = memory.allocate_table()?;
            memory.ram_mut().set_word(to + n * 8, lower | TABLE);
            fork_table(memory, (entry & FRAME, lower), (level - 1, va), fate, stale)?;
            continue;
        }
        let (frame, fate) = (entry & FRAME, fate(va));
        if fate == Fate::Left {
            continue;
        }
        memory.frames_mut().share(frame);
        let stays = entry & PRESENT == 0 || entry & WRITE == 0 || fate == Fate::Shared;
        let kept = if stays { entry } else { entry & !WRITE };
        memory.ram_mut().set_word(to + n * 8, kept);
        if kept != entry {
            memory.ram_mut().set_word(from + n * 8, kept);
            stale.push(StalePage { page: va, frame });
        }
    }
    Ok(())
}

/// What becomes of a page in a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Both have it, and whoever writes to it first gets a copy.
    Copied,
    /// Both have it, and see what the other one writes.
    Shared,
    /// The twin does not have it.
    Left,
}

/// What a processor in ring 3 finds at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No page.
    Absent,
    /// A page of ring 0.
    Forbidden,
    /// A page that it may read.
    Page(Phys, Rights),
}

/// What a processor in ring 3 makes of the page of `va` under the tables at `root`: rights are the least that
/// any level grants. The pages of another processor's own, in the upper half, are not there for this one.
#[must_use]
pub fn translate_user(ram: &Ram, root: Phys, va: Virt) -> Reach {
    if va >= USER_END {
        return Reach::Absent;
    }
    let mut table = root;
    let mut all = WRITE | USER;
    let mut no_execute = 0;
    for level in (0..4).rev() {
        let at = table + index(va, level) * 8;
        let entry = if at < ram.size() { ram.word(at) } else { 0 };
        if entry & PRESENT == 0 {
            return Reach::Absent;
        }
        all &= entry;
        no_execute |= entry & NO_EXECUTE;
        table = entry & FRAME;
    }
    if all & USER == 0 {
        return Reach::Forbidden;
    }
    Reach::Page(table, Rights { write: all & WRITE != 0, execute: no_execute == 0 })
}

/// A word that makes a top-level or middle entry lead to the table at `table`.
pub(crate) fn table_entry(table: Phys) -> u64 {
    table | TABLE
}

/// A last-level entry of the engine's own pages.
pub(crate) fn engine_entry(frame: Phys, user: bool, write: bool) -> u64 {
    let user = if user { USER } else { 0 };
    let write = if write { WRITE } else { 0 };
    frame | PRESENT | ACCESSED_DIRTY | user | write
}

/// The entry for `va` at the lowest level that has a table, and that level (0 is the last).
fn descend(ram: &Ram, root: Phys, va: Virt) -> (Phys, u32) {
    let mut at = root + index(va, 3) * 8;
    for level in (1..4).rev() {
        let entry = ram.word(at);
        if entry & PRESENT == 0 {
            return (at, level);
        }
        at = (entry & FRAME) + index(va, level - 1) * 8;
    }
    (at, 0)
}

/// The number of the entry of `va` in its table of `level`.
fn index(va: Virt, level: u32) -> u64 {
    va >> (12 + 9 * level) & (ENTRIES - 1)
}

/// The last-level entry for a frame with these rights.
fn leaf(frame: Phys, rights: Option<Rights>) -> u64 {
    let Some(rights) = rights else { return frame | KEPT };
    let write = if rights.write { WRITE } else { 0 };
    let no_execute = if rights.execute { 0 } else { NO_EXECUTE };
    frame | PRESENT | USER | ACCESSED_DIRTY | write | no_execute
}

/// What a last-level entry says.
fn decode(entry: u64) -> Option<Mapping> {
    let frame = entry & FRAME;
    if entry & PRESENT != 0 {
        let rights = Rights { write: entry & WRITE != 0, execute: entry & NO_EXECUTE == 0 };
        Some(Mapping { frame, rights: Some(rights) })
    } else if entry & KEPT != 0 {
        Some(Mapping { frame, rights: None })
    } else {
        None
    }
}

/// Writes a last-level entry; gives the old translation if a processor may still hold more than the new grants.
fn replace(ram: &mut Ram, va: Virt, at: Phys, new: u64) -> Option<StalePage> {
    let old = ram.word(at);
    ram.set_word(at, new);
    let narrowed = new & PRESENT == 0
        || (old ^ new) & FRAME != 0
        || old & !new & WRITE != 0
        || new & !old & NO_EXECUTE != 0;
    (old & PRESENT != 0 && narrowed).then_some(StalePage { page: va / PAGE * PAGE, frame: old & FRAME })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Rights = Rights { write: true, execute: false };
    const RX: Rights = Rights { write: false, execute: true };

    fn memory() -> (Memory, PageTables) {
        let mut memory = Memory::new(64 * PAGE).unwrap();
        memory.reserve(2 * PAGE, 0x1234_5007);
        let tables = PageTables::new(&mut memory).unwrap();
        (memory, tables)
    }

    #[test]
    fn a_mapping_is_found_by_walk_by_the_processor_and_in_order() {
        let (mut memory, mut tables) = memory();
        let pages = [0x7fff_ffff_f000, 0x40_0000, 0x1000, 0x40_1000];
        for va in pages {
            let frame = memory.allocate().unwrap();
            assert_eq!(tables.map(&mut memory, va, frame, RW), Ok(None));
            assert_eq!(tables.walk(memory.ram(), va + 5), Some(Mapping { frame, rights: Some(RW) }));
            assert_eq!(translate_user(memory.ram(), tables.root(), va), Reach::Page(frame, RW));
        }
        let order: Vec<Virt> = tables.mapped(memory.ram(), 0, u64::MAX).map(|(va, _)| va).collect();
        assert_eq!(order, [0x1000, 0x40_0000, 0x40_1000, 0x7fff_ffff_f000]);
        let some: Vec<Virt> = tables.mapped(memory.ram(), 0x40_0fff, 0x40_1001).map(|(va, _)| va).collect();
        assert_eq!(some, [0x40_0000, 0x40_1000]);
        assert_eq!(tables.walk(memory.ram(), 0x2000), None);
        assert_eq!(memory.ram().word(tables.root() + 511 * 8), 0x1234_5007);
    }

    #[test]
    fn only_what_takes_away_is_stale() {
        let (mut memory, mut tables) = memory();
        let frame = memory.allocate().unwrap();
        let stale = Some(StalePage { page: 0x1000, frame });
        let map = |tables: &mut PageTables, memory: &mut Memory, frame, rights| {
            tables.map(memory, 0x1000, frame, rights).unwrap()
        };
        assert_eq!(map(&mut tables, &mut memory, frame, Rights::default()), None);
        assert_eq!(tables.protect(memory.ram_mut(), 0x1000, Some(RW)), None, "wider");
        assert_eq!(tables.protect(memory.ram_mut(), 0x1000, Some(RX)), stale, "no longer writable");
        assert_eq!(tables.protect(memory.ram_mut(), 0x1000, None), stale, "gone");
        assert_eq!(tables.walk(memory.ram(), 0x1000), Some(Mapping { frame, rights: None }));
        assert_eq!(translate_user(memory.ram(), tables.root(), 0x1000), Reach::Absent);
        assert_eq!(tables.protect(memory.ram_mut(), 0x1000, Some(RX)), None, "back again");
        assert_eq!(map(&mut tables, &mut memory, frame + PAGE, RX), stale, "another frame");
        let moved = Mapping { frame: frame + PAGE, rights: Some(RX) };
        let gone = StalePage { page: 0x1000, frame: frame + PAGE };
        assert_eq!(tables.unmap(memory.ram_mut(), 0x1000), Some((moved, Some(gone))));
        assert_eq!(tables.unmap(memory.ram_mut(), 0x1000), None);
        assert_eq!(tables.unmap(memory.ram_mut(), 0x7000_0000), None, "no table there");
    }

    #[test]
    fn addresses_outside_the_lower_half_are_refused() {
        let (mut memory, mut tables) = memory();
        for va in [USER_END, u64::MAX - 4095, 0x1001] {
            let refused = tables.map(&mut memory, va, 0x1000, RW);
            assert_eq!(refused, Err(PagingError::BadAddress(va)));
        }
        assert_eq!(tables.walk(memory.ram(), 0xffff_8000_0000_0000), None);
    }

    #[test]
    fn released_frames_come_back_zeroed_but_never_as_tables() {
        let (mut memory, mut tables) = memory();
        let frame = memory.allocate().unwrap();
        memory.ram_mut().frame_mut(frame).fill(7);
        memory.frames_mut().release(frame);
        tables.map(&mut memory, 0x1000, 0x3f000, RW).unwrap();
        assert_eq!(memory.allocate(), Ok(frame));
        assert!(memory.ram().frame(frame).iter().all(|b| *b == 0));
        while memory.frames().available() > 0 {
            memory.allocate().unwrap();
        }
        assert_eq!(memory.allocate(), Err(OutOfFrames { bytes: 64 * PAGE }));
    }

    #[test]
    fn released_tables_wait_in_quarantine() {
        let (mut memory, mut tables) = memory();
        let used = memory.frames().used();
        let frame = memory.allocate().unwrap();
        for va in [0x1000, 0x7fff_0000_0000] {
            tables.map(&mut memory, va, frame, RW).unwrap();
        }
        tables.release(&mut memory);
        // Each page needs three tables below the top level.
        assert_eq!(memory.frames().quarantined(), 7);
        memory.frames_mut().end_quarantine();
        assert_eq!(memory.frames().used(), used, "the top level is gone, the one frame stays");
    }
}
