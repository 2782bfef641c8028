//! Intel's architectural records: FROM, TO and INFO registers, the newest branch always in number 0.
//!
//! Layouts: Intel SDM vol. 3, "Last Branch Records", vol. 4 for IA32_LBR_x_INFO; Linux, arch/x86/events/intel/lbr.c,
//! `intel_pmu_store_lbr`, which this reads as.

use super::{Unencodable, bit, flag};
use crate::dump::{Dump, DumpError, need};
use crate::kind::Kind;
use crate::msr;
use crate::registers::Registers;
use crate::trail::{BranchRecord, Trail};

/// The registers of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Raw {
    /// Where the branch is; all ones where it began in a ring whose branches are not recorded.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// Flags, kind and cycles.
    pub info: u64,
}

const MISPREDICTED: u32 = 63;
const IN_TRANSACTION: u32 = 62;
const ABORTED: u32 = 61;
/// The cycles are valid.
const CYCLES_VALID: u32 = 60;
/// The kind of the branch, four bits.
const KIND: u32 = 56;
/// Core clocks since the record before, saturating.
const CYCLES: u64 = 0xffff;
/// The bits of INFO that mean something; the others are undefined, and may read as anything.
pub(crate) const INFO_DEFINED: u64 = 0xff << 56 | CYCLES;

/// The kinds by their numbers in INFO; 6 and 7 are reserved, 8 to 15 all mean any other branch.
const KINDS: [Kind; 6] = [
    Kind::Conditional,
    Kind::IndirectJump,
    Kind::RelativeJump,
    Kind::IndirectCall,
    Kind::RelativeCall,
    Kind::Return,
];
const OTHER: u64 = 8;

/// The branch in these registers; `None`: they were never written.
#[must_use]
pub fn decode_record(tsx: bool, raw: Raw) -> Option<BranchRecord> {
    if raw.from == 0 && raw.to == 0 {
        return None;
    }
    let number = raw.info >> KIND & 0xf;
    let near = usize::try_from(number).ok().and_then(|n| KINDS.get(n)).copied();
    let kind = if number >= OTHER { Some(Kind::Far) } else { near };
    let cycles = bit(raw.info, CYCLES_VALID).then(|| u16::try_from(raw.info & CYCLES).unwrap_or(u16::MAX));
    Some(BranchRecord {
        mispredicted: Some(bit(raw.info, MISPREDICTED)),
        in_transaction: Some(tsx && bit(raw.info, IN_TRANSACTION)),
        aborted: Some(tsx && bit(raw.info, ABORTED)),
        cycles,
        kind,
        ..BranchRecord::new(raw.from, raw.to)
    })
}

/// The registers of a branch: the inverse of [`decode_record`]. Flags that are not known are zero; a kind that is not
/// known is the reserved 6.
///
/// # Errors
/// When the record would look as if it were none; `n` is its place in the message.
pub fn encode_record(record: &BranchRecord, n: usize) -> Result<Raw, Unencodable> {
    if record.from == 0 && record.to == 0 {
        Err(Unencodable::Empty { record: n })
    } else {
        Ok(written(record))
    }
}

/// What the processor writes for a branch.
pub(crate) fn written(record: &BranchRecord) -> Raw {
    let near = |kind: Kind| KINDS.iter().position(|k| *k == kind).and_then(|n| u64::try_from(n).ok());
    let kind = record.kind.map_or(6, |kind| near(kind).unwrap_or(OTHER));
    let info = flag(record.mispredicted, MISPREDICTED)
        | flag(record.in_transaction, IN_TRANSACTION)
        | flag(record.aborted, ABORTED)
        | record.cycles.map_or(0, |cycles| 1 << CYCLES_VALID | u64::from(cycles))
        | kind << KIND;
    Raw { from: record.from, to: record.to, info }
}

/// Whether there are processors with this many records: CPUID leaf 1CH has a bit for each multiple of eight up to 64.
pub(crate) fn is_depth(depth: u32) -> bool {
    (8..=64).contains(&depth) && depth.is_multiple_of(8)
}

/// The branches of the registers, oldest first, and how many there can be.
pub(crate) fn decode(dump: &Dump, registers: &Registers) -> Result<(Vec<BranchRecord>, u32), DumpError> {
    let announced = registers.get(msr::ARCH_DEPTH).map(|depth| u32::try_from(depth).unwrap_or(u32::MAX));
    let depth = dump.depth.or(announced).unwrap_or_else(|| registers.run(msr::ARCH_FROM, 1));
    if !is_depth(depth) {
        return Err(DumpError::Depth { depth, allowed: "a multiple of eight of them, up to 64" });
    }
    let has_info = registers.get(msr::ARCH_INFO).is_some();
    let mut records = Vec::new();
    for n in 0..depth {
        let info = if has_info { need(registers, msr::ARCH_INFO + n, depth)? } else { 0 };
        let from = need(registers, msr::ARCH_FROM + n, depth)?;
        let raw = Raw { from, to: need(registers, msr::ARCH_TO + n, depth)?, info };
        // Behind the first that is empty there are none.
        let Some(record) = decode_record(dump.tsx(), raw) else { break };
        records.push(if has_info { record } else { BranchRecord::new(record.from, record.to) });
    }
    records.reverse();
    Ok((records, depth))
}

