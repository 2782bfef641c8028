//! `gretel bench synth`: what each kind of branch record buys in synthesis.

use super::measure::{self, Spread};
use super::resident;
use super::{plots, reach};
use crate::Outcome;
use crate::exit::{Code, Failure};
use crate::log::say;
use ::synth::report::metrics::Band;
use lbr::{Crumbs, Filter};
use serde_json::Value;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use vmm::elfcore::Core;
use vmm::engine::Interrupter;
use vmm::interrupt;

/// Measure what each kind of branch record buys: how far back synthesis comes, and how much of it is true
///
/// Every crash is synthesized with every kind of records, each time by a `gretel synth` of its own, and what it finds is
/// compared with the recording. The figures are over all crashes: a crash of which nothing was certified counts with no true
/// instruction.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel bench synth crashes/
  gretel bench synth --records 0,32,32:ret-ind --fuel 20 gretel-prog-1 gretel-prog-2
  gretel bench synth --records 0+counts,0+contexts,32+counts,32+contexts crashes/
  gretel bench synth --json crashes/ > reach.json

What +contexts needs is in recordings that were made with --contexts (scripts/crashes.sh --contexts makes such); with another \
recording it is refused.

A value is unmarked when it is wrong and the suffix does not say that it was chosen: each is a bug of gretel's.

Debugging fidelity is 1 where the suffix is what happened, 1/2 where it is another way to the same crash, 0 where there is \
none; efficiency is what a replay takes, in place of the execution itself, by what synthesis takes; utility is their product \
(Zamfir's thesis, 3.2). They are means over the crashes.

Exit codes:
  0    all was measured
  120  the command line is wrong
  123  there is no recording of a crash
  125  what synth finds cannot be kept
  126  it was interrupted")]
pub(crate) struct Args {
    /// The kinds of records: how many, which branches they record if not all, what of the crumbs goes with them (as
    /// `gretel synth` has them), and whether samples of the recording's branches do, none of them of its end
    #[arg(
        long,
        value_name = "N[:FILTER][+calls|+counts|+contexts][+samples],...",
        value_delimiter = ',',
        default_value = "0,0+counts,0+samples,16,32,32+counts,32+samples,32:no-jcc,32:ret-ind,32:ret-ind+counts,32:ret-ind+samples"
    )]
    records: Vec<Evidence>,
    /// The work that one synthesis may do, as `gretel synth` counts it
    #[arg(long, value_name = "N", default_value = "20", value_parser = crate::synth::seconds)]
    fuel: std::time::Duration,
    /// So many instructions back are enough
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    instructions: usize,
    /// One sample every so many instructions, none of the last so many. The programs that crash here run for a moment, of which perf
    /// record would take a hundred samples; of a service it takes thousands in a second
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    period: u64,
    /// With --json, also say of each crash where its search left what ran (one more replay each)
    #[arg(long, requires = "json")]
    explain: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw reach.svg and values.svg in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Recordings of programs that crashed, or folders of such
    #[arg(required = true, value_name = "DIR")]
    crashes: Vec<PathBuf>,
}

/// A kind of records.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    records: u32,
    filter: Option<String>,
    /// What of the crumbs is used, as `gretel synth` has it.
    crumbs: String,
    /// Samples of the recording's branches are used.
    samples: bool,
}

impl std::str::FromStr for Evidence {
    type Err = String;

    fn from_str(text: &str) -> Result<Evidence, String> {
        let mut parts = text.split('+');
        let text = parts.next().unwrap_or_default();
        let (samples, crumbs): (Vec<_>, Vec<_>) = parts.partition(|part| *part == "samples");
        let crumbs = match crumbs[..] {
            [] => "none",
            [crumbs] => crumbs,
            _ => return Err("give one of calls, counts and contexts: each has those before it".to_owned()),
        };
        crate::synth::use_of_crumbs(crumbs)?;
        let (records, filter) = text.split_once(':').map_or((text, None), |(n, filter)| (n, Some(filter)));
        if let Some(filter) = filter {
            filter.parse::<Filter>().map_err(|error| error.to_string())?;
        }
        let (filter, crumbs) = (filter.map(str::to_owned), crumbs.to_owned());
        let (records, samples) = (crate::trail::parse_records(records)?, !samples.is_empty());
        Ok(Evidence { records, filter, crumbs, samples })
    }
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.records, &self.filter) {
            (0, _) => f.write_str("none")?,
            (records, None) => write!(f, "{records}")?,
            (records, Some(filter)) => write!(f, "{records} of {filter}")?,
        }
        if self.crumbs != "none" {
            write!(f, ", {}", self.crumbs)?;
        }
        if self.samples { f.write_str(", samples") } else { Ok(()) }
    }
}

