//! Who and where the process is: ids, and the system's name. Fixed by the model
//! or given at launch, so that nothing of it needs the journal.

use super::arena::Id;
use super::capabilities::{SETGID, SETUID};
use super::descriptors::LIMIT;
use super::groups::{Group, limit};
use super::numa::Policy;
use super::prctl::MCE_KILL_DEFAULT;
use super::proc::start::Start;
use super::scheduling::Scheduling;
use super::seccomp::Sieve;
use super::signals::{Pending, TaskSignals};
use super::tasks::{Doing, NAME, Task};
use super::{Guest, Kernel, Served, errno, host, int};
use crate::gate::{Input, MemoryWrite};
use crate::memory::space::Access;
use crate::plain::plain;
use crate::program::{Capabilities, Launch};
use crate::ram::Virt;
use std::ffi::CString;

/// Who a process is: real, effective, saved and file system ids, and supplementary groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) uid: [u32; 4],
    pub(super) gid: [u32; 4],
    pub(super) groups: Vec<u32>,
    /// PR_SET_NO_NEW_PRIVS.
    pub(super) no_new_privileges: bool,
    pub(super) capabilities: Capabilities,
}
plain!(struct Credentials { uid, gid, groups, no_new_privileges, capabilities });

/// The first task and its process.
/// The process group of the first process: of those outside of its namespace the kernel says zero.
pub(super) fn process_group(launch: &Launch) -> i32 {
    if launch.parents.group == 0 { launch.pid } else { launch.parents.group }
}

pub(super) fn first(launch: &Launch, space: Id, files: Id, place: Id, handlers: Id) -> (Task, Group) {
    let mut limits = launch.limits.0;
    limits[limit::NOFILE] = limits[limit::NOFILE].map(|files| files.min(LIMIT as u64));
    let ids = launch.ids;
    let credentials = Credentials {
        uid: [ids.uid, ids.euid, ids.euid, ids.euid],
        gid: [ids.gid, ids.egid, ids.egid, ids.egid],
        groups: launch.groups.clone(),
        no_new_privileges: false,
        capabilities: launch.capabilities,
    };
    let group = Group {
        parent: 0,
        process_group: process_group(launch),
        session: launch.parents.session,
        terminal: launch.terminal.map(|_| super::terminal::OUTER),
        hung_up: 0,
        exit_signal: libc::SIGCHLD,
        pending: Pending::default(),
        ended: None,
        ending: None,
        stopped: None,
        news: None,
        credentials,
        limits,
        path: CString::new(launch.path.as_str()).unwrap_or_default(),
        program: None,
        arguments: launch.argv.clone(),
        start: Start::default(),
        started: 0,
        oom_score_adj: 0,
        reaps: false,
        dumpable: true,
        executed: true,
        barriers: 0,
        no_huge_pages: false,
        machine_check: MCE_KILL_DEFAULT,
        cpu: 0,
        children_cpu: 0,
    };
    let task = Task {
        group: launch.pid,
        space,
        files,
        place,
        handlers,
        doing: Doing::Runs,
        stopped: false,
        signals: TaskSignals::blocking(launch.signals.blocked),
        name: name_of(launch.path.as_bytes()),
        clear_at_end: 0,
        robust: 0,
        vfork_parent: None,
        parent_death_signal: 0,
        sieve: Sieve::default(),
        persona: 0,
        memory_policy: Policy::default(),
        no_time_stamps: false,
        cpu: 0,
        started: 0,
        scheduling: Scheduling::default(),
        state: None,
    };
    (task, group)
}

/// The name of a program's first task: the last part of its path.
pub(super) fn name_of(path: &[u8]) -> [u8; NAME] {
    let base = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut name = [0; NAME];
    let length = base.len().min(NAME - 1);
    name[..length].copy_from_slice(&base[..length]);
    name
}

/// A number as a result.
fn number(id: i32) -> u64 {
    u64::from(id.unsigned_abs())
}

pub(super) fn own_pid(kernel: &Kernel) -> Served {
    Ok(number(kernel.pid()))
}

pub(super) fn parent_pid(kernel: &Kernel) -> Served {
    Ok(number(kernel.parent_of(kernel.pid())))
}

