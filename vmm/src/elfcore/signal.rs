//! The signal that a core has, and the names of signals.

/// The signal that ended the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SignalInfo {
    /// Its number: 11 is SIGSEGV.
    pub signo: i32,
    /// Its `si_code`.
    pub code: i32,
    /// Its `si_addr`: what was touched (SIGSEGV, SIGBUS) or the instruction (SIGFPE, SIGILL, SIGTRAP). Zero for
    /// signals that a process sent.
    pub address: u64,
}

impl SignalInfo {
    /// The name in `signal.h`, or `signal N`.
    #[must_use]
    pub fn name(&self) -> String {
        signal_name(self.signo).map_or_else(|| format!("signal {}", self.signo), str::to_owned)
    }

    /// Whether it only stopped the program: so do debuggers before they write a core.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&self.signo)
    }
}

/// From 1 on.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The `signal.h` name of a signal; those of real time, which programs number themselves, have none.
#[must_use]
pub fn signal_name(signo: i32) -> Option<&'static str> {
    NAMES.get(usize::try_from(signo).ok()?.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_linux() {
        let named = [libc::SIGHUP, libc::SIGSEGV, libc::SIGSTOP, libc::SIGURG, libc::SIGSYS].map(signal_name);
        assert_eq!(named, ["SIGHUP", "SIGSEGV", "SIGSTOP", "SIGURG", "SIGSYS"].map(Some));
        assert_eq!([0, -1, 32, 64].map(signal_name), [None; 4]);
    }
}
