//! What there is in each folder of /proc, and where its links lead.

use super::super::descriptors::OpenFile;
use super::super::{Guest, Kernel, Served, errno};
use super::walk::own;
use super::{Kind, Node, Of, maps, memory, settings, start, status, system, tasks};
use crate::plain::{In, Out, Plain};
use std::rc::Rc;

/// Makes the text of a file of a process or task.
pub(super) type Make = fn(&mut Kernel, &mut Guest<'_>, Of) -> Served<Vec<u8>>;

/// What a file of a process's folder is.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// A text.
    Text(Make),
    /// Its memory.
    Memory,
    /// A link to its program's file.
    Executable,
    /// A link to its working directory.
    WorkingDirectory,
    /// A link to the root.
    Root,
}

/// A file of a process's folder.
#[derive(Debug)]
pub(in super::super) struct Entry {
    pub(super) name: &'static str,
    pub(super) mode: u32,
    pub(super) what: What,
    /// Only who may look into the process may open or follow it.
    pub(super) private: bool,
}

const fn text(name: &'static str, mode: u32, make: Make) -> Entry {
    Entry { name, mode, what: What::Text(make), private: false }
}

const fn private(name: &'static str, mode: u32, what: What) -> Entry {
    Entry { name, mode, what, private: true }
}

/// What the folders of processes and of tasks have.
const ENTRIES: &[Entry] = &[
    private("auxv", 0o400, What::Text(start::auxv)),
    text("cgroup", 0o444, system::cgroup),
    text("children", 0o444, tasks::children),
    text("cmdline", 0o444, start::cmdline),
    text("comm", 0o644, tasks::comm),
    text("coredump_filter", 0o644, settings::coredump_filter),
    text("cpuset", 0o444, settings::cpuset),
    private("cwd", 0o777, What::WorkingDirectory),
    private("environ", 0o400, What::Text(start::environ)),
    private("exe", 0o777, What::Executable),
    text("gid_map", 0o644, settings::gid_map),
    text("limits", 0o444, tasks::limits),
    text("loginuid", 0o644, settings::loginuid),
    private("maps", 0o444, What::Text(maps::maps)),
    private("mem", 0o600, What::Memory),
    text("mountinfo", 0o444, system::mountinfo),
    text("mounts", 0o444, system::mounts),
    text("oom_adj", 0o644, settings::oom_adj),
    text("oom_score", 0o444, tasks::oom_score),
    text("oom_score_adj", 0o644, tasks::oom_score_adj),
    private("personality", 0o400, What::Text(tasks::personality)),
    private("root", 0o777, What::Root),
    text("schedstat", 0o444, tasks::schedstat),
    text("sessionid", 0o444, settings::sessionid),
    text("setgroups", 0o644, settings::setgroups),
    private("smaps", 0o444, What::Text(maps::smaps)),
    private("smaps_rollup", 0o444, What::Text(maps::rollup)),
    text("stat", 0o444, status::stat),
    text("statm", 0o444, memory::statm),
    text("status", 0o444, status::status),
    text("timerslack_ns", 0o666, settings::timerslack),
    text("uid_map", 0o644, settings::uid_map),
    text("wchan", 0o444, tasks::wchan),
];

/// The links in /proc; where some lead depends on who looks.
const LINKS: [&str; 4] = ["mounts", "net", "self", "thread-self"];

/// The folder of the network, which each process has.
const NET: &[u8] = b"net";

impl Plain for &'static Entry {
    /// By its name, which is one of [`ENTRIES`].
    fn put(&self, out: &mut Out) {
        self.name.to_owned().put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        let name = String::take(from)?;
        ENTRIES.iter().find(|entry| entry.name == name)
    }
}

/// Where a link leads.
#[derive(Debug)]
pub(super) enum Target {
    /// To another file below /proc.
    Near(String),
    /// By this path.
    Path(Vec<u8>),
    /// To what is open.
    Open(Rc<OpenFile>),
}

