//! Makes a running engine come back, from another thread or from a signal handler.
//!
//! A flag is enough for the software CPU. A thread inside KVM_RUN must also be sent a signal, and there is a gap
//! between looking at the flag and entering the kernel: the signal's handler closes it by raising
//! `immediate_exit` in the page that the vCPU shares with KVM.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Once};

/// Makes a running engine come back with [`super::Exit::Interrupted`].
#[derive(Clone, Default)]
pub struct Interrupter {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Set by [`Interrupter::interrupt`]; the engine clears it when it comes back.
    raised: AtomicBool,
    /// Set by [`Interrupter::kick`].
    kicked: AtomicBool,
    /// The thread that may be inside KVM_RUN, or zero.
    thread: AtomicI32,
}

thread_local! {
    /// Where this thread's vCPU has `immediate_exit`, while it may be inside KVM_RUN.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
    /// This thread's number.
    // SAFETY: gettid has no argument and cannot fail.
    static THREAD: Cell<i32> = Cell::new(unsafe { libc::gettid() });
}

impl Interrupter {
    /// A handle that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the engine to come back; if it is not running, it will at once when it is next run. Does nothing
    /// that a signal handler may not do.
    pub fn interrupt(&self) {
        self.shared.raised.store(true, Ordering::SeqCst);
        self.signal();
    }

    /// Asks a running processor to come back with [`super::Exit::Kicked`]; if none is running, the next one will at once.
    pub fn kick(&self) {
        self.shared.kicked.store(true, Ordering::SeqCst);
        self.signal();
    }

    /// Whether it was kicked.
    #[must_use]
    pub fn is_kicked(&self) -> bool {
        self.shared.kicked.load(Ordering::SeqCst)
    }

    /// Whether it was kicked; lowers the flag.
    #[must_use]
    pub fn take_kick(&self) -> bool {
        self.shared.kicked.swap(false, Ordering::SeqCst)
    }

    fn signal(&self) {
        let thread = self.shared.thread.load(Ordering::SeqCst);
        if thread != 0 {
            // SAFETY: tgkill takes plain numbers; the signal has a handler that only writes to a page of the
            // receiving thread's own vCPU, or nothing.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, kick_signal()) };
        }
    }

    /// Whether it was asked to; lowers the flag.
    #[must_use]
    pub fn take(&self) -> bool {
        self.shared.raised.swap(false, Ordering::SeqCst)
    }

    /// Whether it was asked to.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::SeqCst)
    }

    /// From now until the guard is dropped this thread may be inside KVM_RUN of a vCPU, and a signal raises its
    /// `immediate_exit`, which is lowered now.
    ///
    /// # Safety
    /// `immediate_exit` is that byte of the vCPU's shared page, which stays mapped while the guard lives.
    pub(super) unsafe fn enter(&self, immediate_exit: *mut u8) -> Inside {
        install_handler();
        // SAFETY: the caller vouches for the pointer. Volatile, since KVM and the signal handler see it.
        unsafe { immediate_exit.write_volatile(0) };
        IMMEDIATE_EXIT.set(immediate_exit);
        self.shared.thread.store(THREAD.get(), Ordering::SeqCst);
        Inside { shared: Arc::clone(&self.shared) }
    }
}

/// While this lives, an interrupt reaches the thread by a signal.
pub(super) struct Inside {
    shared: Arc<Shared>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.shared.thread.store(0, Ordering::SeqCst);
        IMMEDIATE_EXIT.set(std::ptr::null_mut());
    }
}

/// A real-time signal that nothing else in the process uses.
pub(crate) fn kick_signal() -> i32 {
    libc::SIGRTMIN() + 1
}

extern "C" fn on_kick(_signal: i32) {
    let at = IMMEDIATE_EXIT.get();
    if !at.is_null() {
        // SAFETY: non-null only between `enter` and the drop of its guard, on the same thread: the vCPU's shared
        // page is mapped then. The kernel reads the byte, so the write must not be optimised away.
        unsafe { at.write_volatile(1) };
    }
}

/// Installs the handler, without SA_RESTART, once.
fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handler: extern "C" fn(i32) = on_kick;
        // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe, see there.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            libc::sigaction(kick_signal(), &action, std::ptr::null_mut());
        }
    });
}
