//! Runs a command and says what it took.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the memory of a command is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long a command takes, and how it ends: the program's status, or 128 and the signal.
pub(super) fn time(command: &mut Command) -> io::Result<(f64, i32)> {
    let start = Instant::now();
    let status = command.spawn()?.wait()?;
    Ok((start.elapsed().as_secs_f64(), code(status)))
}

/// The most memory that a command has resident, in bytes: the kernel's own high-water mark, as it was when it was looked
/// at last before the end; `None` if it ended before that. (What wait4 gives is no less than what we have ourselves.)
pub(super) fn peak_memory(command: &mut Command) -> io::Result<Option<u64>> {
    let mut child = command.spawn()?;
    let path = format!("/proc/{}/status", child.id());
    let (ended, end) = mpsc::channel::<()>();
    let looks = thread::spawn(move || {
        let mut peak = None;
        while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            peak = fs::read_to_string(&path).ok().and_then(|status| high_water(&status)).or(peak);
        }
        peak
    });
    let waited = child.wait();
    drop(ended);
    let peak = looks.join().unwrap_or_default();
    waited.map(|_| peak)
}

/// The high-water mark in /proc/PID/status; a process that has ended has none.
fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
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
    fn the_high_water_mark_is_found_or_not() {
        assert_eq!(high_water("Name:\tx\nVmHWM:\t    1024 kB\nVmRSS:\t 1 kB\n"), Some(1 << 20));
        assert_eq!(high_water("Name:\tx\nState:\tZ (zombie)\n"), None);
        assert_eq!(high_water("VmHWM:\t18446744073709551615 kB"), None);
    }

    #[test]
    fn commands_are_timed_and_weighed() {
        let sleeps = || {
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 0.2; exit 3"]);
            command
        };
        let (seconds, code) = time(&mut sleeps()).unwrap();
        assert!(seconds >= 0.2 && code == 3, "{seconds} {code}");
        assert!(peak_memory(&mut sleeps()).unwrap() >= Some(4096));
        let killed = time(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap();
        assert_eq!(killed.1, 128 + 9);
        assert!(time(&mut Command::new("/no/such/program")).is_err());
    }
}
