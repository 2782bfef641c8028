//! AMD's stack of records ("LBR extension version 2", Zen 4 and later): pairs of FROM and TO registers, the newest
//! branch always in number 0.
//!
//! Layouts: AMD64 APM vol. 2, 13.1.1.9 and 13.1.8; Linux, arch/x86/events/amd/lbr.c, `amd_pmu_lbr_read`, which this
//! reads as, but for what did not happen: it keeps records of wrong speculation and says so, a trail leaves them
//! out.

use super::{Unencodable, bit, fits, flag, sign_extended};
use crate::dump::{Dump, DumpError, need};
use crate::msr;
use crate::registers::Registers;
use crate::trail::{BranchRecord, Trail};

/// The registers of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Raw {
    /// Where the branch is, or where an instruction is that was fused with it ([`crate::code::correct_fusion`]).
    pub from: u64,
    /// Where it went.
    pub to: u64,
}

const MISPREDICTED: u32 = 63;
const VALID: u32 = 63;
const SPECULATIVE: u32 = 62;
/// Reserved; set in what erratum 1452 makes the processor record without a branch.
const ERRONEOUS: u32 = 61;
/// The bits of an address that a register has room for; in TO, the sign goes on for three more.
const ADDRESS_BITS: u32 = 58;
/// How many records there can be: CPUID 8000_0022 EBX has six bits for them. Processors so far have 16.
const MAX_DEPTH: u32 = 63;

/// The branch in these registers, whose addresses have `address_bits` bits; `None`: nothing, or none that happened.
#[must_use]
pub fn decode_record(address_bits: u32, raw: Raw) -> Option<BranchRecord> {
    // Valid alone is a branch, with `speculative` a branch under a speculation that was right; `speculative` alone
    // is one under a speculation that was wrong, neither is nothing (APM table 13-3).
    if !bit(raw.to, VALID) || bit(raw.to, ERRONEOUS) {
        return None;
    }
    Some(BranchRecord {
        mispredicted: Some(bit(raw.from, MISPREDICTED)),
        speculative: Some(bit(raw.to, SPECULATIVE)),
        ..BranchRecord::new(sign_extended(raw.from, address_bits), sign_extended(raw.to, address_bits))
    })
}

/// The registers of a branch: the inverse of [`decode_record`].
///
/// # Errors
/// When an address has more bits; `n` is the record's place in the message.
pub fn encode_record(address_bits: u32, record: &BranchRecord, n: usize) -> Result<Raw, Unencodable> {
    fits(record.from, address_bits.min(ADDRESS_BITS), n)?;
    fits(record.to, address_bits.min(ADDRESS_BITS), n)?;
    Ok(written(record))
}

/// What the processor writes for a branch: of the addresses, what there is room for.
pub(crate) fn written(record: &BranchRecord) -> Raw {
    let from = record.from & !(1 << MISPREDICTED) | flag(record.mispredicted, MISPREDICTED);
    let to = record.to & !(7 << ERRONEOUS) | 1 << VALID | flag(record.speculative, SPECULATIVE);
    Raw { from, to }
}

/// The branches of the registers, oldest first, and how many there can be.
pub(crate) fn decode(dump: &Dump, registers: &Registers) -> Result<(Vec<BranchRecord>, u32), DumpError> {
    let bits = dump.address_bits();
    if !is_width(bits) {
        return Err(DumpError::AddressBits(bits));
    }
    let depth = dump.depth.unwrap_or_else(|| registers.run(msr::AMD_FROM, 2));
    if depth > MAX_DEPTH {
        return Err(DumpError::Depth { depth, allowed: "16 of them, at most 63" });
    }
    if depth == 0 {
        return Err(DumpError::NoRecords);
    }
    let records = (0..depth).rev().map(|n| {
        let from = need(registers, msr::AMD_FROM + 2 * n, depth)?;
        let to = need(registers, msr::AMD_TO + 2 * n, depth)?;
        Ok(decode_record(bits, Raw { from, to }))
    });
    Ok((records.filter_map(Result::transpose).collect::<Result<_, _>>()?, depth))
}

/// Whether there are processors whose virtual addresses have this width: with four and with five levels of page tables.
fn is_width(address_bits: u32) -> bool {
    matches!(address_bits, 48 | 57)
}

