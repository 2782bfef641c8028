//! `gretel record --kernel`: boots a kernel in a machine, records it, and replays it.
//!
//! `begun` is the machine before its first instruction, with its folder and its journal; `start` where a machine begins that runs again,
//! `from` a recording that begins behind another's boot. `terminal` is this terminal as COM1 or its console, `shown` what the guest
//! prints, `disk` the image of its disk, `network` where its network card leads to, `vsock` its connections to programs of the host,
//! `clock` the time of day at its start. `beside` is what the core of a crash has beside memory, and `crashed` reads that; `replay` is
//! what `gretel replay` does with such a recording, `moment` what it does with `--to`, `core` what `gretel core` does, `events` what
//! `gretel events` does, `listed` what `gretel ls` says of it. Its folder is as any other, but the journal is one of machines
//! ([`board::journal`]), and what was booted is in `files`.

mod begun;
mod beside;
mod clock;
mod core;
mod crashed;
mod disk;
mod events;
mod from;
mod listed;
mod moment;
mod network;
mod replay;
mod rings;
mod shown;
mod start;
mod subject;
mod terminal;
mod vsock;

pub(crate) use beside::Wanted;
pub(crate) use core::{show as show_core, show_crumbs};
pub(crate) use crashed::{Source, Taken, failed, no_crash};
pub(crate) use events::run as events;
pub(crate) use listed::Listed;
pub(crate) use moment::show as show_moment;
pub(crate) use replay::{is_one, run as replay};
pub(crate) use rings::Rings;
pub(crate) use start::{Places, file, records};
pub(crate) use subject::{At, Subject, travel};

use self::clock::Clock;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::units::size_of;
use crate::{Outcome, keeping, sandbox, shell};
use begun::Begun;
use board::Machine as Board;
use board::journal::{End, Writer};
use board::record::{RecordError, Recorded};
use board::vmcore::Beside;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terminal::{Console, Outside};
use vmm::engine::Interrupter;
use vmm::interrupt;
use vmm::recording::Recording;

/// What is booted in place of a program.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Machine {
    /// Boot this kernel in a machine of its own, on the software CPU, in place of a program: a bzImage, a vmlinux or another ELF
    /// file; COM1 is this terminal, where Ctrl-A x ends the recording (docs/kernel.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "program", "from", "cpu", "no_crumbs", "contexts", "checkpoint_every", "flight",
        "no_counters", "trace", "chaos", "seed", "strict", "json", "profile", "attach_on_crash",
    ])]
    pub(crate) kernel: Option<PathBuf>,
    /// Begin at a checkpoint of the recording of a machine, behind its boot: at the newest, or at number N, from 0
    #[arg(long, value_name = "DIR[@N]", conflicts_with_all = [
        "program", "cpu", "no_crumbs", "contexts", "checkpoint_every", "flight",
        "no_counters", "trace", "chaos", "seed", "strict", "json", "profile", "attach_on_crash",
    ])]
    pub(crate) from: Option<OsString>,
    /// The kernel's initial file system
    #[arg(long, value_name = "FILE", requires = "kernel", conflicts_with_all = ["program", "from"])]
    initrd: Option<PathBuf>,
    /// The kernel's command line (default: `console=ttyS0 panic=-1`; with --console virtio `console=hvc0 panic=-1`)
    #[arg(long, value_name = "TEXT", requires = "kernel", conflicts_with_all = ["program", "from"])]
    cmdline: Option<String>,
    /// What is typed to, and shown: COM1, or a console of virtio (hvc0), which has the size of the terminal and is shown beside COM1
    #[arg(
        long,
        value_name = "serial|virtio",
        requires = "kernel",
        conflicts_with_all = ["program", "from"],
        default_value = "serial"
    )]
    console: Line,
    /// A source of random bytes of this host's (hwrng). Each is recorded
    #[arg(long, requires = "kernel", conflicts_with_all = ["program", "from"])]
    rng: bool,
    /// Connections between the guest and programs of this host by a vsock, as Firecracker has them: programs of the host connect to
    /// the Unix socket PATH and say `CONNECT PORT`; the guest's to port P of address 2 come to the socket PATH_P. What comes is
    /// recorded; a replay needs no socket
    #[arg(long, value_name = "PATH", conflicts_with = "program")]
    vsock: Option<PathBuf>,
    /// The time of day that the machine begins with: this host's, or 1 January 2000, so that two runs without input are the same.
    /// From there on its clock is made of instructions
    #[arg(
        long,
        value_name = "host|instructions",
        requires = "kernel",
        conflicts_with_all = ["program", "from"],
        default_value = "host"
    )]
    clock: Clock,
    /// Once standard input is over, end when the guest has waited this long by its own clock and printed nothing
    #[arg(long, value_name = "SECONDS", conflicts_with = "program", default_value = "60", value_parser = keeping::seconds)]
    idle: Duration,
    /// What the guest may write to its disk, in memory (default: half of this host's memory); beyond that writes fail
    #[arg(long, value_name = "SIZE", requires = "kernel", conflicts_with_all = ["program", "from"], value_parser = keeping::size)]
    disk_writes: Option<u64>,
    /// A network card of the machine, and where it leads to: a TAP interface of this host, or frames to the Unix datagram socket
    /// LOCAL and from there to REMOTE. What comes is recorded; a replay needs none
    #[arg(
        long,
        value_name = "none|tap=NAME|unix=LOCAL,REMOTE",
        conflicts_with = "program",
        default_value = "none"
    )]
    net: OsString,
    /// The rings whose branches the core of a kernel that crashed has, with --records and --filter (default: kernel)
    #[arg(long, value_name = "kernel|user|both", conflicts_with = "program")]
    ring: Option<Rings>,
}

