//! Arguments that mean what another argument says: of fcntl, ioctl, prctl, arch_prctl, futex and their kin.

use super::constants::{
    CLONE_CHILD_WORD, CLONE_PARENT_WORD, CLONE_SETTLS, FD_FLAGS, MAKES_FILE, OPEN, names,
};
use super::shape::Extent::{Bytes, String, Struct};
use super::shape::Kind::{
    Address, Enum, Fd, Flags, Hex, In, InOut, Int, Mode, Out, Pid, Signal, Size, Unsigned, Unused,
};
use super::shape::{Choices, Kind, Names};
use super::structs::{
    FLOCK64, INT, LONG, MSGINFO, MSQID, OWNER_EX, PID, SEMID, SEMINFO, SHM_INFO, SHMID, SHMINFO, TASK_NAME,
    TERMIOS, TERMIOS2, TIMESPEC, WINSIZE, WORD,
};

/// A command is an `int`.
const COMMAND: u64 = u32::MAX as u64;

const fn by(by: usize, mask: u64, table: &'static [(u64, Kind)], otherwise: Kind) -> Choices {
    Choices { by, mask, table, otherwise }
}

// open and openat: the mode, if the flags make a file.

pub(super) static OPEN_MODE: Choices = by(1, MAKES_FILE, &[(0, Unused)], Mode);
pub(super) static OPENAT_MODE: Choices = by(2, MAKES_FILE, &[(0, Unused)], Mode);

// mremap: where to, with MREMAP_FIXED.

pub(super) static REMAP_TO: Choices = by(3, 2, &[(0, Unused)], Address);

// clone: what its flags ask for.

pub(super) static CLONE_PARENT: Choices = by(0, CLONE_PARENT_WORD, &[(0, Unused)], Out(Struct(&PID)));
pub(super) static CLONE_CHILD: Choices = by(0, CLONE_CHILD_WORD, &[(0, Unused)], Address);
pub(super) static CLONE_TLS: Choices = by(0, CLONE_SETTLS, &[(0, Unused)], Address);

// fcntl.

pub(super) static FCNTL: &Names = names![
    F_DUPFD 0, F_GETFD 1, F_SETFD 2, F_GETFL 3, F_SETFL 4, F_GETLK 5, F_SETLK 6, F_SETLKW 7, F_SETOWN 8,
    F_GETOWN 9, F_SETSIG 10, F_GETSIG 11, F_SETOWN_EX 15, F_GETOWN_EX 16, F_OFD_GETLK 36, F_OFD_SETLK 37,
    F_OFD_SETLKW 38, F_SETLEASE 1024, F_GETLEASE 1025, F_NOTIFY 1026, F_CANCELLK 1029,
    F_DUPFD_CLOEXEC 1030, F_SETPIPE_SZ 1031, F_GETPIPE_SZ 1032, F_ADD_SEALS 1033, F_GET_SEALS 1034,
    F_GET_RW_HINT 1035, F_SET_RW_HINT 1036, F_GET_FILE_RW_HINT 1037, F_SET_FILE_RW_HINT 1038,
];
/// Descriptors are duplicated with F_DUPFD and F_DUPFD_CLOEXEC, flags asked for with F_GETFL and F_GETFD.
pub(super) const DUPFD: [u64; 2] = [0, 1030];
pub(super) const GETFD: u64 = 1;
pub(super) const GETFL: u64 = 3;
pub(super) static FCNTL_ARGUMENT: Choices = by(
    1,
    COMMAND,
    &[
        (0, Int),
        (1, Unused),
        (2, Flags(&FD_FLAGS)),
        (3, Unused),
        (4, Flags(&OPEN)),
        (5, InOut(Struct(&FLOCK64))),
        (6, In(Struct(&FLOCK64))),
        (7, In(Struct(&FLOCK64))),
        (8, Pid),
        (9, Unused),
        (10, Signal),
        (11, Unused),
        (15, In(Struct(&OWNER_EX))),
        (16, Out(Struct(&OWNER_EX))),
        (36, InOut(Struct(&FLOCK64))),
        (37, In(Struct(&FLOCK64))),
        (38, In(Struct(&FLOCK64))),
        (1025, Unused),
        (1030, Int),
        (1031, Unsigned),
        (1032, Unused),
        (1034, Unused),
        (1035, Out(Struct(&LONG))),
        (1036, In(Struct(&LONG))),
        (1037, Out(Struct(&LONG))),
        (1038, In(Struct(&LONG))),
    ],
    Hex,
);

