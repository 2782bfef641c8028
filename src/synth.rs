//! `gretel synth`: works backwards from a core to a certified execution suffix.

mod kernel;
mod shown;

use crate::Outcome;
use crate::debug_files::DebugFiles;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::kernel::{At, Rings, Source};
use crate::log::say;
use crate::opened;
use crate::samples;
use crate::shown_trail;
use ::synth::evidence::{Anchors, Contexts};
use ::synth::fuel::UNITS_A_SECOND;
use ::synth::refutations::{RefutationError, Written};
use ::synth::report::explain::{Explanation, Known};
use ::synth::search::Limits;
use ::synth::synthesis::{Request, STACK_BYTES, Synthesis, synthesize};
use lbr::{Filter, Trail};
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmm::elfcore::{AT_ENTRY, Core};
use vmm::engine::Interrupter;
use vmm::interrupt;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::trail::{derive, tail_log};
use x86::op::BranchKind;

/// Work backwards from a core to the execution that led there
///
/// Finds an execution suffix, as long as the limits allow: a start (registers and memory), the answers of the kernel, and
/// a path of instructions that ends in exactly this core. It is shown only with its certificate: it was run forward on
/// the software CPU, and under KVM where it can be used, and every byte and register came out as the core has them.
/// Of a recording, the end is run again to say how much of the suffix is what really happened.
/// Of a machine with a kernel, it begins at the instruction that the kernel crashed at (docs/kernel.md).
/// Ctrl-C ends the search and shows what of it can be certified; a second one takes the best certificate so far; a third
/// ends gretel.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel synth gretel-prog-1                         with the core's own 16 branch records
  gretel synth --records 32 --filter ret-ind DIR     what 32 records of returns and indirect branches would give
  gretel synth --records 0 --exe ./prog core.1234    from a kernel's core alone
  gretel synth -o suffix.json DIR                    keep the suffix
  gretel synth --samples perf.data core.1234         with what perf record -b saw of the service on other days

Exit codes:
  0    certified: the suffix is shown
  1    infeasible: no execution of the program ends in this core (a hardware error, or a damaged core)
  2    inconclusive: neither was shown; stderr says why, and what would have helped
  120 and more: see gretel --help")]
pub(crate) struct Args {
    /// A recording's folder, or a core file
    #[arg(value_name = "DIR|CORE")]
    input: PathBuf,
    /// The executable of a core (default: the one in the recording, or where the core says that it was)
    #[arg(long, value_name = "PROG")]
    exe: Option<PathBuf>,
    /// How many branch records to use (default: those of the core; of the recording of a machine with a kernel 32, which are derived)
    #[arg(long, value_name = "0|16|32", value_parser = crate::trail::parse_records)]
    records: Option<u32>,
    /// Which branches they record: any, no-jcc, calls, ret-ind, indirect, or LBR_SELECT in hexadecimal (default: as in the
    /// core)
    #[arg(long, value_name = "FILTER")]
    filter: Option<Filter>,
    /// What of the core's crumbs to use: nothing, the system calls, also what had retired at each, or also its calling context
    /// where that was recorded
    #[arg(long, value_name = "none|calls|counts|contexts", default_value = "contexts",
        value_parser = use_of_crumbs)]
    crumbs: Use,
    /// Branches that were sampled while the program ran, this time or another: a perf.data of `perf record -b`, what `perf script
    /// --show-mmap-events -F brstack` prints, or a recording's folder, which is sampled. They say which way is tried first, and prove
    /// nothing. May be given several times
    #[arg(long, value_name = "FILE|DIR")]
    samples: Vec<PathBuf>,
    /// Stop at this many instructions
    #[arg(long, value_name = "N", default_value_t = 1000)]
    instructions: usize,
    /// Do so much work, search and certificate together: about so many seconds of a processor, and the same on every machine
    #[arg(long, value_name = "N", default_value = "9", value_parser = fuel)]
    fuel: u64,
    /// Stop after this time, whatever was found by then: what comes out depends on the machine
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<Duration>,
    /// Certify on the software CPU alone, even where KVM can be used
    #[arg(long)]
    no_kvm: bool,
    /// Of a machine with a kernel: end where so many instructions have retired, or at the `end` of the recording (default: at the
    /// instruction that the kernel crashed at)
    #[arg(long, value_name = "N|end")]
    at: Option<At>,
    /// Of a machine with a kernel: the rings whose branches are recorded (default: kernel)
    #[arg(long, value_name = "kernel|user|both")]
    ring: Option<Rings>,
    /// Say why the search stopped, at which places, and which evidence would have helped
    #[arg(long)]
    explain: bool,
    /// Where every way back was refuted, write each refutation to this folder, for other solvers (they hold the program's
    /// memory)
    #[arg(long, value_name = "DIR")]
    smt_lib: Option<PathBuf>,
    /// Write the suffix to this file (it holds the program's memory: only its owner can read it)
    #[arg(short, long, value_name = "SUFFIX")]
    output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What of a core's crumbs is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing.
    Nothing,
    /// Which calls were made, where, in which order.
    Calls,
    /// And what had retired until then.
    Counts,
    /// And under which calls.
    Contexts,
}

