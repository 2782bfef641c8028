//! Pages that may be written and executed, as those in which a Java VM makes code: one of both at a time.
//!
//! Instructions that read the machine are rewritten where code is mapped ([`super::code`]); what the program writes to a page that is
//! executable already would be missed. So an anonymous private page with both rights is at first one that is written and not
//! executed. The first instruction there is a page fault: the page is searched, and is executed and not written from then on, until a
//! store to it gives the program its own bytes back. What can be reached from that instruction by direct jumps is certainly code
//! ([`super::reached`]).
//!
//! Such a turn is two exits, whatever the engine and the host; so a page that has had [`MOST`] of them is left as it is.
//!
//! Example: a Java VM writes a routine that asks CPUID, and calls it. The page has its UD2 before the first of its instructions runs.

use super::Rights;
use super::access::AccessError;
use super::reached::{first_behind, reached};
use super::sites::Known;
use super::space::{Access, AddressSpace, Refusal, SpaceError};
use super::vma::page_of;
use crate::plain::plain;
use crate::ram::{Memory, PAGE, Virt, paging};
use std::collections::BTreeMap;
use std::ops::Range;

/// How often a page is written again after it was executed, until it is left as it is.
const MOST: u8 = 4;

/// The longest instruction.
const LONGEST: usize = 15;

/// What a page is at.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    executed: bool,
    /// How often it was written again.
    times: u8,
}
plain!(struct Turn { executed, times });

/// The turns of an address space's pages; one that is not listed was not executed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    pages: BTreeMap<Virt, Turn>,
    /// How many pages are left as they are.
    left_alone: u64,
}
plain!(struct Turns { pages, left_alone });

impl Turns {
    /// What a page's entry allows of both rights.
    pub(super) fn allowed(&self, page: Virt, rights: paging::Rights) -> paging::Rights {
        match self.pages.get(&page) {
            Some(turn) if turn.times >= MOST => rights,
            Some(Turn { executed: true, .. }) => paging::Rights { write: false, ..rights },
            _ => paging::Rights { execute: false, ..rights },
        }
    }

    /// Forgets the pages of a range.
    pub(super) fn remove(&mut self, range: &Range<Virt>) {
        let pages: Vec<Virt> = self.pages.range(range.clone()).map(|(page, _)| *page).collect();
        for page in pages {
            self.pages.remove(&page);
        }
    }

    /// Whether it is a page's turn to be executed, and not to be written.
    fn is_executed(&self, page: Virt) -> bool {
        self.pages.get(&page).is_some_and(|turn| turn.executed && turn.times < MOST)
    }

    fn execute(&mut self, page: Virt) {
        self.pages.entry(page).or_default().executed = true;
    }

    fn write(&mut self, page: Virt) {
        let turn = self.pages.entry(page).or_default();
        (turn.executed, turn.times) = (false, turn.times + 1);
        self.left_alone += u64::from(turn.times == MOST);
    }
}

impl AddressSpace {
    /// How many pages were written and executed in turns so often that they are left as they are.
    #[must_use]
    pub fn code_left_alone(&self) -> u64 {
        self.turns.left_alone
    }

    /// Makes the page at `address`, from which the instruction at `rip` is fetched, resident and executable, if that is allowed.
    pub(crate) fn fetch(
        &mut self,
        memory: &mut Memory,
        address: Virt,
        rip: Virt,
    ) -> Result<Result<(), Refusal>, SpaceError> {
        if let Err(refusal) = self.touch(memory, address, Access::Execute)? {
            return Ok(Err(refusal));
        }
        let found = self.tables.walk(memory.ram(), address).and_then(|found| found.rights);
        if found.is_some_and(|rights| !rights.execute) {
            self.begin_executing(memory, page_of(address), rip)?;
        }
        Ok(Ok(()))
    }

    /// Searches a page, of which an instruction is about to be executed that begins at `rip`; it is not written from now on.
    fn begin_executing(&mut self, memory: &mut Memory, page: Virt, rip: Virt) -> Result<(), SpaceError> {
        let range = page..page + PAGE;
        let mut bytes = [0; crate::ram::PAGE_LEN];
        self.copy(memory, page, &mut bytes);
        let mut instruction = [0; LONGEST];
        self.copy(memory, rip, &mut instruction);
        let bodies = reached(page, &bytes, first_behind(page, rip, &instruction));
        let functions: Vec<Virt> = bodies.iter().map(|body| body.start).collect();
        self.rewrite(memory, range, Known { functions: &functions, bodies: &bodies })?;
        self.turns.execute(page);
        self.renew(memory, page);
        Ok(())
    }

    /// Gives the program its own bytes in a page that was executed and is about to be written, if it is one whose turn that ends.
    pub(super) fn begin_writing(&mut self, memory: &mut Memory, page: Virt) -> Result<(), SpaceError> {
        if !self.turns.is_executed(page) {
            return Ok(());
        }
        self.restore_anonymous(memory, &(page..page + PAGE))?;
        self.turns.write(page);
        self.renew(memory, page);
        Ok(())
    }