// futex: which arguments there are, and which words the kernel itself changes.

pub(super) static FUTEX: &Names = &[
    (0, "FUTEX_WAIT"),
    (1, "FUTEX_WAKE"),
    (2, "FUTEX_FD"),
    (3, "FUTEX_REQUEUE"),
    (4, "FUTEX_CMP_REQUEUE"),
    (5, "FUTEX_WAKE_OP"),
    (6, "FUTEX_LOCK_PI"),
    (7, "FUTEX_UNLOCK_PI"),
    (8, "FUTEX_TRYLOCK_PI"),
    (9, "FUTEX_WAIT_BITSET"),
    (10, "FUTEX_WAKE_BITSET"),
    (11, "FUTEX_WAIT_REQUEUE_PI"),
    (12, "FUTEX_CMP_REQUEUE_PI"),
    (13, "FUTEX_LOCK_PI2"),
];
/// The bits beside the operation of futex.
pub(super) const FUTEX_PRIVATE: u64 = 0x80;
pub(super) const FUTEX_REALTIME: u64 = 0x100;
const FUTEX_OPERATION: u64 = COMMAND & !(FUTEX_PRIVATE | FUTEX_REALTIME);

/// A word that the kernel itself changes.
const CHANGED_WORD: Kind = InOut(Struct(&super::structs::FUTEX));

pub(super) static FUTEX_WORD: Choices = by(
    1,
    FUTEX_OPERATION,
    &[(6, CHANGED_WORD), (7, CHANGED_WORD), (8, CHANGED_WORD), (13, CHANGED_WORD)],
    Address,
);
pub(super) static FUTEX_VALUE: Choices = by(1, FUTEX_OPERATION, &[(7, Unused), (8, Unused)], Unsigned);
pub(super) static FUTEX_TIME: Choices = by(
    1,
    FUTEX_OPERATION,
    &[
        (1, Unused),
        (2, Unused),
        (3, Unsigned),
        (4, Unsigned),
        (5, Unsigned),
        (7, Unused),
        (8, Unused),
        (10, Unused),
        (12, Unsigned),
    ],
    In(Struct(&TIMESPEC)),
);
pub(super) static FUTEX_SECOND: Choices = by(
    1,
    FUTEX_OPERATION,
    &[(3, Address), (4, Address), (5, CHANGED_WORD), (11, CHANGED_WORD), (12, CHANGED_WORD)],
    Unused,
);
pub(super) static FUTEX_LAST: Choices = by(
    1,
    FUTEX_OPERATION,
    &[(4, Unsigned), (5, Hex), (9, Enum(BITSET)), (10, Enum(BITSET)), (12, Unsigned)],
    Unused,
);
static BITSET: &Names = names![FUTEX_BITSET_MATCH_ANY 0xffff_ffff];

// prctl and arch_prctl.

