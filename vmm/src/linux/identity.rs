//! Who and where the process is: ids, the system's name, limits, and the single processor. Fixed by the model
//! or given at launch, so that nothing of it needs the journal.

use super::threads::NAME;
use super::{Guest, Linux, PARENT_PID, PID, Served, clone, errno, host, int};
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite};
use crate::process::layout::STACK_LIMIT;
use crate::process::space::Access;
use crate::process::{Ids, Launch};
use std::ffi::CString;

const UNLIMITED: u64 = libc::RLIM_INFINITY;
/// How many kinds of limits there are.
const LIMITS: usize = 16;

/// What does not change by itself.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) ids: Ids,
    /// The program's path.
    pub(super) path: CString,
    /// Soft and hard limits.
    limits: [[u64; 2]; LIMITS],
}

impl Identity {
    pub(super) fn new(launch: &Launch) -> Identity {
        let mut limits = [[UNLIMITED; 2]; LIMITS];
        limits[3] = [STACK_LIMIT, UNLIMITED]; // RLIMIT_STACK
        limits[4] = [0, UNLIMITED]; // RLIMIT_CORE
        limits[7] = [super::descriptors::LIMIT as u64; 2]; // RLIMIT_NOFILE
        Identity { ids: launch.ids, path: CString::new(launch.path.as_str()).unwrap_or_default(), limits }
    }
}

/// The name of a program's first thread.
pub(super) fn name_of(path: &str) -> [u8; NAME] {
    let base = path.rsplit('/').next().unwrap_or_default().as_bytes();
    let mut name = [0; NAME];
    let length = base.len().min(NAME - 1);
    name[..length].copy_from_slice(&base[..length]);
    name
}

pub(super) fn own_pid() -> Served {
    Ok(PID.unsigned_abs().into())
}

pub(super) fn parent_pid() -> Served {
    Ok(PARENT_PID.unsigned_abs().into())
}

/// The process group or session of a process: there is only this one.
pub(super) fn group_of(pid: i32) -> Served {
    if pid == 0 || pid == PID { own_pid() } else { errno(libc::ESRCH) }
}

pub(super) fn getresuid(linux: &Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let ids = linux.identity.ids;
    write_ids(guest, a, [ids.uid, ids.euid, ids.euid])
}

pub(super) fn getresgid(linux: &Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let ids = linux.identity.ids;
    write_ids(guest, a, [ids.gid, ids.egid, ids.egid])
}

fn write_ids(guest: &mut Guest<'_>, addresses: &[u64; 6], ids: [u32; 3]) -> Served {
    for (&address, id) in addresses.iter().zip(ids) {
        guest.write(address, &id.to_le_bytes())?;
    }
    Ok(0)
}

/// Setting an id to what it is succeeds (-1: leave it); the guest cannot become another.
pub(super) fn set_id(linux: &Linux, call: i64, wanted: &[u64]) -> Served {
    let ids = linux.identity.ids;
    let group = matches!(call, libc::SYS_setgid | libc::SYS_setregid | libc::SYS_setresgid);
    let own = if group { [ids.gid, ids.egid] } else { [ids.uid, ids.euid] };
    let allowed = |id: &u64| int(*id) == -1 || own.iter().any(|own| u64::from(*own) == *id & 0xffff_ffff);
    if wanted.iter().all(allowed) { Ok(0) } else { errno(libc::EPERM) }
}

/// The system's name is the model's, not the host's.
pub(super) fn uname(guest: &mut Guest<'_>, address: Virt) -> Served {
    const FIELD: usize = 65;
    let mut bytes = [0; 6 * FIELD];
    let fields = ["Linux", "gretel", "6.1.0", "#1 gretel process guest", "x86_64", "(none)"];
    for (slot, text) in bytes.chunks_exact_mut(FIELD).zip(fields) {
        slot[..text.len()].copy_from_slice(text.as_bytes());
    }
    guest.write(address, &bytes)?;
    Ok(0)
}

pub(super) fn prlimit(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [pid, resource, new, old, ..] = *a;
    group_of(int(pid))?;
    let resource = resource & 0xffff_ffff;
    let new = if new == 0 { None } else { Some(guest.read_words::<2>(new)?) };
    let current = limit(linux, resource)?;
    if old != 0 {
        let words = *current;
        guest.write_words(old, &words)?;
    }
    if let Some(new) = new {
        set_limit(limit(linux, resource)?, new)?;
    }
    Ok(0)
}

