//! A trail as bytes: a note of a core, or a file. docs/formats.md has the layout as a table.

use super::{BranchRecord, Family, Provenance, Trail};
use crate::filter::Filter;
use crate::kind::Kind;

/// Bytes that are not a trail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrailError {
    /// They do not begin as one.
    #[error("not a branch trail: the first eight bytes are not 'gtrtrail'")]
    Magic,
    /// Another version of the layout.
    #[error("branch trail version {0}; this gretel reads version {VERSION}")]
    Version(u16),
    /// The length does not fit the number of records.
    #[error("branch trail of {found} bytes, where its header says {expected}")]
    Length {
        /// What the header says.
        expected: u64,
        /// What there is.
        found: usize,
    },
    /// Reserved bits or bytes are not zero.
    #[error("branch trail: reserved bits are set")]
    Reserved,
    /// A field has a value that it cannot have.
    #[error("branch trail: {field} at offset {offset:#x} cannot be {value:#x}")]
    Value {
        /// The field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// What is there.
        value: u64,
    },
}

const MAGIC: &[u8; 8] = b"gtrtrail";
const VERSION: u16 = 2;
const HEADER: usize = 32;
const RECORD: usize = 24;
/// More than any hardware holds: a limit for what is read from a file.
const MAX_DEPTH: u32 = 1 << 20;

const AFTER_GAP: u16 = 1;
/// Each flag takes two bits: it is known, and its value.
const MISPREDICTED: u32 = 1;
const IN_TRANSACTION: u32 = 3;
const ABORTED: u32 = 5;
const CYCLES_KNOWN: u16 = 1 << 7;
const SPECULATIVE: u32 = 8;
/// In place of LBR_SELECT, which has no such bits: the filter is not known.
const UNKNOWN_FILTER: u64 = u64::MAX;

/// Provenances by their numbers.
const PROVENANCES: [Provenance; 3] = [Provenance::Hardware, Provenance::Perf, Provenance::Derived];

impl Trail {
    /// The bytes of a trail, little-endian. Header, 32 bytes: `gtrtrail`; u16 version (2); u8 provenance (0
    /// hardware, 1 perf, 2 derived); u8 family (0 Intel model-specific, 1 Intel architectural, 2 AMD stack, 3 AMD
    /// single record, 4 perf); u8 format; three zero bytes; u64 LBR_SELECT (all ones: not known); u32 depth; u32
    /// number of records. Then, oldest first, 24 bytes each: u64 from; u64 to; u16 flags; u16 cycles; u8 kind (0:
    /// not known, else the place in [`Kind::ALL`], from 1); three zero bytes. Flags: bit 0 after a gap; bits 1-2
    /// mispredicted, 3-4 in a transaction, 5-6 aborted, 8-9 speculative (low bit: known, high bit: value); bit 7
    /// cycles known.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let number = |place: Option<usize>| place.and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        let provenance = number(PROVENANCES.iter().position(|p| *p == self.provenance));
        let (family, format) = family_bytes(self.family);
        let count = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + RECORD * self.records.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[provenance, family, format, 0, 0, 0]);
        bytes.extend_from_slice(&self.filter.map_or(UNKNOWN_FILTER, Filter::bits).to_le_bytes());
        bytes.extend_from_slice(&self.depth.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        for record in self.records.iter().take(count as usize) {
            let kind = record.kind.and_then(|kind| Kind::ALL.iter().position(|k| *k == kind)).map(|n| n + 1);
            bytes.extend_from_slice(&record.from.to_le_bytes());
            bytes.extend_from_slice(&record.to.to_le_bytes());
            bytes.extend_from_slice(&flags(record).to_le_bytes());
            bytes.extend_from_slice(&record.cycles.unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(&[number(kind), 0, 0, 0]);
        }
        bytes
    }

    /// Reads what [`Trail::to_bytes`] wrote; the bytes may be anything.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trail, TrailError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(TrailError::Magic);
        }
        let header = bytes.get(..HEADER).ok_or(TrailError::Length { expected: 32, found: bytes.len() })?;
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION {
            return Err(TrailError::Version(version));
        }
        let wrong = |field, offset, value| TrailError::Value { field, offset, value };
        let provenance = PROVENANCES.get(usize::from(header[10])).copied();
        let provenance = provenance.ok_or_else(|| wrong("provenance", 10, header[10].into()))?;
        let family = family_from(header[11], header[12]);
        let family =
            family.ok_or_else(|| wrong("family", 11, u16::from_le_bytes([header[11], header[12]]).into()))?;
        let select = u64_at(header, 16);
        let filter = match select {
            UNKNOWN_FILTER => None,
            _ => Some(Filter::from_bits(select).map_err(|_| wrong("filter", 16, select))?),
        };
        let (depth, count) = (u32_at(header, 24), u32_at(header, 28));
        if depth > MAX_DEPTH {
            return Err(wrong("depth", 24, depth.into()));
        }
        if count > depth {
            return Err(wrong("number of records", 28, count.into()));
        }
        let expected = HEADER as u64 + RECORD as u64 * u64::from(count);
        if expected != bytes.len() as u64 {
            return Err(TrailError::Length { expected, found: bytes.len() });
        }
        let records = bytes[HEADER..].chunks_exact(RECORD).enumerate();
        let records = records
            .map(|(n, record)| {
                record_from(record)
                    .ok_or_else(|| wrong("kind", HEADER + n * RECORD + KIND, record[KIND].into()))
            })
            .collect::<Result<Vec<BranchRecord>, TrailError>>()?;
        let trail = Trail { records, depth, filter, provenance, family };
        // What is not used must be zero: then equal trails have equal bytes.
        if trail.to_bytes() == bytes { Ok(trail) } else { Err(TrailError::Reserved) }
    }
}

