//! What processes share by keys and names: System V's shared memory ([`shm`]), semaphores ([`sem`]) and message queues ([`msg`]),
//! and POSIX's message queues ([`queue`], whose calls are [`mq`]). All of it is the guest's own: nothing of the host's is used, and
//! a replay computes it again.
//!
//! [`Registry`] gives numbers to what has a key, [`Permission`] says who may do what. A task that waits here waits for what
//! [`Awaits`] says.

pub(super) mod mq;
pub(super) mod msg;
mod permission;
mod queue;
mod registry;
pub(super) mod sem;
pub(super) mod shm;

use super::descriptors::OpenFile;
use super::wait::{On, Why};
use super::{Kernel, int};
use crate::memory::object::ObjectId;
use crate::plain::plain;
use crate::ram::Memory;
use permission::{Permission, Who};
use registry::{Entry, Registry};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Commands of shmctl, semctl and msgctl (linux/ipc.h).
const IPC_RMID: i32 = 0;
const IPC_SET: i32 = 1;
const IPC_STAT: i32 = 2;
const IPC_INFO: i32 = 3;
/// Flags of the *get calls, and of those that wait.
const IPC_CREAT: i32 = 0o1000;
const IPC_EXCL: i32 = 0o2000;
const IPC_NOWAIT: i32 = 0o4000;
/// Reading and writing, as rights of all.
const READ: i32 = 0o444;
const WRITE: i32 = 0o222;

/// All of it.
#[derive(Clone, Default)]
pub(super) struct Ipc {
    segments: Registry<shm::Segment>,
    sets: Registry<sem::Set>,
    /// What is taken back when a process ends.
    undo: sem::Undo,
    messages: Registry<msg::Queue>,
    queues: queue::Queues,
}
plain!(struct Ipc { segments, sets, undo, messages, queues });

/// What a task waits for.
#[derive(Clone, Debug)]
pub(super) enum Awaits {
    /// That its operations on semaphores can be done; who changes the semaphores does them.
    Semaphores(Arc<sem::Operations>),
    /// A change of the System V queue of this number.
    Messages(i32),
    /// A message in a POSIX queue.
    Mail(u64),
    /// Room in a POSIX queue.
    Room(u64),
}
plain!(enum Awaits { 0 = Semaphores(a), 1 = Messages(a), 2 = Mail(a), 3 = Room(a) });

impl Ipc {
    /// Whether there is shared memory of System V.
    pub(super) fn has_segments(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Forgets segments that were removed and that nobody maps any more.
    pub(super) fn sweep_segments(&mut self, memory: &mut Memory, mapped: &BTreeSet<ObjectId>) {
        for object in self.segments.take_if(|segment| segment.is_gone(mapped)) {
            memory.forget_object(object.id());
        }
    }
}

impl Kernel {
    /// The process that runs, as one who asks.
    fn who(&self) -> Who<'_> {
        Who { credentials: &self.group().credentials }
    }

    /// Seconds since the epoch.
    fn seconds(&self) -> u64 {
        self.now().real / super::time::NANOSECONDS
    }

    /// Wakes the tasks that wait for something of the kind.
    fn wake_awaiting(&mut self, wanted: impl Fn(&Awaits) -> bool) {
        let waiting = self.tasks.waiting(|wait| matches!(&wait.on, On::Ipc(awaits) if wanted(awaits)));
        waiting.into_iter().for_each(|id| self.tasks.wake(id, Why::Ready));
    }

    /// Whether any task waits for something of the kind.
    fn is_awaited(&self, wanted: impl Fn(&Awaits) -> bool) -> bool {
        !self.tasks.waiting(|wait| matches!(&wait.on, On::Ipc(awaits) if wanted(awaits))).is_empty()
    }

    /// A process ends: its semaphores' operations are taken back, its message queues closed.
    pub(super) fn ipc_end(&mut self, pid: i32) {
        sem::take_back(self, pid);
        self.ipc.queues.forget_process(pid);
        self.sweep_queues();
    }

    /// A descriptor was closed.
    pub(super) fn closed(&mut self, file: &OpenFile) {
        if let Some(open) = file.queue() {
            let pid = self.pid();
            self.ipc.queues.stop_telling(open, pid);
            self.sweep_queues();
        }
    }

    /// Forgets open queues that no table has any more.
    pub(super) fn sweep_queues(&mut self) {
        if self.ipc.queues.is_empty() {
            return;
        }
        let tables = self.tables.iter().flat_map(|(_, table)| table.iter());
        let open: BTreeSet<u64> = tables.filter_map(|(_, file)| file.queue()).collect();
        self.ipc.queues.keep_open(&open);
    }
}

/// A structure of the guest's, as the calls that tell of something fill it: words by their offsets.
struct Record {
    bytes: Vec<u8>,
}

impl Record {
    fn new(size: usize) -> Record {
        Record { bytes: vec![0; size] }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A 32-bit word.
    fn word(mut self, at: usize, value: i32) -> Record {
        self.put(at, &value.to_le_bytes());
        self
    }

    /// A 64-bit word.
    fn long(mut self, at: usize, value: u64) -> Record {
        self.put(at, &value.to_le_bytes());
        self
    }
}

/// A number as a result.
fn number(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

super::table::calls! {
    /// The calls of System V whose arguments are numbers and addresses alone.
    fn serve(kernel, guest, call, a) {
        libc::SYS_shmget => shm::get(kernel, guest, int(a[0]), a[1], int(a[2])),
        libc::SYS_shmat => shm::attach(kernel, guest, int(a[0]), a[1], int(a[2])),
        libc::SYS_shmdt => shm::detach(kernel, guest, a[0]),
        libc::SYS_shmctl => shm::control(kernel, guest, int(a[0]), int(a[1]), a[2]),
        libc::SYS_semget => sem::get(kernel, int(a[0]), int(a[1]), int(a[2])),
        libc::SYS_semop => sem::operate(kernel, guest, int(a[0]), (a[1], a[2]), 0),
        libc::SYS_semtimedop => sem::operate(kernel, guest, int(a[0]), (a[1], a[2]), a[3]),
        libc::SYS_semctl => sem::control(kernel, guest, int(a[0]), int(a[1]), int(a[2]), a[3]),
        libc::SYS_msgget => msg::get(kernel, int(a[0]), int(a[1])),
        libc::SYS_msgsnd => msg::send(kernel, guest, int(a[0]), (a[1], a[2]), int(a[3])),
        libc::SYS_msgrcv => {
            msg::receive(kernel, guest, int(a[0]), (a[1], a[2]), super::long(a[3]), int(a[4]))
        },
        libc::SYS_msgctl => msg::control(kernel, guest, int(a[0]), int(a[1]), a[2]),
        libc::SYS_mq_open => mq::open(kernel, guest, a),
        libc::SYS_mq_unlink => mq::unlink(kernel, guest, a[0]),
        libc::SYS_mq_timedsend => mq::send(kernel, guest, a),
        libc::SYS_mq_timedreceive => mq::receive(kernel, guest, a),
        libc::SYS_mq_notify => mq::notify(kernel, guest, int(a[0]), a[1]),
        libc::SYS_mq_getsetattr => mq::attributes(kernel, guest, int(a[0]), a[1], a[2]),
    }
}
