//! Paths of a process whose root is a folder (chroot): followed name by name from there, to a path of the host's without links and `..`.

use super::super::{Kernel, host};
use super::outside::LINKS;
use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The host's path of what `path` leads to from a directory, for who cannot leave `root`. The last name need not be there.
pub(super) fn resolve(root: RawFd, directory: RawFd, path: &[u8], follow: bool) -> Result<Vec<u8>, i64> {
    let root = host_path(root)?;
    let mut at = if path.starts_with(b"/") { root.clone() } else { host_path(directory)? };
    let mut rest = names(path);
    let follow = follow || path.ends_with(b"/");
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == b".." {
            if at != root {
                at.pop();
            }
            continue;
        }
        let next = at.join(OsStr::from_bytes(&name));
        match link(&next)? {
            Link::To(target) if follow || !rest.is_empty() => {
                links += 1;
                if links > LINKS {
                    return Err(-i64::from(libc::ELOOP));
                }
                if target.starts_with(b"/") {
                    at.clone_from(&root);
                }
                let mut all = names(&target);
                all.append(&mut rest);
                rest = all;
            }
            Link::Missing if !rest.is_empty() => return Err(-i64::from(libc::ENOENT)),
            _ => at = next,
        }
    }
    let mut found = at.into_os_string().into_encoded_bytes();
    // What must be a folder is asked for as one.
    if path.ends_with(b"/") && found != b"/" {
        found.push(b'/');
    }
    Ok(found)
}

/// What is at the end of a path.
enum Link {
    To(Vec<u8>),
    /// There is no link there.
    None,
    Missing,
}

fn link(path: &Path) -> Result<Link, i64> {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return Err(-i64::from(libc::EINVAL)) };
    match host::look_up(libc::AT_FDCWD, &name, libc::O_NOFOLLOW) {
        Ok(found) => Ok(host::read_link(found.as_raw_fd()).map_or(Link::None, Link::To)),
        Err(error) if error == -i64::from(libc::ENOENT) => Ok(Link::Missing),
        Err(error) => Err(error),
    }
}

fn host_path(directory: RawFd) -> Result<PathBuf, i64> {
    Ok(PathBuf::from(OsStr::from_bytes(&host::path_of(&directory)?)))
}

fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && name != b".");
    names.map(<[u8]>::to_vec).collect()
}

impl Kernel {
    /// The host's descriptor of the caller's root, if that is not the host's.
    pub(in super::super) fn root(&self) -> Option<RawFd> {
        self.place().root.as_ref().map(|root| root.host())
    }
}

/// A path of the host's as who cannot leave `root` sees it.
pub(in super::super) fn seen_from(root: RawFd, path: Vec<u8>) -> Result<Vec<u8>, i64> {
    let root = host_path(root)?;
    match Path::new(OsStr::from_bytes(&path)).strip_prefix(root) {
        Ok(below) => Ok([b"/", below.as_os_str().as_bytes()].concat()),
        Err(_) => Ok([b"(unreachable)", &path[..]].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    #[test]
    fn no_way_leads_out_of_a_root() {
        let dir = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(dir.path()).expect("it is there");
        fs::create_dir_all(top.join("jail/etc/sub")).expect("a folder");
        fs::write(top.join("jail/etc/passwd"), "").expect("a file");
        for (name, target) in
            [("up", "../../.."), ("absolute", "/etc/passwd"), ("loop", "loop"), ("out", "../..")]
        {
            symlink(target, top.join("jail").join(name)).expect("a link");
        }
        let (root, sub) =
            (File::open(top.join("jail")).expect("a folder"), File::open(top.join("jail/etc/sub")));
        let sub = sub.expect("a folder");
        let found = |path: &str, follow| {
            let found = resolve(root.as_raw_fd(), sub.as_raw_fd(), path.as_bytes(), follow)?;
            let found = String::from_utf8(found).expect("text");
            Ok(found.strip_prefix(top.to_str().expect("text")).expect("below").to_owned())
        };
        let jailed = |path: &str| Ok(format!("/jail{path}"));
        assert_eq!(found("/etc/passwd", true), jailed("/etc/passwd"));
        assert_eq!(found("/../../etc/./passwd", true), jailed("/etc/passwd"));
        assert_eq!(found("../passwd", true), jailed("/etc/passwd"));
        assert_eq!(found("../../../../..", true), jailed(""));
        assert_eq!(found("/up/etc", true), jailed("/etc"));
        assert_eq!(found("/absolute", true), jailed("/etc/passwd"));
        assert_eq!(found("/absolute", false), jailed("/absolute"));
        assert_eq!(found("/new", false), jailed("/new"));
        assert_eq!(found("/etc/", true), jailed("/etc/"));
        assert_eq!(found("/missing/new", false), Err(-i64::from(libc::ENOENT)));
        assert_eq!(found("/loop", true), Err(-i64::from(libc::ELOOP)));
        let seen =
            |path: &str| seen_from(root.as_raw_fd(), top.join(path).into_os_string().into_encoded_bytes());
        assert_eq!(seen("jail/etc"), Ok(b"/etc".to_vec()));
        assert_eq!(seen("jail"), Ok(b"/".to_vec()));
        assert!(seen("other").expect("text").starts_with(b"(unreachable)/"));
    }
}
