//! The Linux personality: serves system calls and signals for the guest's processes.
//!
//! [`Kernel`] holds what Linux keeps: tasks ([`tasks`]), processes ([`groups`]), and what tasks share, by id ([`arena`]):
//! address spaces, descriptor tables, working directories, handlers. Memory, time, signals, identity and descriptor
//! numbers are its own structures, computed again at replay. Files, terminals and the like are the host's: every effect on
//! the host, and all that comes from it, passes through [`Guest::input`], so that a replay touches nothing outside.
//!
//! [`table`] leads from a call to the function that serves it; [`passthrough`] serves those that only translate their arguments, the other modules
//! the rest: [`files`], [`transfer`] (reading and writing), [`sendfile`], [`splice`], [`attributes`], [`inotify`], [`terminal`], [`memory`], [`time`],
//! [`identity`], [`persona`], [`users`], [`inherited`] (files that are open at the start), [`guarded`] (the recording's own files), [`busy`] (programs that are written or run),
//! [`signals`], [`sigio`] (those that tell of files), [`polling`], [`epoll`], [`fifo`], [`locks`], [`leases`], [`network`] (sockets), [`proc`] (what a program finds in /proc); [`sharing`] is
//! memory that processes share, [`ipc`] System V's and POSIX's message queues; [`clone`], [`exec`], [`exit`] and [`children`] are
//! the life of processes. [`futex`] and [`wait`] are
//! how tasks wait, [`oom`] says who is killed for memory. [`load`] makes an address space of a program. [`host`] is the only one with unsafe code.
//!
//! Example: `fork` counts or copies each id of its caller for a new task; the address space is copied on write
//! ([`crate::memory::AddressSpace::fork`]), and the new task queues behind the ready ones with zero in rax.

mod arena;
mod attempt;
mod attributes;
mod busy;
mod capabilities;
mod chance;
mod children;
mod clone;
mod descriptors;
mod epoll;
mod exec;
mod exit;
mod fifo;
mod files;
mod futex;
mod groups;
mod guarded;
mod guest;
mod host;
mod identity;
pub mod inherited;
mod inotify;
mod ipc;
mod leases;
mod limits;
pub(crate) mod load;
mod locks;
mod memory;
mod network;
mod oom;
mod opened;
mod outcome;
mod passthrough;
mod persona;
mod pidfd;
mod polling;
mod prctl;
mod proc;
mod processor;
mod scheduling;
mod seccomp;
mod sendfile;
mod sharing;
mod sigio;
mod signals;
mod sources;
mod splice;
mod stored;
mod table;
mod tasks;
mod terminal;
mod time;
mod timers;
mod transfer;
mod unserved;
mod usage;
mod users;
mod wait;

use crate::engine::Interrupter;
use crate::failure::ProcessError;
use crate::gate::{GateError, Input, Time};
use crate::program::{Launch, Streams};
pub(crate) use arena::{Arena, Id};
use descriptors::{Descriptors, Detached, Place};
use groups::{Group, Groups};
use signals::Handlers;
pub(crate) use tasks::Tasks;

pub use crate::syscalls::name as call_name;
pub(crate) use descriptors::OpenFile;
pub(crate) use exit::Last;
pub(crate) use guarded::Guarded;
pub(crate) use guest::{Guest, Spaces};
pub use load::vdso;
pub use oom::KilledForMemory;
pub use outcome::Outcome;
use outcome::result;
pub(crate) use outcome::{Served, Stop, errno, int, long, word};
pub(crate) use proc::start::Start;
pub(crate) use signals::{Delivery, Interruption, deliver, interrupt};
pub(crate) use tasks::Next;
pub use unserved::Unserved;
pub(crate) use wait::{Again, Wait, Waited};

/// Linux has no call of this number or above.
const NO_CALLS: u64 = 1024;

/// A clock that no program has seen yet.
pub(crate) fn time_of_guest() -> time::Clock {
    time::Clock::new()
}

