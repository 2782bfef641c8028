//! Guest memory as the software CPU sees it: through the page tables, and but for what is watched.

use super::watch::Watching;
use crate::engine::Phys;
use crate::ram::Ram;
use crate::ram::paging::{Reach, translate_user};
use std::ops::Range;
use x86::bus::{Access, Bus, PageFault, Translation};

/// Guest memory, the root of its page tables, and what is watched in it.
pub(super) struct PagedRam {
    pub(super) ram: Ram,
    pub(super) root: Phys,
    pub(super) watching: Watching,
}

impl Bus for PagedRam {
    fn ram(&self) -> &[u8] {
        self.ram.bytes()
    }

    fn ram_mut(&mut self) -> &mut [u8] {
        self.ram.bytes_mut()
    }

    fn translate(&mut self, va: u64, access: Access) -> Result<Translation, PageFault> {
        let absent = PageFault::new(va, access, false);
        let forbidden = PageFault::new(va, access, true);
        if self.root == 0 {
            return Err(absent);
        }
        let (frame, rights) = match translate_user(&self.ram, self.root, va) {
            Reach::Page(frame, rights) => (frame, rights),
            Reach::Forbidden => return Err(forbidden),
            Reach::Absent => return Err(absent),
        };
        let allowed = match access {
            Access::Read => true,
            Access::Write => rights.write,
            Access::Execute => rights.execute,
        };
        if allowed && self.watching.guard.stops(va, access) {
            return Err(forbidden);
        }
        let translation = Translation { frame, writable: rights.write, executable: rights.execute };
        allowed.then_some(translation).ok_or(forbidden)
    }

    fn expect_length(&mut self, bytes: Option<u64>) {
        self.watching.guard.expect_length(bytes);
    }

    fn may_cache(&self, va: u64, access: Access) -> bool {
        self.watching.guard.may_cache(va, access)
    }

    fn part_around(&self, va: u64, access: Access) -> Option<Range<u64>> {
        self.watching.guard.part_around(va, access)
    }
}
