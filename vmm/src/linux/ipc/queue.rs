//! The state of POSIX's message queues: queues by name, and those that are open.

use super::super::{Served, errno};
use crate::plain::plain;
use crate::signal::Cause;
use std::collections::{BTreeMap, BTreeSet};

/// Who is told that a queue is no longer empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) pid: i32,
    /// The signal and its value; `None` for nothing (SIGEV_NONE).
    pub(super) signal: Option<(i32, u64)>,
}
plain!(struct Told { pid, signal });

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) priority: u32,
    pub(super) text: Vec<u8>,
}
plain!(struct Message { priority, text });

/// A queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Its name, until it is unlinked.
    pub(super) name: Option<Vec<u8>>,
    pub(super) most: usize,
    pub(super) longest: u64,
    /// The next one to be received first.
    messages: Vec<Message>,
    pub(super) told: Option<Told>,
    pub(super) owner: [u32; 2],
    pub(super) mode: u32,
}
plain!(struct Queue { name, most, longest, messages, told, owner, mode });

impl Queue {
    pub(super) fn new(name: Vec<u8>, most: usize, longest: u64, owner: [u32; 2], mode: u32) -> Queue {
        Queue { name: Some(name), most, longest, messages: Vec::new(), told: None, owner, mode }
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= self.most
    }

    /// Adds a message behind those of its priority.
    pub(super) fn push(&mut self, message: Message) {
        let at = self.messages.partition_point(|other| other.priority >= message.priority);
        self.messages.insert(at, message);
    }

    /// The message that is received next.
    pub(super) fn first(&self) -> Option<&Message> {
        self.messages.first()
    }

    pub(super) fn pop(&mut self) {
        if !self.messages.is_empty() {
            self.messages.remove(0);
        }
    }

    /// The count of an eventfd that poll shows in the same way as this queue.
    pub(super) fn count_to_show(&self) -> u64 {
        match self.len() {
            0 => 0,
            _ if self.is_full() => u64::MAX - 1,
            _ => 1,
        }
    }
}

/// An open queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) queue: u64,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) nonblocking: bool,
}
plain!(struct Open { queue, reads, writes, nonblocking });

/// All queues, and all open ones.
#[derive(Clone, Default)]
pub(in super::super) struct Queues {
    queues: BTreeMap<u64, Queue>,
    open: BTreeMap<u64, Open>,
    next: u64,
}
plain!(struct Queues { queues, open, next });

impl Queues {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The queue of a name.
    pub(super) fn named(&self, name: &[u8]) -> Option<(u64, &Queue)> {
        let found = self.queues.iter().find(|(_, queue)| queue.name.as_deref() == Some(name));
        found.map(|(number, queue)| (*number, queue))
    }

    pub(super) fn add(&mut self, queue: Queue) -> u64 {
        let number = self.next();
        self.queues.insert(number, queue);
        number
    }

    pub(super) fn open(&mut self, open: Open) -> u64 {
        let number = self.next();
        self.open.insert(number, open);
        number
    }

    /// An open queue by its number.
    pub(super) fn get(&self, open: u64) -> Served<(Open, &Queue)> {
        let found = self.open.get(&open).and_then(|open| Some((*open, self.queues.get(&open.queue)?)));
        found.map_or_else(|| errno(libc::EBADF), Ok)
    }

    pub(super) fn queue_mut(&mut self, queue: u64) -> Option<&mut Queue> {
        self.queues.get_mut(&queue)
    }

    pub(super) fn open_mut(&mut self, open: u64) -> Option<&mut Open> {
        self.open.get_mut(&open)
    }

    /// The queue of an open one.
    pub(super) fn queue_of(&self, open: u64) -> Option<u64> {
        self.open.get(&open).map(|open| open.queue)
    }

    /// A process ends that was to be told.
    pub(super) fn forget_process(&mut self, pid: i32) {
        for queue in self.queues.values_mut() {
            queue.told = queue.told.filter(|told| told.pid != pid);
        }
    }

    /// A process closes a queue that it was to be told of.
    pub(super) fn stop_telling(&mut self, open: u64, pid: i32) {
        if let Some(queue) = self.queue_of(open).and_then(|queue| self.queues.get_mut(&queue)) {
            queue.told = queue.told.filter(|told| told.pid != pid);
        }
    }

    /// Takes a name away.
    pub(super) fn unlink(&mut self, queue: u64) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.name = None;
        }
        self.drop_unused();
    }

    /// Only these are open.
    pub(super) fn keep_open(&mut self, open: &BTreeSet<u64>) {
        self.open.retain(|number, _| open.contains(number));
        self.drop_unused();
    }

    fn drop_unused(&mut self) {
        let used: BTreeSet<u64> = self.open.values().map(|open| open.queue).collect();
        self.queues.retain(|number, queue| queue.name.is_some() || used.contains(number));
    }
}

/// Who sent the message that a signal tells of.
pub(super) fn cause(pid: i32, uid: u32, value: u64) -> Cause {
    Cause::Queued { pid, uid, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        Queue::new(b"q".to_vec(), 3, 8, [0, 0], 0o600)
    }

    #[test]
    fn messages_come_by_priority_and_then_in_order() {
        let mut queue = queue();
        for (priority, text) in [(1, b"a"), (2, b"b"), (1, b"c")] {
            queue.push(Message { priority, text: text.to_vec() });
        }
        assert!(queue.is_full() && queue.count_to_show() == u64::MAX - 1);
        let mut texts = Vec::new();
        while let Some(message) = queue.first() {
            texts.extend_from_slice(&message.text);
            queue.pop();
        }
        assert_eq!((texts.as_slice(), queue.count_to_show()), (&b"bac"[..], 0));
    }

    #[test]
    fn a_queue_without_a_name_goes_when_nobody_has_it_open() {
        let mut queues = Queues::default();
        let number = queues.add(queue());
        let open = queues.open(Open { queue: number, reads: true, writes: true, nonblocking: false });
        queues.unlink(number);
        assert!(queues.get(open).is_ok() && queues.named(b"q").is_none());
        queues.keep_open(&BTreeSet::new());
        assert!(queues.is_empty() && queues.get(open).is_err());
    }
}
