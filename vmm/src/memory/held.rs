//! Which pages may hold something: what a core has to look at, however much is mapped.

use super::space::AddressSpace;
use super::vma::{Backing, page_up};
use crate::ram::{Memory, PAGE, PAGE_LEN, Virt};
use std::ops::Range;

impl AddressSpace {
    /// The pages of `range` that may not be zero, as ranges in order that do not touch: those that are resident, and those
    /// that a file backs.
    #[must_use]
    pub fn held(&self, memory: &Memory, range: &Range<Virt>) -> Vec<Range<Virt>> {
        let mut runs: Vec<Range<Virt>> =
            self.resident(memory.ram(), range).into_iter().map(|(page, _)| page..page + PAGE).collect();
        for (start, mapping) in
            self.mappings().iter().filter(|(start, m)| *start < range.end && m.end > range.start)
        {
            let part = start.max(range.start)..mapping.end.min(range.end);
            match &mapping.backing {
                Backing::Zero(_) => {}
                Backing::File(content, from) => {
                    let bytes = (content.bytes.len() as u64).saturating_sub(*from);
                    let end = page_up(bytes).and_then(|bytes| start.checked_add(bytes));
                    runs.push(part.start..end.map_or(part.end, |end| part.end.min(end)));
                }
                // Another process may have touched what is not resident here.
                Backing::Shared(object, from) | Backing::Copied(object, from) => {
                    let pages = (from + (part.start - start)) / PAGE..(from + (part.end - start)) / PAGE;
                    let held = object.held(memory, &pages).into_iter();
                    let at = |page: u64| part.start + (page - pages.start) * PAGE;
                    runs.extend(held.map(|page| at(page)..at(page) + PAGE));
                }
            }
        }
        joined(runs)
    }

    /// How many bytes of the mapping at `start` are the process's own, in whole pages: what it stored in the place of the file's bytes, and
    /// what it touched where no file is mapped. Linux tells as much in /proc/PID/smaps (`Anonymous`).
    #[must_use]
    pub fn anonymous(&self, memory: &Memory, start: Virt) -> u64 {
        let Some((start, mapping)) = self.mappings().find(start) else { return 0 };
        let range = start..mapping.end;
        let is_own = |page: Virt| {
            let (mut here, mut files) = ([0; PAGE_LEN], [0; PAGE_LEN]);
            let there = match &mapping.backing {
                Backing::Shared(object, from) | Backing::Copied(object, from) => {
                    object.read(memory, from + (page - start), &mut files)
                }
                backing => backing.fill(page - start, &mut files),
            };
            !there || !self.read_original(memory, page, &mut here) || here != files
        };
        let pages = match &mapping.backing {
            Backing::Zero(_) => self.resident(memory.ram(), &range).len(),
            Backing::Shared(object, _)
                if object.name.starts_with('/') && !object.name.starts_with("/dev/zero") =>
            {
                0
            }
            Backing::Shared(..) => {
                return self.held(memory, &range).iter().map(|held| held.end - held.start).sum();
            }
            Backing::File(..) | Backing::Copied(..) => {
                self.resident(memory.ram(), &range).iter().filter(|(page, _)| is_own(*page)).count()
            }
        };
        pages as u64 * PAGE
    }
}

/// The same pages in order, as ranges that do not touch.
fn joined(mut runs: Vec<Range<Virt>>) -> Vec<Range<Virt>> {
    runs.retain(|run| run.start < run.end);
    runs.sort_unstable_by_key(|run| run.start);
    let mut joined: Vec<Range<Virt>> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_or_overlap_are_one() {
        assert_eq!(joined(vec![8..9, 1..2, 2..4, 3..3, 3..5]), [1..5, 8..9]);
    }
}