/// The system calls that the crumbs of a core tell of; `executable` is the program that left it, if that is known.
pub(crate) fn anchors(core: &Core, executable: Option<&[u8]>, used: Use) -> Result<Anchors, Failure> {
    let damaged = |why: &dyn Display, without: &str| {
        let message =
            format!("{}: {why} (`gretel synth --crumbs {without}` does without)", core.path.display());
        Failure::new(Code::Damaged, message)
    };
    let of_core = || Anchors::of_core(core).map_err(|why| damaged(&why, "none"));
    match used {
        Use::Nothing => Ok(Anchors::NONE),
        Use::Calls => of_core().map(Anchors::without_counts),
        Use::Counts => of_core(),
        Use::Contexts => {
            let contexts = executable.map(|executable| Contexts::of_core(core, executable));
            let contexts = contexts.transpose().map_err(|why| damaged(&why, "counts"))?.flatten();
            let anchors = of_core()?;
            Ok(match contexts {
                Some(contexts) => anchors.with_contexts(contexts),
                None => anchors,
            })
        }
    }
}

/// What of the crumbs is to be used.
pub(crate) fn use_of_crumbs(text: &str) -> Result<Use, String> {
    match text {
        "none" => Ok(Use::Nothing),
        "calls" => Ok(Use::Calls),
        "counts" => Ok(Use::Counts),
        "contexts" => Ok(Use::Contexts),
        _ => Err("give none, calls, counts or contexts".to_owned()),
    }
}

/// A span of time. A year is more than anyone waits, and less than what clocks can count.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let span = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.filter(|span| *span <= LONGEST)
        .ok_or_else(|| "give seconds, such as 9 or 0.5, a year at most".to_owned())
}

/// Work, in units of [`::synth::fuel`].
pub(crate) fn fuel(text: &str) -> Result<u64, String> {
    let span = seconds(text).map_err(|_| "give a number, such as 9 or 0.5".to_owned())?;
    let microseconds = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Ok(microseconds.saturating_mul(UNITS_A_SECOND / 1_000_000))
}

/// Work as [`fuel`] reads it.
#[expect(clippy::cast_precision_loss, reason = "it is shown, and not computed with")]
pub(super) fn seconds_of(units: u64) -> f64 {
    units as f64 / UNITS_A_SECOND as f64
}

/// What [`seconds`] takes at most.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

impl Args {
    fn limits(&self) -> Limits {
        Limits { instructions: self.instructions, fuel: self.fuel, time: self.time }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    deep(|| run_deep(args))
}

/// Runs with the stack that synthesis needs.
pub(crate) fn deep(work: impl FnOnce() -> Outcome + Send) -> Outcome {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|e| Failure::new(Code::Host, format!("cannot get a stack of {STACK_BYTES} bytes: {e}")))?
            .join()
            .unwrap_or_else(|_| Err(Failure::new(Code::Other, "synthesis failed; please report this core")))
    })
}

