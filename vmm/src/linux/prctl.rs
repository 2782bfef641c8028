//! prctl: what a process may set about itself.

use super::{Guest, Kernel, Served, capabilities, clone, errno, int, persona, seccomp};

/// What a process does at a machine check of its memory (PR_MCE_KILL_*).
const MCE_KILL_LATE: u64 = 0;
pub(super) const MCE_KILL_DEFAULT: u8 = 2;
const MCE_KILL_CLEAR: u64 = 0;
const MCE_KILL_SET: u64 = 1;
/// PR_SET_MM: the request for the size of `struct prctl_mm_map`, and that size.
const MM_MAP_SIZE: u64 = 15;
const MM_MAP: u32 = 104;

pub(super) fn prctl(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [option, value, third, fourth, fifth, _] = *a;
    let rest = [third, fourth, fifth];
    let only =
        |wanted: &[u64]| if wanted.iter().any(|word| *word != 0) { errno(libc::EINVAL) } else { Ok(()) };
    match int(option) {
        libc::PR_SET_NAME => clone::set_name(kernel, guest, value),
        libc::PR_GET_NAME => clone::get_name(kernel, guest, value),
        libc::PR_SET_PDEATHSIG if value > 64 => errno(libc::EINVAL),
        libc::PR_SET_PDEATHSIG => {
            kernel.tasks.current_mut().parent_death_signal = int(value);
            Ok(0)
        }
        libc::PR_GET_PDEATHSIG => {
            guest.write(value, &kernel.tasks.current().parent_death_signal.to_le_bytes())?;
            Ok(0)
        }
        libc::PR_GET_DUMPABLE => Ok(kernel.group().dumpable.into()),
        libc::PR_SET_DUMPABLE => flag(value).map(|dumpable| {
            kernel.group_mut().dumpable = dumpable;
            0
        }),
        libc::PR_GET_KEEPCAPS => Ok(capabilities::keeps(kernel).into()),
        libc::PR_SET_KEEPCAPS => capabilities::set_keeps(kernel, flag(value)?),
        libc::PR_SET_NO_NEW_PRIVS => {
            only(&rest)?;
            if value != 1 {
                return errno(libc::EINVAL);
            }
            kernel.group_mut().credentials.no_new_privileges = true;
            Ok(0)
        }
        libc::PR_GET_NO_NEW_PRIVS => {
            only(&[value, third, fourth, fifth])?;
            Ok(kernel.group().credentials.no_new_privileges.into())
        }
        libc::PR_SET_CHILD_SUBREAPER => {
            kernel.group_mut().reaps = value != 0;
            Ok(0)
        }
        libc::PR_GET_CHILD_SUBREAPER => {
            guest.write(value, &i32::from(kernel.group().reaps).to_le_bytes())?;
            Ok(0)
        }
        libc::PR_SET_TIMERSLACK => {
            let own = &mut kernel.tasks.current_mut().scheduling;
            own.slack = if super::long(value) <= 0 { own.default_slack } else { value };
            Ok(0)
        }
        libc::PR_GET_TIMERSLACK => Ok(kernel.tasks.current().scheduling.slack),
        libc::PR_SET_THP_DISABLE => {
            only(&rest)?;
            kernel.group_mut().no_huge_pages = value != 0;
            Ok(0)
        }
        libc::PR_GET_THP_DISABLE => {
            only(&[value, third, fourth, fifth])?;
            Ok(kernel.group().no_huge_pages.into())
        }
        libc::PR_GET_TSC => persona::time_stamps(kernel, guest, value),
        libc::PR_SET_TSC => persona::set_time_stamps(kernel, value),
        libc::PR_GET_TIMING => Ok(0),
        libc::PR_GET_SECCOMP => Ok(kernel.tasks.current().sieve.mode()),
        libc::PR_SET_TIMING if value == 0 => Ok(0),
        libc::PR_SET_SECCOMP => seccomp::set_mode(kernel, guest, value, third),
        libc::PR_SET_MM if value == MM_MAP_SIZE && fifth == 0 => {
            guest.write(third, &MM_MAP.to_le_bytes())?;
            Ok(0)
        }
        libc::PR_SET_MM => kernel.refuse("prctl PR_SET_MM", libc::EPERM),
        libc::PR_MCE_KILL_GET => {
            only(&[value, third, fourth, fifth])?;
            Ok(kernel.group().machine_check.into())
        }
        libc::PR_MCE_KILL => set_machine_check(kernel, value, &rest),
        libc::PR_TASK_PERF_EVENTS_DISABLE | libc::PR_TASK_PERF_EVENTS_ENABLE => Ok(0),
        libc::PR_GET_TID_ADDRESS => {
            guest.write_words(value, &[kernel.tasks.current().clear_at_end])?;
            Ok(0)
        }
        libc::PR_CAPBSET_READ => capabilities::bounds(kernel, value),
        libc::PR_CAPBSET_DROP => capabilities::drop_bound(kernel, value),
        libc::PR_GET_SECUREBITS => Ok(kernel.group().credentials.capabilities.securebits.into()),
        libc::PR_SET_SECUREBITS => capabilities::set_securebits(kernel, value),
        libc::PR_CAP_AMBIENT => capabilities::ambient(kernel, int(value), third, [fourth, fifth]),
        // As a kernel answers that was built without it, or is older.
        _ => errno(libc::EINVAL),
    }
}

/// PR_MCE_KILL: kept, for no machine check comes.
fn set_machine_check(kernel: &mut Kernel, operation: u64, rest: &[u64; 3]) -> Served {
    let policy = match (operation, rest) {
        (MCE_KILL_CLEAR, [0, 0, 0]) => MCE_KILL_DEFAULT,
        (MCE_KILL_SET, [policy @ MCE_KILL_LATE..=2, 0, 0]) => u8::try_from(*policy).expect("at most two"),
        _ => return errno(libc::EINVAL),
    };
    kernel.group_mut().machine_check = policy;
    Ok(0)
}

fn flag(value: u64) -> Served<bool> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => errno(libc::EINVAL),
    }
}

/// kcmp: whether two tasks share something. Different things have no order.
pub(super) fn kcmp(kernel: &Kernel, a: &[u64; 6]) -> Served {
    const DIFFERENT: u64 = 3;
    let task = |id: u64| kernel.tasks.get(int(id)).map_or_else(|| errno(libc::ESRCH), Ok);
    let (one, other) = (task(a[0])?, task(a[1])?);
    let same = match int(a[2]) {
        0 => {
            let file =
                |task: &super::tasks::Task, number: u64| kernel.tables.get(task.files).get(int(number));
            std::rc::Rc::ptr_eq(&file(one, a[3])?, &file(other, a[4])?)
        }
        1 => one.space == other.space,
        2 => one.files == other.files,
        3 => one.place == other.place,
        4 => one.handlers == other.handlers,
        // I/O contexts, and undo lists of semaphores: those of one process.
        5 | 6 => one.group == other.group,
        7 => return errno(libc::EOPNOTSUPP),
        _ => return errno(libc::EINVAL),
    };
    Ok(if same { 0 } else { DIFFERENT })
}
