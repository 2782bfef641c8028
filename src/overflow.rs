//! Whether a crash is a stack overflow, and who filled the stack.
//!
//! Example: `stack overflow: 0x7fffff7feff8 is 8 bytes below the stack; of its 16391 frames 16384 are of depth`. A stack that overflows
//! faults where its next word would be: at or just above the stack pointer, in or below the guard under the mapping that has the frames.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::Range;
use vmm::elfcore::unwind::{Backtrace, Frame};
use vmm::memory::Rights;

/// So many frames are looked at: a stack of 8 MiB has fewer, unless they have less than 80 bytes each.
pub(crate) const MOST_FRAMES: usize = 100_000;
/// What a function without calls may use below its stack pointer (System V ABI for x86-64, 3.2.2).
const RED_ZONE: u64 = 128;
/// From so many frames of one function on it is recursion that filled the stack, if they are half of all.
const RECURSION: usize = 8;

/// An address that is in question: in or below the guard of a stack.
pub(crate) struct Candidate {
    at: u64,
    stack: Range<u64>,
    guarded: bool,
}

/// A stack overflow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    at: u64,
    below: u64,
    guarded: bool,
    filled: Filled,
}

/// By whom.
#[derive(Debug, PartialEq, Eq)]
enum Filled {
    /// Frames of these functions, so many each, of so many that were counted; there may be more of them.
    Recursion { functions: Vec<(String, usize)>, frames: usize, more: bool },
    /// One frame that is large.
    Large { function: String, bytes: u64 },
}

impl Candidate {
    /// Whether the address of a fault may be one of a stack that overflowed, by the stack pointer and by all that is mapped.
    pub(crate) fn of(at: u64, rsp: u64, mapped: &[(Range<u64>, Rights)]) -> Option<Candidate> {
        let above = mapped.iter().filter(|(range, rights)| rights.write && range.start > at);
        let (stack, _) = above.min_by_key(|(range, _)| range.start)?;
        let here = mapped.iter().find(|(range, _)| range.contains(&at));
        let is_guard = |rights: &Rights| !rights.read && !rights.write && !rights.execute;
        if rsp.saturating_sub(RED_ZONE) > at || here.is_some_and(|(_, rights)| !is_guard(rights)) {
            return None;
        }
        Some(Candidate { at, stack: stack.clone(), guarded: here.is_some() })
    }

    /// Whether it is, by the frames: they are on that stack.
    pub(crate) fn confirmed(
        self,
        trace: &Backtrace,
        name: &dyn Fn(u64) -> Option<String>,
    ) -> Option<Overflow> {
        trace.frames.iter().find(|frame| self.stack.contains(&frame.rsp))?;
        let Candidate { at, stack, guarded } = self;
        Some(Overflow { at, below: stack.start - at, guarded, filled: filled(trace, name) })
    }
}

fn filled(trace: &Backtrace, name: &dyn Fn(u64) -> Option<String>) -> Filled {
    let mut names = BTreeMap::new();
    let mut called = |frame: &Frame| {
        let address = frame.lookup_address();
        let unknown = || format!("the function at {address:#x}");
        names.entry(address).or_insert_with(|| name(address).unwrap_or_else(unknown)).clone()
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    trace.frames.iter().for_each(|frame| *counts.entry(called(frame)).or_default() += 1);
    let most = counts.values().copied().max().unwrap_or(0);
    // Functions that call each other in turns have about as many.
    let functions: Vec<_> = counts.into_iter().filter(|(_, count)| *count * 2 > most).collect();
    let together: usize = functions.iter().map(|(_, count)| count).sum();
    let frames = trace.frames.len();
    if most >= RECURSION && together * 2 > frames {
        return Filled::Recursion { functions, frames, more: frames >= MOST_FRAMES };
    }
    let sizes = trace.frames.windows(2).map(|pair| (pair[1].rsp.saturating_sub(pair[0].rsp), &pair[0]));
    let largest = sizes.max_by_key(|(bytes, _)| *bytes);
    let (bytes, frame) = largest.unwrap_or((0, &trace.frames[0]));
    Filled::Large { function: called(frame), bytes }
}

impl Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overflow { at, below, guarded, filled } = self;
        let guard = if *guarded { " in its guard," } else { "" };
        write!(f, "stack overflow: {at:#x} is{guard} {below} bytes below the stack; ")?;
        match filled {
            Filled::Recursion { functions, frames, more } => {
                let each: Vec<_> =
                    functions.iter().map(|(name, count)| format!("{count} are of {name}")).collect();
                let more = if *more { "newest " } else { "" };
                write!(f, "of its {more}{frames} frames {}", each.join(", "))
            }
            Filled::Large { function, bytes } => {
                write!(f, "its largest frame is that of {function}, {bytes} bytes")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmm::elfcore::unwind::FoundBy;

    const NONE: Rights = Rights { read: false, write: false, execute: false };
    const DATA: Rights = Rights { read: true, write: true, execute: false };

    /// A stack from 0x8000 on, and frames of so many bytes each, innermost first; each at an address of its own.
    fn found(at: u64, rsp: u64, frames: &[(u64, u64)], guarded: bool) -> Option<String> {
        let mut mapped = vec![(0x1000..0x2000, DATA), (0x8000..0x1_0000, DATA)];
        mapped.extend(guarded.then_some((0x7000..0x8000, NONE)));
        let frame = |(rip, rsp)| Frame { rip, rsp, by: FoundBy::Registers, registers: [None; 17] };
        let mut at_rsp = rsp;
        let trace = frames.iter().map(|(rip, size)| {
            let found = frame((*rip, at_rsp));
            at_rsp += size;
            found
        });
        let trace = Backtrace { frames: trace.collect(), stopped: None };
        let name = |address: u64| Some(["f", "g", "main"].get(usize::try_from(address).ok()?)?.to_string());
        Some(Candidate::of(at, rsp, &mapped)?.confirmed(&trace, &name)?.to_string())
    }

    #[test]
    fn a_stack_overflow_is_told_with_who_filled_the_stack() {
        let deep: Vec<_> = [(0, 16); 20].into_iter().chain([(2, 32)]).collect();
        let turns: Vec<_> = [(0, 16), (1, 16)].into_iter().cycle().take(40).collect();
        let large = [(0, 0x2000), (1, 16), (2, 16)];
        for (at, rsp, frames, guarded, expected) in [
            (
                0x7ff8,
                0x8000,
                &deep[..],
                false,
                "0x7ff8 is 8 bytes below the stack; of its 21 frames 20 are of f",
            ),
            (
                0x7ff8,
                0x8000,
                &turns[..],
                true,
                "0x7ff8 is in its guard, 8 bytes below the stack; of its 40 frames 20 are of f, 20 are of g",
            ),
            // What it stores is far above where the stack pointer went.
            (
                0x7100,
                0x6800,
                &large[..],
                true,
                "0x7100 is in its guard, 3840 bytes below the stack; its largest frame is that of f, 8192 bytes",
            ),
        ] {
            assert_eq!(found(at, rsp, frames, guarded), Some(format!("stack overflow: {expected}")));
        }
    }

    #[test]
    fn other_faults_are_none() {
        let frames = [(0, 16); 20];
        // A wild pointer, a null pointer, a stack pointer elsewhere, memory that is mapped.
        for (at, rsp) in [(0x7ff8, 0x9000), (0, 0x9000), (0x4ff8, 0x5000), (0x1800, 0x1800)] {
            assert_eq!(found(at, rsp, &frames, false), None, "{at:#x} {rsp:#x}");
        }
    }
}
