//! Which branches are recorded. The choice decides the reach: thirty-two unfiltered records cover some 300
//! instructions, returns and indirect branches alone some thousands.

use std::fmt;
use std::str::FromStr;
use x86::op::BranchKind;

/// The value of MSR_LBR_SELECT (Intel SDM vol. 3, table "LBR_SELECT"): a set bit keeps its branches out of the
/// record, but for [`CALL_STACK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter(u64);

/// Branches that end in ring 0.
const RING_0: u64 = 1;
/// Branches that end in another ring.
const OTHER_RINGS: u64 = 1 << 1;
const CONDITIONAL: u64 = 1 << 2;
const RELATIVE_CALL: u64 = 1 << 3;
const INDIRECT_CALL: u64 = 1 << 4;
const RETURN: u64 = 1 << 5;
const INDIRECT_JUMP: u64 = 1 << 6;
const RELATIVE_JUMP: u64 = 1 << 7;
const FAR: u64 = 1 << 8;
/// A return removes the record of its call instead of making one.
const CALL_STACK: u64 = 1 << 9;
const DEFINED: u64 = 0x3ff;
/// What call-stack mode demands of the other bits but for the rings: calls and returns are recorded, nothing else is.
const CALL_STACK_KINDS: u64 = CONDITIONAL | INDIRECT_JUMP | RELATIVE_JUMP | FAR | CALL_STACK;

/// The named filters leave out the kernel: what ends in ring 0, and the way back, which is far.
const USER: u64 = RING_0 | FAR;

/// Why a filter is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Not a name and not a number.
    #[error(
        "unknown filter '{0}': give any, no-jcc, calls, ret-ind, indirect, or a value of LBR_SELECT such as 0x101"
    )]
    Unknown(String),
    /// Bits that no processor has.
    #[error("filter {0:#x} has bits that LBR_SELECT does not have (it has {DEFINED:#x})")]
    Undefined(u64),
    /// Call-stack mode with the wrong branches.
    #[error(
        "filter {0:#x} asks for call-stack mode; that needs 0x3c5 or 0x3c4 (calls and returns, nothing else)"
    )]
    CallStack(u64),
}

impl Filter {
    /// Every branch of the program.
    pub const ANY: Filter = Filter(USER);
    /// All but conditional branches.
    pub const NO_JCC: Filter = Filter(USER | CONDITIONAL);
    /// Calls only.
    pub const CALLS: Filter = Filter(USER | CONDITIONAL | RETURN | INDIRECT_JUMP | RELATIVE_JUMP);
    /// Returns, indirect calls and indirect jumps: what the program's text does not tell.
    pub const RETURNS_AND_INDIRECT: Filter = Filter(USER | CONDITIONAL | RELATIVE_CALL | RELATIVE_JUMP);
    /// Indirect calls and indirect jumps.
    pub const INDIRECT: Filter = Filter(USER | CONDITIONAL | RELATIVE_CALL | RELATIVE_JUMP | RETURN);

    const NAMES: [(&'static str, Filter); 5] = [
        ("any", Filter::ANY),
        ("no-jcc", Filter::NO_JCC),
        ("calls", Filter::CALLS),
        ("ret-ind", Filter::RETURNS_AND_INDIRECT),
        ("indirect", Filter::INDIRECT),
    ];

    /// The filter with this value of MSR_LBR_SELECT, if hardware would take it.
    pub fn from_bits(bits: u64) -> Result<Filter, FilterError> {
        if bits & !DEFINED != 0 {
            return Err(FilterError::Undefined(bits));
        }
        let rings = RING_0 | OTHER_RINGS;
        if bits & CALL_STACK != 0 && (bits & !rings != CALL_STACK_KINDS || bits & rings == rings) {
            return Err(FilterError::CallStack(bits));
        }
        Ok(Filter(bits))
    }

    /// The value of MSR_LBR_SELECT.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether a taken branch of this kind is recorded; `ring0`: it ends in ring 0.
    #[must_use]
    pub fn records(self, kind: BranchKind, ring0: bool) -> bool {
        let kind = match kind {
            BranchKind::Conditional => CONDITIONAL,
            BranchKind::RelativeCall => RELATIVE_CALL,
            BranchKind::IndirectCall => INDIRECT_CALL,
            BranchKind::Return => RETURN,
            BranchKind::IndirectJump => INDIRECT_JUMP,
            BranchKind::RelativeJump => RELATIVE_JUMP,
            BranchKind::Far => FAR,
        };
        let ring = if ring0 { RING_0 } else { OTHER_RINGS };
        self.0 & (kind | ring) == 0
    }

    /// Whether a return removes the record of its call.
    #[must_use]
    pub fn is_call_stack(self) -> bool {
        self.0 & CALL_STACK != 0
    }
}

impl Default for Filter {
    fn default() -> Self {
        Filter::ANY
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(_, filter)| filter == self) {
            Some((name, _)) => f.pad(name),
            None => f.pad(&format!("{:#x}", self.0)),
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        if let Some((_, filter)) = Self::NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*filter);
        }
        let bits = text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        Self::from_bits(bits.ok_or_else(|| FilterError::Unknown(text.to_owned()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [BranchKind; 7] = BranchKind::ALL;

    #[test]
    fn the_named_filters_record_what_their_names_say() {
        use BranchKind::*;
        let recorded = |name: &str| -> Vec<BranchKind> {
            let filter: Filter = name.parse().unwrap();
            assert_eq!(filter.to_string(), name);
            KINDS.into_iter().filter(|kind| filter.records(*kind, false)).collect()
        };
        assert_eq!(recorded("any"), KINDS[..6]);
        assert_eq!(recorded("no-jcc"), KINDS[1..6]);
        assert_eq!(recorded("calls"), [RelativeCall, IndirectCall]);
        assert_eq!(recorded("ret-ind"), [IndirectJump, IndirectCall, Return]);
        assert_eq!(recorded("indirect"), [IndirectJump, IndirectCall]);
        assert_eq!(recorded("0x1"), KINDS, "far ones too");
        assert!(!Filter::ANY.records(Far, true) && !"0x1".parse::<Filter>().unwrap().records(Far, true));
        assert!("0x0".parse::<Filter>().unwrap().records(Far, true));
    }

    #[test]
    fn values_that_hardware_refuses_are_refused() {
        assert_eq!("0x400".parse::<Filter>(), Err(FilterError::Undefined(0x400)));
        assert_eq!("0x3c5".parse::<Filter>().map(Filter::bits), Ok(0x3c5));
        assert_eq!("0x3c7".parse::<Filter>(), Err(FilterError::CallStack(0x3c7)), "no ring is left");
        assert_eq!("0x201".parse::<Filter>(), Err(FilterError::CallStack(0x201)), "with jumps");
        assert_eq!("all".parse::<Filter>(), Err(FilterError::Unknown("all".to_owned())));
        assert_eq!("0x".parse::<Filter>(), Err(FilterError::Unknown("0x".to_owned())));
    }
}