pub(super) static PRCTL: &Names = names![
    PR_SET_PDEATHSIG 1, PR_GET_PDEATHSIG 2, PR_GET_DUMPABLE 3, PR_SET_DUMPABLE 4, PR_GET_UNALIGN 5,
    PR_SET_UNALIGN 6, PR_GET_KEEPCAPS 7, PR_SET_KEEPCAPS 8, PR_GET_TIMING 13, PR_SET_TIMING 14,
    PR_SET_NAME 15, PR_GET_NAME 16, PR_GET_SECCOMP 21, PR_SET_SECCOMP 22, PR_CAPBSET_READ 23,
    PR_CAPBSET_DROP 24, PR_GET_TSC 25, PR_SET_TSC 26, PR_GET_SECUREBITS 27, PR_SET_SECUREBITS 28,
    PR_SET_TIMERSLACK 29, PR_GET_TIMERSLACK 30, PR_MCE_KILL 33, PR_MCE_KILL_GET 34, PR_SET_MM 35,
    PR_SET_CHILD_SUBREAPER 36, PR_GET_CHILD_SUBREAPER 37, PR_SET_NO_NEW_PRIVS 38, PR_GET_NO_NEW_PRIVS 39,
    PR_GET_TID_ADDRESS 40, PR_SET_THP_DISABLE 41, PR_GET_THP_DISABLE 42, PR_CAP_AMBIENT 47,
    PR_GET_SPECULATION_CTRL 52, PR_SET_SPECULATION_CTRL 53, PR_SET_IO_FLUSHER 57, PR_GET_IO_FLUSHER 58,
    PR_SCHED_CORE 62, PR_SET_VMA 0x5356_4d41, PR_SET_PTRACER 0x5961_6d61,
];
/// The first argument of an option.
pub(super) static PRCTL_FIRST: Choices = by(
    0,
    COMMAND,
    &[
        (1, Signal),
        (2, Out(Struct(&INT))),
        (3, Unused),
        (5, Out(Struct(&INT))),
        (7, Unused),
        (15, In(String)),
        (16, Out(Struct(&TASK_NAME))),
        (21, Unused),
        (25, Out(Struct(&INT))),
        (27, Unused),
        (30, Unused),
        (37, Out(Struct(&INT))),
        (40, Out(Struct(&WORD))),
    ],
    Size,
);
/// The others: only some options look at them, and strace prints them for those.
pub(super) static PRCTL_REST: Choices = by(
    0,
    COMMAND,
    &[
        (1, Unused),
        (2, Unused),
        (3, Unused),
        (4, Unused),
        (5, Unused),
        (6, Unused),
        (7, Unused),
        (8, Unused),
        (13, Unused),
        (14, Unused),
        (15, Unused),
        (16, Unused),
        (21, Unused),
        (23, Unused),
        (24, Unused),
        (25, Unused),
        (26, Unused),
        (27, Unused),
        (28, Unused),
        (29, Unused),
        (30, Unused),
        (36, Unused),
        (37, Unused),
        (40, Unused),
        (0x5961_6d61, Unused),
    ],
    Hex,
);
pub(super) static ARCH_PRCTL: &Names = names![
    ARCH_SET_GS 0x1001, ARCH_SET_FS 0x1002, ARCH_GET_FS 0x1003, ARCH_GET_GS 0x1004, ARCH_GET_CPUID 0x1011,
    ARCH_SET_CPUID 0x1012, ARCH_GET_XCOMP_SUPP 0x1021, ARCH_GET_XCOMP_PERM 0x1022,
    ARCH_REQ_XCOMP_PERM 0x1023, ARCH_SHSTK_ENABLE 0x5001, ARCH_SHSTK_DISABLE 0x5002,
    ARCH_SHSTK_STATUS 0x5005,
];
pub(super) static ARCH_PRCTL_ARGUMENT: Choices = by(
    0,
    COMMAND,
    &[
        (0x1003, Out(Struct(&WORD))),
        (0x1004, Out(Struct(&WORD))),
        (0x1011, Unused),
        (0x1021, Out(Struct(&WORD))),
        (0x1022, Out(Struct(&WORD))),
        (0x5005, Out(Struct(&WORD))),
    ],
    Hex,
);

// System V: what the command asks about.

const IPC_64: u64 = COMMAND & !0x100;
pub(super) static IPC_CONTROL: &Names = names![
    IPC_RMID 0, IPC_SET 1, IPC_STAT 2, IPC_INFO 3, SHM_LOCK 11, SHM_UNLOCK 12, SHM_STAT 13, SHM_INFO 14,
    SHM_STAT_ANY 15,
];
pub(super) static SHM_BUFFER: Choices = by(
    1,
    IPC_64,
    &[
        (0, Address),
        (1, In(Struct(&SHMID))),
        (2, Out(Struct(&SHMID))),
        (3, Out(Struct(&SHMINFO))),
        (11, Address),
        (12, Address),
        (13, Out(Struct(&SHMID))),
        (14, Out(Struct(&SHM_INFO))),
        (15, Out(Struct(&SHMID))),
    ],
    Out(Struct(&SHMID)),
);
pub(super) static MSG_CONTROL: &Names =
    names![IPC_RMID 0, IPC_SET 1, IPC_STAT 2, IPC_INFO 3, MSG_STAT 11, MSG_INFO 12, MSG_STAT_ANY 13];
pub(super) static MSG_BUFFER: Choices = by(
    1,
    IPC_64,
    &[
        (0, Address),
        (1, In(Struct(&MSQID))),
        (2, Out(Struct(&MSQID))),
        (3, Out(Struct(&MSGINFO))),
        (11, Out(Struct(&MSQID))),
        (12, Out(Struct(&MSGINFO))),
        (13, Out(Struct(&MSQID))),
    ],
    Out(Struct(&MSQID)),
);
pub(super) static SEM_CONTROL: &Names = names![
    IPC_RMID 0, IPC_SET 1, IPC_STAT 2, IPC_INFO 3, GETPID 11, GETVAL 12, GETALL 13, GETNCNT 14, GETZCNT 15,
    SETVAL 16, SETALL 17, SEM_STAT 18, SEM_INFO 19, SEM_STAT_ANY 20,
];
/// The argument of semctl; that of GETALL is as long as the set, which no argument tells.
pub(super) static SEM_BUFFER: Choices = by(
    2,
    IPC_64,
    &[
        (0, Unused),
        (1, In(Struct(&SEMID))),
        (2, Out(Struct(&SEMID))),
        (3, Out(Struct(&SEMINFO))),
        (11, Unused),
        (12, Unused),
        (14, Unused),
        (15, Unused),
        (16, Int),
        (17, Address),
        (18, Out(Struct(&SEMID))),
        (19, Out(Struct(&SEMINFO))),
        (20, Out(Struct(&SEMID))),
    ],
    Out(super::shape::Extent::Unknown),
);

