//! What an address space holds, as one number: the sum of the digests of its lines of 64 bytes, so that whoever knows which
//! frames were written need not read the others again ([`PageDigests`]).

use super::AddressSpace;
use super::layout;
use crate::ram::{PAGE_LEN, Phys, Ram, Virt};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a line.
const LINE: usize = 64;
/// Bytes that are compared at once.
const BLOCK: usize = 8 * LINE;

impl AddressSpace {
    /// The sum, modulo 2 to the 64, of the XXH3-64 of each line of 64 bytes in resident pages that is not all zero, seeded with
    /// its address.
    ///
    /// It includes the time page (which changes only at exits, by inputs), the vDSO and the rewritten instructions; it does not
    /// include the engine's own pages, the page tables, or which pages of zeroes are resident.
    #[must_use]
    pub fn digest(&self, ram: &Ram) -> u64 {
        self.pages(ram).fold(0, |sum, (page, frame)| sum.wrapping_add(of_page(page, ram.frame(frame))))
    }

    /// The same, to be kept up to date.
    pub(crate) fn page_digests(&self, ram: &Ram) -> PageDigests {
        let mut kept = PageDigests { of_frame: HashMap::new(), contents: HashMap::new(), sum: 0 };
        for (page, frame) in self.pages(ram) {
            kept.of_frame.entry(frame).or_default().push((page, of_page(page, ram.frame(frame))));
        }
        let digests = kept.of_frame.values().flatten().map(|(_, digest)| *digest);
        kept.sum = digests.fold(0, u64::wrapping_add);
        kept
    }

    fn pages<'a>(&'a self, ram: &'a Ram) -> impl Iterator<Item = (Virt, Phys)> + 'a {
        self.tables.mapped(ram, 0, layout::USER_END).map(|(page, mapping)| (page, mapping.frame))
    }
}

/// The digests of the pages of an address space whose mappings stay as they are.
pub(crate) struct PageDigests {
    /// By frame: the pages that it is seen at, and their digests at first.
    of_frame: HashMap<Phys, Vec<(Virt, u64)>>,
    /// What is in those that were rewritten.
    contents: HashMap<Phys, Box<[u8; PAGE_LEN]>>,
    sum: u64,
}

impl PageDigests {
    /// [`AddressSpace::digest`].
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// These frames may have other content now.
    pub(crate) fn rewritten(&mut self, ram: &Ram, frames: &[Phys]) {
        for frame in frames {
            let Some(pages) = self.of_frame.get(frame) else { continue };
            let now = ram.frame(*frame);
            let Some(before) = self.contents.get_mut(frame) else {
                for (page, digest) in pages {
                    self.sum = self.sum.wrapping_sub(*digest).wrapping_add(of_page(*page, now));
                }
                self.contents.insert(*frame, Box::new(*now));
                continue;
            };
            for (block, now) in now.chunks_exact(BLOCK).enumerate() {
                let before = &mut before[block * BLOCK..][..BLOCK];
                if now == before {
                    continue;
                }
                let at = (block * BLOCK) as Virt;
                for (page, _) in pages {
                    let (gone, come) = (of_lines(page + at, before), of_lines(page + at, now));
                    self.sum = self.sum.wrapping_sub(gone).wrapping_add(come);
                }
                before.copy_from_slice(now);
            }
        }
    }
}

fn of_page(page: Virt, bytes: &[u8; PAGE_LEN]) -> u64 {
    if bytes.iter().all(|&byte| byte == 0) { 0 } else { of_lines(page, bytes) }
}

/// Of whole lines from an address on; those of zeroes count nothing.
fn of_lines(start: Virt, bytes: &[u8]) -> u64 {
    let lines = (start..).step_by(LINE).zip(bytes.chunks_exact(LINE));
    let digests = lines
        .filter(|(_, line)| line.iter().any(|&byte| byte != 0))
        .map(|(address, line)| xxh3_64_with_seed(line, address));
    digests.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is kept up to date is what is read anew, however often a frame is rewritten and wherever it is seen.
        #[test]
        fn digests_that_are_kept_are_those_that_are_read(
            stores in prop::collection::vec((0_usize..3, 0..PAGE_LEN, any::<u8>()), 0..40),
        ) {
            let mut ram = Ram::new(3 * PAGE_LEN as u64).expect("three pages");
            let seen = [(0x1000, 0), (0x5000, 0), (0x2000, PAGE_LEN as Phys), (0x9000, 2 * PAGE_LEN as Phys)];
            let anew = |ram: &Ram| {
                let digests = seen.iter().map(|(page, frame)| of_page(*page, ram.frame(*frame)));
                digests.fold(0, u64::wrapping_add)
            };
            let mut kept = PageDigests { of_frame: HashMap::new(), contents: HashMap::new(), sum: 0 };
            for (page, frame) in seen {
                kept.of_frame.entry(frame).or_default().push((page, 0));
            }
            for (frame, at, byte) in stores {
                let frame = (frame * PAGE_LEN) as Phys;
                ram.frame_mut(frame)[at] = byte;
                kept.rewritten(&ram, &[frame]);
                prop_assert_eq!(kept.sum(), anew(&ram));
            }
        }
    }
}
