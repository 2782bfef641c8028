//! What each processor keeps of a log of all branches.

use lbr::Filter;
use lbr::model::{Processor, Transfer};
use x86::op::BranchKind;

/// One of the events of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Logged {
    /// A branch instruction.
    Branch(Transfer),
    /// An interrupt or exception that is no debug exception and no machine check.
    Event(Transfer),
}

impl Logged {
    fn transfer(self) -> Transfer {
        let (Logged::Branch(transfer) | Logged::Event(transfer)) = self;
        transfer
    }
}

/// The (from, to) that a dump of the processor's registers must say, oldest first.
pub(crate) fn records(processor: Processor, filter: Filter, log: &[Logged]) -> Vec<(u64, u64)> {
    match processor {
        Processor::Core2 => last(4, log.iter().map(|l| l.transfer()).map(pair)),
        Processor::Nehalem | Processor::Haswell | Processor::HaswellWithoutTsx => legacy(16, filter, log),
        Processor::Skylake | Processor::Goldmont | Processor::GoldmontPlus => legacy(32, filter, log),
        Processor::GoldenCove => architectural(16, filter, log),
        Processor::Zen4 => {
            last(16, log.iter().map(|l| l.transfer()).filter(|t| select(filter.bits(), t)).map(pair))
        }
        Processor::Zen => single(log),
    }
}

fn pair(transfer: Transfer) -> (u64, u64) {
    (transfer.from, transfer.to)
}

fn last(depth: usize, branches: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let all: Vec<(u64, u64)> = branches.collect();
    all[all.len().saturating_sub(depth)..].to_vec()
}

/// MSR_LBR_SELECT, and AMD's register of the same layout: a set bit suppresses.
fn select(bits: u64, transfer: &Transfer) -> bool {
    let kind = match transfer.kind {
        BranchKind::Conditional => 2,
        BranchKind::RelativeCall => 3,
        BranchKind::IndirectCall => 4,
        BranchKind::Return => 5,
        BranchKind::IndirectJump => 6,
        BranchKind::RelativeJump => 7,
        BranchKind::Far => 8,
    };
    let ring = if transfer.to_ring0 { 0 } else { 1 };
    bits & (1 << kind) == 0 && bits & (1 << ring) == 0
}

/// IA32_LBR_CTL: a set bit records.
fn ctl(bits: u64, transfer: &Transfer) -> bool {
    let kind = match transfer.kind {
        BranchKind::Conditional => 16,
        BranchKind::RelativeJump => 17,
        BranchKind::IndirectJump => 18,
        BranchKind::RelativeCall => 19,
        BranchKind::IndirectCall => 20,
        BranchKind::Return => 21,
        BranchKind::Far => 22,
    };
    let ring = if transfer.to_ring0 { 1 } else { 2 };
    bits & (1 << kind) != 0 && bits & (1 << ring) != 0
}

fn legacy(depth: usize, filter: Filter, log: &[Logged]) -> Vec<(u64, u64)> {
    let kept = log.iter().map(|l| l.transfer()).filter(|t| select(filter.bits(), t));
    match filter.bits() >> 9 & 1 {
        0 => last(depth, kept.map(pair)),
        _ => open_calls(depth, kept.map(|t| (t.kind, pair(t)))),
    }
}

fn architectural(depth: usize, filter: Filter, log: &[Logged]) -> Vec<(u64, u64)> {
    let bits = filter.lbr_ctl();
    let kept = log.iter().map(|l| l.transfer()).filter(|t| ctl(bits, t)).map(|t| {
        let ring = if t.from_ring0 { 1 } else { 2 };
        let from = if bits & (1 << ring) == 0 { u64::MAX } else { t.from };
        (t.kind, (from, t.to))
    });
    match bits >> 3 & 1 {
        0 => last(depth, kept.map(|(_, pair)| pair)),
        _ => open_calls(depth, kept),
    }
}

/// The calls that have not returned, as far as there is room.
fn open_calls(depth: usize, kept: impl Iterator<Item = (BranchKind, (u64, u64))>) -> Vec<(u64, u64)> {
    let mut open = Vec::new();
    for (kind, pair) in kept {
        match kind {
            BranchKind::Return => drop(open.pop()),
            _ => open.push(pair),
        }
        if open.len() > depth {
            open.remove(0);
        }
    }
    open
}

/// What was the last branch when the last event came, and the last branch.
fn single(log: &[Logged]) -> Vec<(u64, u64)> {
    let before = log.iter().rposition(|l| matches!(l, Logged::Event(_)));
    let before = before.and_then(|n| log[..n].last());
    before.into_iter().chain(log.last()).map(|l| pair(l.transfer())).collect()
}
