//! `gretel record`: runs a program in a virtual machine, and records it.

use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::trail::{self, Branches, Captured};
use crate::{Outcome, crumbs, keeping};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmm::cpu_model::Model;
use vmm::crumbs::{contexts_of_core, of_core};
use vmm::dump::{self, About};
use vmm::elf::{ElfError, Image};
use vmm::journal::End;
use vmm::launch::launch_here;
use vmm::process::{Death, Print, Process, ProcessError};
use vmm::record::{Options, RecordError, Recorded};
use vmm::recording::{Recording, RecordingError};
use vmm::signal::SI_KERNEL;
use vmm::timeline::Recent;
use vmm::{gate::GateError, interrupt};

/// Ctrl-C.
const SIGINT: i32 = 2;
/// Illegal instruction.
const SIGILL: i32 = 4;

/// Run a program in a virtual machine and record it; if it crashes, write a core with its last branches
///
/// The program runs as it would without gretel: same input, output, files, arguments, environment and exit status. It
/// must be an x86-64 Linux program, static or dynamic, or a script that one reads; its processes and threads take turns
/// on one processor. Everything that it
/// could not have computed itself is written to a folder, from which `gretel replay` runs it again, anywhere.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel record -- ./prog input.txt
  gretel record -o rec -- busybox sort < names
  gretel record -o rec --records 32 --filter ret-ind -- ./crashes
  gretel record --engine soft -o rec --force -- ./prog
  gretel record --branch-records kvm -o rec -- ./prog
  gretel record --cpu v3 -o rec -- ./prog
  gretel record --chaos -o rec -- ./races
  gretel record --trace -o rec -- sh -c 'ls | wc -l'
  gretel record --flight 256M -o rec -- ./server
  gretel record --checkpoint-every 0.5 -o rec -- ./prog

Ctrl-C and other signals are the program's, as they would be without gretel. The third of SIGINT, SIGTERM and SIGHUP
ends the recording in order, for a program that ignores them. What was recorded replays up to its last event; so it
does when gretel is killed, but for the last tenth of a second.

With --flight, the oldest parts of journal and checkpoints are removed as new ones are written, so that both together
have no more than SIZE bytes; what is left begins with a checkpoint and replays from there. It is more while one input
is larger than an eighth of SIZE, or a checkpoint larger than a quarter.

A recording holds all that the program read, its environment and its memory: its files are made with mode 0600.
Treat it as a secret.")]
pub(crate) struct Args {
    /// The recording's folder: new, or empty (default: gretel-PROG-N here)
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace the recording that is in DIR
    #[arg(long, requires = "output")]
    force: bool,
    /// What runs the program
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// The processor that the program sees, whatever the host has
    #[arg(long, value_enum, default_value = "v2")]
    cpu: Cpu,
    #[command(flatten)]
    trail: trail::Wanted,
    #[command(flatten)]
    crumbs: crumbs::Options,
    #[command(flatten)]
    keeping: keeping::Kept,
    /// Leave the processor's counters alone, so that crumbs have no counts (those of the software CPU cost nothing)
    #[arg(long)]
    no_counters: bool,
    /// Print each system call to stderr, as strace does
    #[arg(long)]
    trace: bool,
    /// Run tasks for random times in a random order, so that races show
    #[arg(long)]
    chaos: bool,
    /// The number that random schedules are drawn from (implies --chaos): on the software CPU the same one gives the same
    /// schedule again, for the same inputs
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The program (searched in PATH) and its arguments
    #[arg(last = true, required = true, value_name = "PROG")]
    program: Vec<OsString>,
}

/// A level of the psABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Cpu {
    /// SSE4.2: what every x86-64 processor since 2008 has
    #[value(alias = "x86-64-v2")]
    V2,
    /// AVX2, FMA and BMI as well
    #[value(alias = "x86-64-v3")]
    V3,
    /// AVX-512 as well
    #[value(alias = "x86-64-v4")]
    V4,
}

