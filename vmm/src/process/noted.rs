//! What the kernel does to programs that a debugger may stop at, noted while somebody wants to know.
//!
//! Unlike [`super::trace`], which makes text of every call, this costs nothing where nothing of it happens.

use super::Process;
use crate::ram::Virt;

/// Something that a debugger may stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// A task's call has started another process.
    Forked {
        /// The task.
        by: i32,
        /// The new process, whose first task has the same id.
        pid: i32,
        /// The task waits until that has called exec or ended (vfork).
        waits: bool,
    },
    /// This task's wait for such a process is over.
    Released(i32),
    /// A process runs another program from here on.
    Executed(i32),
    /// A process has ended, and another is loaded if there is one.
    Ended {
        /// The process.
        pid: i32,
        /// The task of it that ran last.
        task: i32,
    },
    /// A signal was delivered.
    Signal {
        /// To this task.
        task: i32,
        /// Which.
        signal: i32,
        /// Where its handler begins; `None` where it ends the process.
        handler: Option<Virt>,
    },
}

/// What was noted since somebody looked.
#[derive(Default)]
pub(super) struct Notes {
    wanted: bool,
    list: Vec<Noted>,
}

impl Process {
    /// Notes from here on what the kernel does; or no longer. What was noted before is forgotten.
    pub fn note_kernel(&mut self, wanted: bool) {
        self.notes = Notes { wanted, list: Vec::new() };
    }

    /// What it has done since it was asked last, oldest first.
    #[must_use]
    pub fn noted(&self) -> &[Noted] {
        &self.notes.list
    }

    /// The same, which is then forgotten.
    pub fn take_noted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.notes.list)
    }

    pub(super) fn note(&mut self, noted: Noted) {
        if self.notes.wanted {
            self.notes.list.push(noted);
        }
    }

    /// A call of the loaded task has started another one: that is noted if it is a process.
    pub(super) fn note_start(&mut self) {
        let (task, pid) = self.kernel.tasks.newest();
        if pid == task {
            let waits = self.kernel.tasks.holds_parent(task);
            self.note(Noted::Forked { by: self.kernel.tasks.id(), pid, waits });
        }
    }
    /// A call of the loaded task that has waited is over: that is noted if it is a vfork, the only call that starts a task and waits.
    pub(super) fn note_release(&mut self, number: u64) {
        if [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3].contains(&number.cast_signed()) {
            self.note(Noted::Released(self.kernel.tasks.id()));
        }
    }
}
