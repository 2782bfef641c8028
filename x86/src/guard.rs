//! Data that is watched: where the guard is up, an access that begins near it stops before anything has happened.
//!
//! Translations of the pages are not cached, so that each access to them asks; all others cost nothing, in compiled code too. Code
//! that often comes to such a page at other bytes is told the part of it that is not watched ([`crate::bus::Bus::part_around`]). The
//! guard is down for an access that may happen, and for what the processor itself loads and stores (frames of interrupts, tables).

use crate::bus::{Access, PAGE_SIZE, part_between};
use std::ops::Range;

/// No access that is asked for at once is longer.
const LONGEST: u64 = 64;

/// Bytes that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Linear addresses.
    pub range: Range<u64>,
    /// Loads count, too.
    pub loads: bool,
}

/// What is watched, and whether an access to it has just been stopped.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    watched: Vec<Watched>,
    /// The pages with watched bytes, in order.
    pages: Vec<u64>,
    is_up: bool,
    stopped: bool,
    /// The bytes of an access, where that is said.
    length: Option<u64>,
}

impl Guard {
    /// Watches this from now on. Translations that are cached are to be forgotten.
    pub fn watch(&mut self, watched: Vec<Watched>) {
        let pages = watched.iter().flat_map(|it| {
            let last = it.range.end.saturating_sub(1).max(it.range.start);
            (it.range.start / PAGE_SIZE..=last / PAGE_SIZE).map(|page| page * PAGE_SIZE)
        });
        self.pages = pages.collect();
        self.pages.sort_unstable();
        self.pages.dedup();
        self.watched = watched;
    }

    /// Whether anything is watched.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Puts it up, or down.
    pub fn set_up(&mut self, up: bool) {
        self.is_up = up;
    }

    /// Whether the last page fault was a stop of the guard.
    pub fn take_stopped(&mut self) -> bool {
        std::mem::take(&mut self.stopped)
    }

    /// Accesses have so many bytes from now on.
    pub fn expect_length(&mut self, bytes: Option<u64>) {
        self.length = bytes;
    }

    /// Whether an access that begins at `va` has to stop: it may be one that is looked for.
    pub fn stops(&mut self, va: u64, access: Access) -> bool {
        if !self.is_up || access == Access::Execute || self.watched.is_empty() {
            return false;
        }
        let length = self.length.unwrap_or(LONGEST);
        let near = |it: &Watched| {
            asks(it, access) && it.range.start < va.saturating_add(length) && va < it.range.end
        };
        let stops = self.watched.iter().any(near);
        self.stopped |= stops;
        stops
    }

    /// Whether no access of this kind to the page is one that is looked for.
    #[must_use]
    pub fn may_cache(&self, va: u64, access: Access) -> bool {
        let page = va - va % PAGE_SIZE;
        let on_page = |it: &Watched| {
            asks(it, access) && it.range.start < page.saturating_add(PAGE_SIZE) && page < it.range.end
        };
        access == Access::Execute
            || self.pages.binary_search(&page).is_err()
            || !self.watched.iter().any(on_page)
    }

    /// The part of the page around `va` where no access of this kind is looked for.
    #[must_use]
    pub fn part_around(&self, va: u64, access: Access) -> Option<Range<u64>> {
        let asking = self.watched.iter().filter(|it| asks(it, access));
        part_between(va, asking.map(|it| it.range.clone()))
    }
}

/// Whether an access of this kind can be one that is looked for: what loads and stores the same asks for the store alone.
fn asks(watched: &Watched, access: Access) -> bool {
    access == Access::Write || watched.loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_stops_where_the_guard_is_up() {
        let mut guard = Guard::default();
        guard.watch(vec![Watched { range: 0x1ff8..0x2008, loads: false }]);
        assert!(!guard.stops(0x1ff8, Access::Write), "it is down");
        guard.set_up(true);
        assert!(guard.stops(0x1ff0, Access::Write) && guard.take_stopped() && !guard.take_stopped());
        guard.expect_length(Some(8));
        assert!(
            !guard.stops(0x1ff0, Access::Write) && guard.stops(0x1ff1, Access::Write),
            "it ends before it"
        );
        guard.expect_length(None);
        assert!(!guard.stops(0x1fb8, Access::Write) && guard.stops(0x1fb9, Access::Write));
        assert!(!guard.stops(0x2008, Access::Write) && !guard.stops(0x1ff8, Access::Read));
        assert!(!guard.may_cache(0x1000, Access::Write) && !guard.may_cache(0x2fff, Access::Write));
        assert!(guard.may_cache(0x3000, Access::Write) && guard.may_cache(0x1000, Access::Read));
        guard.watch(vec![Watched { range: 0x1000..0x1001, loads: true }]);
        assert!(guard.stops(0x1000, Access::Read) && !guard.stops(0x1000, Access::Execute));
    }
}
