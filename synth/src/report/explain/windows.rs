//! How far each kind of branch record reaches: so many instructions before the crash are the oldest of the newest 16 or 32
//! branches that its filter lets through, and all that follows it.

use crate::program::Program;
use lbr::Filter;
use lbr::code::kind;
use serde::Serialize;
use x86::op::BranchKind;

/// What hardware keeps.
const DEPTHS: [usize; 2] = [16, 32];
/// What it can let through, of what is of use.
const FILTERS: [Filter; 5] =
    [Filter::ANY, Filter::NO_JCC, Filter::CALLS, Filter::RETURNS_AND_INDIRECT, Filter::INDIRECT];

/// What records of one kind cover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// How many records.
    pub records: usize,
    /// Of which branches.
    pub filter: String,
    /// So many instructions before the crash.
    pub instructions: usize,
    /// The path has fewer branches of that kind than records: it is computed from how many it has.
    pub estimated: bool,
    /// These are the records that were used.
    pub used: bool,
}

/// The windows of all kinds along a path, oldest instruction first, that ends at `end`. Nothing is said of a kind of which
/// the path has no branch.
pub(super) fn windows(
    program: &Program,
    path: &[u64],
    end: u64,
    used: Option<(usize, Filter)>,
) -> Vec<Window> {
    let mut branches: Vec<(usize, BranchKind)> = Vec::new();
    let nexts = path.iter().skip(1).copied().chain([end]);
    for (before, (address, next)) in (1..=path.len()).rev().zip(path.iter().zip(nexts)) {
        let Some(instruction) = program.instruction_at(*address) else { continue };
        // The way into the kernel is no record of the program's.
        let kind = kind(&instruction).map(lbr::Kind::branch_kind).filter(|kind| *kind != BranchKind::Far);
        if let Some(kind) =
            kind.filter(|kind| *kind != BranchKind::Conditional || next != instruction.next_ip())
        {
            branches.push((before, kind));
        }
    }
    branches.reverse();
    let mut found = Vec::new();
    for filter in FILTERS {
        let kept: Vec<usize> = branches
            .iter()
            .filter(|(_, kind)| filter.records(*kind, false))
            .map(|(before, _)| *before)
            .collect();
        for records in DEPTHS {
            let Some(oldest) = kept.get(..records).unwrap_or(&kept).last() else { continue };
            let estimated = kept.len() < records;
            let instructions = if estimated { path.len() * records / kept.len() } else { *oldest };
            let used = used == Some((records, filter));
            found.push(Window { records, filter: filter.to_string(), instructions, estimated, used });
        }
    }
    found
}
