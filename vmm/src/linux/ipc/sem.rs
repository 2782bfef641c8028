//! System V's semaphores: semget, semop, semtimedop and semctl.
//!
//! The operations of a call are done all at once or not at all. A task whose operations cannot be done waits with them; whoever
//! changes the set does them for it, the longest-waiting first (`update_queue` of ipc/sem.c), and wakes it when they are done.

use super::super::wait::{Deadline, Interrupted, On, Wait, Why, wait};
use super::super::{Guest, Kernel, Served, errno, int};
use super::{
    Awaits, Entry, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, Permission, READ, Record, WRITE, number,
};
use crate::plain::{plain, shared};
use crate::ram::Virt;
use std::collections::BTreeMap;
use std::sync::Arc;

const GETPID: i32 = 11;
const GETVAL: i32 = 12;
const GETALL: i32 = 13;
const GETNCNT: i32 = 14;
const GETZCNT: i32 = 15;
const SETVAL: i32 = 16;
const SETALL: i32 = 17;
const SEM_STAT: i32 = 18;
const SEM_INFO: i32 = 19;
const SEM_STAT_ANY: i32 = 20;
const SEM_UNDO: i32 = 0x1000;
/// The limits that Linux has by default: semaphores of a set, operations of a call, the greatest value.
const SEMMSL: usize = 32_000;
const SEMOPM: u64 = 500;
const SEMVMX: i32 = 32_767;
/// The size of `struct semid64_ds`, and of `struct sembuf`.
const SET: usize = 104;
const OPERATION: usize = 6;

/// A semaphore: its value, and the process that changed it last.
#[derive(Clone, Copy, Debug, Default)]
struct Semaphore {
    value: i32,
    last: i32,
}
plain!(struct Semaphore { value, last });

/// Semaphores with one number.
#[derive(Clone, Debug)]
pub(super) struct Set {
    all: Vec<Semaphore>,
    /// When it was operated on, and when changed last, in seconds.
    operated: u64,
    changed: u64,
}
plain!(struct Set { all, operated, changed });

/// What is added to semaphores when a process ends, by process and set.
pub(super) type Undo = BTreeMap<(i32, i32), BTreeMap<usize, i32>>;

/// One operation of a call.
#[derive(Clone, Copy, Debug)]
struct Operation {
    semaphore: usize,
    change: i32,
    flags: i32,
}
plain!(struct Operation { semaphore, change, flags });

/// The operations of a call, and whose they are.
#[derive(Clone, Debug)]
pub(in super::super) struct Operations {
    set: i32,
    pid: i32,
    all: Vec<Operation>,
    /// The one that cannot be done.
    blocked: Operation,
}
plain!(struct Operations { set, pid, all, blocked });
shared!(Arc<Operations>);

/// How operations go.
enum Tried {
    Done,
    /// This one has to wait.
    Waits(Operation),
}

pub(super) fn get(kernel: &mut Kernel, key: i32, count: i32, flags: i32) -> Served {
    let count = usize::try_from(count).ok().filter(|count| *count <= SEMMSL);
    let Some(count) = count else { return errno(libc::EINVAL) };
    if let Some(id) = kernel.ipc.sets.find(&kernel.who(), key, flags, |set| count <= set.all.len())? {
        return Ok(number(id));
    }
    if count == 0 {
        return errno(libc::EINVAL);
    }
    let permission = Permission::new(&kernel.who(), key, flags);
    let set = Set { all: vec![Semaphore::default(); count], operated: 0, changed: kernel.seconds() };
    Ok(number(kernel.ipc.sets.add(permission, set)?))
}

