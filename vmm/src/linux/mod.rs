//! The Linux personality: serves system calls and signals for the guest's processes.
//!
//! [`Kernel`] holds what Linux keeps: tasks ([`tasks`]), processes ([`groups`]), and what tasks share, by id ([`arena`]):
//! address spaces, descriptor tables, working directories, handlers. Memory, time, signals, identity and descriptor numbers
//! are its own structures, computed again at replay. Files, terminals and the like are the host's: every effect on the
//! host, and all that comes from it, passes through [`Guest::input`], so that a replay touches nothing outside.
//!
//! Example: `fork` counts or copies each id of its caller for a new task; the address space is copied on write
//! ([`crate::memory::AddressSpace::fork`]), and the new task queues behind the ready ones with zero in rax.
//!
//! The map:
//!
//! | part | modules |
//! | --- | --- |
//! | what the guest comes for, on what the personality works, what comes of it | [`serving`], [`guest`], [`outcome`] |
//! | from a call to the function that serves it; what was not served | [`table`], [`unserved`] |
//! | calls that only translate their arguments | [`passthrough`] |
//! | files | [`descriptors`], [`files`], [`transfer`] (reading and writing), [`sendfile`], [`splice`], [`attributes`], [`inotify`], [`fifo`], [`locks`], [`leases`], [`terminal`], [`reflink`] (files that share blocks), [`inherited`] (files that are open at the start), [`guarded`] (the recording's own files), [`busy`] (programs that are written or run), [`attempt`] (waits that no poll of the host tells), [`opened`] (for who looks at a program), [`proc`] (what a program finds in /proc) |
//! | sockets | [`network`] |
//! | waiting for files | [`polling`], [`epoll`], [`sources`] (timers and signals as files), [`sigio`] (signals that tell of files) |
//! | memory | [`memory`], [`sharing`] (what processes share), [`oom`] (who is killed for memory), [`numa`] (memory policies) |
//! | between processes | [`signals`], [`pidfd`], [`ipc`] (System V's shared memory, semaphores and message queues, POSIX's message queues) |
//! | who and when | [`identity`], [`persona`], [`users`], [`capabilities`], [`prctl`], [`seccomp`], [`limits`], [`time`], [`timers`], [`usage`] |
//! | the one processor, and who has it | [`processor`], [`scheduling`], [`chance`] (random schedules) |
//! | the life of processes | [`load`] (an address space of a program), [`clone`], [`exec`], [`exit`], [`children`] |
//! | how tasks wait | [`futex`], [`wait`] |
//! | the kernel in a checkpoint on disk | [`stored`] |
//! | the host's system calls, the only module with unsafe code | [`host`] |

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
mod numa;
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
mod reflink;
mod scheduling;
mod seccomp;
mod sendfile;
mod serving;
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
use crate::gate::Time;
use crate::program::{Launch, Streams};
use crate::ram::Memory;
pub(crate) use arena::{Arena, Id};
use descriptors::{Descriptors, Detached, Place};
use groups::{Group, Groups, limit};
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
use serving::{is_raised, retry};
pub(crate) use signals::{Delivery, Interruption, deliver, interrupt};
pub(crate) use tasks::Next;
pub use unserved::Unserved;
pub(crate) use wait::{Again, Waited};

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
    /// What files held that were mapped or executed.
    taken: memory::Taken,
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
        let mut descriptors = Descriptors::new(standard, launch.terminal, replaying);
        descriptors.set_limit(launch.limits.0[limit::NOFILE][0]);
        let files = tables.insert(descriptors);
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
            taken: memory::Taken::default(),
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

    /// The program and the arguments of the loaded process; none where the last process has ended and its parent, which ended
    /// before, does not keep it.
    pub(crate) fn command(&self) -> (&std::ffi::CStr, &[Vec<u8>]) {
        self.command_of(self.tasks.current().group).unwrap_or((c"", &[]))
    }

    /// The same of any process.
    pub(crate) fn command_of(&self, pid: i32) -> Option<(&std::ffi::CStr, &[Vec<u8>])> {
        self.groups.get(pid).map(|group| (&*group.path, &*group.arguments))
    }

    /// The auxiliary vector that a process was started with, as it lay on its stack.
    pub(crate) fn auxiliary_of(&self, pid: i32) -> Option<&[u8]> {
        self.groups.get(pid).map(|group| &*group.start.auxiliary)
    }

    /// Whether there are tasks of other processes.
    pub(crate) fn has_other_processes(&self) -> bool {
        let own = self.tasks.current().group;
        self.tasks.living().any(|(_, task)| task.group != own)
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

    /// The time that the program was shown last.
    pub(crate) fn now(&self) -> Time {
        self.clock.shown()
    }

    /// From now on the vDSO makes the real call at this tick.
    pub(crate) fn clock_is_due_at(&self, memory: &mut Memory, tick: u64) -> Result<(), ProcessError> {
        self.clock.set_due(memory, tick)
    }

    /// How many ticks the program has counted in the vDSO since the last exit.
    pub(crate) fn ticks(&self, memory: &mut Memory) -> Result<u64, ProcessError> {
        self.clock.ticks(memory)
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
