//! A small random number generator: a case must be the same for the same seed on every host and in every
//! version of the libraries.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Stream number `stream` of `seed`.
    #[must_use]
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut mixer = Random(seed);
        let start = mixer.next();
        Random(start ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, which is not zero. The bias is below 2^-32 for the small bounds used here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32).wrapping_mul(bound) >> 32
    }

    /// True in `percent` of 100.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which is not empty.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// An index below `len`, which is not zero.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}
