//! The images of x87 and vector state in memory: FXSAVE (Intel SDM vol. 1, 10.5.1) and XSAVE in the standard, not
//! compacted, format (13.4).

use crate::state::{Fpu, MxcsrMask};

/// State components by their bits in XCR0 and XSTATE_BV.
pub mod component {
    /// x87.
    pub const X87: u64 = 1;
    /// MXCSR and the xmm registers.
    pub const SSE: u64 = 2;
    /// Bits 128 to 255 of ymm0 to ymm15.
    pub const AVX: u64 = 4;
    /// k0 to k7.
    pub const OPMASK: u64 = 0x20;
    /// Bits 256 to 511 of zmm0 to zmm15.
    pub const ZMM_HI256: u64 = 0x40;
    /// zmm16 to zmm31.
    pub const HI16_ZMM: u64 = 0x80;
    /// What FXSAVE holds.
    pub const LEGACY: u64 = X87 | SSE;
    /// What AVX-512 adds to AVX; enabled together.
    pub const AVX512: u64 = OPMASK | ZMM_HI256 | HI16_ZMM;
    /// All of them.
    pub const ALL: u64 = LEGACY | AVX | AVX512;
}

/// Offset of the words that are software's; Linux keeps XCR0 in the first, in cores and signal frames.
pub const SOFTWARE: usize = 464;
/// Offset of XSTATE_BV, the first word of the XSAVE header.
pub const XSTATE_BV: usize = Fpu::FXSAVE_SIZE;
/// Offset of XCOMP_BV, whose highest bit says that the image is compacted.
const XCOMP_BV: usize = XSTATE_BV + 8;
/// Size of the FXSAVE image and the header.
pub const HEADER_END: usize = XSTATE_BV + 64;

/// Where the components of an image begin, which CPUID leaf 0xD says (EBX of subleaf 2, 5, 6, 7) and processors
/// differ in: Intel left room for MPX, AMD did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// [`component::AVX`], 256 bytes.
    pub avx: usize,
    /// [`component::OPMASK`], 64 bytes.
    pub opmask: usize,
    /// [`component::ZMM_HI256`], 512 bytes.
    pub zmm_hi256: usize,
    /// [`component::HI16_ZMM`], 1024 bytes.
    pub hi16_zmm: usize,
}

impl Layout {
    /// Intel's, which the CPU model has, and with it cores and all else that gretel writes.
    pub const MODEL: Layout = Layout { avx: 576, opmask: 1088, zmm_hi256: 1152, hi16_zmm: 1664 };

    /// AMD's.
    pub const AMD: Layout = Layout { avx: 576, opmask: 832, zmm_hi256: 896, hi16_zmm: 1408 };

    /// The layout of an image of `size` bytes that does not say: AMD's with AVX-512 are larger than any without and
    /// smaller than Intel's with it. (GDB tells them apart in the same way.)
    #[must_use]
    pub fn of_size(size: usize) -> Layout {
        let amd = Self::AMD.size(component::ALL)..Self::MODEL.size(component::ALL);
        if amd.contains(&size) { Self::AMD } else { Self::MODEL }
    }

    /// Offset and size of each component beyond x87 and SSE, by its bit.
    #[must_use]
    pub fn places(&self) -> [(u64, usize, usize); 4] {
        [
            (component::AVX, self.avx, 256),
            (component::OPMASK, self.opmask, 64),
            (component::ZMM_HI256, self.zmm_hi256, 512),
            (component::HI16_ZMM, self.hi16_zmm, 1024),
        ]
    }

    /// The size of an image of `components`.
    #[must_use]
    pub fn size(&self, components: u64) -> usize {
        let held = self.places().into_iter().filter(|(component, ..)| components & component != 0);
        held.map(|(_, at, size)| at + size).max().unwrap_or(HEADER_END)
    }
}

impl Fpu {
    /// Size of the FXSAVE image in bytes (Intel SDM vol. 1, 10.5.1).
    pub const FXSAVE_SIZE: usize = 512;

