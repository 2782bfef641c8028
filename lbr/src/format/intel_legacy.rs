//! Intel's model-specific records: pairs of FROM and TO registers in a ring, since Skylake with an INFO register
//! each.
//!
//! Layouts: Intel SDM vol. 3, "LBR Stack and Intel 64 Processors" and the tables of MSR_LASTBRANCH_x_FROM_IP,
//! _TO_IP and MSR_LBR_INFO_x; Linux, arch/x86/events/intel/lbr.c, `intel_pmu_lbr_init` and `intel_pmu_lbr_read_64`,
//! which this reads as.

use super::{Unencodable, bit, fits, flag, sign_extended};
use crate::dump::{Dump, DumpError, need, without_holes};
use crate::msr;
use crate::registers::Registers;
use crate::trail::{BranchRecord, Trail};

/// What IA32_PERF_CAPABILITIES bits 5:0 say of the layout of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format(u8);

impl Format {
    /// 32-bit offsets, both in one register.
    pub const OFFSETS_32: Format = Format(0);
    /// 64-bit linear addresses.
    pub const LINEAR: Format = Format(1);
    /// 64-bit offsets in the code segment, which in 64-bit mode are the linear addresses.
    pub const OFFSETS: Format = Format(2);
    /// Nehalem to Ivy Bridge: bit 63 of FROM is a flag.
    pub const FLAGS: Format = Format(3);
    /// Haswell, Broadwell: bits 63:61 of FROM are flags.
    pub const FLAGS_TSX: Format = Format(4);
    /// Skylake to Tiger Lake: plain addresses, flags and cycles in INFO.
    pub const INFO: Format = Format(5);
    /// Goldmont: bit 63 of FROM is a flag, bits 63:48 of TO are cycles.
    pub const CYCLES: Format = Format(6);
    /// Goldmont Plus, Tremont: as [`Format::INFO`], without transactions.
    pub const INFO_PLAIN: Format = Format(7);

    /// The format of this number, if it is known.
    #[must_use]
    pub fn new(number: u8) -> Option<Format> {
        (number <= Format::INFO_PLAIN.0).then_some(Format(number))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Whether there are INFO registers.
    #[must_use]
    pub fn has_info(self) -> bool {
        matches!(self, Format::INFO | Format::INFO_PLAIN)
    }

    /// How many of FROM's high bits are flags.
    fn flags_in_from(self) -> u32 {
        match self {
            Format::FLAGS | Format::CYCLES => 1,
            Format::FLAGS_TSX => 3,
            _ => 0,
        }
    }

    /// The bits of an address that FROM has room for.
    pub(crate) fn bits_of_from(self) -> u32 {
        64 - self.flags_in_from()
    }

    /// The bits of an address that TO has room for.
    pub(crate) fn bits_of_to(self) -> u32 {
        if self == Format::CYCLES { 48 } else { 64 }
    }
}

/// The registers of one record; zero, where the format does not have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Raw {
    /// Where the branch is; of [`Format::OFFSETS_32`], both addresses.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// Flags and cycles; `None` where it was not read.
    pub info: Option<u64>,
}

const MISPREDICTED: u32 = 63;
const IN_TRANSACTION: u32 = 62;
const ABORTED: u32 = 61;
/// In INFO: core clocks since the record before, saturating.
const CYCLES: u64 = 0xffff;

