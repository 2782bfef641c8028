//! What is mapped where: ranges of the address space with rights and a backing, split and merged as Linux does.

use super::Rights;
use super::layout::USER_END;
use super::object::Object;
use crate::plain::{In, Out, Plain, plain, shared};
use crate::ram::{PAGE, Virt};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a file that is mapped, taken when it was mapped.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    /// The file's path.
    pub name: String,
    /// Where in the file `bytes` begin.
    pub file_offset: u64,
    /// The first of the bytes; those behind are zero.
    pub bytes: Arc<Vec<u8>>,
    /// How many bytes there are; those behind are zero up to the page's end, and pages beyond that raise SIGBUS.
    pub size: u64,
}
plain!(struct Content { name, file_offset, bytes, size });
shared!(Arc<Content>);

/// What a page holds before it is first touched.
#[derive(Clone, Debug)]
pub enum Backing {
    /// Zeroes.
    Zero(&'static str),
    /// The file's bytes; the mapping begins at this index of [`Content::bytes`].
    File(Arc<Content>, u64),
    /// Pages that all who map them see; the mapping begins at this byte of the object.
    Shared(Arc<Object>, u64),
    /// Pages of an object, as long as nothing is stored to them here: then they are copied.
    Copied(Arc<Object>, u64),
}

/// The names of mappings of zeroes.
const ZEROES: [&str; 3] = ["", "[stack]", "[heap]"];

impl Plain for Backing {
    fn put(&self, out: &mut Out) {
        match self {
            Backing::Zero(name) => {
                let number = ZEROES.iter().position(|known| known == name);
                (0_u8, number.expect("ZEROES has every name that is given")).put(out);
            }
            Backing::File(content, at) => (1_u8, (Arc::clone(content), *at)).put(out),
            Backing::Shared(object, at) => (2_u8, (Arc::clone(object), *at)).put(out),
            Backing::Copied(object, at) => (3_u8, (Arc::clone(object), *at)).put(out),
        }
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => Backing::Zero(ZEROES.get(usize::take(from)?)?),
            1 => Backing::File(Plain::take(from)?, Plain::take(from)?),
            2 => Backing::Shared(Plain::take(from)?, Plain::take(from)?),
            3 => Backing::Copied(Plain::take(from)?, Plain::take(from)?),
            _ => return None,
        })
    }
}

impl Backing {
    /// The backing of the part that begins `distance` bytes further on.
    #[must_use]
    pub fn after(&self, distance: u64) -> Backing {
        match self {
            Backing::Zero(name) => Backing::Zero(name),
            Backing::File(content, at) => Backing::File(Arc::clone(content), at + distance),
            Backing::Shared(object, at) => Backing::Shared(Arc::clone(object), at + distance),
            Backing::Copied(object, at) => Backing::Copied(Arc::clone(object), at + distance),
        }
    }

    /// The object whose pages it has, and where in it the mapping begins.
    #[must_use]
    pub fn object(&self) -> Option<(&Arc<Object>, u64)> {
        match self {
            Backing::Shared(object, at) | Backing::Copied(object, at) => Some((object, *at)),
            Backing::Zero(_) | Backing::File(..) => None,
        }
    }

    /// Whether others see what is written here.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Backing::Shared(..))
    }

    /// Whether `next` is what follows this backing after `distance` bytes.
    fn continues_in(&self, distance: u64, next: &Backing) -> bool {
        match (self, next) {
            (Backing::Zero(a), Backing::Zero(b)) => a == b,
            (Backing::File(a, at), Backing::File(b, next_at)) => {
                Arc::ptr_eq(a, b) && at + distance == *next_at
            }
            (Backing::Shared(a, at), Backing::Shared(b, next_at))
            | (Backing::Copied(a, at), Backing::Copied(b, next_at)) => {
                Arc::ptr_eq(a, b) && at + distance == *next_at
            }
            _ => false,
        }
    }

    /// Fills `page` with what the backing holds `distance` bytes after its start. False where a file has ended.
    #[must_use]
    pub fn fill(&self, distance: u64, page: &mut [u8]) -> bool {
        let (bytes, size, at) = match self {
            Backing::Zero(_) => {
                page.fill(0);
                return true;
            }
            Backing::File(content, at) => (&*content.bytes, content.size, at),
            // Without the memory, there is only what it held at first.
            Backing::Shared(object, at) | Backing::Copied(object, at) => {
                page.fill(0);
                if at + distance >= object.size {
                    return false;
                }
                copy_from(&object.initial, at + distance, page);
                return true;
            }
        };
        let rest = usize::try_from(at + distance).ok().and_then(|from| bytes.get(from..)).unwrap_or(&[]);
        let length = rest.len().min(page.len());
        page[..length].copy_from_slice(&rest[..length]);
        page[length..].fill(0);
        at.saturating_add(distance) < size
    }
}

