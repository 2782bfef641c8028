//! Data that is watched: an access that begins near it faults, and the instruction then runs alone.
//!
//! Whether it accesses the very bytes is told from its operands before it runs. Translations of the pages are not cached, so that each
//! access to them asks; all others cost nothing, in compiled code too. Code that often comes to such a page at other bytes is told the
//! part of it that is not watched, and asks where it leaves that.

use super::PagedRam;
use crate::engine::accessed::{accesses, repeated};
use crate::engine::code::fetch;
use crate::engine::lookout::{Accessed, Lookout, Watch};
use crate::ram::{PAGE, Virt};
use std::ops::Range;
use x86::bus::{Access, part_between};
use x86::interpreter::{Observer, Stop, Until};
use x86_jit::Jit;

/// No access that is asked for at once is longer.
const LONGEST: u64 = 64;

/// What is watched, and whether an access to its pages has just been stopped.
#[derive(Default)]
pub(super) struct Guard {
    lookout: Lookout,
    pages: Vec<Virt>,
    /// The instruction at rip may access them.
    lifted: bool,
    stopped: bool,
    /// The bytes of an access, where that is said.
    length: Option<u64>,
}

impl Guard {
    /// Looks for this from now on; the translations are to be forgotten.
    pub(super) fn set(&mut self, lookout: &Lookout) {
        self.lookout = lookout.clone();
        let pages = lookout.data.iter().flat_map(|watch| {
            let last = watch.range.end.saturating_sub(1).max(watch.range.start);
            (watch.range.start / PAGE..=last / PAGE).map(|page| page * PAGE)
        });
        self.pages = pages.collect();
        self.pages.sort_unstable();
        self.pages.dedup();
    }

    pub(super) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Accesses have so many bytes from now on.
    pub(super) fn expect_length(&mut self, bytes: Option<u64>) {
        self.length = bytes;
    }

    /// Whether an access that begins at `address` has to fault: it may be one that is looked for.
    pub(super) fn forbids(&mut self, address: Virt, access: Access) -> bool {
        let length = self.length.unwrap_or(LONGEST);
        if self.pages.is_empty() || self.lifted || access == Access::Execute {
            return false;
        }
        let near = |watch: &Watch| {
            asks(watch, access)
                && watch.range.start < address.saturating_add(length)
                && address < watch.range.end
        };
        let forbids = self.lookout.data.iter().any(near);
        self.stopped |= forbids;
        forbids
    }

    /// Whether no access of this kind to the page is one that is looked for.
    pub(super) fn may_cache(&self, address: Virt, access: Access) -> bool {
        let page = address - address % PAGE;
        let on_page = |watch: &Watch| {
            asks(watch, access) && watch.range.start < page.saturating_add(PAGE) && page < watch.range.end
        };
        self.pages.is_empty()
            || access == Access::Execute
            || self.pages.binary_search(&page).is_err()
            || !self.lookout.data.iter().any(on_page)
    }

    /// The part of the page around `address` where no access of this kind is looked for.
    pub(super) fn part_around(&self, address: Virt, access: Access) -> Option<Range<Virt>> {
        let asking = self.lookout.data.iter().filter(|watch| asks(watch, access));
        part_between(address, asking.map(|watch| watch.range.clone()))
    }
}

/// Whether an access of this kind can be one that is looked for: what loads and stores the same asks for the store alone.
fn asks(watch: &Watch, access: Access) -> bool {
    access == Access::Write || watch.access.includes(false)
}

/// Runs the instruction at rip that was kept from a watched page: why it stopped, and what it accessed of what is watched.
pub(super) fn run_guarded<O: Observer>(
    jit: &mut Jit<PagedRam>,
    observer: &mut O,
) -> (Stop, Option<Accessed>) {
    let before = jit.cpu().regs();
    let PagedRam { ram, root, .. } = jit.cpu().bus();
    let accesses = accesses(&fetch(ram, *root, before.rip), &before);
    jit.cpu_mut().bus_mut().guard.lifted = true;
    let one = jit.counters().instructions + 1;
    let stop = jit.run(Until::retired(one), observer);
    let after = jit.cpu().regs();
    jit.cpu_mut().bus_mut().guard.lifted = false;
    let lookout = &jit.cpu().bus().guard.lookout;
    let seen = accesses.iter().find_map(|(access, repeats)| {
        let range = if *repeats { repeated(access, &before, &after) } else { access.range.clone() };
        let address = lookout.watched(&range, access.writes)?;
        let len = range.end.saturating_sub(address);
        Some(Accessed { rip: before.rip, address, len, writes: access.writes })
    });
    (stop, seen)
}

/// Whether a page fault was made by [`Guard::forbids`].
pub(super) fn take_stopped(jit: &mut Jit<PagedRam>) -> bool {
    std::mem::take(&mut jit.cpu_mut().bus_mut().guard.stopped)
}
