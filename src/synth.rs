//! `gretel synth`: works backwards from a core to a certified execution suffix.

use crate::Outcome;
use crate::core_file;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::outline::Outline;
use crate::output::print;
use ::synth::certificate::Certificate;
use ::synth::evidence::Anchors;
use ::synth::flips::{Flip, Flips};
use ::synth::fuel::UNITS_A_SECOND;
use ::synth::program::Program;
use ::synth::report::Listing;
use ::synth::report::metrics::{self, Metrics};
use ::synth::search::{Limits, Statistics, Stop};
use ::synth::suffix::Suffix;
use ::synth::synthesis::{Request, STACK_BYTES, Synthesis, Verdict, synthesize};
use lbr::{Filter, Trail};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vmm::elfcore::{AT_ENTRY, Core};
use vmm::engine::Interrupter;
use vmm::interrupt;
use vmm::recording::Recording;
use vmm::trail::derive;
use x86::op::BranchKind;

/// Work backwards from a core to the execution that led there
///
/// Finds an execution suffix, as long as the limits allow: a start (registers and memory), the answers of the kernel, and
/// a path of instructions that ends in exactly this core. It is shown only with its certificate: it was run forward on
/// the software CPU, and under KVM where it can be used, and every byte and register came out as the core has them.
/// Of a recording, the end is run again to say how much of the suffix is what really happened.
/// Ctrl-C ends the search and shows what of it can be certified; a second one takes the best certificate so far.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel synth gretel-prog-1                         with the core's own 16 branch records
  gretel synth --records 32 --filter ret-ind DIR     what 32 records of returns and indirect branches would give
  gretel synth --records 0 --exe ./prog core.1234    from a kernel's core alone
  gretel synth -o suffix.json DIR                    keep the suffix

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
    /// How many branch records to use (default: those of the core)
    #[arg(long, value_name = "0|16|32", value_parser = crate::trail::parse_records)]
    records: Option<u32>,
    /// Which branches they record: any, no-jcc, calls, ret-ind, indirect, or LBR_SELECT in hexadecimal (default: as in the
    /// core)
    #[arg(long, value_name = "FILTER")]
    filter: Option<Filter>,
    /// What of the core's crumbs to use: nothing, the system calls, or also what had retired at each
    #[arg(long, value_name = "none|calls|counts", default_value = "counts", value_parser = use_of_crumbs)]
    crumbs: Use,
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
}

/// The system calls that the crumbs of a core tell of.
pub(crate) fn anchors(core: &Core, used: Use) -> Result<Anchors, Failure> {
    let of_core = || {
        let damaged = |e| {
            let message = format!("{}: {e} (`gretel synth --crumbs none` does without)", core.path.display());
            Failure::new(Code::Damaged, message)
        };
        Anchors::of_core(core).map_err(damaged)
    };
    match used {
        Use::Nothing => Ok(Anchors::NONE),
        Use::Calls => of_core().map(Anchors::without_counts),
        Use::Counts => of_core(),
    }
}

/// What of the crumbs is to be used.
pub(crate) fn use_of_crumbs(text: &str) -> Result<Use, String> {
    match text {
        "none" => Ok(Use::Nothing),
        "calls" => Ok(Use::Calls),
        "counts" => Ok(Use::Counts),
        _ => Err("give none, calls or counts".to_owned()),
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
fn seconds_of(units: u64) -> f64 {
    units as f64 / UNITS_A_SECOND as f64
}

/// What [`seconds`] takes at most.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

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
    let limits = Limits { instructions: args.instructions, fuel: args.fuel, time: args.time };
    let opened = core_file::open(&args.input, args.exe.as_deref())?;
    let of_core = |why: &str| format!("{}: {why}", opened.core.path.display());
    core_file::warn_of_damage(&opened.core);
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
    let core = opened.core;
    let trail = trail(args, &core)?;
    let (records, recorded) = usable(trail.as_ref())?;
    let anchors = anchors(&core, args.crumbs)?;
    let interrupter = Interrupter::new();
    interrupt::stop_on_signals(interrupter.clone())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let request = Request {
        core: &core,
        program: &program,
        records: &records,
        recorded: &recorded,
        anchors: &anchors,
        limits,
        kvm: !args.no_kvm,
        interrupter: &interrupter,
    };
    let synthesis = synthesize(&request, &mut progress()).map_err(|e| Failure::new(Code::Host, e))?;
    report(args, &core, &program, synthesis)
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
            let derived = derive(&recording, wanted, filter).map_err(|e| Failure::new(Code::Damaged, e))?;
            Ok(Some(derived.trail))
        }
        Some(_) => Err(Failure::new(
            Code::Usage,
            "the core was made with fewer or other branch records; --records 0 does without",
        )),
        None => Err(Failure::new(Code::Usage, "the core has no branch records; --records 0 does without")),
    }
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
fn progress() -> impl FnMut(usize, usize) {
    let bar = if io::stderr().is_terminal() {
        indicatif::ProgressBar::new_spinner()
    } else {
        indicatif::ProgressBar::hidden()
    };
    move |now, longest| {
        bar.set_message(format!("{longest} instructions back; now at {now}"));
        bar.tick();
    }
}

