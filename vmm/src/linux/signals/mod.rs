//! Signals: handlers, masks, what is pending, and who is sent what.
//!
//! [`calls`] are the system calls, [`deliver`] enters handlers, [`frame`] is what a handler runs on. A signal for a process goes
//! to a task as soon as one does not block it, the first task before others, as in `complete_signal` of kernel/signal.c.
//! Everything here is computed again at replay; only signals from outside are inputs.
//!
//! Example: `kill(child, SIGTERM)` makes SIGTERM pending for the child's task, and ends its wait; when the child gets the
//! processor, [`Kernel::take_signal`] gives the signal, and without a handler the child ends with it.

pub(super) mod calls;
mod deliver;
mod frame;
mod kept;

use super::children::Change;
use super::groups::limit;
use super::wait::{Interrupted, On, Wait, Why};
use super::{Guest, Kernel};
use crate::plain::plain;
use crate::ram::Virt;
use crate::signal::{Cause, Death, Raised, in_set};
pub(crate) use deliver::{Delivery, Interruption, deliver, interrupt};
pub(super) use kept::{Pending, Stack, TaskSignals};
use std::collections::BTreeMap;

/// Signals are numbered from 1 to this.
pub(super) const LAST: i32 = 64;
/// The first real-time signal: those are queued, the others are pending once.
pub(super) const FIRST_REAL_TIME: i32 = 32;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
/// Signals that can be neither blocked nor handled.
pub(super) const UNSTOPPABLE: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
/// Those that stop a process.
const STOPPING: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// Those that do nothing without a handler.
const HARMLESS: [i32; 4] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
/// Those that an instruction raises; they are delivered before others.
const SYNCHRONOUS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE, libc::SIGSYS];
/// Flags of sigaction (asm/signal.h).
const SA_NOCLDSTOP: u64 = 1;
const SA_NOCLDWAIT: u64 = 2;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
/// State of the alternate stack.
const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
/// A handler on the alternate stack begins without one.
const SS_AUTODISARM: u64 = 1 << 31;

/// A signal's place in a set.
pub(super) const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// What a program does about a signal: the kernel's `struct sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) handler: Virt,
    pub(super) flags: u64,
    pub(super) restorer: Virt,
    pub(super) mask: u64,
}
plain!(struct Action { handler, flags, restorer, mask });

impl Action {
    /// Whether the program said to ignore the signal.
    pub(super) fn ignores(&self) -> bool {
        self.handler == SIG_IGN
    }

    /// Whether children are not to wait as zombies.
    pub(super) fn leaves_no_zombies(&self) -> bool {
        self.flags & SA_NOCLDWAIT != 0
    }
}

/// Handlers by signal; the rest have their default.
pub(super) type Handlers = BTreeMap<i32, Action>;

/// No handlers, and these signals are ignored.
pub(super) fn ignoring(set: u64) -> Handlers {
    let ignored = (1..=64).filter(|signal| set & bit(*signal) != 0);
    ignored.map(|signal| (signal, Action { handler: SIG_IGN, ..Action::default() })).collect()
}

/// What is done about a signal.
pub(super) fn handler(handlers: &Handlers, signal: i32) -> Action {
    handlers.get(&signal).copied().unwrap_or_default()
}

/// What a signal does that has no handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Nothing,
    Stops,
    Ends,
}

fn default_of(signal: i32) -> Fate {
    if HARMLESS.contains(&signal) {
        Fate::Nothing
    } else if STOPPING.contains(&signal) {
        Fate::Stops
    } else {
        Fate::Ends
    }
}

/// Which of a set is taken first: SIGKILL, those of instructions, then the lowest.
fn first_of(set: u64) -> Option<i32> {
    let lowest = (1..=LAST).find(|signal| set & bit(*signal) != 0)?;
    if set & bit(libc::SIGKILL) != 0 {
        return Some(libc::SIGKILL);
    }
    Some(SYNCHRONOUS.into_iter().find(|signal| set & bit(*signal) != 0).unwrap_or(lowest))
}

impl Kernel {
    fn action_of(&self, id: i32, signal: i32) -> Action {
        self.tasks
            .get(id)
            .map_or_else(Action::default, |task| handler(self.handlers.get(task.handlers), signal))
    }