/// The bytes `family` and `format` of the header.
fn family_bytes(family: Family) -> (u8, u8) {
    match family {
        Family::IntelLegacy { format } => (0, format),
        Family::IntelArch => (1, 0),
        Family::AmdV2 => (2, 0),
        Family::AmdSingle => (3, 0),
        Family::Perf => (4, 0),
    }
}

fn family_from(family: u8, format: u8) -> Option<Family> {
    match (family, format) {
        (0, format) => Some(Family::IntelLegacy { format }),
        (1, 0) => Some(Family::IntelArch),
        (2, 0) => Some(Family::AmdV2),
        (3, 0) => Some(Family::AmdSingle),
        (4, 0) => Some(Family::Perf),
        _ => None,
    }
}

fn flags(record: &BranchRecord) -> u16 {
    let pair = |flag: Option<bool>, at: u32| flag.map_or(0, |value| 1 << at | u16::from(value) << (at + 1));
    let cycles = if record.cycles.is_some() { CYCLES_KNOWN } else { 0 };
    let after_gap = if record.after_gap { AFTER_GAP } else { 0 };
    after_gap
        | pair(record.mispredicted, MISPREDICTED)
        | pair(record.in_transaction, IN_TRANSACTION)
        | pair(record.aborted, ABORTED)
        | pair(record.speculative, SPECULATIVE)
        | cycles
}

/// Where the kind is in a record.
const KIND: usize = 20;

/// `None` when the kind is not one.
fn record_from(bytes: &[u8]) -> Option<BranchRecord> {
    let flags = u16::from_le_bytes([bytes[16], bytes[17]]);
    let pair = |at: u32| (flags >> at & 1 != 0).then_some(flags >> (at + 1) & 1 != 0);
    let kind = match bytes[KIND] {
        0 => None,
        n => Some(*Kind::ALL.get(usize::from(n) - 1)?),
    };
    Some(BranchRecord {
        from: u64_at(bytes, 0),
        to: u64_at(bytes, 8),
        after_gap: flags & AFTER_GAP != 0,
        mispredicted: pair(MISPREDICTED),
        in_transaction: pair(IN_TRANSACTION),
        aborted: pair(ABORTED),
        cycles: (flags & CYCLES_KNOWN != 0).then_some(u16::from_le_bytes([bytes[18], bytes[19]])),
        kind,
        speculative: pair(SPECULATIVE),
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail() -> Trail {
        let plain = BranchRecord::new(0x40_1000, 0x40_2000);
        let full = BranchRecord {
            from: u64::MAX,
            after_gap: true,
            mispredicted: Some(true),
            in_transaction: Some(false),
            aborted: Some(true),
            cycles: Some(0xffff),
            kind: Some(Kind::Interrupt),
            speculative: Some(false),
            ..plain
        };
        let silent = BranchRecord { mispredicted: Some(false), cycles: Some(0), ..plain };
        Trail {
            records: vec![plain, full, silent],
            depth: 16,
            filter: Some(Filter::NO_JCC),
            provenance: Provenance::Derived,
            family: Family::IntelLegacy { format: 5 },
        }
    }

    #[test]
    fn a_trail_survives_its_bytes() {
        let bytes = trail().to_bytes();
        assert_eq!(bytes.len(), 32 + 3 * 24);
        assert_eq!(Trail::from_bytes(&bytes), Ok(trail()));
        let others = [Family::IntelArch, Family::AmdV2, Family::AmdSingle, Family::Perf];
        for family in others {
            let unfiltered = Trail { family, filter: None, ..trail() };
            assert_eq!(Trail::from_bytes(&unfiltered.to_bytes()), Ok(unfiltered));
        }
    }

    #[test]
    fn a_value_that_nothing_has_is_named_with_its_place() {
        let with = |at: usize, value: u8| {
            let mut bytes = trail().to_bytes();
            bytes[at] = value;
            Trail::from_bytes(&bytes).unwrap_err().to_string()
        };
        assert_eq!(with(11, 5), "branch trail: family at offset 0xb cannot be 0x505");
        assert_eq!(with(32 + 20, 12), "branch trail: kind at offset 0x34 cannot be 0xc");
        assert_eq!(with(8, 1), "branch trail version 1; this gretel reads version 2");
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_an_error_or_another_trail() {
        let bytes = trail().to_bytes();
        for len in 0..bytes.len() {
            assert!(Trail::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Trail::from_bytes(&flipped), Ok(trail()), "bit {bit}");
        }
    }
}