/// What came of one crash with one kind of records.
pub(super) struct Case {
    pub(super) crash: PathBuf,
    /// What synth printed; `None` if that was nothing of use, as it is said in `failed`.
    pub(super) found: Option<Value>,
    pub(super) failed: Option<String>,
    pub(super) seconds: f64,
    /// What a replay takes, in seconds; `None` if the recording does not replay.
    pub(super) original: Option<f64>,
    /// The most memory that it had, in bytes.
    pub(super) peak_memory: Option<u64>,
}

impl Case {
    fn number(&self, path: &str) -> Option<u64> {
        self.found.as_ref()?.pointer(path)?.as_u64()
    }

    /// How it was judged.
    pub(super) fn verdict(&self) -> &str {
        self.found.as_ref().and_then(|found| found.get("verdict")?.as_str()).unwrap_or("failed")
    }

    /// The length of the suffix, in instructions.
    pub(super) fn certified(&self) -> u64 {
        self.number("/listing/summary/instructions").unwrap_or(0)
    }

    /// How many of the last instructions are forced.
    pub(super) fn forced(&self) -> u64 {
        self.number("/listing/summary/forced").unwrap_or(0)
    }

    /// The debugging fidelity; `None` if there was nothing to compare with.
    pub(super) fn fidelity(&self) -> Option<f64> {
        match self.is_true()? {
            _ if self.certified() == 0 => Some(0.0),
            common if common == self.certified() => Some(1.0),
            _ => Some(0.5),
        }
    }

    /// The debugging efficiency.
    pub(super) fn efficiency(&self) -> Option<f64> {
        self.original.map(|original| original / self.seconds)
    }

    /// The values that were used, by how far from the crash.
    pub(super) fn bands(&self) -> Vec<Band> {
        let bands = self.found.as_ref().and_then(|found| found.pointer("/metrics/distances"));
        bands.and_then(|bands| serde_json::from_value(bands.clone()).ok()).unwrap_or_default()
    }

    /// How many of the last instructions are the true ones; `None` if there was nothing to compare with.
    pub(super) fn is_true(&self) -> Option<u64> {
        if self.certified() == 0 { Some(0) } else { self.number("/metrics/path/common") }
    }

    /// Whether all the records are covered, and there were some.
    pub(super) fn covers_all(&self) -> bool {
        let records = |name| self.number(&format!("/listing/summary/{name}"));
        records("given").is_some_and(|given| given > 0 && records("records") >= Some(given))
    }

    /// Values used: right, wrong, and of these unmarked.
    pub(super) fn values(&self) -> [u64; 3] {
        let [right, wrong, chosen] = ["right", "wrong", "chosen"]
            .map(|name| self.number(&format!("/metrics/uses/{name}")).unwrap_or(0));
        [right, wrong, wrong - chosen.min(wrong)]
    }
}

/// All crashes with one kind of records.
pub(super) struct Results {
    pub(super) evidence: Evidence,
    pub(super) cases: Vec<Case>,
}

