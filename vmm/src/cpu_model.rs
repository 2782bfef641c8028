//! The processor that the guest sees: a named model, as data, the same on every host, so that a recording
//! replays on another machine.
//!
//! The model is x86-64-v2 of the psABI and nothing more: no AVX, no XSAVE, no RDRAND, no ERMS. Family, model and
//! caches are those of a Nehalem, the first processor with these features, so that libraries which choose by
//! them choose well; the brand string tells the truth.

/// What CPUID returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpuid {
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// One leaf of the model; `subleaf` is `None` where ECX does not matter.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// EAX on input.
    pub leaf: u32,
    /// ECX on input.
    pub subleaf: Option<u32>,
    /// The result.
    pub result: Cpuid,
}

/// The model's name.
pub const NAME: &str = "x86-64-v2";
/// Ticks of the time stamp counter per second: it counts nanoseconds.
pub const TSC_HZ: u64 = 1_000_000_000;

/// Leaf 1 EDX, which is also AT_HWCAP: FPU, VME, DE, PSE, TSC, MSR, PAE, MCE, CX8, APIC, SEP, MTRR, PGE, MCA, CMOV, PAT,
/// PSE36, CLFLUSH, MMX, FXSR, SSE, SSE2.
pub const FEATURES_EDX: u32 = 0x078b_fbff;
/// Leaf 1 ECX: SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT.
const FEATURES_ECX: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23;
/// Leaf 0x8000_0001 EDX: SYSCALL, NX, LM.
const EXTENDED_EDX: u32 = 1 << 11 | 1 << 20 | 1 << 29;

const fn leaf(leaf: u32, eax: u32, ebx: u32, ecx: u32, edx: u32) -> Leaf {
    Leaf { leaf, subleaf: None, result: Cpuid { eax, ebx, ecx, edx } }
}

/// A leaf 4 entry: `kind` 1 data, 2 instructions, 3 both; lines of 64 bytes.
const fn cache(subleaf: u32, kind: u32, level: u32, ways: u32, sets: u32) -> Leaf {
    let result = Cpuid { eax: kind | level << 5 | 1 << 8, ebx: (ways - 1) << 22 | 63, ecx: sets - 1, edx: 0 };
    Leaf { leaf: 4, subleaf: Some(subleaf), result }
}

/// Four ASCII bytes as a register holds them.
const fn text(bytes: &[u8; 48], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const BRAND: &[u8; 48] = b"gretel model CPU x86-64-v2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

const fn brand(number: u32, at: usize) -> Leaf {
    leaf(number, text(BRAND, at), text(BRAND, at + 4), text(BRAND, at + 8), text(BRAND, at + 12))
}

/// The leaves that are not all zero.
pub const LEAVES: &[Leaf] = &[
    // "GenuineIntel"; the highest leaf is 7.
    leaf(0, 7, 0x756e_6547, 0x6c65_746e, 0x4965_6e69),
    // Family 6, model 26, stepping 3; CLFLUSH of 64 bytes, one logical processor.
    leaf(1, 0x0001_06a3, 1 << 16 | 8 << 8, FEATURES_ECX, FEATURES_EDX),
    // The caches are described by leaf 4.
    leaf(2, 0x00ff_ff01, 0, 0, 0),
    cache(0, 1, 1, 8, 64),
    cache(1, 2, 1, 4, 128),
    cache(2, 3, 2, 8, 512),
    cache(3, 3, 3, 16, 8192),
    leaf(0x8000_0000, 0x8000_0008, 0, 0, 0),
    // LAHF and SAHF in 64-bit mode.
    leaf(0x8000_0001, 0, 0, 1, EXTENDED_EDX),
    brand(0x8000_0002, 0),
    brand(0x8000_0003, 16),
    brand(0x8000_0004, 32),
    // 256 KiB of level 2, 8 ways, lines of 64 bytes.
    leaf(0x8000_0006, 0, 0, 256 << 16 | 6 << 12 | 64, 0),
    // The time stamp counter is invariant.
    leaf(0x8000_0007, 0, 0, 0, 1 << 8),
    // 48 bits of physical and of linear address.
    leaf(0x8000_0008, 48 << 8 | 48, 0, 0, 0),
];

/// What CPUID returns for a leaf and subleaf: zeroes where the model has nothing.
#[must_use]
pub fn cpuid(leaf: u32, subleaf: u32) -> Cpuid {
    LEAVES
        .iter()
        .find(|entry| entry.leaf == leaf && entry.subleaf.is_none_or(|wanted| wanted == subleaf))
        .map_or_else(Cpuid::default, |entry| entry.result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_features_of_v2_and_none_of_v3() {
        let features = cpuid(1, 0);
        for bit in [0, 9, 13, 19, 20, 23] {
            assert!(features.ecx >> bit & 1 == 1, "ECX bit {bit}");
        }
        for bit in [12, 22, 26, 27, 28, 29, 30] {
            assert!(
                features.ecx >> bit & 1 == 0,
                "ECX bit {bit} (FMA, MOVBE, XSAVE, OSXSAVE, AVX, F16C, RDRAND)"
            );
        }
        assert_eq!(cpuid(7, 0), Cpuid::default());
        assert_eq!(cpuid(0xd, 1), Cpuid::default());
    }

    #[test]
    fn caches_have_their_sizes() {
        let size = |subleaf| {
            let Cpuid { ebx, ecx, .. } = cpuid(4, subleaf);
            (u64::from(ebx >> 22) + 1) * 64 * (u64::from(ecx) + 1)
        };
        assert_eq!([size(0), size(1), size(2), size(3)], [32 << 10, 32 << 10, 256 << 10, 8 << 20]);
        assert_eq!(cpuid(4, 4), Cpuid::default());
    }
}