/// The registers that hold the trail.
pub(crate) fn encode(trail: &Trail) -> Result<Registers, Unencodable> {
    let (depth, count) = (trail.depth, trail.records.len());
    if !is_depth(depth) {
        return Err(Unencodable::NoSuchDepth(depth));
    }
    if count > depth as usize {
        return Err(Unencodable::Depth { records: count, depth });
    }
    let mut registers = Registers::default();
    registers.set(msr::ARCH_DEPTH, depth.into());
    if let Some(filter) = trail.filter {
        registers.set(msr::ARCH_CTL, filter.lbr_ctl());
    }
    let mut newest_first = trail.records.iter().enumerate().rev();
    for n in 0..depth {
        let raw = match newest_first.next() {
            Some((place, record)) => encode_record(record, place)?,
            None => Raw::default(),
        };
        registers.set(msr::ARCH_FROM + n, raw.from);
        registers.set(msr::ARCH_TO + n, raw.to);
        registers.set(msr::ARCH_INFO + n, raw.info);
    }
    Ok(registers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;

    /// INFO, written by hand from the manual's layout.
    #[test]
    fn info_tells_kind_flags_and_cycles() {
        let of = |info: u64| decode_record(true, Raw { from: 1, to: 2, info }).unwrap();
        let all = of(0xf8ab_cdef_0123_4567);
        assert_eq!((all.mispredicted, all.in_transaction, all.aborted), (Some(true), Some(true), Some(true)));
        assert_eq!((all.cycles, all.kind), (Some(0x4567), Some(Kind::Far)));
        assert_eq!(of(0x0000_0000_0000_4567).cycles, None, "without the valid bit");
        let kinds: Vec<_> = (0..16).map(|kind| of(kind << 56).kind).collect();
        assert_eq!(kinds[..6], KINDS.map(Some));
        assert_eq!(kinds[6..8], [None, None]);
        assert_eq!(kinds[8..], [Some(Kind::Far); 8]);
        let no_tsx = decode_record(false, Raw { from: 1, to: 2, info: 3 << 61 }).unwrap();
        assert_eq!((no_tsx.in_transaction, no_tsx.aborted), (Some(false), Some(false)));
    }

    #[test]
    fn number_zero_is_the_newest_and_the_first_empty_one_ends_them() {
        let mut registers = Registers::default();
        registers.set(msr::ARCH_DEPTH, 8);
        registers.set(msr::ARCH_CTL, 0x7f_0007);
        for n in 0..8 {
            // A branch to 0 is one: the call of a null pointer. So is the fault at 0 that follows.
            let (from, to) =
                [(0, 0x100), (0x200, 0), (u64::MAX, 0x300)].get(n as usize).copied().unwrap_or((0, 0));
            registers.set(msr::ARCH_FROM + n, from);
            registers.set(msr::ARCH_TO + n, to);
        }
        registers.set(msr::ARCH_FROM + 7, 0xdead);
        let trail = Dump::default().decode(&registers).unwrap();
        assert_eq!(
            (trail.depth, trail.filter, trail.family),
            (8, Some(Filter::EVERYTHING), crate::Family::IntelArch)
        );
        let found: Vec<_> = trail.records.iter().map(|r| (r.from, r.to, r.from_is_hidden())).collect();
        assert_eq!(found, [(u64::MAX, 0x300, true), (0x200, 0, false), (0, 0x100, false)]);
        assert_eq!(trail.records[0].mispredicted, None, "INFO is not in the dump");
        registers.set(msr::ARCH_DEPTH, 12);
        assert!(matches!(Dump::default().decode(&registers), Err(DumpError::Depth { depth: 12, .. })));
        let (full, short) =
            (Dump { depth: Some(8), ..Dump::default() }, Dump { depth: Some(16), ..Dump::default() });
        (0..8).for_each(|n| registers.set(msr::ARCH_FROM + n, 0x100));
        assert_eq!(full.decode(&registers).unwrap().records.len(), 8);
        assert_eq!(
            short.decode(&registers).unwrap_err().to_string(),
            "the dump lacks MSR 0x1508 (IA32_LBR_8_FROM_IP), which 16 records need; give the depth if there are fewer"
        );
    }
}
