//! Standard error: gretel's own messages ([`say`]), and what the libraries report by tracing, as lines like these.
//!
//! A message that cannot be written is lost, and is no reason to stop: what is recorded goes on, and its journal gets its
//! end.

use indicatif::{ProgressBar, ProgressFinish};
use std::collections::HashSet;
use std::fmt;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `eprintln!`, but for its panic where stderr cannot be written.
macro_rules! say {
    ($($what:tt)*) => { $crate::log::line(format_args!($($what)*)) };
}
pub(crate) use say;

/// Writes a line to stderr, if that can be written.
pub(crate) fn line(what: Arguments<'_>) {
    let _ = Stderr.write_all(format!("{what}\n").as_bytes());
}

/// Shows how far something is, where stderr is a terminal, until it is dropped.
pub(crate) fn spinner() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Standard error, to which every write succeeds.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends tracing to stderr, as much as -v or GRETEL_LOG ask for. `guest_warns` is whether that begins with what the
/// program asks for and does not get: `record` has said so to who synthesizes from the recording.
pub(crate) fn to_stderr(verbose: u8, guest_warns: bool) {
    let level = match verbose {
        0 if guest_warns => "warn",
        0 => "warn,vmm::linux=error",
        1 => "info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("GRETEL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        .log_internal_errors(false)
        .with_ansi(false)
        .event_format(Lines::default())
        .init();
}

/// One line for each event. A warning is not repeated: what is recorded is run again for its branch records.
#[derive(Default)]
struct Lines {
    warned: Mutex<HashSet<String>>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        context.format_fields(Writer::new(&mut line), event)?;
        let warns = *event.metadata().level() == Level::WARN;
        if warns && !self.warned.lock().map_err(|_| fmt::Error)?.insert(line.clone()) {
            return Ok(());
        }
        writeln!(writer, "gretel: {line}")
    }
}
