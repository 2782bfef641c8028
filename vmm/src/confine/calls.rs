//! The system calls that gretel does not make while a program runs, refused with EPERM by a seccomp filter.
//!
//! It is a list of what is refused, since what is needed is not all known here: libc's choices differ between its versions, and
//! nearly every other call is one that the personality makes for some program. Three are refused by their arguments: `clone` but for
//! threads, `unshare` but of a thread's working directory ([`crate::linux`]'s sockets), `tgkill` but to gretel. `clone3`, whose
//! arguments no filter can read, is ENOSYS: libc then calls `clone`.

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Whatever their arguments are.
const REFUSED: &[i64] = &[
    // Another program, or process.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_vfork,
    // Other processes: their memory, descriptors, and signals to them.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Becoming somebody else for good; files are opened as the guest's user by setfsuid, for a call.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setns,
    libc::SYS_personality,
    // What is mounted.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    // The whole system.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    // Large parts of the kernel that gretel has no use for. Counters are open by now.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_memfd_secret,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The guest has these of its own.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgctl,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// A number with this bit is a call of the x32 ABI, by which most calls could be made a second time.
const X32: i64 = 0x4000_0000;
/// Calls of the list that have numbers of their own there: execve, ptrace, `rt_sigqueueinfo`, `kexec_load`, `move_pages`,
/// `rt_tgsigqueueinfo`, `process_vm_readv` and `writev`, `io_setup`, execveat.
const X32_OWN: [i64; 10] = [520, 521, 524, 528, 533, 536, 539, 540, 543, 545];

/// From now on they are refused to all threads of this process.
pub(super) fn confine() -> Result<(), String> {
    for filter in filters()? {
        seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Whether this kernel has filters.
pub(super) fn offered() -> Result<(), String> {
    const ERRNO: u32 = libc::SECCOMP_RET_ERRNO;
    let asked: *const u32 = &ERRNO;
    // SAFETY: the kernel reads one word, which outlives the call.
    match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, asked) } {
        0 => Ok(()),
        _ => Err(format!("seccomp: {}", std::io::Error::last_os_error())),
    }
}

fn filters() -> Result<[BpfProgram; 2], String> {
    let compiled = |rules, action| {
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, TargetArch::x86_64);
        filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())
    };
    let error = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compiled(newer, error(libc::ENOSYS))?, compiled(rules()?, error(libc::EPERM))?])
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, String> {
    let whole = REFUSED.iter().copied().chain(X32_OWN);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        whole.flat_map(|number| [number, number | X32]).map(|number| (number, Vec::new())).collect();
    // Plain numbers of the x32 calls with their own are no calls at all.
    X32_OWN.iter().for_each(|number| drop(rules.remove(number)));
    let thread = flag(libc::CLONE_THREAD);
    let own = u64::from(std::process::id());
    let by_arguments = [
        (libc::SYS_clone, Qword, MaskedEq(thread), 0),
        (libc::SYS_unshare, Qword, Ne, flag(libc::CLONE_FS)),
        (libc::SYS_tgkill, Dword, Ne, own),
    ];
    for (number, length, operator, value) in by_arguments {
        let rule = when(length, operator, value)?;
        rules.insert(number, vec![rule.clone()]);
        rules.insert(number | X32, vec![rule]);
    }
    Ok(rules)
}

fn flag(flag: i32) -> u64 {
    flag.unsigned_abs().into()
}

/// A call whose first argument is such.
fn when(
    length: seccompiler::SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(0, length, operator, value);
    condition.and_then(|it| SeccompRule::new(vec![it])).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: a filter stays.
    #[test]
    fn the_filter_is_a_program_that_a_kernel_takes() {
        let [newer, refused] = filters().expect("they compile");
        assert!(newer.len() < 20 && refused.len() < 4096, "BPF_MAXINSNS");
    }

    #[test]
    fn calls_of_the_other_abi_are_refused_as_well() {
        let rules = rules().expect("rules");
        assert!(rules.contains_key(&libc::SYS_execve) && rules.contains_key(&(520 | X32)));
        assert!(!rules.contains_key(&520), "no call of x86-64");
        assert!(!rules.contains_key(&libc::SYS_execve.wrapping_add(1)));
    }
}
