//! The forms that branch records have, one file each, with a decoder and its inverse.
//!
//! Registers: [`intel_legacy`] (Intel's model-specific records, formats 0 to 7), [`intel_arch`] (Intel's
//! architectural ones), [`amd_v2`] (AMD's stack), [`amd_single`] (AMD's last branch and last interrupt);
//! [`crate::Dump`] is the way in. Bytes of perf: [`perf`] (the kernel's branch entries and stacks), [`perf_sample`]
//! (the records around them), [`perf_data`] (the file around those). Text of perf: [`brstack`]. Either: [`mapping`] (where files
//! were mapped).

pub mod amd_single;
pub mod amd_v2;
pub mod brstack;
pub mod intel_arch;
pub mod intel_legacy;
pub mod mapping;
pub mod perf;
pub mod perf_data;
pub mod perf_sample;

/// Why a trail cannot be put into registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unencodable {
    /// More records than there are registers.
    #[error("{records} records do not fit into {depth}")]
    Depth {
        /// How many there are.
        records: usize,
        /// How many there can be.
        depth: u32,
    },
    /// No such processor has this many records.
    #[error("no processor of this family has {0} records")]
    NoSuchDepth(u32),
    /// A format that is not one of the known ones.
    #[error("record format {0:#x} is not known; 0 to 7 are")]
    UnknownFormat(u8),
    /// An address has bits that the registers have no room for.
    #[error("record {record}: {address:#x} does not fit into its register")]
    Address {
        /// Which record, from the oldest, 0.
        record: usize,
        /// The address.
        address: u64,
    },
    /// A branch from 0 to 0 without flags looks like a register that was never written.
    #[error("record {record}: all of it is zero, as in a register that was never written")]
    Empty {
        /// Which record, from the oldest, 0.
        record: usize,
    },
    /// The family's records are not in registers.
    #[error("records of perf are not in registers")]
    NotInRegisters,
    /// No processor has addresses of this width.
    #[error("virtual addresses have 48 or 57 bits, not {0}")]
    AddressBits(u32),
}

/// `value` with its bits from `bits` on replaced by copies of the highest bit below: an address of `bits` bits.
pub(crate) fn sign_extended(value: u64, bits: u32) -> u64 {
    let surplus = 64 - bits;
    ((value << surplus).cast_signed() >> surplus).cast_unsigned()
}

/// Bit `n`.
pub(crate) fn bit(value: u64, n: u32) -> bool {
    value >> n & 1 != 0
}

/// `bits`, if `flag`.
pub(crate) fn bits_if(flag: bool, bits: u64) -> u64 {
    if flag { bits } else { 0 }
}

/// `1 << n` if `flag` is known to be true.
pub(crate) fn flag(flag: Option<bool>, n: u32) -> u64 {
    bits_if(flag == Some(true), 1 << n)
}

/// `address`, if it is its own sign extension from `bits` bits.
pub(crate) fn fits(address: u64, bits: u32, record: usize) -> Result<u64, Unencodable> {
    if sign_extended(address, bits) == address {
        Ok(address)
    } else {
        Err(Unencodable::Address { record, address })
    }
}