fn report(args: &Args, core: &Core, program: &Program, synthesis: Synthesis) -> Outcome {
    let Synthesis { verdict, flips, searched, stop, statistics, fuel } = synthesis;
    let search = Searched { searched, stop, statistics: &statistics, flips: flips.as_ref(), fuel };
    match verdict {
        Verdict::Certified(suffix, certificate) => {
            if let Some(path) = &args.output {
                suffix.save(path).map_err(|e| Failure::new(Code::Write, e))?;
            }
            show(args, core, program, &suffix, &certificate, search)?;
            if suffix.len() < searched && !args.json {
                let certified = suffix.len();
                say!(
                    "gretel: the search came {searched} instructions back; certified are the last {certified}"
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        Verdict::Infeasible { depth } => {
            let why = format!(
                "every way back dies within {depth} instructions: no execution of this program ends in this core. A hardware \
                 error, a damaged core or another build of the program is likely"
            );
            without_suffix(args, "infeasible", &why, search)?;
            Ok(ExitCode::from(1))
        }
        Verdict::Inconclusive { why } => {
            without_suffix(args, "inconclusive", &why, search)?;
            Ok(ExitCode::from(2))
        }
    }
}

/// What the search did.
#[derive(Clone, Copy)]
struct Searched<'a> {
    /// How many instructions back it came.
    searched: usize,
    /// Why it stopped.
    stop: Stop,
    statistics: &'a Statistics,
    /// The bits that would explain the core, if it found that it cannot be.
    flips: Option<&'a Flips>,
    /// All the work, in units of [`::synth::fuel`].
    fuel: u64,
}

fn show(
    args: &Args,
    core: &Core,
    program: &Program,
    suffix: &Suffix,
    certificate: &Certificate,
    search: Searched<'_>,
) -> Result<(), Failure> {
    let listing =
        Listing::new(program, core, suffix, certificate).map_err(|e| Failure::new(Code::Other, e))?;
    let metrics = measure(args, suffix, &listing);
    let outline = Outline::new(&anchors(core, args.crumbs)?, certificate.crumbs[0], program);
    if args.json {
        let listing = serde_json::to_value(&listing).map_err(|e| Failure::new(Code::Other, e))?;
        let object = json!({
            "verdict": "certified", "search": search_json(search), "listing": listing, "outline": outline.to_json(),
            "metrics": metrics
        });
        print(format_args!("{object}\n"))?;
        Ok(())
    } else {
        print(format_args!("{listing}"))?;
        if !outline.is_empty() {
            print(format_args!("\n{outline}"))?;
        }
        if let Some(metrics) = &metrics {
            print(format_args!("\n{metrics}"))?;
        }
        say_why_it_stopped(search);
        Ok(())
    }
}

/// The suffix against the recording, where there is one.
fn measure(args: &Args, suffix: &Suffix, listing: &Listing) -> Option<Metrics> {
    if !args.input.is_dir() {
        return None;
    }
    let recording = Recording::open(&args.input).map_err(|e| e.to_string());
    let measured = recording.and_then(|it| metrics::measure(&it, suffix, listing).map_err(|e| e.to_string()));
    measured.inspect_err(|why| say!("gretel: the suffix is not compared with the recording: {why}")).ok()
}

fn without_suffix(args: &Args, verdict: &str, why: &str, search: Searched<'_>) -> Result<(), Failure> {
    if args.json {
        print(format_args!(
            "{}\n",
            json!({ "verdict": verdict, "why": why, "search": search_json(search) })
        ))?;
        return Ok(());
    }
    print(format_args!("{verdict}: {why}\n"))?;
    say_why_it_stopped(search);
    Ok(())
}

fn stop_text(stop: Stop) -> &'static str {
    match stop {
        Stop::Instructions => "the search came as far back as --instructions allows",
        Stop::Fuel => "the fuel of --fuel is used up",
        Stop::Time => "the time of --time is over",
        Stop::Interrupted => "the search was interrupted",
        Stop::Exhausted => "every way further back was tried",
        Stop::ProgramStart => "the search came to the program's first instruction",
    }
}

fn say_why_it_stopped(Searched { stop, statistics, flips, .. }: Searched<'_>) {
    say!(
        "gretel: {}; {} instructions tried, {} refuted at once, {} questions to the solver ({} refuted, {} unanswered)",
        stop_text(stop),
        statistics.prepended,
        statistics.refuted,
        statistics.solver_calls,
        statistics.solver_refuted,
        statistics.solver_unknown
    );
    let mut barriers: Vec<_> = statistics.barriers.iter().collect();
    barriers.sort_by_key(|(why, times)| (std::cmp::Reverse(**times), **why));
    for (why, times) in barriers {
        say!("gretel: the search did not go past: {why} ({times} times)");
    }
    if let Some(flips) = flips {
        say_flips(flips);
    }
}

/// Which single bit may be wrong.
fn say_flips(Flips { explain, tried, all }: &Flips) {
    for Flip { bit, certified } in explain {
        say!("gretel: {bit} turned explains this core: {certified} instructions are certified with it");
    }
    if explain.is_empty() {
        say!("gretel: no single bit explains this core ({tried} of {all} were turned)");
    } else if tried < all {
        say!("gretel: {tried} of {all} bits were turned");
    }
}

fn flips_json(Flips { explain, tried, all }: &Flips) -> serde_json::Value {
    let explain: Vec<_> = explain
        .iter()
        .map(|flip| json!({ "bit": flip.bit.to_string(), "certified": flip.certified }))
        .collect();
    json!({ "explain": explain, "tried": tried, "all": all })
}

fn search_json(Searched { searched, stop, statistics, flips, fuel }: Searched<'_>) -> serde_json::Value {
    json!({
        "searched": searched,
        "stopped": stop_text(stop),
        "fuel": seconds_of(fuel),
        "instructions_tried": statistics.prepended,
        "refuted_by_propagation": statistics.refuted,
        "solver_questions": statistics.solver_calls,
        "solver_refuted": statistics.solver_refuted,
        "solver_unanswered": statistics.solver_unknown,
        "flips": flips.map(flips_json),
        "barriers": statistics.barriers.iter().map(|(why, times)| ((*why).to_owned(), json!(times))).collect::<serde_json::Map<_, _>>(),
    })
}
