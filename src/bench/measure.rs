//! Runs a command and says how long it took.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Instant;

/// How long a command takes, and how it ends: the program's status, or 128 and the signal.
pub(super) fn time(command: &mut Command) -> io::Result<(f64, i32)> {
    let start = Instant::now();
    let status = command.spawn()?.wait()?;
    Ok((start.elapsed().as_secs_f64(), code(status)))
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(-1)
}

/// The median, and the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        Some(Spread { median: f64::midpoint(lower, upper), least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, least: 1.0, most: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn commands_are_timed() {
        let sleeps = || {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 0.2; exit 3"]);
            command
        };
        let (seconds, code) = time(&mut sleeps()).unwrap();
        assert!(seconds >= 0.2 && code == 3, "{seconds} {code}");
        let killed = time(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap();
        assert_eq!(killed.1, 128 + 9);
        assert!(time(&mut Command::new("/no/such/program")).is_err());
    }
}
