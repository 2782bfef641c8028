//! How a task asks to be scheduled: policy, priority, nice value, I/O priority. It is remembered, checked and told; on one
//! processor whose tasks take turns it changes nothing.

use super::capabilities::SYS_NICE;
use super::groups::limit;
use super::time::NANOSECONDS;
use super::{Guest, Kernel, Served, errno, int};
use crate::plain::plain;
use crate::ram::Virt;

const SCHED_DEADLINE: i32 = 6;
const RESET_ON_FORK: i32 = 0x4000_0000;
/// How long a task that takes turns (SCHED_RR) keeps the processor, and any other, in nanoseconds.
const ROUND_ROBIN: u64 = 100_000_000;
const OTHER: u64 = 4_000_000;
/// Sizes of `struct sched_attr`: the first, and the one with bounds of utilization.
const FIRST_SIZE: u32 = 48;
const SIZE: u32 = 56;
/// Flags of sched_setattr: what is to be kept.
const KEEP_POLICY: u64 = 8;
const KEEP_PARAMS: u64 = 16;
/// The slack of timers, in nanoseconds.
const SLACK: u64 = 50_000;

/// What a task asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduling {
    pub(super) policy: i32,
    priority: i32,
    reset_on_fork: bool,
    pub(super) nice: i32,
    /// Class and level, as ioprio_set takes them.
    io: u32,
    /// Run time, deadline and period of SCHED_DEADLINE.
    periods: [u64; 3],
    /// PR_SET_TIMERSLACK, and what zero stands for there.
    pub(super) slack: u64,
    pub(super) default_slack: u64,
}
plain!(struct Scheduling { policy, priority, reset_on_fork, nice, io, periods, slack, default_slack });

impl Default for Scheduling {
    fn default() -> Self {
        Scheduling {
            policy: libc::SCHED_OTHER,
            priority: 0,
            reset_on_fork: false,
            nice: 0,
            io: 0,
            periods: [0; 3],
            slack: SLACK,
            default_slack: SLACK,
        }
    }
}

impl Scheduling {
    /// Its priority as /proc/PID/stat has it: from the nice value, or below zero, and that for real time.
    pub(super) fn shown(&self) -> (i32, i32) {
        if is_real_time(self.policy) { (-1 - self.priority, self.priority) } else { (20 + self.nice, 0) }
    }

    /// What a task begins with that this one makes.
    pub(super) fn inherited(self) -> Scheduling {
        let kept = Scheduling { default_slack: self.slack, ..self };
        if !self.reset_on_fork {
            return kept;
        }
        let real_time = is_real_time(self.policy) || self.policy == SCHED_DEADLINE;
        let policy = if real_time { libc::SCHED_OTHER } else { self.policy };
        Scheduling {
            policy,
            priority: 0,
            nice: self.nice.max(0),
            reset_on_fork: false,
            periods: [0; 3],
            ..kept
        }
    }
}

fn is_real_time(policy: i32) -> bool {
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR)
}

/// The task of an id; zero is the one that runs.
pub(super) fn named(kernel: &Kernel, id: i32) -> Served<i32> {
    match id {
        ..0 => errno(libc::EINVAL),
        0 => Ok(kernel.tasks.id()),
        id if kernel.tasks.get(id).is_some() => Ok(id),
        _ => errno(libc::ESRCH),
    }
}

fn of(kernel: &Kernel, id: i32) -> Served<Scheduling> {
    let id = named(kernel, id)?;
    kernel.tasks.get(id).map_or_else(|| errno(libc::ESRCH), |task| Ok(task.scheduling))
}

/// That the program may say how a task is scheduled: one of its user's, or it has the right to do so of any.
pub(super) fn may_schedule(kernel: &Kernel, id: i32) -> Served<()> {
    let own = &kernel.group().credentials;
    let of = kernel.tasks.get(id).and_then(|task| kernel.groups.get(task.group));
    let is_own = of.is_none_or(|of| of.credentials.uid[..2].contains(&own.uid[1]));
    if is_own || own.has(SYS_NICE) { Ok(()) } else { errno(libc::EPERM) }
}

