//! Where the path that the search found leaves what ran, if there is a recording to tell.

use super::Where;
use crate::program::Program;
use crate::search::Statistics;
use serde::Serialize;

/// How far the search was on the true path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parting {
    /// So many of its newest instructions are the true ones.
    pub instructions: usize,
    /// Where the two ways meet: the oldest instruction that they share.
    pub at: Where,
    /// What the program executed before it; null if the recording begins here.
    pub came_from: Option<Where>,
    /// What the search found before it; null if its path ends here.
    pub went_to: Option<Where>,
    /// What the search met, on the true path or another, at the first instruction further back on the true one at which it met anything
    /// so far back.
    pub met: Option<Meeting>,
}

/// Something that ends the search's way, at an instruction of the true path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meeting {
    /// So many instructions before the crash.
    pub before_crash: usize,
    /// The instruction.
    pub at: Where,
    /// What it met.
    pub why: &'static str,
}

impl Parting {
    /// Compares `path`, newest first, with what ran, oldest first.
    pub(super) fn of(
        program: &Program,
        path: &[u64],
        truth: &[u64],
        statistics: &Statistics,
    ) -> Option<Parting> {
        // The iterations of a repeated string instruction may be counted as one by either side.
        let found: Vec<&[u64]> = path.chunk_by(|a, b| a == b).collect();
        let ran: Vec<&[u64]> = truth.chunk_by(|a, b| a == b).rev().collect();
        let common = found.iter().zip(&ran).take_while(|(a, b)| a[0] == b[0]).count();
        let instructions = found[..common].iter().map(|same| same.len()).sum();
        let at = Where::new(program, found.get(common.checked_sub(1)?)?[0]);
        let side = |ways: &[&[u64]]| ways.get(common).map(|way| Where::new(program, way[0]));
        let met = Meeting::of(program, truth, instructions, statistics);
        Some(Parting { instructions, at, came_from: side(&ran), went_to: side(&found), met })
    }
}

impl Meeting {
    /// The first behind so many instructions.
    fn of(program: &Program, truth: &[u64], behind: usize, statistics: &Statistics) -> Option<Meeting> {
        let beyond = (1..).zip(truth.iter().rev()).skip(behind);
        beyond.take(FAR).find_map(|(before_crash, &address)| {
            let met = statistics.places.iter().filter(|(place, met)| {
                place.address == address
                    && met.deepest + NEAR >= before_crash
                    && met.deepest <= before_crash + NEAR
            });
            let (place, _) = met.max_by_key(|(place, met)| (met.times, **place))?;
            Some(Meeting { before_crash, at: Where::new(program, address), why: place.why })
        })
    }
}

/// So many instructions of the true path are looked at, behind where the search left it.
const FAR: usize = 128;
/// So many more or fewer instructions are as far back.
const NEAR: usize = 2;
