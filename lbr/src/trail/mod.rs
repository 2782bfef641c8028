//! What is known of the last branches before a moment. [`bytes`] has its form in a core.

pub mod bytes;

pub use bytes::TrailError;

use crate::filter::Filter;
use crate::kind::Kind;
use std::fmt;
use std::str::FromStr;

/// A taken branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct BranchRecord {
    /// The address of the branch instruction; [`BranchRecord::HIDDEN`] where the processor does not tell it.
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
    /// What kind of branch it is.
    pub kind: Option<Kind>,
    /// It was recorded while a speculative feature of the processor was active, which then proved right (AMD). What
    /// proved wrong did not happen, and is not in a trail.
    pub speculative: Option<bool>,
}

impl BranchRecord {
    /// Instead of the address of a branch that began in a ring whose branches are not recorded (Intel's architectural
    /// records).
    pub const HIDDEN: u64 = u64::MAX;

    /// A branch of which nothing else is known.
    #[must_use]
    pub fn new(from: u64, to: u64) -> BranchRecord {
        BranchRecord { from, to, ..BranchRecord::default() }
    }

    /// Whether the processor keeps the branch's own address to itself.
    #[must_use]
    pub fn from_is_hidden(&self) -> bool {
        self.from == BranchRecord::HIDDEN
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
    /// Intel's architectural records: Alder Lake, Sapphire Rapids and later.
    IntelArch,
    /// AMD's stack, "LBR extension version 2": Zen 4 and later.
    AmdV2,
    /// AMD's single record of the last branch and of the one before the last interrupt or exception.
    AmdSingle,
    /// Read by the kernel's perf events, which do not tell from what.
    Perf,
}

/// Its name, as shown, as in JSON and on the command line: `intel-legacy:5`, `intel-arch`, `amd-v2`, `amd-single`,
/// `perf`.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Family::IntelLegacy { format } => f.pad(&format!("intel-legacy:{format}")),
            Family::IntelArch => f.pad("intel-arch"),
            Family::AmdV2 => f.pad("amd-v2"),
            Family::AmdSingle => f.pad("amd-single"),
            Family::Perf => f.pad("perf"),
        }
    }
}

/// A name that is not one of a family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown family '{0}': give intel-legacy:N (N is the record format, bits 5:0 of IA32_PERF_CAPABILITIES), \
     intel-arch, amd-v2 or amd-single"
)]
pub struct UnknownFamily(String);

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Family, UnknownFamily> {
        let legacy = text.strip_prefix("intel-legacy:").and_then(|format| format.parse().ok());
        match (text, legacy) {
            (_, Some(format)) => Ok(Family::IntelLegacy { format }),
            ("intel-arch", _) => Ok(Family::IntelArch),
            ("amd-v2", _) => Ok(Family::AmdV2),
            ("amd-single", _) => Ok(Family::AmdSingle),
            ("perf", _) => Ok(Family::Perf),
            _ => Err(UnknownFamily(text.to_owned())),
        }
    }
}

/// What is known of the last branches before a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// The records, newest last.
    pub records: Vec<BranchRecord>,
    /// How many records there can be; if there are fewer, nothing was overwritten since recording began.
    pub depth: u32,
    /// Which branches were recorded, if that is known.
    pub filter: Option<Filter>,
    /// Where they come from.
    pub provenance: Provenance,
    /// Which processors' records they are.
    pub family: Family,
}

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shallower_trail_keeps_the_newest() {
        let trail = Trail {
            records: (1..4).map(|n| BranchRecord::new(n, n + 100)).collect(),
            depth: 16,
            filter: Some(Filter::ANY),
            provenance: Provenance::Derived,
            family: Family::IntelLegacy { format: 5 },
        };
        let short = trail.clone().newest(2);
        assert_eq!((short.records.as_slice(), short.depth), (&trail.records[1..], 2));
        assert_eq!(trail.clone().newest(64), trail);
    }
}