// ioctl.

/// Number, name and argument of the requests that programs make of terminals, pipes, files and sockets.
static REQUESTS: &[(u64, &str, Kind)] = &[
    (0x5401, "TCGETS", Out(Struct(&TERMIOS))),
    (0x5402, "TCSETS", In(Struct(&TERMIOS))),
    (0x5403, "TCSETSW", In(Struct(&TERMIOS))),
    (0x5404, "TCSETSF", In(Struct(&TERMIOS))),
    (0x5409, "TCSBRK", Int),
    (0x540a, "TCXONC", Int),
    (0x540b, "TCFLSH", Int),
    (0x540e, "TIOCSCTTY", Int),
    (0x540f, "TIOCGPGRP", Out(Struct(&PID))),
    (0x5410, "TIOCSPGRP", In(Struct(&PID))),
    (0x5411, "TIOCOUTQ", Out(Struct(&INT))),
    (0x5412, "TIOCSTI", In(Bytes(1))),
    (0x5413, "TIOCGWINSZ", Out(Struct(&WINSIZE))),
    (0x5414, "TIOCSWINSZ", In(Struct(&WINSIZE))),
    (0x541b, "FIONREAD", Out(Struct(&INT))),
    (0x5421, "FIONBIO", In(Struct(&INT))),
    (0x5422, "TIOCNOTTY", Unused),
    (0x5429, "TIOCGSID", Out(Struct(&PID))),
    (0x5450, "FIONCLEX", Unused),
    (0x5451, "FIOCLEX", Unused),
    (0x5452, "FIOASYNC", In(Struct(&INT))),
    (0x8901, "FIOSETOWN", In(Struct(&PID))),
    (0x8902, "SIOCSPGRP", In(Struct(&PID))),
    (0x8903, "FIOGETOWN", Out(Struct(&PID))),
    (0x8904, "SIOCGPGRP", Out(Struct(&PID))),
    (0x8912, "SIOCGIFCONF", Out(super::shape::Extent::Unknown)),
    (0x8913, "SIOCGIFFLAGS", InOut(Bytes(40))),
    (0x8915, "SIOCGIFADDR", InOut(Bytes(40))),
    (0x8921, "SIOCGIFMTU", InOut(Bytes(40))),
    (0x8927, "SIOCGIFHWADDR", InOut(Bytes(40))),
    (0x8933, "SIOCGIFINDEX", InOut(Bytes(40))),
    (0x4004_9409, "BTRFS_IOC_CLONE or FICLONE", Fd),
    (0x4004_5431, "TIOCSPTLCK", In(Struct(&INT))),
    (0x8004_5430, "TIOCGPTN", Out(Struct(&INT))),
    (0x802c_542a, "TCGETS2", Out(Struct(&TERMIOS2))),
];

/// The name of a request of ioctl.
pub(super) fn request_name(request: u64) -> Option<&'static str> {
    REQUESTS.iter().find(|(number, ..)| *number == request & COMMAND).map(|(_, name, _)| *name)
}

/// What the argument of a request is: by the table, else by the direction and the size that newer requests hold in
/// their number. Of one that is not known, the largest answer that libc asks for is assumed.
pub(super) fn request_argument(request: Option<u64>) -> Kind {
    let Some(request) = request.map(|request| request & COMMAND) else { return Out(Struct(&TERMIOS)) };
    if let Some((.., kind)) = REQUESTS.iter().find(|(number, ..)| *number == request) {
        return *kind;
    }
    match (request >> 30, request >> 16 & 0x3fff) {
        // Without a direction, from before the convention or with a number as argument.
        (0, _) => Out(Struct(&TERMIOS)),
        (1, size) => In(Bytes(size)),
        (2, size) => Out(Bytes(size)),
        (_, size) => InOut(Bytes(size)),
    }
}