/// The process that an argument names: zero is the one that runs.
fn named(kernel: &Kernel, pid: i32) -> Served<&Group> {
    let pid = if pid == 0 { kernel.pid() } else { pid };
    let group = kernel.tasks.get(pid).map_or(pid, |task| task.group);
    kernel.groups.get(group).map_or_else(|| errno(libc::ESRCH), Ok)
}

pub(super) fn getpgid(kernel: &Kernel, pid: i32) -> Served {
    Ok(number(named(kernel, pid)?.process_group))
}

pub(super) fn getsid(kernel: &Kernel, pid: i32) -> Served {
    Ok(number(named(kernel, pid)?.session))
}

pub(super) fn setpgid(kernel: &mut Kernel, pid: i32, process_group: i32) -> Served {
    let own = kernel.pid();
    let pid = if pid == 0 { own } else { pid };
    let process_group = if process_group == 0 { pid } else { process_group };
    if process_group < 0 {
        return errno(libc::EINVAL);
    }
    let session = kernel.group().session;
    let Some(group) = kernel.groups.get(pid).filter(|group| pid == own || group.parent == own) else {
        return errno(libc::ESRCH);
    };
    if pid != own && group.executed {
        return errno(libc::EACCES);
    }
    let leads = group.session == pid;
    let exists = process_group == pid
        || kernel.groups.iter().any(|(_, it)| it.process_group == process_group && it.session == session);
    if leads || group.session != session || !exists {
        return errno(libc::EPERM);
    }
    if let Some(group) = kernel.groups.get_mut(pid) {
        group.process_group = process_group;
    }
    Ok(0)
}

pub(super) fn setsid(kernel: &mut Kernel) -> Served {
    let own = kernel.pid();
    if !kernel.groups.in_process_group(own).is_empty() {
        return errno(libc::EPERM);
    }
    let group = kernel.group_mut();
    (group.process_group, group.session, group.terminal) = (own, own, None);
    Ok(number(own))
}

pub(super) fn getresuid(kernel: &Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [real, effective, saved, _] = kernel.group().credentials.uid;
    write_ids(guest, a, [real, effective, saved])
}

pub(super) fn getresgid(kernel: &Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [real, effective, saved, _] = kernel.group().credentials.gid;
    write_ids(guest, a, [real, effective, saved])
}

fn write_ids(guest: &mut Guest<'_>, addresses: &[u64; 6], ids: [u32; 3]) -> Served {
    for (&address, id) in addresses.iter().zip(ids) {
        guest.write(address, &id.to_le_bytes())?;
    }
    Ok(0)
}

/// The supplementary groups.
pub(super) fn getgroups(kernel: &Kernel, guest: &mut Guest<'_>, size: i32, address: Virt) -> Served {
    let groups = kernel.group().credentials.groups.clone();
    if size < 0 || size > 0 && (size.unsigned_abs() as usize) < groups.len() {
        return errno(libc::EINVAL);
    }
    if size > 0 {
        let bytes: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
        guest.write(address, &bytes)?;
    }
    Ok(groups.len() as u64)
}

/// setuid and its kin.
pub(super) fn set_ids(kernel: &mut Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    let before = kernel.group().credentials.clone();
    let result = change_ids(&mut kernel.group_mut().credentials, call, a)?;
    if let Err(stop) = kernel.check_rights(guest) {
        kernel.group_mut().credentials = before;
        return Err(stop);
    }
    Ok(result)
}