/// What is typed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Line {
    Serial,
    Virtio,
}

impl Machine {
    /// The kernel's command line.
    fn command_line(&self) -> String {
        let by_default = match self.console {
            Line::Serial => "console=ttyS0 panic=-1",
            Line::Virtio => "console=hvc0 panic=-1",
        };
        self.cmdline.clone().unwrap_or_else(|| by_default.to_owned())
    }

    /// The bytes of memory that what the guest writes to its disk may take.
    fn room(&self) -> u64 {
        self.disk_writes.unwrap_or_else(|| vmm::host::memory() / 2)
    }

    /// The rings whose branches are recorded.
    pub(crate) fn rings(&self) -> Rings {
        self.ring.unwrap_or(Rings::KERNEL)
    }

    /// Whether a machine is recorded, and no program.
    pub(crate) fn is_wanted(&self) -> bool {
        self.kernel.is_some() || self.from.is_some()
    }
}

/// What other options say of it.
pub(crate) struct Given<'g> {
    /// Bytes of RAM.
    pub(crate) memory: Option<u64>,
    /// The image of a disk.
    pub(crate) disk: Option<&'g OsStr>,
    /// The branch records of a crash.
    pub(crate) branches: Wanted,
}

/// Records a machine into the folder that `folder` makes.
pub(crate) fn record(
    machine: &Machine,
    given: &Given,
    folder: impl FnOnce() -> Result<Recording, Failure>,
) -> Outcome {
    let net = network::Given::parse(&machine.net)?;
    let (begun, mut writer) = begun::begin(machine, given, net.as_ref(), folder)?;
    let Begun { board, recording, header, mut checkpoints, link, socket } = begun;
    let mut board = start::with_code(board, &header);
    interrupt::stop_on_signals(Interrupter::new())
        .map_err(|error| Failure::new(Code::Other, format!("cannot handle signals: {error}")))?;
    let outside = Outside { link, has_vsock: board.has_vsock(), socket };
    let mut console = Console::open(outside).map_err(|error| {
        Failure::new(Code::Other, format!("cannot begin to talk to the machine: {error}"))
    })?;
    if console.is_terminal() {
        let what = if board.console_size().is_some() { "hvc0" } else { "COM1" };
        say!("gretel: {what} is this terminal; Ctrl-A x ends the recording\r");
    }
    sandbox::enter();
    let patience = u64::try_from(machine.idle.as_nanos()).unwrap_or(u64::MAX);
    let recorded = board::record::record(&mut board, &mut writer, &mut checkpoints, &mut console, patience);
    let (unread, unsent) = console.lost();
    let untaken = console.untaken(board.console_size().is_some());
    drop(console);
    let recorded = recorded.map_err(|error| failure(&error, &recording))?;
    let core = write_core(&board, &recording, &recorded.end, given.branches);
    report(&recording, &writer, &recorded, core.as_ref().copied().unwrap_or_default());
    if matches!(recorded.end, End::Idle | End::Stopped) {
        untaken.iter().for_each(|untaken| say!("gretel: {untaken}"));
    }
    say_lost(recorded.lost + unread, unsent);
    say_left_out(recorded.left_out);
    core.map(|_| exit_code(&recorded.end))
}

/// The core of a kernel that crashed, if it did: whether it says of itself what debuggers need. It is written at once, and again with what
/// a run of the recording tells of the crash.
fn write_core(
    board: &Board,
    recording: &Recording,
    end: &End,
    wanted: Wanted,
) -> Result<Option<bool>, Failure> {
    if !has_crashed(end) {
        return Ok(None);
    }
    let (path, again) = (recording.core(), recording.dir().join("core-again"));
    let write = |path: &Path, beside: &Beside| -> io::Result<bool> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        board.write_vmcore(&mut file, &sentence(end), beside).inspect_err(|_| {
            // The disk may be full: nothing is left that takes room or looks like a core.
            let _ = fs::remove_file(path);
        })
    };
    let is_described = write(&path, &Beside::default()).map_err(|error| {
        let dir = shell::word(recording.dir());
        let why = format!("cannot write {}: {error}; without it: gretel core --at end {dir}", path.display());
        Failure::new(Code::Write, why)
    })?;
    let beside = beside::derive(recording, board, wanted);
    if beside.crashed.is_some() {
        let written = write(&again, &beside).and_then(|_| fs::rename(&again, &path));
        if let Err(error) = written {
            let path = path.display();
            say!("gretel: {path} is without where the kernel crashed: it cannot be written again: {error}");
        }
    }
    Ok(Some(is_described))
}

