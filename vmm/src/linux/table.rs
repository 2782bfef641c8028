//! Which function serves which system call. What a call is, and whether and by whom it is served, its row in
//! [`crate::syscalls`] says; here are the functions, and what holds the two together.

use super::signals::calls as signals;
use super::{
    Guest, Kernel, Outcome, Served, attributes, capabilities, children, clone, epoll, errno, exec, exit,
    files, futex, identity, inotify, int, ipc, limits, locks, memory, network, numa, passthrough, persona,
    pidfd, polling, prctl, processor, scheduling, seccomp, sendfile, sharing, sources, splice, terminal,
    time, timers, transfer, usage,
};
use crate::syscalls;
use crate::syscalls::shape::{Call, Kind, Served as By};

/// Makes of a list of calls the numbers in it, `SERVED`, and the function that serves one of them.
macro_rules! calls {
    ($(#[$meta:meta])* fn $serve:ident($kernel:ident, $guest:ident, $call:ident, $a:ident)
        { $($($number:path)|+ => $server:expr),* $(,)? }) => {
        /// The calls of this list.
        pub(in crate::linux) const SERVED: &[i64] = &[$($($number),+),*];

        $(#[$meta])*
        pub(in crate::linux) fn $serve(
            $kernel: &mut $crate::linux::Kernel,
            $guest: &mut $crate::linux::Guest<'_>,
            $call: i64,
            $a: &[u64; 6],
        ) -> Option<$crate::linux::Served> {
            Some(match $call {
                $($($number)|+ => $server,)*
                _ => return None,
            })
        }
    };
}
pub(super) use calls;

/// The calls after which the task does not go on as after another.
const TURNS: &[i64] =
    &[libc::SYS_exit, libc::SYS_exit_group, libc::SYS_rt_sigreturn, libc::SYS_execve, libc::SYS_execveat];

/// The calls that take a descriptor which is open as a place alone (O_PATH; `fdget_raw` of the kernel), and such commands of fcntl.
const OF_PLACES: &[i64] = &[
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fchdir,
];
const COMMANDS_OF_PLACES: [i32; 5] =
    [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];

/// Whether a call's first argument is open as a place alone, and the call wants more.
fn is_barred(kernel: &Kernel, row: &Call, a: &[u64; 6]) -> bool {
    let call = i64::from(row.number);
    matches!(row.arguments.first(), Some(argument) if matches!(argument.kind, Kind::Fd))
        && kernel.files().is_only_path(int(a[0]))
        && !OF_PLACES.contains(&call)
        && !(call == libc::SYS_fcntl && COMMANDS_OF_PLACES.contains(&int(a[1])))
}

/// Serves a call as its row in the table says.
pub(super) fn serve(kernel: &mut Kernel, guest: &mut Guest<'_>, number: u64, a: [u64; 6]) -> Served<Outcome> {
    let Some(row) = syscalls::find(number) else { return kernel.unknown(guest, number) };
    let call = i64::from(row.number);
    match row.served {
        By::Missing => return kernel.unknown(guest, number),
        By::Fixed(0, _) => return Ok(Outcome::Return(0)),
        By::Fixed(libc::EPERM, _) => return kernel.forbid(guest, number),
        By::Fixed(error, _) => return errno(error),
        By::Ours | By::Host | By::Mixed => {}
    }
    if is_barred(kernel, row, &a) {
        return errno(libc::EBADF);
    }
    match call {
        libc::SYS_exit => return exit::exit(kernel, guest, int(a[0]) & 0xff),
        libc::SYS_exit_group => return Ok(Outcome::Exit(int(a[0]) & 0xff)),
        libc::SYS_rt_sigreturn => return signals::sigreturn(kernel, guest),
        libc::SYS_execve => return exec::execve(kernel, guest, &a),
        libc::SYS_execveat => return exec::execveat(kernel, guest, &a),
        _ => {}
    }
    let served = own(kernel, guest, call, &a)
        .or_else(|| ipc::serve(kernel, guest, call, &a))
        .or_else(|| network::serve(kernel, guest, call, &a))
        .or_else(|| passthrough::serve(kernel, guest, call, &a));
    served.expect("a call that is served has a server").map(Outcome::Return)
}

calls! {
    /// The calls that are more than a translation of arguments.
    fn own(kernel, guest, call, a) {
        // Memory.
        libc::SYS_brk => memory::brk(kernel, guest, a[0]),
        libc::SYS_mmap => memory::mmap(kernel, guest, a),
        libc::SYS_munmap => memory::munmap(kernel, guest, a[0], a[1]),
        libc::SYS_mprotect => memory::mprotect(kernel, guest, a),
        libc::SYS_pkey_mprotect => memory::pkey_mprotect(kernel, guest, a),
        libc::SYS_pkey_alloc => memory::pkey_alloc(a[0], a[1]),
        libc::SYS_pkey_free => memory::pkey_free(),
        libc::SYS_mremap => memory::mremap(kernel, guest, a),
        libc::SYS_madvise => memory::madvise(kernel, guest, a[0], a[1], int(a[2])),
        libc::SYS_mincore => memory::mincore(guest, a[0], a[1], a[2]),
        libc::SYS_msync => memory::msync(kernel, guest, a[0], a[1], int(a[2])),
        libc::SYS_mlock => memory::mlock(kernel, guest, a[0], a[1], 0),
        libc::SYS_mlock2 => memory::mlock(kernel, guest, a[0], a[1], a[2]),
        libc::SYS_munlock => memory::munlock(guest, a[0], a[1]),
        libc::SYS_mlockall => memory::mlockall(kernel, guest, int(a[0])),
        libc::SYS_munlockall => memory::munlockall(kernel, guest),
        libc::SYS_mbind => numa::bind(guest, a),
        libc::SYS_set_mempolicy => numa::set(kernel, guest, a),
        libc::SYS_get_mempolicy => numa::get(kernel, guest, a),
        libc::SYS_remap_file_pages => memory::remap_file_pages(),
        libc::SYS_process_vm_readv => memory::peer(kernel, guest, a, memory::Direction::Read),
        libc::SYS_process_vm_writev => memory::peer(kernel, guest, a, memory::Direction::Write),
        libc::SYS_memfd_create => sharing::memfd_create(kernel, guest, a[0], a[1]),
        libc::SYS_ftruncate => kernel.check_length(a[1]).and_then(|()| sharing::ftruncate(kernel, guest, a)),
        libc::SYS_fallocate => sharing::fallocate(kernel, guest, a),
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync | libc::SYS_syncfs | libc::SYS_sync_file_range => {
            sharing::settled(kernel, guest, call, a)
        },

        // Reading and writing.
        libc::SYS_read => transfer::read(kernel, guest, int(a[0]), &[(a[1], a[2])], None),
        libc::SYS_write => transfer::write(kernel, guest, int(a[0]), &[(a[1], a[2])], None),
        libc::SYS_pread64 => transfer::read(kernel, guest, int(a[0]), &[(a[1], a[2])], Some(a[3])),
        libc::SYS_pwrite64 => transfer::write(kernel, guest, int(a[0]), &[(a[1], a[2])], Some(a[3])),
        libc::SYS_readv => transfer::readv(kernel, guest, a, false),
        libc::SYS_writev => transfer::writev(kernel, guest, a, false),
        libc::SYS_sendfile => sendfile::sendfile(kernel, guest, a),
        libc::SYS_splice => splice::splice(kernel, guest, a),
        libc::SYS_tee => splice::tee(kernel, guest, a),
        libc::SYS_vmsplice => splice::vmsplice(kernel, guest, a),
        libc::SYS_copy_file_range => splice::copy_file_range(kernel, guest, a),
        libc::SYS_preadv => transfer::readv(kernel, guest, a, true),
        libc::SYS_pwritev => transfer::writev(kernel, guest, a, true),
        libc::SYS_preadv2 => transfer::readv2(kernel, guest, a),
        libc::SYS_pwritev2 => transfer::writev2(kernel, guest, a),

        // Files and descriptors.
        libc::SYS_open => files::open(kernel, guest, libc::AT_FDCWD, a[0], int(a[1]), a[2]),
        libc::SYS_openat => files::open(kernel, guest, int(a[0]), a[1], int(a[2]), a[3]),
        libc::SYS_openat2 => files::open_by(kernel, guest, a),
        libc::SYS_creat => files::create(kernel, guest, a[0], a[1]),
        libc::SYS_close => files::close(kernel, guest, int(a[0])),
        libc::SYS_close_range => files::close_range(kernel, guest, a[0], a[1], a[2]),
        libc::SYS_dup => files::dup(kernel, int(a[0])),
        libc::SYS_dup2 => files::dup2(kernel, int(a[0]), int(a[1])),
        libc::SYS_dup3 => files::dup3(kernel, int(a[0]), int(a[1]), int(a[2])),
        libc::SYS_flock => locks::flock(kernel, guest, int(a[0]), int(a[1])),
        libc::SYS_fcntl => files::fcntl(kernel, guest, int(a[0]), int(a[1]), a[2]),
        libc::SYS_getxattr | libc::SYS_lgetxattr | libc::SYS_fgetxattr => attributes::get(kernel, guest, call, a),
        libc::SYS_setxattr | libc::SYS_lsetxattr | libc::SYS_fsetxattr => attributes::set(kernel, guest, call, a),
        libc::SYS_listxattr | libc::SYS_llistxattr | libc::SYS_flistxattr => attributes::list(kernel, guest, call, a),
        libc::SYS_removexattr | libc::SYS_lremovexattr | libc::SYS_fremovexattr => {
            attributes::remove(kernel, guest, call, a)
        },
        libc::SYS_inotify_init => inotify::create(kernel, guest, 0),
        libc::SYS_inotify_init1 => inotify::create(kernel, guest, int(a[0])),
        libc::SYS_inotify_add_watch => inotify::add_watch(kernel, guest, a),
        libc::SYS_inotify_rm_watch => inotify::remove_watch(kernel, guest, a),
        libc::SYS_pipe => files::pipe(kernel, guest, a[0], 0),
        libc::SYS_pipe2 => files::pipe(kernel, guest, a[0], int(a[1])),
        libc::SYS_truncate => files::truncate(kernel, guest, a[0], a[1]),
        libc::SYS_statfs => files::statfs(kernel, guest, a[0], a[1]),
        libc::SYS_getcwd => files::getcwd(kernel, guest, a[0], a[1]),
        libc::SYS_umask => {
            let mask = u32::try_from(a[0] & 0o777).expect("nine bits");
            Ok(std::mem::replace(&mut kernel.place_mut().umask, mask).into())
        },
        libc::SYS_chdir => files::chdir(kernel, guest, a[0]),
        libc::SYS_chroot => files::chroot(kernel, guest, a[0]),
        libc::SYS_fchdir => files::fchdir(kernel, guest, int(a[0])),
        libc::SYS_ioctl => terminal::ioctl(kernel, guest, int(a[0]), a[1], a[2]),
        libc::SYS_poll => {
            let milliseconds = u64::try_from(int(a[2])).ok();
            polling::poll(kernel, guest, a[0], a[1], milliseconds.map(|time| time * 1_000_000))
        },
        libc::SYS_ppoll => polling::ppoll(kernel, guest, a),
        libc::SYS_select => polling::select(kernel, guest, a, 1000),
        libc::SYS_pselect6 => polling::pselect(kernel, guest, a),
        libc::SYS_epoll_create => epoll::create_sized(kernel, guest, int(a[0])),
        libc::SYS_epoll_create1 => epoll::create(kernel, guest, int(a[0])),
        libc::SYS_epoll_ctl => epoll::control(kernel, guest, a),
        libc::SYS_epoll_wait => epoll::wait_for(kernel, guest, a),
        libc::SYS_epoll_pwait => epoll::wait_masked(kernel, guest, a),
        libc::SYS_epoll_pwait2 => epoll::wait_until(kernel, guest, a),
        libc::SYS_eventfd => epoll::eventfd(kernel, guest, a[0], 0),
        libc::SYS_eventfd2 => epoll::eventfd(kernel, guest, a[0], int(a[1])),

        // Time.
        libc::SYS_clock_gettime => time::clock_gettime(kernel, guest, int(a[0]), a[1]),
        libc::SYS_clock_adjtime => time::clock_adjtime(kernel, guest, int(a[0]), a[1]),
        libc::SYS_adjtimex => time::clock_adjtime(kernel, guest, libc::CLOCK_REALTIME, a[0]),
        libc::SYS_clock_getres => time::clock_getres(kernel, guest, int(a[0]), a[1]),
        libc::SYS_gettimeofday => time::gettimeofday(kernel, guest, a[0], a[1]),
        libc::SYS_time => time::time(kernel, guest, a[0]),
        libc::SYS_nanosleep => time::sleep(kernel, guest, libc::CLOCK_MONOTONIC, 0, a[0], a[1]),
        libc::SYS_clock_nanosleep => time::sleep(kernel, guest, int(a[0]), int(a[1]), a[2], a[3]),
        libc::SYS_settimeofday => time::settimeofday(kernel, a),
        libc::SYS_clock_settime => time::clock_settime(kernel, guest, int(a[0]), a[1]),
        libc::SYS_getrusage => usage::getrusage(kernel, guest, int(a[0]), a[1]),
        libc::SYS_times => usage::times(kernel, guest, a[0]),

        // Timers.
        libc::SYS_alarm => timers::calls::alarm(kernel, guest, a[0]),
        libc::SYS_setitimer => timers::calls::setitimer(kernel, guest, a[0], a[1], a[2]),
        libc::SYS_getitimer => timers::calls::getitimer(kernel, guest, a[0], a[1]),
        libc::SYS_timer_create => timers::posix::create(kernel, guest, a[0], a[1], a[2]),
        libc::SYS_timer_settime => timers::posix::set(kernel, guest, a),
        libc::SYS_timer_gettime => timers::posix::get(kernel, guest, a[0], a[1]),
        libc::SYS_timer_getoverrun => timers::posix::overrun(kernel, a[0]),
        libc::SYS_timer_delete => timers::posix::delete(kernel, a[0]),
        libc::SYS_timerfd_create => timers::descriptor::create(kernel, guest, a[0], int(a[1])),
        libc::SYS_timerfd_settime => timers::descriptor::set(kernel, guest, a),
        libc::SYS_timerfd_gettime => timers::descriptor::get(kernel, guest, a[0], a[1]),
        libc::SYS_signalfd => sources::signalfd(kernel, guest, int(a[0]), a[1], a[2], 0),
        libc::SYS_signalfd4 => sources::signalfd(kernel, guest, int(a[0]), a[1], a[2], int(a[3])),

        // Signals.
        libc::SYS_rt_sigaction => signals::sigaction(kernel, guest, a),
        libc::SYS_rt_sigprocmask => signals::sigprocmask(kernel, guest, a),
        libc::SYS_rt_sigpending => signals::sigpending(kernel, guest, a[0], a[1]),
        libc::SYS_sigaltstack => signals::sigaltstack(kernel, guest, a[0], a[1]),
        libc::SYS_rt_sigsuspend => signals::suspend(kernel, guest, a[0], a[1]),
        libc::SYS_rt_sigtimedwait => signals::timed_wait(kernel, guest, a),
        libc::SYS_pause => signals::pause(),
        libc::SYS_kill => signals::kill(kernel, int(a[0]), int(a[1])),
        libc::SYS_tkill => signals::tkill(kernel, int(a[0]), int(a[1])),
        libc::SYS_tgkill => signals::tgkill(kernel, int(a[0]), int(a[1]), int(a[2])),
        libc::SYS_rt_sigqueueinfo => signals::queue(kernel, guest, int(a[0]), None, int(a[1]), a[2]),
        libc::SYS_rt_tgsigqueueinfo => signals::queue(kernel, guest, int(a[0]), Some(int(a[1])), int(a[2]), a[3]),

        // Threads.
        libc::SYS_clone => clone::clone(kernel, guest, a),
        libc::SYS_clone3 => clone::clone3(kernel, guest, a[0], a[1]),
        libc::SYS_unshare => clone::unshare(kernel, a[0]),
        libc::SYS_setns => clone::setns(kernel, int(a[0])),
        libc::SYS_fork => clone::fork(kernel, guest),
        libc::SYS_vfork => clone::vfork(kernel, guest),
        libc::SYS_wait4 => children::wait4(kernel, guest, a),
        libc::SYS_waitid => children::waitid(kernel, guest, a),
        libc::SYS_pidfd_open => pidfd::open(kernel, guest, int(a[0]), int(a[1])),
        libc::SYS_pidfd_getfd => pidfd::get_file(kernel, int(a[0]), int(a[1]), a[2]),
        libc::SYS_pidfd_send_signal => pidfd::send_signal(kernel, guest, int(a[0]), int(a[1]), a[2]),
        libc::SYS_gettid => clone::gettid(kernel),
        libc::SYS_set_tid_address => clone::set_tid_address(kernel, a[0]),
        libc::SYS_set_robust_list => clone::set_robust_list(kernel, a[0], a[1]),
        libc::SYS_get_robust_list => clone::get_robust_list(kernel, guest, a[0], a[1], a[2]),
        libc::SYS_sched_yield => clone::sched_yield(kernel),
        libc::SYS_futex => futex::futex(kernel, guest, a),
        libc::SYS_futex_waitv => futex::waitv(kernel, guest, a),

        // Identity, limits, scheduling: one process on one processor.
        libc::SYS_getpid => identity::own_pid(kernel),
        libc::SYS_getpgrp => identity::getpgid(kernel, 0),
        libc::SYS_getpgid => identity::getpgid(kernel, int(a[0])),
        libc::SYS_getsid => identity::getsid(kernel, int(a[0])),
        libc::SYS_setpgid => identity::setpgid(kernel, int(a[0]), int(a[1])),
        libc::SYS_setsid => identity::setsid(kernel),
        libc::SYS_getppid => identity::parent_pid(kernel),
        libc::SYS_getuid => Ok(kernel.group().credentials.uid[0].into()),
        libc::SYS_geteuid => Ok(kernel.group().credentials.uid[1].into()),
        libc::SYS_getgid => Ok(kernel.group().credentials.gid[0].into()),
        libc::SYS_getegid => Ok(kernel.group().credentials.gid[1].into()),
        libc::SYS_getresuid => identity::getresuid(kernel, guest, a),
        libc::SYS_getresgid => identity::getresgid(kernel, guest, a),
        libc::SYS_getgroups => identity::getgroups(kernel, guest, int(a[0]), a[1]),
        libc::SYS_setuid | libc::SYS_setgid | libc::SYS_setreuid | libc::SYS_setregid | libc::SYS_setresuid
        | libc::SYS_setresgid | libc::SYS_setfsuid | libc::SYS_setfsgid => identity::set_ids(kernel, guest, call, a),
        libc::SYS_uname => identity::uname(kernel, guest, a[0]),
        libc::SYS_prlimit64 => limits::prlimit(kernel, guest, a),
        libc::SYS_getrlimit => limits::getrlimit(kernel, guest, a[0], a[1]),
        libc::SYS_setrlimit => limits::setrlimit(kernel, guest, a[0], a[1]),
        libc::SYS_prctl => prctl::prctl(kernel, guest, a),
        libc::SYS_seccomp => seccomp::seccomp(kernel, guest, a),
        libc::SYS_kcmp => prctl::kcmp(kernel, a),
        libc::SYS_capget => capabilities::capget(kernel, guest, a[0], a[1]),
        libc::SYS_capset => capabilities::capset(kernel, guest, a[0], a[1]),
        libc::SYS_setgroups => capabilities::setgroups(kernel, guest, a[0], a[1]),
        libc::SYS_arch_prctl => identity::arch_prctl(guest, int(a[0]), a[1]),
        libc::SYS_getrandom => identity::getrandom(guest, a[0], a[1], a[2]),
        libc::SYS_getcpu => processor::getcpu(guest, a[0], a[1]),
        libc::SYS_sched_getaffinity => processor::getaffinity(kernel, guest, int(a[0]), a[1], a[2]),
        libc::SYS_sched_setaffinity => processor::setaffinity(kernel, guest, int(a[0]), a[1], a[2]),
        libc::SYS_membarrier => processor::membarrier(kernel, a[0], a[1]),
        libc::SYS_sched_getscheduler => scheduling::getscheduler(kernel, int(a[0])),
        libc::SYS_sched_setscheduler => scheduling::setscheduler(kernel, guest, int(a[0]), int(a[1]), a[2]),
        libc::SYS_sched_getparam => scheduling::getparam(kernel, guest, int(a[0]), a[1]),
        libc::SYS_sched_setparam => scheduling::setparam(kernel, guest, int(a[0]), a[1]),
        libc::SYS_sched_rr_get_interval => scheduling::rr_get_interval(kernel, guest, int(a[0]), a[1]),
        libc::SYS_sched_getattr => scheduling::getattr(kernel, guest, int(a[0]), a[1], a[2], a[3]),
        libc::SYS_sched_setattr => scheduling::setattr(kernel, guest, int(a[0]), a[1], a[2]),
        libc::SYS_sched_get_priority_min | libc::SYS_sched_get_priority_max => scheduling::priority_bound(call, int(a[0])),
        libc::SYS_getpriority => scheduling::getpriority(kernel, int(a[0]), int(a[1])),
        libc::SYS_setpriority => scheduling::setpriority(kernel, int(a[0]), int(a[1]), int(a[2])),
        libc::SYS_ioprio_get => scheduling::ioprio_get(kernel, int(a[0]), int(a[1])),
        libc::SYS_ioprio_set => scheduling::ioprio_set(kernel, int(a[0]), int(a[1]), a[2]),
        libc::SYS_personality => persona::personality(kernel, a[0]),
    }
}

/// A row says that a call is served where it has a server, and nowhere else: other rows do not compile.
const _: () = {
    let mut group = 0;
    while group < syscalls::GROUPS.len() {
        let rows = syscalls::GROUPS[group].1;
        let mut n = 0;
        while n < rows.len() {
            let says = matches!(rows[n].served, By::Ours | By::Host | By::Mixed);
            assert!(says == has_server(rows[n].number as i64), "a row and its server disagree");
            n += 1;
        }
        group += 1;
    }
};

const fn has_server(number: i64) -> bool {
    contains(TURNS, number)
        || contains(SERVED, number)
        || contains(ipc::SERVED, number)
        || contains(network::SERVED, number)
        || passthrough::passes(number)
}

const fn contains(list: &[i64], number: i64) -> bool {
    let mut n = 0;
    while n < list.len() {
        if list[n] == number {
            return true;
        }
        n += 1;
    }
    false
}
