//! Waiting: what a task waits for while others go on, and what all of them wait for in the host. A wait is data.

use super::arena::Id;
use super::attempt::Attempt;
use super::descriptors::{Detached, OpenFile};
use super::futex::Owned;
use super::sharing::Inode;
use super::{Guest, Kernel, Served, Stop, host, is_raised};
use crate::engine::Interrupter;
use crate::failure::ProcessError;
use crate::gate::{Event, GateError, Input, Time};
use crate::interrupt;
use crate::memory::object::ObjectId;
use crate::plain::plain;
use crate::ram::Virt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What stands in the journal for a call that the host would not have answered at once: ERESTARTSYS, which no call
/// returns.
pub(super) const WOULD_WAIT: i32 = 512;

/// How long the host waits at most before we look whether we are asked to stop, in nanoseconds.
const LOOK: u64 = 500_000_000;

/// The same while tasks wait for what poll does not tell.
const LOOK_AT_ATTEMPTS: u64 = 5_000_000;

/// How long a task computes at most before we look whether files that others wait for are ready, in nanoseconds.
pub(super) const LOOK_AT_FILES: u64 = 5_000_000;

/// Where a futex is, whoever looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FutexKey {
    /// In private memory of an address space.
    Private(Id, Virt),
    /// In shared memory, at this byte of the object.
    Shared(ObjectId, u64),
}
plain!(enum FutexKey { 0 = Private(a, b), 1 = Shared(a, b) });

/// A time at which a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    /// On CLOCK_REALTIME instead of CLOCK_MONOTONIC.
    pub(super) real: bool,
    pub(super) nanoseconds: u64,
}
plain!(struct Deadline { real, nanoseconds });

impl Deadline {
    /// `nanoseconds` of CLOCK_MONOTONIC from now.
    pub(super) fn after(now: Time, nanoseconds: u64) -> Deadline {
        Deadline { real: false, nanoseconds: now.monotonic.saturating_add(nanoseconds) }
    }

    /// How long until then, in nanoseconds.
    pub(super) fn left(self, now: Time) -> u64 {
        self.nanoseconds.saturating_sub(if self.real { now.real } else { now.monotonic })
    }
}

/// What ends a wait, besides time and signals.
#[derive(Clone, Debug)]
pub(super) enum On {
    /// Nothing.
    Nothing,
    /// A wake at this futex, with a bit of the set.
    Futex(FutexKey, u32),
    /// A wake at any of these.
    Futexes(Vec<FutexKey>),
    /// To own a futex.
    Owned(Owned),
    /// The same, as soon as those who wait at the first one are moved there.
    ToBeOwned(FutexKey, Owned),
    /// A change of a child.
    Child,
    /// Any of these files with any of its events (those of poll).
    Files(Vec<(Rc<OpenFile>, i16)>),
    /// Something of the host that poll does not tell.
    Attempt(Rc<Attempt>),
    /// One of these signals, blocked or not.
    Signals(u64),
    /// System V's, or a message queue.
    Ipc(super::ipc::Awaits),
    /// That a lease on this file is given up, to open it; to write, if that is true.
    Lease(Inode, bool),
}
plain!(enum On {
    0 = Nothing, 1 = Futex(a, b), 2 = Futexes(a), 3 = Owned(a), 4 = ToBeOwned(a, b), 5 = Child,
    6 = Files(a), 7 = Signals(a), 8 = Ipc(a), 9 = Attempt(a), 10 = Lease(a, b)
});

/// What a signal's handler makes of the call that it interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// It fails with EINTR.
    Fails,
    /// With SA_RESTART it begins again.
    MayRestart,
    /// The same, also when the process was stopped and goes on without a handler.
    FailsEvenStopped,
    /// It begins again, whatever the handler's flags are.
    Restarts,
    /// It fails with EINTR, and the time that is left is written here.
    TellsTimeLeft(Virt),
    /// The same, in so many nanoseconds, behind the seconds; where nothing can be written is not told.
    LeavesTimeLeft(Virt, u64),
    /// Nothing: signals wait until it is over (vfork).
    Never,
}
plain!(enum Interrupted {
    0 = Fails, 1 = MayRestart, 2 = FailsEvenStopped, 3 = Restarts, 4 = TellsTimeLeft(a),
    5 = LeavesTimeLeft(a, b), 6 = Never
});

/// A call that waits.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(super) on: On,
    pub(super) deadline: Option<Deadline>,
    pub(super) interrupted: Interrupted,
    /// How much of its work is done.
    pub(super) done: usize,
    /// Its place among all waits.
    pub(super) since: u64,
}
plain!(struct Wait { on, deadline, interrupted, done, since });

impl Wait {
    pub(super) fn new(on: On, deadline: Option<Deadline>, interrupted: Interrupted) -> Wait {
        Wait { on, deadline, interrupted, done: 0, since: 0 }
    }

    /// For a file to be ready; `done` bytes are transferred.
    pub(super) fn file(file: &Rc<OpenFile>, events: i16, done: usize) -> Wait {
        let on = On::Files(vec![(Rc::clone(file), events)]);
        Wait { done, ..Wait::new(on, None, Interrupted::MayRestart) }
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, copies: &mut Detached) -> Wait {
        let mut wait = self.clone();
        match &mut wait.on {
            On::Files(files) => files.iter_mut().for_each(|(file, _)| *file = copies.file(file)),
            On::Attempt(attempt) => *attempt = Rc::new(attempt.detached(copies)),
            _ => {}
        }
        wait
    }

    /// Whether it is for files of the host.
    pub(crate) fn is_for_files(&self) -> bool {
        matches!(self.on, On::Files(_) | On::Attempt(_))
    }

