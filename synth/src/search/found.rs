//! How far to search, and what a search found.

use super::barriers::{Met, Place};
use crate::fuel::End;
use crate::past::deferred::Early;
use crate::past::hypothesis::PathStep;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Where to stop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Instructions of the suffix.
    pub instructions: usize,
    /// Work, in units of [`crate::fuel`].
    pub fuel: u64,
    /// Wall-clock time: what comes out then depends on the machine.
    pub time: Option<Duration>,
}

/// Why the search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The suffix is as long as it was allowed to get.
    Instructions,
    /// The fuel is used up.
    Fuel,
    /// The time is over.
    Time,
    /// It was asked to stop.
    Interrupted,
    /// Every way back was tried: either all of them contradict the core, or they end at barriers.
    Exhausted,
    /// The suffix reached the program's first instruction.
    ProgramStart,
}

impl From<End> for Stop {
    fn from(end: End) -> Stop {
        match end {
            End::Fuel => Stop::Fuel,
            End::Time => Stop::Time,
            End::Interrupted => Stop::Interrupted,
        }
    }
}

impl Stop {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Stop::Instructions => "the search came as far back as --instructions allows",
            Stop::Fuel => "the fuel of --fuel is used up",
            Stop::Time => "the time of --time is over",
            Stop::Interrupted => "the search was interrupted",
            Stop::Exhausted => "every way further back was tried",
            Stop::ProgramStart => "the search came to the program's first instruction",
        }
    }
}

/// What the search did.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Instructions prepended, over all branches of the search.
    pub prepended: u64,
    /// Candidates that propagation alone refuted.
    pub refuted: u64,
    /// Of these, paths whose stack at an exit is not the one of the crumb's context.
    pub refuted_by_contexts: u64,
    /// Places that several ways lead to at which samples of the program's branches spoke for one.
    pub sampled: u64,
    /// Questions to the solver.
    pub solver_calls: u64,
    /// Choices that the solver refuted.
    pub solver_refuted: u64,
    /// Questions that the solver could not answer within its budget.
    pub solver_unknown: u64,
    /// Something was assumed that may have been otherwise: what contradicts it is not refuted.
    pub assumed: bool,
    /// Barriers met: what it would take to go on, and how often.
    pub barriers: FxHashMap<&'static str, u64>,
    /// And where.
    pub places: FxHashMap<Place, Met>,
}

/// The longest path found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its steps, newest first, with the numbers of the system calls among them.
    pub path: Vec<(PathStep, Option<u64>)>,
    /// What older steps tell of the addresses of newer ones, or was assumed of them.
    pub early: Vec<Early>,
    /// How many of the steps the branch records cover.
    pub covered: usize,
    /// The bytes of memory that all ways that were tried touched, in address order.
    pub touched: Vec<u64>,
    /// Why the search stopped.
    pub stop: Stop,
    /// What it did.
    pub statistics: Statistics,
}

/// A search that came no further than this, and met nothing that it does not go past, found a core that cannot be.
const DEAD_END: usize = 32;

impl Found {
    /// How many instructions the path has; a switch of threads is a step of it, and none.
    #[must_use]
    pub fn instructions(&self) -> usize {
        self.path.iter().filter(|(step, _)| step.is_instruction()).count()
    }

    /// Whether all ways back died soon, and by contradictions alone.
    #[must_use]
    pub fn is_dead_end(&self) -> bool {
        let unanswered = self.statistics.solver_unknown > 0 || !self.statistics.barriers.is_empty();
        self.stop == Stop::Exhausted && !unanswered && self.path.len() < DEAD_END
    }
}

impl Statistics {
    /// Whether something was given up that no proof excludes.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.assumed || self.solver_unknown > 0 || !self.barriers.is_empty()
    }
}
