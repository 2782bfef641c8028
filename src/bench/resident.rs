//! The most memory that a process has resident.

use std::fs;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits for the end of a process. Gives its status, and the most memory that it had resident, in bytes: the kernel's own high-water
/// mark, as it was when it was looked at last before the end; `None` if it ended before that. (What wait4 gives is no less than
/// what we have ourselves.)
pub(crate) fn wait(mut child: Child) -> io::Result<(ExitStatus, Option<u64>)> {
    let path = format!("/proc/{}/status", child.id());
    let (ended, end) = mpsc::channel::<()>();
    let looks = thread::spawn(move || {
        let mut peak = None;
        while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            peak = fs::read_to_string(&path).ok().and_then(|status| high_water(&status)).or(peak);
        }
        peak
    });
    let status = child.wait();
    drop(ended);
    let peak = looks.join().unwrap_or_default();
    Ok((status?, peak))
}

/// The high-water mark in /proc/PID/status; a process that has ended has none.
fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    // No imports: where a bench includes this file, there are no tests to use them.
    #[test]
    fn the_high_water_mark_is_found_or_not() {
        assert_eq!(super::high_water("Name:\tx\nVmHWM:\t    1024 kB\nVmRSS:\t 1 kB\n"), Some(1 << 20));
        assert_eq!(super::high_water("Name:\tx\nState:\tZ (zombie)\n"), None);
        assert_eq!(super::high_water("VmHWM:\t18446744073709551615 kB"), None);
    }

    #[test]
    fn a_process_is_waited_for_and_weighed() {
        let child = std::process::Command::new("sh").args(["-c", "sleep 0.2; exit 3"]).spawn().unwrap();
        let (status, peak) = super::wait(child).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(peak >= Some(4096));
    }
}
