//! System V's message queues: msgget, msgsnd, msgrcv and msgctl.

use super::super::wait::{Interrupted, On, Wait, Why, wait};
use super::super::{Guest, Kernel, Served, errno, long, word};
use super::{
    Awaits, Entry, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, Permission, READ, Record, WRITE, number,
};
use crate::plain::plain;
use crate::ram::Virt;
use std::collections::VecDeque;

const MSG_STAT: i32 = 11;
const MSG_INFO: i32 = 12;
const MSG_STAT_ANY: i32 = 13;
/// Flags of msgrcv.
const MSG_NOERROR: i32 = 0o10000;
const MSG_EXCEPT: i32 = 0o20000;
const MSG_COPY: i32 = 0o40000;
/// The limits that Linux has by default: bytes of a message, bytes of a queue.
const MSGMAX: u64 = 8192;
const MSGMNB: u64 = 16_384;
/// The size of `struct msqid64_ds`.
const QUEUE: usize = 120;

/// A message.
#[derive(Clone, Debug)]
struct Message {
    kind: i64,
    text: Vec<u8>,
}
plain!(struct Message { kind, text });

/// A queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    messages: VecDeque<Message>,
    /// How many bytes it takes.
    room: u64,
    /// When something was sent, received and changed last, in seconds.
    times: [u64; 3],
    /// Who sent and who received last.
    last: [i32; 2],
}
plain!(struct Queue { messages, room, times, last });

impl Queue {
    fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.text.len() as u64).sum()
    }

    /// The message that a receiver gets.
    fn find(&self, kind: i64, flags: i32) -> Option<usize> {
        let mut all = self.messages.iter();
        match kind {
            _ if flags & MSG_COPY != 0 => usize::try_from(kind).ok().filter(|at| *at < self.messages.len()),
            0 => (!self.messages.is_empty()).then_some(0),
            1.. if flags & MSG_EXCEPT != 0 => all.position(|message| message.kind != kind),
            1.. => all.position(|message| message.kind == kind),
            _ => {
                let most = kind.saturating_neg();
                let least = all.clone().map(|message| message.kind).filter(|kind| *kind <= most).min()?;
                all.position(|message| message.kind == least)
            }
        }
    }
}

pub(super) fn get(kernel: &mut Kernel, key: i32, flags: i32) -> Served {
    if let Some(id) = kernel.ipc.messages.find(&kernel.who(), key, flags, |_| true)? {
        return Ok(number(id));
    }
    let permission = Permission::new(&kernel.who(), key, flags);
    let queue =
        Queue { messages: VecDeque::new(), room: MSGMNB, times: [0, 0, kernel.seconds()], last: [0; 2] };
    Ok(number(kernel.ipc.messages.add(permission, queue)?))
}

/// That a queue is still there for a call that has waited.
fn still_there(kernel: &Kernel, id: i32) -> Served<()> {
    if kernel.again.why == Some(Why::Ready) && kernel.ipc.messages.get(id).is_err() {
        return errno(libc::EIDRM);
    }
    Ok(())
}

fn wait_for(id: i32) -> Served {
    wait(Wait::new(On::Ipc(Awaits::Messages(id)), None, Interrupted::Fails))
}

fn wake(kernel: &mut Kernel, id: i32) {
    kernel.wake_awaiting(|awaits| matches!(awaits, Awaits::Messages(queue) if *queue == id));
}

pub(super) fn send(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    (address, length): (Virt, u64),
    flags: i32,
) -> Served {
    still_there(kernel, id)?;
    let [kind] = guest.read_words(address)?;
    let kind = long(kind);
    if length > MSGMAX || id < 0 || kind < 1 {
        return errno(libc::EINVAL);
    }
    let mut text = vec![0; usize::try_from(length).expect("at most MSGMAX")];
    guest.read(address.wrapping_add(8), &mut text)?;
    let (now, pid) = (kernel.seconds(), kernel.pid());
    let entry = kernel.ipc.messages.get(id)?;
    entry.permission.allows(&kernel.who(), WRITE)?;
    let queue = &entry.it;
    if queue.bytes() + length > queue.room || queue.messages.len() as u64 + 1 > queue.room {
        return if flags & IPC_NOWAIT != 0 { errno(libc::EAGAIN) } else { wait_for(id) };
    }
    let queue = &mut kernel.ipc.messages.get_mut(id)?.it;
    queue.messages.push_back(Message { kind, text });
    (queue.times[0], queue.last[0]) = (now, pid);
    wake(kernel, id);
    Ok(0)
}