/// A decimal number without leading zeros or signs.
fn number(name: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(name).ok()?;
    text.parse().ok().filter(|number: &i32| *number >= 0 && number.to_string() == text)
}

/// What a folder has by this name.
pub(super) fn child(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node, name: &[u8]) -> Served<Node> {
    let found = match node {
        Node::Root => in_root(kernel, name),
        Node::Task(of) => in_task(kernel, *of, name),
        Node::Tasks(group) => number(name)
            .map(|thread| Of { group: *group, thread: Some(thread) })
            .filter(|of| kernel.exists(*of))
            .map(Node::Task),
        Node::Descriptors(of, _) if !kernel.may_see(*of) => return errno(libc::EACCES),
        Node::Descriptors(of, kind) => {
            let open = |number: &i32| file(kernel, *of, *number).is_some();
            number(name).filter(open).map(|number| Node::Descriptor(*of, *kind, number))
        }
        Node::System(path) => {
            let name = std::str::from_utf8(name).ok();
            name.map(|name| Node::System(format!("{path}/{name}")))
        }
        _ => return errno(libc::ENOTDIR),
    };
    match found {
        Some(Node::System(path)) if !system::exists(guest, &path)? => errno(libc::ENOENT),
        Some(node) => Ok(node),
        None => errno(libc::ENOENT),
    }
}

fn in_root(kernel: &Kernel, name: &[u8]) -> Option<Node> {
    if let Some(id) = number(name) {
        // A thread's number leads to its folder, though no listing has it.
        let group = kernel.tasks.get(id).map_or(id, |task| task.group);
        let of = Of { group: id, thread: None };
        return match group == id {
            true => kernel.exists(of).then_some(Node::Task(of)),
            false => Some(Node::Task(Of { group, thread: Some(id) })),
        };
    }
    let name = std::str::from_utf8(name).ok()?;
    if let Some(link) = LINKS.into_iter().find(|link| *link == name) {
        let of = own(kernel);
        let to = match link {
            "self" => of.group.to_string(),
            "thread-self" => format!("{}/task/{}", of.group, of.task()),
            link => format!("self/{link}"),
        };
        return Some(Node::RootLink(link.to_owned(), to));
    }
    Some(Node::System(name.to_owned()))
}

fn in_task(kernel: &Kernel, of: Of, name: &[u8]) -> Option<Node> {
    if !kernel.exists(of) {
        return None;
    }
    match name {
        b"fd" => Some(Node::Descriptors(of, Kind::Link)),
        b"fdinfo" => Some(Node::Descriptors(of, Kind::Info)),
        // All see one network, gretel's own.
        NET => Some(Node::System("net".to_owned())),
        b"task" if of.thread.is_none() => Some(Node::Tasks(of.group)),
        name => entries(of).find(|entry| entry.name.as_bytes() == name).map(|entry| Node::Entry(of, entry)),
    }
}

/// The files of a process's or a task's folder.
fn entries(of: Of) -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().filter(move |entry| match entry.name {
        "children" => of.thread.is_some(),
        "coredump_filter" | "timerslack_ns" => of.thread.is_none(),
        _ => true,
    })
}

/// The folder that holds a file.
pub(super) fn parent(node: &Node) -> Node {
    match node {
        Node::Task(Of { group, thread: Some(_) }) => Node::Tasks(*group),
        Node::Tasks(group) => Node::Task(Of { group: *group, thread: None }),
        Node::Descriptors(of, _) | Node::Entry(of, _) => Node::Task(*of),
        Node::Descriptor(of, kind, _) => Node::Descriptors(*of, *kind),
        Node::System(path) => match path.rsplit_once('/') {
            Some((folder, _)) => Node::System(folder.to_owned()),
            None => Node::Root,
        },
        _ => Node::Root,
    }
}