fn run_deep(args: &Args) -> Outcome {
    if let Some(source) = Source::of(&args.input) {
        refuse_taken(args)?;
        return kernel::run(args, &source);
    }
    if args.at.is_some() || args.ring.is_some() {
        return Err(Failure::new(
            Code::Usage,
            "--at and --ring are for the recording of a machine with a kernel",
        ));
    }
    refuse_taken(args)?;
    let limits = args.limits();
    let opened = opened::open(&args.input, args.exe.as_deref(), &mut DebugFiles::new())?;
    let of_core = |why: &str| format!("{}: {why}", opened.core.path.display());
    opened::warn_of_damage(&opened.core);
    if opened.core.had_parallel_threads() {
        say!(
            "gretel: core {}: {} threads may have run at the same time; a suffix of the one that crashed holds if the others \
             changed nothing that it used",
            opened.core.path.display(),
            opened.core.threads.len()
        );
    }
    if opened.executable.is_none() {
        return Err(Failure::new(Code::Usage, of_core("which program is it? Name it with --exe")));
    }
    if opened.core.aux(AT_ENTRY).is_none() {
        let why = of_core("the core does not say where the program starts (AT_ENTRY)");
        return Err(Failure::new(Code::Damaged, why));
    }
    let (program, _) = opened.program().map_err(|why| Failure::new(Code::Damaged, why))?;
    let executable = opened.executable.as_ref().map(|(bytes, _)| bytes.as_slice());
    let core = &opened.core;
    let trail = trail(args, core)?;
    let (records, recorded) = usable(trail.as_ref())?;
    let anchors = anchors(core, executable, args.crumbs)?;
    let samples = samples::read(&args.samples, core)?;
    let interrupter = interrupter()?;
    let request = Request {
        core,
        program: &program,
        records: &records,
        recorded: &recorded,
        anchors: &anchors,
        samples: &samples,
        limits,
        kvm: !args.no_kvm,
        interrupter: &interrupter,
    };
    let synthesis =
        synthesize(&request, &mut progress(args.time)).map_err(|e| Failure::new(Code::Host, e))?;
    let explanation = args.explain.then(|| explain(&request, trail.as_ref(), &synthesis, of_program(args)));
    let refutations = match (&args.smt_lib, &synthesis.flips) {
        (Some(dir), Some(_)) => Some(refutations(&request, dir)?),
        (Some(dir), None) => {
            nothing_written(dir);
            None
        }
        (None, _) => None,
    };
    shown::report(args, core, &program, synthesis, &mut Beside { explanation, refutations, machine: None })
}

/// Says that `--smt-lib` has nothing to write.
fn nothing_written(dir: &Path) {
    say!("gretel: nothing is written to {}: not every way back was refuted", dir.display());
}

/// What a file that exists already is not overwritten by.
fn refuse_taken(args: &Args) -> Result<(), Failure> {
    let Some(taken) = args.output.as_deref().filter(|output| output.is_file()) else { return Ok(()) };
    let why = format!("{} exists already: name another file, or remove it", taken.display());
    Err(Failure::new(Code::Usage, why))
}

/// What Ctrl-C ends.
fn interrupter() -> Result<Interrupter, Failure> {
    let interrupter = Interrupter::new();
    interrupt::stop_on_signals(interrupter.clone())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    Ok(interrupter)
}

/// What was asked for beside the verdict.
struct Beside {
    explanation: Option<Explanation>,
    refutations: Option<Written>,
    /// Of a machine with a kernel: its recording, which the suffix is measured against.
    machine: Option<kernel::Truth>,
}

/// So many of a recording's last instructions are looked at for what records would cover.
const LOOKED_AT: u64 = 1 << 16;

/// The last instructions of a program's recording, if it is one.
fn of_program(args: &Args) -> Option<Result<Vec<u64>, String>> {
    args.input.is_dir().then(|| {
        let recording = Recording::open(&args.input).map_err(|e| e.to_string())?;
        let machine = engine::open_quietly(Choice::Auto, for_replay()).map_err(|e| e.to_string())?;
        tail_log(&recording, machine, LOOKED_AT).map_err(|e| e.to_string())
    })
}

/// Why the search came no further; `truth` is what ran, where there is a recording.
fn explain(
    request: &Request<'_>,
    trail: Option<&Trail>,
    synthesis: &Synthesis,
    truth: Option<Result<Vec<u64>, String>>,
) -> Explanation {
    let truth = truth.and_then(|truth| {
        truth.inspect_err(|why| say!("gretel: what records cover is not measured: {why}")).ok()
    });
    let records = trail.and_then(|trail| Some((usize::try_from(trail.depth).ok()?, trail.filter?)));
    let known = Known {
        program: request.program,
        crash: request.core.state.regs.rip,
        truth: truth.as_deref(),
        records,
        crumbs: request.anchors.len(),
    };
    Explanation::new(&known, synthesis)
}

