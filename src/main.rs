//! `gretel`: parse the command line, resolve it into what the libraries take, call them, report.
//!
//! One file per subcommand, each with its `Args` and its `run`. Results go to stdout, everything else to stderr;
//! [`exit`] has the table of exit codes.

#![forbid(unsafe_code)]

mod bench;
mod contexts;
mod core_file;
mod crumbs;
mod doctor;
mod engine;
mod exit;
mod output;
mod record;
mod replay;
mod shown_trail;
mod synth;
mod trail;
mod trail_file;
mod watch;

use clap::{ArgAction, Parser, Subcommand};
use exit::Failure;
use std::process::ExitCode;
use std::sync::LazyLock;
use tracing_subscriber::EnvFilter;
use vmm::journal::schema::{BEHAVIOUR, VERSION};

/// Records a Linux program in a minimal virtual machine, replays it bit for bit, and finds from its crash how it
/// got there.
#[derive(Parser)]
#[command(version, long_version = VERSIONS.as_str(), after_long_help = exit::HELP)]
struct Cli {
    /// Say more on stderr: -v what is done, -vv every event (the variable GRETEL_LOG takes a tracing filter)
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

/// gretel's version, and those of the recordings that it makes and replays.
static VERSIONS: LazyLock<String> = LazyLock::new(|| {
    format!("{}\nrecordings: format {VERSION}, guest behaviour {BEHAVIOUR}", env!("CARGO_PKG_VERSION"))
});

#[derive(Subcommand)]
enum Command {
    Record(record::Args),
    Replay(replay::Args),
    Core(core_file::Args),
    Synth(synth::Args),
    Watch(watch::Args),
    Trail(trail_file::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => return exit::for_usage(&message),
    };
    log_to_stderr(cli.verbose);
    let result = match cli.command {
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Core(args) => core_file::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Trail(args) => trail_file::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    result.unwrap_or_else(|failure| failure.report())
}

/// Sends tracing to stderr, as much as -v or GRETEL_LOG ask for.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("GRETEL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}

/// What a subcommand gives: the exit code, or the failure that main reports.
type Outcome = Result<ExitCode, Failure>;
