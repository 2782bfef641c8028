//! What the pages of shared objects hold that have no frame: the size of each object, and the parts of it that are known.
//!
//! For an object that is a file of the host, this is what the host's file holds. A page's frame may differ from it: the program
//! has stored something there, and the page is dirty. All of this is plain data: a copy of it is a copy of all contents.

use super::{PAGE, PAGE_LEN};
use crate::plain::plain;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The contents of all shared objects, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    all: BTreeMap<u64, Content>,
}
plain!(struct Contents { all });

/// The content of one.
#[derive(Clone, Debug, Default)]
struct Content {
    /// In bytes.
    size: u64,
    /// What was taken at once, by its first page; parts do not overlap.
    parts: BTreeMap<u64, Part>,
    /// Pages that have changed since.
    pages: BTreeMap<u64, Arc<[u8; PAGE_LEN]>>,
}
plain!(struct Content { size, parts, pages });

/// Consecutive pages.
#[derive(Clone, Debug)]
struct Part {
    pages: u64,
    /// What they hold, from the first page's start; zeroes behind.
    bytes: Arc<Vec<u8>>,
    /// How many of the bytes count.
    valid: usize,
}
plain!(struct Part { pages, bytes, valid });

impl Content {
    fn part(&self, page: u64) -> Option<(u64, &Part)> {
        let (first, part) = self.parts.range(..=page).next_back()?;
        (page - first < part.pages).then_some((*first, part))
    }

    /// A page that is known, without the zeroes behind.
    fn page(&self, page: u64) -> Option<&[u8]> {
        if let Some(changed) = self.pages.get(&page) {
            return Some(&changed[..]);
        }
        let (first, part) = self.part(page)?;
        let from = usize::try_from((page - first).saturating_mul(PAGE)).unwrap_or(usize::MAX).min(part.valid);
        Some(&part.bytes[from..part.valid.min(from.saturating_add(PAGE_LEN))])
    }
}

impl Contents {
    /// Adds an object of which nothing is known but its size.
    pub fn add(&mut self, object: u64, size: u64) {
        self.all.insert(object, Content { size, ..Content::default() });
    }

    /// Forgets an object.
    pub fn remove(&mut self, object: u64) {
        self.all.remove(&object);
    }

    /// The size of an object in bytes.
    #[must_use]
    pub fn size(&self, object: u64) -> Option<u64> {
        self.all.get(&object).map(|content| content.size)
    }

    /// Says what pages hold of which nothing was known: these bytes, and zeroes behind.
    pub fn know(&mut self, object: u64, pages: Range<u64>, bytes: Arc<Vec<u8>>) {
        let Some(content) = self.all.get_mut(&object).filter(|_| !pages.is_empty()) else { return };
        let count = pages.end - pages.start;
        let most = usize::try_from(count.saturating_mul(PAGE)).unwrap_or(usize::MAX);
        let valid = bytes.len().min(most);
        content.parts.insert(pages.start, Part { pages: count, bytes, valid });
    }

    /// The pages of a range of which nothing is known.
    #[must_use]
    pub fn unknown(&self, object: u64, pages: Range<u64>) -> Vec<Range<u64>> {
        let Some(content) = self.all.get(&object) else { return Vec::new() };
        let mut gaps = Vec::new();
        let mut at = pages.start;
        while at < pages.end {
            if let Some((first, part)) = content.part(at) {
                at = first + part.pages;
                continue;
            }
            let next = content.parts.range(at..).next().map_or(pages.end, |(first, _)| *first);
            gaps.push(at..next.min(pages.end));
            at = next;
        }
        gaps
    }

    /// The pages of a range that may hold anything but zeroes, in order.
    #[must_use]
    pub fn held(&self, object: u64, pages: &Range<u64>) -> BTreeSet<u64> {
        let Some(content) = self.all.get(&object) else { return BTreeSet::new() };
        let within = |(first, part): (&u64, &Part)| {
            let end = first + (part.valid as u64).div_ceil(PAGE).min(part.pages);
            pages.start.max(*first)..pages.end.min(end)
        };
        let taken = content.parts.iter().flat_map(within);
        let changed = content.pages.keys().copied().filter(|page| pages.contains(page));
        taken.chain(changed).collect()
    }

    /// What a page holds, if that is known, without the zeroes behind.
    #[must_use]
    pub fn page(&self, object: u64, page: u64) -> Option<&[u8]> {
        self.all.get(&object)?.page(page)
    }

