//! What a processor is asked to come back for while a recording is looked at: instructions, and accesses to data.

use super::Virt;
use std::ops::Range;

/// What to come back for, whatever bound a run has ([`super::Exit::Seen`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookout {
    /// Before each instruction at one of these addresses, in order. Where a run begins does not count.
    pub at: Vec<Virt>,
    /// Behind each instruction that accesses one of these.
    pub data: Vec<Watch>,
}

/// Bytes that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Their addresses.
    pub range: Range<Virt>,
    /// Which accesses.
    pub access: Access,
}

/// Accesses to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Stores, whether they change anything or not.
    Write,
    /// Loads.
    Read,
    /// Both.
    Any,
}

impl Access {
    /// Whether a store (or, if not `writes`, a load) is one of these.
    #[must_use]
    pub fn includes(self, writes: bool) -> bool {
        match self {
            Access::Write => writes,
            Access::Read => !writes,
            Access::Any => true,
        }
    }
}

/// An access that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// The instruction.
    pub rip: Virt,
    /// The first byte of it that is watched.
    pub address: Virt,
    /// How many bytes it accesses from there on.
    pub len: u64,
    /// It stores; else it loads.
    pub writes: bool,
}

impl Accessed {
    /// What it accesses, from the first byte that is watched on.
    #[must_use]
    pub fn range(&self) -> Range<Virt> {
        self.address..self.address.saturating_add(self.len)
    }
}

impl Lookout {
    /// Whether there is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty() && self.data.is_empty()
    }

    /// The first byte that is watched for such an access of an instruction that accesses `range`.
    #[must_use]
    pub fn watched(&self, range: &Range<Virt>, writes: bool) -> Option<Virt> {
        let watches = self.data.iter().filter(|watch| watch.access.includes(writes));
        watches.filter_map(|watch| first_common(&watch.range, range)).min()
    }
}

fn first_common(a: &Range<Virt>, b: &Range<Virt>) -> Option<Virt> {
    let first = a.start.max(b.start);
    (first < a.end.min(b.end)).then_some(first)
}
