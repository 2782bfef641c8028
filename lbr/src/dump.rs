//! From a dump of registers to a trail, and back: the one entry for all families.
//!
//! ```
//! use lbr::{Dump, Family, Registers};
//! let registers: Registers = [(0x1c9, 0), (0x680, 0x40_1000), (0x6c0, 0x40_2000)].into_iter().collect();
//! let trail = Dump { depth: Some(1), ..Dump::of(Family::IntelLegacy { format: 1 }) }.decode(&registers)?;
//! assert_eq!((trail.records[0].from, trail.records[0].to), (0x40_1000, 0x40_2000));
//! # Ok::<(), lbr::dump::DumpError>(())
//! ```

use crate::filter::{Filter, FilterError};
use crate::format::{Unencodable, amd_single, amd_v2, intel_arch, intel_legacy};
use crate::msr;
use crate::registers::Registers;
use crate::trail::{BranchRecord, Family, Provenance, Trail};

/// What is known of a dump of registers besides the registers. What is `None` is taken from the registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// Which processors' registers they are.
    pub family: Option<Family>,
    /// The number of records.
    pub depth: Option<u32>,
    /// The index of the newest record (Intel's model-specific records).
    pub top: Option<u32>,
    /// Which branches were recorded.
    pub filter: Option<Filter>,
    /// Whether the processor has transactions, with HLE or RTM in its CPUID; if not told, it has. Without them,
    /// bits 62 and 61 of a FROM register of format 4 say nothing.
    pub tsx: Option<bool>,
    /// The width of a virtual address, 48 or 57; if not told, 48. AMD's stack leaves it to the reader to extend the
    /// sign of an address.
    pub address_bits: Option<u32>,
}

/// Why registers are not a trail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// There are no branch records among the registers.
    #[error(
        "no branch records: the dump has none of MSR 0x40, 0x680 (Intel), 0x1500 (Intel, architectural), \
         0xc0010300 (AMD), 0x1db (AMD, single record)"
    )]
    NoRecords,
    /// There are records of two families.
    #[error("the dump has Intel's model-specific and architectural records: say which by its family")]
    TwoFamilies,
    /// The family does not have such registers.
    #[error("records of family {0} are not in registers")]
    NotInRegisters(Family),
    /// Nothing says how Intel's model-specific records are laid out.
    #[error(
        "the dump has no IA32_PERF_CAPABILITIES (MSR 0x345): give the record format, as in intel-legacy:5"
    )]
    NoFormat,
    /// A format that is not one of the known ones.
    #[error("record format {0:#x} (IA32_PERF_CAPABILITIES bits 5:0) is not known; 0 to 7 are")]
    UnknownFormat(u8),
    /// A register is missing.
    #[error("the dump lacks {}{}", named(*register), of_depth(*depth))]
    Missing {
        /// Which.
        register: u32,
        /// The number of records that ask for it.
        depth: Option<u32>,
    },
    /// No such processor has this many records.
    #[error("{depth} records: this family has {allowed}; give the right depth, or a whole dump")]
    Depth {
        /// How many were asked for or found.
        depth: u32,
        /// How many there can be.
        allowed: &'static str,
    },
    /// The newest record is not one of the records.
    #[error(
        "the newest of {depth} records cannot be number {top}: give the depth or the top, or a whole dump"
    )]
    Top {
        /// What was said or found.
        top: u64,
        /// How many records there are.
        depth: u32,
    },
    /// A filter register has a value that it cannot have.
    #[error("{} is {value:#x}: {error}; give the filter to do without it", named(*register))]
    Filter {
        /// The register.
        register: u32,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        error: FilterError,
    },
    /// No processor has addresses of this width.
    #[error("virtual addresses have 48 or 57 bits, not {0}")]
    AddressBits(u32),
}

fn named(register: u32) -> String {
    let name = msr::name(register).map(|name| format!(" ({name})")).unwrap_or_default();
    format!("MSR {register:#x}{name}")
}

fn of_depth(depth: Option<u32>) -> String {
    depth
        .map(|depth| format!(", which {depth} records need; give the depth if there are fewer"))
        .unwrap_or_default()
}

impl Dump {
    /// A dump of this family's registers.
    #[must_use]
    pub fn of(family: Family) -> Dump {
        Dump { family: Some(family), ..Dump::default() }
    }

