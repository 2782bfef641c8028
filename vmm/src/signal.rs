//! Signals as plain data: which one, why, and who sent it.

use crate::engine::Exception;
use crate::plain::plain;
use crate::ram::Virt;

/// `si_code` of a signal that the kernel made and that says no more.
pub const SI_KERNEL: i32 = 0x80;

/// A signal: how it ends a program that does not handle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The signal's number.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`; zero for a signal that has none.
    pub address: Virt,
    /// The exception that raised it, if it was one.
    pub exception: Option<Exception>,
}
plain!(struct Death { signal, code, address, exception });

impl Death {
    /// Whether the default action of the signal is a core (signal(7)), of those that a crash raises.
    #[must_use]
    pub fn leaves_core(&self) -> bool {
        const CORE_SIGNALS: [i32; 10] = [
            libc::SIGQUIT,
            libc::SIGILL,
            libc::SIGTRAP,
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGSEGV,
            libc::SIGXCPU,
            libc::SIGXFSZ,
            libc::SIGSYS,
        ];
        CORE_SIGNALS.contains(&self.signal)
    }
}

/// What `siginfo_t` says besides number, code and address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Nothing more: an exception, or the kernel itself.
    #[default]
    Kernel,
    /// A process sent it: `si_pid`, `si_uid`.
    Sender {
        /// Its id.
        pid: i32,
        /// Its real user.
        uid: u32,
    },
    /// A process queued it with a value: `si_value`.
    Queued {
        /// Its id.
        pid: i32,
        /// Its real user.
        uid: u32,
        /// The value.
        value: u64,
    },
    /// A child has changed: `si_status` and its user.
    Child {
        /// Its id.
        pid: i32,
        /// Its real user.
        uid: u32,
        /// Exit status, or the signal.
        status: i32,
    },
    /// A POSIX timer has expired: `si_timerid`, `si_overrun`, `si_value`.
    Timer {
        /// Its id.
        id: i32,
        /// How often it expired besides.
        overrun: i32,
        /// The value.
        value: u64,
    },
    /// A file is ready, or a directory has changed: `si_band`, `si_fd`.
    File {
        /// The descriptor that was named.
        number: i32,
        /// The events of poll.
        band: i64,
    },
    /// A system call is refused by a filter: `si_call_addr`, `si_syscall`, `si_errno`.
    Syscall {
        /// Where.
        address: Virt,
        /// Its number.
        number: u32,
        /// The filter's data.
        data: u32,
    },
}
plain!(enum Cause {
    0 = Kernel, 1 = Sender { pid, uid }, 2 = Queued { pid, uid, value }, 3 = Child { pid, uid, status },
    4 = Timer { id, overrun, value }, 5 = Syscall { address, number, data }, 6 = File { number, band }
});

/// A signal that was raised, with all that its handler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Which.
    pub death: Death,
    /// Who, or what.
    pub cause: Cause,
}
plain!(struct Raised { death, cause });

impl Raised {
    /// A signal without an address.
    #[must_use]
    pub fn new(signal: i32, code: i32, cause: Cause) -> Raised {
        Raised { death: Death { signal, code, address: 0, exception: None }, cause }
    }

    /// A signal of the kernel.
    #[must_use]
    pub fn by_kernel(signal: i32) -> Raised {
        Raised::new(signal, SI_KERNEL, Cause::Kernel)
    }

    /// The signal of an exception.
    #[must_use]
    pub fn exception(death: Death) -> Raised {
        Raised { death, cause: Cause::Kernel }
    }

    /// Its number.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.death.signal
    }
}

/// Signals that came from outside of the guest, as sets: bit n - 1 is signal n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Those that somebody sent to the recorder, which stands for the first process.
    pub first: u64,
    /// Those of the terminal, for all of its process group.
    pub group: u64,
}

impl Arrived {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Arrived::default()
    }
}

/// The signals in a set, in order.
pub(crate) fn in_set(set: u64) -> impl Iterator<Item = i32> {
    (1..=64).filter(move |signal| set >> (signal - 1) & 1 == 1)
}