    fn action(&self, signal: i32) -> Action {
        handler(self.handlers.get(self.tasks.current().handlers), signal)
    }

    /// Whether a signal would do nothing to a task that does not block it.
    fn is_ignored(&self, id: i32, signal: i32) -> bool {
        match self.action_of(id, signal).handler {
            SIG_IGN => true,
            SIG_DFL => default_of(signal) == Fate::Nothing,
            _ => false,
        }
    }

    /// Sends a signal to one task.
    pub(crate) fn signal_task(&mut self, id: i32, raised: Raised) {
        let Some(group) = self.tasks.get(id).map(|task| task.group) else { return };
        self.prepare(group, raised.signal());
        self.add_to_task(id, raised);
    }

    /// Sends a signal to a process: to the first task that takes it.
    pub(crate) fn signal_group(&mut self, group: i32, raised: Raised) {
        let signal = raised.signal();
        self.prepare(group, signal);
        let awaits =
            |wait: &Wait| matches!(wait, Wait { on: On::Signals(set), .. } if set & bit(signal) != 0);
        let taker = self
            .tasks
            .of_group(group)
            .find(|(_, task)| !task.signals.blocks(signal) || task.wait().is_some_and(awaits));
        match taker.map(|(id, _)| id) {
            Some(id) => self.add_to_task(id, raised),
            None => {
                if let Some(group) = self.groups.get_mut(group).filter(|group| group.ended.is_none()) {
                    group.pending.add(raised);
                }
            }
        }
        self.refresh_signalfds();
    }

    /// Sends a signal to all processes of a process group; gives how many there are.
    pub(crate) fn signal_process_group(&mut self, process_group: i32, raised: Raised) -> usize {
        let members = self.groups.in_process_group(process_group);
        members.iter().for_each(|pid| self.signal_group(*pid, raised));
        members.len()
    }

    fn add_to_task(&mut self, id: i32, raised: Raised) {
        let signal = raised.signal();
        let ignored = self.is_ignored(id, signal);
        let Some(task) = self.tasks.get_mut(id) else { return };
        let awaited =
            matches!(task.wait(), Some(Wait { on: On::Signals(set), .. }) if set & bit(signal) != 0);
        let blocked = task.signals.blocks(signal);
        let uninterruptible = matches!(task.wait(), Some(Wait { interrupted: Interrupted::Never, .. }));
        if ignored && !blocked && !awaited {
            return;
        }
        task.signals.pending.add(raised);
        if awaited {
            self.tasks.wake(id, Why::Ready);
        } else if !blocked && (!uninterruptible || signal == libc::SIGKILL) {
            self.tasks.wake(id, Why::Signal);
        }
        self.refresh_signalfds();
    }

    /// What a signal does the moment it is sent, whatever becomes of it: one that stops takes back one that continues, and
    /// the other way round; SIGCONT and SIGKILL let a stopped process go on.
    fn prepare(&mut self, group: i32, signal: i32) {
        let stopping = STOPPING.iter().fold(0, |set, signal| set | bit(*signal));
        let dropped = match signal {
            libc::SIGCONT => stopping,
            _ if stopping & bit(signal) != 0 => bit(libc::SIGCONT),
            _ => 0,
        };
        if dropped != 0 {
            for id in self.tasks.ids_of_group(group) {
                if let Some(task) = self.tasks.get_mut(id) {
                    task.signals.pending.drop_set(dropped);
                }
            }
            if let Some(group) = self.groups.get_mut(group) {
                group.pending.drop_set(dropped);
            }
        }
        if matches!(signal, libc::SIGCONT | libc::SIGKILL) {
            self.continue_group(group, signal == libc::SIGCONT);
        }
    }

    /// Lets a stopped process go on.
    fn continue_group(&mut self, pid: i32, told: bool) {
        let Some(group) = self.groups.get_mut(pid) else { return };
        if group.stopped.take().is_none() {
            return;
        }
        for id in self.tasks.ids_of_group(pid) {
            self.tasks.set_stopped(id, false);
        }
        if told {
            self.tell_of_change(pid, Change::Continued);
        }
    }

