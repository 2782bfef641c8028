//! gretel's own files in /proc: its descriptors, its memory. They are kept from the guest, to whom /proc is served by
//! [`super::proc`]: nothing below here is opened for it by whatever way.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

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
    fn gretels_own_files_are_known_whatever_leads_to_them() {
        let opened = |path: &str| OwnedFd::from(std::fs::File::open(path).expect("a file of every Linux"));
        assert!(is_hosts(&opened("/proc/self/maps")));
        assert!(is_hosts(&opened(&format!("/proc/{}/task/../maps", std::process::id()))));
        assert!(!is_hosts(&opened("/proc/cpuinfo")));
    }
}
