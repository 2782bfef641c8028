//! `gretel record`: runs a program in a virtual machine, and records it.

use crate::at_crash::AtCrash;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::summary::{Summary, SummaryFile};
use crate::trail::{self, Branches, Captured};
use crate::{Outcome, crumbs, keeping, kernel, sandbox};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use vmm::contents::Store;
use vmm::cpu_model::Model;
use vmm::crumbs::{contexts_of_core, of_core};
use vmm::dump::{self, About};
use vmm::elf::{ElfError, Image};
use vmm::journal::End;
use vmm::launch::launch_here;
use vmm::linux::inherited;
use vmm::memory::findings;
use vmm::process::happening::{Happening, Stage, What};
use vmm::process::{Death, Process, ProcessError, Tell};
use vmm::ram::{for_recording, with_reserve};
use vmm::record::{Options, RecordError, Recorded};
use vmm::recording::{Recording, RecordingError};
use vmm::timeline::Recent;
use vmm::{gate::GateError, interrupt};

/// Ctrl-C.
const SIGINT: i32 = 2;

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
  gretel record --strict --json summary.json -o rec -- ./prog
  gretel record --attach-on-crash 'gretel core $1' -o rec -- ./prog
  gretel record --kernel vmlinuz --initrd initrd.gz -o rec
  gretel record --from rec -o rec-2

Ctrl-C and other signals are the program's, as they would be without gretel. Three of SIGINT, SIGTERM and \
SIGHUP, each within a second of the one before, end the recording in order, for a program that ignores them. What was \
recorded replays up to its last event; so it does when gretel is killed, but for the last tenth of a second.

With --flight, the oldest parts of journal and checkpoints are removed as new ones are written, so that both together \
have no more than SIZE bytes; what is left begins with a checkpoint and replays from there. It is more while one input \
is larger than an eighth of SIZE, or a checkpoint larger than a quarter. SIGUSR1 to gretel keeps the window as it is then, as \
a recording of its own, DIR/kept-1, and the recording goes on; --keep-on names another signal for that.

The program, its libraries and other files that it maps are kept once for all recordings on a file system, by their \
content: as hard links to a store, which is $GRETEL_STORE, else gretel/files in $XDG_DATA_HOME (~/.local/share), else \
.gretel-files beside DIR. Each recording is whole without the store; `gretel ls` shows what it shares, `gretel rm` removes both.

