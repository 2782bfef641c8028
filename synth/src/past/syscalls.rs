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
    /// Maps zeroed memory at the address that it returns; argument 1 is the length.
    MapsZeroes,
}

/// The hardware numbers of the argument registers, in the order of the arguments.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];

/// The effect of system call `number`; `None` if the search cannot go past it.
#[must_use]
pub fn effect(number: u64) -> Option<Effect> {
    let fixed = |argument, bytes| Some(Effect::Writes(Output { argument, size: Size::Fixed(bytes) }));
    match number {
        // read, pread64, getrandom (whose buffer is its first argument), readlink
        0 | 17 => Some(Effect::Writes(Output { argument: 1, size: Size::Result })),
        318 => Some(Effect::Writes(Output { argument: 0, size: Size::Result })),
        89 => Some(Effect::Writes(Output { argument: 1, size: Size::Result })),
        // fstat; newfstatat: struct stat
        5 => fixed(1, 144),
        262 => fixed(2, 144),
        // mmap
        9 => Some(Effect::MapsZeroes),
        // rt_sigaction: the old action; rt_sigprocmask: the old set
        13 => fixed(2, 32),
        14 => fixed(2, 8),
        // clock_gettime: struct timespec; gettimeofday and time
        228 => fixed(1, 16),
        96 => fixed(0, 16),
        // write, open, close, lseek, writev, getpid, kill, fcntl, getuid.. getegid, gettid, openat, tgkill, exit_group
        1 | 2 | 3 | 8 | 20 | 39 | 62 | 72 | 102 | 104 | 107 | 108 | 186 | 257 | 234 | 231 => {
            Some(Effect::None)
        }
        _ => None,
    }
}
