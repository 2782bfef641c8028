//! New tasks: clone, clone3, fork and vfork. Each flag says whether the new task shares something or has a copy.

use super::arena::Id;
use super::exit::forgive;
use super::groups::Group;
use super::signals::Pending;
use super::tasks::{Doing, NAME, Task};
use super::wait::{Interrupted, On, Wait, wait};
use super::{Guest, Kernel, Served, errno, int, word};
use crate::memory::layout::USER_END;
use crate::ram::Virt;
use x86::state::State;

/// What may be asked for. Namespaces are not served, and INTO_CGROUP neither.
const KNOWN: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_PIDFD
    | libc::CLONE_VFORK
    | libc::CLONE_PARENT
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID
    | libc::CLONE_DETACHED
    | libc::CLONE_UNTRACED
    | libc::CLONE_CHILD_SETTID
    | libc::CLONE_IO)
    .cast_unsigned() as u64;
/// clone3's flag for handlers that begin with their defaults.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// The first size of `struct clone_args`, and the one that is known here.
const FIRST_ARGUMENTS: u64 = 64;
const ARGUMENTS: usize = 88;
/// The size of `struct robust_list_head`.
const LIST_HEAD: u64 = 24;

/// What clone and clone3 ask for.
#[derive(Clone, Copy, Default)]
struct Wanted {
    flags: u64,
    /// The signal at the child's end.
    signal: i32,
    stack: Virt,
    parent_id: Virt,
    child_id: Virt,
    tls: Virt,
    pidfd: Virt,
}

impl Wanted {
    fn has(&self, flag: i32) -> bool {
        self.flags & u64::from(flag.unsigned_abs()) != 0
    }
}

pub(super) fn clone(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [flags, stack, parent_id, child_id, tls, _] = *a;
    let signal = int(flags & 0xff);
    let asked = |flag: i32| flags & u64::from(flag.unsigned_abs()) != 0;
    if asked(libc::CLONE_PIDFD) && (asked(libc::CLONE_PARENT_SETTID) || asked(libc::CLONE_DETACHED)) {
        return errno(libc::EINVAL);
    }
    // For clone, the pidfd goes where the parent's copy of the id would.
    let wanted =
        Wanted { flags: flags & 0xffff_ff00, signal, stack, parent_id, child_id, tls, pidfd: parent_id };
    start(kernel, guest, &wanted)
}