/// The registers that hold the trail.
pub(crate) fn encode(address_bits: u32, trail: &Trail) -> Result<Registers, Unencodable> {
    if !is_width(address_bits) {
        return Err(Unencodable::AddressBits(address_bits));
    }
    let (depth, count) = (trail.depth, trail.records.len());
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(Unencodable::NoSuchDepth(depth));
    }
    if count > depth as usize {
        return Err(Unencodable::Depth { records: count, depth });
    }
    let mut registers = Registers::default();
    let mut newest_first = trail.records.iter().enumerate().rev();
    for n in 0..depth {
        let raw = match newest_first.next() {
            Some((place, record)) => encode_record(address_bits, record, place)?,
            None => Raw::default(),
        };
        registers.set(msr::AMD_FROM + 2 * n, raw.from);
        registers.set(msr::AMD_TO + 2 * n, raw.to);
    }
    Ok(registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by hand from figures 13-7 and 13-8 and table 13-3 of the manual.
    #[test]
    fn what_happened_is_told_by_two_bits_and_an_erratum() {
        let from = 1 << 63 | 0x40_1000;
        let of = |high: u64| decode_record(48, Raw { from, to: high << 60 | 0x40_2000 });
        let plain = of(0b1000).unwrap();
        assert_eq!((plain.from, plain.to, plain.mispredicted), (0x40_1000, 0x40_2000, Some(true)));
        assert_eq!(plain.speculative, Some(false));
        assert_eq!(of(0b1100).unwrap().speculative, Some(true));
        assert_eq!(of(0b0100), None, "wrong path");
        assert_eq!(of(0b0000), None, "nothing recorded");
        assert_eq!(of(0b1010), None, "erratum 1452");
        assert_eq!(of(0b1110), None, "erratum 1452");
    }

    #[test]
    fn addresses_are_extended_from_the_width_that_the_processor_has() {
        let of = |bits: u32, from: u64, to: u64| {
            let record = decode_record(bits, Raw { from, to: 1 << 63 | to }).unwrap();
            (record.from, record.to)
        };
        let (kernel, user) = (0xffff_ffff_8100_0000, 0x7fff_ffff_f000);
        // As hardware writes the sign: up to bit 62 in FROM, up to bit 60 in TO.
        let (high_from, high_to) = (kernel & !(1 << 63), kernel & (u64::MAX >> 3));
        assert_eq!(of(48, high_from, high_to), (kernel, kernel));
        assert_eq!(of(57, high_from, high_to), (kernel, kernel));
        // As the manual draws them: 57 bits, the rest reserved.
        assert_eq!(of(48, kernel & (u64::MAX >> 7), user), (kernel, user));
        assert_eq!(of(57, 0x00ff_0000_0000_1000, user), (0x00ff_0000_0000_1000, user), "five levels");
        assert_eq!(of(48, 0x0000_8000_0000_1000, user), (0xffff_8000_0000_1000, user), "48 bits alone");
    }

    #[test]
    fn number_zero_is_the_newest() {
        let mut registers = Registers::default();
        for n in 0..4 {
            registers.set(msr::AMD_FROM + 2 * n, 0x100 + u64::from(n));
            registers.set(msr::AMD_TO + 2 * n, (1 << 63) | (0x200 + u64::from(n)));
        }
        registers.set(msr::AMD_TO + 2, 1 << 62 | 0x201);
        assert_eq!(Dump::default().decode(&registers).unwrap().filter, None);
        registers.set(msr::AMD_SELECT, 0x1c4);
        let trail = Dump::default().decode(&registers).unwrap();
        assert_eq!(
            trail.records.iter().map(|r| (r.from, r.to)).collect::<Vec<_>>(),
            [(0x103, 0x203), (0x102, 0x202), (0x100, 0x200)]
        );
        assert!(trail.records.iter().all(|r| !r.after_gap), "what did not happen is no gap");
        assert_eq!((trail.depth, trail.filter.map(crate::Filter::bits)), (4, Some(0x1c4)));
        registers.set(msr::AMD_SELECT, 0x3c4);
        assert!(matches!(Dump::default().decode(&registers), Err(DumpError::Filter { .. })), "no such mode");
    }
}