    /// The 64-bit FXSAVE image: x87 and SSE. The reserved bytes are zero.
    #[must_use]
    pub fn to_fxsave(&self) -> [u8; Self::FXSAVE_SIZE] {
        let mut image = [0; Self::FXSAVE_SIZE];
        let top = usize::from(self.status >> 11 & 7);
        image[0..2].copy_from_slice(&self.control.to_le_bytes());
        image[2..4].copy_from_slice(&self.status.to_le_bytes());
        image[4] = self.tag;
        image[6..8].copy_from_slice(&self.opcode.to_le_bytes());
        image[8..16].copy_from_slice(&self.instruction.to_le_bytes());
        image[16..24].copy_from_slice(&self.data.to_le_bytes());
        image[24..28].copy_from_slice(&self.mxcsr.to_le_bytes());
        image[28..32].copy_from_slice(&MxcsrMask::INTEL.0.to_le_bytes());
        for n in 0..8 {
            let (significand, sign_exponent) = self.st[(top + n) & 7];
            image[32 + 16 * n..40 + 16 * n].copy_from_slice(&significand.to_le_bytes());
            image[40 + 16 * n..42 + 16 * n].copy_from_slice(&sign_exponent.to_le_bytes());
        }
        for n in 0..16 {
            put(&mut image, 160 + 16 * n, &self.xmm(n));
        }
        image
    }

    /// Reads a 64-bit FXSAVE image; all that it does not hold is initial.
    #[must_use]
    pub fn from_fxsave(image: &[u8; Self::FXSAVE_SIZE]) -> Fpu {
        let u16_at = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
        let u64_at = |at: usize| {
            u64::from(u16_at(at))
                | u64::from(u16_at(at + 2)) << 16
                | u64::from(u16_at(at + 4)) << 32
                | u64::from(u16_at(at + 6)) << 48
        };
        let mut fpu = Fpu {
            control: u16_at(0),
            status: u16_at(2),
            tag: image[4],
            opcode: u16_at(6),
            instruction: u64_at(8),
            data: u64_at(16),
            mxcsr: u32::from(u16_at(24)) | u32::from(u16_at(26)) << 16,
            ..Fpu::default()
        };
        let top = usize::from(fpu.status >> 11 & 7);
        for n in 0..8 {
            fpu.st[(top + n) & 7] = (u64_at(32 + 16 * n), u16_at(40 + 16 * n));
        }
        for n in 0..16 {
            fpu.set_xmm(n, [u64_at(160 + 16 * n), u64_at(168 + 16 * n)]);
        }
        fpu
    }
    /// The components beyond x87 and SSE that are not in their initial state, as XCR0 bits.
    #[must_use]
    pub fn wide_components(&self) -> u64 {
        let used = |registers: &[[u64; 8]], parts: std::ops::Range<usize>| {
            registers.iter().any(|r| r[parts.clone()].iter().any(|part| *part != 0))
        };
        let (low, high) = self.vector.split_at(16);
        let bit = |used: bool, component: u64| if used { component } else { 0 };
        bit(used(low, 2..4), component::AVX)
            | bit(self.opmask != [0; 8], component::OPMASK)
            | bit(used(low, 4..8), component::ZMM_HI256)
            | bit(used(high, 0..8), component::HI16_ZMM)
    }

    /// Writes the XSAVE image of `components` into `image`, which has at least [`Layout::size`] bytes for them; what
    /// it has more is left alone. XSTATE_BV has x87, SSE, and what of `components` is not in its initial state.
    ///
    /// # Panics
    /// If `image` is too short.
    pub fn write_xsave(&self, layout: &Layout, components: u64, image: &mut [u8]) {
        image[..layout.size(components)].fill(0);
        image[..Self::FXSAVE_SIZE].copy_from_slice(&self.to_fxsave());
        let held = component::LEGACY | self.wide_components() & components;
        put(image, XSTATE_BV, &[held]);
        for n in 0..16 {
            if held & component::AVX != 0 {
                put(image, layout.avx + 16 * n, &self.vector[n][2..4]);
            }
            if held & component::ZMM_HI256 != 0 {
                put(image, layout.zmm_hi256 + 32 * n, &self.vector[n][4..]);
            }
            if held & component::HI16_ZMM != 0 {
                put(image, layout.hi16_zmm + 64 * n, &self.vector[16 + n]);
            }
        }
        if held & component::OPMASK != 0 {
            put(image, layout.opmask, &self.opmask);
        }
    }

