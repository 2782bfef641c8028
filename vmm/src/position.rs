//! A point in an execution.
//!
//! An event (a system call, a machine read, a signal) stands where the guest left by itself, so its ordinal names the point. A
//! preemption comes between two instructions: it is an [`Offset`] in the segment that begins behind the event before it.
//!
//! **What counts as an instruction:** each one that retires in ring 3, by [`crate::engine::Counters::instructions`]. A REP string
//! instruction is one, however often it repeats, and nothing ever stops inside it. SYSCALL is one. A machine read is
//! none, since gretel carries it out; neither is one that faults, until it is done.
//!
//! Example: event 7 is a read; the thread computes 1,000 instructions and is preempted: that is event 8 at
//! `Offset::Retired(1000)`. Recorded under KVM, which does not count, it is event 8 at an `Offset::State`: the first point behind
//! event 7 with these registers, x87 and vector registers too, and this memory. Replay runs the segment on the software CPU up to
//! it. Two states that are equal in all of these, with no event between them, are an endless loop, so which of them is meant
//! makes no difference. (Equal in less they are not: `addsd xmm0, xmm1` in a loop counts in xmm0 alone.)

use crate::plain::plain;
use x86::state::Regs;

/// A point in an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// How many events had begun.
    pub event: u64,
    /// How many instructions retired behind the last of them; where it was served, zero.
    pub retired: u64,
}
plain!(struct Position { event, retired });

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.retired {
            0 => write!(f, "{}", self.event),
            retired => write!(f, "{}+{retired}", self.event),
        }
    }
}

impl std::str::FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Position, String> {
        let number = |text: &str| {
            text.parse()
                .map_err(|_| format!("`{text}` is no number; a position is EVENT or EVENT+INSTRUCTIONS"))
        };
        let (event, retired) = text.split_once('+').unwrap_or((text, "0"));
        Ok(Position { event: number(event)?, retired: number(retired)? })
    }
}

/// Where in a segment a preemption came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offset {
    /// When so many instructions had retired since the event before.
    Retired(u64),
    /// Where the registers, all of them, and the memory are these: what a processor can say that does not count. Apart, since most
    /// events have none, and the newest of them all are kept in memory.
    State(Box<Target>),
}

/// A state to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The registers, with all flags; they are searched for without the arithmetic ones (see [`comparable`]).
    pub regs: Regs,
    /// Digest of the x87 and vector registers, as [`crate::journal::schema::digest_fpu`] makes it.
    pub fpu: u64,
    /// Digest of the task's address space.
    pub memory: u64,
    /// How many conditional branches had retired in ring 3 since the event before, where the processor has a counter of them:
    /// the one that processors count best (O'Callahan et al., "Engineering Record and Replay for Deployability", 2017, §2.4.1), but not
    /// without error. Memory is compared only near it.
    pub branches: Option<u64>,
}

/// CF, PF, AF, ZF, SF and OF.
pub const ARITHMETIC_FLAGS: u64 = x86::flags::ARITHMETIC;

/// The registers as far as two processors that run the same program agree on them: without the arithmetic flags, which some
/// instructions leave undefined. This is what recordings digest and compare.
#[must_use]
pub fn comparable(regs: &Regs) -> Regs {
    Regs { rflags: regs.rflags & !ARITHMETIC_FLAGS, ..*regs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_is_shown() {
        for text in ["7", "7+12"] {
            assert_eq!(text.parse::<Position>().map(|position| position.to_string()), Ok(text.to_owned()));
        }
        assert!("7+".parse::<Position>().is_err() && "x".parse::<Position>().is_err());
    }
}
