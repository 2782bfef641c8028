//! The one list of system calls: which function serves which.

use super::{
    Guest, Linux, Outcome, Served, clone, epoll, errno, files, futex, identity, int, memory, passthrough,
    polling, signals, terminal, time, transfer,
};

/// Serves a call, or says that there is none of this number.
pub(super) fn serve(linux: &mut Linux, guest: &mut Guest<'_>, number: u64, a: [u64; 6]) -> Served<Outcome> {
    let Ok(call) = i64::try_from(number) else { return linux.unknown(number) };
    match call {
        libc::SYS_exit => return clone::exit(linux, guest, int(a[0]) & 0xff),
        libc::SYS_exit_group => return Ok(Outcome::Exit(int(a[0]) & 0xff)),
        libc::SYS_rt_sigreturn => return signals::sigreturn(linux, guest),
        _ => {}
    }
    let served = own(linux, guest, call, &a).or_else(|| passthrough::serve(linux, guest, call, &a));
    match served {
        Some(result) => result.map(Outcome::Return),
        None => linux.unknown(number),
    }
}

/// The calls that are more than a translation of arguments.
#[rustfmt::skip]
fn own(linux: &mut Linux, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Option<Served> {
    Some(match call {
        // Memory.
        libc::SYS_brk => memory::brk(guest, a[0]),
        libc::SYS_mmap => memory::mmap(linux, guest, a),
        libc::SYS_munmap => memory::munmap(guest, a[0], a[1]),
        libc::SYS_mprotect => memory::mprotect(guest, a[0], a[1], a[2]),
        libc::SYS_mremap => memory::mremap(guest, a),
        libc::SYS_madvise => memory::madvise(guest, a[0], a[1], int(a[2])),
        libc::SYS_mincore => memory::mincore(guest, a[0], a[1], a[2]),
        libc::SYS_msync | libc::SYS_mlock | libc::SYS_munlock => memory::mapped(guest, a[0], a[1]),

        // Reading and writing.
        libc::SYS_read => transfer::read(linux, guest, int(a[0]), &[(a[1], a[2])], None),
        libc::SYS_write => transfer::write(linux, guest, int(a[0]), &[(a[1], a[2])], None),
        libc::SYS_pread64 => transfer::read(linux, guest, int(a[0]), &[(a[1], a[2])], Some(a[3])),
        libc::SYS_pwrite64 => transfer::write(linux, guest, int(a[0]), &[(a[1], a[2])], Some(a[3])),
        libc::SYS_readv => transfer::readv(linux, guest, a, false),
        libc::SYS_writev => transfer::writev(linux, guest, a, false),
        libc::SYS_preadv => transfer::readv(linux, guest, a, true),
        libc::SYS_pwritev => transfer::writev(linux, guest, a, true),

        // Files and descriptors.
        libc::SYS_open => files::open(linux, guest, libc::AT_FDCWD, a[0], int(a[1]), a[2]),
        libc::SYS_openat => files::open(linux, guest, int(a[0]), a[1], int(a[2]), a[3]),
        libc::SYS_creat => files::create(linux, guest, a[0], a[1]),
        libc::SYS_close => files::close(linux, int(a[0])),
        libc::SYS_close_range => files::close_range(linux, a[0], a[1], a[2]),
        libc::SYS_dup => files::dup(linux, int(a[0])),
        libc::SYS_dup2 => files::dup2(linux, int(a[0]), int(a[1])),
        libc::SYS_dup3 => files::dup3(linux, int(a[0]), int(a[1]), int(a[2])),
        libc::SYS_fcntl => files::fcntl(linux, guest, int(a[0]), int(a[1]), a[2]),
        libc::SYS_pipe => files::pipe(linux, guest, a[0], 0),
        libc::SYS_pipe2 => files::pipe(linux, guest, a[0], int(a[1])),
        libc::SYS_readlink => files::readlink(linux, guest, call, a, a[0], (a[1], a[2])),
        libc::SYS_readlinkat => files::readlink(linux, guest, call, a, a[1], (a[2], a[3])),
        libc::SYS_truncate => files::truncate(linux, guest, a[0], a[1]),
        libc::SYS_statfs => files::statfs(linux, guest, a[0], a[1]),
        libc::SYS_getcwd => files::getcwd(linux, guest, a[0], a[1]),
        libc::SYS_chdir => files::chdir(linux, guest, a[0]),
        libc::SYS_fchdir => files::fchdir(linux, guest, int(a[0])),
        libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_fgetxattr => errno(libc::ENODATA),
        libc::SYS_listxattr | libc::SYS_llistxattr | libc::SYS_flistxattr => Ok(0),
        libc::SYS_ioctl => terminal::ioctl(linux, guest, int(a[0]), a[1], a[2]),
        libc::SYS_poll => {
            let milliseconds = u64::try_from(int(a[2])).ok();
            polling::poll(linux, guest, a[0], a[1], milliseconds.map(|time| time * 1_000_000))
        }
        libc::SYS_ppoll => polling::ppoll(linux, guest, a[0], a[1], a[2]),
        libc::SYS_select => polling::select(linux, guest, a, 1000),
        libc::SYS_pselect6 => polling::select(linux, guest, a, 1),
        libc::SYS_epoll_create if int(a[0]) <= 0 => errno(libc::EINVAL),
        libc::SYS_epoll_create => epoll::create(linux, guest, 0),
        libc::SYS_epoll_create1 => epoll::create(linux, guest, int(a[0])),
        libc::SYS_epoll_ctl => epoll::control(linux, guest, a),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => epoll::wait_for(linux, guest, a),
        libc::SYS_epoll_pwait2 => epoll::wait_until(linux, guest, a),
        libc::SYS_eventfd => epoll::eventfd(linux, guest, a[0], 0),
        libc::SYS_eventfd2 => epoll::eventfd(linux, guest, a[0], int(a[1])),

        // Time.
        libc::SYS_clock_gettime => time::clock_gettime(linux, guest, int(a[0]), a[1]),
        libc::SYS_clock_getres => time::clock_getres(guest, int(a[0]), a[1]),
        libc::SYS_gettimeofday => time::gettimeofday(linux, guest, a[0], a[1]),
        libc::SYS_time => time::time(linux, guest, a[0]),
        libc::SYS_nanosleep => time::sleep(linux, guest, libc::CLOCK_MONOTONIC, 0, a[0], a[1]),
        libc::SYS_clock_nanosleep => time::sleep(linux, guest, int(a[0]), int(a[1]), a[2], a[3]),

        // Signals.
        libc::SYS_rt_sigaction => signals::sigaction(linux, guest, a),
        libc::SYS_rt_sigprocmask => signals::sigprocmask(linux, guest, a),
        libc::SYS_rt_sigpending => signals::sigpending(linux, guest, a[0], a[1]),
        libc::SYS_sigaltstack => signals::sigaltstack(linux, guest, a[0], a[1]),
        libc::SYS_rt_sigsuspend => signals::suspend(linux, guest, a[0], a[1]),
        libc::SYS_rt_sigtimedwait => signals::timed_wait(linux, guest, a),
        libc::SYS_pause => signals::pause(linux),
        libc::SYS_kill => signals::kill(linux, int(a[0]), int(a[1])),
        libc::SYS_tkill => signals::tkill(linux, int(a[0]), int(a[1])),
        libc::SYS_tgkill => signals::tgkill(linux, int(a[0]), int(a[1]), int(a[2])),

        // Threads.
        libc::SYS_clone => return clone::clone(linux, guest, a),
        libc::SYS_clone3 => return clone::clone3(linux, guest, a[0], a[1]),
        libc::SYS_gettid => clone::gettid(linux),
        libc::SYS_set_tid_address => clone::set_tid_address(linux, a[0]),
        libc::SYS_set_robust_list => clone::set_robust_list(linux, a[0], a[1]),
        libc::SYS_get_robust_list => clone::get_robust_list(linux, guest, a[0], a[1], a[2]),
        libc::SYS_sched_yield => clone::sched_yield(linux),
        libc::SYS_futex => futex::futex(linux, guest, a),

        // Identity, limits, scheduling: one process on one processor.
        libc::SYS_getpid | libc::SYS_getpgrp => identity::own_pid(),
        libc::SYS_getpgid | libc::SYS_getsid => identity::group_of(int(a[0])),
        libc::SYS_getppid => identity::parent_pid(),
        libc::SYS_getuid => Ok(linux.identity.ids.uid.into()),
        libc::SYS_geteuid => Ok(linux.identity.ids.euid.into()),
        libc::SYS_getgid => Ok(linux.identity.ids.gid.into()),
        libc::SYS_getegid => Ok(linux.identity.ids.egid.into()),
        libc::SYS_getresuid => identity::getresuid(linux, guest, a),
        libc::SYS_getresgid => identity::getresgid(linux, guest, a),
        libc::SYS_getgroups => Ok(0),
        libc::SYS_setuid | libc::SYS_setgid => identity::set_id(linux, call, &a[..1]),
        libc::SYS_setreuid | libc::SYS_setregid => identity::set_id(linux, call, &a[..2]),
        libc::SYS_setresuid | libc::SYS_setresgid => identity::set_id(linux, call, &a[..3]),
        libc::SYS_uname => identity::uname(guest, a[0]),
        libc::SYS_prlimit64 => identity::prlimit(linux, guest, a),
        libc::SYS_getrlimit => identity::getrlimit(linux, guest, a[0], a[1]),
        libc::SYS_setrlimit => identity::setrlimit(linux, guest, a[0], a[1]),
        libc::SYS_prctl => identity::prctl(linux, guest, int(a[0]), a[1]),
        libc::SYS_arch_prctl => identity::arch_prctl(guest, int(a[0]), a[1]),
        libc::SYS_getrandom => identity::getrandom(guest, a[0], a[1]),
        libc::SYS_getcpu => identity::getcpu(guest, a[0], a[1]),
        libc::SYS_sched_getaffinity => identity::sched_getaffinity(guest, a[1], a[2]),
        libc::SYS_sched_setaffinity => Ok(0),
        libc::SYS_sched_getscheduler => Ok(0),
        libc::SYS_sched_get_priority_min | libc::SYS_sched_get_priority_max => identity::priority_bound(call, int(a[0])),
        libc::SYS_sched_getparam => identity::sched_getparam(guest, a[1]),
        // It leads its group and its session.
        libc::SYS_setpgid | libc::SYS_setsid => errno(libc::EPERM),
        libc::SYS_personality => identity::personality(a[0]),
        libc::SYS_wait4 | libc::SYS_waitid => errno(libc::ECHILD),
        // Refused for good, so that libc does without.
        libc::SYS_rseq | libc::SYS_membarrier => errno(libc::ENOSYS),
        libc::SYS_copy_file_range | libc::SYS_sendfile => errno(libc::ENOSYS),
        _ => return None,
    })
}