impl Cpu {
    fn model(self) -> Model {
        match self {
            Cpu::V2 => Model::V2,
            Cpu::V3 => Model::V3,
            Cpu::V4 => Model::V4,
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (program, arguments) = args.program.split_first().expect("clap requires a program");
    let mut launch =
        launch_here(program, arguments, args.cpu.model()).map_err(|e| Failure::new(Code::Program, e))?;
    let drawn = || u64::from_le_bytes(std::array::from_fn(|n| launch.random[n]));
    launch.seed = args.seed.or_else(|| args.chaos.then(drawn));
    // Before there is a folder: a program that cannot be run leaves nothing behind.
    let not_run = |path: &str, e: ElfError| Failure::new(Code::Program, format!("{path} {e}"));
    Image::parse(&launch.executable).map_err(|e| not_run(&launch.path, e))?;
    if let Some(interpreter) = &launch.interpreter {
        Image::parse_interpreter(&interpreter.executable).map_err(|e| not_run(&interpreter.path, e))?;
    }
    let (mut machine, branches) = args.trail.open(args.engine)?;
    if args.no_counters {
        machine.cpu.stop_counting();
    }
    let recording = folder(args, program)?;
    interrupt::pass_on_signals(machine.cpu.interrupter())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let mut died = |process: &mut Process, death: Death, recent: &mut Recent| {
        let branches = branches.of_other(process, death, recent, &args.trail);
        write_other_core(&recording, process, death, branches);
    };
    let trace: Option<Print> =
        args.trace.then(|| -> Print { Box::new(|task, line| say!("[{task}] {line}")) });
    let options = Options {
        crumbs: args.crumbs.keep(),
        records: branches.armed(),
        near_past: branches.are_derived(),
        trace,
        checkpoints: args.keeping.rate(),
        flight: args.keeping.room(),
        signals: true,
    };
    let recorded = vmm::record::record(&recording, machine, &launch, options, &mut died);
    let mut recorded =
        recorded.map_err(|error| Failure::new(code_for(&error), stopped(&error, &recording)))?;
    let crash = match write_core(&recording, &mut recorded, &args.trail, branches) {
        Err(failure) if interrupt::arrived().is_some() => {
            failure.report();
            return Ok(exit_code(&End::Interrupted));
        }
        crash => crash?,
    };
    summarize(&recording, &recorded, crash);
    Ok(exit_code(&recorded.end))
}

/// Makes the folder; one without a name is called after what the user typed.
fn folder(args: &Args, program: &OsStr) -> Result<Recording, Failure> {
    let name = Path::new(program).file_name().unwrap_or_else(|| OsStr::new("program")).to_string_lossy();
    let made = match &args.output {
        Some(dir) => Recording::create(dir, args.force),
        None => Recording::create_numbered(&name),
    };
    made.map_err(|e| {
        let code = if matches!(e, RecordingError::Occupied { .. }) { Code::Usage } else { Code::Write };
        Failure::new(code, e)
    })
}

/// What to say when the recording stopped before the program did.
fn stopped(error: &RecordError, recording: &Recording) -> String {
    let dir = recording.dir().display();
    match error {
        RecordError::Process(_) => format!("{error}\ngretel: what was recorded before is in {dir}"),
        RecordError::Recording(_) => error.to_string(),
    }
}

fn code_for(error: &RecordError) -> Code {
    match error {
        RecordError::Recording(_) | RecordError::Process(ProcessError::Gate(GateError::Write { .. })) => {
            Code::Write
        }
        RecordError::Process(_) => Code::Other,
    }
}

/// Writes the core of a program that crashed: at once, and again with the trail if that is derived.
fn write_core(
    recording: &Recording,
    recorded: &mut Recorded,
    wanted: &trail::Wanted,
    mut branches: Branches,
) -> Result<bool, Failure> {
    let End::Killed(death) = recorded.end else { return Ok(false) };
    if !dump::leaves_core(&death) {
        return Ok(false);
    }
    if recorded.process.first_died_before() {
        return Ok(recording.core().exists());
    }
    let captured = branches.capture(recorded.process.cpu_mut(), wanted);
    let origin = format!(
        "gretel: {}\nrecorded on: {}\nevents: {}\n{}",
        env!("CARGO_PKG_VERSION"),
        recorded.engine.name(),
        recorded.events,
        counted(recorded.process.cpu()),
    );
    let about = About {
        death,
        auxv: recorded.auxv.clone(),
        origin: origin.clone() + captured.as_ref().map_or("", |captured| &captured.origin),
        trail: captured.map(|captured| captured.trail),
        counters: None,
        crumbs: of_core(recording),
        contexts: contexts_of_core(recording),
    };
    dump::write_core(&recording.core(), &mut recorded.process, &about)
        .map_err(|e| Failure::new(Code::Write, e))?;
    branches.derive(recording, recorded, wanted, about)?;
    Ok(true)
}

/// Writes the core of a process that a signal ended while others went on: of the first, that of the recording.
fn write_other_core(recording: &Recording, process: &mut Process, death: Death, branches: Option<Captured>) {
    if !death.leaves_core() {
        return;
    }
    let about = About {
        death,
        auxv: process.auxv(),
        origin: format!(
            "gretel: {}\nrecorded on: {}\n{}",
            env!("CARGO_PKG_VERSION"),
            process.engine_kind().name(),
            branches.as_ref().map_or("", |branches| &branches.origin)
        ),
        counters: branches.as_ref().and_then(|branches| branches.counters),
        trail: branches.map(|branches| branches.trail),
        crumbs: of_core(recording),
        contexts: contexts_of_core(recording),
    };
    let path = if process.is_first() { recording.core() } else { recording.core_of(process.pid()) };
    if let Err(error) = dump::write_core(&path, process, &about) {
        eprintln!("gretel: process {} left no core: {error}", process.pid());
    }
}

/// What the processor has counted, if it has: not exact, so not in the note of counters.
fn counted(engine: &dyn vmm::engine::Cpu) -> String {
    if engine.counters().is_some() {
        return String::new();
    }
    let counts = engine.counts();
    let counted = [
        ("conditional branches", counts.conditional_branches),
        ("taken branches", counts.taken_branches),
        ("instructions", counts.instructions),
    ];
    let line = |(name, count): (&str, Option<u64>)| Some(format!("{name}, by the processor: {}\n", count?));
    counted.into_iter().filter_map(line).collect()
}

fn is_illegal_instruction(end: &End) -> bool {
    matches!(end, End::Killed(death) if death.signal == SIGILL)
}

/// One line on what was recorded, and what to do next.
fn summarize(recording: &Recording, recorded: &Recorded, crashed: bool) {
    let dir = recording.dir().display();
    let how = match recorded.end {
        End::Exited(status) => format!("exited with status {status}"),
        End::Killed(death) => {
            let name = vmm::elfcore::signal_name(death.signal).unwrap_or("a signal");
            match death.code {
                // Of a sender, or of the kernel: there is no address.
                SI_KERNEL | i32::MIN..=0 => format!("ended by {name}"),
                _ => format!("ended by {name} (address {:#x})", death.address),
            }
        }
        End::Interrupted => "interrupted".to_owned(),
        End::Stopped => "stopped".to_owned(),
    };
    if let (true, Some(needed)) = (is_illegal_instruction(&recorded.end), recorded.process.needs_model()) {
        let cpu = needed.name().trim_start_matches("x86-64-");
        say!(
            "gretel: it was stopped at an instruction of {}: --cpu {cpu} shows it that processor",
            needed.name()
        );
    }
    let engine = recorded.engine.name();
    say!(
        "gretel: {how}; {} events, {} bytes of journal, engine {engine}; recorded in {dir}",
        recorded.events,
        recorded.journal_bytes
    );
    if let Some(window) = keeping::window(recording) {
        say!("gretel: {window}");
    }
    let next = if crashed { "core" } else { "replay" };
    say!("gretel: next: gretel {next} {dir}");
}

/// The guest's own status; 128 and the signal as shells say it.
fn exit_code(end: &End) -> ExitCode {
    let number = match end {
        End::Exited(status) => *status,
        End::Killed(death) => 128 + death.signal,
        End::Interrupted => 128 + interrupt::arrived().unwrap_or(SIGINT),
        End::Stopped => i32::from(Code::Other as u8),
    };
    // A status has eight bits: what exit_group was given is cut so by Linux, too.
    let [low, ..] = number.to_le_bytes();
    ExitCode::from(low)
}
