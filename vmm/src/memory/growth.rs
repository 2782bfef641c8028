//! What grows: the heap, the stack, and mappings that were asked to grow downwards.

use super::Rights;
use super::layout::{self, STACK_GUARD, STACK_LIMIT};
use super::space::{AddressSpace, SpaceError};
use super::vma::{Backing, Mapping, page_of, page_up};
use crate::ram::{Memory, PAGE, Virt};
use std::ops::Range;

impl AddressSpace {
    /// Where the heap starts, and where it ends.
    #[must_use]
    pub fn heap(&self) -> Range<Virt> {
        self.heap..self.heap_end
    }

    /// Puts the heap's start and end at `start`, the first page behind the program.
    pub fn set_heap(&mut self, start: Virt) {
        (self.heap, self.heap_end) = (start, start);
    }

    /// Moves the heap's end, by pages that may be executed if that is asked for; gives where it is now, which is where it was if it cannot be moved.
    pub fn set_heap_end(
        &mut self,
        memory: &mut Memory,
        end: Virt,
        execute: bool,
    ) -> Result<Virt, SpaceError> {
        let (Some(old_top), Some(new_top)) = (page_up(self.heap_end), page_up(end)) else {
            return Ok(self.heap_end);
        };
        if end < self.heap || new_top > layout::MMAP_END {
            return Ok(self.heap_end);
        }
        if new_top < old_top {
            self.unmap(memory, &(new_top..old_top))?;
        } else if new_top > old_top {
            if !self.mappings.is_free(&(old_top..new_top + PAGE)) {
                return Ok(self.heap_end);
            }
            let rights = Rights { read: true, write: true, execute };
            self.map(memory, old_top..new_top, rights, Backing::Zero("[heap]"))?;
        }
        self.heap_end = end;
        Ok(end)
    }

    /// Extends the stack down to `address`, or another mapping that grows downwards, if it lies in its reach.
    pub(super) fn grow_stack(&mut self, address: Virt) {
        let Some((start, above)) = self.mappings.at_or_after(address) else { return };
        if start <= address || !above.attributes.grows_down {
            return;
        }
        let page = page_of(address);
        let top = if start > layout::TIME_PAGE { layout::STACK_END } else { above.end };
        let gap = page.saturating_sub(STACK_GUARD)..start;
        if top.saturating_sub(page) > STACK_LIMIT || !self.mappings.is_free(&gap) {
            return;
        }
        let mapping = Mapping { end: start, ..above.clone() };
        self.mappings.insert(page, mapping);
    }
}