/// What Linux keeps, as far as it is ours.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) tasks: Tasks,
    groups: Groups,
    tables: Arena<Descriptors>,
    places: Arena<Place>,
    handlers: Arena<Handlers>,
    timers: timers::Timers,
    /// Files that are mapped shared.
    shared: sharing::Shared,
    /// The locks of fcntl.
    locks: locks::Locks,
    /// Leases on files.
    leases: leases::Leases,
    /// Pseudo-terminals.
    terminals: terminal::Terminals,
    /// System V's, and message queues.
    ipc: ipc::Ipc,
    signal_files: sources::SignalFiles,
    /// Files that signals tell of.
    sigio: sigio::Sigio,
    /// Open files of /proc.
    proc_files: proc::Files,
    /// What sockets have that is not the host's.
    network: network::Network,
    /// Until when the time that passed was charged to tasks, by the monotonic clock.
    charged: u64,
    /// What the call that is being served has to know of its wait.
    again: Again,
    clock: time::Clock,
    interrupter: Interrupter,
    /// How many bytes of memory there are; zero if that does not matter.
    memory: u64,
    /// The recording's own files.
    guarded: Guarded,
    /// What gretel may do to files.
    recorder: users::Rights,
    /// The first process, and how it ended.
    first: i32,
    first_ended: Option<i32>,
    /// The first process's parent, as it sees it.
    outside_parent: i32,
    /// The number of the next shared object.
    next_object: u64,
    /// What was not served.
    unserved: Vec<Unserved>,
    /// Who was killed because memory was used up.
    killed: Vec<KilledForMemory>,
    /// The call that is being served, or was last.
    called: (u64, [u64; 6]),
    /// At replay nothing of that is said again.
    is_silent: bool,
}

impl Kernel {
    /// The kernel of a process that begins in `space`. Opens the working directory unless this is a replay.
    ///
    /// # Errors
    /// When that cannot be opened.
    pub(crate) fn new(
        launch: &Launch,
        streams: Streams,
        replaying: bool,
        interrupter: Interrupter,
        space: Id,
        clock: time::Clock,
    ) -> Result<Kernel, ProcessError> {
        let (mut tables, mut places, mut handlers) = (Arena::default(), Arena::default(), Arena::default());
        let (standard, others) = streams.apart();
        let files = tables.insert(Descriptors::new(standard, launch.terminal, replaying));
        let place = places.insert(Place::new(&launch.cwd, launch.umask, replaying)?);
        let handlers_id = handlers.insert(signals::ignoring(launch.signals.ignored));
        let (task, mut group) = identity::first(launch, space, files, place, handlers_id);
        group.program = if replaying { None } else { busy::program_at(&group.path) };
        let mut groups = Groups::default();
        groups.insert(launch.pid, group);
        let mut kernel = Kernel {
            tasks: Tasks::new(launch.pid, task, launch.seed.map(chance::Chance::new)),
            groups,
            tables,
            places,
            handlers,
            timers: timers::Timers::default(),
            shared: sharing::Shared::default(),
            locks: locks::Locks::default(),
            leases: leases::Leases::default(),
            terminals: terminal::Terminals::outside(launch),
            ipc: ipc::Ipc::default(),
            signal_files: sources::SignalFiles::default(),
            sigio: sigio::Sigio::default(),
            proc_files: proc::Files::default(),
            network: network::Network::default(),
            charged: 0,
            again: Again::default(),
            clock,
            interrupter,
            memory: launch.memory,
            guarded: Guarded::default(),
            recorder: users::Rights::of_recorder(launch),
            first: launch.pid,
            first_ended: None,
            outside_parent: launch.parents.parent,
            next_object: 1,
            unserved: Vec::new(),
            killed: Vec::new(),
            called: (0, [0; 6]),
            is_silent: replaying,
        };
        kernel.inherit(&launch.inherited, others);
        Ok(kernel)
    }

    /// Keeps the guest from these files from now on.
    pub(crate) fn guard(&mut self, files: Guarded) {
        self.guarded = files;
    }

    /// Takes what the first process's stack holds.
    pub(crate) fn begins_with(&mut self, start: Start) {
        self.group_mut().start = start;
    }

    /// A copy that holds nothing of the host, as at replay: no file stays open for it, and nothing that changes is shared with
    /// it.
    pub(crate) fn detached(&self) -> Kernel {
        let mut files = Detached::default();
        let tasks = self.tasks.detached(&mut files);
        let tables = self.tables.map(|table| table.detached(&mut files));
        let places = self.places.map(|place| place.detached(&mut files));
        let locks = self.locks.detached(&mut files);
        let leases = self.leases.detached(&mut files);
        let groups = self.groups.detached(&mut files);
        let terminals = self.terminals.detached(&mut files);
        let network = self.network.detached(&mut files);
        let shared = self.shared.detached(&mut files);
        let sigio = self.sigio.detached(&mut files);
        Kernel {
            tasks,
            groups,
            tables,
            places,
            locks,
            leases,
            terminals,
            network,
            shared,
            sigio,
            ..self.clone()
        }
    }

