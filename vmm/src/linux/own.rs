//! What a program finds of itself in /proc and /dev. The host's files there are gretel's: its descriptors, its memory.
//! They are kept from the guest; links to the program's file and to its own descriptors are served here.

use super::Kernel;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// One of the program's own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The link to its executable.
    Executable,
    /// The link to what it has open under this number.
    Descriptor(i32),
    /// Anything else: it is not served.
    Other,
}

/// What `path` names, if it is the program's own. Says the same at replay, where gretel is another process.
pub(super) fn named(path: &CStr, kernel: &Kernel) -> Option<Own> {
    named_for(path, kernel.pid())
}

fn named_for(path: &CStr, pid: i32) -> Option<Own> {
    let path = path.to_str().ok()?;
    let own_folder = format!("/proc/{pid}");
    let below =
        |folder: &str| path.strip_prefix(folder).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        "/dev/stdin" => return Some(Own::Descriptor(0)),
        "/dev/stdout" => return Some(Own::Descriptor(1)),
        "/dev/stderr" => return Some(Own::Descriptor(2)),
        _ => {}
    }
    if let Some(rest) = below("/dev/fd") {
        return Some(rest.strip_prefix('/').map_or(Own::Other, descriptor));
    }
    let folders = ["/proc/self", "/proc/thread-self", &own_folder];
    let rest = folders.into_iter().find_map(below)?;
    Some(match rest {
        "/exe" => Own::Executable,
        _ => rest.strip_prefix("/fd/").map_or(Own::Other, descriptor),
    })
}

fn descriptor(number: &str) -> Own {
    number.parse().map_or(Own::Other, Own::Descriptor)
}

/// Whether an open file is one of gretel's own in /proc, by whatever way it was reached: below the folder of the process or
/// of one of its threads.
pub(super) fn is_hosts(file: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(path) = link else { return false };
    let Ok(below) = path.strip_prefix("/proc") else { return false };
    let number = below.iter().next().and_then(|name| name.to_str()?.parse::<u32>().ok());
    number.is_some_and(|thread| Path::new(&format!("/proc/self/task/{thread}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_files_are_known_by_each_of_their_names() {
        for (path, own) in [
            (c"/proc/self/exe", Some(Own::Executable)),
            (c"/proc/1000/exe", Some(Own::Executable)),
            (c"/proc/self/fd/7", Some(Own::Descriptor(7))),
            (c"/dev/fd/0", Some(Own::Descriptor(0))),
            (c"/dev/stderr", Some(Own::Descriptor(2))),
            (c"/proc/self/mem", Some(Own::Other)),
            (c"/proc/thread-self", Some(Own::Other)),
            (c"/proc/self/fd/x", Some(Own::Other)),
            (c"/proc/selfish", None),
            (c"/proc/cpuinfo", None),
            (c"/dev/null", None),
        ] {
            assert_eq!(named_for(path, 1000), own, "{path:?}");
        }
    }

    #[test]
    fn gretels_own_files_are_known_whatever_leads_to_them() {
        let opened = |path: &str| OwnedFd::from(std::fs::File::open(path).expect("a file of every Linux"));
        assert!(is_hosts(&opened("/proc/self/maps")));
        assert!(is_hosts(&opened(&format!("/proc/{}/task/../maps", std::process::id()))));
        assert!(!is_hosts(&opened("/proc/cpuinfo")));
    }
}
