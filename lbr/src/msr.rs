//! The registers of branch records, by number and by name.
//!
//! Sources: Intel SDM vol. 3, "Last Branch, Interrupt, and Exception Recording" and "Last Branch Records", vol. 4 for
//! the numbers; AMD64 APM vol. 2, 13.1; Linux, arch/x86/include/asm/msr-index.h, whose names are used where the two
//! manuals have none in common.

/// IA32_PERF_CAPABILITIES; bits 5:0 are the record format.
pub const PERF_CAPABILITIES: u32 = 0x345;
/// The record format in [`PERF_CAPABILITIES`].
pub const FORMAT_MASK: u64 = 0x3f;
/// IA32_DEBUGCTL; AMD: DebugCtl.
pub const DEBUGCTL: u32 = 0x1d9;
/// In [`DEBUGCTL`]: branches are being recorded (Intel's model-specific records, AMD's single record).
pub const DEBUGCTL_LBR: u64 = 1;
/// In [`DEBUGCTL`]: an interrupt of the performance counters stops the recording.
pub const DEBUGCTL_FREEZE_LBRS_ON_PMI: u64 = 1 << 11;

/// IA32_PERF_GLOBAL_STATUS, read-only.
pub const GLOBAL_STATUS: u32 = 0x38e;
/// IA32_PERF_GLOBAL_STATUS_RESET (before version 4: IA32_PERF_GLOBAL_OVF_CTRL): ones clear bits of [`GLOBAL_STATUS`].
pub const GLOBAL_STATUS_RESET: u32 = 0x390;
/// PerfCntrGlobalStatus of AMD, read-only.
pub const AMD_GLOBAL_STATUS: u32 = 0xc000_0300;
/// PerfCntrGlobalStatusClr of AMD: ones clear bits of [`AMD_GLOBAL_STATUS`].
pub const AMD_GLOBAL_STATUS_RESET: u32 = 0xc000_0302;
/// In the global status of either vendor: the branch records are frozen.
pub const STATUS_LBRS_FROZEN: u64 = 1 << 58;

/// MSR_LBR_SELECT: which branches are not recorded ([`crate::Filter`]).
pub const SELECT: u32 = 0x1c8;
/// MSR_LASTBRANCH_TOS: the index of the newest record.
pub const TOP: u32 = 0x1c9;
/// MSR_LASTBRANCH_0_FROM_IP since Nehalem: where the branch is.
pub const FROM: u32 = 0x680;
/// MSR_LASTBRANCH_0_TO_IP since Nehalem: where it went.
pub const TO: u32 = 0x6c0;
/// MSR_LASTBRANCH_0_FROM_IP of Core 2, Bonnell, Silvermont; before them, of 32-bit processors, both addresses.
pub const OLD_FROM: u32 = 0x40;
/// MSR_LASTBRANCH_0_TO_IP of Core 2, Bonnell, Silvermont.
pub const OLD_TO: u32 = 0x60;
/// MSR_LBR_INFO_0: flags and cycles.
pub const INFO: u32 = 0xdc0;

/// IA32_LBR_CTL: switches architectural records on, and says which branches are recorded ([`crate::Filter`]).
pub const ARCH_CTL: u32 = 0x14ce;
/// In [`ARCH_CTL`]: branches are being recorded.
pub const ARCH_CTL_ENABLE: u64 = 1;
/// IA32_LBR_DEPTH: how many records there are; a write of it empties them.
pub const ARCH_DEPTH: u32 = 0x14cf;
/// IA32_LBR_0_INFO: flags, kind and cycles of the newest branch.
pub const ARCH_INFO: u32 = 0x1200;
/// IA32_LBR_0_FROM_IP: where the newest branch is.
pub const ARCH_FROM: u32 = 0x1500;
/// IA32_LBR_0_TO_IP: where it went.
pub const ARCH_TO: u32 = 0x1600;

/// LastBranchStackSelect of AMD: as [`SELECT`], without a call-stack mode.
pub const AMD_SELECT: u32 = 0xc000_010e;
/// DebugExtnCtl of AMD.
pub const AMD_DEBUG_EXTN_CTL: u32 = 0xc000_010f;
/// In [`AMD_DEBUG_EXTN_CTL`]: branches are being recorded in the stack.
pub const AMD_DEBUG_EXTN_CTL_LBRSE: u64 = 1 << 6;
/// LastBranchStackFromIp of the newest branch; that of the one before is two numbers higher, and so on.
pub const AMD_FROM: u32 = 0xc001_0300;
/// LastBranchStackToIp of the newest branch.
pub const AMD_TO: u32 = 0xc001_0301;