/// Copies what there is of `bytes` from `at` on.
fn copy_from(bytes: &[u8], at: u64, page: &mut [u8]) {
    let rest = usize::try_from(at).ok().and_then(|from| bytes.get(from..)).unwrap_or(&[]);
    let length = rest.len().min(page.len());
    page[..length].copy_from_slice(&rest[..length]);
}

/// What was asked for a mapping besides its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// It is the stack, or another one that grows downwards.
    pub grows_down: bool,
    /// A child does not have it (MADV_DONTFORK).
    pub not_forked: bool,
    /// A child has zeroes there (MADV_WIPEONFORK).
    pub wiped_on_fork: bool,
    /// It stays in memory (mlock).
    pub locked: bool,
    /// It can never be written: it is shared, and its file is not open for writing.
    pub never_written: bool,
}
plain!(struct Attributes { grows_down, not_forked, wiped_on_fork, locked, never_written });

/// A range with one set of rights and one backing.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First address after it, a multiple of the page size.
    pub end: Virt,
    /// What the guest may do.
    pub rights: Rights,
    /// What untouched pages hold.
    pub backing: Backing,
    /// What else was asked for.
    pub attributes: Attributes,
}
plain!(struct Mapping { end, rights, backing, attributes });

impl Mapping {
    /// Whether its pages are written and executed in turns: memory of its own that the program may do both with.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        self.rights.write && self.rights.execute && matches!(self.backing, Backing::Zero(_))
    }
}

/// All mappings by their first address; they never overlap, and both ends are multiples of the page size.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    by_start: BTreeMap<Virt, Mapping>,
    /// Names what code is mapped: another number as soon as other is.
    code: u64,
}

/// A number that no other mappings have had.
fn new_code() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Plain for Mappings {
    fn put(&self, out: &mut Out) {
        self.by_start.put(out);
    }

    /// What overlaps or is no page of the guest's is refused.
    fn take(from: &mut In<'_>) -> Option<Self> {
        let by_start: BTreeMap<Virt, Mapping> = Plain::take(from)?;
        let mut free = 0;
        for (start, mapping) in &by_start {
            let is_whole = start % PAGE == 0 && mapping.end % PAGE == 0;
            if *start < free || mapping.end <= *start || mapping.end > USER_END || !is_whole {
                return None;
            }
            free = mapping.end;
        }
        Some(Mappings { by_start, code: new_code() })
    }
}

impl Mappings {
    /// The mapping that holds `address`, and its start.
    #[must_use]
    pub fn find(&self, address: Virt) -> Option<(Virt, &Mapping)> {
        let (&start, mapping) = self.by_start.range(..=address).next_back()?;
        (address < mapping.end).then_some((start, mapping))
    }

    /// The first mapping that ends after `address`.
    #[must_use]
    pub fn at_or_after(&self, address: Virt) -> Option<(Virt, &Mapping)> {
        self.find(address)
            .or_else(|| self.by_start.range(address..).next().map(|(&start, mapping)| (start, mapping)))
    }

    /// All, in address order.
    pub fn iter(&self) -> impl Iterator<Item = (Virt, &Mapping)> {
        self.by_start.iter().map(|(&start, mapping)| (start, mapping))
    }

    /// Those from `address` on, in address order.
    pub fn iter_from(&self, address: Virt) -> impl Iterator<Item = (Virt, &Mapping)> {
        self.by_start.range(address..).map(|(&start, mapping)| (start, mapping))
    }

    /// Those below the one that starts at `address`, the nearest first.
    pub fn below(&self, address: Virt) -> impl Iterator<Item = (Virt, &Mapping)> {
        self.by_start.range(..address).rev().map(|(&start, mapping)| (start, mapping))
    }

