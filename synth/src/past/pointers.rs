//! The pointers that lie in the core's memory, and where.
//!
//! A pointer that a register held in the past was loaded from memory, as a rule, and most of memory is as it
//! was. So the words that point somewhere are the first candidates for a pointer that nothing else tells.

use super::image::Image;
use std::ops::Range;

/// Every aligned word of the core that is an address in its memory, found from its value.
#[derive(Debug, Default)]
pub struct Pointers {
    /// (value, where it lies), ascending, each pair once.
    words: Vec<(u64, u64)>,
}

/// So many bytes are looked through, from the smallest regions to the largest; more would take longer than a search.
const MOST_BYTES: u64 = 256 << 20;

impl Pointers {
    /// Looks through the memory of `image`.
    #[must_use]
    pub fn of(image: &dyn Image) -> Pointers {
        let mut regions: Vec<Range<u64>> = image.regions();
        regions.sort_by_key(|r| r.end - r.start);
        let lowest = regions.iter().map(|r| r.start).min().unwrap_or(0);
        let highest = regions.iter().map(|r| r.end).max().unwrap_or(0);
        let (mut words, mut left) = (Vec::new(), MOST_BYTES);
        for region in regions {
            left = match left.checked_sub(region.end - region.start) {
                Some(left) => left,
                None => break,
            };
            let bytes = image.bytes(region.start);
            for (word, at) in bytes.chunks_exact(8).zip((region.start..region.end).step_by(8)) {
                let value = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                if (lowest..highest).contains(&value) && image.is_mapped(value) {
                    words.push((value, at));
                }
            }
        }
        words.sort_unstable();
        Pointers { words }
    }

    /// Each value once, ascending.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        self.words.chunk_by(|a, b| a.0 == b.0).map(|same| same[0].0)
    }

    /// Where `value` lies.
    pub fn places_of(&self, value: u64) -> impl Iterator<Item = u64> {
        let first = self.words.partition_point(|&(v, _)| v < value);
        self.words[first..].iter().take_while(move |&&(v, _)| v == value).map(|&(_, at)| at)
    }

    /// Whether some word has this value.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.places_of(value).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Page([u8; 64]);

    impl Image for Page {
        fn bytes(&self, va: u64) -> &[u8] {
            let at = va.checked_sub(0x1000).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| self.0.get(at..)).unwrap_or_default()
        }
        fn is_mapped(&self, va: u64) -> bool {
            (0x1000..0x1040).contains(&va)
        }
        fn is_writable(&self, va: u64) -> bool {
            self.is_mapped(va)
        }
        fn regions(&self) -> Vec<Range<u64>> {
            std::iter::once(0x1000..0x1040).collect()
        }
    }

    #[test]
    fn pointers_are_found_from_their_values() {
        let mut page = Page([0xff; 64]);
        for (at, value) in [(0x00, 0x1010_u64), (0x18, 0x1010), (0x20, 0x103f), (0x30, 0x1040)] {
            page.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let pointers = Pointers::of(&page);
        assert_eq!(pointers.values().collect::<Vec<_>>(), [0x1010, 0x103f]);
        assert_eq!(pointers.places_of(0x1010).collect::<Vec<_>>(), [0x1000, 0x1018]);
        assert!(pointers.contains(0x103f) && !pointers.contains(0x1040));
    }
}
