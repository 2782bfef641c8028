//! `gretel bench bare`: a program in the virtual machine, and nothing recorded.

use crate::Outcome;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use std::ffi::OsString;
use std::process::ExitCode;
use vmm::cpu_model::Model;
use vmm::gate::{AtExit, Unrecorded};
use vmm::launch::launch_here;
use vmm::process::{Process, ProcessError, Step};

/// Run a program in a virtual machine and record nothing: what `bench record` compares recording with
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  time gretel bench bare -- busybox sort names

It ends as the program ends.")]
pub(crate) struct Args {
    /// What runs the program
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// The program (searched in PATH) and its arguments
    #[arg(last = true, required = true, value_name = "PROG")]
    program: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (program, arguments) = args.program.split_first().expect("clap requires a program");
    let launch =
        launch_here(program, arguments, Model::default()).map_err(|e| Failure::new(Code::Program, e))?;
    let engine = engine::open(args.engine, vmm::ram::for_recording())?;
    let failed = |error: ProcessError| Failure::new(Code::Other, error);
    let mut process =
        Process::start(engine, Box::new(Unrecorded(|_: &AtExit<'_>| {})), &launch).map_err(failed)?;
    loop {
        let number = match process.step().map_err(failed)? {
            Step::Running | Step::Died(_) => continue,
            Step::Exited(status) => status,
            Step::Killed(death) => 128 + death.signal,
            Step::Interrupted | Step::Budget => 128 + 2,
        };
        let [low, ..] = number.to_le_bytes();
        return Ok(ExitCode::from(low));
    }
}