    /// Stops the process of the task that runs.
    fn stop_own_group(&mut self, signal: i32) {
        let pid = self.tasks.current().group;
        if let Some(group) = self.groups.get_mut(pid) {
            group.stopped = Some(signal);
        }
        for id in self.tasks.ids_of_group(pid) {
            self.tasks.set_stopped(id, true);
        }
        self.tell_of_change(pid, Change::Stopped(signal));
    }

    /// Tells a parent that its child stopped or goes on.
    fn tell_of_change(&mut self, pid: i32, change: Change) {
        let Some(group) = self.groups.get_mut(pid) else { return };
        group.news = Some(change);
        let (parent, uid) = (group.parent, group.credentials.uid[0]);
        let (code, status) = match change {
            Change::Stopped(signal) => (libc::CLD_STOPPED, signal),
            Change::Continued => (libc::CLD_CONTINUED, libc::SIGCONT),
        };
        let silent = self.tasks.of_group(parent).next().is_none_or(|(_, task)| {
            handler(self.handlers.get(task.handlers), libc::SIGCHLD).flags & SA_NOCLDSTOP != 0
        });
        self.wake_waiting_parent(parent);
        if !silent {
            self.signal_group(parent, Raised::new(libc::SIGCHLD, code, Cause::Child { pid, uid, status }));
        }
    }

    /// Whether nobody could let the processes of a group go on: none has a parent in another group of its session.
    pub(super) fn is_orphaned(&self, process_group: i32) -> bool {
        let members = self.groups.in_process_group(process_group);
        !members.into_iter().any(|pid| {
            let Some(group) = self.groups.get(pid) else { return false };
            // The first process's parent is outside: a shell, as a rule, which can.
            let outside = pid == self.first && group.parent == 0;
            outside
                || self.groups.get(group.parent).is_some_and(|parent| {
                    parent.process_group != process_group && parent.session == group.session
                })
        })
    }

    /// Marks in `set` that a task could take.
    pub(super) fn pending_for(&self, id: i32) -> u64 {
        let Some(task) = self.tasks.get(id) else { return 0 };
        let shared = self.groups.get(task.group).map_or(0, |group| group.pending.set());
        task.signals.pending.set() | shared
    }

    /// The next pending signal that is to be delivered to the task that runs; those that do nothing are dropped.
    fn next(&mut self) -> Option<i32> {
        loop {
            let id = self.tasks.id();
            let set = self.pending_for(id) & !self.tasks.current().signals.blocked;
            let signal = first_of(set)?;
            if !self.is_ignored(id, signal) {
                return Some(signal);
            }
            self.remove(signal);
        }
    }

    /// Takes a pending signal of the task that runs, its own before the process's.
    pub(super) fn remove(&mut self, signal: i32) -> Option<Raised> {
        let own = self.tasks.current_mut().signals.pending.take(signal);
        let taken = own.or_else(|| self.group_mut().pending.take(signal));
        if let Some(Raised { cause: Cause::Timer { id, overrun, .. }, .. }) = taken {
            self.timer_told(id, overrun);
        }
        self.refresh_signalfds();
        taken
    }

    /// Takes a pending signal of a set, blocked or not.
    pub(super) fn take_of(&mut self, set: u64) -> Option<Raised> {
        let pending = self.pending_for(self.tasks.id()) & set;
        self.remove(first_of(pending)?)
    }

    /// Tries `act` on what is pending for a process, and for each of its tasks, until it says true.
    pub(super) fn with_pending(&mut self, pid: i32, mut act: impl FnMut(&mut Pending) -> bool) -> bool {
        if self.groups.get_mut(pid).is_some_and(|group| act(&mut group.pending)) {
            return true;
        }
        let ids = self.tasks.ids_of_group(pid);
        ids.into_iter().any(|id| self.tasks.get_mut(id).is_some_and(|task| act(&mut task.signals.pending)))
    }

    /// Takes the next pending signal that is to be delivered to the task that runs: one with a handler, or one that ends the
    /// process. Those that stop it do so.
    pub(crate) fn take_signal(&mut self) -> Option<Raised> {
        while let Some(signal) = self.next() {
            let raised = self.remove(signal)?;
            if !self.stops(signal) {
                return Some(raised);
            }
            if signal == libc::SIGSTOP || !self.is_orphaned(self.group().process_group) {
                self.stop_own_group(signal);
                return None;
            }
        }
        None
    }