/// semop and semtimedop; null is no time.
pub(super) fn operate(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    (address, count): (Virt, u64),
    time: Virt,
) -> Served {
    match kernel.again.why {
        Some(Why::Ready) if kernel.again.done > 0 => return Ok(0),
        Some(Why::Ready) => return errno(libc::EIDRM),
        Some(Why::TimedOut) => return errno(libc::EAGAIN),
        _ => {}
    }
    if count == 0 || id < 0 {
        return errno(libc::EINVAL);
    }
    if count > SEMOPM {
        return errno(libc::E2BIG);
    }
    let mut bytes = vec![0; usize::try_from(count).expect("at most SEMOPM") * OPERATION];
    guest.read(address, &mut bytes)?;
    let deadline = kernel.deadline(guest, time)?;
    let half = |bytes: &[u8]| i16::from_le_bytes([bytes[0], bytes[1]]);
    let all: Vec<Operation> = bytes
        .chunks_exact(OPERATION)
        .map(|it| Operation {
            semaphore: usize::from(u16::from_le_bytes([it[0], it[1]])),
            change: half(&it[2..]).into(),
            flags: half(&it[4..]).into(),
        })
        .collect();
    let entry = kernel.ipc.sets.get(id)?;
    if all.iter().any(|operation| operation.semaphore >= entry.it.all.len()) {
        return errno(libc::EFBIG);
    }
    let alters = all.iter().any(|operation| operation.change != 0);
    entry.permission.allows(&kernel.who(), if alters { WRITE } else { READ })?;
    let pid = kernel.pid();
    match attempt(kernel, id, pid, &all)? {
        Tried::Done => {
            if alters {
                update(kernel, id);
            }
            Ok(0)
        }
        Tried::Waits(blocked) if blocked.flags & IPC_NOWAIT != 0 => errno(libc::EAGAIN),
        Tried::Waits(_) if deadline.is_some_and(|at: Deadline| kernel.has_passed(at)) => errno(libc::EAGAIN),
        Tried::Waits(blocked) => {
            let operations = Operations { set: id, pid, all, blocked };
            let on = On::Ipc(Awaits::Semaphores(Arc::new(operations)));
            wait(Wait::new(on, deadline, Interrupted::Fails))
        }
    }
}

/// Does operations, or none of them.
fn attempt(kernel: &mut Kernel, id: i32, pid: i32, operations: &[Operation]) -> Served<Tried> {
    let now = kernel.seconds();
    let set = &mut kernel.ipc.sets.get_mut(id)?.it;
    let before = kernel.ipc.undo.get(&(pid, id)).cloned().unwrap_or_default();
    let (mut all, mut undo) = (set.all.clone(), before);
    for operation in operations {
        let Some(semaphore) = all.get_mut(operation.semaphore) else { return errno(libc::EFBIG) };
        let value = semaphore.value + operation.change;
        if operation.change == 0 && semaphore.value != 0 || value < 0 {
            return Ok(Tried::Waits(*operation));
        }
        if value > SEMVMX {
            return errno(libc::ERANGE);
        }
        if operation.flags & SEM_UNDO != 0 {
            let adjustment = undo.entry(operation.semaphore).or_default();
            *adjustment -= operation.change;
            if !(-SEMVMX - 1..=SEMVMX).contains(adjustment) {
                return errno(libc::ERANGE);
            }
        }
        *semaphore = Semaphore { value, last: pid };
    }
    (set.all, set.operated) = (all, now);
    if operations.iter().any(|operation| operation.flags & SEM_UNDO != 0) {
        kernel.ipc.undo.insert((pid, id), undo);
    }
    Ok(Tried::Done)
}

/// The operations with which tasks wait for a set, the longest-waiting first.
fn waiting(kernel: &Kernel, id: i32) -> Vec<(i32, Arc<Operations>)> {
    let mine = |on: &On| match on {
        On::Ipc(Awaits::Semaphores(operations)) if operations.set == id => Some(Arc::clone(operations)),
        _ => None,
    };
    let tasks = kernel.tasks.waiting(|wait| mine(&wait.on).is_some());
    let operations = |task: &i32| mine(&kernel.tasks.get(*task)?.wait()?.on);
    tasks.iter().filter_map(|task| Some((*task, operations(task)?))).collect()
}