    /// Sets what `key` names, as a text says it; false: there is no such key.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let number = || value.parse::<u32>().map_err(|_| format!("{value} is not a decimal number"));
        match key {
            "family" => self.family = Some(value.parse().map_err(|error| format!("{error}"))?),
            "depth" => self.depth = Some(number()?),
            "top" => self.top = Some(number()?),
            "filter" => self.filter = Some(value.parse().map_err(|error| format!("{error}"))?),
            "address-bits" => self.address_bits = Some(number()?),
            "tsx" => match value {
                "yes" => self.tsx = Some(true),
                "no" => self.tsx = Some(false),
                _ => return Err("tsx is yes or no".to_owned()),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What `self` says, and `other` where `self` says nothing.
    #[must_use]
    pub fn or(self, other: Dump) -> Dump {
        Dump {
            family: self.family.or(other.family),
            depth: self.depth.or(other.depth),
            top: self.top.or(other.top),
            filter: self.filter.or(other.filter),
            tsx: self.tsx.or(other.tsx),
            address_bits: self.address_bits.or(other.address_bits),
        }
    }

    /// The branches that the registers hold. Their provenance is `hardware`.
    ///
    /// # Errors
    /// When registers are missing or say what cannot be, with the register and what to give instead.
    pub fn decode(&self, registers: &Registers) -> Result<Trail, DumpError> {
        let family = self.family.map_or_else(|| family_of(registers), Ok)?;
        let (records, depth) = match family {
            Family::IntelLegacy { format } => intel_legacy::decode(self, format, registers)?,
            Family::IntelArch => intel_arch::decode(self, registers)?,
            Family::AmdV2 => amd_v2::decode(self, registers)?,
            Family::AmdSingle => amd_single::decode(registers)?,
            Family::Perf => return Err(DumpError::NotInRegisters(family)),
        };
        let filter = match self.filter {
            None => filter_of(family, registers)?,
            given => given,
        };
        Ok(Trail { records, depth, filter, provenance: Provenance::Hardware, family })
    }

    /// The registers of a processor that has recorded the trail's branches: the inverse of [`Dump::decode`] for
    /// what the family can hold. What it cannot hold (cycles, where it has no clock; gaps; kinds) is left out; the
    /// index of the newest record is the lowest that it can be.
    ///
    /// # Errors
    /// When there are more records than the depth, or one of them has an address that the registers cannot hold.
    pub fn encode(&self, trail: &Trail) -> Result<Registers, Unencodable> {
        let mut registers = match trail.family {
            Family::IntelLegacy { format } => intel_legacy::encode(format, trail)?,
            Family::IntelArch => intel_arch::encode(trail)?,
            Family::AmdV2 => amd_v2::encode(self.address_bits(), trail)?,
            Family::AmdSingle => amd_single::encode(trail)?,
            Family::Perf => return Err(Unencodable::NotInRegisters),
        };
        let select = match trail.family {
            Family::IntelLegacy { .. } => msr::SELECT,
            Family::AmdV2 => msr::AMD_SELECT,
            _ => return Ok(registers),
        };
        if let Some(filter) = trail.filter {
            registers.set(select, filter.bits());
        }
        Ok(registers)
    }

    /// Whether the processor has transactions.
    pub(crate) fn tsx(&self) -> bool {
        self.tsx.unwrap_or(true)
    }

    /// The width of a virtual address.
    pub(crate) fn address_bits(&self) -> u32 {
        self.address_bits.unwrap_or(48)
    }
}

/// The family whose registers are there.
fn family_of(registers: &Registers) -> Result<Family, DumpError> {
    let has = |index: u32| registers.get(index).is_some();
    let legacy = has(msr::FROM) || has(msr::OLD_FROM);
    if has(msr::ARCH_FROM) {
        return if legacy { Err(DumpError::TwoFamilies) } else { Ok(Family::IntelArch) };
    }
    if has(msr::AMD_FROM) {
        return Ok(Family::AmdV2);
    }
    if legacy {
        return intel_legacy::format_of(registers).map(|format| Family::IntelLegacy { format });
    }
    if has(msr::LAST_BRANCH_FROM) { Ok(Family::AmdSingle) } else { Err(DumpError::NoRecords) }
}

/// What the filter register says, where there is one in the dump.
fn filter_of(family: Family, registers: &Registers) -> Result<Option<Filter>, DumpError> {
    let register = match family {
        Family::IntelLegacy { .. } => msr::SELECT,
        Family::IntelArch => msr::ARCH_CTL,
        Family::AmdV2 => msr::AMD_SELECT,
        // It takes every branch.
        Family::AmdSingle => return Ok(Some(Filter::EVERYTHING)),
        Family::Perf => return Ok(None),
    };
    let Some(value) = registers.get(register) else { return Ok(None) };
    let filter = match family {
        Family::IntelArch => Filter::from_lbr_ctl(value),
        Family::AmdV2 => Filter::from_amd_select(value),
        _ => Filter::from_bits(value),
    };
    filter.map(Some).map_err(|error| DumpError::Filter { register, value, error })
}

/// The value of a register that `depth` records need.
pub(crate) fn need(registers: &Registers, register: u32, depth: u32) -> Result<u64, DumpError> {
    registers.get(register).ok_or(DumpError::Missing { register, depth: Some(depth) })
}

/// Takes out what was never written, and marks what then stands behind a hole: someone emptied registers between two
/// branches. Oldest first.
pub(crate) fn without_holes(records: impl Iterator<Item = Option<BranchRecord>>) -> Vec<BranchRecord> {
    let (mut found, mut hole) = (Vec::new(), false);
    for record in records {
        match record {
            Some(record) => {
                let after_gap = record.after_gap || (hole && !found.is_empty());
                found.push(BranchRecord { after_gap, ..record });
                hole = false;
            }
            None => hole = true,
        }
    }
    found
}