pub(super) fn getrlimit(linux: &mut Linux, guest: &mut Guest<'_>, resource: u64, address: Virt) -> Served {
    let words = *limit(linux, resource)?;
    guest.write_words(address, &words)?;
    Ok(0)
}

pub(super) fn setrlimit(linux: &mut Linux, guest: &mut Guest<'_>, resource: u64, address: Virt) -> Served {
    let new = guest.read_words(address)?;
    set_limit(limit(linux, resource)?, new)
}

fn limit(linux: &mut Linux, resource: u64) -> Served<&mut [u64; 2]> {
    let slot = usize::try_from(resource).ok().and_then(|resource| linux.identity.limits.get_mut(resource));
    slot.map_or_else(|| errno(libc::EINVAL), Ok)
}

/// Remembers a limit; none of them is enforced beyond its default.
fn set_limit(limit: &mut [u64; 2], new: [u64; 2]) -> Served {
    if new[0] > new[1] {
        return errno(libc::EINVAL);
    }
    if new[1] > limit[1] {
        return errno(libc::EPERM);
    }
    *limit = new;
    Ok(0)
}

pub(super) fn prctl(linux: &mut Linux, guest: &mut Guest<'_>, option: i32, address: u64) -> Served {
    match option {
        libc::PR_SET_NAME => clone::set_name(linux, guest, address),
        libc::PR_GET_NAME => clone::get_name(linux, guest, address),
        libc::PR_GET_DUMPABLE => Ok(1),
        _ => errno(libc::EINVAL),
    }
}

/// The bases of FS and GS (asm/prctl.h).
pub(super) fn arch_prctl(guest: &mut Guest<'_>, option: i32, value: u64) -> Served {
    const SET_GS: i32 = 0x1001;
    const SET_FS: i32 = 0x1002;
    const GET_FS: i32 = 0x1003;
    const GET_GS: i32 = 0x1004;
    let mut regs = *guest.engine.regs();
    match option {
        SET_GS | SET_FS if value >= crate::process::layout::USER_END => return errno(libc::EPERM),
        SET_GS => regs.gs_base = value,
        SET_FS => regs.fs_base = value,
        GET_FS => guest.write_words(value, &[regs.fs_base])?,
        GET_GS => guest.write_words(value, &[regs.gs_base])?,
        _ => return errno(libc::EINVAL),
    }
    guest.engine.set_regs(&regs)?;
    Ok(0)
}

pub(super) fn getrandom(guest: &mut Guest<'_>, address: Virt, length: u64) -> Served {
    let usable = guest.space.accessible(address, length.min(1 << 20), Access::Write);
    if usable == 0 && length > 0 {
        return errno(libc::EFAULT);
    }
    guest.input(&mut || {
        let mut bytes = vec![0; usize::try_from(usable).expect("at most 1 MiB")];
        let result = host::random(&mut bytes);
        bytes.truncate(usize::try_from(result).unwrap_or(0));
        Input { result, writes: vec![MemoryWrite { address, bytes }] }
    })
}

pub(super) fn getcpu(guest: &mut Guest<'_>, cpu: Virt, node: Virt) -> Served {
    for address in [cpu, node].into_iter().filter(|address| *address != 0) {
        guest.write(address, &[0; 4])?;
    }
    Ok(0)
}

/// The set of processors: the first.
pub(super) fn sched_getaffinity(guest: &mut Guest<'_>, size: u64, address: Virt) -> Served {
    if size < 8 || !size.is_multiple_of(8) {
        return errno(libc::EINVAL);
    }
    guest.write_words(address, &[1])?;
    Ok(8)
}

/// The least or the greatest priority of a scheduling policy: only those for real time have any.
pub(super) fn priority_bound(call: i64, policy: i32) -> Served {
    let least = call == libc::SYS_sched_get_priority_min;
    match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => Ok(if least { 1 } else { 99 }),
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => Ok(0),
        _ => errno(libc::EINVAL),
    }
}

/// The execution domain: Linux without any of its flags, which cannot be set.
pub(super) fn personality(persona: u64) -> Served {
    const ASK: u64 = 0xffff_ffff;
    if [0, ASK].contains(&(persona & ASK)) { Ok(0) } else { errno(libc::EINVAL) }
}

pub(super) fn sched_getparam(guest: &mut Guest<'_>, address: Virt) -> Served {
    guest.write(address, &[0; 4])?;
    Ok(0)
}