fn change_ids(credentials: &mut Credentials, call: i64, a: &[u64; 6]) -> Served {
    let [one, two, three, ..] = a.map(int);
    let groups =
        matches!(call, libc::SYS_setgid | libc::SYS_setregid | libc::SYS_setresgid | libc::SYS_setfsgid);
    let privileged = credentials.has(if groups { SETGID } else { SETUID });
    let users = credentials.uid;
    let ids = if groups { &mut credentials.gid } else { &mut credentials.uid };
    let before = *ids;
    let id = |wanted: i32| u32::from_le_bytes(wanted.to_le_bytes());
    let may = |wanted: i32, from: &[u32]| wanted == -1 || privileged || from.contains(&id(wanted));
    let or = |wanted: i32, old: u32| if wanted == -1 { old } else { id(wanted) };
    let [real, effective, saved, file] = before;
    match call {
        libc::SYS_setfsuid | libc::SYS_setfsgid => {
            if may(one, &before) {
                ids[3] = or(one, file);
            }
            if !groups {
                credentials.changed_for_files(file);
            }
            return Ok(u64::from(file));
        }
        libc::SYS_setuid | libc::SYS_setgid => {
            if !may(one, &[real, saved]) {
                return errno(libc::EPERM);
            }
            *ids = if privileged { [id(one); 4] } else { [real, id(one), saved, id(one)] };
        }
        libc::SYS_setreuid | libc::SYS_setregid => {
            if !may(one, &[real, effective]) || !may(two, &[real, effective, saved]) {
                return errno(libc::EPERM);
            }
            let (new_real, new) = (or(one, real), or(two, effective));
            let keeps = one == -1 && (two == -1 || new == real);
            *ids = [new_real, new, if keeps { saved } else { new }, new];
        }
        _ => {
            if ![one, two, three].into_iter().all(|wanted| may(wanted, &[real, effective, saved])) {
                return errno(libc::EPERM);
            }
            let new = or(two, effective);
            *ids = [or(one, real), new, or(three, saved), new];
        }
    }
    credentials.changed(users);
    Ok(0)
}

/// What uname says: the system's name is the model's, not the host's.
pub(super) const SYSTEM: [&str; 6] =
    ["Linux", "gretel", "6.1.0", "#1 gretel process guest", "x86_64", "(none)"];

pub(super) fn uname(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    const FIELD: usize = 65;
    let [system, node, release, version, machine, domain] = SYSTEM;
    let [release, machine] = kernel.release_and_machine(release, machine);
    let mut bytes = [0; 6 * FIELD];
    let texts = [system, node, &release, version, &machine, domain];
    for (slot, text) in bytes.chunks_exact_mut(FIELD).zip(texts) {
        slot[..text.len()].copy_from_slice(text.as_bytes());
    }
    guest.write(address, &bytes)?;
    Ok(0)
}

/// The bases of FS and GS, and whether CPUID faults, which it cannot be made to (asm/prctl.h).
pub(super) fn arch_prctl(guest: &mut Guest<'_>, option: i32, value: u64) -> Served {
    const SET_GS: i32 = 0x1001;
    const SET_FS: i32 = 0x1002;
    const GET_FS: i32 = 0x1003;
    const GET_GS: i32 = 0x1004;
    const GET_CPUID: i32 = 0x1011;
    const SET_CPUID: i32 = 0x1012;
    let mut regs = *guest.cpu.regs();
    match option {
        SET_GS | SET_FS if value >= crate::memory::layout::USER_END => return errno(libc::EPERM),
        SET_GS => regs.gs_base = value,
        SET_FS => regs.fs_base = value,
        GET_FS => guest.write_words(value, &[regs.fs_base])?,
        GET_GS => guest.write_words(value, &[regs.gs_base])?,
        GET_CPUID => return Ok(1),
        SET_CPUID => return errno(libc::ENODEV),
        _ => return errno(libc::EINVAL),
    }
    guest.cpu.set_regs(&regs)?;
    Ok(0)
}

pub(super) fn getrandom(guest: &mut Guest<'_>, address: Virt, length: u64, flags: u64) -> Served {
    const WHICH: i32 = (libc::GRND_RANDOM | libc::GRND_INSECURE).cast_signed();
    let flags = int(flags);
    if flags & !(WHICH | libc::GRND_NONBLOCK.cast_signed()) != 0 || flags & WHICH == WHICH {
        return errno(libc::EINVAL);
    }
    let usable = guest.accessible(address, length.min(1 << 20), Access::Write);
    if usable == 0 && length > 0 {
        return errno(libc::EFAULT);
    }
    guest.input(&mut || {
        let mut bytes = vec![0; usize::try_from(usable).expect("at most 1 MiB")];
        let result = host::random(&mut bytes);
        bytes.truncate(usize::try_from(result).unwrap_or(0));
        Input::Bytes { result, writes: vec![MemoryWrite { address, bytes }] }
    })
}
