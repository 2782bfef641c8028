//! perf's branch entries and branch stacks, as the kernel writes them.
//!
//! Linux, include/uapi/linux/perf_event.h: `struct perf_branch_entry`, `PERF_BR_*` and the comment at
//! `PERF_RECORD_SAMPLE`. Numbers are little-endian; the newest branch comes first.

use super::bit;
use crate::filter::Filter;
use crate::kind::Kind;
use crate::trail::{BranchRecord, Family, Provenance, Trail};

/// `struct perf_branch_entry`, every bit of it: an entry and its bytes are two forms of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Entry {
    /// Where the branch is.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// It was mispredicted.
    pub mispred: bool,
    /// It was predicted; neither this nor `mispred` where the processor does not tell.
    pub predicted: bool,
    /// In a transaction.
    pub in_tx: bool,
    /// A transaction's abort.
    pub abort: bool,
    /// Core clocks since the record before; 0 where the processor does not tell.
    pub cycles: u16,
    /// `PERF_BR_*`, four bits; 15: see `new_type`.
    pub kind: u8,
    /// `PERF_BR_SPEC_*`, two bits.
    pub spec: u8,
    /// `PERF_BR_NEW_*`, four bits.
    pub new_type: u8,
    /// `PERF_BR_PRIV_*`, three bits.
    pub privilege: u8,
    /// The other 31 bits, which the kernel writes as zero.
    pub reserved: u32,
}

/// The bytes of an entry.
pub const ENTRY: usize = 24;

/// `PERF_BR_EXTEND_ABI`: the kind is in `new_type`.
pub const EXTENDED: u8 = 15;

/// The values of `spec`, `PERF_BR_SPEC_*`.
pub mod spec {
    /// Not told.
    pub const UNKNOWN: u8 = 0;
    /// Speculative, and wrong: it did not happen.
    pub const WRONG_PATH: u8 = 1;
    /// Not speculative.
    pub const NOT_SPECULATIVE: u8 = 2;
    /// Speculative, and right.
    pub const CORRECT_PATH: u8 = 3;
}

/// Kinds and their `PERF_BR_*`, as Linux gives them on x86 (arch/x86/events/utils.c, `branch_map`).
const KINDS: [(u8, Kind); 10] = [
    (1, Kind::Conditional),
    (2, Kind::RelativeJump),
    (3, Kind::IndirectJump),
    (4, Kind::RelativeCall),
    (5, Kind::IndirectCall),
    (6, Kind::Return),
    (7, Kind::Syscall),
    (8, Kind::Sysret),
    (11, Kind::Iret),
    (12, Kind::Interrupt),
];

impl Entry {
    /// The entry that these bytes are.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; ENTRY]) -> Entry {
        let [from, to, flags] = [0, 8, 16].map(|at| word(&bytes[at..at + 8]));
        let field = |at: u32, bits: u32| flags >> at & ((1 << bits) - 1);
        let small = |at: u32, bits: u32| u8::try_from(field(at, bits)).unwrap_or(u8::MAX);
        Entry {
            from,
            to,
            mispred: bit(flags, 0),
            predicted: bit(flags, 1),
            in_tx: bit(flags, 2),
            abort: bit(flags, 3),
            cycles: u16::try_from(field(4, 16)).unwrap_or(u16::MAX),
            kind: small(20, 4),
            spec: small(24, 2),
            new_type: small(26, 4),
            privilege: small(30, 3),
            reserved: u32::try_from(field(33, 31)).unwrap_or(u32::MAX),
        }
    }

    /// Its bytes. Of a field, the bits that it has are taken.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ENTRY] {
        let field = |value: u64, at: u32, bits: u32| (value & ((1 << bits) - 1)) << at;
        let flags = [
            field(self.mispred.into(), 0, 1),
            field(self.predicted.into(), 1, 1),
            field(self.in_tx.into(), 2, 1),
            field(self.abort.into(), 3, 1),
            field(self.cycles.into(), 4, 16),
            field(self.kind.into(), 20, 4),
            field(self.spec.into(), 24, 2),
            field(self.new_type.into(), 26, 4),
            field(self.privilege.into(), 30, 3),
            field(self.reserved.into(), 33, 31),
        ];
        let flags = flags.iter().fold(0, |all, field| all | field);
        let mut bytes = [0; ENTRY];
        for (at, value) in [(0, self.from), (8, self.to), (16, flags)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The branch; `None`: it did not happen (wrong speculation).
    ///
    /// Zero in a field means "no" as well as "not told". Where the processor tells predictions it is taken for "no".
    #[must_use]
    pub fn record(&self) -> Option<BranchRecord> {
        let mispredicted = match (self.mispred, self.predicted) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            // Not told, or told both ways.
            _ => None,
        };
        let told = |flag: bool| if flag { Some(true) } else { mispredicted.map(|_| false) };
        (self.spec != spec::WRONG_PATH).then(|| BranchRecord {
            mispredicted,
            in_transaction: told(self.in_tx),
            aborted: told(self.abort),
            cycles: (self.cycles != 0).then_some(self.cycles),
            kind: KINDS.iter().find(|(number, _)| *number == self.kind).map(|(_, kind)| *kind),
            speculative: match self.spec {
                spec::NOT_SPECULATIVE => Some(false),
                spec::CORRECT_PATH => Some(true),
                _ => None,
            },
            ..BranchRecord::new(self.from, self.to)
        })
    }
}

