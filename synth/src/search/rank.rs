//! How likely each kind of edge is at a place where several ways meet and nothing else tells them apart.
//!
//! Compilers lay code out alike: a case of a `switch` is entered through its table, not from the case above it; the body of
//! an `if` is skipped more often than it is run through; cold code stands far behind and jumps back. The order is that of
//! counts at 5,882 joins on the paths of 27 programs of Debian (decision 70).

use super::Search;
use crate::program::cfg::{Edge, EdgeKind};
use iced_x86::{FlowControl, Mnemonic};
use std::ops::Range;

/// How likely an edge is among others: smaller is tried earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It is the next record.
    Recorded,
    /// The calling context of a crumb says which function had run.
    OnStack,
    /// What the path itself speaks for: the function that a pointer led to.
    Told,
    /// A jump through a table whose targets are known.
    Table,
    /// A jump forwards within the function: what it skips is seldom executed.
    Forward,
    /// The instruction before.
    Straight,
    /// A call, and a jump to the start of another function in place of one.
    Call,
    /// A short jump forwards over an instruction that is no branch, and a return.
    Branch,
    /// The instruction before, which does nothing: a compiler aligns what is mostly jumped to.
    Padding,
    /// A jump backwards.
    Backward,
    /// A jump out of another function, or a call through a pointer to no code.
    Elsewhere,
    /// Another iteration of a repeated string instruction, or none at all.
    Repeated,
    /// What follows a comparison with a float that is no number: the parity flag says so.
    Unordered,
    /// A jump through a pointer that may lead anywhere: one of all that there are in the program.
    Wild,
}

/// A branch over at most so many bytes is short.
const SHORT: u64 = 96;

impl Search<'_> {
    /// What all `edges` that lead to an instruction are ranked by.
    pub(super) fn destination(&self, address: u64, edges: &[Edge]) -> Destination {
        let mut straight = edges.iter().filter(|e| e.kind == EdgeKind::Fallthrough);
        Destination {
            address,
            function: self.program.function_at(address).map(|function| function.start..function.end),
            is_beside_branch: straight.any(|edge| self.is_conditional(edge.from)),
        }
    }

    /// How likely an edge is that ends there.
    pub(super) fn rank(&self, edge: &Edge, to: &Destination) -> Rank {
        if self.is_unordered(edge) {
            return Rank::Unordered;
        }
        match edge.kind {
            EdgeKind::Fallthrough if self.is_padding(edge.from) => Rank::Padding,
            EdgeKind::Fallthrough | EdgeKind::AfterSyscall => Rank::Straight,
            EdgeKind::RepIteration => Rank::Repeated,
            EdgeKind::Call | EdgeKind::IndirectCall => Rank::Call,
            EdgeKind::Return => Rank::Branch,
            EdgeKind::IndirectJump if self.cfg.indirect_targets(edge.from).is_some() => Rank::Table,
            EdgeKind::IndirectJump => Rank::Wild,
            EdgeKind::Branch => self.rank_of_branch(edge.from, to),
        }
    }

    fn rank_of_branch(&self, from: u64, to: &Destination) -> Rank {
        let jump = Jump {
            from,
            to: to.address,
            is_within: match &to.function {
                Some(function) => function.contains(&from),
                None => self.program.function_at(from).is_none(),
            },
            is_to_start: to.function.as_ref().is_some_and(|function| function.start == to.address),
            is_conditional: self.is_conditional(from),
            is_beside_branch: to.is_beside_branch,
        };
        jump.rank()
    }

    /// Whether a conditional branch goes this way when the parity flag is set, which hardly anything but a comparison of floats
    /// is asked for.
    fn is_unordered(&self, edge: &Edge) -> bool {
        let taken = match edge.kind {
            EdgeKind::Branch => Mnemonic::Jp,
            EdgeKind::Fallthrough => Mnemonic::Jnp,
            _ => return false,
        };
        self.program.instruction_at(edge.from).is_some_and(|instruction| instruction.mnemonic() == taken)
    }

    fn is_padding(&self, va: u64) -> bool {
        self.program.instruction_at(va).is_some_and(|instruction| instruction.mnemonic() == Mnemonic::Nop)
    }

    fn is_conditional(&self, va: u64) -> bool {
        let instruction = self.program.instruction_at(va);
        instruction.is_some_and(|i| i.flow_control() == FlowControl::ConditionalBranch)
    }
}

/// An instruction that edges lead to.
pub(super) struct Destination {
    pub(super) address: u64,
    /// The function that it is in.
    pub(super) function: Option<Range<u64>>,
    /// Whether the straight way to it is a conditional branch that is not taken.
    is_beside_branch: bool,
}

/// A direct jump that may have led to `to`.
#[derive(Clone, Copy)]
struct Jump {
    from: u64,
    to: u64,
    /// Both are in one function.
    is_within: bool,
    /// A function begins at `to`.
    is_to_start: bool,
    is_conditional: bool,
    /// The instruction before `to` is a conditional branch.
    is_beside_branch: bool,
}

impl Jump {
    fn rank(self) -> Rank {
        if !self.is_within {
            return if self.is_to_start { Rank::Call } else { Rank::Elsewhere };
        }
        if self.from >= self.to {
            return Rank::Backward;
        }
        let is_short = self.to - self.from <= SHORT;
        if self.is_conditional && is_short && !self.is_beside_branch { Rank::Branch } else { Rank::Forward }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Jump = Jump {
        from: 0x1000,
        to: 0x1020,
        is_within: true,
        is_to_start: false,
        is_conditional: true,
        is_beside_branch: false,
    };

    #[test]
    fn what_is_skipped_is_seldom_run_unless_it_is_short() {
        assert!(NEAR.rank() > Rank::Straight);
        assert!(Jump { to: 0x1000 + SHORT + 1, ..NEAR }.rank() < Rank::Straight);
        assert!(Jump { is_conditional: false, ..NEAR }.rank() < Rank::Straight, "over an else");
        assert!(
            Jump { is_beside_branch: true, ..NEAR }.rank() < Rank::Straight,
            "the first of two conditions"
        );
    }

    #[test]
    fn cold_code_that_jumps_back_comes_late() {
        let back = Jump { from: 0x2000, ..NEAR };
        assert!(back.rank() > Rank::Straight && back.rank() > NEAR.rank());
        let elsewhere = Jump { is_within: false, ..NEAR };
        assert!(elsewhere.rank() > back.rank());
        assert!(Jump { is_to_start: true, ..elsewhere }.rank() < back.rank(), "in place of a call");
    }
}
