//! The structures that calls read and write: their sizes, and what is shown of them.

use super::constants::{CLONE, EPOLL, LOCK, POLL, SEEK, SIGSTACK, STATX_MASK};
use super::shape::Kind::{
    Address, Device, Enum, Fd, FileType, Flags, Hex, Int, Long, Nested, Off, Pid, Signal, Size, Unsigned,
};
use super::shape::{Field, Form, Kind, Struct};

/// Fields: name, place, width, kind.
macro_rules! fields {
    ($($name:ident $at:literal $width:literal $kind:expr),* $(,)?) => {
        &[$(Field { name: stringify!($name), at: $at, width: $width, kind: $kind }),*]
    };
}

/// Structures of which nothing is shown: name and size.
macro_rules! opaque {
    ($($constant:ident $name:literal $size:literal),* $(,)?) => {
        $(pub(super) static $constant: Struct = Struct { name: $name, size: $size, form: Form::Opaque };)*
    };
}

const fn shown(name: &'static str, size: u64, form: Form) -> Struct {
    Struct { name, size, form }
}

const fn number(name: &'static str, size: u64, kind: Kind) -> Struct {
    Struct { name, size, form: Form::Number(kind) }
}

pub(super) static BYTE: Struct = shown("char", 1, Form::Text);
pub(super) static INT: Struct = number("int", 4, Int);
pub(super) static FD: Struct = number("int", 4, Fd);
pub(super) static PID: Struct = number("pid_t", 4, Pid);
pub(super) static UNSIGNED: Struct = number("unsigned int", 4, Unsigned);
pub(super) static LONG: Struct = number("long", 8, Long);
pub(super) static WORD: Struct = number("unsigned long", 8, Hex);
pub(super) static WORDS: Struct = shown("unsigned long", 8, Form::Array(&WORD));
pub(super) static TWO_FDS: Struct = shown("int", 8, Form::Array(&FD));
/// A value of a socket's option: mostly numbers of 32 bits.
pub(super) static OPTION: Struct = shown("option", 4, Form::Array(&INT));
/// Bytes that are no text: entries of a directory, words that the kernel keeps.
pub(super) static BYTES: Struct = shown("bytes", 1, Form::Hidden);
pub(super) static RSEQ: Struct = shown("rseq", 32, Form::Hidden);
pub(super) static FUTEX: Struct = shown("futex", 4, Form::Hidden);
pub(super) static NOISE: Struct = shown("bytes", 1, Form::Random);
pub(super) static TASK_NAME: Struct = shown("comm", 16, Form::Text);

pub(super) static TIMESPEC: Struct =
    shown("timespec", 16, Form::Whole(fields![tv_sec 0 8 Long, tv_nsec 8 8 Long]));
pub(super) static TIMEVAL: Struct =
    shown("timeval", 16, Form::Whole(fields![tv_sec 0 8 Long, tv_usec 8 8 Long]));
pub(super) static TIMESPECS: Struct = shown("timespec", 32, Form::Array(&TIMESPEC));
pub(super) static TIMEVALS: Struct = shown("timeval", 32, Form::Array(&TIMEVAL));
pub(super) static TIMEZONE: Struct =
    shown("timezone", 8, Form::Whole(fields![tz_minuteswest 0 4 Int, tz_dsttime 4 4 Int]));
pub(super) static ITIMERVAL: Struct = shown(
    "itimerval",
    32,
    Form::Whole(fields![it_interval 0 16 Nested(&TIMEVAL), it_value 16 16 Nested(&TIMEVAL)]),
);
pub(super) static ITIMERSPEC: Struct = shown(
    "itimerspec",
    32,
    Form::Whole(fields![it_interval 0 16 Nested(&TIMESPEC), it_value 16 16 Nested(&TIMESPEC)]),
);
pub(super) static UTIMBUF: Struct =
    shown("utimbuf", 16, Form::Whole(fields![actime 0 8 Long, modtime 8 8 Long]));
pub(super) static TMS: Struct = shown(
    "tms",
    32,
    Form::Whole(fields![tms_utime 0 8 Long, tms_stime 8 8 Long, tms_cutime 16 8 Long, tms_cstime 24 8 Long]),
);

pub(super) static STAT: Struct =
    shown("stat", 144, Form::Part(fields![st_mode 24 4 FileType, st_size 48 8 Long]));
/// `struct stat` of a device, of which the device is shown.
pub(super) static DEVICE_STAT: Struct =
    shown("stat", 144, Form::Part(fields![st_mode 24 4 FileType, st_rdev 40 8 Device]));
pub(super) static STATX: Struct = shown(
    "statx",
    256,
    Form::Part(fields![
        stx_mask 0 4 Flags(&STATX_MASK), stx_attributes 8 8 Hex, stx_mode 28 2 FileType,
        stx_size 40 8 Long,
    ]),
);
pub(super) static FLOCK64: Struct = shown(
    "flock",
    32,
    Form::Whole(fields![
        l_type 0 2 Enum(LOCK), l_whence 2 2 Enum(SEEK), l_start 8 8 Off, l_len 16 8 Off, l_pid 24 4 Pid,
    ]),
);
pub(super) static OPEN_HOW: Struct = shown(
    "open_how",
    24,
    Form::Whole(fields![flags 0 8 Flags(&super::constants::OPEN), mode 8 8 Kind::Mode, resolve 16 8 Hex]),
);

