//! The registers of Intel's model-specific branch records (Intel SDM vol. 3, "Last Branch, Interrupt, and Exception
//! Recording"; vol. 4 for the numbers).

/// IA32_PERF_CAPABILITIES; bits 5:0 are the record format.
pub const PERF_CAPABILITIES: u32 = 0x345;
/// The record format in [`PERF_CAPABILITIES`].
pub const FORMAT_MASK: u64 = 0x3f;
/// IA32_DEBUGCTL.
pub const DEBUGCTL: u32 = 0x1d9;
/// In [`DEBUGCTL`]: branches are being recorded.
pub const DEBUGCTL_LBR: u64 = 1;
/// MSR_LBR_SELECT: which branches are not recorded ([`crate::Filter`]).
pub const SELECT: u32 = 0x1c8;
/// MSR_LASTBRANCH_TOS: the index of the newest record.
pub const TOP: u32 = 0x1c9;
/// MSR_LASTBRANCH_0_FROM_IP: where the branch is.
pub const FROM: u32 = 0x680;
/// MSR_LASTBRANCH_0_TO_IP: where it went.
pub const TO: u32 = 0x6c0;
/// MSR_LBR_INFO_0: flags and cycles.
pub const INFO: u32 = 0xdc0;

/// The format of Skylake to Tiger Lake: plain addresses, flags in the INFO registers.
pub const FORMAT_INFO: u8 = 5;
/// The same without transactions: Goldmont Plus, Tremont.
pub const FORMAT_INFO_PLAIN: u8 = 7;

/// In an INFO register: the branch was mispredicted.
pub const INFO_MISPREDICTED: u64 = 1 << 63;
/// In an INFO register: inside a transaction.
pub const INFO_IN_TRANSACTION: u64 = 1 << 62;
/// In an INFO register: this is an abort.
pub const INFO_ABORT: u64 = 1 << 61;
/// In an INFO register: core clocks since the record before, saturating.
pub const INFO_CYCLES: u64 = 0xffff;
