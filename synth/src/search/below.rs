//! What calls have left below the stack.
//!
//! Where a call through a pointer came back from, nothing may tell but what the callee left: its frame lies below the stack pointer
//! now, and the return addresses of the calls that it made in turn still lie in it or below it, until a later call overwrites them.
//! Their functions are the likeliest callees. It is no proof: the callee may have called nothing, and what lies there may be older.

use super::Search;
use super::candidates::Candidate;
use super::rank::Rank;
use x86::op::{BranchKind, Gpr};

/// So many words below the return address are looked at.
const WORDS: u64 = 64;
/// So many functions are believed.
const MOST: usize = 4;

impl Search<'_> {
    /// Of the returns that may have led here, puts those first of functions that a return address below the stack lies in.
    pub(super) fn prefer_left_below(&mut self, found: &mut [Candidate]) {
        let functions = self.functions_below();
        let is_open =
            |c: &Candidate| c.rank > Rank::Recorded && c.prepared.branch == Some(BranchKind::Return);
        for candidate in found.iter_mut().filter(|c| is_open(c)) {
            let function = self.program.function_at(candidate.prepared.address()).map(|it| it.start);
            if function.is_some_and(|start| functions.contains(&start)) {
                candidate.rank = Rank::Told;
            }
        }
    }

    /// The functions that return addresses below the stack lie in, the uppermost first.
    fn functions_below(&mut self) -> Vec<u64> {
        let stack = self.hypothesis.register(Gpr::RSP);
        let Some(stack) = self.hypothesis.terms().value(stack) else { return Vec::new() };
        let mut found = Vec::new();
        // Right below lies the return address of the call itself.
        for n in 2..2 + WORDS {
            let word = stack.checked_sub(8 * n).and_then(|va| self.hypothesis.memory_value(va, 8));
            let Some(back) = word.and_then(|word| self.hypothesis.terms().value(word)) else { continue };
            let is_return = self.cfg.call_before(back).is_some();
            let function = self.program.function_at(back).filter(|_| is_return).map(|it| it.start);
            if let Some(start) = function.filter(|start| !found.contains(start)) {
                found.push(start);
            }
            if found.len() == MOST {
                break;
            }
        }
        self.hypothesis.terms().fuel().burn(WORDS);
        found
    }
}