/// The branch in these registers; `None`: they were never written.
///
/// Without `tsx`, bits 62 and 61 of [`Format::FLAGS_TSX`] are not flags. Hardware then records zeros there, which
/// are not part of the address's sign (lbr.c, `lbr_from_signext_quirk_rd`).
#[must_use]
pub fn decode_record(format: Format, tsx: bool, raw: Raw) -> Option<BranchRecord> {
    if raw.from == 0 && raw.to == 0 {
        return None;
    }
    if format == Format::OFFSETS_32 {
        return Some(BranchRecord::new(raw.from & 0xffff_ffff, raw.from >> 32));
    }
    let mut record = BranchRecord::new(
        sign_extended(raw.from, format.bits_of_from()),
        sign_extended(raw.to, format.bits_of_to()),
    );
    if format.flags_in_from() > 0 {
        record.mispredicted = Some(bit(raw.from, MISPREDICTED));
    }
    if format == Format::FLAGS_TSX {
        record.in_transaction = Some(tsx && bit(raw.from, IN_TRANSACTION));
        record.aborted = Some(tsx && bit(raw.from, ABORTED));
    }
    if format == Format::CYCLES {
        record.cycles = Some(low16(raw.to >> 48));
    }
    if let (true, Some(info)) = (format.has_info(), raw.info) {
        record.mispredicted = Some(bit(info, MISPREDICTED));
        record.cycles = Some(low16(info));
        if format == Format::INFO {
            record.in_transaction = Some(tsx && bit(info, IN_TRANSACTION));
            record.aborted = Some(tsx && bit(info, ABORTED));
        }
    }
    Some(record)
}

/// The registers of a branch: the inverse of [`decode_record`]. What is not known or has no place is zero.
///
/// # Errors
/// When an address does not fit, or the record would look as if it were none; `n` is its place in the message.
pub fn encode_record(format: Format, record: &BranchRecord, n: usize) -> Result<Raw, Unencodable> {
    if format == Format::OFFSETS_32 {
        let large = [record.from, record.to].into_iter().find(|address| *address > u32::MAX.into());
        large.map_or(Ok(()), |address| Err(Unencodable::Address { record: n, address }))?;
    } else {
        fits(record.from, format.bits_of_from(), n)?;
        fits(record.to, format.bits_of_to(), n)?;
    }
    let raw = written(format, record);
    if raw.from == 0 && raw.to == 0 { Err(Unencodable::Empty { record: n }) } else { Ok(raw) }
}

/// What the processor writes for a branch: of the addresses, what there is room for.
#[inline]
pub(crate) fn written(format: Format, record: &BranchRecord) -> Raw {
    let mispredicted = flag(record.mispredicted, MISPREDICTED);
    let transaction = flag(record.in_transaction, IN_TRANSACTION) | flag(record.aborted, ABORTED);
    let cycles = u64::from(record.cycles.unwrap_or(0));
    let address = record.from & (u64::MAX >> format.flags_in_from());
    match format {
        Format::OFFSETS_32 => Raw { from: record.from & 0xffff_ffff | record.to << 32, ..Raw::default() },
        Format::FLAGS => Raw { from: address | mispredicted, to: record.to, info: None },
        Format::FLAGS_TSX => Raw { from: address | mispredicted | transaction, to: record.to, info: None },
        Format::CYCLES => {
            let to = record.to & (u64::MAX >> 16) | cycles << 48;
            Raw { from: address | mispredicted, to, info: None }
        }
        Format::INFO => {
            Raw { from: record.from, to: record.to, info: Some(mispredicted | transaction | cycles) }
        }
        Format::INFO_PLAIN => Raw { from: record.from, to: record.to, info: Some(mispredicted | cycles) },
        _ => Raw { from: record.from, to: record.to, info: None },
    }
}

fn low16(value: u64) -> u16 {
    u16::try_from(value & CYCLES).unwrap_or(u16::MAX)
}

/// The registers where records are: since Nehalem, and before.
const BANKS: [(u32, u32); 2] = [(msr::FROM, msr::TO), (msr::OLD_FROM, msr::OLD_TO)];

