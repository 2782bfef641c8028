//! What a path leads to: the one place that decides it, for every call that takes a path.
//!
//! A path that begins in the host stays there unless it leads to /proc by any way ([`outside`]); from there on it is followed here,
//! and by `..` or one of /proc's links it may lead back. A link to what is open leads to the open file itself, whatever its name is now.

use super::super::descriptors::OpenFile;
use super::super::{Guest, Kernel, Served, errno};
use super::outside::{self, LINKS, Leads, PROCESSORS};
use super::rooted::resolve;
use super::tree::{Target, child, parent, target};
use super::{Node, Of};
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::rc::Rc;

/// What is done about a link that a path ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Last {
    /// It is followed.
    Followed,
    /// The call is about the link.
    Kept,
}

/// What a path leads to; one that leads into the recording is not found.
#[derive(Debug)]
pub(in super::super) enum Place {
    /// The host's file of this path, from this directory on.
    Host(RawFd, CString),
    /// What is open here, reached by a link of /proc.
    Open(Rc<OpenFile>),
    /// A file of /proc.
    Proc(Node),
}

/// Where a walk has come to.
enum At {
    Host(RawFd),
    Proc(Node),
}

/// What one part of a walk came to.
enum Step {
    Found(Place),
    /// It goes on there, with this path.
    On(At, Vec<u8>),
}

/// What `path` leads to from the directory that is open as `directory`. An empty path is the directory itself.
pub(in super::super) fn find(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    directory: i32,
    path: &CStr,
    last: Last,
) -> Served<Place> {
    let mut at = At::Host(kernel.host_directory(directory));
    let mut path = path.to_bytes().to_vec();
    if !path.starts_with(b"/") {
        let start = match directory {
            libc::AT_FDCWD => Some(Rc::clone(&kernel.place().directory)),
            number => kernel.files().get(number).ok(),
        };
        if let Some(node) = start.and_then(|file| Some(kernel.proc_file(&file)?.node.clone())) {
            if path.is_empty() {
                return Ok(Place::Proc(node));
            }
            at = At::Proc(node);
        }
    }
    if let (At::Host(directory), Some(root)) = (&at, kernel.root())
        && !path.is_empty()
    {
        let (directory, asked) = (*directory, std::mem::take(&mut path));
        path = guest.input_bytes(&mut || resolve(root, directory, &asked, last == Last::Followed))?;
        at = At::Host(libc::AT_FDCWD);
    }
    for _ in 0..LINKS {
        let step = match at {
            At::Host(directory) => in_host(kernel, guest, directory, path, last)?,
            At::Proc(node) => in_proc(kernel, guest, node, &path, last)?,
        };
        match step {
            Step::Found(place) => return Ok(place),
            Step::On(to, rest) => (at, path) = (to, rest),
        }
    }
    errno(libc::ELOOP)
}

/// Names of /dev that are links to /proc on every Linux, also where /dev has few files.
fn in_dev(path: &[u8], last: Last) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(b"/dev/")?;
    let number = match rest {
        b"stdin" => b"0",
        b"stdout" => b"1",
        b"stderr" => b"2",
        _ => return Some([b"/proc/self/fd/", rest.strip_prefix(b"fd/")?].concat()),
    };
    (last == Last::Followed).then(|| [&b"/proc/self/fd/"[..], number].concat())
}

fn in_host(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    directory: RawFd,
    path: Vec<u8>,
    last: Last,
) -> Served<Step> {
    let path = in_dev(&path, last).unwrap_or(path);
    if let Some(rest) = below_proc(&path) {
        let rest = rest.to_vec();
        return Ok(Step::On(At::Proc(Node::Root), rest));
    }
    if PROCESSORS.iter().any(|own| own.as_bytes() == path) {
        return Ok(Step::Found(Place::Proc(Node::Processors(String::from_utf8_lossy(&path).into_owned()))));
    }
    let Ok(name) = CString::new(path) else { return errno(libc::EINVAL) };
    if name.is_empty() {
        return Ok(Step::Found(Place::Host(directory, name)));
    }
    let follow = last == Last::Followed;
    let told =
        guest.input_bytes(&mut || match outside::leads(directory, &name, follow, &kernel.guarded) {
            Leads::Host => Ok(Vec::new()),
            Leads::Own(path) => Ok(path),
            Leads::Guarded => Err(-i64::from(libc::ENOENT)),
            Leads::Unknown(error) => Err(error),
        })?;
    if told.is_empty() {
        return Ok(Step::Found(Place::Host(directory, name)));
    }
    Ok(Step::On(At::Host(libc::AT_FDCWD), told))
}

