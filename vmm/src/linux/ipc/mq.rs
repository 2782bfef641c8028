//! The calls of POSIX's message queues: mq_open, mq_unlink, mq_timedsend, mq_timedreceive, mq_notify and mq_getsetattr.
//!
//! For poll, an open queue is an eventfd of the host, which is given the count that poll shows in the same way
//! ([`Queue::count_to_show`]): it is readable when there are messages, and writable when there is room.

use super::super::descriptors::OpenFile;
use super::super::files::open_host;
use super::super::wait::{Deadline, Interrupted, On, Wait, wait};
use super::super::{Guest, Kernel, Served, errno, host, int, long, word};
use super::queue::{Message, Open, Queue, Told, cause};
use super::{Awaits, number};
use crate::ram::Virt;
use crate::signal::Raised;

/// The longest name.
const NAME: usize = 255;
/// What a queue may have, by default and at most: messages, and bytes of each.
const DEFAULT: (u64, u64) = (10, 8192);
const MOST: (u64, u64) = (10, 8192);
const MOST_PRIVILEGED: (u64, u64) = (65_536, 16 << 20);
const MOST_QUEUES: usize = 256;
/// Priorities are below this.
const PRIORITIES: u32 = 32_768;
/// The size of `struct mq_attr`.
const ATTRIBUTES: usize = 64;
/// Kinds of notification, and the signal's code.
const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD: i32 = 2;
const SI_MESGQ: i32 = -3;

/// The name of a queue, which has no slash: the C library takes the first one away.
fn name(guest: &mut Guest<'_>, address: Virt) -> Served<Vec<u8>> {
    let Some(name) = guest.string(address, NAME + 2)?.filter(|name| name.len() <= NAME) else {
        return errno(libc::ENAMETOOLONG);
    };
    match &name[..] {
        b"" => errno(libc::ENOENT),
        b"." | b".." => errno(libc::EACCES),
        name if name.contains(&b'/') => errno(libc::EACCES),
        _ => Ok(name),
    }
}

pub(super) fn open(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [address, flags, mode, attributes, ..] = *a;
    let flags = int(flags);
    let asked = if attributes == 0 { None } else { Some(guest.read_words::<4>(attributes)?) };
    let name = name(guest, address)?;
    kernel.files().free(0)?;
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return errno(libc::EINVAL),
    };
    let queue = match kernel.ipc.queues.named(&name) {
        Some(_) if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 => return errno(libc::EEXIST),
        Some((number, queue)) => {
            may_open(kernel, queue, reads, writes)?;
            number
        }
        None if flags & libc::O_CREAT == 0 => return errno(libc::ENOENT),
        None => create(kernel, name, mode, asked)?,
    };
    let nonblocking = flags & libc::O_NONBLOCK != 0;
    let file = open_host(guest, &mut || host::eventfd(0, libc::EFD_NONBLOCK))?;
    let open = kernel.ipc.queues.open(Open { queue, reads, writes, nonblocking });
    // The kernel's mq_open closes on exec whatever it is asked for.
    let descriptor = kernel.files_mut().install(OpenFile::of_queue(file, open), true, 0)?;
    show(kernel, queue);
    Ok(descriptor)
}

/// Makes a queue.
fn create(kernel: &mut Kernel, name: Vec<u8>, mode: u64, asked: Option<[u64; 4]>) -> Served<u64> {
    let privileged = kernel.who().is_privileged();
    let (most, longest) = match asked {
        None => DEFAULT,
        Some([_, most, longest, _]) => {
            let (many, long_ones) = if privileged { MOST_PRIVILEGED } else { MOST };
            if long(most) <= 0 || long(longest) <= 0 || most > many || longest > long_ones {
                return errno(libc::EINVAL);
            }
            (most, longest)
        }
    };
    if kernel.ipc.queues.len() >= MOST_QUEUES && !privileged {
        return errno(libc::ENOSPC);
    }
    let owner = [kernel.group().credentials.uid[1], kernel.group().credentials.gid[1]];
    let (mode, most) = (kernel.masked(mode), usize::try_from(most).expect("at most 65536"));
    Ok(kernel.ipc.queues.add(Queue::new(name, most, longest, owner, mode)))
}