    /// The process of the task that runs.
    fn group(&self) -> &Group {
        self.groups.get(self.tasks.current().group).expect("a process stays while a task of it runs")
    }

    /// The same, to be changed.
    fn group_mut(&mut self) -> &mut Group {
        let id = self.tasks.current().group;
        self.groups.get_mut(id).expect("a process stays while a task of it runs")
    }

    /// The descriptors of the task that runs.
    fn files(&self) -> &Descriptors {
        self.tables.get(self.tasks.current().files)
    }

    /// The same, to be changed.
    fn files_mut(&mut self) -> &mut Descriptors {
        self.tables.get_mut(self.tasks.current().files)
    }

    /// The working directory and umask of the task that runs.
    fn place(&self) -> &Place {
        self.places.get(self.tasks.current().place)
    }

    /// The same, to be changed.
    fn place_mut(&mut self) -> &mut Place {
        self.places.get_mut(self.tasks.current().place)
    }

    /// The rights of a new file, without those that the umask takes away.
    fn masked(&self, mode: u64) -> u32 {
        u32::try_from(mode & 0o7777).expect("twelve bits") & !self.place().umask
    }

    /// The host's descriptor for a directory argument of an `*at` call. One that is not open is -1: the host ignores it for
    /// an absolute path and refuses it otherwise.
    fn host_directory(&self, number: i32) -> std::os::fd::RawFd {
        if number == libc::AT_FDCWD {
            return self.place().directory.host();
        }
        self.files().get(number).map_or(-1, |file| file.host())
    }

    /// The process id of the task that runs.
    pub(crate) fn pid(&self) -> i32 {
        self.tasks.current().group
    }

    /// The first process's id, and how it ended if it has: a status as wait tells it.
    pub(crate) fn first(&self) -> (i32, Option<i32>) {
        (self.first, self.first_ended)
    }

    /// The program and the arguments of the loaded process.
    pub(crate) fn command(&self) -> (&std::ffi::CStr, &[Vec<u8>]) {
        let group = self.group();
        (&group.path, &group.arguments)
    }

    /// The auxiliary vector that the loaded process was started with, as it lay on its stack.
    pub(crate) fn auxiliary(&self) -> &[u8] {
        &self.group().start.auxiliary
    }

    /// Whether there are tasks of other processes.
    pub(crate) fn has_other_processes(&self) -> bool {
        let own = self.tasks.current().group;
        self.tasks.living().any(|(_, task)| task.group != own)
    }

    /// Serves a system call that was begun at the gate, for the first time or `again`; then shows the new time.
    pub(crate) fn syscall(
        &mut self,
        guest: &mut Guest<'_>,
        number: u64,
        arguments: [u64; 6],
        again: Again,
    ) -> Result<Outcome, ProcessError> {
        self.again = again;
        self.called = (number, arguments);
        let other_user = self.become_caller(guest, number, &arguments)?;
        let served = match self.sifted(guest, number, &arguments) {
            Ok(None) => table::serve(self, guest, number, arguments),
            Ok(Some(outcome)) => Ok(outcome),
            Err(stop) => Err(stop),
        };
        if other_user {
            self.become_recorder();
        }
        self.again = Again::default();
        let outcome = match served {
            Ok(outcome) => {
                self.restore_mask();
                outcome
            }
            Err(Stop::Wait(wait)) => {
                let interruptible = wait.interrupted != wait::Interrupted::Never;
                self.tasks.park(wait);
                if interruptible && self.is_signalled() {
                    let id = self.tasks.id();
                    self.tasks.wake(id, wait::Why::Signal);
                }
                Outcome::Waits
            }
            Err(Stop::Errno(error)) => {
                self.restore_mask();
                Outcome::Return(word(-i64::from(error)))
            }
            Err(Stop::Fatal(error)) => return Err(error),
        };
        tracing::trace!(call = call_name(number), ?arguments, ?outcome);
        if !matches!(outcome, Outcome::Exit(_)) {
            self.tell_of_files_after_call(guest)?;
            self.show(guest)?;
        }
        Ok(outcome)
    }

