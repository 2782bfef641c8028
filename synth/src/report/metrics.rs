//! A suffix against the truth, where there is a recording: its path, and the values that its instructions used.
//!
//! The recording is run again on the software CPU, and its last instructions are laid beside those of the suffix, both
//! counted back from the crash. Where the paths are the same, the same instructions of the same threads, each value that an instruction reads (a register other
//! than rsp, or memory) is right or wrong; further back there is nothing to compare it with, and it is unknown.

use super::uses::{Uses, bytes_of, is_shown};
use super::{Listing, Step};
use crate::certificate::forward::decode;
use crate::suffix::{Origin, Suffix};
use iced_x86::InstructionInfoFactory;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use vmm::engine::Machine;
use vmm::recording::Recording;
use vmm::replay::ReplayError;
use vmm::trail::{Tail, TrailError};
use x86::state::State;

/// A suffix against the truth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metrics {
    /// The path, in instructions: a repeated string instruction is one.
    pub path: PathMetrics,
    /// The values that its instructions used.
    pub uses: Counts,
    /// The same by how far from the crash they were used, the nearest first.
    pub distances: Vec<Band>,
    /// The general registers and the listed bytes at its start.
    pub start: Counts,
    /// Iterations of repeated string instructions, but for the first of each: the suffix's own length has them.
    pub repetitions: usize,
}

/// The values that were used so far from the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Band {
    /// At most so many instructions before it, and more than half as many.
    pub upto: usize,
    /// The values.
    pub uses: Counts,
}

/// The nearest band ends so many instructions before the crash; each of the others is twice as long as what lies before it.
const NEAREST: usize = 16;

/// Values by what the truth says of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// They are the true ones.
    pub right: usize,
    /// They are not.
    pub wrong: usize,
    /// Of the wrong ones, those that the suffix itself says were chosen.
    pub chosen: usize,
    /// The program was elsewhere, so that there is no true one.
    pub unknown: usize,
}

impl Counts {
    fn add(&mut self, right: bool, origin: Origin) {
        if right {
            self.right += 1;
        } else {
            self.wrong += 1;
            self.chosen += usize::from(origin == Origin::Chosen);
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.chosen += other.chosen;
        self.unknown += other.unknown;
    }
}

/// What really ran, near its end, one instruction at a time.
pub trait Truth {
    /// Why it does not go on.
    type Error;
    /// How many instructions are to retire from here on.
    fn left(&self) -> u64;
    /// Whether it is over.
    fn ended(&self) -> bool;
    /// The thread whose instruction is next; 0 of a kernel's one processor.
    fn thread(&self) -> u32;
    /// The registers before the next instruction.
    ///
    /// # Errors
    /// When they cannot be had.
    fn state(&mut self) -> Result<State, Self::Error>;
    /// Reads memory; false, with nothing promised about `bytes`, if any is not there.
    fn read(&self, va: u64, bytes: &mut [u8]) -> bool;
    /// Runs it, or takes the exception or interrupt that comes in its place.
    ///
    /// # Errors
    /// When the run differs from what was recorded.
    fn step(&mut self) -> Result<(), Self::Error>;
}

impl Truth for Tail {
    type Error = TrailError;

