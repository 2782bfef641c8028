//! The vector registers of the software CPU, as bytes: [`crate::packed`] tells why.

use crate::concrete::Concrete;
use crate::domain::Domain;
use crate::packed::Packed;

/// 128 bits of a register.
pub(crate) type Block = <Concrete as Domain>::Packed;

/// zmm0 to zmm31, aligned for the accesses of compiled code.
#[repr(align(64))]
pub(crate) struct Vectors([[u8; 64]; 32]);

impl Vectors {
    /// All of them from their parts of 64 bits.
    pub(crate) fn from_parts(registers: &[[u64; 8]; 32]) -> Vectors {
        let mut vectors = Vectors([[0; 64]; 32]);
        for (to, parts) in vectors.0.iter_mut().zip(registers) {
            for (to, part) in to.as_chunks_mut().0.iter_mut().zip(parts) {
                *to = part.to_le_bytes();
            }
        }
        vectors
    }

    /// All of them as parts of 64 bits.
    pub(crate) fn parts(&self) -> [[u64; 8]; 32] {
        let mut registers = [[0; 8]; 32];
        for (parts, bytes) in registers.iter_mut().zip(&self.0) {
            for (part, bytes) in parts.iter_mut().zip(bytes.as_chunks().0) {
                *part = u64::from_le_bytes(*bytes);
            }
        }
        registers
    }

    /// Where compiled code finds them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [[u8; 64]; 32] {
        &mut self.0
    }

    /// Part `part` of register `n`.
    #[inline(always)]
    pub(crate) fn part(&self, n: u8, part: u8) -> u64 {
        u64::from_le_bytes(self.0[usize::from(n & 31)].as_chunks().0[usize::from(part & 7)])
    }

    /// Writes a part.
    #[inline(always)]
    pub(crate) fn set_part(&mut self, n: u8, part: u8, v: u64) {
        self.0[usize::from(n & 31)].as_chunks_mut().0[usize::from(part & 7)] = v.to_le_bytes();
    }

    /// 128 bits of register `n`, `block` times 128 bits above its lowest.
    #[inline(always)]
    pub(crate) fn block(&self, n: u8, block: u8) -> Block {
        self.0[usize::from(n & 31)].as_chunks().0[usize::from(block & 3)]
    }

    /// Writes them.
    #[inline(always)]
    pub(crate) fn set_block(&mut self, n: u8, block: u8, v: Block) {
        self.0[usize::from(n & 31)].as_chunks_mut().0[usize::from(block & 3)] = v;
    }
}

/// A value of `w` bits as the lane `n` of bytes that it is.
#[inline(always)]
fn get(bytes: &Block, w: u32, n: u32) -> u64 {
    let n = n as usize;
    match w {
        8 => u64::from(bytes[n & 15]),
        16 => u64::from(u16::from_le_bytes(bytes.as_chunks().0[n & 7])),
        32 => u64::from(u32::from_le_bytes(bytes.as_chunks().0[n & 3])),
        _ => u64::from_le_bytes(bytes.as_chunks().0[n & 1]),
    }
}

/// Eight bytes of which each is 0 or 0xff, by the top bits of the bytes of `v`, as eight bits.
#[inline(always)]
const fn top_bits(v: u64) -> u64 {
    // Bit 8n moves to bit 56 + n; no two meet, so nothing is carried.
    (v >> 7 & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Packed<Concrete> for [u8; 16] {
    #[inline(always)]
    fn from_parts([low, high]: [u64; 2]) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        bytes
    }
    #[inline(always)]
    fn parts(self, _d: &Concrete) -> [u64; 2] {
        [get(&self, 64, 0), get(&self, 64, 1)]
    }
    #[inline(always)]
    fn lane(&self, _d: &Concrete, w: u32, n: u32) -> u64 {
        get(self, w, n)
    }
    #[inline(always)]
    fn from_lanes(_d: &Concrete, w: u32, mut f: impl FnMut(u32) -> u64) -> Self {
        let mut bytes = [0; 16];
        let size = w as usize / 8;
        for (n, to) in (0..).zip(bytes.chunks_exact_mut(size)) {
            to.copy_from_slice(&f(n).to_le_bytes()[..size]);
        }
        bytes
    }
    #[inline(always)]
    fn bits_from(d: &Concrete, w: u32, mut f: impl FnMut(u32) -> bool) -> u64 {
        let all = u64::MAX >> (64 - w);
        <Self as Packed<Concrete>>::from_lanes(d, w, |n| if f(n) { all } else { 0 }).signs(d, w)
    }
    #[inline(always)]
    fn signs(&self, _d: &Concrete, w: u32) -> u64 {
        let [low, high] = Packed::<Concrete>::parts(*self, &Concrete);
        match w {
            8 => top_bits(low) | top_bits(high) << 8,
            64 => low >> 63 | high >> 63 << 1,
            _ => (0..128 / w).fold(0, |bits, n| bits | get(self, w, n) >> (w - 1) << n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same in the form that every other domain uses.
    type Halves = [u64; 2];

    #[test]
    fn bytes_and_halves_are_the_same_lanes() {
        let d = &Concrete;
        let halves: Halves = [0x8123_4567_89ab_cdef, 0x0f1e_2d3c_4b5a_6978];
        let bytes = Block::from_parts(halves);
        assert_eq!(Packed::<Concrete>::parts(bytes, d), halves);
        for w in [8, 16, 32, 64] {
            let lane = |n| Packed::<Concrete>::lane(&halves, d, w, n);
            for n in 0..128 / w {
                assert_eq!(bytes.lane(d, w, n), lane(n), "lane {n} of {w} bits");
            }
            let signs = <Halves as Packed<Concrete>>::signs(&halves, d, w);
            assert_eq!(bytes.signs(d, w), signs, "signs of {w} bits");
            assert_eq!(Block::bits_from(d, w, |n| lane(n) >> (w - 1) != 0), signs, "bits of {w} bits");
            assert_eq!(Block::from_lanes(d, w, lane), bytes, "from lanes of {w} bits");
        }
    }
}
