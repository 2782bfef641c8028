//! The end of tasks and of processes.

use super::children::{CORE_FLAG, how_it_ended};
use super::futex;
use super::signals::handler;
use super::wait::Why;
use super::{Guest, Kernel, Outcome, Served, Stop};
use crate::failure::ProcessError;
use crate::ram::Virt;
use crate::signal::{Cause, Death, Raised};

/// No list of robust futexes is followed further than this (ROBUST_LIST_LIMIT).
const LONGEST_LIST: usize = 2048;

/// How the last process ended, which is how all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// There are others.
    NotYet,
    /// No task is left.
    AllEnded,
}

/// exit: the end of the task that runs, and of its process if it is the last.
pub(super) fn exit(kernel: &mut Kernel, guest: &mut Guest<'_>, status: i32) -> Served<Outcome> {
    let group = kernel.tasks.current().group;
    if kernel.tasks.of_group(group).count() == 1 {
        return Ok(Outcome::Exit(status));
    }
    let id = kernel.tasks.id();
    kernel.leave(guest, id)?;
    kernel.tasks.end(id);
    Ok(Outcome::TaskEnded)
}

impl Kernel {
    /// Lets go of what a task of the loaded address space holds: robust futexes, the word that tells its end, vfork's
    /// parent, and its shares of what tasks share.
    fn leave(&mut self, guest: &mut Guest<'_>, id: i32) -> Served<()> {
        let Some(task) = self.tasks.get_mut(id) else { return Ok(()) };
        let (robust, clear) = (std::mem::take(&mut task.robust), std::mem::take(&mut task.clear_at_end));
        let (files, place, handlers) = (task.files, task.place, task.handlers);
        self.let_go_of_memory(guest, id, robust, clear)?;
        self.end_vfork(id);
        self.tables.release(files);
        self.places.release(place);
        self.handlers.release(handlers);
        self.sweep_flights(guest)?;
        Ok(())
    }

    /// Lets go of what a task of the loaded address space holds in memory, and tells its end there.
    fn let_go_of_memory(&mut self, guest: &mut Guest<'_>, id: i32, robust: Virt, clear: Virt) -> Served<()> {
        if robust != 0 {
            forgive(release(self, guest, robust, id))?;
        }
        futex::owner_ended(self, guest, id)?;
        if clear != 0 && guest.spaces.owners(*guest.space) > 1 && forgive(guest.write(clear, &[0; 4]))? {
            futex::wake_at(self, guest, clear, 1);
        }
        Ok(())
    }

    /// The same for the task that runs, when exec takes its address space away.
    pub(super) fn leave_memory(&mut self, guest: &mut Guest<'_>) -> Served<()> {
        let id = self.tasks.id();
        let task = self.tasks.current_mut();
        let (robust, clear) = (std::mem::take(&mut task.robust), std::mem::take(&mut task.clear_at_end));
        self.let_go_of_memory(guest, id, robust, clear)
    }

    /// Wakes the parent of a vfork: its child has called exec, or ended.
    pub(super) fn end_vfork(&mut self, id: i32) {
        let parent = self.tasks.get_mut(id).and_then(|task| task.vfork_parent.take());
        if let Some(parent) = parent {
            self.tasks.wake(parent, Why::Ready);
        }
    }

    /// Ends all tasks of the loaded one's process but `kept`.
    pub(super) fn end_others(&mut self, guest: &mut Guest<'_>, kept: i32) -> Served<()> {
        let group = self.tasks.current().group;
        for id in self.tasks.ids_of_group(group) {
            if id != kept {
                self.leave(guest, id)?;
                if let Some(task) = self.tasks.get(id) {
                    guest.release_space(task.space);
                }
                self.tasks.end(id);
            }
        }
        Ok(())
    }

    /// Ends the loaded task's process with a status as wait tells it. Its address space stays if no task is left at all, so that
    /// the end can be looked at.
    pub(crate) fn end_process(&mut self, guest: &mut Guest<'_>, status: i32) -> Result<Last, ProcessError> {
        let (id, pid) = (self.tasks.id(), self.tasks.current().group);
        match self.end_others(guest, id).and_then(|()| self.leave(guest, id)) {
            Ok(()) | Err(Stop::Errno(_) | Stop::Wait(_)) => {}
            Err(Stop::Fatal(error)) => return Err(error),
        }
        let space = self.tasks.current().space;
        self.tasks.end(id);
        self.timers_end(pid);
        self.ipc_end(pid);
        self.unlock_ended(pid);
        self.leave_terminal_at_end(pid);
        let heir = self.groups.heir(pid);
        let children: Vec<i32> = self.groups.children(pid).map(|(child, _)| child).collect();
        for child in children {
            self.orphan(child, heir);
        }
        self.bury(pid, status);
        if self.tasks.living().next().is_none() {
            self.settle(guest)?;
            return Ok(Last::AllEnded);
        }
        self.tasks.leave_space(space);
        if let Err(Stop::Fatal(error)) = self.sweep_shared(guest) {
            return Err(error);
        }
        Ok(Last::NotYet)
    }