pub(crate) fn has_crashed(end: &End) -> bool {
    use board::End as Machine;
    matches!(end, End::Machine(Machine::Panic(_) | Machine::TripleFault(_)))
}

/// The word for who wants something of a machine's recording that is there for programs' only.
pub(crate) fn refuse(recording: &Recording) -> Result<(), Failure> {
    if !is_one(recording) {
        return Ok(());
    }
    let dir = recording.dir().display();
    let why = "`gretel replay` and `gretel gdb` run it again, `gretel core` shows its core, if it has one, and `gretel synth` what led \
               there";
    Err(Failure::new(Code::Usage, format!("{dir} is the recording of a machine with a kernel: {why}")))
}

fn unwritable(path: &Path, error: io::Error) -> Failure {
    Failure::new(Code::Write, format!("cannot write {}: {error}", path.display()))
}

fn failure(error: &RecordError, recording: &Recording) -> Failure {
    let dir = recording.dir().display();
    Failure::new(Code::Write, format!("{error}\ngretel: what was recorded before is in {dir}"))
}

/// The last lines.
fn report(recording: &Recording, writer: &Writer, recorded: &Recorded, core: Option<bool>) {
    say!(
        "gretel: {}; {} events, {} of journal; {} instructions, {} s by the guest's clock",
        sentence(&recorded.end),
        writer.events(),
        size_of(writer.written()),
        recorded.at.retired,
        seconds(recorded.at.time)
    );
    match core {
        Some(true) => say!("gretel: memory is in {}, for drgn and crash, too", recording.core().display()),
        Some(false) => {
            say!("gretel: memory is in {}; no VMCOREINFO of Linux is in it", recording.core().display())
        }
        None => {}
    }
    if core.is_some() {
        say!("gretel: next: gretel core {}", shell::word(recording.dir()));
    }
    say!("gretel: next: gretel replay {}", shell::word(recording.dir()));
}

/// Frames that nobody took.
fn say_lost(came: u64, sent: u64) {
    if came > 0 {
        say!("gretel: {came} frames were lost on their way to the guest, which had no room for them");
    }
    if sent > 0 {
        say!(
            "gretel: {sent} frames of the guest were lost: nobody took them at the other end of its network"
        );
    }
}

/// Checkpoints that are missing.
fn say_left_out(checkpoints: u64) {
    if checkpoints > 0 {
        say!(
            "gretel: {checkpoints} checkpoints could not be written; the recording replays without them, and --from and steps back begin \
             further back"
        );
    }
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1_000_000_000, nanoseconds / 1_000_000 % 1000)
}

/// How it ended, in words.
pub(crate) fn sentence(end: &End) -> String {
    use board::End as Machine;
    match end {
        End::Machine(Machine::PowerOff) => "the machine switched itself off".to_owned(),
        End::Machine(Machine::Reset) => "the machine reset itself".to_owned(),
        End::Machine(Machine::Exit(status)) => format!("the guest ended with status {status}"),
        End::Machine(Machine::Panic(reason)) => format!("kernel panic: {reason}"),
        End::Machine(Machine::TripleFault(at)) => format!("triple fault at {at:#x}"),
        End::Machine(Machine::Halted) => "halted with interrupts off".to_owned(),
        End::Machine(Machine::Refused(refused)) => format!("not served: {refused}"),
        End::Stopped => "the recording was ended; the machine would have gone on".to_owned(),
        End::Idle => "the guest waits, and nothing will be typed".to_owned(),
    }
}

/// The same in a word, for scripts.
fn word(end: &End) -> &'static str {
    use board::End as Machine;
    match end {
        End::Machine(Machine::PowerOff) => "power-off",
        End::Machine(Machine::Reset) => "reset",
        End::Machine(Machine::Exit(_)) => "exit",
        End::Machine(Machine::Panic(_)) => "panic",
        End::Machine(Machine::TripleFault(_)) => "triple-fault",
        End::Machine(Machine::Halted) => "halted",
        End::Machine(Machine::Refused(_)) => "refused",
        End::Stopped => "stopped",
        End::Idle => "idle",
    }
}

/// A kernel that crashed is told as a program that aborted.
fn exit_code(end: &End) -> ExitCode {
    use board::End as Machine;
    const ABORTED: u8 = 128 + 6;
    match end {
        End::Machine(Machine::PowerOff | Machine::Reset | Machine::Halted) | End::Idle => ExitCode::SUCCESS,
        // As QEMU's device does, so that a status of zero is told from an end without one.
        End::Machine(Machine::Exit(status)) => ExitCode::from((status << 1 | 1).to_le_bytes()[0]),
        end if has_crashed(end) => ABORTED.into(),
        End::Machine(_) => Code::Other.into(),
        End::Stopped => match interrupt::arrived() {
            Some(signal) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(128)),
            None => ExitCode::SUCCESS,
        },
    }
}
