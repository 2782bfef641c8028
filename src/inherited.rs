//! Descriptors that gretel was started with, and that the program does not get: it begins with its standard streams.

use crate::log::say;
use std::fs;

/// Set by systemd, and by who does as it does, for a program that is given sockets.
const SOCKETS: &str = "LISTEN_FDS";

/// Says which there are: aloud where the program is told of them.
pub(crate) fn say_what_is_left() {
    let left = left();
    if left.is_empty() {
        return;
    }
    let numbers = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if std::env::var_os(SOCKETS).is_some() {
        say!(
            "gretel: the program is told of sockets ({SOCKETS}) that it does not get: it begins with descriptors 0 to 2, \
             without {numbers}"
        );
    } else {
        tracing::info!("the program begins with descriptors 0 to 2, without {numbers}");
    }
}

/// Those that a program which is executed here would have, above the standard streams.
fn left() -> Vec<u32> {
    let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|n| *n > 2).collect();
    numbers.retain(|number| {
        fs::read_to_string(format!("/proc/self/fdinfo/{number}")).is_ok_and(|info| stays_open(&info))
    });
    numbers.sort_unstable();
    numbers
}

/// Whether a descriptor with these lines in /proc is open behind an exec.
fn stays_open(info: &str) -> bool {
    const CLOSED: u32 = 0o2_000_000;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & CLOSED == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_descriptor_are_read() {
        assert!(stays_open("pos:\t0\nflags:\t0100000\nmnt_id:\t29\n"));
        assert!(!stays_open("pos:\t0\nflags:\t02100000\nmnt_id:\t29\n"));
        assert!(!stays_open(""));
    }
}