/// The format that the registers announce or, having INFO, imply.
pub(crate) fn format_of(registers: &Registers) -> Result<u8, DumpError> {
    let info = registers.get(msr::INFO).is_some();
    match registers.get(msr::PERF_CAPABILITIES).map(|value| value & msr::FORMAT_MASK) {
        // Knights Landing, which alone has eight of these, says 1, but has the flag (lbr.c,
        // `intel_pmu_lbr_init_knl`).
        Some(1) if registers.run(msr::FROM, 1) == 8 => Ok(Format::FLAGS.number()),
        Some(number) => Ok(u8::try_from(number).unwrap_or(u8::MAX)),
        None if info => Ok(Format::INFO.number()),
        None => Err(DumpError::NoFormat),
    }
}

/// The branches of a ring, oldest first, and its size.
pub(crate) fn decode(
    dump: &Dump,
    format: u8,
    registers: &Registers,
) -> Result<(Vec<BranchRecord>, u32), DumpError> {
    let format = Format::new(format).ok_or(DumpError::UnknownFormat(format))?;
    let bank = BANKS.iter().find(|(from, _)| registers.get(*from).is_some());
    let &(from, to) = bank.ok_or(DumpError::NoRecords)?;
    let depth = dump.depth.unwrap_or_else(|| registers.run(from, 1));
    if !matches!(depth, 1 | 2 | 4 | 8 | 16 | 32) {
        return Err(DumpError::Depth { depth, allowed: "a power of two of them, up to 32" });
    }
    let top = newest(dump, registers, depth)?;
    let has_info = format.has_info() && registers.get(msr::INFO).is_some();
    // The index of the newest record rises before it is written: the one behind it is the oldest.
    let slots = (1..=depth).map(|age| (top + age) & (depth - 1));
    let records = slots.map(|n| {
        let to = if format == Format::OFFSETS_32 { 0 } else { need(registers, to + n, depth)? };
        let info = if has_info { Some(need(registers, msr::INFO + n, depth)?) } else { None };
        let raw = Raw { from: need(registers, from + n, depth)?, to, info };
        Ok(decode_record(format, dump.tsx(), raw))
    });
    let mut records = without_holes(records.collect::<Result<Vec<_>, _>>()?.into_iter());
    records.dedup_by(|newer, older| is_same_abort(older, newer));
    Ok((records, depth))
}

/// The index of the newest record. Of the register, only as many bits count as an index has; but where the depth is
/// not given, a larger number tells that registers are missing.
fn newest(dump: &Dump, registers: &Registers, depth: u32) -> Result<u32, DumpError> {
    let top = match dump.top {
        Some(top) => top.into(),
        None => need(registers, msr::TOP, depth)?,
    };
    let counts = if dump.top.is_none() && dump.depth.is_some() { top & u64::from(depth - 1) } else { top };
    u32::try_from(counts).ok().filter(|top| *top < depth).ok_or(DumpError::Top { top, depth })
}

/// Haswell may record an abort twice, the second time without the flag (lbr.c, `lbr_double_abort`).
fn is_same_abort(older: &BranchRecord, newer: &BranchRecord) -> bool {
    let first = older.aborted == Some(true) && newer.aborted == Some(false);
    first && (older.from, older.to) == (newer.from, newer.to)
}

