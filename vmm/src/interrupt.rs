//! Signals to gretel: those that end what it does in order, and those that are for the program that it records.
//!
//! While a program is recorded, all that it could be sent is for it ([`pass_on_signals`]): the handler notes the signal and kicks the
//! processor, and the next time that the program is shown brings it ([`crate::gate::Gate::arrived`]). What ends a program by itself,
//! as SIGINT, ends the recording when it comes for the [`ENOUGH`]th time in quick succession: a program may ignore it, and a service
//! is told to reload by SIGHUP time and again. Everything else that gretel does is interrupted by the first. The [`ENOUGH`]th that
//! interrupts ends gretel itself, whatever it is in the middle of: a solver, say, that asks nobody while it makes a question ready.

use crate::engine::{Interrupter, kick_signal};
use crate::gate::clock;
use crate::signal::Arrived;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// So many signals that would end a program end its recording, whatever the program makes of them, if each comes soon after the
/// one before; and so many that interrupt gretel end it.
const ENOUGH: u32 = 3;
/// So soon, in nanoseconds.
const SOON: u64 = 1_000_000_000;
/// What ends gretel: the signals that a user sends to end a program.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// What else is for the program, and the signals for real time. Not here: what the kernel raises for what gretel itself does, among it
/// SIGTTIN and SIGTTOU; [`FAULTS`]; and SIGSTOP, which nobody can handle. SIGABRT is, since systemd's watchdog sends it for a core; when gretel itself
/// aborts, the C library raises it once more without a handler.
const FOR_THE_PROGRAM: [i32; 15] = [
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGIO,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGURG,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
];
/// What a processor raises for a fault, and who wants to see a service crash sends: for the program if a process sent it. SIGBUS of gretel's
/// own is for who guards mapped files, in `lbr`.
const FAULTS: [i32; 6] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];
/// `si_code` of a signal that a terminal sent.
const OF_TERMINAL: i32 = libc::SI_KERNEL;

/// What the signal handler needs: set once, before the handler is installed.
struct Target {
    interrupter: Interrupter,
    /// The thread that runs the engine; KVM_RUN and system calls come back only when the signal arrives there.
    thread: libc::pid_t,
}

static TARGET: OnceLock<Target> = OnceLock::new();

/// The signal that ends what gretel does, or zero; and how many have come.
static ARRIVED: AtomicI32 = AtomicI32::new(0);
static INTERRUPTED: AtomicU32 = AtomicU32::new(0);
/// Those for the program, as [`Arrived`] has them.
static FOR_FIRST: AtomicU64 = AtomicU64::new(0);
static FOR_GROUP: AtomicU64 = AtomicU64::new(0);
/// The signal that is for gretel itself, to keep a flight recorder's window, or zero; and whether it came.
static KEEPS_WINDOW: AtomicI32 = AtomicI32::new(0);
static WINDOW_ASKED: AtomicBool = AtomicBool::new(false);
/// How many of [`ENDING`] the program was sent in quick succession, and when the last, by the monotonic clock.
static SENT: AtomicU32 = AtomicU32::new(0);
static SENT_LAST: AtomicU64 = AtomicU64::new(0);
/// Who handled [`FAULTS`] before, in their order: Rust's runtime does some, with SA_SIGINFO.
static FAULT_HANDLERS: [AtomicUsize; FAULTS.len()] =
    [const { AtomicUsize::new(libc::SIG_DFL) }; FAULTS.len()];

/// The signal that interrupted the engine, if one did.
#[must_use]
pub fn arrived() -> Option<i32> {
    Some(ARRIVED.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
}

/// Takes the signals that came for the program.
pub(crate) fn take_for_program() -> Arrived {
    // Cheap where there is none: this is asked at every time that is shown.
    if !is_any_for_program() {
        return Arrived::default();
    }
    Arrived { first: FOR_FIRST.swap(0, Ordering::SeqCst), group: FOR_GROUP.swap(0, Ordering::SeqCst) }
}

/// From now on this signal, SIGUSR1 or SIGUSR2, is not for the program: it asks for the window to be kept.
pub fn keep_window_on(signal: i32) {
    KEEPS_WINDOW.store(signal, Ordering::SeqCst);
}

/// Whether the window is to be kept: told once for each time that it was asked for.
pub(crate) fn take_window_request() -> bool {
    WINDOW_ASKED.load(Ordering::SeqCst) && WINDOW_ASKED.swap(false, Ordering::SeqCst)
}

/// Whether a signal came that the recording has to be looked at for: one for the program, or for the window.
pub(crate) fn is_any() -> bool {
    is_any_for_program() || WINDOW_ASKED.load(Ordering::SeqCst)
}

/// Whether there are any.
pub(crate) fn is_any_for_program() -> bool {
    FOR_FIRST.load(Ordering::SeqCst) | FOR_GROUP.load(Ordering::SeqCst) != 0
}

/// Stops this process, as the program that it records has stopped: whoever started it is told, and lets it go on by SIGCONT.
pub(crate) fn stop_as_the_program() {
    // SAFETY: no memory preconditions.
    unsafe { libc::raise(libc::SIGSTOP) };
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
    aim(interrupter)?;
    ENDING.into_iter().try_for_each(|signal| handle(signal, on_signal).map(drop))
}

/// From now on signals to this process are for the program whose engine runs on the calling thread, and which takes them over; those
/// that whoever started gretel has ignored stay so. For the rest of the process's life.
///
/// # Errors
/// When a handler cannot be installed.
pub fn pass_on_signals(interrupter: Interrupter) -> io::Result<()> {
    aim(interrupter)?;
    let real_time = (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|&signal| signal != kick_signal());
    let mut all = ENDING.into_iter().chain(FOR_THE_PROGRAM).chain(real_time);
    all.try_for_each(|signal| handle(signal, on_signal_for_program).map(drop))?;
    FAULTS.into_iter().zip(&FAULT_HANDLERS).try_for_each(|(signal, handler)| {
        let before = handle(signal, on_fault)?;
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            handler.store(before.sa_sigaction, Ordering::SeqCst);
        }
        Ok(())
    })
}