    /// A number that is another one as soon as other code is mapped.
    #[must_use]
    pub fn code(&self) -> u64 {
        self.code
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Whether nothing is mapped in `range`.
    #[must_use]
    pub fn is_free(&self, range: &Range<Virt>) -> bool {
        self.at_or_after(range.start).is_none_or(|(start, _)| start >= range.end)
    }

    /// Whether every byte of `range` is mapped.
    #[must_use]
    pub fn is_full(&self, range: &Range<Virt>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let Some((_, mapping)) = self.find(at) else { return false };
            at = mapping.end;
        }
        true
    }

    /// Maps `start..mapping.end`, which must be free, and merges it with what it continues.
    pub fn insert(&mut self, start: Virt, mapping: Mapping) {
        let end = mapping.end;
        if mapping.rights.execute {
            self.code = new_code();
        }
        self.by_start.insert(start, mapping);
        self.merge_at(end);
        self.merge_at(start);
    }

    /// Unmaps all of `range`; gives what was there.
    pub fn remove(&mut self, range: &Range<Virt>) -> Vec<(Virt, Mapping)> {
        self.split_at(range.start);
        self.split_at(range.end);
        let starts: Vec<Virt> = self.by_start.range(range.clone()).map(|(&start, _)| start).collect();
        let removed: Vec<(Virt, Mapping)> =
            starts.into_iter().filter_map(|start| Some((start, self.by_start.remove(&start)?))).collect();
        if removed.iter().any(|(_, mapping)| mapping.rights.execute) {
            self.code = new_code();
        }
        removed
    }

    /// Gives all of `range` these rights.
    pub fn set_rights(&mut self, range: &Range<Virt>, rights: Rights) {
        for (start, mapping) in self.remove(range) {
            self.insert(start, Mapping { rights, ..mapping });
        }
    }

    /// Changes what was asked for all of `range`.
    pub fn set_attributes(&mut self, range: &Range<Virt>, change: impl Fn(&mut Attributes)) {
        for (start, mut mapping) in self.remove(range) {
            change(&mut mapping.attributes);
            self.insert(start, mapping);
        }
    }

    /// The parts of `range` that are mapped, each with its mapping.
    pub fn parts(&self, range: &Range<Virt>) -> impl Iterator<Item = (Range<Virt>, &Mapping)> {
        let first = self.find(range.start).map_or(range.start, |(start, _)| start);
        let (from, to) = (range.start, range.end);
        self.by_start
            .range(first..to)
            .map(move |(start, mapping)| ((*start).max(from)..mapping.end.min(to), mapping))
            .filter(|(part, _)| !part.is_empty())
    }

    /// The parts of `range` that are memory without a file.
    #[must_use]
    pub fn anonymous(&self, range: &Range<Virt>) -> Vec<Range<Virt>> {
        let parts = self.parts(range).filter(|(_, mapping)| matches!(mapping.backing, Backing::Zero(_)));
        parts.map(|(part, _)| part).collect()
    }

    /// The highest free range of `length` bytes inside `within`.
    #[must_use]
    pub fn highest_gap(&self, length: u64, within: &Range<Virt>) -> Option<Virt> {
        let mut top = within.end;
        for (&start, mapping) in self.by_start.range(..within.end).rev() {
            if mapping.end.checked_add(length).is_some_and(|need| need <= top) {
                break;
            }
            top = top.min(start);
        }
        top.checked_sub(length).filter(|&start| start >= within.start)
    }

    /// Makes `address` a boundary, if it lies inside a mapping.
    fn split_at(&mut self, address: Virt) {
        let Some((start, mapping)) = self.find(address) else { return };
        if start == address {
            return;
        }
        let upper = Mapping { backing: mapping.backing.after(address - start), ..mapping.clone() };
        if let Some(lower) = self.by_start.get_mut(&start) {
            lower.end = address;
        }
        self.by_start.insert(address, upper);
    }

