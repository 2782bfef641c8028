//! `gretel gdb`: a recording in gdb, forwards and backwards.
//!
//! gdb is started with a connection to a second gretel (`--stdio`), which answers by gdb's remote protocol; or one listens for a debugger
//! from elsewhere (`--listen`).
//!
//! ```text
//! stream, packet   bytes <-> packets, Ctrl-C
//! request          a packet as what it asks for; ids, points, hex
//! session          requests -> answers; reply makes those that are text, registers those of registers
//! target           what is debugged, as a trait: recorded (a recording), booted (one of a machine), suffix (one that was
//!                  synthesized)
//! agent            conditions of breakpoints, which are evaluated here at each hit
//! monitor          gretel's own commands
//! ```

mod agent;
mod booted;
mod files_here;
mod hex;
mod ids;
mod monitor;
mod packet;
mod points;
mod recorded;
mod registers;
mod reply;
mod request;
mod session;
mod signals;
mod stream;
mod suffix;
mod target;

use crate::Outcome;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::followed::{self, Subject};
use crate::kernel;
use crate::log::say;
use crate::replay::failure;
use crate::sandbox;
use crate::shell;
use crate::symbols::Symbols;
use booted::{At, Booted};
use recorded::{Recorded, Source};
use session::Session;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use stream::Stream;
use vmm::engine::Machine;
use vmm::position::Position;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::replay::ReplayError;
use vmm::travel::Travel;

/// Open a recording in gdb: run it forwards and backwards, as often as you like
///
/// gdb begins at the crash, if there is one, else at the recording's beginning. All of gdb's commands that look at a
/// program work, and all that run it, forwards (step, next, finish, continue, until) and backwards (reverse-step,
/// reverse-next, reverse-finish, reverse-continue), with breakpoints and watchpoints in both directions. What
/// changes the program (set var, call, print f()) is refused: it would be another run.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel gdb rec                         at the crash, in gdb
  gretel gdb rec --at start              at the program's first instruction
  gretel gdb rec --at 120+5000           5,000 instructions behind event 120
  gretel gdb rec -- -x commands.gdb      with arguments for gdb
  gretel gdb rec -- vmlinux              the recording of a kernel, with its symbols
  gretel gdb rec --follow                one that is still being made
  gretel gdb rec --suffix suffix.json    what `gretel synth -o suffix.json rec` found
  gretel gdb rec --listen 127.0.0.1:7000 for a debugger that connects: `lldb ./prog`, then
                                         `gdb-remote 127.0.0.1:7000`; or an IDE

In gdb, who wrote a variable last before the crash:
  watch -l list->head
  reverse-continue

  monitor when                   the position in the recording
  monitor goto POSITION          go there
  monitor last-write 0x7fffffffe0a8 8
  monitor memory 0x7fffffffe0a8 8    every access to these bytes
  monitor events --kind signal   as `gretel events` lists them, with its filters
  monitor calls parse_header 5   the last five calls of it before here
  monitor heap 0x4052a8          who allocated this memory, who freed it")]
pub(crate) struct Args {
    /// The recording's folder; with --suffix also a core file; or a suffix in the folder of its core
    #[arg(value_name = "DIR|CORE|SUFFIX")]
    dir: PathBuf,
    /// Show this suffix instead, as `gretel synth -o` kept it: its instructions up to the crash, forwards and backwards
    #[arg(long, value_name = "FILE", conflicts_with_all = ["at", "pid"])]
    suffix: Option<PathBuf>,
    /// The executable of a core (default: the one in the recording, or where the core says that it was)
    #[arg(long, value_name = "PROG", requires = "suffix")]
    exe: Option<PathBuf>,
    /// What runs the program: where single instructions count, it is the software CPU
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Where to begin: `start`, `end`, an event by its number, or EVENT+INSTRUCTIONS; in the recording of a machine a number of
    /// instructions
    #[arg(long, value_name = "POSITION", value_parser = place)]
    at: Option<Place>,
    /// The process whose breakpoints and data are looked for, by its number in the recording; gdb begins where it ended.
    /// Else the one that is loaded where gdb begins
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,
    /// The recording is still being made: see more of it whenever its end is reached
    #[arg(long, conflicts_with = "suffix")]
    follow: bool,
    /// Wait at this address for a debugger, instead of starting gdb
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "stdio")]
    listen: Option<String>,
    /// Only say whether there is a process of the number that --pid gives, by the exit code: asked before gdb is started
    #[arg(long, hide = true, requires = "pid")]
    only_look: bool,
    /// Talk to a debugger by standard input and output: what gdb starts
    #[arg(long, hide = true)]
    stdio: bool,
    /// Arguments for gdb
    #[arg(last = true, value_name = "GDB-ARGS")]
    gdb: Vec<OsString>,
}

/// Where to begin.
#[derive(Clone, Copy, Debug)]
enum Place {
    Start,
    End,
    At(Position),
}