/// LastBranchFromIP of AMD: the last branch, interrupt or exception.
pub const LAST_BRANCH_FROM: u32 = 0x1db;
/// LastBranchToIP of AMD.
pub const LAST_BRANCH_TO: u32 = 0x1dc;
/// LastIntFromIP of AMD: what the last branch was when the last interrupt or exception came.
pub const LAST_INT_FROM: u32 = 0x1dd;
/// LastIntToIP of AMD.
pub const LAST_INT_TO: u32 = 0x1de;

/// Registers of which there is one.
const SINGLE: [(u32, &str); 16] = [
    (PERF_CAPABILITIES, "IA32_PERF_CAPABILITIES"),
    (DEBUGCTL, "IA32_DEBUGCTL"),
    (GLOBAL_STATUS, "IA32_PERF_GLOBAL_STATUS"),
    (GLOBAL_STATUS_RESET, "IA32_PERF_GLOBAL_STATUS_RESET"),
    (AMD_GLOBAL_STATUS, "PerfCntrGlobalStatus"),
    (AMD_GLOBAL_STATUS_RESET, "PerfCntrGlobalStatusClr"),
    (SELECT, "MSR_LBR_SELECT"),
    (TOP, "MSR_LASTBRANCH_TOS"),
    (ARCH_CTL, "IA32_LBR_CTL"),
    (ARCH_DEPTH, "IA32_LBR_DEPTH"),
    (AMD_SELECT, "LastBranchStackSelect"),
    (AMD_DEBUG_EXTN_CTL, "DebugExtnCtl"),
    (LAST_BRANCH_FROM, "LastBranchFromIP"),
    (LAST_BRANCH_TO, "LastBranchToIP"),
    (LAST_INT_FROM, "LastIntFromIP"),
    (LAST_INT_TO, "LastIntToIP"),
];

/// Registers of which there is one for each record: the first, the distance to the next, the number of them, and the
/// name around the index of the record.
const BANKS: [(u32, u32, u32, &str, &str); 10] = [
    (FROM, 1, 32, "MSR_LASTBRANCH_", "_FROM_IP"),
    (TO, 1, 32, "MSR_LASTBRANCH_", "_TO_IP"),
    (OLD_FROM, 1, 8, "MSR_LASTBRANCH_", "_FROM_IP"),
    (OLD_TO, 1, 8, "MSR_LASTBRANCH_", "_TO_IP"),
    (INFO, 1, 32, "MSR_LBR_INFO_", ""),
    (ARCH_FROM, 1, 64, "IA32_LBR_", "_FROM_IP"),
    (ARCH_TO, 1, 64, "IA32_LBR_", "_TO_IP"),
    (ARCH_INFO, 1, 64, "IA32_LBR_", "_INFO"),
    (AMD_FROM, 2, 64, "LastBranchStackFromIp", ""),
    (AMD_TO, 2, 64, "LastBranchStackToIp", ""),
];

/// The register's name, if it is one of branch records.
#[must_use]
pub fn name(index: u32) -> Option<String> {
    let single = SINGLE.iter().find(|(number, _)| *number == index).map(|(_, name)| (*name).to_owned());
    single.or_else(|| {
        BANKS.iter().find_map(|&(first, step, count, before, after)| {
            let offset = index.checked_sub(first)?;
            let n = offset / step;
            (offset % step == 0 && n < count).then(|| format!("{before}{n}{after}"))
        })
    })
}

/// The number of the register with this name, in any case. Names that stand for two registers give the one that
/// processors have since Nehalem.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    let single = SINGLE.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(index, _)| *index);
    single.or_else(|| {
        let name = name.to_ascii_lowercase();
        BANKS.iter().find_map(|&(first, step, count, before, after)| {
            let rest = name.strip_prefix(&before.to_ascii_lowercase())?;
            let n: u32 = rest.strip_suffix(&after.to_ascii_lowercase())?.parse().ok()?;
            (n < count).then(|| first + n * step)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        assert_eq!(name(0x69f).as_deref(), Some("MSR_LASTBRANCH_31_FROM_IP"));
        assert_eq!(name(0x6a0), None);
        assert_eq!(name(0xc001_031f).as_deref(), Some("LastBranchStackToIp15"));
        assert_eq!(number("ia32_lbr_7_info"), Some(0x1207));
        assert_eq!(number("MSR_LASTBRANCH_32_FROM_IP"), None);
        assert_eq!(number("MSR_LASTBRANCH_x_FROM_IP"), None);
        assert_eq!(number("LastBranchStackToIp4294967295"), None);
        for index in (0..0x2000).chain(0xc000_0000..0xc000_0400).chain(0xc001_0000..0xc001_0400) {
            let Some(name) = name(index) else { continue };
            let old = (OLD_FROM..OLD_FROM + 8).contains(&index) || (OLD_TO..OLD_TO + 8).contains(&index);
            let expected =
                if old { index - OLD_FROM + if index < OLD_TO { FROM } else { TO - 0x20 } } else { index };
            assert_eq!(number(&name), Some(expected), "{name}");
        }
    }
}
