//! gdb's numbers of signals: up to SIGSYS they differ from Linux's in some (gdb's include/gdb/signals.def).

/// gdb's number of a signal of Linux.
pub(super) fn gdb_number(signal: i32) -> i32 {
    match signal {
        libc::SIGBUS => 10,
        libc::SIGUSR1 => 30,
        libc::SIGUSR2 => 31,
        libc::SIGCHLD => 20,
        libc::SIGCONT => 19,
        libc::SIGSTOP => 17,
        libc::SIGTSTP => 18,
        libc::SIGURG => 16,
        libc::SIGIO => 23,
        libc::SIGSYS => 12,
        // gdb has none such.
        libc::SIGSTKFLT => 143,
        libc::SIGPWR => 32,
        32 => 77,
        33..=63 => signal - 33 + 45,
        64 => 78,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_gdb() {
        let of = [libc::SIGSEGV, libc::SIGCHLD, libc::SIGUSR1, 33, 34, 63, 32, 64].map(gdb_number);
        assert_eq!(of, [11, 20, 30, 45, 46, 75, 77, 78]);
    }
}
