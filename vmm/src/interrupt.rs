//! Ctrl-C and its like: a signal to gretel makes the engine come back, so that a recording ends in order. Those that are as a
//! rule meant for the program, as SIGUSR1, do not reach it; that is said, and the recording goes on.

use crate::engine::Interrupter;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// What the signal handler needs: set once, before the handler is installed.
struct Target {
    interrupter: Interrupter,
    /// The thread that runs the engine; KVM_RUN and system calls come back only when the signal arrives there.
    thread: libc::pid_t,
}

static TARGET: OnceLock<Target> = OnceLock::new();

/// The first signal that arrived, or zero.
static ARRIVED: AtomicI32 = AtomicI32::new(0);

/// The signal that interrupted the engine, if one did.
#[must_use]
pub fn arrived() -> Option<i32> {
    Some(ARRIVED.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// From now on a file that would outgrow `ulimit -f` is an error (EFBIG) to who writes it, not the end of the process.
/// Children inherit that.
pub fn survive_file_size_limit() {
    // SAFETY: SIG_IGN runs no code of ours, and a signal's number that exists cannot be refused.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on SIGINT, SIGTERM and SIGHUP interrupt the engine, which runs on the calling thread; those of them that whoever started
/// gretel has ignored (nohup, a shell's background) stay so. For the rest of the process's life: a command records once.
///
/// # Errors
/// When a handler cannot be installed.
pub fn stop_on_signals(interrupter: Interrupter) -> io::Result<()> {
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    if TARGET.set(Target { interrupter, thread }).is_err() {
        return Err(io::Error::other("signals already interrupt another engine"));
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal, on_signal)?;
    }
    for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGIO] {
        handle(signal, on_signal_for_the_program)?;
    }
    Ok(())
}

/// Installs a handler that does only what a signal handler may, unless the signal is ignored.
fn handle(signal: i32, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value (no flags, empty mask, default handler).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is initialised; the handler is one of the two below; `before` may be written.
    if unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction == libc::SIG_IGN {
        // SAFETY: what the kernel gave is what it takes.
        unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
    }
    Ok(())
}

/// Says that a signal does not reach the program. One system call only, as a signal handler must; errno is as before.
extern "C" fn on_signal_for_the_program(_signal: libc::c_int) {
    const SAID: &[u8] =
        b"gretel: a signal was sent to gretel itself; signals from outside do not reach the program \
        (SIGINT, SIGTERM and SIGHUP end the recording)\n";
    // SAFETY: the bytes are readable for their length, and errno's place is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(2, SAID.as_ptr().cast(), SAID.len());
        *libc::__errno_location() = errno;
    }
}

/// Raises the flag, and passes the signal on to the engine's thread if it arrived on another. Atomics and two system
/// calls only, as a signal handler must.
extern "C" fn on_signal(signal: libc::c_int) {
    let Some(target) = TARGET.get() else { return };
    let _ = ARRIVED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    target.interrupter.interrupt();
    // SAFETY: these calls have no memory preconditions; the thread is this process's main flow and outlives it.
    unsafe {
        if libc::gettid() != target.thread {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), target.thread, signal);
        }
    }
}