    /// What the task's own filters make of a call that it begins.
    fn sifted(
        &mut self,
        guest: &mut Guest<'_>,
        number: u64,
        arguments: &[u64; 6],
    ) -> Served<Option<Outcome>> {
        if self.again.why.is_some() {
            return Ok(None);
        }
        seccomp::sift(self, guest, number, arguments)
    }

    /// The time stamp counter at a machine read that was begun at the gate.
    pub(crate) fn time_stamp(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        let stamp = self.clock.time_stamp(guest)?;
        self.take_arrived(guest);
        Ok(stamp)
    }

    /// The task that runs has nothing to do until another one has done something: it yields, and time passes.
    pub(crate) fn pause(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        if !self.tasks.alone() {
            self.show(guest)?;
            self.tasks.yield_now();
        }
        Ok(())
    }

    /// Time passes, between two instructions of the task that runs.
    pub(crate) fn preempted(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        self.tell_of_files(guest)?;
        let now = self.show(guest)?;
        self.expire(now);
        if !self.tasks.alone() {
            self.tasks.yield_now();
        }
        Ok(())
    }

    /// Ends what ends by itself at this time: waits, timers.
    pub(crate) fn expire(&mut self, now: Time) {
        self.tasks.expire(now);
        self.timers_expire(now);
    }

    /// From when on something happens by itself though the task that runs does nothing, by the monotonic clock: zero if
    /// another task could run now.
    pub(crate) fn due(&self) -> Option<u64> {
        let now = self.clock.shown();
        let told = self.sigio.watches().then_some(wait::LOOK_AT_FILES);
        if self.tasks.any_ready() {
            let left = self.timers_left(now).chain(told).min().map(|left| now.monotonic.saturating_add(left));
            return Some(left.unwrap_or(u64::MAX).min(self.tasks.slice_ends()));
        }
        let waits = self.tasks.living().filter_map(|(_, task)| Some(task.wait()?.deadline?.left(now)));
        let files = self.tasks.living().any(|(_, task)| task.wait().is_some_and(Wait::is_for_files));
        let look = files.then_some(wait::LOOK_AT_FILES);
        let left = waits.chain(self.timers_left(now)).chain(look).chain(told).min()?;
        Some(now.monotonic.saturating_add(left))
    }

    /// Whether a write may wait in the host: nothing else goes on meanwhile, and no timer ends the wait.
    fn may_block_in_host(&self) -> bool {
        let limited = self.group().limits[groups::limit::CPU][0] != libc::RLIM_INFINITY;
        self.tasks.alone() && !self.timers.any_armed() && !limited
    }

    /// Whether the task that runs asked for a fault at each read of the time stamp counter.
    pub(crate) fn has_no_time_stamps(&self) -> bool {
        self.tasks.current().no_time_stamps
    }

    /// Random bits for a machine read that was begun at the gate.
    pub(crate) fn random_word(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        let input = guest.gate.input(&mut || {
            let mut bytes = [0; 8];
            host::random(&mut bytes);
            Input::Result(i64::from_le_bytes(bytes))
        })?;
        match input {
            Input::Result(value) => Ok(word(value)),
            other => Err(GateError::OtherInput(other.kind()).into()),
        }
    }

    /// The time that the program was shown last.
    pub(crate) fn now(&self) -> Time {
        self.clock.shown()
    }

    /// The mask of a call that replaced it comes back, unless a handler's end does that. Whether there was one.
    pub(crate) fn restore_mask(&mut self) -> bool {
        self.tasks.current_mut().signals.restore_mask()
    }

    /// A number for a new shared object.
    fn new_object(&mut self) -> u64 {
        self.next_object += 1;
        self.next_object
    }
}

/// Repeats a call of the host that a signal interrupted, unless the signal is there to stop us, or for the program.
fn retry(interrupter: &Interrupter, mut call: impl FnMut() -> i64) -> i64 {
    loop {
        let result = call();
        if result != -i64::from(libc::EINTR)
            || is_raised(interrupter)
            || crate::interrupt::is_any_for_program()
        {
            return result;
        }
    }
}

/// Whether we were asked to stop; the engine will be told as well.
fn is_raised(interrupter: &Interrupter) -> bool {
    let raised = interrupter.take();
    if raised {
        interrupter.interrupt();
    }
    raised
}
