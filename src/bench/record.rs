//! `gretel bench record`: what each kind of record costs, against the program without gretel.

use super::costs;
use super::measure::{self, Spread};
use super::programs::{self, Missing, Program};
use super::resident;
use super::table;
use crate::Outcome;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use vmm::engine::{EngineKind, Interrupter};
use vmm::interrupt;
use vmm::probe::Report;

/// Measure what each kind of record costs: time, memory, bytes per second
///
/// Each program runs without gretel, in the virtual machine with nothing recorded, and recorded: the journal alone, with
/// crumbs, and with crumbs and counters, branch records of each source, or contexts. A round runs all of them one after
/// the other, every second round backwards, so that a ratio is of two runs that saw the same machine. Without PROG, a
/// few programs are measured that this machine has or can compile: they compute, make system calls, crash, and
/// work through a text.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel bench record
  gretel bench record --rounds 9 --json --plots drawn > costs.json
  gretel bench record --engine soft --rounds 1 -- ./prog input.txt
  gretel bench record --stdin names -- busybox sort

What this host does not have is listed with the reason, and not measured. The journal is written \
with all but the first two. Peak memory is the most that a process has resident, taken in a round \
of its own; under KVM the program's memory is mapped twice and counts twice.

Exit codes:
  0    all was measured that this host has
  120  the command line is wrong
  121  PROG cannot be run
  122  there is no KVM, and --engine kvm
  125  the recordings or the drawing cannot be written
  126  a program did not end as it does without gretel")]
pub(crate) struct Args {
    /// What runs the programs
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Rounds; the figures are their medians
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// What PROG reads as its standard input (default: nothing)
    #[arg(long, value_name = "FILE", requires = "program")]
    stdin: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw costs.svg in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// The program (searched in PATH) and its arguments
    #[arg(last = true, value_name = "PROG")]
    program: Vec<OsString>,
}

/// What is recorded of a program.
pub(super) struct Variant {
    /// As the table names it.
    pub(super) name: &'static str,
    how: How,
}

/// How gretel is run.
enum How {
    /// Not at all: the program itself.
    Native,
    /// Nothing is recorded.
    Bare,
    /// Recorded with these options.
    Record(&'static [&'static str]),
    /// This host does not have it.
    Missing(String),
}

