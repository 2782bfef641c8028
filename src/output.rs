//! Standard output: results, and nothing else.

use crate::exit::{Code, Failure};
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use synth::report::COLUMNS;

/// What became of something that was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    /// It is out.
    Yes,
    /// The reader has seen enough and closed the pipe, which is no failure.
    Closed,
}

/// The width of the terminal that results go to, and whether it may have colours; `None` where they go elsewhere.
pub(crate) fn terminal() -> Option<(usize, bool)> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let width = terminal_size::terminal_size_of(&out).map_or(COLUMNS, |(width, _)| usize::from(width.0));
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    Some((width, !dumb && !is_set("NO_COLOR")))
}

/// Prints results.
pub(crate) fn print(what: Arguments<'_>) -> Result<Printed, Failure> {
    written(io::stdout().write_fmt(what).and_then(|()| io::stdout().flush()))
}

/// What came of writing to standard output.
pub(crate) fn written(result: io::Result<()>) -> Result<Printed, Failure> {
    match result {
        Ok(()) => Ok(Printed::Yes),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Printed::Closed),
        Err(error) => Err(Failure::new(Code::Write, format!("cannot write to stdout: {error}"))),
    }
}
