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
            let bytes = match &mapping.backing {
                Backing::Zero(_) => 0,
                Backing::File(content, from) => (content.bytes.len() as u64).saturating_sub(*from),
                // Another process may have touched what is not resident here.
                Backing::Shared(object, from) => object.size(memory).saturating_sub(*from),
            };
            let end =
                page_up(bytes).map_or(mapping.end, |bytes| mapping.end.min(start.saturating_add(bytes)));
            runs.push(start.max(range.start)..end.min(range.end));
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
