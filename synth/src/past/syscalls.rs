//! What the kernel does to the program in a system call, as far as the search needs it (Linux x86-64 ABI;
//! the sizes are those of the kernel's structures).

/// Bytes that the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Which argument holds the address: 0 rdi, 1 rsi, 2 rdx, 3 r10, 4 r8, 5 r9.
    pub argument: u8,
    /// How many bytes.
    pub size: Size,
}

/// How many bytes the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A fixed number.
    Fixed(u64),
    /// As many as the call returned, if it did not fail.
    Result,
}

/// The effect of a system call on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None.
    None,
    /// One structure or buffer; nothing if the argument is null.
    Writes(Output),
    /// Maps memory at the address that it returns: zeroed, if argument 3 says that there is no file. Argument 1 is
    /// the length.
    Maps,
}

/// The hardware numbers of the argument registers, in the order of the arguments.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];

/// The effect of system call `number`; `None` if the search cannot go past it.
#[must_use]
pub fn effect(number: u64) -> Option<Effect> {
    let fixed = |argument, bytes| Some(Effect::Writes(Output { argument, size: Size::Fixed(bytes) }));
    let counted = |argument| Some(Effect::Writes(Output { argument, size: Size::Result }));
    match number {
        // read, pread64, readlink, getdents64; getrandom, getcwd: as many bytes as they return
        0 | 17 | 89 | 217 => counted(1),
        79 | 318 => counted(0),
        // fstat, newfstatat: struct stat; statx: struct statx
        5 => fixed(1, 144),
        262 => fixed(2, 144),
        332 => fixed(4, 256),
        // mmap
        9 => Some(Effect::Maps),
        // rt_sigaction: the old action; rt_sigprocmask: the old set; sigaltstack: the old stack
        13 => fixed(2, 32),
        14 => fixed(2, 8),
        131 => fixed(1, 24),
        // ioctl on a terminal: struct termios, the largest of the answers that libc asks for
        16 => fixed(2, 36),
        // clock_gettime, gettimeofday, nanosleep, clock_nanosleep: one pair of words
        228 | 35 => fixed(1, 16),
        96 => fixed(0, 16),
        230 => fixed(3, 16),
        // prlimit64: the old limit; uname: struct utsname; pipe, pipe2: two descriptors
        302 => fixed(3, 16),
        63 => fixed(0, 390),
        22 | 293 => fixed(0, 8),
        // write, open, close, lseek, mprotect, brk, pwrite64, writev, access, sched_yield, dup, dup2, getpid, kill, fcntl,
        // fsync, ftruncate, chdir, rename, mkdir, unlink, umask, the identity calls, gettid, futex,
        // tkill, set_tid_address, exit_group, tgkill, openat, set_robust_list, rseq
        1 | 2 | 3 | 8 | 10 | 12 | 18 | 20 | 21 | 24 | 32 | 33 | 39 | 62 | 72 | 74 | 77 | 80 | 82 | 83
        | 87 | 95 | 102 | 104 | 107 | 108 | 110 | 186 | 200 | 202 | 218 | 231 | 234 | 257 | 273 | 334 => {
            Some(Effect::None)
        }
        _ => None,
    }
}
