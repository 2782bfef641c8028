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
/// All kinds of branches, in any ring.
const KINDS_BITS: u64 =
    CONDITIONAL | RELATIVE_CALL | INDIRECT_CALL | RETURN | INDIRECT_JUMP | RELATIVE_JUMP | FAR;
/// What call-stack mode demands of the other bits but for the rings: calls and returns are recorded, nothing else is.
const CALL_STACK_KINDS: u64 = CONDITIONAL | INDIRECT_JUMP | RELATIVE_JUMP | FAR | CALL_STACK;

/// For each bit of LBR_SELECT its opposite in IA32_LBR_CTL, where a set bit records (Intel SDM vol. 3,
/// "IA32_LBR_CTL").
const CTL_RECORDS: [(u64, u64); 9] = [
    (RING_0, 1 << 1),
    (OTHER_RINGS, 1 << 2),
    (CONDITIONAL, 1 << 16),
    (RELATIVE_JUMP, 1 << 17),
    (INDIRECT_JUMP, 1 << 18),
    (RELATIVE_CALL, 1 << 19),
    (INDIRECT_CALL, 1 << 20),
    (RETURN, 1 << 21),
    (FAR, 1 << 22),
];
/// Call-stack mode in IA32_LBR_CTL.
const CTL_CALL_STACK: u64 = 1 << 3;
/// The bits of IA32_LBR_CTL, with the one that switches recording on.
const CTL_DEFINED: u64 = 0x7f_000f;

/// Bits of perf's `branch_sample_type` (include/uapi/linux/perf_event.h, `PERF_SAMPLE_BRANCH_*`).
mod perf {
    pub(super) const USER: u64 = 1;
    pub(super) const KERNEL: u64 = 1 << 1;
    pub(super) const ANY: u64 = 1 << 3;
    pub(super) const ANY_CALL: u64 = 1 << 4;
    pub(super) const ANY_RETURN: u64 = 1 << 5;
    pub(super) const IND_CALL: u64 = 1 << 6;
    /// Aborts, in transactions, not in transactions.
    pub(super) const TRANSACTIONS: u64 = 7 << 7;
    pub(super) const COND: u64 = 1 << 10;
    pub(super) const CALL_STACK: u64 = 1 << 11;
    pub(super) const IND_JUMP: u64 = 1 << 12;
    pub(super) const CALL: u64 = 1 << 13;
}

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
    /// The same of IA32_LBR_CTL.
    #[error("IA32_LBR_CTL {0:#x} has bits that it does not have (it has {CTL_DEFINED:#x})")]
    UndefinedCtl(u64),
    /// Call-stack mode with the wrong branches.
    #[error(
        "filter {0:#x} asks for call-stack mode; that needs 0x3c5 or 0x3c4 (calls and returns, nothing else)"
    )]
    CallStack(u64),
}

impl Filter {
    /// Every branch, far ones and those of the kernel too: the state after reset of MSR_LBR_SELECT.
    pub const EVERYTHING: Filter = Filter(0);
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

    /// The filter with this value of AMD's LastBranchStackSelect: the same, without a call-stack mode.
    pub fn from_amd_select(bits: u64) -> Result<Filter, FilterError> {
        if bits & CALL_STACK != 0 { Err(FilterError::Undefined(bits)) } else { Filter::from_bits(bits) }
    }

    /// The value of MSR_LBR_SELECT.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The filter with this value of IA32_LBR_CTL; whether it switches recording on is not looked at.
    pub fn from_lbr_ctl(ctl: u64) -> Result<Filter, FilterError> {
        if ctl & !CTL_DEFINED != 0 {
            return Err(FilterError::UndefinedCtl(ctl));
        }
        let call_stack = if ctl & CTL_CALL_STACK != 0 { CALL_STACK } else { 0 };
        let hidden = CTL_RECORDS.iter().filter(|(_, records)| ctl & records == 0);
        Filter::from_bits(hidden.fold(call_stack, |bits, (select, _)| bits | select))
    }

    /// The value of IA32_LBR_CTL, with recording switched off.
    #[must_use]
    pub fn lbr_ctl(self) -> u64 {
        let call_stack = if self.is_call_stack() { CTL_CALL_STACK } else { 0 };
        let recorded = CTL_RECORDS.iter().filter(|(select, _)| self.0 & select == 0);
        recorded.fold(call_stack, |ctl, (_, records)| ctl | records)
    }