impl Results {
    /// The median, the least and the most of a figure.
    pub(super) fn spread(&self, figure: impl Fn(&Case) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.cases.iter().filter_map(figure))
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let crashes = crashes(&args.crashes)?;
    if args.records.iter().any(|evidence| evidence.crumbs == "contexts") {
        crashes.iter().try_for_each(|crash| refuse_without_contexts(crash))?;
    }
    let dir = tempfile::Builder::new().prefix("gretel-bench-").tempdir().map_err(cannot_keep)?;
    let progress = if io::stderr().is_terminal() {
        indicatif::ProgressBar::new((crashes.len() * args.records.len()) as u64)
    } else {
        indicatif::ProgressBar::hidden()
    };
    let stop = Interrupter::new();
    interrupt::stop_on_signals(stop.clone())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let originals: Vec<_> =
        crashes.iter().map(|crash| replay(crash)).collect::<io::Result<_>>().map_err(cannot_keep)?;
    let samples_of = |n: usize| dir.path().join(format!("samples-{n}"));
    if args.records.iter().any(|evidence| evidence.samples) {
        for (n, crash) in crashes.iter().enumerate() {
            sample(args, crash, &samples_of(n)).map_err(cannot_keep)?;
            if stop.is_raised() {
                return Err(interrupted());
            }
        }
    }
    let mut results = Vec::new();
    for evidence in &args.records {
        let mut cases = Vec::new();
        for (n, (crash, original)) in crashes.iter().zip(&originals).enumerate() {
            let samples = samples_of(n);
            let case = synthesize(args, evidence, crash, &samples, &dir.path().join("found"))
                .map_err(cannot_keep)?;
            cases.push(Case { original: *original, ..case });
            if stop.is_raised() {
                return Err(interrupted());
            }
            progress.inc(1);
        }
        results.push(Results { evidence: evidence.clone(), cases });
    }
    progress.finish_and_clear();
    if let Some(dir) = &args.plots {
        plots::draw(&results, dir).map_err(|error| {
            Failure::new(Code::Write, format!("cannot draw in {}: {error}", dir.display()))
        })?;
    }
    reach::print(&results, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// The recordings of crashes among these folders and right below them.
fn crashes(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let is_crash = |dir: &Path| dir.join("core").is_file() && dir.join("journal").is_file();
    let mut found = Vec::new();
    for dir in given {
        if is_crash(dir) {
            found.push(dir.clone());
            continue;
        }
        let entries = fs::read_dir(dir).map_err(|error| {
            Failure::new(Code::Damaged, format!("cannot read {}: {error}", dir.display()))
        })?;
        let before = found.len();
        found.extend(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_crash(path)));
        found[before..].sort();
        if found.len() == before {
            let why = format!("{} is no recording of a crash, and has none in it", dir.display());
            return Err(Failure::new(Code::Damaged, why));
        }
    }
    Ok(found)
}

/// Refuses a crash without calling contexts: a column of them would show what they do not buy.
fn refuse_without_contexts(crash: &Path) -> Result<(), Failure> {
    let damaged = |why: &dyn Display| Failure::new(Code::Damaged, format!("{}: {why}", crash.display()));
    let core = Core::open(&crash.join("core")).map_err(|error| damaged(&error))?;
    let crumbs = core.crumbs().map_err(|error| damaged(&error))?;
    let table = core.contexts().map_err(|error| damaged(&error))?;
    let has_any = |crumbs: &Crumbs| crumbs.entries.iter().any(|entry| entry.crumb.context.is_some());
    match (table, crumbs.as_ref().is_some_and(has_any)) {
        (Some(_), true) => Ok(()),
        (Some(_), false) => Err(damaged(
            &"no crumb has a context, since no stack could be walked; +contexts has nothing to measure",
        )),
        (None, _) => Err(damaged(&"it was recorded without --contexts, which +contexts measures")),
    }
}

/// How long a replay takes, in seconds, if it succeeds.
fn replay(crash: &Path) -> io::Result<Option<f64>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("replay").arg(crash).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (seconds, status) = measure::time(&mut command)?;
    Ok((status == 0).then_some(seconds))
}

fn interrupted() -> Failure {
    Failure::new(Code::Other, "interrupted: nothing is shown of what was measured")
}

/// Samples the branches of a recording. Where that fails, stderr says why, and there is no file.
fn sample(args: &Args, crash: &Path, file: &Path) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["export", "--samples", "--period", &args.period.to_string(), "--output"])
        .arg(file)
        .arg(crash);
    let sampled = command.stdin(Stdio::null()).output()?;
    if sampled.status.success() {
        return Ok(());
    }
    say!("gretel: without samples: {}", String::from_utf8_lossy(&sampled.stderr).trim());
    fs::remove_file(file).or(Ok(()))
}

/// Runs `gretel synth` on a crash; what it prints goes through `file`. `samples` are those of its branches.
fn synthesize(
    args: &Args,
    evidence: &Evidence,
    crash: &Path,
    samples: &Path,
    file: &Path,
) -> io::Result<Case> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["synth", "--json", "--records", &evidence.records.to_string()]);
    command.args(["--crumbs", &evidence.crumbs]);
    command.args(["--fuel", &args.fuel.as_secs_f64().to_string()]);
    command.args(["--instructions", &args.instructions.to_string()]);
    command.args(evidence.filter.iter().flat_map(|filter| ["--filter", filter]));
    command.args(args.explain.then_some("--explain"));
    if evidence.samples && samples.is_file() {
        command.arg("--samples").arg(samples);
    }
    let messages = file.with_extension("messages");
    command.arg(crash).stdin(Stdio::null()).stdout(File::create(file)?).stderr(File::create(&messages)?);
    let start = Instant::now();
    let (_, peak_memory) = resident::wait(command.spawn()?)?;
    let seconds = start.elapsed().as_secs_f64();
    let found: Option<Value> = serde_json::from_slice(&fs::read(file)?).ok();
    let said = || String::from_utf8_lossy(&fs::read(&messages).unwrap_or_default()).trim().to_owned();
    let failed = found.is_none().then(said);
    Ok(Case { crash: crash.to_owned(), found, failed, seconds, original: None, peak_memory })
}

fn cannot_keep(error: impl Display) -> Failure {
    Failure::new(Code::Write, format!("cannot measure: {error}"))
}