    /// The XSAVE image of `components`.
    #[must_use]
    pub fn to_xsave(&self, layout: &Layout, components: u64) -> Vec<u8> {
        let mut image = vec![0; layout.size(components)];
        self.write_xsave(layout, components, &mut image);
        image
    }

    /// Reads an XSAVE image in the standard format. Components that XSTATE_BV does not name, or that lie behind the
    /// end of the image, are in their initial state. `None` if the image is too short for its header, or compacted.
    #[must_use]
    pub fn from_xsave(layout: &Layout, image: &[u8]) -> Option<Fpu> {
        let held = get(image, XSTATE_BV)?;
        if get(image, XCOMP_BV)? >> 63 == 1 {
            return None;
        }
        let mut fpu = Fpu::from_fxsave(image.first_chunk()?);
        if held & component::X87 == 0 {
            let Fpu { control, status, tag, opcode, instruction, data, st, .. } = Fpu::default();
            fpu = Fpu { control, status, tag, opcode, instruction, data, st, ..fpu };
        }
        if held & component::SSE == 0 {
            fpu.vector = [[0; 8]; 32];
        }
        let read = |to: &mut [u64], component: u64, at: usize| {
            for (at, part) in (at..).step_by(8).zip(to) {
                *part = if held & component != 0 { get(image, at).unwrap_or(0) } else { 0 };
            }
        };
        for n in 0..16 {
            read(&mut fpu.vector[n][2..4], component::AVX, layout.avx + 16 * n);
            read(&mut fpu.vector[n][4..], component::ZMM_HI256, layout.zmm_hi256 + 32 * n);
            read(&mut fpu.vector[16 + n], component::HI16_ZMM, layout.hi16_zmm + 64 * n);
        }
        read(&mut fpu.opmask, component::OPMASK, layout.opmask);
        Some(fpu)
    }
}

/// Writes 64-bit words.
fn put(image: &mut [u8], at: usize, words: &[u64]) {
    for (to, word) in image[at..].chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

/// The 64-bit word at a place.
fn get(image: &[u8], at: usize) -> Option<u64> {
    image.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated() -> Fpu {
        let mut fpu = Fpu { status: 5 << 11, tag: 0b1010_0101, ..Fpu::default() };
        fpu.st[3] = (0x8000_0000_0000_0001, 0xbfff);
        fpu.set_xmm(15, [1, u64::MAX]);
        fpu
    }

    #[test]
    fn fxsave_round_trips_with_a_rotated_stack() {
        assert_eq!(Fpu::from_fxsave(&rotated().to_fxsave()), rotated());
    }

    #[test]
    fn xsave_round_trips_and_says_what_it_holds() {
        let mut fpu = rotated();
        assert_eq!(fpu.wide_components(), 0);
        fpu.vector[3][2] = 1;
        assert_eq!(fpu.wide_components(), component::AVX);
        fpu.vector[15] = [9; 8];
        fpu.vector[31][0] = 5;
        fpu.opmask[7] = 1 << 63;
        assert_eq!(fpu.wide_components() | component::LEGACY, component::ALL);
        let image = fpu.to_xsave(&Layout::MODEL, component::ALL);
        assert_eq!(image.len(), 2688);
        assert_eq!(Fpu::from_xsave(&Layout::MODEL, &image), Some(fpu));
        let short = fpu.to_xsave(&Layout::MODEL, component::LEGACY | component::AVX);
        assert_eq!(short.len(), 832);
        let read = Fpu::from_xsave(&Layout::MODEL, &short).expect("a header");
        assert_eq!((read.vector[15][3], read.vector[15][4], read.opmask[7]), (9, 0, 0));
        assert_eq!(Fpu::from_xsave(&Layout::MODEL, &short[..519]), None);
    }

    #[test]
    fn a_component_that_is_not_named_is_initial() {
        let mut image = rotated().to_xsave(&Layout::MODEL, component::LEGACY);
        put(&mut image, XSTATE_BV, &[component::SSE]);
        let read = Fpu::from_xsave(&Layout::MODEL, &image).expect("a header");
        assert_eq!((read.status, read.control, read.xmm(15)), (0, 0x37f, [1, u64::MAX]));
    }
}