pub(super) fn receive(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    (address, length): (Virt, u64),
    kind: i64,
    flags: i32,
) -> Served {
    still_there(kernel, id)?;
    if long(length) < 0
        || id < 0
        || flags & MSG_COPY != 0 && (flags & MSG_EXCEPT != 0 || flags & IPC_NOWAIT == 0)
    {
        return errno(libc::EINVAL);
    }
    let (now, pid) = (kernel.seconds(), kernel.pid());
    let entry = kernel.ipc.messages.get(id)?;
    entry.permission.allows(&kernel.who(), READ)?;
    let found = entry.it.find(kind, flags).and_then(|at| Some((at, entry.it.messages.get(at)?)));
    let Some((at, message)) = found else {
        return if flags & IPC_NOWAIT != 0 { errno(libc::ENOMSG) } else { wait_for(id) };
    };
    if message.text.len() as u64 > length && flags & MSG_NOERROR == 0 {
        return errno(libc::E2BIG);
    }
    let told = message.text.len().min(usize::try_from(length).unwrap_or(usize::MAX));
    let mut bytes = word(message.kind).to_le_bytes().to_vec();
    bytes.extend_from_slice(&message.text[..told]);
    guest.write(address, &bytes)?;
    if flags & MSG_COPY == 0 {
        let queue = &mut kernel.ipc.messages.get_mut(id)?.it;
        queue.messages.remove(at);
        (queue.times[1], queue.last[1]) = (now, pid);
        wake(kernel, id);
    }
    Ok(told as u64)
}

pub(super) fn control(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    command: i32,
    address: Virt,
) -> Served {
    if id < 0 || command < 0 {
        return errno(libc::EINVAL);
    }
    match command {
        IPC_INFO | MSG_INFO => info(kernel, guest, command, address),
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => tell(kernel, guest, id, command, address),
        IPC_RMID => {
            kernel.ipc.messages.get(id)?.permission.owned_by(&kernel.who())?;
            kernel.ipc.messages.remove(id);
            wake(kernel, id);
            Ok(0)
        }
        IPC_SET => {
            let bytes: [u8; QUEUE] = guest.read_array(address)?;
            let room = u64::from_le_bytes(bytes[88..96].try_into().expect("eight bytes"));
            let (now, privileged) = (kernel.seconds(), kernel.who().is_privileged());
            kernel.ipc.messages.get(id)?.permission.owned_by(&kernel.who())?;
            if room > MSGMNB && !privileged {
                return errno(libc::EPERM);
            }
            let entry = kernel.ipc.messages.get_mut(id)?;
            entry.permission.set(guest, address)?;
            (entry.it.room, entry.it.times[2]) = (room, now);
            wake(kernel, id);
            Ok(0)
        }
        _ => errno(libc::EINVAL),
    }
}

fn tell(kernel: &Kernel, guest: &mut Guest<'_>, id: i32, command: i32, address: Virt) -> Served {
    let queues = &kernel.ipc.messages;
    let id = if command == IPC_STAT { id } else { queues.at_place(id)? };
    let entry = queues.get(id)?;
    if command != MSG_STAT_ANY {
        entry.permission.allows(&kernel.who(), READ)?;
    }
    let queue = &entry.it;
    let [sent, received, changed] = queue.times;
    let record = entry
        .permission
        .record(QUEUE)
        .long(48, sent)
        .long(56, received)
        .long(64, changed)
        .long(72, queue.bytes())
        .long(80, queue.messages.len() as u64)
        .long(88, queue.room)
        .word(96, queue.last[0])
        .word(100, queue.last[1]);
    guest.write(address, &record.bytes)?;
    Ok(if command == IPC_STAT { 0 } else { number(id) })
}

/// The limits, and with MSG_INFO what is used.
fn info(kernel: &Kernel, guest: &mut Guest<'_>, command: i32, address: Virt) -> Served {
    let queues = &kernel.ipc.messages;
    let count = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    let (used, messages, bytes) = if command == IPC_INFO {
        (512_000, 16_384, 16_384)
    } else {
        let all = || queues.iter().map(|(_, entry)| &entry.it);
        let messages: usize = all().map(|queue| queue.messages.len()).sum();
        (count(queues.len() as u64), count(messages as u64), count(all().map(Queue::bytes).sum()))
    };
    let mut record = Record::new(32);
    for (at, value) in (0..).step_by(4).zip([used, messages, 8192, 16_384, 32_000, 16, bytes, 0xffff]) {
        record = record.word(at, value);
    }
    guest.write(address, &record.bytes)?;
    Ok(number(queues.last_place()))
}

/// /proc/sysvipc/msg.
pub(in super::super) fn listing(kernel: &mut Kernel, _: &mut Guest<'_>) -> Served<Vec<u8>> {
    let mut text = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n".to_owned();
    for (id, Entry { permission, it }) in kernel.ipc.messages.iter() {
        let (Permission { key, mode, .. }, ids) = (permission, permission.shown());
        let ([sent, received, changed], [sender, receiver]) = (it.times, it.last);
        let (bytes, count) = (it.bytes(), it.messages.len());
        text += &format!(
            "{key:10} {id:10}  {mode:4o}  {bytes:10} {count:10} {sender:5} {receiver:5} {ids} {sent:10} {received:10} {changed:10}\n"
        );
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_says_which_kind() {
        let message = |kind| Message { kind, text: Vec::new() };
        let messages = [5, 3, 4, 3].map(message).into();
        let queue = Queue { messages, room: MSGMNB, times: [0; 3], last: [0; 2] };
        let find = |kind, flags| queue.find(kind, flags);
        assert_eq!([find(0, 0), find(3, 0), find(9, 0)], [Some(0), Some(1), None]);
        assert_eq!([find(5, MSG_EXCEPT), find(-4, 0), find(-2, 0)], [Some(1), Some(1), None]);
        assert_eq!([find(2, MSG_COPY), find(4, MSG_COPY), find(i64::MIN, 0)], [Some(2), None, Some(1)]);
    }
}
