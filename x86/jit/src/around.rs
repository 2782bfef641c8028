//! Which instructions look around bytes that are watched.
//!
//! The page of a watchpoint is in no cache of translations, so that compiled code is left before each access to it. What is left often
//! for that is compiled again, and looks at what the CPU knows of the parts of the page between such bytes ([`x86::cpu::Part`]).
//!
//! Example: `counter` lies beside a variable that is watched. A loop adds to it a million times: the code is left sixteen times.

use rustc_hash::FxHashMap;

/// An instruction that was left for so often is compiled again.
const OFTEN: u32 = 16;

/// How often code was left before an instruction, by its address; up to [`OFTEN`].
#[derive(Default)]
pub(crate) struct LeftForWatched(FxHashMap<u64, u32>);

impl LeftForWatched {
    /// Notes that it was left once more before the instruction at `rip`; whether that looks around the bytes from now on, and has not
    /// before.
    pub(crate) fn note(&mut self, rip: u64) -> bool {
        let times = self.0.entry(rip).or_default();
        if *times == OFTEN {
            return false;
        }
        *times += 1;
        *times == OFTEN
    }

    /// Whether the instruction at `rip` looks around them.
    pub(crate) fn looks_around(&self, rip: u64) -> bool {
        self.0.get(&rip) == Some(&OFTEN)
    }

    /// How many do of the instructions at these addresses, which are in order.
    pub(crate) fn among(&self, addresses: &[u64]) -> usize {
        self.all().filter(|rip| addresses.binary_search(rip).is_ok()).count()
    }

    /// Those that do.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter(|(_, times)| **times == OFTEN).map(|(rip, _)| *rip)
    }
}