/// What a task has open under a number.
pub(super) fn file(kernel: &Kernel, of: Of, number: i32) -> Option<Rc<OpenFile>> {
    let task = kernel.shown(of)?;
    kernel.tables.get(task.files).get(number).ok()
}

/// Where a link leads; `None` for what is no link.
pub(super) fn target(kernel: &Kernel, node: &Node) -> Served<Option<Target>> {
    let (of, target) = match node {
        Node::RootLink(_, to) => return Ok(Some(Target::Near(to.clone()))),
        Node::Descriptor(of, Kind::Link, number) => (*of, file(kernel, *of, *number).map(Target::Open)),
        Node::Entry(of, entry) => {
            let target = match entry.what {
                What::Text(_) | What::Memory => return Ok(None),
                What::Executable => {
                    let group = kernel.groups.get(of.group);
                    group.map(|group| Target::Path(group.path.to_bytes().to_vec()))
                }
                What::WorkingDirectory => kernel
                    .shown(*of)
                    .map(|task| Target::Open(Rc::clone(&kernel.places.get(task.place).directory))),
                What::Root => Some(Target::Path(b"/".to_vec())),
            };
            (*of, target.filter(|_| kernel.shown(*of).is_some()))
        }
        _ => return Ok(None),
    };
    match target {
        Some(_) if !kernel.may_see(of) => errno(libc::EACCES),
        Some(target) => Ok(Some(target)),
        None => errno(libc::ENOENT),
    }
}

/// What a folder lists, without itself and its parent: names, each with the type that getdents gives.
pub(super) fn list(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node) -> Served<Vec<(String, u8)>> {
    let folders =
        |ids: Vec<i32>| ids.into_iter().map(|id| (id.to_string(), libc::DT_DIR)).collect::<Vec<_>>();
    match node {
        Node::Root => {
            let mut all: Vec<_> = LINKS.iter().map(|name| ((*name).to_owned(), libc::DT_LNK)).collect();
            all.extend(system::list(guest, "")?.into_iter().filter(|(name, _)| name.as_bytes() != NET));
            all.sort();
            all.extend(folders(kernel.groups.iter().map(|(id, _)| id).collect()));
            Ok(all)
        }
        Node::Tasks(group) => Ok(folders(kernel.tasks.ids_of_group(*group))),
        Node::Task(of) if !kernel.exists(*of) => errno(libc::ENOENT),
        Node::Task(of) => Ok(list_task(*of)),
        Node::Descriptors(of, _) if !kernel.may_see(*of) => errno(libc::EACCES),
        Node::Descriptors(of, kind) => {
            let Some(task) = kernel.shown(*of) else { return errno(libc::ENOENT) };
            let is = if matches!(kind, Kind::Link) { libc::DT_LNK } else { libc::DT_REG };
            Ok(kernel.tables.get(task.files).iter().map(|(number, _)| (number.to_string(), is)).collect())
        }
        Node::System(path) => system::list(guest, path),
        _ => errno(libc::ENOTDIR),
    }
}

fn list_task(of: Of) -> Vec<(String, u8)> {
    let mut all: Vec<_> = ["fd", "fdinfo", "net"].map(|name| (name.to_owned(), libc::DT_DIR)).into();
    if of.thread.is_none() {
        all.push(("task".to_owned(), libc::DT_DIR));
    }
    all.extend(entries(of).map(|entry| {
        let is = match entry.what {
            What::Text(_) | What::Memory => libc::DT_REG,
            _ => libc::DT_LNK,
        };
        (entry.name.to_owned(), is)
    }));
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_name_processes() {
        assert_eq!(number(b"1000"), Some(1000));
        assert_eq!(number(b"0"), Some(0));
        for name in [&b"01"[..], b"+1", b"-1", b"", b"1x", b"99999999999"] {
            assert_eq!(number(name), None, "{:?}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn names_are_in_order_and_once() {
        let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    }
}