pub(super) static RLIMIT: Struct =
    shown("rlimit", 16, Form::Whole(fields![rlim_cur 0 8 Kind::Limit, rlim_max 8 8 Kind::Limit]));
pub(super) static RUSAGE: Struct = shown(
    "rusage",
    144,
    Form::Part(fields![ru_utime 0 16 Nested(&TIMEVAL), ru_stime 16 16 Nested(&TIMEVAL)]),
);
pub(super) static UTSNAME: Struct = shown(
    "utsname",
    390,
    Form::Part(fields![sysname 0 65 Nested(&NAME_FIELD), nodename 65 65 Nested(&NAME_FIELD)]),
);
static NAME_FIELD: Struct = shown("char", 65, Form::Text);
pub(super) static SYSINFO: Struct =
    shown("sysinfo", 112, Form::Part(fields![uptime 0 8 Long, totalram 32 8 Size, freeram 40 8 Size]));
pub(super) static CLONE_ARGS: Struct = shown(
    "clone_args",
    88,
    Form::Part(fields![
        flags 0 8 Flags(&CLONE), exit_signal 32 8 Signal, stack 40 8 Address, stack_size 48 8 Hex,
    ]),
);

pub(super) static SIGSET: Struct = shown("sigset_t", 8, Form::Signals);
pub(super) static SIGACTION: Struct = shown("sigaction", 32, Form::Action);
pub(super) static STACK: Struct = shown(
    "stack_t",
    24,
    Form::Whole(fields![ss_sp 0 8 Address, ss_flags 8 4 Flags(&SIGSTACK), ss_size 16 8 Size]),
);
pub(super) static SIGINFO: Struct =
    shown("siginfo_t", 128, Form::Part(fields![si_signo 0 4 Signal, si_errno 4 4 Int, si_code 8 4 Int]));
pub(super) static STATUS: Struct = shown("int", 4, Form::Status);
/// The last argument of pselect6 and io_pgetevents: the address of a set of signals, and its size.
pub(super) static SIGSET_ARGUMENT: Struct =
    shown("sigset_argpack", 16, Form::Whole(fields![sigmask 0 8 Address, sigsetsize 8 8 Size]));

pub(super) static POLLFD: Struct =
    shown("pollfd", 8, Form::Whole(fields![fd 0 4 Fd, events 4 2 Flags(&POLL)]));
/// The same, as the answer of poll.
pub(super) static POLLED: Struct =
    shown("pollfd", 8, Form::Whole(fields![fd 0 4 Fd, revents 6 2 Flags(&POLL)]));
pub(super) static EPOLL_EVENT: Struct =
    shown("epoll_event", 12, Form::Whole(fields![events 0 4 Flags(&EPOLL), data 4 8 Nested(&EPOLL_DATA)]));
static EPOLL_DATA: Struct = shown("epoll_data", 8, Form::Whole(fields![u32 0 4 Unsigned, u64 0 8 Size]));

pub(super) static SOCKADDR: Struct = shown("sockaddr", 128, Form::Socket);
pub(super) static WINSIZE: Struct = shown(
    "winsize",
    8,
    Form::Whole(
        fields![ws_row 0 2 Unsigned, ws_col 2 2 Unsigned, ws_xpixel 4 2 Unsigned, ws_ypixel 6 2 Unsigned],
    ),
);
/// A set of processors.
pub(super) static CPUS: Struct = shown("cpu_set_t", 8, Form::Members);
/// A byte of it: the call returns how many it wrote.
pub(super) static CPUS_BYTES: Struct = shown("cpu_set_t", 1, Form::Members);

opaque! {
    ATTR "attr" 64, CACHESTAT "cachestat" 40, CACHE_RANGE "cachestat_range" 16,
    CAP_DATA "cap_user_data" 24, CAP_HEADER "cap_user_header" 8, FILE_HANDLE "file_handle" 8,
    FUTEX_WAITV "futex_waitv" 24, IO_EVENT "io_event" 32, IO_URING_PARAMS "io_uring_params" 120,
    KEXEC_SEGMENT "kexec_segment" 32, LANDLOCK_ATTR "landlock_ruleset_attr" 16, LSM_CONTEXT "lsm_ctx" 32,
    MNT_ID_REQ "mnt_id_req" 24, MOUNT_ATTR "mount_attr" 32, MQ_ATTR "mq_attr" 64, MSGINFO "msginfo" 32,
    MSQID "msqid_ds" 120, OWNER_EX "f_owner_ex" 8, PERF_ATTR "perf_event_attr" 64,
    SCHED_ATTR "sched_attr" 56, SEMBUF "sembuf" 6, SEMID "semid_ds" 104, SEMINFO "seminfo" 40,
    SHMID "shmid_ds" 112, SHMINFO "shminfo" 72, SHM_INFO "shm_info" 48, SIGEVENT "sigevent" 64,
    STATFS "statfs" 120, STATMOUNT "statmount" 512, TERMIOS "termios" 36, TERMIOS2 "termios2" 44,
    TIMEX "timex" 208, USTAT "ustat" 32,
}
