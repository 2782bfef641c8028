//! Whom Linux kills when memory is used up (mm/oom_kill.c): the process that has most of it, as its `oom_score_adj` moves that, and
//! all that share its memory.

use super::signals::bit;
use super::{Guest, Kernel, Spaces};
use crate::memory::layout::USER_END;
use crate::ram::{Memory, PAGE};
use crate::signal::Raised;

/// Who has this in `oom_score_adj` is not killed (OOM_SCORE_ADJ_MIN).
const NEVER: i32 = -1000;
/// A page table has so many entries.
const ENTRIES: u64 = 512;

/// A process that was killed because memory was used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KilledForMemory {
    /// The process.
    pub pid: i32,
    /// Its name, as `comm` in /proc has it.
    pub name: String,
    /// How many bytes it had in memory.
    pub bytes: u64,
    /// Its `oom_score_adj`.
    pub adjustment: i32,
}

impl Kernel {
    /// Who was killed because memory was used up, in order.
    pub(crate) fn killed_for_memory(&self) -> &[KilledForMemory] {
        &self.killed
    }

    /// Whether memory is about to come back: a process is killed and has not ended yet, or what one has left is not free yet.
    pub(crate) fn gets_memory_back(&self) -> bool {
        self.tasks.leaves_space()
            || self.tasks.living().any(|(id, _)| self.pending_for(id) & bit(libc::SIGKILL) != 0)
    }

    /// The process to kill for memory: of several that are as bad, the newest; `None` if none may be.
    pub(crate) fn worst(&self, spaces: &Spaces, memory: &Memory) -> Option<i32> {
        let living = self.groups.iter().filter(|(_, group)| group.ended.is_none());
        let rated = living.filter_map(|(pid, _)| Some((self.badness(pid, spaces, memory)?, pid)));
        rated.max_by_key(|(badness, _)| *badness).map(|(_, pid)| pid)
    }

    /// How many pages a process has, moved by as many thousandths of all memory as it asks for; `None` if it is not to be killed: by its
    /// wish, or since it has a parent's memory until it calls exec.
    fn badness(&self, pid: i32, spaces: &Spaces, memory: &Memory) -> Option<i64> {
        let adjustment = self.groups.get(pid)?.oom_score_adj;
        let (_, task) = self.tasks.of_group(pid).next()?;
        if adjustment == NEVER || self.tasks.of_group(pid).any(|(_, task)| task.vfork_parent.is_some()) {
            return None;
        }
        let pages = spaces.get(task.space).resident(memory.ram(), &(0..USER_END)).len() as u64;
        Some(points(pages, adjustment, memory.frames().limit() / PAGE))
    }

    /// What `oom_score` in /proc says of a process that has so many pages in memory.
    pub(super) fn oom_score(&self, pages: u64, adjustment: i32) -> i64 {
        let all = (self.memory / PAGE).cast_signed();
        match adjustment {
            NEVER => 0,
            _ if all == 0 => (1000 + i64::from(adjustment)) * 2 / 3,
            _ => (1000 + points(pages, adjustment, self.memory / PAGE) * 1000 / all) * 2 / 3,
        }
    }

    /// Kills a process and those that share its memory, and says so once for each.
    pub(crate) fn kill_for_memory(&mut self, guest: &Guest<'_>, pid: i32) {
        let Some(space) = self.tasks.of_group(pid).next().map(|(_, task)| task.space) else { return };
        let sharing = self.tasks.living().filter(|(_, task)| task.space == space).map(|(_, task)| task.group);
        let mut sharing: Vec<i32> = sharing.collect();
        sharing.sort_unstable();
        sharing.dedup();
        let pages = guest.spaces.get(space).resident(guest.memory.ram(), &(0..USER_END)).len() as u64;
        for pid in sharing {
            let (name, adjustment) =
                (self.command_name(pid), self.groups.get(pid).map_or(0, |it| it.oom_score_adj));
            let killed = KilledForMemory { pid, name, bytes: pages * PAGE, adjustment };
            if !self.is_silent {
                tracing::warn!("{killed}");
            }
            self.killed.push(killed);
            self.signal_group(pid, Raised::by_kernel(libc::SIGKILL));
        }
    }

    fn command_name(&self, pid: i32) -> String {
        let name = self.tasks.of_group(pid).next().map_or(&[][..], |(_, task)| &task.name);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }
}

/// The badness of a process with so many of all pages, its page tables about as they must be.
fn points(pages: u64, adjustment: i32, all: u64) -> i64 {
    let thousandth = (all / 1000).cast_signed();
    (pages + pages.div_ceil(ENTRIES)).cast_signed().saturating_add(i64::from(adjustment) * thousandth)
}

impl std::fmt::Display for KilledForMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let KilledForMemory { pid, name, bytes, adjustment } = self;
        let kib = bytes >> 10;
        write!(
            f,
            "out of memory: killed process {pid} ({name}), which had {kib} KiB, oom_score_adj {adjustment}"
        )
    }
}