    /// What the call has to know when it is served again though nothing came of its wait.
    pub(crate) fn again_interrupted(&self) -> Again {
        self.again(None)
    }

    /// What the call has to know when it is served again.
    pub(super) fn again(&self, why: Option<Why>) -> Again {
        let attempt = match &self.on {
            On::Attempt(attempt) => Some(Rc::clone(attempt)),
            _ => None,
        };
        Again { why, deadline: self.deadline, done: self.done, attempt }
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// What it waited for has come, or may have.
    Ready,
    /// Its deadline has passed.
    TimedOut,
    /// A signal is to be delivered.
    Signal,
}
plain!(enum Why { 0 = Ready, 1 = TimedOut, 2 = Signal });

/// What a call that waited has to know when it is served again; nothing of all that when it is served first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Again {
    pub(super) why: Option<Why>,
    pub(super) deadline: Option<Deadline>,
    pub(super) done: usize,
    pub(super) attempt: Option<Rc<Attempt>>,
}
plain!(struct Again { why, deadline, done, attempt });

impl Again {
    /// Whether the call has waited, and is served again.
    pub(crate) fn has_waited(&self) -> bool {
        self.why.is_some()
    }
}

/// Makes the call wait.
pub(super) fn wait<T>(wait: Wait) -> Served<T> {
    Err(Stop::Wait(wait))
}

/// How a wait of all threads ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There is something to do, or there may be.
    Over,
    /// We were asked to stop.
    Interrupted,
}

impl Kernel {
    /// Waits in the host until a task can go on: for the files of all, and the nearest deadline.
    pub(crate) fn wait_for_any(&mut self, guest: &mut Guest<'_>) -> Result<Waited, ProcessError> {
        let regs = *guest.cpu.regs();
        guest.gate.begin(Event::Wait, self.tasks.id(), &regs)?;
        let now = self.clock.shown();
        let left = |task: &super::tasks::Task| Some(task.wait()?.deadline?.left(now));
        let waits = self.tasks.living().filter_map(|(_, task)| left(task));
        let nearest = waits.chain(self.timers_left(now)).min();
        let waited = self.ask_host(guest, nearest)?;
        self.tell_of_files(guest)?;
        let now = self.show_after_wait(guest)?;
        self.expire(now);
        Ok(waited)
    }

    /// Wakes the tasks whose files are ready, without waiting.
    pub(crate) fn look_at_files(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        self.ask_host(guest, Some(0))?;
        Ok(())
    }

    /// Polls what tasks wait for, for so many nanoseconds or for ever, and wakes those whose files are ready. Nothing is
    /// asked if that cannot tell anything.
    fn ask_host(&mut self, guest: &mut Guest<'_>, limit: Option<u64>) -> Result<Waited, GateError> {
        let mut owners = Vec::new();
        let mut files = Vec::new();
        for (id, task) in self.tasks.living() {
            if let Some(Wait { on: On::Files(wanted), .. }) = task.wait() {
                for (file, events) in wanted {
                    owners.push(id);
                    files.push(file.polled(*events));
                }
            }
        }
        let attempts = self.attempts();
        let all_stopped = self.tasks.living().all(|(_, task)| task.stopped);
        if files.is_empty() && attempts.is_empty() && limit == Some(0) {
            return Ok(Waited::Over);
        }
        if limit != Some(0) {
            files.extend(self.sigio.polled());
        }
        let interrupter = self.interrupter.clone();
        let input = guest.gate.input(&mut || {
            if all_stopped && !interrupt::is_any_for_program() {
                interrupt::stop_as_the_program();
            }
            let (result, attempted) = poll(&mut files, &attempts, limit, &interrupter);
            let ready = owners.iter().zip(&files).filter(|(_, file)| file.revents != 0);
            let mut tasks: Vec<i32> = ready.map(|(id, _)| *id).collect();
            tasks.dedup();
            tasks.extend(attempted);
            Input::Ready { result, tasks }
        })?;
        let Input::Ready { result, tasks } = input else { return Err(GateError::OtherInput(input.kind())) };
        for id in tasks {
            self.tasks.wake(id, Why::Ready);
        }
        Ok(if result == -i64::from(libc::EINTR) { Waited::Interrupted } else { Waited::Over })
    }
}

/// Polls for so many nanoseconds or for ever, or until we are asked to stop, which is looked at now and then: a signal that
/// comes right before the host's call does not interrupt it. With the result, the tasks whose attempts are ready.
fn poll(
    files: &mut [libc::pollfd],
    attempts: &[(i32, Rc<Attempt>)],
    limit: Option<u64>,
    interrupter: &Interrupter,
) -> (i64, Vec<i32>) {
    let end = limit.and_then(|limit| Instant::now().checked_add(Duration::from_nanos(limit)));
    let look = if attempts.is_empty() { LOOK } else { LOOK_AT_ATTEMPTS };
    loop {
        if is_raised(interrupter) {
            return (-i64::from(libc::EINTR), Vec::new());
        }
        // The time that is shown next brings a signal for the program; the recorder looks after each wait what else is asked of it.
        if interrupt::is_any() {
            return (0, Vec::new());
        }
        let ready = attempts.iter().filter(|(_, attempt)| attempt.is_ready());
        let ready: Vec<i32> = ready.map(|(id, _)| *id).collect();
        let left = end.map_or(u64::MAX, |end| {
            u64::try_from(end.saturating_duration_since(Instant::now()).as_nanos()).unwrap_or(u64::MAX)
        });
        let left = if ready.is_empty() { left } else { 0 };
        let result = host::poll_for(files, left.min(look));
        if !ready.is_empty() {
            return (0, ready);
        }
        if result != -i64::from(libc::EINTR) && (result != 0 || left <= look) {
            return (result, ready);
        }
    }
}
