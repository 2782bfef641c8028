//! What is known of the last branches before a moment, and its form as bytes.

use crate::filter::Filter;
use std::fmt;

/// A taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct BranchRecord {
    /// The address of the branch instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// Branches that the filter lets through may be missing between the record before and this one. Of the oldest
    /// record it says nothing: before that one, everything is missing.
    pub after_gap: bool,
    /// Its direction or target was mispredicted.
    pub mispredicted: Option<bool>,
    /// It happened inside a transaction.
    pub in_transaction: Option<bool>,
    /// It is a transaction's abort.
    pub aborted: Option<bool>,
    /// Core clocks since the record before, saturating.
    pub cycles: Option<u16>,
}

impl BranchRecord {
    /// A branch of which nothing else is known.
    #[must_use]
    pub fn new(from: u64, to: u64) -> BranchRecord {
        BranchRecord { from, to, ..BranchRecord::default() }
    }
}

/// Where a trail comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// The processor's own records, read from the virtual CPU.
    Hardware,
    /// The kernel's perf events on the host.
    Perf,
    /// The crash was executed again on the software CPU, with the model of the hardware switched on: this is what the
    /// hardware would have said.
    Derived,
}

impl Provenance {
    /// Its name, as shown and as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Provenance::Hardware => "hardware",
            Provenance::Perf => "perf",
            Provenance::Derived => "derived",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which processors' records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Intel's model-specific records, with their format (bits 5:0 of IA32_PERF_CAPABILITIES).
    IntelLegacy {
        /// The format.
        format: u8,
    },
}

/// What is known of the last branches before a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// The records, newest last.
    pub records: Vec<BranchRecord>,
    /// How many records there can be; if there are fewer, nothing was overwritten since recording began.
    pub depth: u32,
    /// Which branches were recorded.
    pub filter: Filter,
    /// Where they come from.
    pub provenance: Provenance,
    /// Which processors' records they are.
    pub family: Family,
}

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
const VERSION: u16 = 1;
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

impl Trail {
    /// The trail as hardware with only `depth` records would have it.
    #[must_use]
    pub fn newest(mut self, depth: u32) -> Trail {
        let keep = usize::try_from(depth).unwrap_or(usize::MAX);
        let surplus = self.records.len().saturating_sub(keep);
        self.records.drain(..surplus);
        self.depth = self.depth.min(depth);
        self
    }

    /// The bytes of a trail, little-endian. Header, 32 bytes: `gtrtrail`; u16 version (1); u8 provenance (0
    /// hardware, 1 perf, 2 derived); u8 family (0 Intel model-specific); u8 format; three zero bytes; u64
    /// LBR_SELECT; u32 depth; u32 number of records. Then, oldest first, 24 bytes each: u64 from; u64 to; u16
    /// flags; u16 cycles; four zero bytes. Flags: bit 0 after a gap; bits 1-2 mispredicted, 3-4 in a transaction, 5-6
    /// aborted (low bit: known, high bit: value); bit 7 cycles known.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Family::IntelLegacy { format } = self.family;
        let provenance = match self.provenance {
            Provenance::Hardware => 0,
            Provenance::Perf => 1,
            Provenance::Derived => 2,
        };
        let count = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + RECORD * self.records.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[provenance, 0, format, 0, 0, 0]);
        bytes.extend_from_slice(&self.filter.bits().to_le_bytes());
        bytes.extend_from_slice(&self.depth.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        for record in self.records.iter().take(count as usize) {
            bytes.extend_from_slice(&record.from.to_le_bytes());
            bytes.extend_from_slice(&record.to.to_le_bytes());
            bytes.extend_from_slice(&flags(record).to_le_bytes());
            bytes.extend_from_slice(&record.cycles.unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
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
        let provenance = match header[10] {
            0 => Provenance::Hardware,
            1 => Provenance::Perf,
            2 => Provenance::Derived,
            other => return Err(wrong("provenance", 10, other.into())),
        };
        if header[11] != 0 {
            return Err(wrong("family", 11, header[11].into()));
        }
        let select = u64_at(header, 16);
        let filter = Filter::from_bits(select).map_err(|_| wrong("filter", 16, select))?;
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
        let records = bytes[HEADER..].chunks_exact(RECORD).map(record_from).collect();
        let family = Family::IntelLegacy { format: header[12] };
        let trail = Trail { records, depth, filter, provenance, family };
        // What is not used must be zero: then equal trails have equal bytes.
        if trail.to_bytes() == bytes { Ok(trail) } else { Err(TrailError::Reserved) }
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
        | cycles
}

fn record_from(bytes: &[u8]) -> BranchRecord {
    let flags = u16::from_le_bytes([bytes[16], bytes[17]]);
    let pair = |at: u32| (flags >> at & 1 != 0).then_some(flags >> (at + 1) & 1 != 0);
    BranchRecord {
        from: u64_at(bytes, 0),
        to: u64_at(bytes, 8),
        after_gap: flags & AFTER_GAP != 0,
        mispredicted: pair(MISPREDICTED),
        in_transaction: pair(IN_TRANSACTION),
        aborted: pair(ABORTED),
        cycles: (flags & CYCLES_KNOWN != 0).then_some(u16::from_le_bytes([bytes[18], bytes[19]])),
    }
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
            ..plain
        };
        let silent = BranchRecord { mispredicted: Some(false), cycles: Some(0), ..plain };
        Trail {
            records: vec![plain, full, silent],
            depth: 16,
            filter: Filter::NO_JCC,
            provenance: Provenance::Derived,
            family: Family::IntelLegacy { format: 5 },
        }
    }

    #[test]
    fn a_trail_survives_its_bytes() {
        let bytes = trail().to_bytes();
        assert_eq!(bytes.len(), 32 + 3 * 24);
        assert_eq!(Trail::from_bytes(&bytes), Ok(trail()));
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

    #[test]
    fn a_shallower_trail_keeps_the_newest() {
        let short = trail().newest(2);
        assert_eq!((short.records.as_slice(), short.depth), (&trail().records[1..], 2));
        assert_eq!(trail().newest(64), trail());
    }
}
