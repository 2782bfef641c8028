//! The call graph, seen from the callee.

use super::{Cfg, EdgeKind};
use lbr::context::CallGraph;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The callers of each function that was asked for, found once.
pub struct Callers<'c> {
    cfg: &'c Cfg<'c>,
    /// By the function's first address.
    known: HashMap<u64, Vec<u64>>,
}

impl<'c> Callers<'c> {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(cfg: &'c Cfg<'c>) -> Callers<'c> {
        Callers { cfg, known: HashMap::new() }
    }
}

impl CallGraph for Callers<'_> {
    fn callers(&mut self, at: u64) -> &[u64] {
        let start = self.cfg.program.function_at(at).map_or(at, |function| function.start);
        self.known.entry(start).or_insert_with(|| self.cfg.callers(start))
    }
}

impl Cfg<'_> {
    /// The return addresses of the calls that can have led into the function around `va`: direct calls, calls through
    /// pointers if its address is taken, and those of functions that jump into it (tail calls). In order of address.
    #[must_use]
    pub fn callers(&self, va: u64) -> Vec<u64> {
        let mut found = BTreeSet::new();
        let mut seen = HashSet::new();
        let mut work: Vec<u64> =
            self.program.function_at(va).map(|function| function.start).into_iter().collect();
        while let Some(start) = work.pop() {
            if seen.insert(start) {
                self.add_callers(start, &mut found, &mut work);
            }
        }
        found.into_iter().collect()
    }

    /// Adds the calls of the function at `start`, and to `work` the functions that jump into it.
    fn add_callers(&self, start: u64, found: &mut BTreeSet<u64>, work: &mut Vec<u64>) {
        let code = &self.program.code;
        let Some(function) = self.program.function_at(start) else { return };
        let outside = |va: u64| {
            let from = self.program.function_at(va).map(|from| from.start);
            from.filter(|from| *from != function.start)
        };
        let behind = |va: u64| code.at(va).map(|number| code.get(number).next_ip());
        for instruction in code.between(function.start, function.end) {
            for edge in self.tabulated(instruction.ip()) {
                match edge.kind {
                    EdgeKind::Call | EdgeKind::IndirectCall => found.extend(behind(edge.from)),
                    EdgeKind::Branch | EdgeKind::IndirectJump | EdgeKind::Fallthrough => {
                        work.extend(outside(edge.from));
                    }
                    EdgeKind::Return | EdgeKind::AfterSyscall | EdgeKind::RepIteration => {}
                }
            }
        }
        if self.address_taken.range(function.start..function.end).next().is_some() {
            found.extend(self.pointer_calls.iter().filter_map(|call| behind(*call)));
            work.extend(self.pointer_jumps.iter().filter_map(|jump| outside(*jump)));
        }
    }
}