    /// Merges the mapping that starts at `address` into the one that ends there, if it continues it.
    fn merge_at(&mut self, address: Virt) {
        let Some(upper) = self.by_start.get(&address) else { return };
        let Some((&start, lower)) = self.by_start.range(..address).next_back() else { return };
        let same = lower.end == address
            && lower.rights == upper.rights
            && lower.attributes == upper.attributes
            && lower.backing.continues_in(address - start, &upper.backing);
        if !same {
            return;
        }
        let end = upper.end;
        self.by_start.remove(&address);
        if let Some(lower) = self.by_start.get_mut(&start) {
            lower.end = end;
        }
    }
}

/// The page that holds `address`.
#[must_use]
pub fn page_of(address: Virt) -> Virt {
    address & !(PAGE - 1)
}

/// `address` rounded up to a page, if that is an address.
#[must_use]
pub fn page_up(address: Virt) -> Option<Virt> {
    Some(address.checked_add(PAGE - 1)? & !(PAGE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Rights = Rights { read: true, write: true, execute: false };

    fn anonymous(end: Virt) -> Mapping {
        Mapping { end, rights: RW, backing: Backing::Zero(""), attributes: Attributes::default() }
    }

    fn ranges(mappings: &Mappings) -> Vec<Range<Virt>> {
        mappings.iter().map(|(start, mapping)| start..mapping.end).collect()
    }

    #[test]
    fn neighbours_merge_and_a_hole_splits_them() {
        let mut mappings = Mappings::default();
        mappings.insert(0x1000, anonymous(0x3000));
        mappings.insert(0x5000, anonymous(0x6000));
        mappings.insert(0x3000, anonymous(0x5000));
        assert_eq!(ranges(&mappings), vec![0x1000..0x6000]);
        mappings.remove(&(0x2000..0x3000));
        assert_eq!(ranges(&mappings), [0x1000..0x2000, 0x3000..0x6000]);
    }

    #[test]
    fn a_file_mapping_that_was_split_by_rights_merges_again() {
        let content = Arc::new(Content {
            name: "f".into(),
            file_offset: 0,
            bytes: Arc::new(vec![7; 0x3000]),
            size: 0x3000,
        });
        let mut mappings = Mappings::default();
        let backing = Backing::File(content, 0);
        mappings
            .insert(0x1000, Mapping { end: 0x4000, rights: RW, backing, attributes: Attributes::default() });
        mappings.set_rights(&(0x2000..0x3000), Rights::default());
        assert_eq!(mappings.len(), 3);
        let (start, mapping) = mappings.find(0x2fff).expect("mapped");
        let mut page = [0; 2];
        assert!(start == 0x2000 && mapping.backing.fill(0x0ffe, &mut page) && page == [7, 7]);
        mappings.set_rights(&(0x2000..0x3000), RW);
        assert_eq!(ranges(&mappings), vec![0x1000..0x4000]);
    }

    #[test]
    fn the_highest_gap_is_found_below_and_between() {
        let mut mappings = Mappings::default();
        mappings.insert(0x8000, anonymous(0x9000));
        mappings.insert(0x5000, anonymous(0x6000));
        assert_eq!(mappings.highest_gap(0x1000, &(0x1000..0xa000)), Some(0x9000));
        assert_eq!(mappings.highest_gap(0x2000, &(0x1000..0xa000)), Some(0x6000));
        assert_eq!(mappings.highest_gap(0x3000, &(0x1000..0xa000)), Some(0x2000));
        assert_eq!(mappings.highest_gap(0x5000, &(0x1000..0xa000)), None);
    }

    #[test]
    fn a_file_page_behind_the_end_cannot_be_filled() {
        let content =
            Arc::new(Content { name: "f".into(), file_offset: 0, bytes: Arc::new(vec![1; 10]), size: 10 });
        let backing = Backing::File(content, 0);
        let mut page = [9; 16];
        assert!(backing.fill(0, &mut page));
        assert_eq!(page[9..11], [1, 0]);
        assert!(!backing.fill(PAGE, &mut page));
    }

    #[test]
    fn zeroes_at_a_files_end_are_its_own() {
        let content = Content { name: "f".into(), file_offset: 0, bytes: Arc::new(vec![1]), size: PAGE + 1 };
        let backing = Backing::File(Arc::new(content), 0);
        let mut page = [9; 16];
        assert!(backing.fill(PAGE, &mut page) && page == [0; 16]);
        assert!(!backing.fill(2 * PAGE, &mut page));
    }
}
