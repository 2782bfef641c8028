//! Which pages may hold something: what a core has to look at, however much is mapped.

use super::space::AddressSpace;
use super::vma::{Backing, page_up};
use crate::ram::{Memory, PAGE, Virt};
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
