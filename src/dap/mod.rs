//! `gretel dap`: a recording in an editor, forwards and backwards, by the Debug Adapter Protocol (DAP).
//!
//! | part | its task |
//! | --- | --- |
//! | [`listen`] | editors that connect, each with a process of its own |
//! | [`stream`] | messages in and out, and who hears that the editor wants a stop |
//! | [`protocol`] | requests, responses and events as JSON |
//! | [`session`] | answers requests in order, from `initialize` to `disconnect` |
//! | [`debuggee`] | the recording, its symbols, the breakpoints; what a stop is called |
//! | [`breakpoints`] | of lines, functions, instructions and data; conditions, hit counts, messages |
//! | [`children`] | processes that the program starts, each for a session of its own |
//! | [`begin`], [`ends`] | where a session begins, and where the life of its process does and ends |
//! | [`run`] | to the next breakpoint, forwards and backwards |
//! | [`step`], [`step_back`], [`into_source`] | by lines and instructions; from where no line is known |
//! | [`stack`], [`variables`], [`code`], [`sources`] | what an editor shows, of what a thread sees ([`crate::sight`]) |
//! | [`repl`] | commands of the debug console: `when`, `goto`, `last-write`, or an expression |
//!
//! Example: `next` on a line that calls a function of ten million instructions. [`step`] looks out for the first instruction of every
//! other line of the function, and for the return address; the callee has none of these, so it runs at full speed, and the first
//! hit whose frame is the one that was stepped in ends the step. `stepBack` looks for the last such hit before, in the same frame.

mod begin;
mod breakpoints;
mod children;
mod code;
mod debuggee;
mod ends;
mod into_source;
mod listen;
mod protocol;
mod repl;
mod run;
mod session;
mod sources;
mod stack;
mod step;
mod step_back;
mod stream;
mod variables;

use crate::Outcome;
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use session::Session;
use std::path::PathBuf;
use std::process::ExitCode;
use stream::Connection;

/// Serve a recording to an editor by the Debug Adapter Protocol: VS Code, nvim-dap and others
///
/// The editor starts this command, or connects to it (`--listen`), and names the recording in its launch
/// configuration: {"recording": "DIR", "at": "start" | "end" | POSITION, "pid": N, "sourceMap": {"/build": "/home/me/src"}}.
/// It runs forwards and backwards, with breakpoints and data breakpoints in both directions. What changes the program
/// is refused: it would be another run. docs/editors.md has configurations to copy.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel dap                             what an editor starts
  gretel dap rec                         the same for this recording, whatever the editor names
  gretel dap --listen 127.0.0.1:4711     for an editor that connects; ends when it has gone")]
pub(crate) struct Args {
    /// The recording's folder; else the launch request names it
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// What runs the program: where single instructions count, it is the software CPU
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Wait at this address for an editor, instead of talking by standard input and output
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let no_connection = |e| Failure::new(Code::Other, format!("no connection: {e}"));
    if let Some(address) = &args.listen {
        let is_well = listen::serve(address, args).map_err(no_connection)?;
        return Ok(if is_well { ExitCode::SUCCESS } else { Code::Other.into() });
    }
    let connection = Connection::standard().map_err(no_connection)?;
    Session::new(connection, args.dir.clone(), args.engine).serve()?;
    Ok(ExitCode::SUCCESS)
}
