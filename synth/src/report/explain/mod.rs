//! Why a synthesis came no further, and which evidence would have helped: where the certified suffix begins and what the
//! certificates before it failed at, each place that the search did not go past, and how far other branch records reach.

mod advice;
mod parting;
mod text;
mod windows;

use super::trace::formatter;
use crate::phases::{Phase, Phases};
use crate::program::{Program, readable};
use crate::search::{Place, Statistics, Stop};
use crate::synthesis::{Cut, Synthesis, Verdict};
use advice::{advice, of_address};
use iced_x86::Formatter;
use lbr::Filter;
pub use parting::{Meeting, Parting};
use serde::Serialize;
use std::collections::BTreeMap;
pub use windows::Window;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// How many instructions back the search came.
    pub searched: usize,
    /// How many of them are certified.
    pub certified: usize,
    /// Why the search stopped.
    pub stopped: &'static str,
    /// What lies right before the certified suffix.
    pub end: Option<End>,
    /// Where what the search found leaves what ran; null without a recording.
    pub parting: Option<Parting>,
    /// The certificates that were tried, in order.
    pub certificates: Vec<Attempt>,
    /// The places that the search did not go past, those that were met most often first.
    pub barriers: Vec<Barrier>,
    /// How far branch records of each kind reach.
    pub windows: Vec<Window>,
    /// Whether the windows are measured on the recording, or on the path of the suffix.
    pub windows_of: &'static str,
    /// How many system calls the crumbs tell of; null of a kernel, of whose crumbs only the newest is used.
    pub crumbs: Option<usize>,
    /// Seconds in each phase.
    pub seconds: BTreeMap<&'static str, f64>,
}

/// An instruction, as people find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Where {
    /// Its address.
    #[serde(serialize_with = "crate::report::hex")]
    pub address: u64,
    /// Function and offset.
    pub place: String,
    /// The instruction.
    pub text: String,
}

/// What lies before the suffix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// How many instructions before the crash the suffix begins.
    pub before_crash: usize,
    /// Where it begins.
    pub first: Where,
    /// Why it begins there.
    pub why: String,
    /// What would have helped.
    pub would_help: String,
}

/// An attempt to certify the newest part of the path that the search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// So many instructions.
    pub tried: usize,
    /// So many were left behind the newest access without an address.
    pub reached: usize,
    /// Addresses were chosen where nothing told them.
    pub choosing: bool,
    /// Why it failed; null if it did not.
    pub failed: Option<String>,
    /// The access without an address, and the registers that this hangs on.
    pub waiting: Option<(Where, String)>,
}

/// A place that the search did not go past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Barrier {
    /// How often it came there.
    pub times: u64,
    /// How far back from the crash at most.
    pub deepest: usize,
    /// Where.
    pub at: Where,
    /// Why it does not go on.
    pub why: &'static str,
    /// What would have helped.
    pub would_help: String,
}

/// What an explanation is made from, beside the synthesis.
pub struct Known<'a> {
    /// The program.
    pub program: &'a Program,
    /// The address of the crash.
    pub crash: u64,
    /// The last instructions of the recording, where there is one, oldest first.
    pub truth: Option<&'a [u64]>,
    /// The records that were used.
    pub records: Option<(usize, Filter)>,
    /// How many system calls the crumbs tell of.
    pub crumbs: usize,
}

impl Explanation {
    /// Explains a synthesis.
    #[must_use]
    pub fn new(known: &Known<'_>, synthesis: &Synthesis) -> Explanation {
        let program = known.program;
        let certified = match &synthesis.verdict {
            Verdict::Certified(suffix, _) => suffix.len(),
            Verdict::Infeasible { .. } | Verdict::Inconclusive { .. } => 0,
        };
        let suffix: Vec<u64> =
            synthesis.path[..certified.min(synthesis.path.len())].iter().rev().copied().collect();
        let path = known.truth.unwrap_or(&suffix);
        let certificates = synthesis.cuts.iter().map(|cut| Attempt::new(program, cut)).collect();
        Explanation {
            searched: synthesis.searched,
            certified,
            stopped: synthesis.stop.text(),
            end: End::of(program, synthesis, certified),
            parting: known
                .truth
                .and_then(|truth| Parting::of(program, &synthesis.path, truth, &synthesis.statistics)),
            certificates,
            barriers: barriers(program, &synthesis.statistics),
            windows: windows::windows(program, path, known.crash, known.records),
            windows_of: if known.truth.is_some() { "recording" } else { "suffix" },
            crumbs: (!program.is_kernel()).then_some(known.crumbs),
            seconds: seconds(&synthesis.phases),
        }
    }
}

