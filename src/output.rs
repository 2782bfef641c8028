//! Standard output: results, and nothing else.

use crate::exit::{Code, Failure};
use std::fmt::Arguments;
use std::io::{self, Write};

/// What became of something that was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printed {
    /// It is out.
    Yes,
    /// The reader has seen enough and closed the pipe, which is no failure.
    Closed,
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
