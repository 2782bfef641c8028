//! Timers: alarm and setitimer, POSIX timers, timer descriptors, and the limit of processor time.
//!
//! A timer is data: the clock that it counts on ([`Base`]), when it expires next, its period and what it does. It expires when
//! the program has been shown a time that is late enough ([`Kernel::timers_expire`]), so that a replay needs nothing of the host.
//! [`calls`] are the system calls, [`posix`] those of `timer_create`, [`descriptor`] those of `timerfd_create`.
//!
//! Example: `alarm(1)` in a program that computes. [`Kernel::due`] names the time a second later; the processor is interrupted
//! there, the preemption shows the time, the timer expires, and SIGALRM is delivered between two instructions.

pub(super) mod calls;
pub(super) mod descriptor;
pub(super) mod posix;

use super::Kernel;
use super::groups::limit;
use super::time::NANOSECONDS;
use crate::gate::Time;
use crate::plain::plain;
use crate::signal::{Cause, Raised};
use std::collections::BTreeMap;

/// What a timer counts, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// CLOCK_REALTIME.
    Real,
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// The processor time of a process.
    Process(i32),
    /// The processor time of a task.
    Task(i32),
}
plain!(enum Base { 0 = Real, 1 = Monotonic, 2 = Process(a), 3 = Task(a) });

/// Whose timer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Of a process, by its kind: ITIMER_REAL, ITIMER_VIRTUAL or ITIMER_PROF.
    Interval(i32, i32),
    /// Of a process, by its id there.
    Posix(i32, i32),
    /// Of a timer descriptor, by its object.
    File(u64),
}
plain!(enum Key { 0 = Interval(a, b), 1 = Posix(a, b), 2 = File(a) });

/// What a timer does when it expires.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Sends this signal to its process.
    Alarm(i32),
    /// What `timer_create` was asked for.
    Posix(posix::Notice),
    /// Counts how often, for who reads the descriptor.
    Counts(u64),
}
plain!(enum Effect { 0 = Alarm(a), 1 = Posix(a), 2 = Counts(a) });

/// A timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    /// The clock that it was made for.
    pub(super) clock: Base,
    /// The clock that `next` is on: a relative time does not follow when CLOCK_REALTIME is set.
    pub(super) base: Base,
    /// When it expires next; `None` while it is disarmed.
    pub(super) next: Option<u64>,
    /// How often after that; zero for once.
    pub(super) interval: u64,
    pub(super) effect: Effect,
}
plain!(struct Timer { clock, base, next, interval, effect });

impl Timer {
    pub(super) fn new(clock: Base, effect: Effect) -> Timer {
        Timer { clock, base: clock, next: None, interval: 0, effect }
    }
}

/// The timers of all processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    pub(super) all: BTreeMap<Key, Timer>,
}
plain!(struct Timers { all });

impl Timers {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any of them is to expire.
    pub(super) fn any_armed(&self) -> bool {
        self.all.values().any(|timer| timer.next.is_some())
    }
}

impl Kernel {
    /// What a clock shows.
    pub(super) fn time_of(&self, base: Base) -> u64 {
        let now = self.clock.shown();
        match base {
            Base::Real => now.real,
            Base::Monotonic => now.monotonic,
            Base::Process(pid) => self.groups.get(pid).map_or(0, |group| group.cpu),
            Base::Task(id) => self.tasks.get(id).map_or(0, |task| task.cpu),
        }
    }

    /// Whether a clock goes on now.
    fn goes_on(&self, base: Base) -> bool {
        match base {
            Base::Real | Base::Monotonic => true,
            Base::Process(pid) => self.tasks.runs() && self.pid() == pid,
            Base::Task(id) => self.tasks.runs() && self.tasks.id() == id,
        }
    }

    /// How long until each timer expires, in nanoseconds.
    pub(super) fn timers_left(&self, _now: Time) -> impl Iterator<Item = u64> {
        let armed = self.timers.all.values().filter(|timer| self.goes_on(timer.base));
        let left = armed.filter_map(|timer| Some(timer.next?.saturating_sub(self.time_of(timer.base))));
        let limit = self.cpu_limit_left().filter(|_| self.tasks.runs());
        left.chain(limit)
    }

    /// Does what the timers do whose time has come.
    pub(super) fn timers_expire(&mut self, _now: Time) {
        if self.timers.is_empty() {
            return self.check_cpu_limit();
        }
        let is_due = |timer: &Timer| timer.next.is_some_and(|next| next <= self.time_of(timer.base));
        let due: Vec<Key> =
            self.timers.all.iter().filter(|(_, timer)| is_due(timer)).map(|(key, _)| *key).collect();
        for key in due {
            self.expire_timer(key);
        }
        self.check_cpu_limit();
    }

    fn expire_timer(&mut self, key: Key) {
        let Some(base) = self.timers.all.get(&key).map(|timer| timer.base) else { return };
        let now = self.time_of(base);
        let Some(timer) = self.timers.all.get_mut(&key) else { return };
        let Some(next) = timer.next else { return };
        let missed = now.saturating_sub(next).checked_div(timer.interval);
        let times = missed.map_or(1, |missed| missed + 1);
        timer.next = missed.map(|_| next.saturating_add(times.saturating_mul(timer.interval)));
        match (key, timer.effect) {
            (Key::Interval(pid, _), Effect::Alarm(signal)) => {
                self.signal_group(pid, Raised::by_kernel(signal))
            }
            (Key::Posix(pid, id), Effect::Posix(notice)) => self.notify(pid, id, notice, times),
            (Key::File(object), Effect::Counts(before)) => {
                timer.effect = Effect::Counts(before.saturating_add(times));
                self.timer_file_expired(object);
            }
            _ => {}
        }
    }

    /// Ends the timers of a process that has ended.
    pub(super) fn timers_end(&mut self, pid: i32) {
        self.timers
            .all
            .retain(|key, _| !matches!(key, Key::Interval(of, _) | Key::Posix(of, _) if *of == pid));
    }

    /// Ends what exec does not keep: alarms go on.
    pub(super) fn timers_exec(&mut self, pid: i32) {
        self.timers.all.retain(|key, _| !matches!(key, Key::Posix(of, _) if *of == pid));
    }

    /// How much processor time the running process has left before its limit.
    pub(super) fn cpu_limit_left(&self) -> Option<u64> {
        let group = self.groups.get(self.pid())?;
        let soft = group.limits[limit::CPU][0];
        (soft != libc::RLIM_INFINITY).then(|| seconds(soft).saturating_sub(group.cpu))
    }

    /// Sends SIGXCPU, each second, to the process that runs when it is over its limit of processor time; SIGKILL at the hard
    /// limit.
    fn check_cpu_limit(&mut self) {
        if self.cpu_limit_left() != Some(0) {
            return;
        }
        let pid = self.pid();
        let group = self.group_mut();
        let [soft, hard] = &mut group.limits[limit::CPU];
        if *hard != libc::RLIM_INFINITY && group.cpu >= seconds(*hard) {
            self.signal_group(pid, Raised::by_kernel(libc::SIGKILL));
        } else {
            *soft = soft.saturating_add(1);
            self.signal_group(pid, Raised::by_kernel(libc::SIGXCPU));
        }
    }
}

/// A limit of processor time in nanoseconds; zero is one second.
fn seconds(limit: u64) -> u64 {
    limit.max(1).saturating_mul(NANOSECONDS)
}

/// The cause of a POSIX timer's signal.
fn cause(id: i32, overrun: u64, value: u64) -> Cause {
    Cause::Timer { id, overrun: i32::try_from(overrun).unwrap_or(i32::MAX), value }
}
