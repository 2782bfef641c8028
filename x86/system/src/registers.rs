//! The registers that a kernel has and a program has not.

/// GDTR or IDTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TableRegister {
    /// Linear address.
    pub base: u64,
    /// The offset of its last byte.
    pub limit: u16,
}

/// A segment register: the selector and what was loaded with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    /// The selector.
    pub selector: u16,
    /// The base of TR and LDTR. Those of FS and GS are in the CPU, all others are zero.
    pub base: u64,
    /// In bytes, less one.
    pub limit: u32,
    /// Bits 40 to 55 of the descriptor: type, S, DPL, P, limit, AVL, L, D, G; zero where nothing is loaded.
    pub attributes: u16,
}

/// The order of [`Registers::segments`], which is that of the encoding: ES, CS, SS, DS, FS, GS.
pub(crate) mod segment {
    pub(crate) const ES: usize = 0;
    pub(crate) const CS: usize = 1;
    pub(crate) const SS: usize = 2;
    pub(crate) const DS: usize = 3;
    pub(crate) const FS: usize = 4;
    pub(crate) const GS: usize = 5;
}

/// Bits of CR0.
pub(crate) mod cr0 {
    pub(crate) const PE: u64 = 1;
    pub(crate) const MP: u64 = 1 << 1;
    pub(crate) const EM: u64 = 1 << 2;
    pub(crate) const TS: u64 = 1 << 3;
    pub(crate) const ET: u64 = 1 << 4;
    pub(crate) const WP: u64 = 1 << 16;
    pub(crate) const NW: u64 = 1 << 29;
    pub(crate) const CD: u64 = 1 << 30;
    pub(crate) const PG: u64 = 1 << 31;
}

/// Bits of CR4.
pub(crate) mod cr4 {
    pub(crate) const DE: u64 = 1 << 3;
    pub(crate) const PAE: u64 = 1 << 5;
    pub(crate) const UMIP: u64 = 1 << 11;
    pub(crate) const SMEP: u64 = 1 << 20;
    pub(crate) const SMAP: u64 = 1 << 21;
    /// VME, PVI, TSD, DE, PSE, PAE, MCE, PGE, PCE, OSFXSR, OSXMMEXCPT, UMIP, FSGSBASE, SMEP, SMAP: the model has no more.
    pub(crate) const ALL: u64 = 0x7ff | UMIP | 1 << 16 | SMEP | SMAP;
}

/// Bits of DR6 and DR7.
pub(crate) mod debug {
    /// DR7.GD: each access to a debug register is an exception.
    pub(crate) const GENERAL_DETECT: u64 = 1 << 13;
    /// DR6.BD: that exception.
    pub(crate) const DETECTED: u64 = 1 << 13;
}

/// Bits of EFER.
pub(crate) mod efer {
    pub(crate) const SCE: u64 = 1;
    pub(crate) const LME: u64 = 1 << 8;
    pub(crate) const LMA: u64 = 1 << 10;
    pub(crate) const NXE: u64 = 1 << 11;
}

/// The state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registers {
    /// CR0.
    pub cr0: u64,
    /// CR2: the address of the last page fault.
    pub cr2: u64,
    /// CR3.
    pub cr3: u64,
    /// CR4.
    pub cr4: u64,
    /// EFER.
    pub efer: u64,
    /// STAR: the selectors of SYSCALL and SYSRET.
    pub star: u64,
    /// LSTAR: where SYSCALL goes.
    pub lstar: u64,
    /// CSTAR: the same from 32-bit code, which is not served.
    pub cstar: u64,
    /// FMASK: what SYSCALL clears of RFLAGS.
    pub fmask: u64,
    /// The other base of GS.
    pub kernel_gs_base: u64,
    /// SYSENTER's CS, ESP and EIP: kept, never used.
    pub sysenter: [u64; 3],
    /// TSC_AUX.
    pub tsc_aux: u64,
    /// PAT: kept; memory has no types here.
    pub pat: u64,
    /// DR0 to DR7.
    pub debug: [u64; 8],
    /// ES, CS, SS, DS, FS, GS.
    pub segments: [Segment; 6],
    /// LDTR.
    pub ldtr: Segment,
    /// TR.
    pub tr: Segment,
    /// GDTR.
    pub gdtr: TableRegister,
    /// IDTR.
    pub idtr: TableRegister,
    /// The current privilege level.
    pub privilege: u8,
    /// NMIs wait until the next IRET.
    pub blocks_nmi: bool,
}

impl Default for Registers {
    /// 64-bit mode in ring 0 without tables, as no processor is at reset: whoever loads a kernel fills them in.
    fn default() -> Registers {
        Registers {
            cr0: cr0::PE | cr0::ET | cr0::PG,
            cr2: 0,
            cr3: 0,
            cr4: cr4::PAE,
            efer: efer::LME | efer::LMA,
            star: 0,
            lstar: 0,
            cstar: 0,
            fmask: 0,
            kernel_gs_base: 0,
            sysenter: [0; 3],
            tsc_aux: 0,
            pat: 0x0007_0406_0007_0406,
            debug: [0, 0, 0, 0, 0, 0, 0xffff_0ff0, 0x400],
            segments: [Segment::default(); 6],
            ldtr: Segment::default(),
            tr: Segment::default(),
            gdtr: TableRegister::default(),
            idtr: TableRegister::default(),
            privilege: 0,
            blocks_nmi: false,
        }
    }
}

impl Registers {
    /// Whether long mode is active: paging with four levels, gates and descriptors of 64-bit mode.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.efer & efer::LMA != 0
    }

    /// Whether code is of 32 bits: without long mode, or by its segment's bit L.
    #[must_use]
    pub const fn is_narrow(&self) -> bool {
        !self.is_long() || !self.segments[segment::CS].is_long()
    }
}

impl Segment {
    /// L in [`Segment::attributes`].
    const LONG: u16 = 1 << 13;
    /// The low three bits of a segment's type, for one that grows down.
    const GROWS_DOWN: u16 = 1 << 2;
    /// A segment of data.
    const DATA_MASK: u16 = 0x18;
    const DATA: u16 = 0x10;

    /// Whether its code is of 64 bits, in long mode.
    pub(crate) const fn is_long(&self) -> bool {
        self.attributes & Self::LONG != 0
    }

    /// Whether it is loaded and covers the first 4 GiB, from zero on.
    #[must_use]
    pub const fn is_flat(&self) -> bool {
        let grows_down =
            self.attributes & Self::DATA_MASK == Self::DATA && self.attributes & Self::GROWS_DOWN != 0;
        self.attributes != 0 && self.base == 0 && self.limit == u32::MAX && !grows_down
    }

    /// The flat code or data segment of ring 0 in 32-bit mode, with this selector.
    #[must_use]
    pub const fn flat_32(selector: u16, is_code: bool) -> Segment {
        Segment { selector, base: 0, limit: u32::MAX, attributes: if is_code { 0xc09b } else { 0xc093 } }
    }

    /// The flat code or data segment of a `level` in 64-bit mode, with this selector.
    #[must_use]
    pub const fn flat(selector: u16, is_code: bool, level: u8) -> Segment {
        let kind = if is_code { 0xa09b } else { 0xc093 };
        Segment { selector, base: 0, limit: u32::MAX, attributes: kind | (level as u16) << 5 }
    }
}
