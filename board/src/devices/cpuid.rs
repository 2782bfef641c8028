//! CPUID: what the crates x86 and x86-system can do, and no more.
//!
//! The model is one of Intel's that executes in order. Nothing speculates here, and kernels know that of this model: they leave
//! their mitigations out. RDRAND and XSAVE are left out since they are not there.

/// Bits of leaf 1, ecx: SSE3, SSSE3, CX16, SSE4.1, SSE4.2, MOVBE, POPCNT, TSC deadline.
const LEAF_1_ECX: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 23 | 1 << 24;
/// Bits of leaf 1, edx: FPU, DE, PSE, TSC, MSR, PAE, CX8, APIC, PGE, MCA, CMOV, PAT, PSE36, CLFLUSH, MMX, FXSR, SSE, SSE2.
const LEAF_1_EDX: u32 = 1 | 7 << 2 | 3 << 5 | 3 << 8 | 7 << 13 | 3 << 16 | 1 << 19 | 1 << 23 | 7 << 24;
/// The bit of the APIC there.
const APIC: u32 = 1 << 9;
/// Bits of leaf 7, ebx: FSGSBASE, SMEP, ERMS, SMAP.
const LEAF_7_EBX: u32 = 1 | 1 << 7 | 1 << 9 | 1 << 20;
/// Bits of leaf 7, ecx: UMIP.
const LEAF_7_ECX: u32 = 1 << 2;
/// Bits of leaf 7, edx: FSRM.
const LEAF_7_EDX: u32 = 1 << 4;
/// Bits of leaf 8000_0001, edx: SYSCALL, NX, pages of 1 GiB, RDTSCP, 64-bit mode.
const EXTENDED_EDX: u32 = 1 << 11 | 1 << 20 | 1 << 26 | 1 << 27 | 1 << 29;
/// Bits of leaf 8000_0001, ecx: LAHF.
const EXTENDED_ECX: u32 = 1;

/// Family 6, model 1CH, stepping 10.
const SIGNATURE: u32 = 0x0001_06ca;
/// The time-stamp counter, and the crystal that the APIC's timer counts.
const HERTZ: u32 = 1_000_000_000;
const BRAND: &[u8; 48] = b"gretel software CPU\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// eax, ebx, ecx, edx, where the local APIC is switched on or off.
pub(super) fn cpuid(leaf: u32, subleaf: u32, has_apic: bool) -> [u32; 4] {
    const HIGHEST: u32 = 0x16;
    match (leaf, subleaf) {
        // "GenuineIntel".
        (0, _) => [HIGHEST, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
        // CLFLUSH of 64 bytes, one processor.
        (1, _) => {
            let edx = if has_apic { LEAF_1_EDX } else { LEAF_1_EDX & !APIC };
            [SIGNATURE, 1 << 16 | 8 << 8, LEAF_1_ECX, edx]
        }
        // The timer of the APIC never stops.
        (6, _) => [1 << 2, 0, 0, 0],
        (7, 0) => [0, LEAF_7_EBX, LEAF_7_ECX, LEAF_7_EDX],
        (0x15, _) => [1, 1, HERTZ, 0],
        (0x16, _) => [HERTZ / 1_000_000, HERTZ / 1_000_000, 0, 0],
        (0x8000_0000, _) => [0x8000_0008, 0, 0, 0],
        (0x8000_0001, _) => [0, 0, EXTENDED_ECX, EXTENDED_EDX],
        (0x8000_0002..=0x8000_0004, _) => brand(leaf - 0x8000_0002),
        // The time-stamp counter has one frequency.
        (0x8000_0007, _) => [0, 0, 0, 1 << 8],
        (0x8000_0008, _) => [x86_system::paging::PHYSICAL_BITS | 48 << 8, 0, 0, 0],
        _ => [0; 4],
    }
}

/// A third of the name.
fn brand(n: u32) -> [u32; 4] {
    let (words, _) = BRAND.as_chunks();
    std::array::from_fn(|k| u32::from_le_bytes(words[4 * n as usize + k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_three_leaves() {
        let name: Vec<u8> = (0x8000_0002..=0x8000_0004)
            .flat_map(|leaf| cpuid(leaf, 0, true))
            .flat_map(u32::to_le_bytes)
            .collect();
        assert_eq!(name, BRAND);
    }

    #[test]
    fn there_is_no_leaf_beyond_the_highest() {
        assert_eq!((cpuid(0xd, 0, true), cpuid(0x4000_0000, 0, true)), ([0; 4], [0; 4]));
    }
}