/// What follows /proc in an absolute path that begins with it.
fn below_proc(path: &[u8]) -> Option<&[u8]> {
    let mut rest = path.strip_prefix(b"/")?;
    loop {
        rest = match rest {
            [b'/', rest @ ..] | [b'.', b'/', rest @ ..] => rest,
            _ => break,
        };
    }
    rest.strip_prefix(b"proc").filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Follows a path inside /proc up to its end, a link, or the way out.
fn in_proc(kernel: &Kernel, guest: &mut Guest<'_>, mut node: Node, path: &[u8], last: Last) -> Served<Step> {
    let mut rest = path;
    loop {
        let begin = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
        rest = &rest[begin..];
        if rest.is_empty() {
            return Ok(Step::Found(Place::Proc(node)));
        }
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let name;
        (name, rest) = rest.split_at(end);
        if !node.is_folder(guest)? {
            return errno(libc::ENOTDIR);
        }
        match name {
            b"." => {}
            b".." if matches!(node, Node::Root) => {
                return Ok(Step::On(At::Host(libc::AT_FDCWD), [&b"/"[..], rest].concat()));
            }
            b".." => node = parent(&node),
            name => {
                let next = child(kernel, guest, &node, name)?;
                let Some(target) = target(kernel, &next)? else {
                    node = next;
                    continue;
                };
                if rest.is_empty() && last == Last::Kept {
                    return Ok(Step::Found(Place::Proc(next)));
                }
                return Ok(follow(kernel, target, rest));
            }
        }
        if !rest.is_empty() && !node.is_folder(guest)? {
            return errno(libc::ENOTDIR);
        }
    }
}

/// Goes on behind a link.
fn follow(kernel: &Kernel, target: Target, rest: &[u8]) -> Step {
    let behind = rest.iter().position(|byte| *byte != b'/').map_or(&b""[..], |at| &rest[at..]);
    match target {
        Target::Near(name) => Step::On(At::Proc(Node::Root), [name.as_bytes(), rest].concat()),
        Target::Path(path) => Step::On(At::Host(libc::AT_FDCWD), [&path, rest].concat()),
        Target::Open(file) => match kernel.proc_file(&file) {
            Some(opened) if rest.is_empty() => Step::Found(Place::Proc(opened.node.clone())),
            Some(opened) => Step::On(At::Proc(opened.node.clone()), rest.to_vec()),
            None if behind.is_empty() && rest.is_empty() => Step::Found(Place::Open(file)),
            // Of what is no directory, the host says so.
            None if behind.is_empty() => Step::On(At::Host(file.host()), b".".to_vec()),
            None => Step::On(At::Host(file.host()), behind.to_vec()),
        },
    }
}

/// The folder of the task that runs.
pub(super) fn own(kernel: &Kernel) -> Of {
    Of { group: kernel.pid(), thread: Some(kernel.tasks.id()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_known_by_each_of_its_spellings() {
        for (path, rest) in [
            (&b"/proc"[..], Some(&b""[..])),
            (b"/proc/self/maps", Some(b"/self/maps")),
            (b"//.//proc/", Some(b"/")),
            (b"/process", None),
            (b"proc/self", None),
            (b"/usr/../proc", None),
        ] {
            assert_eq!(below_proc(path), rest, "{:?}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn the_links_of_dev_lead_to_descriptors() {
        let leads = |path: &str, last| {
            in_dev(path.as_bytes(), last).map(|path| String::from_utf8(path).expect("text"))
        };
        assert_eq!(leads("/dev/stdin", Last::Followed).as_deref(), Some("/proc/self/fd/0"));
        assert_eq!(leads("/dev/stderr", Last::Kept), None);
        assert_eq!(leads("/dev/fd/63", Last::Kept).as_deref(), Some("/proc/self/fd/63"));
        assert_eq!(leads("/dev/null", Last::Followed), None);
    }
}