A recording holds all that the program read, its environment and its memory: its files are made with mode 0600 or 0400. \
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
    #[command(flatten)]
    machine: kernel::Machine,
    /// The memory that the program's processes may use together (512M, 8G; default: three quarters of this host's), or a
    /// machine's (default: 512M)
    #[arg(long, value_name = "SIZE", value_parser = keeping::memory)]
    memory: Option<u64>,
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
    /// End the recording at the first thing that the program asks for and gretel does not serve
    #[arg(long)]
    strict: bool,
    /// Write the summary of the end to FILE as well, as JSON: how it ended, what was recorded, what was not served; FILE is emptied
    /// at the start, and stays so if the journal cannot be written
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure where the time goes, and say it at the end: in the guest, in exits by their kind, in the journal
    #[arg(long)]
    profile: bool,
    /// Run this command of the shell when a process of the program has left a core: $1 is the recording, and the environment has
    /// GRETEL_RECORDING, GRETEL_CORE, GRETEL_PID and GRETEL_SIGNAL; its output goes to stderr, and gretel waits for it at its end
    #[arg(long, value_name = "CMD")]
    attach_on_crash: Option<OsString>,
    /// The program (searched in PATH) and its arguments
    #[arg(last = true, required_unless_present_any = ["kernel", "from"], value_name = "PROG")]
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
    if args.machine.is_wanted() {
        if args.engine == Choice::Kvm {
            return Err(Failure::new(
                Code::Host,
                "a kernel runs on the software CPU, not under KVM: leave --engine out",
            ));
        }
        let branches = args.trail.of_machine(args.machine.rings())?;
        let given = kernel::Given { memory: args.memory, disk: args.keeping.image(), branches };
        return kernel::record(&args.machine, &given, || folder(args, OsStr::new("kernel")));
    }
    let (program, arguments) = args.program.split_first().expect("clap requires a program");
    let mut launch =
        launch_here(program, arguments, args.cpu.model()).map_err(|e| Failure::new(Code::Program, e))?;
    // Before anything is started that would have them, too.
    let (inherited, files): (_, Vec<OwnedFd>) = inherited::take().into_iter().unzip();
    launch.inherited = inherited;
    let drawn = || u64::from_le_bytes(std::array::from_fn(|n| launch.random[n]));
    let disk = args.keeping.disk()?;
    launch.seed = args.seed.or_else(|| args.chaos.then(drawn));
    // Before there is a folder: a program that cannot be run leaves nothing behind.
    let not_run = |path: &str, e: ElfError| Failure::new(Code::Program, format!("{path} {e}"));
    Image::parse(&launch.executable).map_err(|e| not_run(&launch.path, e))?;
    if let Some(interpreter) = &launch.interpreter {
        Image::parse_interpreter(&interpreter.executable).map_err(|e| not_run(&interpreter.path, e))?;
    }
    launch.memory = args.memory.unwrap_or_else(for_recording);
    let (mut machine, branches) = args.trail.open(args.engine, with_reserve(launch.memory))?;
    if args.no_counters {
        machine.cpu.stop_counting();
    }
    let recording = folder(args, program)?;
    let helper = args.attach_on_crash.as_ref().map(|command| AtCrash::start(command, recording.dir()));
    let helper = RefCell::new(helper.transpose()?);
    let at_crash = |core: &Path, death: Death, pid: i32| {
        helper.borrow_mut().iter_mut().for_each(|helper| helper.run(core, pid, death.signal));
    };
    args.keeping.window_signal().into_iter().for_each(interrupt::keep_window_on);
    interrupt::pass_on_signals(machine.cpu.interrupter())
        .map_err(|e| Failure::new(Code::Other, format!("cannot handle signals: {e}")))?;
    let store = store(&recording);
    let changed = store.as_ref().and_then(Store::changed);
    keeping::folder_of_findings().into_iter().for_each(findings::keep_in);
    let mut died = |process: &mut Process, death: Death, recent: &mut Recent| {
        if !death.leaves_core() {
            return;
        }
        let branches = branches.of_other(process, death, recent, &args.trail);
        if let Some(core) = write_other_core(&recording, process, death, branches) {
            at_crash(&core, death, process.pid());
        }
    };
    let trace: Option<Tell> = args.trace.then(|| -> Tell { Box::new(say_call) });
    let options = Options {
        crumbs: args.crumbs.keep(),
        records: branches.armed(),
        near_past: branches.are_derived(),
        trace,
        checkpoints: args.keeping.rate(),
        flight: args.keeping.room(),
        disk,
        store: store.clone(),
        signals: true,
        strict: args.strict,
        profile: args.profile,
        inherited: files,
    };
    // What an earlier recording left there is not taken for this one's, however this one ends.
    let mut summary_file = args.json.as_deref().map(SummaryFile::create).transpose()?;
    sandbox::enter();
    let recorded = vmm::record::record(&recording, machine, &launch, options, &mut died);
    let mut recorded =
        recorded.map_err(|error| Failure::new(code_for(&error), stopped(&error, &recording)))?;
    if let Some(error) = recorded.failure.take() {
        let error = RecordError::Process(error);
        let summary = Summary::of(&recording, &recorded, false).stopped_by(&error);
        summary_file.iter_mut().try_for_each(|file| file.write(&summary))?;
        return Err(Failure::new(code_for(&error), stopped(&error, &recording)));
    }
    let crash = match write_core(&recording, &mut recorded, &args.trail, branches, args.engine) {
        Err(failure) if interrupt::arrived().is_some() => {
            failure.report();
            let summary = Summary::of(&recording, &recorded, false);
            summary_file.iter_mut().try_for_each(|file| file.write(&summary))?;
            return Ok(exit_code(&End::Interrupted));
        }
        crash => crash?,
    };
    if let (true, End::Killed(death)) = (crash, recorded.end)
        && !recorded.process.first_died_before()
    {
        at_crash(&recording.core(), death, recorded.process.pid());
    }
    let summary = Summary::of(&recording, &recorded, crash);
    summary.say();
    summary_file.iter_mut().try_for_each(|file| file.write(&summary))?;
    // What recordings used that were removed by other means than `gretel rm`; a look at each file of the store, so only by who has
    // put one there. Next time, if it cannot be done now.
    let _ = store.filter(|store| store.changed() != changed).map(|store| store.sweep());
    helper.take().into_iter().for_each(AtCrash::finish);
    Ok(exit_code(&recorded.end))
}

