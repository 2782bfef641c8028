//! What the kernel's perf events offer to this process, tried on itself: counters, branch stacks, the flight recorder.

use super::host;
use crate::engine::kvm::Landing;
use lbr::perf::event::paranoid;
use lbr::perf::retired::{Counted, Events};
use lbr::perf::{Event, FlightRecorder, Group, OpenError, Sampling, Scope, SelfCounter, What};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What the kernel's perf events offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Perf {
    /// What the processor counts of this process, or why nothing.
    pub counters: Result<Vec<Counted>, String>,
    /// Whether a counter can be read without a system call, or why not.
    pub rdpmc: Result<(), String>,
    /// How many branches the samples of this process have, or why they have none.
    pub branch_stack: Result<usize, String>,
    /// How many samples of this process the flight recorder took by the kernel's clock, or why none.
    pub flight_recorder: Result<usize, String>,
    /// /proc/sys/kernel/perf_event_paranoid.
    pub paranoid: Option<i32>,
}

/// Why the last branches of a guest do not come from the kernel's branch stacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGuestStacks {
    /// The processor does not execute the program.
    #[error("the software CPU executes the program, so the processor has no branches of it")]
    Software,
    /// There are no branch stacks at all.
    #[error(transparent)]
    Unavailable(OpenError),
    /// The processor records for the guest alone, or not at all.
    #[error(
        "in a guest the processor records branches as the guest's own IA32_DEBUGCTL says: samples of the host have none \
         of them"
    )]
    Hidden,
    /// Samples are not of the crash.
    #[error(
        "perf takes a sample when a counter overflows, not when the program crashes: how many branches came between, it \
         does not say"
    )]
    NotAtTheCrash,
}

/// `PERF_SAMPLE_BRANCH_USER` and `PERF_SAMPLE_BRANCH_ANY`.
const USER_ANY: u64 = 1 | 1 << 3;
/// How many branches or instructions make a sample.
const PERIOD: u64 = 10_000;
/// Nanoseconds between two samples by the clock.
const CLOCK_PERIOD: u64 = 100_000;
/// How long each trial runs.
const TRIAL: Duration = Duration::from_millis(5);
/// The ring of a trial: two hundred samples without branches, a handful with.
const RING: usize = 16 << 10;

/// Tries everything; nothing is left open.
#[must_use]
pub fn probe_perf() -> Perf {
    let host = host();
    let events = host
        .cpu
        .events()
        .filter(|_| !host.hybrid)
        .ok_or_else(|| "the events of this processor are not known".to_owned());
    Perf {
        counters: events.clone().and_then(|events| counters(&events)),
        rdpmc: events.clone().and_then(|events| rdpmc(&events)),
        branch_stack: events.clone().and_then(|events| branch_stack(&events)),
        flight_recorder: sampled(What::CpuClock, CLOCK_PERIOD, 0).and_then(|samples| match samples.len() {
            0 => Err("no sample came".to_owned()),
            some => Ok(some),
        }),
        paranoid: paranoid(),
    }
}

/// Why a guest's last branches do not come from branch stacks; `landing`: that of the engine, if it is KVM.
#[must_use]
pub fn no_guest_stacks(landing: Option<Landing>) -> NoGuestStacks {
    let Some(landing) = landing else { return NoGuestStacks::Software };
    let raw = host().cpu.events().map_or(What::Raw(0xc0), |events| What::Raw(events.instructions));
    let sampling = Some(Sampling { period: PERIOD, branches: USER_ANY });
    let event = Event { sampling, ..Event::counter(raw, Scope::User) };
    match (FlightRecorder::open(&event, 0, RING), landing) {
        (Err(why), _) => NoGuestStacks::Unavailable(why),
        (Ok(_), Landing::Ring0) => NoGuestStacks::Hidden,
        (Ok(_), Landing::Ring3) => NoGuestStacks::NotAtTheCrash,
    }
}

fn counters(events: &Events) -> Result<Vec<Counted>, String> {
    let (counted, events): (Vec<Counted>, Vec<Event>) = events.counters(Scope::User).into_iter().unzip();
    let group = Group::open(&events, 0).map_err(|error| error.to_string())?;
    group.enable().map_err(|error| error.to_string())?;
    compute(TRIAL);
    let values = group.read().and_then(|reading| reading.whole()).map_err(|error| error.to_string())?;
    match values.iter().position(|value| *value == 0) {
        Some(silent) => Err(format!("the counter of {} stands still", counted[silent].name())),
        None => Ok(counted),
    }
}

fn rdpmc(events: &Events) -> Result<(), String> {
    let counter =
        SelfCounter::open(What::Raw(events.conditional_branches)).map_err(|error| error.to_string())?;
    let before = counter.read().map_err(|error| error.to_string())?;
    compute(TRIAL);
    let after = counter.read().map_err(|error| error.to_string())?;
    if after > before { Ok(()) } else { Err("the counter stands still".to_owned()) }
}

fn branch_stack(events: &Events) -> Result<usize, String> {
    let stacks = sampled(What::Raw(events.conditional_branches), PERIOD, USER_ANY)?;
    let deepest = stacks.into_iter().max().unwrap_or(0);
    if deepest > 0 { Ok(deepest) } else { Err("no sample has branches".to_owned()) }
}

/// Samples this process with the flight recorder; gives the number of branches of each.
fn sampled(what: What, period: u64, branches: u64) -> Result<Vec<usize>, String> {
    let event = Event { sampling: Some(Sampling { period, branches }), ..Event::counter(what, Scope::User) };
    let recorder = FlightRecorder::open(&event, 0, RING).map_err(|error| error.to_string())?;
    recorder.start().map_err(|error| error.to_string())?;
    compute(TRIAL);
    recorder.stop().map_err(|error| error.to_string())?;
    let flight = recorder.samples().map_err(|error| error.to_string())?;
    let branches =
        flight.samples.iter().map(|sample| sample.branches.as_ref().map_or(0, |s| s.entries.len()));
    Ok(branches.collect())
}

/// Computes, with branches.
fn compute(time: Duration) {
    let begun = Instant::now();
    let mut n = 1_u64;
    while begun.elapsed() < time {
        for _ in 0..1000 {
            n = black_box(n.rotate_left(1) ^ begun.elapsed().as_secs());
        }
    }
}
