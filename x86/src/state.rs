//! The architectural state of one thread in user mode, as plain data: what engines load and read back, what
//! cores and checkpoints hold, what the oracle compares.

/// RFLAGS bit 1, always set.
pub const RFLAGS_FIXED: u64 = 0x2;
/// RFLAGS bit 9: interrupts enabled, always set in user mode.
pub const RFLAGS_IF: u64 = 0x200;
/// RFLAGS bit 8: a debug exception after each instruction.
pub const RFLAGS_TF: u64 = 0x100;
/// RFLAGS bit 10: direction.
pub const RFLAGS_DF: u64 = 0x400;
/// RFLAGS.AC: alignment is checked in ring 3; in ring 0 it lifts SMAP.
pub const RFLAGS_AC: u64 = 1 << 18;
/// MXCSR after reset: all exceptions masked, round to nearest.
pub const MXCSR_RESET: u32 = 0x1f80;

/// MXCSR_MASK: the bits of MXCSR that a processor has, as its FXSAVE tells them (Intel SDM vol. 1, 11.6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MxcsrMask(pub u32);

impl MxcsrMask {
    /// That of Intel's processors. AMD's have bit 17, too: the mask of the misaligned exception (AMD APM vol. 1, 4.2.2).
    pub const INTEL: MxcsrMask = MxcsrMask(0xffff);
}

impl Default for MxcsrMask {
    fn default() -> MxcsrMask {
        MxcsrMask::INTEL
    }
}

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

/// The x87, vector and opmask state. Its images are in [`crate::xsave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fpu {
    /// zmm registers as parts of 64 bits, the lowest first. The first two parts are the xmm register, the first
    /// four the ymm register.
    pub vector: [[u64; 8]; 32],
    /// Opmask registers k0 to k7.
    pub opmask: [u64; 8],
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
            vector: [[0; 8]; 32],
            opmask: [0; 8],
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
    /// xmm register `n`: low and high half.
    ///
    /// # Panics
    /// If `n` is above 31.
    #[must_use]
    pub fn xmm(&self, n: usize) -> [u64; 2] {
        [self.vector[n][0], self.vector[n][1]]
    }

    /// Writes xmm register `n`; the rest of its zmm register stays.
    ///
    /// # Panics
    /// If `n` is above 31.
    pub fn set_xmm(&mut self, n: usize, halves: [u64; 2]) {
        self.vector[n][..2].copy_from_slice(&halves);
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
