//! XSAVE and XRSTOR as the personality carries them out, in the standard format (Intel SDM vol. 1, 13.7 and 13.8).
//!
//! Processors tell unused components (XINUSE) in ways of their own, and XSAVE shows it to the program. So that a
//! recording made on one replays on another, these instructions are served here: a component is in use if it is not in
//! its initial state. CPU models have no XSAVEOPT and no XSAVEC.

use super::exit::vector;
use super::machine_reads::{Direction, Read};
use super::{Process, ProcessError, Step};
use crate::memory::access::AccessError;
use crate::memory::space::Access;
use std::ops::Range;
use x86::state::{Fpu, MXCSR_RESET, MxcsrMask, Regs};
use x86::xsave::{Layout, XSTATE_BV, component};

/// MXCSR in an image.
const MXCSR: usize = 24;
/// The x87 registers, and the xmm registers, behind the 32 bytes of control words.
const X87_REGISTERS: Range<usize> = 32..160;
const XMM: Range<usize> = 160..416;

/// #GP: the image, or its alignment, is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadImage;

/// XSAVE of those `components` that are `wanted` (EDX:EAX) over the image that memory has, whose size is that of
/// [`Layout::size`] for them.
pub fn save(fpu: &Fpu, components: u64, wanted: u64, image: &mut [u8]) {
    let saved = components & wanted;
    // Unused components are written as well; they are zero here.
    let whole = fpu.to_xsave(&Layout::MODEL, component::ALL);
    let mut put = |range: Range<usize>| image[range.clone()].copy_from_slice(&whole[range]);
    if saved & component::X87 != 0 {
        put(0..MXCSR);
        put(X87_REGISTERS);
    }
    if saved & (component::SSE | component::AVX) != 0 {
        put(MXCSR..MXCSR + 8);
    }
    if saved & component::SSE != 0 {
        put(XMM);
    }
    for (component, at, size) in Layout::MODEL.places() {
        if saved & component != 0 {
            put(at..at + size);
        }
    }
    let held = word(image, XSTATE_BV) & !saved | in_use(fpu) & saved;
    image[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&held.to_le_bytes());
}