/// What was measured of one program.
pub(super) struct Measured {
    pub(super) program: String,
    pub(super) costs: Vec<(&'static str, Result<Cost, String>)>,
}

/// What a variant costs.
pub(super) struct Cost {
    pub(super) seconds: Spread,
    /// The time against that of the program itself in the same round.
    pub(super) ratio: Spread,
    /// Bytes; nothing of what ends too soon to be looked at.
    pub(super) peak_memory: Option<u64>,
    /// Bytes of the journal; nothing where there is none.
    pub(super) journal: Option<u64>,
}

impl Cost {
    pub(super) fn journal_per_second(&self) -> Option<f64> {
        self.journal.map(|bytes| bytes as f64 / self.seconds.median)
    }
}

/// All that `bench record` has to tell.
pub(super) struct Results {
    pub(super) engine: &'static str,
    pub(super) processor: Option<String>,
    /// The load of the machine over the last minute, before and after.
    pub(super) load: [Option<f64>; 2],
    pub(super) rounds: u32,
    pub(super) programs: Vec<Measured>,
    pub(super) missing: Vec<Missing>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let report = Report::new();
    let engine = engine(args.engine, &report)?;
    if let Some(Err(error)) = args.stdin.as_ref().map(File::open) {
        return Err(Failure::new(Code::Usage, format!("the file of --stdin cannot be read: {error}")));
    }
    let dir = tempfile::Builder::new().prefix("gretel-bench-").tempdir().map_err(cannot_write)?;
    let (programs, missing) = match args.program.as_slice() {
        [] => programs::built_in(dir.path()).map_err(cannot_write)?,
        given => {
            let program = Program::given(given, args.stdin.as_deref());
            (vec![program.map_err(|why| Failure::new(Code::Program, why))?], Vec::new())
        }
    };
    let stop = Interrupter::new();
    interrupt::stop_on_signals(stop.clone())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let load = load();
    let variants = variants(engine, &report);
    let bench = Bench { choice: args.engine, rounds: args.rounds, variants, dir: dir.path(), stop };
    let progress = bench.progress(programs.len());
    let mut measured = Vec::new();
    for program in &programs {
        progress.set_message(program.name.clone());
        measured.push(bench.measure(program, &progress)?);
    }
    progress.finish_and_clear();
    let failed =
        measured.iter().any(|m| m.costs.iter().any(|(name, cost)| cost.is_err() && !bench.lacks(name)));
    let results = Results {
        engine: args.engine.name(),
        processor: processor(),
        load: [load, self::load()],
        rounds: args.rounds,
        programs: measured,
        missing,
    };
    if let Some(dir) = &args.plots {
        costs::draw(&results, dir).map_err(|error| {
            Failure::new(Code::Write, format!("cannot draw in {}: {error}", dir.display()))
        })?;
    }
    table::print(&results, args.json)?;
    Ok(if failed { Code::Other.into() } else { ExitCode::SUCCESS })
}

/// The engine that was asked for, if it is there.
fn engine(choice: Choice, report: &Report) -> Result<EngineKind, Failure> {
    match (choice, &report.kvm) {
        (Choice::Kvm, Err(why)) => Err(Failure::new(Code::Host, why)),
        (Choice::Soft, _) => Ok(EngineKind::Soft),
        (Choice::Kvm | Choice::Auto, _) => Ok(report.engine()),
    }
}

/// What is measured, what it is compared with first.
fn variants(engine: EngineKind, report: &Report) -> Vec<Variant> {
    let lacking = |available: Result<(), String>, options| match available {
        Ok(()) => How::Record(options),
        Err(why) => How::Missing(why),
    };
    let kvm = match (engine, &report.kvm) {
        (EngineKind::Kvm, Ok(kvm)) => Ok(kvm),
        (EngineKind::Kvm, Err(why)) => Err(why.clone()),
        (EngineKind::Soft, _) => Err("the software CPU executes the program".to_owned()),
    };
    let counters = match (engine, &kvm) {
        (EngineKind::Soft, _) => Err("the software CPU counts all the same".to_owned()),
        (_, Ok(kvm)) => kvm.counters.as_ref().map(drop).map_err(Clone::clone),
        (_, Err(why)) => Err(why.clone()),
    };
    let records = kvm.and_then(|kvm| kvm.branch_records.as_ref().map(drop).map_err(Clone::clone));
    let perf = Err(report.guest_stacks.to_string());
    let named = |name, how| Variant { name, how };
    vec![
        named("without gretel", How::Native),
        named("nothing", How::Bare),
        named("journal", How::Record(&["--records=0", "--no-crumbs", "--no-counters"])),
        named("+ crumbs", How::Record(&["--records=0", "--no-counters"])),
        named("+ crumbs, counters", lacking(counters, &["--records=0"])),
        named(
            "+ crumbs, branch records (kvm)",
            lacking(records, &["--records=32", "--branch-records=kvm", "--no-counters"]),
        ),
        named("+ crumbs, branch records (perf)", lacking(perf, &["--records=32", "--branch-records=perf"])),
        named(
            "+ crumbs, branch records (derived)",
            How::Record(&["--records=32", "--branch-records=derived", "--no-counters"]),
        ),
        named("+ crumbs, contexts", How::Record(&["--records=0", "--contexts", "--no-counters"])),
    ]
}

/// Runs programs in all variants.
struct Bench<'a> {
    choice: Choice,
    rounds: u32,
    variants: Vec<Variant>,
    /// Where recordings go; it is removed at the end, also after Ctrl-C.
    dir: &'a Path,
    stop: Interrupter,
}

