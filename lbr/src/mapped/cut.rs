//! Files that are cut while they are mapped. The file is the user's, and so the recorded program's: it may truncate it,
//! and the next access is a SIGBUS. A handler puts a page of zeros in place of the one that is gone, notes it, and the
//! access goes on: what was stored is lost, and nothing else.

use std::io;
use std::mem::{transmute, zeroed};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const PAGE: usize = 4096;
/// How many mappings there can be at a time.
const PLACES: usize = 64;

/// A mapping.
struct Place {
    /// Somebody has it.
    taken: AtomicBool,
    /// Where it begins, and where it ends: zero while it is not to be looked at.
    start: AtomicUsize,
    end: AtomicUsize,
    /// A page was gone.
    cut: AtomicBool,
}

static MAPPINGS: [Place; PLACES] = [const {
    Place {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicBool::new(false),
    }
}; PLACES];

/// What SIGBUS did before, once the handler is there; `None` if it cannot be installed.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// A mapping that survives the truncation of its file, until this is dropped.
pub(super) struct Guarded(&'static Place);

impl Guarded {
    /// Guards `len` bytes from page boundary `start` on.
    ///
    /// # Errors
    /// When there are too many, or the handler cannot be installed.
    pub(super) fn new(start: usize, len: usize) -> io::Result<Guarded> {
        if BEFORE.get_or_init(install).is_none() {
            return Err(io::Error::other("SIGBUS cannot be handled"));
        }
        let free = MAPPINGS.iter().find(|place| !place.taken.swap(true, Relaxed));
        let place = free.ok_or_else(|| io::Error::other("too many files are mapped"))?;
        place.cut.store(false, Relaxed);
        place.start.store(start, Relaxed);
        place.end.store(start + len, Relaxed);
        Ok(Guarded(place))
    }

    /// Whether pages were taken away: what was stored there since is lost.
    pub(super) fn is_cut(&self) -> bool {
        self.0.cut.load(Relaxed)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.end.store(0, Relaxed);
        self.0.taken.store(false, Relaxed);
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs the handler; gives what SIGBUS did before.
#[allow(unsafe_code, reason = "signal handlers are installed by a system call")]
fn install() -> Option<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid value.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { (zeroed(), zeroed()) };
    let handler: Handler = on_bus_error;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is initialised, its handler does only what a signal handler may, and `before` is writable.
    (unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } == 0).then_some(before)
}

/// Atomics and one system call, as a signal handler must. A fault elsewhere happens again, with what SIGBUS did before; what a process
/// has sent is no fault, and does not come again: who handled it before is called.
#[allow(unsafe_code, reason = "it is given a pointer, and replaces memory")]
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid siginfo.
    let is_sent = unsafe { (*info).si_code } <= 0;
    if is_sent
        && let Some(Some(before)) = BEFORE.get()
        && before.sa_flags & libc::SA_SIGINFO != 0
    {
        // SAFETY: with SA_SIGINFO it is a handler of this type.
        let before: Handler = unsafe { transmute(before.sa_sigaction) };
        return before(signal, info, context);
    }
    // SAFETY: as above.
    let address = unsafe { (*info).si_addr() }.addr();
    let within = |place: &&Place| (place.start.load(Relaxed)..place.end.load(Relaxed)).contains(&address);
    if let Some(place) = MAPPINGS.iter().find(within) {
        let page = without_provenance_mut(address & !(PAGE - 1));
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page is of a mapping that is guarded, and so there until it is no longer; it is seen as atomics
        // only, which may change at any time, or is a file's bytes, which were not the reader's either.
        if unsafe { libc::mmap(page, PAGE, rights, flags, -1, 0) } != libc::MAP_FAILED {
            place.cut.store(true, Relaxed);
            return;
        }
    }
    if let Some(Some(before)) = BEFORE.get() {
        // SAFETY: it is what the kernel gave.
        unsafe { libc::sigaction(libc::SIGBUS, before, null_mut()) };
    }
}