/// Sets policy and priority, if the program may.
fn set(kernel: &mut Kernel, id: i32, new: Scheduling) -> Served {
    let id = named(kernel, id)?;
    let fits = match new.policy {
        libc::SCHED_FIFO | libc::SCHED_RR => (1..=99).contains(&new.priority),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => new.priority == 0,
        SCHED_DEADLINE => {
            let [run, deadline, period] = new.periods;
            run >= 1024 && run <= deadline && (period == 0 || deadline <= period)
        }
        _ => false,
    };
    if !fits {
        return errno(libc::EINVAL);
    }
    may_schedule(kernel, id)?;
    let privileged = kernel.group().credentials.has(SYS_NICE);
    let most = kernel.group().limits[limit::RTPRIO][0];
    let Some(task) = kernel.tasks.get_mut(id) else { return errno(libc::ESRCH) };
    let old = task.scheduling;
    let raises = is_real_time(new.policy) && (new.policy != old.policy || new.priority > old.priority);
    let above = u64::from(new.priority.unsigned_abs()) > if most == libc::RLIM_INFINITY { 0 } else { most };
    if !privileged
        && (raises && above || new.policy == SCHED_DEADLINE || old.reset_on_fork && !new.reset_on_fork)
    {
        return errno(libc::EPERM);
    }
    task.scheduling = new;
    Ok(0)
}

pub(super) fn setscheduler(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    policy: i32,
    at: Virt,
) -> Served {
    if policy < 0 || at == 0 {
        return errno(libc::EINVAL);
    }
    let priority = i32::from_le_bytes(guest.read_array(at)?);
    let old = of(kernel, id)?;
    let reset_on_fork = policy & RESET_ON_FORK != 0;
    set(kernel, id, Scheduling { policy: policy & !RESET_ON_FORK, priority, reset_on_fork, ..old })
}

pub(super) fn setparam(kernel: &mut Kernel, guest: &mut Guest<'_>, id: i32, at: Virt) -> Served {
    if at == 0 {
        return errno(libc::EINVAL);
    }
    let priority = i32::from_le_bytes(guest.read_array(at)?);
    let old = of(kernel, id)?;
    set(kernel, id, Scheduling { priority, ..old })
}

pub(super) fn getscheduler(kernel: &Kernel, id: i32) -> Served {
    let own = of(kernel, id)?;
    let flag = if own.reset_on_fork { RESET_ON_FORK } else { 0 };
    Ok(u64::from((own.policy | flag).unsigned_abs()))
}

pub(super) fn getparam(kernel: &Kernel, guest: &mut Guest<'_>, id: i32, at: Virt) -> Served {
    if at == 0 {
        return errno(libc::EINVAL);
    }
    guest.write(at, &of(kernel, id)?.priority.to_le_bytes())?;
    Ok(0)
}

pub(super) fn rr_get_interval(kernel: &Kernel, guest: &mut Guest<'_>, id: i32, at: Virt) -> Served {
    let interval = match of(kernel, id)?.policy {
        libc::SCHED_FIFO => 0,
        libc::SCHED_RR => ROUND_ROBIN,
        _ => OTHER,
    };
    guest.write_words(at, &[interval / NANOSECONDS, interval % NANOSECONDS])?;
    Ok(0)
}

pub(super) fn setattr(kernel: &mut Kernel, guest: &mut Guest<'_>, id: i32, at: Virt, flags: u64) -> Served {
    if at == 0 || id < 0 || flags & 0xffff_ffff != 0 {
        return errno(libc::EINVAL);
    }
    let size = u32::from_le_bytes(guest.read_array(at)?);
    if size != 0 && size < FIRST_SIZE {
        return errno(libc::E2BIG);
    }
    let [head, flags, levels, run, deadline, period] = guest.read_words(at)?;
    let (policy, nice, priority) = (int(head >> 32), int(levels), int(levels >> 32));
    let old = of(kernel, id)?;
    let kept = flags & KEEP_POLICY != 0;
    let mut new = Scheduling {
        policy: if kept { old.policy } else { policy },
        priority,
        periods: [run, deadline, period],
        reset_on_fork: flags & 1 != 0,
        ..old
    };
    if flags & KEEP_PARAMS != 0 {
        new = Scheduling { policy: new.policy, reset_on_fork: new.reset_on_fork, ..old };
    } else if matches!(new.policy, libc::SCHED_OTHER | libc::SCHED_BATCH) {
        new.nice = may_be_nice(kernel, old.nice, nice.clamp(-20, 19))?;
    }
    set(kernel, id, new)
}

pub(super) fn getattr(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    at: Virt,
    size: u64,
    flags: u64,
) -> Served {
    let size = size & 0xffff_ffff;
    if at == 0 || id < 0 || !(u64::from(FIRST_SIZE)..=4096).contains(&size) || flags & 0xffff_ffff != 0 {
        return errno(libc::EINVAL);
    }
    let own = of(kernel, id)?;
    let size = u32::try_from(size).unwrap_or(SIZE).min(SIZE);
    let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let nice = own.nice.cast_unsigned();
    let words = [
        word(size, own.policy.cast_unsigned()),
        u64::from(own.reset_on_fork),
        word(nice, own.priority.cast_unsigned()),
        own.periods[0],
        own.periods[1],
        own.periods[2],
        word(0, 1024),
    ];
    guest.write_words(at, &words[..(size / 8) as usize])?;
    Ok(0)
}