fn aim(interrupter: Interrupter) -> io::Result<()> {
    // SAFETY: gettid has no preconditions.
    let thread = unsafe { libc::gettid() };
    let aimed = TARGET.set(Target { interrupter, thread });
    aimed.map_err(|_| io::Error::other("signals already interrupt another engine"))
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs a handler that does only what a signal handler may, unless the signal is ignored; gives what there was before.
fn handle(signal: i32, handler: Handler) -> io::Result<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid value (no flags, empty mask, default handler).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // On another stack, if the thread has one: a stack that is used up is a fault, too.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is initialised; the handler is one of the three below; `before` may be written.
    if unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if before.sa_sigaction == libc::SIG_IGN {
        // SAFETY: what the kernel gave is what it takes.
        unsafe { libc::sigaction(signal, &raw const before, std::ptr::null_mut()) };
    }
    Ok(before)
}

/// Notes a signal for the program that says that it has made a fault, if a process sent it. One that gretel itself made is for who handled
/// it before. Atomics and system calls only, as a signal handler must.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO what it points to.
    let is_sent = unsafe { (*info).si_code } <= 0;
    if is_sent {
        return on_signal_for_program(signal, info, context);
    }
    let known = FAULTS.iter().position(|fault| *fault == signal);
    match known.map_or(libc::SIG_DFL, |n| FAULT_HANDLERS[n].load(Ordering::SeqCst)) {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: no memory preconditions; the instruction faults again, and that ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler => {
            // SAFETY: `pass_on_signals` has kept it of an action with SA_SIGINFO, whose handlers are of this type.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
}

/// Notes a signal for the program, and has the engine come back. Atomics and system calls only, as a signal handler must.
extern "C" fn on_signal_for_program(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let Some(target) = TARGET.get() else { return };
    // SAFETY: gettid has no preconditions.
    let is_passed_on = unsafe { libc::gettid() } != target.thread;
    // SAFETY: the kernel gives a handler with SA_SIGINFO what it points to.
    let code = unsafe { (*info).si_code };
    // What another thread passes on is noted already.
    if signal == KEEPS_WINDOW.load(Ordering::SeqCst) {
        if code != libc::SI_TKILL {
            WINDOW_ASKED.store(true, Ordering::SeqCst);
        }
    } else if code != libc::SI_TKILL {
        if ENDING.contains(&signal) && is_enough() {
            return on_signal(signal, info, context);
        }
        // A shell lets a whole job go on.
        let is_for_group = code == OF_TERMINAL || signal == libc::SIGCONT;
        let set = if is_for_group { &FOR_GROUP } else { &FOR_FIRST };
        set.fetch_or(1 << (signal - 1), Ordering::SeqCst);
    }
    target.interrupter.kick();
    if is_passed_on {
        pass_on(target, signal);
    }
}

/// Counts a signal that would end a program; whether it ends the recording.
fn is_enough() -> bool {
    let now = clock(libc::CLOCK_MONOTONIC);
    let before = SENT_LAST.swap(now, Ordering::SeqCst);
    if now.saturating_sub(before) > SOON {
        SENT.store(0, Ordering::SeqCst);
    }
    SENT.fetch_add(1, Ordering::SeqCst) + 1 >= ENOUGH
}

/// Raises the flag, and passes the signal on to the engine's thread if it arrived on another. Atomics and system
/// calls only, as a signal handler must.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let Some(target) = TARGET.get() else { return };
    // SAFETY: the kernel gives a handler with SA_SIGINFO what it points to.
    let is_passed_on = unsafe { (*info).si_code } == libc::SI_TKILL;
    if !is_passed_on && INTERRUPTED.fetch_add(1, Ordering::SeqCst) + 1 >= ENOUGH {
        // SAFETY: no memory preconditions; both may be called in a handler. The signal ends the process when the handler returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    let _ = ARRIVED.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
    target.interrupter.interrupt();
    // SAFETY: gettid has no preconditions.
    if unsafe { libc::gettid() } != target.thread {
        pass_on(target, signal);
    }
}

/// Sends a signal on to the engine's thread, so that a system call there comes back.
fn pass_on(target: &Target, signal: i32) {
    // SAFETY: no memory preconditions; the thread is this process's main flow and outlives it.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), target.thread, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Set in the process that is interrupted: how often.
    const TIMES: &str = "GRETEL_TEST_INTERRUPTS";

    #[test]
    fn the_third_signal_ends_gretel_whatever_it_is_doing() {
        if let Ok(times) = std::env::var(TIMES) {
            return be_interrupted(times.parse().expect("a number"));
        }
        let ended_by = |times: u32| {
            let mut again = Command::new(std::env::current_exe().expect("this test"));
            again.args(["--exact", "interrupt::tests::the_third_signal_ends_gretel_whatever_it_is_doing"]);
            let output = again.env(TIMES, times.to_string()).output().expect("it runs");
            (output.status.signal(), output.status.code())
        };
        assert_eq!(ended_by(2), (None, Some(0)));
        assert_eq!(ended_by(3), (Some(libc::SIGTERM), None));
    }

    /// Never looks whether it is interrupted.
    fn be_interrupted(times: u32) {
        stop_on_signals(Interrupter::new()).expect("handlers");
        for time in 1..=times {
            // SAFETY: no memory preconditions.
            unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
            let begin = Instant::now();
            while INTERRUPTED.load(Ordering::SeqCst) < time && begin.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
