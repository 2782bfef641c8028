//! The host's part of a path: whether it leads to /proc, which is not the host's for the guest.

use super::super::host;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// As many links as Linux follows in one path.
pub(super) const LINKS: usize = 40;
/// The lists of processors, which say one in the guest.
pub(super) const PROCESSORS: [&str; 3] =
    ["/sys/devices/system/cpu/online", "/sys/devices/system/cpu/possible", "/sys/devices/system/cpu/present"];

/// An error of the standard library as the kernel's: negative.
pub(super) fn number(error: &std::io::Error) -> i64 {
    -i64::from(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Where `path` leads from `directory`, if that is what the guest has of its own: an absolute path, of which nothing was looked up
/// beyond /proc. `None` if it stays with the host, also where there is no such file.
pub(super) fn leads(directory: RawFd, path: &CStr, follow: bool) -> Option<Vec<u8>> {
    let flags = if follow { 0 } else { libc::O_NOFOLLOW };
    match host::look_up(directory, path, flags) {
        Ok(file) if !host::is_proc(file.as_raw_fd()) => own(&file),
        _ => step_by_step(directory, path.to_bytes(), follow),
    }
}

/// The path of a file that the guest has of its own outside /proc.
fn own(file: &OwnedFd) -> Option<Vec<u8>> {
    if !host::is_sys(file.as_raw_fd()) {
        return None;
    }
    let path = host::path_of(file).ok()?;
    PROCESSORS.iter().any(|own| own.as_bytes() == path).then_some(path)
}

/// The same, name by name.
fn step_by_step(directory: RawFd, path: &[u8], follow: bool) -> Option<Vec<u8>> {
    let follow = follow || path.ends_with(b"/");
    let start = if path.starts_with(b"/") { c"/" } else { c"." };
    let mut at = host::look_up(directory, start, libc::O_DIRECTORY).ok()?;
    let mut rest = names(path);
    for _ in 0..=LINKS {
        loop {
            if host::is_proc(at.as_raw_fd()) {
                return Some(inside(&at, &rest));
            }
            let name = CString::new(rest.pop_front()?).ok()?;
            let next = host::look_up(at.as_raw_fd(), &name, libc::O_NOFOLLOW).ok()?;
            let target = host::read_link(next.as_raw_fd());
            match target {
                Some(target) if follow || !rest.is_empty() => {
                    if target.starts_with(b"/") {
                        at = host::look_up(libc::AT_FDCWD, c"/", libc::O_DIRECTORY).ok()?;
                    }
                    let mut all = names(&target);
                    all.append(&mut rest);
                    rest = all;
                    break;
                }
                _ => at = next,
            }
        }
    }
    None
}

fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && name != b".");
    names.map(<[u8]>::to_vec).collect()
}

/// The path of what lies below a folder of the host's /proc, wherever that is mounted.
fn inside(at: &OwnedFd, rest: &VecDeque<Vec<u8>>) -> Vec<u8> {
    let folder = host::path_of(at).ok().filter(|path| path.starts_with(b"/proc/"));
    let mut path = folder.unwrap_or_else(|| b"/proc".to_vec());
    for name in rest {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn from(directory: &std::path::Path, path: &str, follow: bool) -> Option<String> {
        let directory = std::fs::File::open(directory).expect("a folder");
        let path = CString::new(path).expect("no zero byte");
        leads(directory.as_raw_fd(), &path, follow).map(|path| String::from_utf8(path).expect("text"))
    }

    #[test]
    fn every_way_to_proc_is_known() {
        let folder = std::env::temp_dir().join(format!("gretel-outside-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sub")).expect("a folder");
        for (name, target) in [
            ("proc", "/proc"),
            ("maps", "/proc/self/maps"),
            ("fd", "/proc/1000000/fd/3"),
            ("twice", "sub/../proc"),
            ("itself", "itself"),
        ] {
            symlink(target, folder.join(name)).expect("a link");
        }
        let up = "../".repeat(20);
        for (path, follow, leads) in [
            ("proc/self/maps", true, Some("/proc/self/maps")),
            ("maps", true, Some("/proc/self/maps")),
            ("maps", false, None),
            ("fd", true, Some("/proc/1000000/fd/3")),
            ("fd", false, None),
            ("twice/1/mem", false, Some("/proc/1/mem")),
            (&format!("{up}proc/7"), true, Some("/proc/7")),
            ("/proc/self/cwd/x", true, Some("/proc/self/cwd/x")),
            ("/usr/../proc", true, Some("/proc")),
            ("proc/", false, Some("/proc")),
            ("itself", true, None),
            ("sub/missing", true, None),
            ("sub", true, None),
            ("/usr/bin", true, None),
        ] {
            assert_eq!(from(&folder, path, follow).as_deref(), leads, "{path}");
        }
        assert_eq!(
            from(std::path::Path::new("/proc/self"), "x", true).map(|path| path.ends_with("/x")),
            Some(true)
        );
        std::fs::remove_dir_all(&folder).expect("it is there");
    }
}
