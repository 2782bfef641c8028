//! /proc as the guest sees it: its own processes and its own processor, as files that are made here.
//!
//! No file of the host's /proc is ever opened for the guest, but for `version`, of which it can only ask whether it is ready
//! ([`open`]); what gretel's own folder in there holds cannot be reached. What is the
//! host's and says nothing of processes (the memory's size, the load, `sys`) is read by gretel and shown as text, through the gate
//! ([`system`]). The rest is computed from the personality's own state.
//!
//! [`walk`] is the one place that says what a path leads to, with [`outside`] for the host's part of the way; [`tree`] what there is
//! in each folder; [`calls`] the calls on it, [`open`] on what is open; [`attributes`] what stat tells. The texts are in [`tasks`],
//! [`status`], [`settings`], [`maps`], [`memory`] and [`system`]; [`start`] is what a program was started with.
//!
//! Example: `open("/dev/fd/../maps")`. The host's link /dev/fd leads to `/proc/self/fd`, which is not looked up there: the walk goes on
//! here, over `self` to the folder of the caller, its `fd`, back, and to `maps`. The text is made at the first read, and again
//! when the file is read from its start again, as by seq_file of the kernel.

pub(super) mod attributes;
pub(super) mod calls;
mod maps;
mod memory;
pub(super) mod open;
mod outside;
pub(super) mod rooted;
mod settings;
pub(crate) mod start;
mod status;
mod system;
mod tasks;
mod tree;
mod walk;

use super::descriptors::{OpenFile, Source};
use super::tasks::Task;
use super::{Guest, Kernel, Served, errno};
use crate::plain::plain;
pub(super) use outside::is_in_proc;
use std::collections::BTreeMap;
use tree::Entry;
pub(super) use walk::{Last, Place, find};

/// Whose folder: a process's, or a task's below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of {
    group: i32,
    thread: Option<i32>,
}

plain!(struct Of { group, thread });

impl Of {
    /// The task that is shown: a process's first one for its own folder.
    fn task(self) -> i32 {
        self.thread.unwrap_or(self.group)
    }

    fn path(self) -> String {
        match self.thread {
            None => format!("/proc/{}", self.group),
            Some(thread) => format!("/proc/{}/task/{thread}", self.group),
        }
    }
}

/// A file of /proc.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Names what is open: a link.
    Link,
    /// Says how it is open.
    Info,
}

plain!(enum Kind { 0 = Link, 1 = Info });

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Kind::Link => "fd",
            Kind::Info => "fdinfo",
        }
    }
}

/// A file of /proc, or one of /sys that is shown as if it were.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// /proc.
    Root,
    /// A link in there: its name, and where it leads.
    RootLink(String, String),
    /// The folder of a process or task.
    Task(Of),
    /// The folder of a process's tasks.
    Tasks(i32),
    /// The folder of its descriptors.
    Descriptors(Of, Kind),
    /// One of them.
    Descriptor(Of, Kind, i32),
    /// What else there is of a process or task.
    Entry(Of, &'static Entry),
    /// Nothing of a process: the path below /proc.
    System(String),
    /// The list of processors, by its path.
    Processors(String),
}

plain!(enum Node {
    0 = Root, 1 = RootLink(a, b), 2 = Task(a), 3 = Tasks(a), 4 = Descriptors(a, b), 5 = Descriptor(a, b, c), 6 = Entry(a, b),
    7 = System(a), 8 = Processors(a)
});

impl Node {
    /// Its path.
    pub(super) fn path(&self) -> String {
        match self {
            Node::Root => "/proc".to_owned(),
            Node::RootLink(name, _) => format!("/proc/{name}"),
            Node::Task(of) => of.path(),
            Node::Tasks(group) => format!("/proc/{group}/task"),
            Node::Descriptors(of, kind) => format!("{}/{}", of.path(), kind.folder()),
            Node::Descriptor(of, kind, number) => format!("{}/{}/{number}", of.path(), kind.folder()),
            Node::Entry(of, entry) => format!("{}/{}", of.path(), entry.name),
            Node::System(path) => format!("/proc/{path}"),
            Node::Processors(path) => path.clone(),
        }
    }

    /// Whose it is, if it is some task's.
    fn of(&self) -> Option<Of> {
        match self {
            Node::Task(of) | Node::Descriptors(of, _) | Node::Descriptor(of, ..) | Node::Entry(of, _) => {
                Some(*of)
            }
            Node::Tasks(group) => Some(Of { group: *group, thread: None }),
            _ => None,
        }
    }
}

/// Open files of /proc by object ([`Source::Proc`]).
pub(super) type Files = BTreeMap<u64, open::Opened>;

impl Kernel {
    /// The file of /proc that an open file is.
    pub(super) fn proc_file(&self, file: &OpenFile) -> Option<&open::Opened> {
        match file.source() {
            Some(Source::Proc(object)) => self.proc_files.get(&object),
            _ => None,
        }
    }

    /// The task that a folder shows, if it has not ended.
    fn shown(&self, of: Of) -> Option<&Task> {
        self.tasks.get(of.task()).filter(|task| task.group == of.group)
    }

    /// Whether there still is what a folder shows: a zombie is.
    fn exists(&self, of: Of) -> bool {
        match of.thread {
            None => self.groups.get(of.group).is_some(),
            Some(_) => self.shown(of).is_some(),
        }
    }

    /// Whether the program may see what is private to a process.
    fn may_see(&self, of: Of) -> bool {
        of.group == self.pid() || super::memory::may_look(self, of.group)
    }
}

/// Bytes of one of the host's files outside the guest, through the gate.
fn read_host(guest: &mut Guest<'_>, path: &str) -> Served<Vec<u8>> {
    guest.input_bytes(&mut || std::fs::read(path).map_err(|error| outside::number(&error)))
}

/// There is no such process any more.
fn gone<T>() -> Served<T> {
    errno(libc::ESRCH)
}
