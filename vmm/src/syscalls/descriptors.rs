//! Calls on descriptors themselves: making, duplicating and closing them, asking them, waiting for them.

use super::commands::{FCNTL, FCNTL_ARGUMENT};
use super::constants::{
    CLOSE_RANGE, EPOLL_CREATE, EPOLL_OPERATION, EVENTFD, INOTIFY, INOTIFY_INIT, MEMFD, OPEN, PIPE, SIGNALFD,
    TIMERFD, TIMERFD_SET,
};
use super::rows;
use super::shape::Beyond::{Mappings, Memory};
use super::shape::Extent::{ArgTimes, Bits, ResultTimes, Struct};
use super::shape::Kind::{
    Address, By, Clock, Command, DirFd, Enum, Fd, Flags, Hex, In, InOut, Int, Long, Out, Path, Request, Size,
    Unsigned,
};
use super::shape::Mapping::{Attach, Unmap};
use super::shape::Served::{Missing, Mixed, Ours};
use super::structs::{
    EPOLL_EVENT, IO_EVENT, IO_URING_PARAMS, ITIMERSPEC, POLLFD, SIGSET, SIGSET_ARGUMENT, TIMESPEC, TIMEVAL,
    TWO_FDS, WORD,
};

rows! {
    3 close(fd: Fd) -> Int, Ours;
    7 poll(fds: InOut(ArgTimes(1, &POLLFD)), nfds: Unsigned, timeout: Int) -> Ready, Mixed;
    16 ioctl(fd: Fd, request: Command, argp: Request(1)) -> Int, Mixed;
    22 pipe(pipefd: Out(Struct(&TWO_FDS))) -> Int, Mixed;
    23 select(nfds: Int, readfds: InOut(Bits(0)), writefds: InOut(Bits(0)), exceptfds: InOut(Bits(0)),
        timeout: InOut(Struct(&TIMEVAL))) -> Size, Mixed;
    32 dup(oldfd: Fd) -> Fd, Ours;
    33 dup2(oldfd: Fd, newfd: Fd) -> Fd, Ours;
    72 fcntl(fd: Fd, cmd: Enum(FCNTL), arg: By(&FCNTL_ARGUMENT)) -> Fcntl, Mixed;
    206 io_setup(nr_events: Unsigned, ctx_idp: Out(Struct(&WORD))) -> Int, Missing, Mappings(Attach);
    207 io_destroy(ctx_id: Hex) -> Int, Missing, Mappings(Unmap);
    208 io_getevents(ctx_id: Hex, min_nr: Long, nr: Long, events: Out(ResultTimes(2, &IO_EVENT)),
        timeout: In(Struct(&TIMESPEC))) -> Size, Missing, Memory;
    209 io_submit(ctx_id: Hex, nr: Long, iocbpp: Address) -> Size, Missing, Memory;
    210 io_cancel(ctx_id: Hex, iocb: Address, result: Out(Struct(&IO_EVENT))) -> Int, Missing, Memory;
    213 epoll_create(size: Int) -> Fd, Mixed;
    214 epoll_ctl_old() -> Int, Missing;
    215 epoll_wait_old() -> Int, Missing;
    232 epoll_wait(epfd: Fd, events: Out(ResultTimes(2, &EPOLL_EVENT)), maxevents: Int,
        timeout: Int) -> Size, Mixed;
    233 epoll_ctl(epfd: Fd, op: Enum(EPOLL_OPERATION), fd: Fd, event: In(Struct(&EPOLL_EVENT))) -> Int, Mixed;
    253 inotify_init() -> Fd, Mixed;
    254 inotify_add_watch(fd: Fd, pathname: Path, mask: Flags(&INOTIFY)) -> Int, Mixed;
    255 inotify_rm_watch(fd: Fd, wd: Int) -> Int, Mixed;
    270 pselect6(nfds: Int, readfds: InOut(Bits(0)), writefds: InOut(Bits(0)), exceptfds: InOut(Bits(0)),
        timeout: InOut(Struct(&TIMESPEC)), sigmask: In(Struct(&SIGSET_ARGUMENT))) -> Size, Mixed;
    271 ppoll(fds: InOut(ArgTimes(1, &POLLFD)), nfds: Unsigned, timeout: InOut(Struct(&TIMESPEC)),
        sigmask: In(Struct(&SIGSET)), sigsetsize: Size) -> Ready, Mixed;
    281 epoll_pwait(epfd: Fd, events: Out(ResultTimes(2, &EPOLL_EVENT)), maxevents: Int, timeout: Int,
        sigmask: In(Struct(&SIGSET)), sigsetsize: Size) -> Size, Mixed;
    282 signalfd(fd: Fd, mask: In(Struct(&SIGSET)), sizemask: Size) -> Fd, Mixed;
    283 timerfd_create(clockid: Clock, flags: Flags(&TIMERFD)) -> Fd, Mixed;
    284 eventfd(initval: Unsigned) -> Fd, Mixed;
    286 timerfd_settime(fd: Fd, flags: Flags(&TIMERFD_SET), new_value: In(Struct(&ITIMERSPEC)),
        old_value: Out(Struct(&ITIMERSPEC))) -> Int, Ours;
    287 timerfd_gettime(fd: Fd, curr_value: Out(Struct(&ITIMERSPEC))) -> Int, Ours;
    289 signalfd4(fd: Fd, mask: In(Struct(&SIGSET)), sizemask: Size, flags: Flags(&SIGNALFD)) -> Fd, Mixed;
    290 eventfd2(initval: Unsigned, flags: Flags(&EVENTFD)) -> Fd, Mixed;
    291 epoll_create1(flags: Flags(&EPOLL_CREATE)) -> Fd, Mixed;
    292 dup3(oldfd: Fd, newfd: Fd, flags: Flags(&PIPE)) -> Fd, Ours;
    293 pipe2(pipefd: Out(Struct(&TWO_FDS)), flags: Flags(&PIPE)) -> Int, Mixed;
    294 inotify_init1(flags: Flags(&INOTIFY_INIT)) -> Fd, Mixed;
    300 fanotify_init(flags: Hex, event_f_flags: Flags(&OPEN)) -> Fd, Missing;
    301 fanotify_mark(fanotify_fd: Fd, flags: Hex, mask: Hex, dirfd: DirFd, pathname: Path) -> Int, Missing;
    319 memfd_create(name: Path, flags: Flags(&MEMFD)) -> Fd, Mixed;
    333 io_pgetevents(ctx_id: Hex, min_nr: Long, nr: Long, events: Out(ResultTimes(2, &IO_EVENT)),
        timeout: In(Struct(&TIMESPEC)), sig: In(Struct(&SIGSET_ARGUMENT))) -> Size, Missing, Memory;
    425 io_uring_setup(entries: Unsigned, params: InOut(Struct(&IO_URING_PARAMS))) -> Fd, Missing;
    426 io_uring_enter(fd: Fd, to_submit: Unsigned, min_complete: Unsigned, flags: Hex, sig: Address,
        sigsz: Size) -> Size, Missing, Memory;
    427 io_uring_register(fd: Fd, opcode: Unsigned, arg: Address, nr_args: Unsigned) -> Int, Missing, Memory;
    436 close_range(first: Unsigned, last: Unsigned, flags: Flags(&CLOSE_RANGE)) -> Int, Ours;
    441 epoll_pwait2(epfd: Fd, events: Out(ResultTimes(2, &EPOLL_EVENT)), maxevents: Int,
        timeout: In(Struct(&TIMESPEC)), sigmask: In(Struct(&SIGSET)), sigsetsize: Size) -> Size, Mixed;
}