/// Whether a queue's rights allow it to be opened so.
fn may_open(kernel: &Kernel, queue: &Queue, reads: bool, writes: bool) -> Served<()> {
    let credentials = &kernel.group().credentials;
    let granted = if credentials.uid[1] == queue.owner[0] {
        queue.mode >> 6
    } else if credentials.gid[1] == queue.owner[1] || credentials.groups.contains(&queue.owner[1]) {
        queue.mode >> 3
    } else {
        queue.mode
    };
    let wanted = if reads { 4 } else { 0 } | if writes { 2 } else { 0 };
    if wanted & !granted != 0 && credentials.uid[1] != 0 { errno(libc::EACCES) } else { Ok(()) }
}

pub(super) fn unlink(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    let name = name(guest, address)?;
    let Some((number, queue)) = kernel.ipc.queues.named(&name) else { return errno(libc::ENOENT) };
    let uid = kernel.group().credentials.uid[1];
    // Queues lie in a directory in which each removes his own.
    if uid != 0 && uid != queue.owner[0] {
        return errno(libc::EPERM);
    }
    kernel.ipc.queues.unlink(number);
    Ok(0)
}

/// The number of an open queue, and what is open.
fn opened(kernel: &Kernel, descriptor: i32) -> Served<(u64, Open)> {
    match kernel.files().get(descriptor)?.queue() {
        Some(number) => Ok((number, kernel.ipc.queues.get(number)?.0)),
        None => errno(libc::EBADF),
    }
}

/// Has poll show a queue as it is.
fn show(kernel: &Kernel, queue: u64) {
    let queues = &kernel.ipc.queues;
    for (_, table) in kernel.tables.iter() {
        for (_, file) in table.iter() {
            let Some(open) = file.queue().filter(|open| queues.queue_of(*open) == Some(queue)) else {
                continue;
            };
            let Ok((_, queue)) = queues.get(open) else { continue };
            if file.host() >= 0 {
                host::read(file.host(), &mut [0; 8], None);
                match queue.count_to_show() {
                    0 => {}
                    count => drop(host::write(file.host(), &count.to_le_bytes(), None)),
                }
            }
        }
    }
}

pub(super) fn send(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [descriptor, address, length, priority, time, _] = *a;
    let priority = u32::from_le_bytes(int(priority).to_le_bytes());
    let deadline = kernel.deadline_at(guest, time, true)?;
    if priority >= PRIORITIES {
        return errno(libc::EINVAL);
    }
    let (number, open) = opened(kernel, int(descriptor))?;
    if !open.writes {
        return errno(libc::EBADF);
    }
    let (_, queue) = kernel.ipc.queues.get(number)?;
    if length > queue.longest {
        return errno(libc::EMSGSIZE);
    }
    let full = queue.is_full();
    let mut text = vec![0; usize::try_from(length).expect("at most 16 MiB")];
    guest.read(address, &mut text)?;
    if full {
        return wait_for(kernel, open, Awaits::Room(open.queue), deadline);
    }
    let Some(queue) = kernel.ipc.queues.queue_mut(open.queue) else { return errno(libc::EBADF) };
    let was_empty = queue.len() == 0;
    queue.push(Message { priority, text });
    let is_this = |awaits: &Awaits| matches!(awaits, Awaits::Mail(queue) if *queue == open.queue);
    if kernel.is_awaited(is_this) {
        kernel.wake_awaiting(is_this);
    } else if was_empty {
        tell(kernel, open.queue);
    }
    show(kernel, open.queue);
    Ok(0)
}

/// Tells who wants to know that a queue is no longer empty, once.
fn tell(kernel: &mut Kernel, queue: u64) {
    let (sender, uid) = (kernel.pid(), kernel.group().credentials.uid[0]);
    let told = kernel.ipc.queues.queue_mut(queue).and_then(|queue| queue.told.take());
    if let Some(Told { pid, signal: Some((signal, value)) }) = told {
        kernel.signal_group(pid, Raised::new(signal, SI_MESGQ, cause(sender, uid, value)));
    }
}

/// Waits for a queue to change, if that may be.
fn wait_for(kernel: &Kernel, open: Open, awaits: Awaits, deadline: Option<Deadline>) -> Served {
    if open.nonblocking {
        return errno(libc::EAGAIN);
    }
    if deadline.is_some_and(|at| kernel.has_passed(at)) {
        return errno(libc::ETIMEDOUT);
    }
    wait(Wait::new(On::Ipc(awaits), deadline, Interrupted::MayRestart))
}