impl Bench<'_> {
    fn lacks(&self, name: &str) -> bool {
        self.variants.iter().any(|variant| variant.name == name && matches!(variant.how, How::Missing(_)))
    }

    /// A step for each run.
    fn progress(&self, programs: usize) -> indicatif::ProgressBar {
        if !io::stderr().is_terminal() {
            return indicatif::ProgressBar::hidden();
        }
        let there = self.variants.iter().filter(|variant| !matches!(variant.how, How::Missing(_))).count();
        let runs = programs as u64 * there as u64 * (u64::from(self.rounds) + 1);
        let style = indicatif::ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} to go: {msg}");
        indicatif::ProgressBar::new(runs)
            .with_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()))
    }

    /// One round for the memory, which warms up as well, then those for the time.
    fn measure(&self, program: &Program, progress: &indicatif::ProgressBar) -> Result<Measured, Failure> {
        let mut samples: Vec<Sample> = self.variants.iter().map(Sample::of).collect();
        let native = self.command(program, &How::Native).and_then(|mut command| measure::time(&mut command));
        let (_, expected) = native
            .map_err(|error| Failure::new(Code::Program, format!("cannot run {}: {error}", program.name)))?;
        self.go_on()?;
        for round in 0..=self.rounds {
            let mut order: Vec<usize> = (0..self.variants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for n in order {
                let (variant, sample) = (&self.variants[n], &mut samples[n]);
                if sample.failed.is_some() {
                    continue;
                }
                let ran = if round == 0 {
                    self.weigh(program, variant, sample)
                } else {
                    self.time(program, variant, sample, expected)
                };
                ran.map_err(|error| cannot_write(format!("{}, {}: {error}", program.name, variant.name)))?;
                self.go_on()?;
                progress.inc(1);
            }
        }
        let native = samples[0].seconds.clone();
        let costs = self.variants.iter().zip(samples).map(|(v, sample)| (v.name, sample.cost(&native)));
        Ok(Measured { program: program.name.clone(), costs: costs.collect() })
    }

    /// Whether nobody has pressed Ctrl-C.
    fn go_on(&self) -> Result<(), Failure> {
        let message = "interrupted: nothing is shown of what was measured";
        if self.stop.is_raised() { Err(Failure::new(Code::Other, message)) } else { Ok(()) }
    }

    fn weigh(&self, program: &Program, variant: &Variant, sample: &mut Sample) -> io::Result<()> {
        (_, sample.peak_memory) = resident::wait(self.command(program, &variant.how)?.spawn()?)?;
        Ok(())
    }

    fn time(
        &self,
        program: &Program,
        variant: &Variant,
        sample: &mut Sample,
        expected: i32,
    ) -> io::Result<()> {
        let (seconds, code) = measure::time(&mut self.command(program, &variant.how)?)?;
        if code != expected {
            sample.failed = Some(format!("it ended with {code}, without gretel with {expected}"));
        }
        sample.seconds.push(seconds);
        if matches!(variant.how, How::Record(_)) {
            sample.journal = fs::metadata(self.recording().join("journal")).ok().map(|file| file.len());
        }
        Ok(())
    }

    fn recording(&self) -> PathBuf {
        self.dir.join("recording")
    }

    fn command(&self, program: &Program, how: &How) -> io::Result<Command> {
        let gretel = |words: &[&str]| {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(words).args(["--engine", self.choice.name()]);
            // What is measured leaves nothing behind.
            command.env("GRETEL_STORE", self.dir.join("store"));
            Ok::<_, io::Error>(command)
        };
        let command = match how {
            How::Native | How::Missing(_) => {
                let (name, arguments) = program.argv.split_first().expect("clap and the set give a program");
                let mut command = Command::new(name);
                command.args(arguments);
                command
            }
            How::Bare => {
                let mut command = gretel(&["bench", "bare"])?;
                command.arg("--").args(&program.argv);
                command
            }
            How::Record(options) => {
                let mut command = gretel(&["record", "--force"])?;
                command.arg("-o").arg(self.recording()).args(*options).arg("--").args(&program.argv);
                command
            }
        };
        program.wired(command)
    }
}

/// What the rounds gave of a variant so far.
struct Sample {
    /// Why there is no more of it.
    failed: Option<String>,
    seconds: Vec<f64>,
    peak_memory: Option<u64>,
    journal: Option<u64>,
}

impl Sample {
    fn of(variant: &Variant) -> Sample {
        let failed = match &variant.how {
            How::Missing(why) => Some(format!("not here: {why}")),
            _ => None,
        };
        Sample { failed, seconds: Vec::new(), peak_memory: None, journal: None }
    }

    fn cost(self, native: &[f64]) -> Result<Cost, String> {
        let Sample { failed, seconds, peak_memory, journal } = self;
        let ratio = Spread::of(seconds.iter().zip(native).map(|(seconds, native)| seconds / native));
        match (failed, Spread::of(seconds), ratio) {
            (None, Some(seconds), Some(ratio)) => Ok(Cost { seconds, ratio, peak_memory, journal }),
            (why, ..) => Err(why.unwrap_or_else(|| "it was not run".to_owned())),
        }
    }
}

fn cannot_write(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Write, format!("cannot measure: {error}"))
}

/// The processor's name for itself.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