    fn left(&self) -> u64 {
        Tail::left(self)
    }
    fn ended(&self) -> bool {
        Tail::ended(self)
    }
    fn thread(&self) -> u32 {
        Tail::thread(self).unsigned_abs()
    }
    fn state(&mut self) -> Result<State, TrailError> {
        Ok(self.process_mut().state().map_err(ReplayError::from)?)
    }
    fn read(&self, va: u64, bytes: &mut [u8]) -> bool {
        self.process().read_memory(va, bytes)
    }
    fn step(&mut self) -> Result<(), TrailError> {
        Tail::step(self).map(|_| ())
    }
}

/// Measures a suffix against the recording of the crash, which runs to its end on `machine`.
///
/// # Errors
/// When the recording does not replay.
pub fn measure(
    recording: &Recording,
    machine: Machine,
    suffix: &Suffix,
    listing: &Listing,
) -> Result<Metrics, TrailError> {
    measure_against(&mut Tail::open(recording, machine, retiring(listing))?, suffix, listing)
}

/// How many instructions of a suffix retire.
#[must_use]
pub fn retiring(listing: &Listing) -> u64 {
    listing.steps.iter().filter(|step| step.retired).count() as u64
}

/// The same against what ran, which stands before as many instructions as the suffix has, or at the first that there are.
///
/// # Errors
/// When it does not run.
pub fn measure_against<T: Truth>(
    tail: &mut T,
    suffix: &Suffix,
    listing: &Listing,
) -> Result<Metrics, T::Error> {
    let steps = &listing.steps;
    let retiring = usize::try_from(retiring(listing)).unwrap_or(usize::MAX);
    let mut factory = InstructionInfoFactory::new();
    let mut truth: Vec<Option<((u32, u64), Counts)>> = vec![None; steps.len()];
    let mut start = None;
    while !tail.ended() {
        let index = usize::try_from(tail.left()).ok().and_then(|left| retiring.checked_sub(left));
        if let Some((step, found)) = index.and_then(|at| Some((steps.get(at)?, truth.get_mut(at)?))) {
            let (task, state) = (tail.thread(), tail.state()?);
            let counts = compare_uses(&mut factory, step, &state, &|va, bytes| tail.read(va, bytes));
            *found = Some(((task, state.regs.rip), counts));
        }
        if index == Some(0) {
            let state = tail.state()?;
            start = Some(compare_start(suffix, &state, &|va, bytes| tail.read(va, bytes)));
        }
        tail.step()?;
    }
    Ok(summarize(steps, &truth, start.unwrap_or_default(), suffix))
}

/// Counts what lies on the common path; all the rest is unknown.
fn summarize(
    steps: &[Step],
    truth: &[Option<((u32, u64), Counts)>],
    start: Counts,
    suffix: &Suffix,
) -> Metrics {
    let found: Vec<_> = steps.iter().map(|step| (step.task, step.address)).collect();
    let executed: Vec<_> = truth.iter().flatten().map(|(at, _)| *at).collect();
    let path = compare_paths(&found, &executed);
    let differing = steps.len() - path.common;
    let of_step = |n: usize| match truth[n] {
        Some((_, counts)) if n >= differing => counts,
        _ => Counts { unknown: steps[n].uses.len(), ..Counts::default() },
    };
    let distances = bands((0..steps.len()).rev().map(of_step));
    let mut uses = Counts::default();
    distances.iter().for_each(|band| uses += band.uses);
    let start = if path.equal {
        start
    } else {
        let bytes: usize = suffix.memory.iter().map(|piece| piece.bytes.len()).sum();
        Counts { unknown: suffix.registers.gpr.len() + bytes, ..Counts::default() }
    };
    let repetitions = steps.iter().map(|step| step.iterations.saturating_sub(1)).sum();
    Metrics { path, uses, distances, start, repetitions }
}

/// The values of the steps, the newest first, by how far they are from the crash.
fn bands(newest_first: impl Iterator<Item = Counts>) -> Vec<Band> {
    let mut bands: Vec<Band> = Vec::new();
    for (distance, uses) in (1..).zip(newest_first) {
        let upto = NEAREST.max(usize::next_power_of_two(distance));
        match bands.last_mut() {
            Some(band) if band.upto == upto => band.uses += uses,
            _ => bands.push(Band { upto, uses }),
        }
    }
    bands
}

/// Reads memory.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// Compares what a step used with what the instruction that is really next is about to use.
fn compare_uses(factory: &mut InstructionInfoFactory, step: &Step, state: &State, read: Read<'_>) -> Counts {
    let instruction = decode(state.regs.rip, read);
    let uses = Uses::of(factory, &instruction, state, step.iterations);
    let shown = uses.reads.iter().filter(|used| is_shown(&instruction, used));
    let mut truth = shown.filter_map(|used| Some((*used, bytes_of(*used, state, &read)?)));
    let mut counts = Counts::default();
    for found in &step.uses {
        let same = truth.next().is_some_and(|(used, bytes)| used == found.used && bytes == found.bytes);
        counts.add(same, found.origin);
    }
    counts
}

/// Compares the general registers and the listed bytes at the start with the true ones.
fn compare_start(suffix: &Suffix, state: &State, read: Read<'_>) -> Counts {
    let mut counts = Counts::default();
    let registers = suffix.start.regs.gpr.iter().zip(state.regs.gpr);
    for ((found, truth), origin) in registers.zip(suffix.registers.gpr) {
        counts.add(*found == truth, origin);
    }
    for piece in &suffix.memory {
        for ((at, found), origin) in (piece.address..).zip(&piece.bytes).zip(&piece.origins) {
            let mut truth = [0];
            counts.add(read(at, &mut truth) && truth == [*found], *origin);
        }
    }
    counts
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Counts { right, wrong, chosen, unknown } = self;
        write!(f, "{right} right, {wrong} wrong ({chosen} of them chosen), {unknown} unknown")
    }
}

