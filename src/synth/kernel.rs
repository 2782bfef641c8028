//! `gretel synth` of a machine with a kernel: from where the kernel crashed, in the memory and the registers of that moment.
//!
//! Memory in the core of a kernel is of the machine's end, in the reset behind the panic. So the recording is run again to the instruction
//! that the panic came from ([`board::crash`]), and the machine there is the core ([`crate::kernel::Taken`]). Branch records are derived by a
//! run of the last instructions with the model of a processor's. A core alone has both in its notes.

use super::{Args, Beside, LOOKED_AT, Outcome, explain, interrupter, nothing_written, progress, shown};
use crate::exit::{Code, Failure};
use crate::kernel::{self, At, Rings, Source, Taken, failed, no_crash};
use crate::log::say;
use crate::sandbox;
use ::synth::evidence::Samples;
use ::synth::report::Listing;
use ::synth::report::metrics::{self, Metrics};
use ::synth::suffix::Suffix;
use ::synth::synthesis::{Request, synthesize};
use board::Position;
use board::crash::{self, Crash};
use board::travel::{Travel, TravelError};
use board::vmcore::Vmcore;
use lbr::{Filter, Trail};
use std::path::Path;
use vmm::recording::Recording;
use x86::state::State;
use x86_system::Raised;

/// So many branch records are derived if none are asked for.
const RECORDS: u32 = 32;