/// Seconds in each phase.
#[must_use]
pub fn seconds(phases: &Phases) -> BTreeMap<&'static str, f64> {
    Phase::ALL.iter().map(|&phase| (phase.name(), phases.of(phase).as_secs_f64())).collect()
}

impl Where {
    fn new(program: &Program, address: u64) -> Where {
        let place = program.function_at(address).map_or_else(
            || "(no function)".to_owned(),
            |function| format!("{}+{:#x}", readable(&function.name), address.wrapping_sub(function.start)),
        );
        let mut text = String::new();
        if let Some(instruction) = program.instruction_at(address) {
            formatter().format(&instruction, &mut text);
        }
        Where { address, place, text }
    }
}

impl End {
    /// Why the certified suffix begins where it does.
    fn of(program: &Program, synthesis: &Synthesis, certified: usize) -> Option<End> {
        let first = Where::new(program, *synthesis.path.get(certified.checked_sub(1)?)?);
        let (why, would_help) = match certified < synthesis.path.len() {
            true => cut(program, synthesis, certified),
            false => at_the_end(synthesis, certified),
        };
        Some(End { before_crash: certified, first, why, would_help })
    }
}

/// Why not all that the search found is certified.
fn cut(program: &Program, synthesis: &Synthesis, certified: usize) -> (String, String) {
    let longer = synthesis.cuts.iter().filter(|cut| cut.tried > certified);
    // The shortest of those that came no further says best what is in the way.
    let Some(nearest) = longer.min_by_key(|cut| (cut.tried, cut.reached)) else {
        return (
            "what the search found before it was not tried: the fuel was used up".to_owned(),
            "more --fuel".to_owned(),
        );
    };
    match (&nearest.why, nearest.waiting) {
        (_, Some(waiting)) if nearest.reached <= certified || nearest.why.is_none() => {
            let at = Where::new(program, waiting.address);
            let kind = if waiting.store { "store" } else { "load" };
            let why = format!("the {kind} right before it ({} {}) has no address", at.place, at.text);
            (why, of_address(waiting.registers))
        }
        (Some(why), _) => {
            let would =
                "records or crumbs that say which way it went before: this one cannot be the true one";
            (format!("with {} instructions: {why}", nearest.tried), would.to_owned())
        }
        (None, _) => ("a longer part was certified only in part".to_owned(), "more --fuel".to_owned()),
    }
}

/// Why the search came no further than what is certified.
fn at_the_end(synthesis: &Synthesis, certified: usize) -> (String, String) {
    let why = synthesis.stop.text().to_owned();
    let at_end = synthesis.statistics.places.iter().filter(|(_, met)| met.deepest + 1 >= certified);
    let most = at_end.max_by_key(|(place, met)| (met.deepest, met.times, **place));
    match (synthesis.stop, most) {
        (Stop::Instructions, _) => (why, "more --instructions".to_owned()),
        (Stop::ProgramStart, _) => (why, "nothing: this is the whole execution".to_owned()),
        (Stop::Fuel | Stop::Time | Stop::Interrupted, None) => (why, "more --fuel".to_owned()),
        (_, Some((place, met))) => {
            (format!("{why}; met there: {}", place.why), advice(place.why, met.registers))
        }
        (Stop::Exhausted, None) => (why, "nothing: each other way contradicts the core".to_owned()),
    }
}

impl Attempt {
    fn new(program: &Program, cut: &Cut) -> Attempt {
        let waiting = cut.waiting.map(|it| (Where::new(program, it.address), of_address(it.registers)));
        Attempt {
            tried: cut.tried,
            reached: cut.reached,
            choosing: cut.choosing,
            failed: cut.why.clone(),
            waiting,
        }
    }
}

fn barriers(program: &Program, statistics: &Statistics) -> Vec<Barrier> {
    let mut places: Vec<_> = statistics.places.iter().collect();
    places.sort_by_key(|(place, met)| (std::cmp::Reverse((met.times, met.deepest)), **place));
    let of = |(&Place { why, address }, met): (&Place, &crate::search::Met)| Barrier {
        times: met.times,
        deepest: met.deepest,
        at: Where::new(program, address),
        why,
        would_help: advice(why, met.registers),
    };
    places.into_iter().map(of).collect()
}