fn place(text: &str) -> Result<Place, String> {
    match text {
        "start" => Ok(Place::Start),
        "end" => Ok(Place::End),
        text => text.parse().map(Place::At),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(found) = suffix::Files::of(&args.dir, args.suffix.as_deref())? {
        return match !args.stdio && args.listen.is_none() {
            true => start_gdb(args),
            false => suffix::serve(&found, args.exe.as_deref(), || connect(args)),
        };
    }
    let recording = Recording::open(&args.dir).map_err(|e| Failure::new(Code::Damaged, e))?;
    if kernel::is_one(&recording) {
        refuse_for_machines(args)?;
    }
    if !args.stdio && args.listen.is_none() && !args.only_look {
        return start_gdb(args);
    }
    if kernel::is_one(&recording) {
        return serve_machine(args, &recording);
    }
    let machine = engine::open(args.engine, for_replay())?;
    if let Some(pid) = args.pid.filter(|_| args.only_look) {
        return look_for_process(pid, &recording, machine);
    }
    let stream = connect(args)?;
    let symbols = Symbols::of(&args.dir);
    sandbox::enter();
    let mut travel = followed::travel(&recording, machine)?;
    begin(args, &mut travel, &recording)?;
    files_here::compare(travel.process());
    let mut recorded = Recorded::new(travel, symbols);
    if args.follow {
        recorded = recorded.follow(Source { dir: args.dir.clone(), engine: args.engine });
    }
    recorded.say_damage();
    let stands = recorded.stands();
    Session::new(stream, &mut recorded, stands).serve()?;
    Ok(ExitCode::SUCCESS)
}

/// What is there for programs only.
fn refuse_for_machines(args: &Args) -> Result<(), Failure> {
    let inside = matches!(args.at, Some(Place::At(position)) if position.retired > 0);
    let given = [
        (args.engine == Choice::Kvm, "--engine kvm", "it runs on the software CPU"),
        (args.pid.is_some(), "--pid", "it has one processor, and no processes"),
        (args.follow, "--follow", "it is shown as far as it was recorded"),
        (inside, "--at EVENT+INSTRUCTIONS", "its positions are numbers of instructions"),
    ];
    match given.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, why)) => {
            let dir = args.dir.display();
            let why = format!("{dir} is a recording of a machine: {option} is not for it, {why}");
            Err(Failure::new(Code::Usage, why))
        }
        None => Ok(()),
    }
}

fn serve_machine(args: &Args, recording: &Recording) -> Outcome {
    let at = args.at.map(|place| match place {
        Place::Start => At::Instruction(0),
        Place::End => At::End,
        Place::At(position) => At::Instruction(position.event),
    });
    let stream = connect(args)?;
    sandbox::enter();
    let mut booted = Booted::open(recording, at)?;
    let stands = booted.stands();
    Session::new(stream, &mut booted, stands).serve()?;
    Ok(ExitCode::SUCCESS)
}

/// What gdb does once it is connected: a step of no instruction, of which nothing is printed, and nothing at all where there is no
/// program. While gdb connects it takes each stop of the process that it stands in for its own doing, and shows none; it forgets that
/// only where it makes the program run with that process selected. Where it finds another process before that (`monitor goto`), it
/// selects that one, and would wait for ever at the next stop of the first.
const BEGIN: &str = "taas pipe stepi 0 | cat >/dev/null";

/// What makes gdb go along where a command of gretel's has gone elsewhere. A gdb without Python does not do it; there one
/// types what `monitor help` says.
const AROUND_MONITOR: &str = include_str!("around_monitor.py");

/// What the same script does once gdb is connected; nothing where it could not be.
const CONNECTED: &str = "python gretel_connected()";

/// The command by which a gdb that has Python runs a script: in one line. Not by `taas`, which would say nothing in a gdb that has
/// none: gdb 13 ends by SIGSEGV when a script of the user's sets a breakpoint after that.
fn scripted(script: &str) -> String {
    format!("python exec(bytes.fromhex('{}').decode())", hex::encode(script.as_bytes()))
}

/// Whether the gdb that would be started has Python. One that does not say how it was built may have it.
fn gdb_has_python() -> bool {
    let asked = Command::new("gdb").arg("--configuration").output();
    asked.is_ok_and(|said| !String::from_utf8_lossy(&said.stdout).contains("--without-python"))
}

/// Whether there is such a process in the recording.
fn look_for_process(pid: i32, recording: &Recording, machine: Machine) -> Outcome {
    sandbox::enter();
    let mut travel = followed::travel(recording, machine)?;
    match travel.seek_first_of(pid).map_err(failure)? {
        true => Ok(ExitCode::SUCCESS),
        false => Err(followed::no_process(&mut travel, pid)),
    }
}