    /// Whether a signal is there that would end a wait of the task that runs.
    pub(super) fn is_signalled(&mut self) -> bool {
        self.next().is_some()
    }

    /// Whether a signal would stop the task that runs.
    fn stops(&self, signal: i32) -> bool {
        self.action(signal).handler == SIG_DFL && default_of(signal) == Fate::Stops
    }

    /// Raises a signal of the task that runs that it can neither block nor ignore: then it has no handler.
    pub(super) fn force(&mut self, death: Death) {
        self.force_with(Raised { death, cause: Cause::Kernel });
    }

    /// The same, and no handler keeps it from ending the process.
    pub(super) fn force_end(&mut self, raised: Raised) {
        let task = self.tasks.current();
        self.handlers.get_mut(task.handlers).remove(&raised.signal());
        self.force_with(raised);
    }

    /// Raises a signal of the task that runs that it can neither block nor ignore, with all that a handler is told.
    pub(super) fn force_with(&mut self, raised: Raised) {
        let signal = raised.signal();
        let task = self.tasks.current_mut();
        if task.signals.blocks(signal) || handler(self.handlers.get(task.handlers), signal).ignores() {
            self.handlers.get_mut(task.handlers).remove(&signal);
            task.signals.blocked &= !bit(signal);
        }
        self.signal_task(self.tasks.id(), raised);
    }

    /// Takes the signals that came from outside with the time that was just shown: for the first process, or for all when that
    /// has ended.
    pub(super) fn take_arrived(&mut self, guest: &mut Guest<'_>) {
        let arrived = guest.gate.arrived();
        if arrived.is_empty() {
            return;
        }
        let (first, ended) = self.first();
        let all: Vec<i32> = self.groups.iter().map(|(id, _)| id).collect();
        let foreground =
            self.outer_foreground().or_else(|| self.groups.get(first).map(|group| group.process_group));
        let of_terminal = match foreground {
            Some(foreground) if ended.is_none() => self.groups.in_process_group(foreground),
            _ => all.clone(),
        };
        for signal in in_set(arrived.group) {
            of_terminal.iter().for_each(|process| self.signal_group(*process, Raised::by_kernel(signal)));
        }
        // As Linux tells of a sender in another namespace.
        let raised = |signal| Raised::new(signal, libc::SI_USER, Cause::Sender { pid: 0, uid: 0 });
        for signal in in_set(arrived.first) {
            let to = if ended.is_some() { &all[..] } else { &[first] };
            to.iter().for_each(|process| self.signal_group(*process, raised(signal)));
        }
    }

    /// Whether a process may queue no more signals, counted with those of all processes of its user.
    pub(super) fn queue_is_full(&self, pid: i32) -> bool {
        let Some(group) = self.groups.get(pid) else { return false };
        let most = group.limits[limit::SIGPENDING][0];
        if most == libc::RLIM_INFINITY {
            return false;
        }
        let user = group.credentials.uid[0];
        let of_user = |pid: i32| self.groups.get(pid).is_some_and(|group| group.credentials.uid[0] == user);
        let shared =
            self.groups.iter().filter(|(id, _)| of_user(*id)).map(|(_, group)| group.pending.count());
        let own = self
            .tasks
            .living()
            .filter(|(_, task)| of_user(task.group))
            .map(|(_, task)| task.signals.pending.count());
        shared.chain(own).sum::<usize>() as u64 >= most
    }

    /// Makes a signal pending for the task that runs.
    pub(super) fn raise_here(&mut self, signal: i32, code: i32) {
        let id = self.tasks.id();
        let cause = if code == libc::SI_USER { self.sender() } else { Cause::Kernel };
        self.signal_task(id, Raised::new(signal, code, cause));
    }

    /// The process that runs, as the one who sends.
    pub(super) fn sender(&self) -> Cause {
        Cause::Sender { pid: self.tasks.current().group, uid: self.group().credentials.uid[0] }
    }
}