/// Does what tasks wait for, as long as any of it can be done.
fn update(kernel: &mut Kernel, id: i32) {
    'again: loop {
        for (task, operations) in waiting(kernel, id) {
            match attempt(kernel, id, operations.pid, &operations.all) {
                Ok(Tried::Done) => {
                    wake(kernel, task, 1);
                    continue 'again;
                }
                Ok(Tried::Waits(blocked)) => {
                    if let Some(wait) = kernel.tasks.wait_mut(task) {
                        let operations = Operations { blocked, ..(*operations).clone() };
                        wait.on = On::Ipc(Awaits::Semaphores(Arc::new(operations)));
                    }
                }
                // What is out of range now was in range when it began to wait: it waits on.
                Err(_) => {}
            }
        }
        return;
    }
}

/// Ends a wait: with success if `done` is one, else as the set is gone.
fn wake(kernel: &mut Kernel, task: i32, done: usize) {
    if let Some(wait) = kernel.tasks.wait_mut(task) {
        wait.done = done;
    }
    kernel.tasks.wake(task, Why::Ready);
}

/// A process ends: what it did with SEM_UNDO is taken back.
pub(super) fn take_back(kernel: &mut Kernel, pid: i32) {
    let sets: Vec<i32> =
        kernel.ipc.undo.keys().filter(|(whose, _)| *whose == pid).map(|(_, set)| *set).collect();
    let now = kernel.seconds();
    for id in sets {
        let Some(adjustments) = kernel.ipc.undo.remove(&(pid, id)) else { continue };
        let Ok(entry) = kernel.ipc.sets.get_mut(id) else { continue };
        for (at, adjustment) in adjustments {
            if let Some(semaphore) = entry.it.all.get_mut(at).filter(|_| adjustment != 0) {
                let value = (semaphore.value + adjustment).clamp(0, SEMVMX);
                *semaphore = Semaphore { value, last: pid };
            }
        }
        entry.it.operated = now;
        update(kernel, id);
    }
}

pub(super) fn control(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    at: i32,
    command: i32,
    argument: u64,
) -> Served {
    if id < 0 {
        return errno(libc::EINVAL);
    }
    match command {
        IPC_INFO | SEM_INFO => info(kernel, guest, command, argument),
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => tell(kernel, guest, id, command, argument),
        GETPID | GETVAL | GETNCNT | GETZCNT | GETALL => look(kernel, guest, id, at, command, argument),
        SETVAL | SETALL => set(kernel, guest, id, at, command, argument),
        IPC_RMID => {
            kernel.ipc.sets.get(id)?.permission.owned_by(&kernel.who())?;
            kernel.ipc.sets.remove(id);
            kernel.ipc.undo.retain(|(_, set), _| *set != id);
            for (task, _) in waiting(kernel, id) {
                wake(kernel, task, 0);
            }
            Ok(0)
        }
        IPC_SET => {
            let now = kernel.seconds();
            kernel.ipc.sets.get(id)?.permission.owned_by(&kernel.who())?;
            let entry = kernel.ipc.sets.get_mut(id)?;
            entry.permission.set(guest, argument)?;
            entry.it.changed = now;
            Ok(0)
        }
        _ => errno(libc::EINVAL),
    }
}

/// Tells values.
fn look(kernel: &Kernel, guest: &mut Guest<'_>, id: i32, at: i32, command: i32, address: Virt) -> Served {
    let entry = kernel.ipc.sets.get(id)?;
    entry.permission.allows(&kernel.who(), READ)?;
    if command == GETALL {
        let low = |semaphore: &Semaphore| u16::try_from(semaphore.value).unwrap_or(0).to_le_bytes();
        let bytes: Vec<u8> = entry.it.all.iter().flat_map(low).collect();
        guest.write(address, &bytes)?;
        return Ok(0);
    }
    let slot = usize::try_from(at).ok().and_then(|at| Some((at, entry.it.all.get(at)?)));
    let Some((at, semaphore)) = slot else { return errno(libc::EINVAL) };
    let waits = |zero: bool| {
        let all = waiting(kernel, id);
        let blocked = all.iter().map(|(_, operations)| operations.blocked);
        blocked.filter(|it| it.semaphore == at && (it.change == 0) == zero).count() as u64
    };
    Ok(match command {
        GETPID => number(semaphore.last),
        GETVAL => number(semaphore.value),
        GETNCNT => waits(false),
        _ => waits(true),
    })
}

