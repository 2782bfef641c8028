//! The host's part of a path: whether it leads to /proc, which is not the host's for the guest.

use super::super::{Guarded, host};
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

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// To a file of the host's, or to none.
    Host,
    /// To what the guest has of its own: an absolute path, of which nothing was looked up beyond /proc.
    Own(Vec<u8>),
    /// Into the recording.
    Guarded,
    /// It cannot be known: an error number, negative. No call may be made with it.
    Unknown(i64),
}

/// Where `path` leads from `directory`.
pub(super) fn leads(directory: RawFd, path: &CStr, follow: bool, guarded: &Guarded) -> Leads {
    let flags = if follow { 0 } else { libc::O_NOFOLLOW };
    let found = host::look_up(directory, path, flags);
    match found.as_ref().map(|file| (file, host::file_system(file.as_raw_fd()))) {
        Ok((file, kind)) if kind != Some(libc::PROC_SUPER_MAGIC) => {
            if guarded.hides(file.as_raw_fd()) {
                return Leads::Guarded;
            }
            let own = if kind == Some(libc::SYSFS_MAGIC) { own(file) } else { None };
            own.map_or(Leads::Host, Leads::Own)
        }
        _ => match step_by_step(directory, path.to_bytes(), follow, guarded) {
            Ok(leads) => leads.unwrap_or(Leads::Host),
            Err(error) => Leads::Unknown(error),
        },
    }
}

/// Opens a part of a path to look at it. `None`: there is nothing that can be looked at, so nothing that a call could reach. It is an
/// error when only gretel cannot look, for want of descriptors or memory.
fn look_at(directory: RawFd, name: &CStr, flags: i32) -> Result<Option<OwnedFd>, i64> {
    match host::look_up(directory, name, flags) {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if [libc::EMFILE, libc::ENFILE, libc::ENOMEM].iter().any(|it| error == -i64::from(*it)) =>
        {
            Err(error)
        }
        Err(_) => Ok(None),
    }
}

/// Whether `path` leads to the host's /proc.
pub(in super::super) fn is_in_proc(directory: RawFd, path: &CStr) -> bool {
    matches!(leads(directory, path, false, &Guarded::default()), Leads::Own(_))
}

/// The path of a file in /sys that the guest has of its own.
fn own(file: &OwnedFd) -> Option<Vec<u8>> {
    let path = host::path_of(file).ok()?;
    PROCESSORS.iter().any(|own| own.as_bytes() == path).then_some(path)
}

/// The same, name by name; `None` for a file of the host's, or none.
fn step_by_step(
    directory: RawFd,
    path: &[u8],
    follow: bool,
    guarded: &Guarded,
) -> Result<Option<Leads>, i64> {
    let follow = follow || path.ends_with(b"/");
    let start = if path.starts_with(b"/") { c"/" } else { c"." };
    let Some(mut at) = look_at(directory, start, libc::O_DIRECTORY)? else { return Ok(None) };
    let mut rest = names(path);
    for _ in 0..=LINKS {
        loop {
            if host::is_proc(at.as_raw_fd()) {
                return Ok(Some(Leads::Own(inside(&at, &rest))));
            }
            // A name that would be made there, if it is not on the way to somewhere else.
            if rest.len() <= 1 && guarded.hides(at.as_raw_fd()) {
                return Ok(Some(Leads::Guarded));
            }
            let Some(name) = rest.pop_front().and_then(|name| CString::new(name).ok()) else {
                return Ok(None);
            };
            let Some(next) = look_at(at.as_raw_fd(), &name, libc::O_NOFOLLOW)? else { return Ok(None) };
            let target = host::read_link(next.as_raw_fd());
            match target {
                Some(target) if follow || !rest.is_empty() => {
                    if target.starts_with(b"/") {
                        match look_at(libc::AT_FDCWD, c"/", libc::O_DIRECTORY)? {
                            Some(root) => at = root,
                            None => return Ok(None),
                        }
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
    Ok(None)
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
        match leads(directory.as_raw_fd(), &path, follow, &Guarded::default()) {
            Leads::Own(path) => Some(String::from_utf8(path).expect("text")),
            Leads::Host | Leads::Guarded | Leads::Unknown(_) => None,
        }
    }

    #[test]
    fn no_way_leads_into_what_is_guarded() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("rec/flight")).expect("a folder");
        std::fs::create_dir(dir.path().join("sub")).expect("a folder");
        std::fs::write(dir.path().join("rec/journal"), "x").expect("a file");
        for (name, target) in [("journal", "rec/journal"), ("rec2", "sub/../rec"), ("made", "rec/made")] {
            symlink(target, dir.path().join(name)).expect("a link");
        }
        let guarded = Guarded::folder(&dir.path().join("rec")).expect("it is there");
        let top = std::fs::File::open(dir.path()).expect("a folder");
        for (path, follow, is) in [
            (c"rec", false, true),
            (c"rec/", true, true),
            (c"rec/journal", false, true),
            (c"rec/missing", false, true),
            (c"rec/flight/missing", true, true),
            (c"sub/../rec/journal", true, true),
            (c"rec2", true, true),
            (c"rec2/missing", false, true),
            (c"journal", true, true),
            (c"made", true, true),
            (c"made", false, false),
            (c"journal", false, false),
            (c"rec2", false, false),
            (c"rec/../sub", true, false),
            (c"rec/../missing", true, false),
            (c"sub/missing", true, false),
        ] {
            let leads = leads(top.as_raw_fd(), path, follow, &guarded);
            assert_eq!(leads == Leads::Guarded, is, "{path:?}");
        }
        let inside = std::fs::File::open(dir.path().join("rec")).expect("a folder");
        assert_eq!(leads(inside.as_raw_fd(), c"made", true, &guarded), Leads::Guarded);
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