/// The 64-bit word at a place of an image.
fn word(image: &[u8], at: usize) -> u64 {
    image[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// XRSTOR of those `components` that are `wanted`, from an image of [`Layout::size`] bytes.
///
/// # Errors
/// Where the processor raises #GP: a component that there is not, a compacted image, reserved bits of MXCSR.
pub fn restore(fpu: &Fpu, components: u64, wanted: u64, image: &[u8]) -> Result<Fpu, BadImage> {
    let held = word(image, XSTATE_BV);
    let reserved = [XSTATE_BV + 8, XSTATE_BV + 16].iter().any(|at| word(image, *at) != 0);
    if held & !components != 0 || reserved {
        return Err(BadImage);
    }
    let restored = components & wanted;
    let mxcsr = u32::try_from(word(image, MXCSR) & 0xffff_ffff).unwrap_or(0);
    let has_mxcsr = restored & (component::SSE | component::AVX) != 0;
    if has_mxcsr && mxcsr & !MxcsrMask::INTEL.0 != 0 {
        return Err(BadImage);
    }
    let given = Fpu::from_xsave(&Layout::MODEL, image).ok_or(BadImage)?;
    Ok(merge(fpu, &given, restored, if has_mxcsr { mxcsr } else { fpu.mxcsr }))
}

/// `fpu` with the `restored` components of `given`.
fn merge(fpu: &Fpu, given: &Fpu, restored: u64, mxcsr: u32) -> Fpu {
    let mut merged = *fpu;
    if restored & component::X87 != 0 {
        merged = Fpu { vector: fpu.vector, opmask: fpu.opmask, ..*given };
    }
    merged.mxcsr = mxcsr;
    let parts = [(component::SSE, 0..2), (component::AVX, 2..4), (component::ZMM_HI256, 4..8)];
    for (_, range) in parts.into_iter().filter(|(component, _)| restored & component != 0) {
        for (to, from) in merged.vector.iter_mut().zip(&given.vector).take(16) {
            to[range.clone()].copy_from_slice(&from[range.clone()]);
        }
    }
    if restored & component::HI16_ZMM != 0 {
        merged.vector[16..].copy_from_slice(&given.vector[16..]);
    }
    if restored & component::OPMASK != 0 {
        merged.opmask = given.opmask;
    }
    merged
}

/// The components that are not in their initial state (XINUSE).
fn in_use(fpu: &Fpu) -> u64 {
    let initial = Fpu::default();
    let x87 = |f: &Fpu| (f.control, f.status, f.tag, f.st);
    let sse = fpu.mxcsr != MXCSR_RESET || (0..16).any(|n| fpu.xmm(n) != [0; 2]);
    let bit = |used, component| if used { component } else { 0 };
    bit(x87(fpu) != x87(&initial), component::X87) | bit(sse, component::SSE) | fpu.wide_components()
}

impl Process {
    /// Carries out the XSAVE or XRSTOR at rip.
    pub(super) fn extended_state(&mut self, read: &Read, mut regs: Regs) -> Result<Step, ProcessError> {
        let (address, components) = (read.operand(&regs), self.model.components());
        let wanted = regs.gpr[2] << 32 | regs.gpr[0] & 0xffff_ffff;
        let saves = read.direction() == Some(Direction::Save);
        if address % 64 != 0 {
            return self.raise(vector::GENERAL, 0, 0);
        }
        let mut image = vec![0; Layout::MODEL.size(components & wanted)];
        let (size, access) = (image.len() as u64, if saves { Access::Write } else { Access::Read });
        let space = self.spaces.get_mut(self.space);
        let accessible = space.accessible(&self.machine.memory, address, size, access);
        if accessible < size || space.read(&self.machine.memory, address, &mut image).is_err() {
            const USER: u32 = 4;
            return self.raise(vector::PAGE, USER | u32::from(saves) << 1, address.wrapping_add(accessible));
        }
        let fpu = self.machine.cpu.fpu()?;
        if saves {
            save(&fpu, components, wanted, &mut image);
            match self.spaces.get_mut(self.space).write(&mut self.machine.memory, address, &image) {
                Ok(()) => {}
                Err(AccessError::Space(error)) => return Err(error.into()),
                Err(AccessError::Bad) => return self.raise(vector::PAGE, 0, address),
            }
        } else {
            match restore(&fpu, components, wanted, &image) {
                Ok(fpu) => self.machine.cpu.set_fpu(&fpu)?,
                Err(BadImage) => return self.raise(vector::GENERAL, 0, 0),
            }
        }
        read.skip(&mut regs);
        self.machine.cpu.set_regs(&regs)?;
        Ok(Step::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Fpu {
        let mut fpu = Fpu { mxcsr: 0x1fa0, ..Fpu::default() };
        fpu.set_xmm(3, [5, 6]);
        fpu.vector[15][2] = 7;
        fpu
    }

    /// What XSAVE makes of memory full of `before`, but for the header.
    fn saved(fpu: &Fpu, wanted: u64, header: u64, before: u8) -> Vec<u8> {
        let mut image = vec![before; Layout::MODEL.size(component::ALL)];
        image[XSTATE_BV..XSTATE_BV + 64].fill(0);
        image[XSTATE_BV..XSTATE_BV + 8].copy_from_slice(&header.to_le_bytes());
        save(fpu, V3, wanted, &mut image);
        image
    }

    const V3: u64 = component::LEGACY | component::AVX;

    #[test]
    fn what_is_saved_is_restored_and_the_rest_stays() {
        let saved = saved(&state(), u64::MAX, 0, 0);
        assert_eq!(restore(&Fpu::default(), V3, u64::MAX, &saved), Ok(state()));
        let mut other = Fpu::default();
        other.vector[15] = [1, 1, 1, 1, 0, 0, 0, 0];
        let restored = restore(&other, V3, component::AVX, &saved).expect("a good image");
        assert_eq!((restored.vector[15], restored.xmm(3)), ([1, 1, 7, 0, 0, 0, 0, 0], [0, 0]));
        assert_eq!(restored.mxcsr, 0x1fa0, "MXCSR comes with SSE and with AVX");
    }

    #[test]
    fn only_what_is_wanted_is_written_and_unused_components_are_named_so() {
        let image = saved(&state(), component::SSE, component::X87 | component::AVX, 0xcc);
        assert_eq!((image[0], image[160], image[576]), (0xcc, 0, 0xcc));
        assert_eq!(image[XSTATE_BV], 7, "those that are not saved keep their bits");
        assert_eq!(saved(&Fpu::default(), u64::MAX, 0xff, 0)[XSTATE_BV], !7);
    }

    #[test]
    fn a_bad_image_is_refused() {
        let good = saved(&state(), u64::MAX, 0, 0);
        for (at, byte) in [(XSTATE_BV, 0x20), (XSTATE_BV + 15, 0x80), (XSTATE_BV + 16, 1), (MXCSR + 2, 1)] {
            let mut bad = good.clone();
            bad[at] |= byte;
            assert_eq!(restore(&state(), V3, u64::MAX, &bad), Err(BadImage), "byte {at}");
        }
    }
}