/// Gives values; what processes would take back of them is forgotten.
fn set(kernel: &mut Kernel, guest: &mut Guest<'_>, id: i32, at: i32, command: i32, argument: u64) -> Served {
    let (now, pid) = (kernel.seconds(), kernel.pid());
    let entry = kernel.ipc.sets.get(id)?;
    let count = entry.it.all.len();
    let which = match (command, usize::try_from(at)) {
        (SETALL, _) => 0..count,
        (_, Ok(at)) if at < count => at..at + 1,
        _ => return errno(libc::EINVAL),
    };
    if command == SETVAL && !(0..=SEMVMX).contains(&int(argument)) {
        return errno(libc::ERANGE);
    }
    entry.permission.allows(&kernel.who(), WRITE)?;
    let values = match command {
        SETVAL => vec![int(argument)],
        _ => {
            let mut bytes = vec![0; 2 * count];
            guest.read(argument, &mut bytes)?;
            bytes.chunks_exact(2).map(|low| i32::from(u16::from_le_bytes([low[0], low[1]]))).collect()
        }
    };
    if values.iter().any(|value| *value > SEMVMX) {
        return errno(libc::ERANGE);
    }
    let entry = kernel.ipc.sets.get_mut(id)?;
    for (at, value) in which.clone().zip(values) {
        entry.it.all[at] = Semaphore { value, last: pid };
    }
    entry.it.changed = now;
    for ((_, set), adjustments) in &mut kernel.ipc.undo {
        if *set == id {
            adjustments.retain(|at, _| !which.contains(at));
        }
    }
    update(kernel, id);
    Ok(0)
}

fn tell(kernel: &Kernel, guest: &mut Guest<'_>, id: i32, command: i32, address: Virt) -> Served {
    let sets = &kernel.ipc.sets;
    let id = if command == IPC_STAT { id } else { sets.at_place(id)? };
    let entry = sets.get(id)?;
    if command != SEM_STAT_ANY {
        entry.permission.allows(&kernel.who(), READ)?;
    }
    let set = &entry.it;
    let record = entry
        .permission
        .record(SET)
        .long(48, set.operated)
        .long(64, set.changed)
        .long(80, set.all.len() as u64);
    guest.write(address, &record.bytes)?;
    Ok(if command == IPC_STAT { 0 } else { number(id) })
}

/// The limits, and with SEM_INFO what is used.
fn info(kernel: &Kernel, guest: &mut Guest<'_>, command: i32, address: Virt) -> Served {
    const MOST: i32 = 1_024_000_000;
    let sets = &kernel.ipc.sets;
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let (used, all) = match command {
        IPC_INFO => (20, SEMVMX),
        _ => (count(sets.len()), count(sets.iter().map(|(_, entry)| entry.it.all.len()).sum())),
    };
    let mut record = Record::new(40);
    for (at, value) in (0..).step_by(4).zip([MOST, 32_000, MOST, MOST, 32_000, 500, 500, used, SEMVMX, all]) {
        record = record.word(at, value);
    }
    guest.write(address, &record.bytes)?;
    Ok(number(sets.last_place()))
}

/// /proc/sysvipc/sem.
pub(in super::super) fn listing(kernel: &mut Kernel, _: &mut Guest<'_>) -> Served<Vec<u8>> {
    let mut text =
        "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n".to_owned();
    for (id, Entry { permission, it }) in kernel.ipc.sets.iter() {
        let (Permission { key, mode, .. }, ids) = (permission, permission.shown());
        let Set { all, operated, changed } = it;
        let count = all.len();
        text += &format!("{key:10} {id:10}  {mode:4o} {count:10} {ids} {operated:10} {changed:10}\n");
    }
    Ok(text.into_bytes())
}