impl Display for Metrics {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Metrics { path: PathMetrics { common, length, .. }, uses, start, repetitions, .. } = self;
        write!(f, "against the recording: the last {common} of {length} instructions are the true ones")?;
        match repetitions {
            0 => writeln!(f)?,
            _ => writeln!(f, ", without {repetitions} repetitions of string instructions")?,
        }
        writeln!(f, "  values used:                             {uses}")?;
        if common == length {
            return writeln!(f, "  general registers and listed bytes at the start: {start}");
        }
        // Which is no mistake of either: what ran was elsewhere.
        let (other, values) = (length - common, start.unknown);
        write!(
            f,
            "  general registers and listed bytes at the start: none of the {values} compared, since "
        )?;
        writeln!(f, "the oldest {other} instructions are others than those that ran")
    }
}

/// How much of the true path was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathMetrics {
    /// Whether the suffix is exactly the end of the truth.
    pub equal: bool,
    /// How many instructions, counted back from the crash, are the same.
    pub common: usize,
    /// The suffix's length.
    pub length: usize,
}

/// Compares the instructions of a suffix with those of the true execution, by address or by thread and address, both oldest
/// first and both ending at the crash.
#[must_use]
pub fn compare_paths<T: PartialEq>(suffix: &[T], truth: &[T]) -> PathMetrics {
    let common =
        suffix.iter().rev().zip(truth.iter().rev()).take_while(|(found, real)| found == real).count();
    PathMetrics { equal: common == suffix.len(), common, length: suffix.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_bands_that_double() {
        let one = Counts { right: 1, ..Counts::default() };
        let bands = bands(std::iter::repeat_n(one, 40));
        let found: Vec<_> = bands.iter().map(|band| (band.upto, band.uses.right)).collect();
        assert_eq!(found, [(16, 16), (32, 16), (64, 8)]);
    }

    #[test]
    fn the_common_end_is_counted_from_the_crash() {
        let truth = [1, 2, 3, 4, 5];
        assert_eq!(compare_paths(&[3, 4, 5], &truth), PathMetrics { equal: true, common: 3, length: 3 });
        assert_eq!(compare_paths(&[9, 4, 5], &truth), PathMetrics { equal: false, common: 2, length: 3 });
        assert_eq!(compare_paths(&[5, 1, 2, 3, 4, 5], &truth).common, 5);
    }

    /// Where the oldest instructions are others there is no truth for the start, which is said in place of a count of nothing.
    #[test]
    fn a_start_without_a_truth_is_said_to_have_none() {
        let of = |common| Metrics {
            path: PathMetrics { equal: common == 5, common, length: 5 },
            uses: Counts::default(),
            distances: Vec::new(),
            start: Counts { unknown: 40, ..Counts::default() },
            repetitions: 0,
        };
        let said = of(3).to_string();
        assert!(
            said.contains("none of the 40 compared, since the oldest 2 instructions are others"),
            "{said}"
        );
        assert!(of(5).to_string().contains("at the start: 0 right, 0 wrong (0 of them chosen), 40 unknown"));
        assert!(!said.contains("repetitions"), "{said}");
        let repeated = Metrics { repetitions: 23, ..of(5) }.to_string();
        assert!(repeated.contains("true ones, without 23 repetitions of string instructions"), "{repeated}");
    }
}
