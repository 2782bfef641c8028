//! The beginning and the end of threads. A new process is refused: there is one address space.

use super::futex;
use super::threads::NAME;
use super::{Guest, Linux, Outcome, Served, Stop, errno, int, word};
use crate::engine::Virt;
use crate::process::layout::USER_END;
use x86::state::State;

/// What pthread_create and Go's runtime ask for: all is shared.
const SHARED: u64 =
    (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
/// What may be asked for besides.
const KNOWN: u64 = SHARED
    | (libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID
        | libc::CLONE_CHILD_SETTID
        | libc::CLONE_DETACHED) as u64;
/// The sizes that `struct clone_args` has had.
const ARGUMENTS: u64 = 64;
const LARGEST_ARGUMENTS: u64 = 4096;
/// No list of robust futexes is followed further than this (ROBUST_LIST_LIMIT).
const LONGEST_LIST: usize = 2048;
/// The size of `struct robust_list_head`.
const LIST_HEAD: u64 = 24;

/// What clone and clone3 ask for.
struct Wanted {
    flags: u64,
    stack: Virt,
    parent_id: Virt,
    child_id: Virt,
    tls: Virt,
}

pub(super) fn clone(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Option<Served> {
    let [flags, stack, parent_id, child_id, tls, _] = *a;
    // The low byte is the signal at the child's end, of which a thread sends none.
    let flags = flags & 0xffff_ff00;
    is_thread(flags).then(|| start(linux, guest, &Wanted { flags, stack, parent_id, child_id, tls }))
}

pub(super) fn clone3(linux: &mut Linux, guest: &mut Guest<'_>, at: Virt, size: u64) -> Option<Served> {
    if !(ARGUMENTS..=LARGEST_ARGUMENTS).contains(&size) {
        return Some(errno(libc::EINVAL));
    }
    let [flags, _, child_id, parent_id, _, stack, stack_size, tls] = match guest.read_words(at) {
        Ok(arguments) => arguments,
        Err(stop) => return Some(Err(stop)),
    };
    let stack = stack.wrapping_add(stack_size);
    is_thread(flags).then(|| start(linux, guest, &Wanted { flags, stack, parent_id, child_id, tls }))
}

/// Whether a thread of the process is wanted, with nothing that is not known.
fn is_thread(flags: u64) -> bool {
    flags & SHARED == SHARED && flags & !KNOWN == 0
}

/// Starts a thread. It begins behind the call, where it finds zero; its creator goes on first.
fn start(linux: &mut Linux, guest: &mut Guest<'_>, wanted: &Wanted) -> Served {
    let has = |flag: i32| wanted.flags & u64::from(flag.unsigned_abs()) != 0;
    let mut regs = *guest.engine.regs();
    regs.gpr[0] = 0;
    if wanted.stack != 0 {
        regs.gpr[4] = wanted.stack;
    }
    if has(libc::CLONE_SETTLS) {
        if wanted.tls >= USER_END {
            return errno(libc::EPERM);
        }
        regs.fs_base = wanted.tls;
    }
    let state = State { regs, fpu: guest.engine.fpu()? };
    let Some(id) = linux.threads.start(state, linux.clock.shown()) else { return errno(libc::EAGAIN) };
    if has(libc::CLONE_CHILD_CLEARTID)
        && let Some(thread) = linux.threads.get_mut(id)
    {
        thread.clear_at_end = wanted.child_id;
    }
    // As in the kernel, a bad pointer here is not told.
    let bytes = id.to_le_bytes();
    for (flag, at) in
        [(libc::CLONE_PARENT_SETTID, wanted.parent_id), (libc::CLONE_CHILD_SETTID, wanted.child_id)]
    {
        if has(flag) {
            forgive(guest.write(at, &bytes))?;
        }
    }
    Ok(word(id.into()))
}

/// The end of the thread that runs, and of the process if it is the last.
pub(super) fn exit(linux: &mut Linux, guest: &mut Guest<'_>, status: i32) -> Served<Outcome> {
    let thread = linux.threads.current_mut();
    let (robust, clear) = (std::mem::take(&mut thread.robust), std::mem::take(&mut thread.clear_at_end));
    if !linux.threads.alone() {
        if robust != 0 {
            forgive(release(linux, guest, robust))?;
        }
        if clear != 0 && forgive(guest.write(clear, &[0; 4]))? {
            futex::wake(linux, clear, 1, u32::MAX);
        }
    }
    // The status of the last is the process's (`synchronize_group_exit` of kernel/exit.c, since Linux 6.0).
    Ok(if linux.threads.end() { Outcome::ThreadEnded } else { Outcome::Exit(status) })
}

/// Lets go of the robust futexes that the thread that ends still owns (`exit_robust_list` of kernel/futex).
fn release(linux: &mut Linux, guest: &mut Guest<'_>, head: Virt) -> Served<()> {
    let [first, offset, pending] = guest.read_words(head)?;
    let mut at = first;
    for _ in 0..LONGEST_LIST {
        // The lowest bit tells a futex with an owner's priority.
        let entry = at & !1;
        if entry == head {
            break;
        }
        let [next] = guest.read_words(entry)?;
        if entry != pending & !1 {
            futex::owner_died(linux, guest, entry.wrapping_add(offset))?;
        }
        at = next;
    }
    match pending & !1 {
        0 => Ok(()),
        entry => futex::owner_died(linux, guest, entry.wrapping_add(offset)),
    }
}

/// Whether it went well; a bad pointer of the program's is its own matter.
fn forgive(served: Served<()>) -> Served<bool> {
    match served {
        Ok(()) => Ok(true),
        Err(Stop::Errno(_)) => Ok(false),
        Err(stop) => Err(stop),
    }
}

pub(super) fn set_tid_address(linux: &mut Linux, at: Virt) -> Served {
    linux.threads.current_mut().clear_at_end = at;
    gettid(linux)
}

pub(super) fn gettid(linux: &Linux) -> Served {
    Ok(linux.threads.id().unsigned_abs().into())
}

pub(super) fn set_robust_list(linux: &mut Linux, head: Virt, size: u64) -> Served {
    if size != LIST_HEAD {
        return errno(libc::EINVAL);
    }
    linux.threads.current_mut().robust = head;
    Ok(0)
}

pub(super) fn get_robust_list(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    id: u64,
    head: Virt,
    size: Virt,
) -> Served {
    let id = if int(id) == 0 { linux.threads.id() } else { int(id) };
    let Some(thread) = linux.threads.get_mut(id) else { return errno(libc::ESRCH) };
    let at = thread.robust;
    guest.write_words(size, &[LIST_HEAD])?;
    guest.write_words(head, &[at])?;
    Ok(0)
}

pub(super) fn sched_yield(linux: &mut Linux) -> Served {
    linux.threads.yield_now();
    Ok(0)
}

pub(super) fn set_name(linux: &mut Linux, guest: &mut Guest<'_>, address: Virt) -> Served {
    let text = guest.space.read_string(guest.engine.ram(), address, NAME)?.unwrap_or_default();
    let mut name = [0; NAME];
    name[..text.len()].copy_from_slice(&text);
    linux.threads.current_mut().name = name;
    Ok(0)
}

pub(super) fn get_name(linux: &Linux, guest: &mut Guest<'_>, address: Virt) -> Served {
    guest.write(address, &linux.threads.current().name)?;
    Ok(0)
}