/// The entry of a branch: what is not known is zero, and a far transfer of no known kind has no type.
impl From<&BranchRecord> for Entry {
    fn from(record: &BranchRecord) -> Entry {
        let number = |kind: Kind| KINDS.iter().find(|(_, k)| *k == kind).map(|(number, _)| *number);
        Entry {
            from: record.from,
            to: record.to,
            mispred: record.mispredicted == Some(true),
            predicted: record.mispredicted == Some(false),
            in_tx: record.in_transaction == Some(true),
            abort: record.aborted == Some(true),
            cycles: record.cycles.unwrap_or(0),
            kind: record.kind.and_then(number).unwrap_or(0),
            spec: match record.speculative {
                None => spec::UNKNOWN,
                Some(false) => spec::NOT_SPECULATIVE,
                Some(true) => spec::CORRECT_PATH,
            },
            ..Entry::default()
        }
    }
}

/// What `branch_sample_type` of the event says of the layout of its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct StackLayout {
    /// `PERF_SAMPLE_BRANCH_HW_INDEX`: an index stands before the entries.
    pub hw_index: bool,
    /// `PERF_SAMPLE_BRANCH_COUNTERS`: a word of counters for each entry stands behind them.
    pub counters: bool,
}

impl StackLayout {
    /// The layout that this `branch_sample_type` asks for.
    #[must_use]
    pub fn of(branch_sample_type: u64) -> StackLayout {
        StackLayout { hw_index: bit(branch_sample_type, 17), counters: bit(branch_sample_type, 19) }
    }
}

/// A branch stack (`PERF_SAMPLE_BRANCH_STACK`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Stack {
    /// The hardware's index of the newest entry: Intel's TOS, 0 on AMD, all ones where the hardware has none.
    pub hw_index: Option<u64>,
    /// The entries, newest first.
    pub entries: Vec<Entry>,
    /// Counters of events for each entry, if there are any.
    pub counters: Option<Vec<u64>>,
}

/// Bytes that are not what perf writes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerfError {
    /// They end too soon.
    #[error("offset {offset:#x}: {what} is cut: {need} bytes, and {left} are left")]
    Cut {
        /// What ends.
        what: &'static str,
        /// Where it begins.
        offset: usize,
        /// Its size.
        need: u64,
        /// What there is of it.
        left: usize,
    },
    /// There is more than there should be.
    #[error("offset {offset:#x}: {what} ends here, and {surplus} bytes follow: {remedy}")]
    Surplus {
        /// What ends.
        what: &'static str,
        /// Where.
        offset: usize,
        /// How much follows.
        surplus: usize,
        /// What may help.
        remedy: &'static str,
    },
    /// Something is there that cannot be.
    #[error("offset {offset:#x}: {what}")]
    Wrong {
        /// What it is.
        what: String,
        /// Where.
        offset: usize,
    },
}