    /// What perf's `branch_sample_type` asks for (perf_event_open(2)), if a filter can say it: "any call" and "any
    /// return" take some far transfers and leave others, and transactions are not a filter's business.
    #[must_use]
    pub fn from_branch_sample_type(bits: u64) -> Option<Filter> {
        // The kinds that it names one by one. "Any" takes in any call and any return.
        const KINDS: [(u64, u64); 4] = [
            (perf::IND_CALL, INDIRECT_CALL),
            (perf::COND, CONDITIONAL),
            (perf::IND_JUMP, INDIRECT_JUMP),
            (perf::CALL, RELATIVE_CALL),
        ];
        let asks = |bit: u64| bits & bit != 0;
        let user = if asks(perf::USER) { 0 } else { OTHER_RINGS };
        let kernel = if asks(perf::KERNEL) { 0 } else { RING_0 };
        let in_part = !asks(perf::ANY) && asks(perf::ANY_CALL | perf::ANY_RETURN);
        if in_part || asks(perf::TRANSACTIONS) || !asks(perf::USER | perf::KERNEL) {
            return None;
        }
        let hidden = if asks(perf::CALL_STACK) {
            CALL_STACK_KINDS
        } else if asks(perf::ANY) {
            0
        } else {
            KINDS.iter().filter(|(bit, _)| asks(*bit)).fold(KINDS_BITS, |hidden, (_, kind)| hidden & !kind)
        };
        Filter::from_bits(user | kernel | hidden).ok()
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
        self.0 & kind == 0 && self.records_ring(ring0)
    }

    /// Whether branches that end in this ring are recorded; `ring0`: ring 0.
    #[must_use]
    pub fn records_ring(self, ring0: bool) -> bool {
        self.0 & if ring0 { RING_0 } else { OTHER_RINGS } == 0
    }

    /// The same kinds of branches in these rings, and with them far transfers: where these are not recorded, an interrupt is a gap that
    /// nobody sees.
    #[must_use]
    pub fn in_rings(self, kernel: bool, others: bool) -> Filter {
        let hidden = if kernel { 0 } else { RING_0 } | if others { 0 } else { OTHER_RINGS };
        Filter(self.0 & !(RING_0 | OTHER_RINGS | FAR) | hidden)
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
    fn the_architectural_register_says_the_same_with_the_opposite_polarity() {
        assert_eq!(Filter::EVERYTHING.lbr_ctl(), 0x7f_0006);
        assert_eq!(Filter::ANY.lbr_ctl(), 0x3f_0004, "user, all but other branches");
        assert_eq!(
            Filter::from_lbr_ctl(0x7f_0007),
            Ok(Filter::EVERYTHING),
            "what the manual calls everything"
        );
        assert_eq!(Filter::from_lbr_ctl(1 << 4), Err(FilterError::UndefinedCtl(1 << 4)));
        for bits in (0..0x200).chain([0x3c4, 0x3c5, 0x3c6]) {
            let filter = Filter::from_bits(bits).unwrap();
            assert_eq!(Filter::from_lbr_ctl(filter.lbr_ctl()), Ok(filter), "{bits:#x}");
        }
        // What Linux writes for a call stack of the user's: enable, USR, CALL_STACK, both calls, returns.
        assert_eq!(Filter::from_lbr_ctl(0x38_000d).map(Filter::bits), Ok(0x3c5));
    }

    #[test]
    fn what_perf_is_asked_for_is_a_filter_or_unknown() {
        let of = |bits: u64| Filter::from_branch_sample_type(bits).map(Filter::bits);
        assert_eq!(of(0x9), Some(0x1), "any, user; as Linux sets LBR_SELECT");
        assert_eq!(of(0xb), Some(0x0), "any, user and kernel");
        assert_eq!(of(0xa), Some(0x2), "any, kernel");
        assert_eq!(of(0x401), Some(0x1f9), "cond, user");
        assert_eq!(of(0x1041), Some(0x1ad), "ind_call, ind_jmp, user");
        assert_eq!(of(0x801), Some(0x3c5), "stack, user");
        assert_eq!(of(0x11), None, "any_call takes some of the far ones");
        assert_eq!(of(0x109), None, "in_tx");
        assert_eq!(of(0x8), None, "for perf to derive from other bits of the event");
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