/// The least or the greatest priority of a policy: only those for real time have any.
pub(super) fn priority_bound(call: i64, policy: i32) -> Served {
    let least = call == libc::SYS_sched_get_priority_min;
    match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => Ok(if least { 1 } else { 99 }),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE | SCHED_DEADLINE => Ok(0),
        _ => errno(libc::EINVAL),
    }
}

/// The tasks that getpriority and its kin are about: a task, a process group, or all of a user.
fn tasks_of(kernel: &Kernel, which: i32, who: i32, kinds: [i32; 3]) -> Served<Vec<i32>> {
    let [process, process_group, user] = kinds;
    let group = |id: i32| kernel.tasks.get(id).and_then(|task| kernel.groups.get(task.group));
    let own = kernel.group();
    let found: Vec<i32> = match which {
        kind if kind == process => {
            let id = if who == 0 { kernel.tasks.id() } else { who };
            kernel.tasks.get(id).map(|_| id).into_iter().collect()
        }
        kind if kind == process_group => {
            let wanted = if who == 0 { own.process_group } else { who };
            let is_in = |id: &i32| group(*id).is_some_and(|group| group.process_group == wanted);
            kernel.tasks.living().map(|(id, _)| id).filter(is_in).collect()
        }
        kind if kind == user => {
            let wanted = if who == 0 { own.credentials.uid[0] } else { who.cast_unsigned() };
            let is_of = |id: &i32| group(*id).is_some_and(|group| group.credentials.uid[0] == wanted);
            kernel.tasks.living().map(|(id, _)| id).filter(is_of).collect()
        }
        _ => return errno(libc::EINVAL),
    };
    if found.is_empty() { errno(libc::ESRCH) } else { Ok(found) }
}

/// PRIO_PROCESS, PRIO_PGRP and PRIO_USER; the kinds of ioprio_get are one higher.
const KINDS: [i32; 3] = [0, 1, 2];
const IO_KINDS: [i32; 3] = [1, 2, 3];

/// getpriority, from 40 for the highest to 1.
pub(super) fn getpriority(kernel: &Kernel, which: i32, who: i32) -> Served {
    let nice = tasks_of(kernel, which, who, KINDS)?
        .into_iter()
        .filter_map(|id| Some(kernel.tasks.get(id)?.scheduling.nice));
    Ok(u64::from((20 - nice.min().unwrap_or(0)).unsigned_abs()))
}

/// A nice value, if the program may have it.
fn may_be_nice(kernel: &Kernel, old: i32, new: i32) -> Served<i32> {
    let group = kernel.group();
    let least = match group.limits[limit::NICE][0] {
        libc::RLIM_INFINITY => 19,
        limit => 20 - i32::try_from(limit.min(40)).unwrap_or(40),
    };
    if new < old && new < least && !group.credentials.has(SYS_NICE) { errno(libc::EACCES) } else { Ok(new) }
}

pub(super) fn setpriority(kernel: &mut Kernel, which: i32, who: i32, nice: i32) -> Served {
    let nice = nice.clamp(-20, 19);
    for id in tasks_of(kernel, which, who, KINDS)? {
        may_schedule(kernel, id)?;
        let old = kernel.tasks.get(id).map_or(0, |task| task.scheduling.nice);
        let new = may_be_nice(kernel, old, nice)?;
        if let Some(task) = kernel.tasks.get_mut(id) {
            task.scheduling.nice = new;
        }
    }
    Ok(0)
}

/// ioprio_get: of many tasks, the highest.
pub(super) fn ioprio_get(kernel: &Kernel, which: i32, who: i32) -> Served {
    let tasks = tasks_of(kernel, which, who, IO_KINDS)?;
    let best =
        tasks.into_iter().filter_map(|id| Some(kernel.tasks.get(id)?.scheduling.io)).min_by_key(|io| {
            let class = io >> 13;
            (if class == 0 { 2 } else { class }, io & 0x1fff)
        });
    Ok(best.unwrap_or(0).into())
}

pub(super) fn ioprio_set(kernel: &mut Kernel, which: i32, who: i32, priority: u64) -> Served {
    let priority = int(priority).cast_unsigned();
    match (priority >> 13 & 7, priority & 7) {
        (1, _) if !kernel.group().credentials.has(SYS_NICE) => return errno(libc::EPERM),
        (0, level) if level != 0 => return errno(libc::EINVAL),
        (0..=3, _) => {}
        _ => return errno(libc::EINVAL),
    }
    for id in tasks_of(kernel, which, who, IO_KINDS)? {
        may_schedule(kernel, id)?;
        if let Some(task) = kernel.tasks.get_mut(id) {
            task.scheduling.io = priority;
        }
    }
    Ok(0)
}