impl Stack {
    /// Reads a stack from the beginning of `bytes`, which begin at `offset` of what they were taken from. Gives the
    /// number of bytes read too.
    ///
    /// # Errors
    /// When the bytes end before the stack.
    pub fn read(bytes: &[u8], layout: StackLayout, offset: usize) -> Result<(Stack, usize), PerfError> {
        let cut = |what: &'static str, at: usize, need: u64| {
            let left = bytes.len().saturating_sub(at);
            PerfError::Cut { what, offset: offset + at, need, left }
        };
        let number =
            |what: &'static str, at: usize| bytes.get(at..at + 8).map(word).ok_or_else(|| cut(what, at, 8));
        let count = number("the number of branches", 0)?;
        // A sample without branches has no index either (kernel/events/core.c, `perf_output_sample`).
        let mut at = 8;
        let mut hw_index = None;
        if layout.hw_index && (count > 0 || bytes.len() >= 16) {
            hw_index = Some(number("the hardware's index", at)?);
            at += 8;
        }
        let size = |of: usize| usize::try_from(count).ok().and_then(|count| count.checked_mul(of));
        let region = |what: &'static str, at: usize, of: usize| {
            let end = size(of).and_then(|size| at.checked_add(size));
            let found = end.and_then(|end| bytes.get(at..end));
            found.ok_or_else(|| cut(what, at, count.saturating_mul(of as u64)))
        };
        let body = region("a branch stack", at, ENTRY)?;
        let entries = body.as_chunks::<ENTRY>().0.iter().map(Entry::from_bytes).collect();
        at += body.len();
        let counters = match layout.counters {
            true => {
                Some(region("the counters of a branch stack", at, 8)?.chunks_exact(8).map(word).collect())
            }
            false => None,
        };
        at += counters.as_ref().map_or(0, |counters: &Vec<u64>| counters.len() * 8);
        Ok((Stack { hw_index, entries, counters }, at))
    }

    /// Reads bytes that are a stack and nothing else, and begin at `offset` of what they were taken from. Its
    /// layout is that which fits its length; where two do (one branch, forty bytes), it is taken for an index and
    /// no counters.
    ///
    /// # Errors
    /// When no layout fits.
    pub fn alone(bytes: &[u8], offset: usize) -> Result<Stack, PerfError> {
        let layouts = [(false, false), (true, false), (false, true), (true, true)];
        let layouts = layouts.map(|(hw_index, counters)| StackLayout { hw_index, counters });
        let fitting = |layout: &StackLayout| match Stack::read(bytes, *layout, offset) {
            Ok((stack, used)) if used == bytes.len() => Some(stack),
            _ => None,
        };
        if let Some(stack) = layouts.iter().find_map(fitting) {
            return Ok(stack);
        }
        let (_, used) = Stack::read(bytes, StackLayout::default(), offset)?;
        let surplus = bytes.len() - used;
        let remedy = "neither an index nor counters have this size";
        Err(PerfError::Surplus { what: "the branch stack", offset: offset + used, surplus, remedy })
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = (self.entries.len() as u64).to_le_bytes().to_vec();
        bytes.extend(self.hw_index.iter().flat_map(|index| index.to_le_bytes()));
        bytes.extend(self.entries.iter().flat_map(Entry::to_bytes));
        bytes.extend(self.counters.iter().flatten().flat_map(|counters| counters.to_le_bytes()));
        bytes
    }

    /// The branches that happened, under the filter that `branch_sample_type` asked for, if it is known.
    ///
    /// How many records the hardware has perf does not tell: the depth is the number of entries. The kernel leaves
    /// out branches whose instruction it could not read, and does not say so.
    #[must_use]
    pub fn trail(&self, filter: Option<Filter>) -> Trail {
        Trail {
            records: self.entries.iter().rev().filter_map(Entry::record).collect(),
            depth: u32::try_from(self.entries.len()).unwrap_or(u32::MAX),
            filter,
            provenance: Provenance::Perf,
            family: Family::Perf,
        }
    }
}