/// The exit code where there is no such process as the one that is asked for, which another gretel, which is confined, finds out and
/// says. Where it is found out by the one that gdb starts, gdb stays without a program, and ends with success.
fn without_process(this: &Path, args: &Args) -> Result<Option<ExitCode>, Failure> {
    let Some(pid) = args.pid else { return Ok(None) };
    let mut look = Command::new(this);
    look.arg("gdb").arg(&args.dir).args(["--only-look", "--engine", args.engine.name(), "--pid"]);
    let ran = look.arg(pid.to_string()).stdin(Stdio::null()).output();
    let ran = ran.map_err(|e| Failure::new(Code::Other, format!("gretel cannot be started again: {e}")))?;
    if ran.status.success() {
        return Ok(None);
    }
    say!("{}", String::from_utf8_lossy(&ran.stderr).trim_end());
    let code = ran.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.map_or_else(|| Code::Other.into(), ExitCode::from)))
}

/// Becomes gdb, which starts another gretel.
fn start_gdb(args: &Args) -> Outcome {
    let this =
        std::env::current_exe().map_err(|e| Failure::new(Code::Other, format!("where gretel is: {e}")))?;
    if let Some(code) = without_process(&this, args)? {
        return Ok(code);
    }
    let mut served = format!(
        "{} gdb {} --stdio --engine {}",
        shell::word(&this),
        shell::word(&args.dir),
        args.engine.name()
    );
    match args.at {
        Some(Place::Start) => served += " --at start",
        Some(Place::End) => served += " --at end",
        Some(Place::At(position)) => served += &format!(" --at {position}"),
        None => {}
    }
    if args.follow {
        served += " --follow";
    }
    for (option, path) in [("--suffix", &args.suffix), ("--exe", &args.exe)] {
        if let Some(path) = path {
            served += &format!(" {option} {}", shell::word(path));
        }
    }
    if let Some(pid) = args.pid {
        served += &format!(" --pid {pid}");
    }
    let mut gdb = Command::new("gdb");
    let has_python = gdb_has_python();
    if has_python {
        gdb.args(["-iex", &scripted(AROUND_MONITOR)]);
    }
    let error = gdb
        // The files are those of this machine; a program is slow to go over a long way, and gdb is to wait.
        .args(["-iex", "set sysroot /", "-iex", "set remotetimeout 100000"])
        // Where a process does not live, its code is in the file: a breakpoint in it is to be behind the prologue there, too.
        .args(["-iex", "set trust-readonly-sections on"])
        // All processes run together: who runs when is in the recording.
        .args(["-iex", "set schedule-multiple on"])
        .arg("-ex")
        .arg(format!("target extended-remote | {served}"))
        .args(["-ex", BEGIN])
        .args(has_python.then_some(["-ex", CONNECTED]).into_iter().flatten())
        .args(&args.gdb)
        .exec();
    let what = match error.kind() {
        io::ErrorKind::NotFound => {
            "gdb is not installed: install it (on Debian: apt install gdb), or use --listen with another debugger"
                .to_owned()
        }
        _ => format!("gdb cannot be started: {error}"),
    };
    Err(Failure::new(Code::Host, what))
}

/// Waits for the debugger, or takes the one that has started us.
fn connect(args: &Args) -> Result<Stream, Failure> {
    let stream = match &args.listen {
        Some(address) => accept(address),
        None => Stream::standard(),
    };
    stream.map_err(|error| Failure::new(Code::Other, format!("no connection: {error}")))
}

fn accept(address: &str) -> io::Result<Stream> {
    let listener = TcpListener::bind(address)?;
    say!("gretel: waiting for a debugger at {}", listener.local_addr()?);
    let (socket, from) = listener.accept()?;
    say!("gretel: a debugger has come from {from}");
    Stream::tcp(socket)
}

/// Goes to where the debugger is to begin.
fn begin(args: &Args, travel: &mut Travel, recording: &Recording) -> Result<(), Failure> {
    if let Some(pid) = args.pid {
        followed::go_to_process(travel, pid)?;
        travel.follow(pid);
    }
    go_to_place(args, travel, recording).map_err(failure)?;
    if args.pid.is_none() {
        travel.follow(travel.process().pid());
    }
    Ok(())
}

fn go_to_place(args: &Args, travel: &mut Travel, recording: &Recording) -> Result<(), ReplayError> {
    match args.at {
        Some(Place::Start) => drop(travel.seek(travel.begin())?),
        Some(Place::At(position)) => {
            let arrived = travel.seek(position)?;
            if arrived < position {
                say!("gretel: the recording ends at {arrived}, before {position}");
            } else if arrived > position {
                say!("gretel: the program does not stand at {position}, but at {arrived} behind it");
            }
        }
        Some(Place::End) => travel.seek_end()?,
        None if args.pid.is_some() => {}
        None => {
            travel.seek_end()?;
            if let Some(subject) = Subject::of(travel.process(), recording) {
                say!("gretel: {subject}: gdb begins there (--pid, --at begin elsewhere)");
                travel.seek_process(subject.pid)?;
            }
            if travel.process().death().is_none() {
                travel.seek(travel.begin())?;
            }
        }
    }
    Ok(())
}
