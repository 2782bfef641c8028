//! POSIX timers: timer_create and its kin.
//!
//! A timer's signal is queued once; while it is pending, later expirations are counted in it (`si_overrun`).

use super::super::time::{clock_base, timespecs, write_timespecs};
use super::super::{Guest, Kernel, Served, errno, int};
use super::{Base, Effect, Key, Timer, cause};
use crate::plain::plain;
use crate::ram::Virt;
use crate::signal::Raised;

/// `sigev_notify`: SIGEV_THREAD is made of SIGEV_THREAD_ID by the C library.
const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD: i32 = 2;
const SIGEV_THREAD_ID: i32 = 4;
/// As many timers as a process may have.
const LIMIT: usize = 1 << 14;

/// What a timer does, and what was told of it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Notice {
    /// The signal; zero for none.
    signal: i32,
    /// The task that gets it, instead of the process.
    task: Option<i32>,
    value: u64,
    /// How often it had expired besides when its signal was taken last.
    overrun: i32,
}
plain!(struct Notice { signal, task, value, overrun });

pub(in super::super) fn create(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    clock: u64,
    event: Virt,
    at: Virt,
) -> Served {
    let clock = match int(clock) {
        // The coarse clocks and the raw one drive no timers.
        4..=6 => return errno(libc::EOPNOTSUPP),
        clock => clock_base(kernel, clock)?,
    };
    let pid = kernel.pid();
    let ids = kernel.timers.all.range(Key::Posix(pid, 0)..=Key::Posix(pid, i32::MAX));
    let taken: Vec<i32> = ids.map(|(key, _)| if let Key::Posix(_, id) = key { *id } else { 0 }).collect();
    if taken.len() >= LIMIT {
        return errno(libc::EAGAIN);
    }
    let id = taken.last().map_or(0, |last| last.wrapping_add(1).max(0));
    let notice = match event {
        0 => Notice { signal: libc::SIGALRM, task: None, value: u64::from(id.unsigned_abs()), overrun: 0 },
        event => {
            let [value, kind, task] = guest.read_words(event)?;
            let (signal, kind, task) = (int(kind), int(kind >> 32), int(task));
            let in_range = (1..=super::super::signals::LAST).contains(&signal);
            let of_process = kernel.tasks.get(task).is_some_and(|task| task.group == pid);
            match kind {
                SIGEV_NONE => Notice { signal: 0, task: None, value, overrun: 0 },
                SIGEV_SIGNAL | SIGEV_THREAD if in_range => Notice { signal, task: None, value, overrun: 0 },
                SIGEV_THREAD_ID if in_range && of_process => {
                    Notice { signal, task: Some(task), value, overrun: 0 }
                }
                _ => return errno(libc::EINVAL),
            }
        }
    };
    guest.write(at, &id.to_le_bytes())?;
    kernel.timers.all.insert(Key::Posix(pid, id), Timer::new(clock, Effect::Posix(notice)));
    Ok(0)
}

/// The timer of an id of the process that runs.
fn named(kernel: &Kernel, id: u64) -> Served<(Key, i32)> {
    let id = int(id);
    let key = Key::Posix(kernel.pid(), id);
    if kernel.timers.all.contains_key(&key) { Ok((key, id)) } else { errno(libc::EINVAL) }
}

pub(in super::super) fn set(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [id, flags, new, old, ..] = *a;
    if new == 0 {
        return errno(libc::EINVAL);
    }
    let [interval, value] = timespecs(guest, new)?;
    kernel.timers_now(guest)?;
    let (key, id) = named(kernel, id)?;
    let before = kernel.timer_value(key);
    kernel.drop_timer_signal(id);
    kernel.set_timer(key, interval, value, int(flags) & libc::TIMER_ABSTIME != 0);
    kernel.timer_told(id, 0);
    if old != 0 {
        write_timespecs(guest, old, before)?;
    }
    Ok(0)
}

pub(in super::super) fn get(kernel: &mut Kernel, guest: &mut Guest<'_>, id: u64, at: Virt) -> Served {
    let (key, _) = named(kernel, id)?;
    kernel.timers_now(guest)?;
    write_timespecs(guest, at, kernel.timer_value(key))?;
    Ok(0)
}

pub(in super::super) fn overrun(kernel: &Kernel, id: u64) -> Served {
    let (key, _) = named(kernel, id)?;
    match kernel.timers.all.get(&key).map(|timer| timer.effect) {
        Some(Effect::Posix(notice)) => Ok(u64::from(notice.overrun.unsigned_abs())),
        _ => errno(libc::EINVAL),
    }
}

pub(in super::super) fn delete(kernel: &mut Kernel, id: u64) -> Served {
    let (key, id) = named(kernel, id)?;
    kernel.drop_timer_signal(id);
    kernel.timers.all.remove(&key);
    Ok(0)
}

impl Kernel {
    /// Sends a timer's signal, or counts in the one that is pending.
    pub(super) fn notify(&mut self, pid: i32, id: i32, notice: Notice, times: u64) {
        if notice.signal == 0 {
            return;
        }
        let counted = self.with_pending(pid, |pending| pending.count_overrun(id, times));
        if counted {
            return;
        }
        let raised = Raised::new(notice.signal, libc::SI_TIMER, cause(id, times - 1, notice.value));
        match notice.task {
            Some(task) => self.signal_task(task, raised),
            None => self.signal_group(pid, raised),
        }
    }

    /// Notes what the process that runs is told of a timer.
    pub(in super::super) fn timer_told(&mut self, id: i32, overrun: i32) {
        let key = Key::Posix(self.pid(), id);
        if let Some(Timer { effect: Effect::Posix(notice), .. }) = self.timers.all.get_mut(&key) {
            notice.overrun = overrun;
        }
    }

    /// Takes back the pending signal of a timer of the process that runs.
    fn drop_timer_signal(&mut self, id: i32) {
        let pid = self.pid();
        self.with_pending(pid, |pending| {
            pending.drop_timer(id);
            false
        });
    }
}

/// The clock of a process or task is that of one of the caller's own, or of another one that exists.
pub(in super::super) fn cpu_clock(kernel: &Kernel, clock: i32) -> Served<Base> {
    const PER_THREAD: i32 = 4;
    const KIND: i32 = 3;
    const SCHEDULED: i32 = 2;
    let id = !(clock >> 3);
    if clock & KIND > SCHEDULED {
        return errno(libc::EINVAL);
    }
    let base = match clock & PER_THREAD {
        0 => Base::Process(if id == 0 { kernel.pid() } else { id }),
        _ => Base::Task(if id == 0 { kernel.tasks.id() } else { id }),
    };
    let exists = match base {
        Base::Process(pid) => kernel.groups.get(pid).is_some_and(|group| group.ended.is_none()),
        Base::Task(id) => kernel.tasks.get(id).is_some_and(|task| task.group == kernel.pid()),
        _ => true,
    };
    if exists { Ok(base) } else { errno(libc::EINVAL) }
}