pub(super) fn receive(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [descriptor, address, length, priority, time, _] = *a;
    let deadline = kernel.deadline_at(guest, time, true)?;
    let (number, open) = opened(kernel, int(descriptor))?;
    if !open.reads {
        return errno(libc::EBADF);
    }
    let (_, queue) = kernel.ipc.queues.get(number)?;
    if length < queue.longest {
        return errno(libc::EMSGSIZE);
    }
    let Some(message) = queue.first() else {
        return wait_for(kernel, open, Awaits::Mail(open.queue), deadline);
    };
    let received = message.text.len() as u64;
    guest.write(address, &message.text)?;
    if priority != 0 {
        guest.write(priority, &message.priority.to_le_bytes())?;
    }
    if let Some(queue) = kernel.ipc.queues.queue_mut(open.queue) {
        queue.pop();
    }
    kernel.wake_awaiting(|awaits| matches!(awaits, Awaits::Room(queue) if *queue == open.queue));
    show(kernel, open.queue);
    Ok(received)
}

pub(super) fn notify(kernel: &mut Kernel, guest: &mut Guest<'_>, descriptor: i32, event: Virt) -> Served {
    let asked = if event == 0 { None } else { Some(guest.read_words::<2>(event)?) };
    let pid = kernel.pid();
    let told = match asked {
        None => None,
        Some([value, kinds]) => Some(match (int(kinds >> 32), int(kinds)) {
            (SIGEV_NONE, _) => Told { pid, signal: None },
            (SIGEV_SIGNAL, signal) if (1..=64).contains(&signal) => {
                Told { pid, signal: Some((signal, value)) }
            }
            // The C library asks to be told by a netlink socket, which is the host's: no other process can send to it.
            (SIGEV_THREAD, _) => return kernel.refuse("mq_notify with SIGEV_THREAD", libc::ENOSYS),
            _ => return errno(libc::EINVAL),
        }),
    };
    let (_, open) = opened(kernel, descriptor)?;
    let Some(queue) = kernel.ipc.queues.queue_mut(open.queue) else { return errno(libc::EBADF) };
    match (told, queue.told) {
        (Some(_), Some(_)) => return errno(libc::EBUSY),
        (Some(told), None) => queue.told = Some(told),
        (None, Some(old)) if old.pid == pid => queue.told = None,
        (None, _) => {}
    }
    Ok(0)
}

pub(super) fn attributes(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    descriptor: i32,
    new: Virt,
    old: Virt,
) -> Served {
    let nonblock = word(i64::from(libc::O_NONBLOCK));
    let new = if new == 0 { None } else { Some(guest.read_words::<1>(new)?) };
    if new.is_some_and(|[flags]| flags & !nonblock != 0) {
        return errno(libc::EINVAL);
    }
    let (number, open) = opened(kernel, descriptor)?;
    let (_, queue) = kernel.ipc.queues.get(number)?;
    if old != 0 {
        let flags = if open.nonblocking { nonblock } else { 0 };
        let mut words = [0; ATTRIBUTES / 8];
        words[..4].copy_from_slice(&[flags, queue.most as u64, queue.longest, queue.len() as u64]);
        guest.write_words(old, &words)?;
    }
    if let (Some([flags]), Some(open)) = (new, kernel.ipc.queues.open_mut(number)) {
        open.nonblocking = flags & nonblock != 0;
    }
    Ok(0)
}

/// The flags of an open queue (F_GETFL).
pub(in super::super) fn flags(kernel: &Kernel, open: u64) -> Served {
    let (open, _) = kernel.ipc.queues.get(open)?;
    let access = match (open.reads, open.writes) {
        (true, true) => libc::O_RDWR,
        (false, _) => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    Ok(number(access | if open.nonblocking { libc::O_NONBLOCK } else { 0 }))
}

/// Changes them (F_SETFL).
pub(in super::super) fn set_flags(kernel: &mut Kernel, open: u64, flags: i32) -> Served {
    if let Some(open) = kernel.ipc.queues.open_mut(open) {
        open.nonblocking = flags & libc::O_NONBLOCK != 0;
    }
    Ok(0)
}