    /// Nothing goes on: what was stored in mapped files is written to them.
    pub(crate) fn settle(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        match self.write_all_back(guest) {
            Err(Stop::Fatal(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives a child whose parent has died another parent; a zombie that nobody will wait for goes.
    fn orphan(&mut self, child: i32, heir: i32) {
        let signals: Vec<(i32, i32)> =
            self.tasks.of_group(child).map(|(id, task)| (id, task.parent_death_signal)).collect();
        for (id, signal) in signals.into_iter().filter(|(_, signal)| *signal != 0) {
            self.signal_task(id, Raised::new(signal, libc::SI_USER, Cause::Sender { pid: 0, uid: 0 }));
        }
        let Some(group) = self.groups.get_mut(child) else { return };
        group.parent = heir;
        if group.ended.is_some() && heir == 0 {
            self.groups.remove(child);
        } else if let Some(status) = group.ended {
            self.tell_parent(child, status);
        }
    }

    /// Makes a process a zombie, and tells its parent; one that nobody will wait for goes at once.
    fn bury(&mut self, pid: i32, status: i32) {
        let first = pid == self.first;
        if first {
            self.first_ended = Some(status);
        }
        let Some(group) = self.groups.get_mut(pid) else { return };
        group.ended = Some(status);
        group.stopped = None;
        let parent = group.parent;
        if self.groups.get(parent).is_none_or(|parent| parent.ended.is_some()) {
            self.groups.remove(pid);
        } else {
            self.tell_parent(pid, status);
        }
        self.wake_pidfds();
        self.hang_up(pid);
    }

    /// Sends a parent the signal of its child's end, and wakes it if it waits.
    fn tell_parent(&mut self, pid: i32, status: i32) {
        let Some(group) = self.groups.get(pid) else { return };
        let (parent, signal, uid) = (group.parent, group.exit_signal, group.credentials.uid[0]);
        let (code, plain) = how_it_ended(status);
        if signal == libc::SIGCHLD && self.leaves_no_zombies(parent) {
            self.groups.remove(pid);
        }
        // Before the signal: a wait that has something to tell is not interrupted (`do_wait` of kernel/exit.c).
        self.wake_waiting_parent(parent);
        if signal != 0 {
            let cause = Cause::Child { pid, uid, status: plain };
            self.signal_group(parent, Raised::new(signal, code, cause));
        }
    }

    /// Whether a parent does not want to wait: it ignores SIGCHLD, or said SA_NOCLDWAIT.
    fn leaves_no_zombies(&self, parent: i32) -> bool {
        self.tasks.of_group(parent).next().is_some_and(|(_, task)| {
            let action = handler(self.handlers.get(task.handlers), libc::SIGCHLD);
            action.ignores() || action.leaves_no_zombies()
        })
    }

    /// The status of the loaded task's process if a signal ends it. It says that there is a core only if the program's own limit
    /// allows one, as natively; gretel writes one in any case.
    pub(crate) fn status_of(&self, death: &Death) -> i32 {
        const RLIMIT_CORE: usize = 4;
        let allowed = self.group().limits[RLIMIT_CORE][0] > 0;
        death.signal | if allowed && death.leaves_core() { CORE_FLAG } else { 0 }
    }
}

impl Kernel {
    /// What else the end of a process does: stopped process groups that nobody could continue any more are hung up.
    fn hang_up(&mut self, pid: i32) {
        let children: Vec<i32> = self.groups.iter().map(|(id, _)| id).filter(|id| *id != pid).collect();
        let mut seen = std::collections::BTreeSet::new();
        for child in children {
            let Some(group) = self.groups.get(child) else { continue };
            let (process_group, stopped) = (group.process_group, group.stopped.is_some());
            if stopped && self.is_orphaned(process_group) && seen.insert(process_group) {
                self.signal_process_group(process_group, Raised::by_kernel(libc::SIGHUP));
                self.signal_process_group(process_group, Raised::by_kernel(libc::SIGCONT));
            }
        }
    }
}

/// Lets go of the robust futexes that the task that ends still owns (`exit_robust_list` of kernel/futex).
fn release(kernel: &mut Kernel, guest: &mut Guest<'_>, head: Virt, owner: i32) -> Served<()> {
    let [first, offset, pending] = guest.read_words(head)?;
    let mut at = first;
    for _ in 0..LONGEST_LIST {
        // The lowest bit tells a futex with an owner's priority.
        let entry = at & !1;
        if entry == head {
            break;
        }
        let [next] = guest.read_words(entry)?;
        if entry != pending & !1 {
            futex::owner_died(kernel, guest, entry.wrapping_add(offset), owner, at & 1 != 0, false)?;
        }
        at = next;
    }
    match pending & !1 {
        0 => Ok(()),
        entry => futex::owner_died(kernel, guest, entry.wrapping_add(offset), owner, pending & 1 != 0, true),
    }
}

/// Whether it went well; a bad pointer of the program's is its own matter.
pub(super) fn forgive(served: Served<()>) -> Served<bool> {
    match served {
        Ok(()) => Ok(true),
        Err(Stop::Errno(_)) => Ok(false),
        Err(stop) => Err(stop),
    }
}
