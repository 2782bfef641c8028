//! The CPUID that the vCPU has: what the host supports, cut down to the x86-64-v2 level.

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

/// Leaf 1 ECX: SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT.
const LEAF_1_ECX: u32 = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23;
/// Leaf 0x80000001 ECX: LAHF.
const EXTENDED_ECX: u32 = 1;
/// Leaf 0x80000001 EDX: SYSCALL, NX, long mode.
const EXTENDED_EDX: u32 = 1 << 11 | 1 << 20 | 1 << 29;

/// Withdraws what is beyond the level.
pub(super) fn restrict(cpuid: &mut CpuId) {
    for entry in cpuid.as_mut_slice() {
        match entry.function {
            1 => entry.ecx &= LEAF_1_ECX,
            7 | 0xd => clear(entry),
            0x8000_0001 => {
                entry.ecx &= EXTENDED_ECX;
                entry.edx &= EXTENDED_EDX;
            }
            _ => {}
        }
    }
}

fn clear(entry: &mut kvm_cpuid_entry2) {
    (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0);
}
