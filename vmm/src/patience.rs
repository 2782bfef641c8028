//! Tells when one thread of the program keeps the processor from others: it computes, or waits for them in a loop without
//! a system call, which never ends (docs/quirks.md).

use crate::crumbs::clock;
use crate::process::Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How long a thread may run alone before that is said, in nanoseconds.
const LIMIT: u64 = 5_000_000_000;
/// How often the watcher looks.
const EVERY: Duration = Duration::from_secs(1);

/// What the watcher sees.
#[derive(Default)]
struct Seen {
    /// Since when the thread that runs has run without an exit, by CLOCK_MONOTONIC.
    since: AtomicU64,
    /// From when on another one could run; the largest number for never.
    due: AtomicU64,
    thread: AtomicU64,
}

/// Watches a program with threads while it is recorded.
#[derive(Default)]
pub(crate) struct Patience {
    seen: Arc<Seen>,
    /// Ends the watcher when it is dropped.
    watcher: Option<Sender<()>>,
}

impl Patience {
    /// Notes that the program is about to run.
    pub(crate) fn note(&mut self, process: &Process) {
        if process.threads_started() == 1 {
            return;
        }
        let seen = &self.seen;
        seen.thread.store(process.thread().unsigned_abs().into(), Ordering::Relaxed);
        seen.due.store(process.others_due().unwrap_or(u64::MAX), Ordering::Relaxed);
        seen.since.store(clock(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
        self.watcher.get_or_insert_with(|| watch(Arc::clone(&self.seen)));
    }
}

/// Starts the watcher; it says one thing, once.
fn watch(seen: Arc<Seen>) -> Sender<()> {
    let (alive, ended) = mpsc::channel();
    thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
            let since = seen.since.load(Ordering::Relaxed).max(seen.due.load(Ordering::Relaxed));
            if since.saturating_add(LIMIT) <= clock(libc::CLOCK_MONOTONIC) {
                tracing::warn!(
                    "thread {} has run for {} s without a system call, and others do not run before it makes one or \
                     executes PAUSE",
                    seen.thread.load(Ordering::Relaxed),
                    LIMIT / 1_000_000_000
                );
                return;
            }
        }
    });
    alive
}