    /// Changes the bytes of the known pages from `offset` on; the size stays.
    pub fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        let Some(content) = self.all.get_mut(&object) else { return };
        for (at, part) in pieces(offset, bytes) {
            let page = at / PAGE;
            let Some(old) = content.page(page) else { continue };
            let mut new = [0; PAGE_LEN];
            new[..old.len()].copy_from_slice(old);
            let from = usize::try_from(at % PAGE).expect("inside a page");
            new[from..from + part.len()].copy_from_slice(part);
            content.pages.insert(page, Arc::new(new));
        }
    }

    /// Changes the size; what is cut off is zero if the object grows again.
    pub fn resize(&mut self, object: u64, size: u64) {
        let Some(content) = self.all.get_mut(&object) else { return };
        content.size = size;
        drop(content.pages.split_off(&size.div_ceil(PAGE)));
        let tail = usize::try_from(size % PAGE).expect("inside a page");
        if tail > 0
            && let Some(page) = content.pages.get_mut(&(size / PAGE))
        {
            Arc::make_mut(page)[tail..].fill(0);
        }
        for (first, part) in &mut content.parts {
            let left = size.saturating_sub(first.saturating_mul(PAGE));
            part.valid = part.valid.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
    }
}

/// Cuts bytes that begin at `offset` at page boundaries.
pub fn pieces(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let (mut at, mut rest) = (offset, bytes);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let room = usize::try_from(PAGE - at % PAGE).expect("at most a page");
        let (now, later) = rest.split_at(room.min(rest.len()));
        let found = (at, now);
        at = at.checked_add(now.len() as u64)?;
        rest = later;
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_and_what_is_not() {
        let mut contents = Contents::default();
        contents.add(1, 10 * PAGE);
        assert_eq!(contents.unknown(1, 0..4), vec![0..4]);
        contents.know(1, 1..2, Arc::new(vec![7; 5]));
        assert_eq!(contents.unknown(1, 0..4), [0..1, 2..4]);
        assert_eq!(contents.page(1, 1), Some(&[7; 5][..]));
        assert_eq!(contents.page(1, 2), None);
        assert_eq!(contents.unknown(2, 0..4), []);
        contents.know(1, 3..3, Arc::default());
        assert_eq!(contents.unknown(1, 2..4), vec![2..4]);
    }

    #[test]
    fn holes_hold_nothing_however_large() {
        let mut contents = Contents::default();
        contents.add(1, u64::MAX);
        contents.know(1, 0..1 << 40, Arc::default());
        contents.know(1, 1 << 40..1 << 50, Arc::new(vec![7; PAGE_LEN + 1]));
        contents.write(1, 5 * PAGE, &[1]);
        assert_eq!(contents.held(1, &(0..1 << 50)), BTreeSet::from([5, 1 << 40, (1 << 40) + 1]));
        assert_eq!(contents.held(1, &(6..(1 << 40) + 1)), BTreeSet::from([1 << 40]));
    }

    #[test]
    fn writes_change_known_pages_only() {
        let mut contents = Contents::default();
        contents.add(1, 3 * PAGE);
        contents.know(1, 0..2, Arc::new(vec![1; PAGE_LEN + 1]));
        contents.write(1, 2 * PAGE - 1, &[9, 9]);
        let page = contents.page(1, 1).unwrap();
        assert_eq!((page[0], page[1], page[PAGE_LEN - 1]), (1, 0, 9));
        assert_eq!(contents.page(1, 2), None);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let mut contents = Contents::default();
        contents.add(1, 2 * PAGE);
        contents.know(1, 0..8, Arc::new(vec![1; 2 * PAGE_LEN]));
        contents.write(1, 5, &[2]);
        contents.resize(1, 6);
        contents.resize(1, 2 * PAGE);
        let page = contents.page(1, 0).unwrap();
        assert_eq!((page[4], page[5], page[6]), (1, 2, 0));
        assert!(contents.page(1, 1).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(contents.size(1), Some(2 * PAGE));
    }

    #[test]
    fn pieces_end_at_pages() {
        let cut: Vec<_> = pieces(PAGE - 1, &[1, 2, 3]).map(|(at, part)| (at, part.len())).collect();
        assert_eq!(cut, [(PAGE - 1, 1), (PAGE, 2)]);
        assert_eq!(pieces(5, &[]).count(), 0);
    }
}