pub(super) fn clone3(kernel: &mut Kernel, guest: &mut Guest<'_>, at: Virt, size: u64) -> Served {
    if size < FIRST_ARGUMENTS {
        return errno(libc::EINVAL);
    }
    let mut words = [0; ARGUMENTS / 8];
    for (word, bytes) in words.iter_mut().zip(guest.grown(at, size, ARGUMENTS)?.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [flags, pidfd, child_id, parent_id, signal, stack, stack_size, tls, ids, count, _] = words;
    let asked = |flag: i32| flags & u64::from(flag.unsigned_abs()) != 0;
    let no_end_of_its_own = asked(libc::CLONE_THREAD) || asked(libc::CLONE_PARENT);
    if signal > 64
        || signal != 0 && no_end_of_its_own
        || (stack == 0) != (stack_size == 0)
        || (ids == 0) != (count == 0)
        || asked(libc::CLONE_DETACHED)
    {
        return errno(libc::EINVAL);
    }
    if count != 0 {
        return kernel.refuse("clone3 with numbers for the new task (set_tid)", libc::EPERM);
    }
    let stack = stack.wrapping_add(stack_size);
    start(kernel, guest, &Wanted { flags, signal: int(signal), stack, parent_id, child_id, tls, pidfd })
}

pub(super) fn fork(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served {
    start(kernel, guest, &Wanted { signal: libc::SIGCHLD, ..Wanted::default() })
}

pub(super) fn vfork(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served {
    let flags = (libc::CLONE_VFORK | libc::CLONE_VM) as u64;
    start(kernel, guest, &Wanted { flags, signal: libc::SIGCHLD, ..Wanted::default() })
}

/// unshare: the task that runs gets copies of what it shared. Namespaces are those of a kernel that has none for its users.
pub(super) fn unshare(kernel: &mut Kernel, flags: u64) -> Served {
    const OWN: i32 = libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SYSVSEM;
    const OF_THREADS: i32 = libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;
    const NAMESPACES: i32 = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    let (wanted, task) = (int(flags), kernel.tasks.current());
    let (place, group) = (task.place, task.group);
    if flags >> 32 != 0 || wanted & !(OWN | OF_THREADS | NAMESPACES | libc::CLONE_NEWUSER) != 0 {
        return errno(libc::EINVAL);
    }
    if wanted & OF_THREADS != 0 && kernel.tasks.of_group(group).count() > 1 {
        return errno(libc::EINVAL);
    }
    if wanted & libc::CLONE_NEWUSER != 0 {
        return kernel.refuse("unshare of a user namespace", libc::EINVAL);
    }
    if wanted & NAMESPACES != 0 {
        return kernel.refuse("unshare of a namespace", libc::EPERM);
    }
    if wanted & libc::CLONE_FILES != 0 {
        own_files(kernel);
    }
    if wanted & libc::CLONE_FS != 0 {
        let own = kernel.places.insert(kernel.places.get(place).clone());
        kernel.places.release(place);
        kernel.tasks.current_mut().place = own;
    }
    Ok(0)
}

/// Gives the task that runs a descriptor table of its own, with what the one has that it shares.
pub(super) fn own_files(kernel: &mut Kernel) {
    let files = kernel.tasks.current().files;
    let own = kernel.tables.insert(kernel.tables.get(files).clone());
    kernel.tables.release(files);
    kernel.tasks.current_mut().files = own;
}

/// setns: there is one namespace of each kind, and who may enter one is told that it may not.
pub(super) fn setns(kernel: &mut Kernel, file: i32) -> Served {
    kernel.files().get(file)?;
    kernel.refuse("setns", libc::EPERM)
}

/// Whether the flags fit together, as the kernel wants it (`copy_process` of kernel/fork.c).
fn check(wanted: &Wanted) -> Served<()> {
    let has = |flag| wanted.has(flag);
    if has(libc::CLONE_FS) && (has(libc::CLONE_NEWNS) || has(libc::CLONE_NEWUSER)) {
        return errno(libc::EINVAL);
    }
    let unknown = wanted.flags & !(KNOWN | CLEAR_SIGHAND);
    if unknown != 0 {
        tracing::warn!("clone with flags {unknown:#x} is not supported: EPERM");
        return errno(libc::EPERM);
    }
    let wrong = has(libc::CLONE_THREAD) && !has(libc::CLONE_SIGHAND)
        || has(libc::CLONE_SIGHAND) && !has(libc::CLONE_VM)
        || wanted.flags & CLEAR_SIGHAND != 0 && has(libc::CLONE_SIGHAND)
        || has(libc::CLONE_PIDFD) && has(libc::CLONE_THREAD)
        || !(0..=64).contains(&wanted.signal);
    if wrong { errno(libc::EINVAL) } else { Ok(()) }
}

/// Starts a task. It begins behind the call, where it finds zero; its creator goes on first, but for vfork.
fn start(kernel: &mut Kernel, guest: &mut Guest<'_>, wanted: &Wanted) -> Served {
    // A vfork is served again when its child lets go of the address space.
    if kernel.again.why.is_some() {
        return Ok(kernel.again.done as u64);
    }
    check(wanted)?;
    if wanted.has(libc::CLONE_PIDFD) {
        super::passthrough::check(guest, wanted.pidfd, 4)?;
    }
    if !kernel.tasks.has_room() || kernel.user_is_full() {
        return errno(libc::EAGAIN);
    }
    let mut regs = *guest.cpu.regs();
    regs.gpr[0] = 0;
    if wanted.stack != 0 {
        regs.gpr[4] = wanted.stack;
    }
    if wanted.has(libc::CLONE_SETTLS) {
        if wanted.tls >= USER_END {
            return errno(libc::EPERM);
        }
        regs.fs_base = wanted.tls;
    }
    let state = State { regs, fpu: guest.cpu.fpu()? };
    let space =
        if wanted.has(libc::CLONE_VM) { guest.spaces.share(*guest.space) } else { guest.fork_space()? };
    let groups = &kernel.groups;
    let id = kernel.tasks.next_id(|id| groups.uses(id));
    let (parent, now) = (kernel.tasks.id(), kernel.clock.shown());
    let mut task = kernel.new_task(id, wanted, space);
    task.state = Some(Box::new(state));
    if wanted.has(libc::CLONE_CHILD_CLEARTID) {
        task.clear_at_end = wanted.child_id;
    }
    if wanted.has(libc::CLONE_VFORK) {
        task.vfork_parent = Some(parent);
    }
    kernel.tasks.start(id, task, now);
    tell_ids(kernel, guest, wanted, id, space)?;
    if wanted.has(libc::CLONE_VFORK) {
        let done = usize::try_from(id).expect("an id is positive");
        // Not for a change of a child: others of its children may end before this one lets go.
        return wait(Wait { done, ..Wait::new(On::Nothing, None, Interrupted::Never) });
    }
    Ok(word(id.into()))
}

/// Writes the new id where the flags say. As in the kernel, a bad pointer here is not told.
fn tell_ids(kernel: &mut Kernel, guest: &mut Guest<'_>, wanted: &Wanted, id: i32, space: Id) -> Served<()> {
    let bytes = id.to_le_bytes();
    if wanted.has(libc::CLONE_PARENT_SETTID) && !wanted.has(libc::CLONE_PIDFD) {
        forgive(guest.write(wanted.parent_id, &bytes))?;
    }
    if wanted.has(libc::CLONE_PIDFD) {
        let number = kernel.open_pidfd(guest, id, 0)?;
        forgive(guest.write(wanted.pidfd, &int(number).to_le_bytes()))?;
    }
    if wanted.has(libc::CLONE_CHILD_SETTID) {
        forgive(guest.write_to_space(space, wanted.child_id, &bytes))?;
    }
    Ok(())
}

impl Kernel {
    /// The task that the flags ask for, made from the one that runs; a new process with it, unless it is a thread.
    fn new_task(&mut self, id: i32, wanted: &Wanted, space: Id) -> Task {
        let creator = self.tasks.current();
        let (files, place, handlers) = (creator.files, creator.place, creator.handlers);
        let group = if wanted.has(libc::CLONE_THREAD) { creator.group } else { id };
        let keeps_stack = !wanted.has(libc::CLONE_VM) || wanted.has(libc::CLONE_VFORK);
        let (name, own, scheduling) = (creator.name, creator.group, creator.scheduling.inherited());
        let (persona, memory_policy, no_time_stamps) =
            (creator.persona, creator.memory_policy, creator.no_time_stamps);
        let (signals, sieve) = (creator.signals.inherited(keeps_stack), creator.sieve.clone());
        let files = match wanted.has(libc::CLONE_FILES) {
            true => self.tables.share(files),
            false => self.tables.insert(self.tables.get(files).clone()),
        };
        let place = match wanted.has(libc::CLONE_FS) {
            true => self.places.share(place),
            false => self.places.insert(self.places.get(place).clone()),
        };
        let handlers = match wanted.has(libc::CLONE_SIGHAND) {
            true => self.handlers.share(handlers),
            false => {
                let mut copy = self.handlers.get(handlers).clone();
                copy.retain(|_, action| wanted.flags & CLEAR_SIGHAND == 0 || action.ignores());
                self.handlers.insert(copy)
            }
        };
        if group == id {
            self.new_group(id, own, wanted);
        }
        Task {
            group,
            space,
            files,
            place,
            handlers,
            doing: Doing::Runs,
            stopped: false,
            signals,
            name,
            clear_at_end: 0,
            robust: 0,
            vfork_parent: None,
            parent_death_signal: 0,
            persona,
            memory_policy,
            no_time_stamps,
            cpu: 0,
            started: self.clock.shown().monotonic,
            scheduling,
            sieve,
            state: None,
        }
    }

    /// A process that is made from another one.
    fn new_group(&mut self, id: i32, from: i32, wanted: &Wanted) {
        let Some(from_group) = self.groups.get(from) else { return };
        let parent = if wanted.has(libc::CLONE_PARENT) { from_group.parent } else { from };
        let group = Group {
            parent,
            exit_signal: wanted.signal,
            hung_up: 0,
            pending: Pending::default(),
            ended: None,
            ending: None,
            stopped: None,
            news: None,
            reaps: false,
            executed: false,
            cpu: 0,
            children_cpu: 0,
            started: self.clock.shown().monotonic,
            ..from_group.clone()
        };
        self.groups.insert(id, group);
    }
}

pub(super) fn set_tid_address(kernel: &mut Kernel, at: Virt) -> Served {
    kernel.tasks.current_mut().clear_at_end = at;
    gettid(kernel)
}

pub(super) fn gettid(kernel: &Kernel) -> Served {
    Ok(kernel.tasks.id().unsigned_abs().into())
}

pub(super) fn set_robust_list(kernel: &mut Kernel, head: Virt, size: u64) -> Served {
    if size != LIST_HEAD {
        return errno(libc::EINVAL);
    }
    kernel.tasks.current_mut().robust = head;
    Ok(0)
}

pub(super) fn get_robust_list(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    id: u64,
    head: Virt,
    size: Virt,
) -> Served {
    let id = if int(id) == 0 { kernel.tasks.id() } else { int(id) };
    let Some(task) = kernel.tasks.get(id) else { return errno(libc::ESRCH) };
    let at = task.robust;
    guest.write_words(size, &[LIST_HEAD])?;
    guest.write_words(head, &[at])?;
    Ok(0)
}

pub(super) fn sched_yield(kernel: &mut Kernel) -> Served {
    kernel.tasks.yield_now();
    Ok(0)
}

pub(super) fn set_name(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    let mut name = [0; NAME];
    // A longer one is cut.
    for (distance, slot) in (0..).zip(&mut name[..NAME - 1]) {
        let [byte] = guest.read_array(address.wrapping_add(distance))?;
        if byte == 0 {
            break;
        }
        *slot = byte;
    }
    kernel.tasks.current_mut().name = name;
    Ok(0)
}

pub(super) fn get_name(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    guest.write(address, &kernel.tasks.current().name)?;
    Ok(0)
}
