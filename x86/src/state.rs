//! The architectural state of one thread in user mode, as plain data: what engines load and read back, what
//! cores and checkpoints hold, what the oracle compares.

/// RFLAGS bit 1, always set.
pub const RFLAGS_FIXED: u64 = 0x2;
/// RFLAGS bit 9: interrupts enabled, always set in user mode.
pub const RFLAGS_IF: u64 = 0x200;
/// RFLAGS bit 10: direction.
pub const RFLAGS_DF: u64 = 0x400;
/// MXCSR after reset: all exceptions masked, round to nearest.
pub const MXCSR_RESET: u32 = 0x1f80;

/// The integer state: what changes at every exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Regs {
    /// General registers by hardware number (see [`crate::op::Gpr`]).
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// Flags; bit 1 is set.
    pub rflags: u64,
    /// Base of FS.
    pub fs_base: u64,
    /// Base of GS.
    pub gs_base: u64,
}

/// The x87, SSE and vector state of CPU model x86-64-v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fpu {
    /// xmm registers as low and high 64-bit halves.
    pub xmm: [[u64; 2]; 16],
    /// MXCSR.
    pub mxcsr: u32,
    /// x87 control word.
    pub control: u16,
    /// x87 status word, including TOP.
    pub status: u16,
    /// Abridged tag word: bit n set = physical register n is not empty.
    pub tag: u8,
    /// Last x87 opcode, 11 bits.
    pub opcode: u16,
    /// Last x87 instruction pointer.
    pub instruction: u64,
    /// Last x87 data pointer.
    pub data: u64,
    /// Physical x87 registers: significand, and sign with exponent.
    pub st: [(u64, u16); 8],
}

impl Default for Fpu {
    /// The state after FNINIT and a reset of MXCSR, as Linux starts a program.
    fn default() -> Self {
        Fpu {
            xmm: [[0; 2]; 16],
            mxcsr: MXCSR_RESET,
            control: 0x37f,
            status: 0,
            tag: 0,
            opcode: 0,
            instruction: 0,
            data: 0,
            st: [(0, 0); 8],
        }
    }
}

impl Fpu {
    /// Size of the FXSAVE image in bytes (Intel SDM vol. 1, 10.5.1).
    pub const FXSAVE_SIZE: usize = 512;

    /// The 64-bit FXSAVE image; the reserved bytes are zero.
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
        image[28..32].copy_from_slice(&0xffff_u32.to_le_bytes());
        for n in 0..8 {
            let (significand, sign_exponent) = self.st[(top + n) & 7];
            image[32 + 16 * n..40 + 16 * n].copy_from_slice(&significand.to_le_bytes());
            image[40 + 16 * n..42 + 16 * n].copy_from_slice(&sign_exponent.to_le_bytes());
        }
        for (n, half) in self.xmm.as_flattened().iter().enumerate() {
            image[160 + 8 * n..168 + 8 * n].copy_from_slice(&half.to_le_bytes());
        }
        image
    }

    /// Reads a 64-bit FXSAVE image.
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
        for (n, half) in fpu.xmm.as_flattened_mut().iter_mut().enumerate() {
            *half = u64_at(160 + 8 * n);
        }
        fpu
    }
}

/// The whole user-mode state of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct State {
    /// Integer registers.
    pub regs: Regs,
    /// x87 and vector registers.
    pub fpu: Fpu,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fxsave_round_trips_with_a_rotated_stack() {
        let mut fpu = Fpu { status: 5 << 11, tag: 0b1010_0101, ..Fpu::default() };
        fpu.st[3] = (0x8000_0000_0000_0001, 0xbfff);
        fpu.xmm[15] = [1, u64::MAX];
        assert_eq!(Fpu::from_fxsave(&fpu.to_fxsave()), fpu);
    }
}