/// Writes the refutations.
fn refutations(request: &Request<'_>, dir: &Path) -> Result<Written, Failure> {
    synth::refutations::write(request, dir).map_err(|error| {
        let code = match error {
            RefutationError::File { .. } => Code::Write,
            RefutationError::NotEmpty(_) => Code::Usage,
            RefutationError::Unfinished(_) => Code::Other,
        };
        Failure::new(code, error)
    })
}

/// The branch records to use: the core's own, or, of a recording, those that other options would have given.
fn trail(args: &Args, core: &Core) -> Result<Option<Trail>, Failure> {
    let own =
        core.trail().map_err(|e| Failure::new(Code::Damaged, format!("{}: {e}", core.path.display())))?;
    let wanted = args.records.unwrap_or_else(|| own.as_ref().map_or(0, |t| t.depth));
    if wanted == 0 {
        return Ok(None);
    }
    let filter = args.filter.or_else(|| own.as_ref().and_then(|t| t.filter)).unwrap_or(Filter::ANY);
    match own {
        Some(Trail { filter: None, .. }) if args.filter.is_none() => Err(Failure::new(
            Code::Usage,
            "the core does not say which branches were recorded: say it with --filter, or --records 0 does without",
        )),
        Some(own) if own.filter.is_none_or(|own| own == filter) && own.depth >= wanted => {
            Ok(Some(Trail { filter: Some(filter), ..own.newest(wanted) }))
        }
        _ if args.input.is_dir() => {
            let recording = Recording::open(&args.input).map_err(|e| Failure::new(Code::Damaged, e))?;
            let machine = engine::open_quietly(Choice::Auto, for_replay())?;
            let derived =
                derive(&recording, machine, wanted, filter).map_err(|e| Failure::new(Code::Damaged, e))?;
            Ok(Some(derived.trail))
        }
        Some(own) => Err(Failure::new(Code::Usage, other_records(&own))),
        None => Err(Failure::new(Code::Usage, "the core has no branch records; --records 0 does without")),
    }
}

/// That a core has not the records that were asked for.
fn other_records(own: &Trail) -> String {
    let (depth, filter) = (own.depth, shown_trail::filter_of(own));
    format!(
        "the core was made with fewer or other branch records: {depth} at most, filter {filter}; leave --records and --filter out for \
         these, or --records 0 does without"
    )
}

/// Branches (from, to), newest first, and the kinds of branches that are recorded.
pub(crate) type Usable = (Vec<(u64, u64)>, Vec<BranchKind>);

/// The records as the search takes them: newest first, up to the first gap.
pub(crate) fn usable(trail: Option<&Trail>) -> Result<Usable, Failure> {
    let Some((trail, filter)) = trail.and_then(|trail| Some((trail, trail.filter?))) else {
        return Ok((Vec::new(), Vec::new()));
    };
    if filter.is_call_stack() {
        let message = "call-stack records are not in the order of time; take others with --filter";
        return Err(Failure::new(Code::Usage, message));
    }
    let mut records = Vec::new();
    for record in trail.records.iter().rev().take_while(|record| !record.from_is_hidden()) {
        // The way into the kernel, by a call or by the crash itself, is no branch of the program, nor is the way back.
        let in_kernel = |address: u64| address >> 63 != 0;
        if !in_kernel(record.from) && !in_kernel(record.to) {
            records.push((record.from, record.to));
        }
        if record.after_gap {
            break;
        }
    }
    let near = BranchKind::ALL.into_iter().filter(|&kind| kind != BranchKind::Far);
    Ok((records, near.filter(|&kind| filter.records(kind, false)).collect()))
}

/// Shows how far the search is, where stderr is a terminal.
fn progress(time: Option<Duration>) -> impl FnMut(usize, usize) {
    let begin = Instant::now();
    let bar = if io::stderr().is_terminal() {
        indicatif::ProgressBar::new_spinner()
    } else {
        indicatif::ProgressBar::hidden()
    };
    move |now, longest| {
        let so_far = begin.elapsed();
        let left = time.map(|time| format!(" ({} s left)", time.saturating_sub(so_far).as_secs()));
        bar.set_message(format!(
            "{longest} instructions back; now at {now}; {} s{}",
            so_far.as_secs(),
            left.unwrap_or_default()
        ));
        bar.tick();
    }
}
