//! Processes, which the kernel calls thread groups: who their parents are, and what is left of them when their tasks have ended.

use super::children::Change;
use super::descriptors::{Detached, OpenFile};
use super::identity::Credentials;
use super::proc::start::Start;
use super::signals::Pending;
use crate::plain::plain;
use crate::program::Limits;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::rc::Rc;

/// Limits by their numbers (RLIMIT_*).
pub(super) mod limit {
    pub(in super::super) const CPU: usize = 0;
    pub(in super::super) const FSIZE: usize = 1;
    pub(in super::super) const DATA: usize = 2;
    pub(in super::super) const NPROC: usize = 6;
    pub(in super::super) const NOFILE: usize = 7;
    pub(in super::super) const AS: usize = 9;
    pub(in super::super) const SIGPENDING: usize = 11;
    pub(in super::super) const NICE: usize = 13;
    pub(in super::super) const RTPRIO: usize = 14;
}

/// What Linux keeps for a process.
#[derive(Clone)]
pub(super) struct Group {
    /// The parent's process id; zero for one outside, whom nobody here is.
    pub(super) parent: i32,
    pub(super) process_group: i32,
    pub(super) session: i32,
    /// Its controlling terminal, if that is one of the guest's.
    pub(super) terminal: Option<u64>,
    /// Who was in the foreground of the terminal of this session when that was hung up; zero for nobody.
    pub(super) hung_up: i32,
    /// The signal for its parent at its end; zero for none.
    pub(super) exit_signal: i32,
    /// Signals for the process that all its tasks block.
    pub(super) pending: Pending,
    /// How it ended, as wait tells it: it is a zombie then.
    pub(super) ended: Option<i32>,
    /// exit_group was called, or a signal was fatal: its tasks are ending with this status.
    pub(super) ending: Option<i32>,
    /// The signal that it is stopped by.
    pub(super) stopped: Option<i32>,
    /// A change that no wait has told yet, besides its end.
    pub(super) news: Option<Change>,
    pub(super) credentials: Credentials,
    /// Soft and hard limits.
    pub(super) limits: [[u64; 2]; Limits::COUNT],
    /// The program's file, and the arguments that it was started with.
    pub(super) path: CString,
    /// That file; none at replay, where nobody asks for it ([`super::busy`]).
    pub(super) program: Option<Rc<OpenFile>>,
    pub(super) arguments: Vec<Vec<u8>>,
    /// Where its first stack holds what /proc shows of it.
    pub(super) start: Start,
    /// When it was made, by the monotonic clock.
    pub(super) started: u64,
    pub(super) oom_score_adj: i32,
    /// Orphans below it become its children (PR_SET_CHILD_SUBREAPER).
    pub(super) reaps: bool,
    /// PR_SET_DUMPABLE.
    pub(super) dumpable: bool,
    /// It has called exec since it was forked.
    pub(super) executed: bool,
    /// What it has registered for with membarrier.
    pub(super) barriers: i32,
    /// PR_SET_THP_DISABLE.
    pub(super) no_huge_pages: bool,
    /// What PR_MCE_KILL chose.
    pub(super) machine_check: u8,
    /// Processor time, in nanoseconds: its own, and of the children that it has waited for.
    pub(super) cpu: u64,
    pub(super) children_cpu: u64,
}
plain!(struct Group {
    parent, process_group, session, terminal, hung_up, exit_signal, pending, ended, ending, stopped, news,
    credentials, limits, path, program, arguments, start, started, oom_score_adj, reaps, dumpable, executed, barriers,
    no_huge_pages, machine_check, cpu, children_cpu
});

/// All processes by id, the zombies included.
#[derive(Clone, Default)]
pub(super) struct Groups {
    all: BTreeMap<i32, Group>,
}
plain!(struct Groups { all });

impl Groups {
    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Groups {
        let mut copy = self.clone();
        for program in copy.all.values_mut().filter_map(|group| group.program.as_mut()) {
            *program = files.file(program);
        }
        copy
    }

    /// Adds a process.
    pub(super) fn insert(&mut self, id: i32, group: Group) {
        self.all.insert(id, group);
    }

    /// Forgets a zombie.
    pub(super) fn remove(&mut self, id: i32) -> Option<Group> {
        self.all.remove(&id)
    }

    /// A process or zombie.
    pub(super) fn get(&self, id: i32) -> Option<&Group> {
        self.all.get(&id)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: i32) -> Option<&mut Group> {
        self.all.get_mut(&id)
    }

    /// All, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Group)> {
        self.all.iter().map(|(id, group)| (*id, group))
    }

    /// The children of a process, by id.
    pub(super) fn children(&self, parent: i32) -> impl Iterator<Item = (i32, &Group)> {
        self.iter().filter(move |(_, group)| group.parent == parent)
    }

    /// The processes of a process group, by id.
    pub(super) fn in_process_group(&self, process_group: i32) -> Vec<i32> {
        self.iter().filter(|(_, group)| group.process_group == process_group).map(|(id, _)| id).collect()
    }

    /// Whether a number is that of a process, process group or session.
    pub(super) fn uses(&self, id: i32) -> bool {
        self.all.contains_key(&id)
            || self.all.values().any(|group| group.process_group == id || group.session == id)
    }

    /// Who gets the children of `dead`: the nearest ancestor that reaps, or nobody (zero).
    pub(super) fn heir(&self, dead: i32) -> i32 {
        let mut at = self.get(dead).map_or(0, |group| group.parent);
        while let Some(group) = self.get(at) {
            if group.reaps && group.ended.is_none() && group.ending.is_none() {
                return at;
            }
            at = group.parent;
        }
        0
    }
}