/// A recording where a suffix is to end, and what the instruction there raises, or what its end is.
type Stands = (Travel, Result<Raised, &'static str>);

/// Works backwards from where a kernel crashed.
pub(super) fn run(args: &Args, source: &Source) -> Outcome {
    let limits = args.limits();
    if !args.samples.is_empty() {
        let why = "--samples is for programs: of a kernel no samples are placed in its memory";
        return Err(Failure::new(Code::Usage, why));
    }
    // What is run is a kernel, and no KVM is needed for it.
    sandbox::enter();
    let (taken, mut truth) = match source {
        Source::Recording(recording) => of_recording(args, recording)?,
        Source::Core(path) => (of_core(args, path)?, None),
    };
    let ((records, recorded), anchors) = taken.evidence(args.crumbs)?;
    let Taken { core, program, trail, .. } = &taken;
    let interrupter = interrupter()?;
    let request = Request {
        core,
        program,
        records: &records,
        recorded: &recorded,
        anchors: &anchors,
        samples: &Samples::default(),
        limits,
        kvm: false,
        interrupter: &interrupter,
    };
    let synthesis =
        synthesize(&request, &mut progress(args.time)).map_err(|e| Failure::new(Code::Host, e))?;
    let explanation = args.explain.then(|| {
        let log = truth.as_mut().map(|truth| truth.log(LOOKED_AT));
        explain(&request, trail.as_ref(), &synthesis, log)
    });
    args.smt_lib.iter().for_each(|dir| nothing_written(dir));
    let mut beside = Beside { explanation, refutations: None, machine: truth };
    shown::report(args, core, program, synthesis, &mut beside)
}

/// The kernel where the suffix is to end, and what really ran, which the recording is run again for.
fn of_recording(args: &Args, recording: &Recording) -> Result<(Taken, Option<Truth>), Failure> {
    if args.exe.is_some() {
        let why = "--exe is not for a machine's recording, which has the file that was booted";
        return Err(Failure::new(Code::Usage, why));
    }
    let (mut travel, end) = stand(args, recording)?;
    let mut taken = Taken::of_machine(recording, travel.machine(), end)?;
    say_place(&taken);
    taken.trail = derived(args, &mut travel)?;
    if let Some(trail) = &taken.trail {
        say_records(trail, "derived by a run of the recording on the software CPU");
    }
    let crash = taken.at;
    Ok((taken, Some(Truth { travel, crash })))
}

/// The kernel in a core alone.
fn of_core(args: &Args, path: &Path) -> Result<Taken, Failure> {
    if args.at.is_some() {
        let why = format!("{} is a core: --at is for the recording of a machine", path.display());
        return Err(Failure::new(Code::Usage, why));
    }
    let mut taken = Taken::of_core(path, args.exe.as_deref(), None)?;
    say_place(&taken);
    taken.trail = chosen(args, taken.trail.take())?;
    if let Some(trail) = &taken.trail {
        say_records(trail, &format!("{}, as the core has them", trail.provenance));
    }
    Ok(taken)
}

/// Those of a core's branch records that are asked for.
fn chosen(args: &Args, own: Option<Trail>) -> Result<Option<Trail>, Failure> {
    if args.records == Some(0) {
        return Ok(None);
    }
    let refused = |why: &str| Err(Failure::new(Code::Usage, format!("{why}; --records 0 does without")));
    let Some(own) = own else {
        return if args.records.is_some() || args.filter.is_some() || args.ring.is_some() {
            refused("the core has no branch records")
        } else {
            Ok(None)
        };
    };
    let wanted = args.records.unwrap_or(own.depth);
    let is_other = args.filter.is_some() || args.ring.is_some();
    let asked = args.ring.unwrap_or(Rings::KERNEL).of(args.filter.unwrap_or(Filter::ANY));
    if wanted > own.depth || is_other && own.filter != Some(asked) {
        return refused("the core was made with fewer or other branch records");
    }
    Ok(Some(own.newest(wanted)))
}

/// Says where the suffix is to end.
fn say_place(taken: &Taken) {
    let place = taken.place();
    say!("gretel: taken back from {place}, {} instructions: {}", taken.at.retired, taken.core.end_name());
}

/// Says which branch records there are, and whose.
fn say_records(trail: &Trail, source: &str) {
    let filter = trail.filter.map_or_else(|| "not known".to_owned(), |filter| filter.to_string());
    say!("gretel: {} branch records (filter {filter}): {source}", trail.records.len());
}

/// The recording where its core says that the kernel crashed, if it stands there as the core has it. That is quicker than to look for the
/// place from the end.
fn stand_by_core(recording: &Recording) -> Result<Option<Stands>, Failure> {
    let core = Vmcore::open(&recording.core()).ok();
    let Some(crashed) = core.and_then(|core| core.crashed().ok().flatten()) else { return Ok(None) };
    let (mut travel, damage) = kernel::travel(recording, Some(crashed.at.retired))?;
    travel.seek(crashed.at).map_err(failed)?;
    let is_there = travel.position() == crashed.at && travel.machine().regs() == crashed.state.regs;
    if !is_there {
        return Ok(None);
    }
    damage.iter().for_each(|damage| say!("gretel: {damage}"));
    // What it says of the end is one of these words, or is not believed.
    let words = [Crash::Panic, Crash::End].map(Crash::end).into_iter().filter_map(Result::err);
    let end = crashed.raised.map(Ok).or_else(|| words.into_iter().find(|it| *it == crashed.end).map(Err));
    Ok(end.map(|end| (travel, end)))
}

/// The recording where the suffix is to end, and what the instruction there raises, or what its end is.
fn stand(args: &Args, recording: &Recording) -> Result<Stands, Failure> {
    if args.at.is_none()
        && let Some(stands) = stand_by_core(recording)?
    {
        return Ok(stands);
    }
    let at = if let Some(At::Instruction(at)) = args.at { Some(at) } else { None };
    let (mut travel, damage) = kernel::travel(recording, at)?;
    damage.iter().for_each(|damage| say!("gretel: {damage}"));
    let end = match args.at {
        None if !travel.ended().is_some_and(kernel::has_crashed) => return Err(no_crash(recording, &travel)),
        None => crash::seek(&mut travel).map_err(failed)?.end(),
        Some(At::End) => Err("the end of the recording"),
        Some(At::Instruction(at)) => {
            let here = travel.position();
            if here.retired != at {
                let why = format!("the recording has {} instructions, not {at}", here.retired);
                return Err(Failure::new(Code::Usage, why));
            }
            raised_here(&mut travel)?.ok_or("the instruction that was asked for")
        }
    };
    travel.take_notes().iter().for_each(|note| say!("gretel: {note}"));
    Ok((travel, end))
}

/// What the instruction raises that is next.
fn raised_here(travel: &mut Travel) -> Result<Option<Raised>, Failure> {
    let here = travel.position();
    travel.step_once().map_err(failed)?;
    let newest = travel.machine().exceptions().next().copied();
    travel.seek(here).map_err(failed)?;
    Ok(newest.filter(|exception| exception.at == here && exception.is_fault()).map(|it| it.raised))
}

/// The branch records at the place that the recording stands at, which it stands at again then.
fn derived(args: &Args, travel: &mut Travel) -> Result<Option<Trail>, Failure> {
    let wanted = args.records.unwrap_or(RECORDS);
    if wanted == 0 {
        return Ok(None);
    }
    let filter = args.filter.unwrap_or(Filter::ANY);
    if filter.is_call_stack() {
        let message = "call-stack records are not in the order of time; take others with --filter";
        return Err(Failure::new(Code::Usage, message));
    }
    let trail = travel.branch_records(wanted, args.ring.unwrap_or(Rings::KERNEL).of(filter));
    trail.map(Some).map_err(|error| Failure::new(Code::Other, error))
}

/// What really ran, up to the place that a suffix ends at.
pub(super) struct Truth {
    travel: Travel,
    crash: Position,
}

impl Truth {
    /// Measures a suffix against it.
    pub(super) fn measure(&mut self, suffix: &Suffix, listing: &Listing) -> Option<Metrics> {
        let count = metrics::retiring(listing);
        let measured = self
            .seek_before(count)
            .and_then(|()| metrics::measure_against(self, suffix, listing))
            .inspect_err(|why| say!("gretel: the suffix is not compared with the recording: {why}"));
        measured.ok()
    }

    /// The addresses of the last instructions, oldest first.
    fn log(&mut self, count: u64) -> Result<Vec<u64>, String> {
        let in_words = |error: TravelError| error.to_string();
        self.seek_before(count).map_err(in_words)?;
        let mut log = Vec::new();
        while self.travel.position() < self.crash {
            let (before, rip) = (self.travel.position(), self.travel.machine().regs().rip);
            if !self.travel.step_once().map_err(in_words)? {
                break;
            }
            if self.travel.position().retired > before.retired {
                log.push(rip);
            }
        }
        Ok(log)
    }

    /// Stands before the last `count` instructions.
    fn seek_before(&mut self, count: u64) -> Result<(), TravelError> {
        self.travel.seek(Position::at(self.crash.retired.saturating_sub(count))).map(drop)
    }
}

impl metrics::Truth for Truth {
    type Error = TravelError;

    fn left(&self) -> u64 {
        self.crash.retired.saturating_sub(self.travel.position().retired)
    }
    fn ended(&self) -> bool {
        self.travel.position() >= self.crash
    }
    fn thread(&self) -> u32 {
        0
    }
    fn state(&mut self) -> Result<State, TravelError> {
        let machine = self.travel.machine();
        Ok(State { regs: machine.regs(), fpu: machine.fpu() })
    }
    fn read(&self, va: u64, bytes: &mut [u8]) -> bool {
        self.travel.machine().read(va, bytes) == bytes.len()
    }
    fn step(&mut self) -> Result<(), TravelError> {
        self.travel.step_once().map(drop)
    }
}