/// The registers of a ring that holds the trail.
pub(crate) fn encode(format: u8, trail: &Trail) -> Result<Registers, Unencodable> {
    let known = Format::new(format).ok_or(Unencodable::UnknownFormat(format))?;
    let depth = trail.depth;
    let (from, to) = match depth {
        1 | 2 | 4 | 8 => BANKS[1],
        16 | 32 => BANKS[0],
        _ => return Err(Unencodable::NoSuchDepth(depth)),
    };
    let count = trail.records.len();
    let filled = u32::try_from(count).ok().filter(|count| *count <= depth);
    let filled = filled.ok_or(Unencodable::Depth { records: count, depth })?;
    let mut registers = Registers::default();
    registers.set(msr::PERF_CAPABILITIES, format.into());
    registers.set(msr::TOP, filled.saturating_sub(1).into());
    for n in 0..depth {
        let raw = match trail.records.get(n as usize) {
            Some(record) => encode_record(known, record, n as usize)?,
            None => Raw::default(),
        };
        registers.set(from + n, raw.from);
        if known != Format::OFFSETS_32 {
            registers.set(to + n, raw.to);
        }
        if known.has_info() {
            registers.set(msr::INFO + n, raw.info.unwrap_or(0));
        }
    }
    Ok(registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(format: Format, from: u64, to: u64, info: Option<u64>) -> BranchRecord {
        decode_record(format, true, Raw { from, to, info }).unwrap()
    }

    /// Each layout, written by hand from the manual's tables.
    #[test]
    fn each_format_gives_addresses_and_flags_from_where_it_has_them() {
        let kernel = 0xffff_8000_0000_1000;
        let both = record(Format::OFFSETS_32, 0x0804_9000_0804_8010, 0, None);
        assert_eq!(both, BranchRecord::new(0x0804_8010, 0x0804_9000));
        assert_eq!(record(Format::LINEAR, kernel, 1, None), BranchRecord::new(kernel, 1));
        assert_eq!(record(Format::OFFSETS, 1, kernel, None), BranchRecord::new(1, kernel));
        let flags = record(Format::FLAGS, 0x7fff_8000_0000_1000, 1, None);
        assert_eq!((flags.from, flags.mispredicted), (kernel, Some(false)));
        assert_eq!((flags.in_transaction, flags.aborted, flags.cycles), (None, None, None));
        let tsx = record(Format::FLAGS_TSX, 0xdfff_8000_0000_1000, 1, None);
        assert_eq!(
            (tsx.from, tsx.mispredicted, tsx.in_transaction, tsx.aborted),
            (kernel, Some(true), Some(true), Some(false))
        );
        let info = record(Format::INFO, kernel, 0x40_1000, Some(1 << 63 | 1 << 61 | 0x1_0000 | 77));
        assert_eq!((info.from, info.to, info.cycles), (kernel, 0x40_1000, Some(77)));
        assert_eq!(
            (info.mispredicted, info.in_transaction, info.aborted),
            (Some(true), Some(false), Some(true))
        );
        let cycles = record(Format::CYCLES, 0x8000_0000_0000_1000, 0x0123_8000_0000_2000, None);
        assert_eq!((cycles.from, cycles.to), (0x1000, 0xffff_8000_0000_2000));
        assert_eq!((cycles.mispredicted, cycles.cycles), (Some(true), Some(0x123)));
        let plain = record(Format::INFO_PLAIN, 1, 2, Some(1 << 62 | 5));
        assert_eq!((plain.mispredicted, plain.in_transaction, plain.cycles), (Some(false), None, Some(5)));
        assert_eq!(record(Format::INFO, 1, 2, None), BranchRecord::new(1, 2), "INFO was not read");
    }

    #[test]
    fn without_transactions_the_bits_below_the_flag_are_zero_and_not_the_address() {
        // A kernel address as hardware records it then: bits 62:61 off, 60:48 the sign.
        let raw = Raw { from: 0x1fff_ffff_8100_0000, to: 1, info: None };
        let found = decode_record(Format::FLAGS_TSX, false, raw).unwrap();
        assert_eq!((found.from, found.in_transaction), (0xffff_ffff_8100_0000, Some(false)));
        // The same as written back by software, which has to extend the sign into them.
        let written = Raw { from: 0x7fff_ffff_8100_0000, ..raw };
        let found = decode_record(Format::FLAGS_TSX, false, written).unwrap();
        assert_eq!((found.from, found.in_transaction), (0xffff_ffff_8100_0000, Some(false)));
    }

    #[test]
    fn the_ring_is_read_from_behind_the_newest() {
        let mut registers: Registers = (0..4).map(|n| (msr::OLD_FROM + n, 0x100 + u64::from(n))).collect();
        (0..4).for_each(|n| registers.set(msr::OLD_TO + n, 0x200 + u64::from(n)));
        registers.set(msr::TOP, 1);
        registers.set(msr::PERF_CAPABILITIES, 2);
        let trail = Dump::default().decode(&registers).unwrap();
        assert_eq!(trail.records.iter().map(|r| r.from).collect::<Vec<_>>(), [0x102, 0x103, 0x100, 0x101]);
        assert_eq!((trail.depth, trail.filter), (4, None));
        let given = Dump { top: Some(3), ..Dump::default() };
        assert_eq!(given.decode(&registers).unwrap().records[3].from, 0x103);
        // Bits above the index do not count, unless the depth is only what was found.
        registers.set(msr::TOP, 5);
        assert_eq!(Dump::default().decode(&registers), Err(DumpError::Top { top: 5, depth: 4 }));
        let deep = Dump { depth: Some(4), ..Dump::default() };
        assert_eq!(deep.decode(&registers).unwrap().records[3].from, 0x101);
        registers.set(msr::TOP, 1);
        // One that was emptied in between; then one that was never written.
        registers.set(msr::OLD_FROM + 3, 0);
        registers.set(msr::OLD_TO + 3, 0);
        let holed = Dump::default().decode(&registers).unwrap().records;
        assert_eq!(
            holed.iter().map(|r| (r.from, r.after_gap)).collect::<Vec<_>>(),
            [(0x102, false), (0x100, true), (0x101, false)]
        );
        registers.set(msr::OLD_FROM + 2, 0);
        registers.set(msr::OLD_TO + 2, 0);
        let young = Dump::default().decode(&registers).unwrap().records;
        assert_eq!(
            young.iter().map(|r| (r.from, r.after_gap)).collect::<Vec<_>>(),
            [(0x100, false), (0x101, false)]
        );
    }

    #[test]
    fn an_abort_that_haswell_records_twice_is_one() {
        let from = 0x40_1000 | 1 << 61;
        let ring =
            [(0x40_0000, 0x40_0ff0), (from, 0x40_2000), (0x40_1000, 0x40_2000), (0x40_2008, 0x40_1000)];
        let mut registers = Registers::default();
        for (n, (from, to)) in (0..).zip(ring) {
            registers.set(msr::FROM + n, from);
            registers.set(msr::TO + n, to);
        }
        registers.set(msr::TOP, 3);
        let records = Dump::of(crate::Family::IntelLegacy { format: 4 }).decode(&registers).unwrap().records;
        let found: Vec<_> = records.iter().map(|r| (r.from, r.aborted.unwrap())).collect();
        assert_eq!(found, [(0x40_0000, false), (0x40_1000, true), (0x40_2008, false)]);
    }

    #[test]
    fn the_format_is_what_the_processor_announces_or_its_registers_imply() {
        let of = |pairs: &[(u32, u64)]| format_of(&pairs.iter().copied().collect());
        assert_eq!(of(&[(msr::PERF_CAPABILITIES, 0x32c4), (msr::FROM, 0)]), Ok(4));
        let mut knights_landing: Vec<(u32, u64)> = (0..8).map(|n| (msr::FROM + n, 0)).collect();
        knights_landing.push((msr::PERF_CAPABILITIES, 1));
        assert_eq!(of(&knights_landing), Ok(3));
        assert_eq!(of(&[(msr::PERF_CAPABILITIES, 1), (msr::OLD_FROM, 0)]), Ok(1));
        assert_eq!(of(&[(msr::FROM, 0), (msr::INFO, 0)]), Ok(5));
        assert_eq!(of(&[(msr::FROM, 0)]), Err(DumpError::NoFormat));
        let unknown: Registers = [(msr::PERF_CAPABILITIES, 0x3f), (msr::FROM, 0)].into_iter().collect();
        assert_eq!(Dump::default().decode(&unknown), Err(DumpError::UnknownFormat(0x3f)));
    }
}