/// `--trace`: a line for each system call, and another one if it waited.
fn say_call(happening: &Happening) {
    if let What::Call(call) = &happening.what
        && call.stage != Stage::Again
    {
        say!("[{}] {}", happening.task, call.line);
    }
}

/// The store that the recording shares files with; one that was asked for is missed aloud.
fn store(recording: &Recording) -> Option<Store> {
    let stores = keeping::stores();
    let store = recording.store(&stores);
    if let (None, Some(given)) = (&store, &stores.given) {
        say!(
            "gretel: {} (GRETEL_STORE) cannot be the store, which is a folder of your own on the recording's file system, \
             that nobody else can write to: this recording keeps copies of its own",
            given.display()
        );
    }
    store
}

/// Makes the folder; one without a name is called after what the user typed.
fn folder(args: &Args, program: &OsStr) -> Result<Recording, Failure> {
    let name = Path::new(program).file_name().unwrap_or_else(|| OsStr::new("program")).to_string_lossy();
    let made = match &args.output {
        Some(dir) => Recording::create(dir, args.force),
        None => Recording::create_numbered(&name),
    };
    made.map_err(|e| {
        let is_refused = matches!(
            e,
            RecordingError::Occupied { .. } | RecordingError::NoFolder { .. } | RecordingError::Busy { .. }
        );
        let code = if is_refused { Code::Usage } else { Code::Write };
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
        RecordError::Recording(RecordingError::Inherited { .. }) => Code::Usage,
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
    choice: Choice,
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
        recorded.engine,
        recorded.events,
        counted(recorded.process.cpu()),
    );
    let about = About {
        death,
        origin: origin.clone() + captured.as_ref().map_or("", |captured| &captured.origin),
        trail: captured.map(|captured| captured.trail),
        counters: None,
        crumbs: of_core(recording),
        contexts: contexts_of_core(recording),
    };
    dump::write_core(&recording.core(), &mut recorded.process, &about)
        .map_err(|e| Failure::new(Code::Write, e))?;
    branches.derive(recording, recorded, wanted, about, choice)?;
    Ok(true)
}

/// Writes the core of a process that a signal ended while others went on: of the first, that of the recording. Its path, if there
/// is one.
fn write_other_core(
    recording: &Recording,
    process: &mut Process,
    death: Death,
    branches: Option<Captured>,
) -> Option<PathBuf> {
    let about = About {
        death,
        origin: format!(
            "gretel: {}\nrecorded on: {}\n{}",
            env!("CARGO_PKG_VERSION"),
            process.ran_on(),
            branches.as_ref().map_or("", |branches| &branches.origin)
        ),
        counters: branches.as_ref().and_then(|branches| branches.counters),
        trail: branches.map(|branches| branches.trail),
        crumbs: of_core(recording),
        contexts: contexts_of_core(recording),
    };
    let path = if process.is_first() { recording.core() } else { recording.core_of(process.pid()) };
    if let Err(error) = dump::write_core(&path, process, &about) {
        say!("gretel: process {} left no core: {error}", process.pid());
        return None;
    }
    Some(path)
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

/// The guest's own status; 128 and the signal as shells say it.
fn exit_code(end: &End) -> ExitCode {
    let number = match end {
        End::Exited(status) => *status,
        End::Killed(death) => 128 + death.signal,
        End::Interrupted => 128 + interrupt::arrived().unwrap_or(SIGINT),
        End::Stopped | End::Full | End::Kept => i32::from(Code::Other as u8),
    };
    // A status has eight bits: what exit_group was given is cut so by Linux, too.
    let [low, ..] = number.to_le_bytes();
    ExitCode::from(low)
}