    /// Puts the program's own bytes back in the anonymous memory of a range.
    pub(super) fn restore_anonymous(
        &mut self,
        memory: &mut Memory,
        range: &Range<Virt>,
    ) -> Result<(), SpaceError> {
        for part in self.mappings.anonymous(range) {
            match self.restore_sites(memory, part.start, part.end - part.start) {
                Ok(()) | Err(AccessError::Bad) => {}
                Err(AccessError::Space(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives the entry of a resident page the rights that it is to have now.
    fn renew(&mut self, memory: &mut Memory, page: Virt) {
        let rights = self.mappings.find(page).map_or_else(Rights::default, |(_, mapping)| mapping.rights);
        let Some(frame) = self.frame(memory.ram(), page) else { return };
        let entry = self.entry_rights(memory, page, frame, rights);
        let stale = self.tables.protect(memory.ram_mut(), page, entry);
        memory.invalidate(stale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::vma::Backing;

    /// xor eax, eax; cpuid; ret
    const CODE: [u8; 5] = [0x31, 0xc0, 0x0f, 0xa2, 0xc3];
    const AT: Virt = 0x1_0000;

    fn written() -> (Memory, AddressSpace) {
        let mut memory = Memory::new(256 * PAGE).expect("little memory");
        let mut space = AddressSpace::new(&mut memory).expect("a frame");
        let rights = Rights { read: true, write: true, execute: true };
        space.map(&mut memory, AT..AT + PAGE, rights, Backing::Zero("")).expect("room");
        space.write(&mut memory, AT, &CODE).expect("it may be written");
        (memory, space)
    }

    fn allowed(memory: &Memory, space: &AddressSpace) -> (bool, bool) {
        let rights = space.tables.walk(memory.ram(), AT).expect("resident").rights.expect("readable");
        (rights.write, rights.execute)
    }

    fn seen(memory: &Memory, space: &AddressSpace) -> [u8; 5] {
        let mut bytes = [0; 5];
        assert!(space.copy(memory, AT, &mut bytes));
        bytes
    }

    #[test]
    fn what_was_written_is_searched_before_it_is_executed() {
        let (mut memory, mut space) = written();
        assert_eq!(allowed(&memory, &space), (true, false));
        space.fetch(&mut memory, AT, AT).expect("frames").expect("it may be executed");
        assert_eq!(allowed(&memory, &space), (false, true));
        assert_eq!(seen(&memory, &space), [0x31, 0xc0, 0x0f, 0x0b, 0xc3]);
        assert!(space.sites().contains(AT + 2));
        space.touch(&mut memory, AT + 100, Access::Write).expect("frames").expect("it may be written");
        assert_eq!(allowed(&memory, &space), (true, false));
        assert_eq!((seen(&memory, &space), space.sites().is_empty()), (CODE, true));
    }

    #[test]
    fn a_page_of_many_turns_is_left_as_it_is() {
        let (mut memory, mut space) = written();
        for _ in 0..MOST {
            assert_eq!(space.code_left_alone(), 0);
            space.fetch(&mut memory, AT, AT).expect("frames").expect("it may be executed");
            space.touch(&mut memory, AT, Access::Write).expect("frames").expect("it may be written");
        }
        assert_eq!((allowed(&memory, &space), space.code_left_alone()), ((true, true), 1));
        assert_eq!(seen(&memory, &space), CODE);
    }

    #[test]
    fn a_child_has_its_own_turns() {
        let (mut memory, mut space) = written();
        space.fetch(&mut memory, AT, AT).expect("frames").expect("it may be executed");
        let mut child = space.fork(&mut memory).expect("frames");
        child.write(&mut memory, AT, &CODE[..2]).expect("it may be written");
        assert_eq!((allowed(&memory, &child), seen(&memory, &child)), ((true, false), CODE));
        assert_eq!(allowed(&memory, &space), (false, true));
        assert_eq!(seen(&memory, &space), [0x31, 0xc0, 0x0f, 0x0b, 0xc3]);
    }

    #[test]
    fn another_mapping_begins_anew() {
        let (mut memory, mut space) = written();
        space.fetch(&mut memory, AT, AT).expect("frames").expect("it may be executed");
        let rights = Rights { read: true, write: true, execute: true };
        space.map(&mut memory, AT..AT + PAGE, rights, Backing::Zero("")).expect("room");
        space.write(&mut memory, AT, &CODE).expect("it may be written");
        assert_eq!(allowed(&memory, &space), (true, false));
        space.protect(&mut memory, &(AT..AT + PAGE), Rights { write: false, ..rights }).expect("frames");
        assert_eq!((allowed(&memory, &space), space.sites().len()), ((false, true), 1));
    }
}
