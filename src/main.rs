//! `gretel`: parse the command line, resolve it into what the libraries take, call them, report.
//!
//! One file or folder per subcommand, each with its `Args` and its `run`. Results go to stdout, everything else to stderr;
//! [`exit`] has the table of exit codes.
//!
//! Example: `gretel replay rec --engine soft` is parsed into the `Args` of `replay.rs`. Its `run` opens the recording,
//! makes the engine, and has `vmm` replay it. If all is equal, the line `replayed on soft: 102 events, ...` goes to stdout
//! and the exit code is 0; if the journal is cut, what was replayed and where it ends is said, and the exit code is 123.

#![forbid(unsafe_code)]

mod abort_message;
mod accesses;
mod at_crash;
mod bench;
mod called;
mod calls;
mod completions;
mod contexts;
mod core_file;
mod crumbs;
mod dap;
mod debug_files;
mod doctor;
mod ending;
mod engine;
mod events;
mod exit;
mod export;
mod folded_stack;
mod followed;
mod gdb;
mod heap;
mod index;
mod keeping;
mod kernel;
mod log;
mod ls;
mod man;
mod moment;
mod named;
mod opened;
mod outline;
mod output;
mod overflow;
mod pack;
mod played;
mod profile;
mod record;
mod replay;
mod report;
mod rm;
mod samples;
mod sandbox;
mod shell;
mod shown_trail;
mod sight;
mod summary;
mod symbols;
mod synth;
mod trail;
mod trail_file;
mod units;
mod values;
mod verify;
mod watch;
mod why;

use clap::{ArgAction, Parser, Subcommand};
use exit::Failure;
use std::process::ExitCode;
use std::sync::LazyLock;
use vmm::journal::schema::{BEHAVIOUR, VERSION};

/// Records a Linux program in a minimal virtual machine, replays it bit for bit, and finds from its crash how it
/// got there.
#[derive(Parser)]
#[command(version, long_version = VERSIONS.as_str(), after_long_help = HELP.as_str())]
struct Cli {
    /// Say more on stderr: -v what is done, -vv every event (the variable GRETEL_LOG takes a tracing filter)
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 900)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

/// gretel's version, and those of the recordings that it makes and replays.
static VERSIONS: LazyLock<String> = LazyLock::new(|| {
    format!("{}\nrecordings: format {VERSION}, guest behaviour {BEHAVIOUR}", env!("CARGO_PKG_VERSION"))
});

/// What stands below the options.
static HELP: LazyLock<String> = LazyLock::new(|| format!("{EXAMPLES}\n\n{}", exit::HELP));

const EXAMPLES: &str = "\
Examples:
  gretel doctor                        what this host offers
  gretel record -o rec -- ./prog       run a program and record it
  gretel replay rec                    run it again, bit for bit
  gretel gdb rec                       the same in gdb, forwards and backwards
  gretel dap                           the same for an editor (VS Code, nvim-dap)
  gretel calls rec parse_header        each call of a function: arguments, result, caller
  gretel heap rec 0x4052a8             who allocated this memory, who freed it
  gretel events rec                    what happened in it, a line each
  gretel why rec                       where the value came from that made it crash
  gretel core rec                      its crash: signal, stack, last branches
  gretel synth rec                     how it got there, with a certificate
  gretel report rec -o report.html     all of that on one page
  gretel verify suffix.json rec        a suffix that was kept, checked again
  gretel ls                            the recordings in this folder
  gretel pack rec                      one file of it, for another machine";

#[derive(Subcommand)]
enum Command {
    Record(Box<record::Args>),
    Replay(replay::Args),
    Gdb(gdb::Args),
    Dap(dap::Args),
    LastWrite(accesses::LastWriteArgs),
    Memory(accesses::MemoryArgs),
    Why(why::Args),
    Calls(calls::Args),
    Heap(heap::Args),
    Events(events::Args),
    Export(export::Args),
    Core(core_file::Args),
    Synth(synth::Args),
    Verify(verify::Args),
    Report(report::Args),
    Watch(watch::Args),
    Ls(ls::Args),
    Rm(rm::Args),
    Pack(pack::Args),
    Unpack(pack::UnpackArgs),
    Trail(trail_file::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
    #[command(hide = true)]
    RunAtCrash(at_crash::Args),
    #[command(hide = true)]
    FindDebug(debug_files::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => return exit::for_usage(&message),
    };
    // What these start is to have the signals that it has without gretel.
    if !matches!(cli.command, Command::Bench(_) | Command::RunAtCrash(_)) {
        vmm::interrupt::survive_file_size_limit();
    }
    vmm::host::keep_freed_memory();
    vmm::host::take_large_pages();
    log::to_stderr(cli.verbose, !matches!(cli.command, Command::Synth(_)));
    let result = match cli.command {
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Gdb(args) => gdb::run(&args),
        Command::Dap(args) => dap::run(&args),
        Command::LastWrite(args) => accesses::last_write(&args),
        Command::Memory(args) => accesses::memory(&args),
        Command::Why(args) => why::run(&args),
        Command::Calls(args) => calls::run(&args),
        Command::Heap(args) => heap::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Core(args) => core_file::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Pack(args) => pack::run(&args),
        Command::Unpack(args) => pack::unpack(&args),
        Command::Trail(args) => trail_file::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::RunAtCrash(args) => at_crash::run(&args),
        Command::FindDebug(args) => debug_files::run(&args),
    };
    result.unwrap_or_else(|failure| failure.report())
}

/// What a subcommand gives: the exit code, or the failure that main reports.
type Outcome = Result<ExitCode, Failure>;