/// The stack of a trail.
impl From<&Trail> for Stack {
    fn from(trail: &Trail) -> Stack {
        let entries = trail.records.iter().rev().map(Entry::from).collect();
        Stack { hw_index: None, entries, counters: None }
    }
}

/// Eight bytes as a number.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by hand from the header's bit fields.
    const MISPREDICTED_CALL: [u8; ENTRY] = [
        0x36, 0x11, 0x40, 0, 0, 0, 0, 0, // from
        0x40, 0x11, 0x40, 0, 0, 0, 0, 0, // to
        0x21, 0x03, 0x40, 0x42, 0, 0, 0, 0, // mispredicted, 50 cycles, call, not speculative, user
    ];

    #[test]
    fn an_entry_has_its_fields_where_the_header_has_them() {
        let entry = Entry::from_bytes(&MISPREDICTED_CALL);
        let expected = Entry {
            from: 0x40_1136,
            to: 0x40_1140,
            mispred: true,
            cycles: 50,
            kind: 4,
            spec: spec::NOT_SPECULATIVE,
            privilege: 1,
            ..Entry::default()
        };
        assert_eq!(entry, expected);
        assert_eq!(entry.to_bytes(), MISPREDICTED_CALL);
        let record = entry.record().unwrap();
        assert_eq!(
            (record.mispredicted, record.cycles, record.kind),
            (Some(true), Some(50), Some(Kind::RelativeCall))
        );
        assert_eq!((record.speculative, record.aborted), (Some(false), Some(false)));
    }

    #[test]
    fn what_a_zero_means_depends() {
        let plain = Entry { from: 1, to: 2, ..Entry::default() };
        assert_eq!(plain.record(), Some(BranchRecord::new(1, 2)), "nothing is told");
        let predicted = Entry { predicted: true, ..plain }.record().unwrap();
        assert_eq!((predicted.mispredicted, predicted.in_transaction), (Some(false), Some(false)));
        assert_eq!(Entry { spec: spec::WRONG_PATH, ..plain }.record(), None);
        assert_eq!(Entry { abort: true, ..plain }.record().unwrap().aborted, Some(true));
        assert_eq!(Entry { predicted: true, mispred: true, ..plain }.record().unwrap().mispredicted, None);
    }

    fn stack(hw_index: Option<u64>, count: u64, counters: bool) -> Stack {
        let entries = (1..=count).map(|n| Entry { from: n, to: n + 100, ..Entry::default() }).collect();
        Stack { hw_index, entries, counters: counters.then(|| (0..count).collect()) }
    }

    #[test]
    fn a_stack_alone_is_known_by_its_length() {
        for original in
            [stack(None, 5, false), stack(Some(7), 5, false), stack(None, 5, true), stack(Some(7), 5, true)]
        {
            assert_eq!(Stack::alone(&original.to_bytes(), 0), Ok(original));
        }
        assert_eq!(Stack::alone(&[0; 8], 0), Ok(Stack::default()));
        let trail = stack(Some(7), 3, false).trail(None);
        assert_eq!(trail.records.iter().map(|r| r.from).collect::<Vec<_>>(), [3, 2, 1]);
    }

    #[test]
    fn a_stack_that_is_not_whole_is_said_to_be_so() {
        let bytes = stack(None, 2, false).to_bytes();
        let why = |bytes: &[u8]| Stack::alone(bytes, 0).unwrap_err().to_string();
        assert_eq!(why(&bytes[..50]), "offset 0x8: a branch stack is cut: 48 bytes, and 42 are left");
        assert_eq!(why(&[1, 2]), "offset 0x0: the number of branches is cut: 8 bytes, and 2 are left");
        assert_eq!(
            why(&[0xff; 40]),
            "offset 0x8: a branch stack is cut: 18446744073709551615 bytes, and 32 are left"
        );
        assert!(
            why(&[&bytes[..], &[0; 3]].concat())
                .starts_with("offset 0x38: the branch stack ends here, and 3")
        );
    }
}
