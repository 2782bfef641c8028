//! The native half: this processor runs the cases, in a worker process that may die.
//!
//! [`Worker`] is the parent's side. Reading order: [`shared`] (what crosses), [`child`] (the worker's loop and
//! its signal handler), [`trampoline`] (into a case and back), [`filter`] (no system calls).

mod child;
mod filter;
mod shared;
mod trampoline;

use crate::case::{Case, Ending, Image, Outcome, Writes};
use crate::host;
use child::{Extended, status};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
pub use shared::BATCH;
use shared::{LOST, Raw, Shared};
use std::io;
use std::time::Duration;
use trampoline::XSAVE_SIZE;

/// Why there is no native half.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trampoline sets the bases of FS and GS itself.
    #[error(
        "this kernel or processor does not let programs write FS and GS bases (FSGSBASE: Linux 5.9, Ivy Bridge)"
    )]
    NoFsGsBase,
    /// All vector state goes in and out by XSAVE.
    #[error("this kernel or processor does not let programs use XSAVE")]
    NoXsave,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The worker process ends before it takes work.
    #[error("the worker process cannot start: {0}")]
    Start(&'static str),
}

/// How long the parent waits for a sign of progress before it gives a case up.
const PATIENCE: Duration = Duration::from_millis(1000);

/// A worker process and the memory shared with it.
#[derive(Debug)]
pub struct Worker {
    shared: *mut Shared,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    id: libc::pid_t,
    socket: c_int,
}

impl Worker {
    /// Starts a worker process.
    ///
    /// # Errors
    /// Where this system lacks what the trampoline needs, or a system call fails.
    pub fn start() -> Result<Worker, Error> {
        const HWCAP2_FSGSBASE: libc::c_ulong = 1 << 1;
        // SAFETY: reads the auxiliary vector.
        if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE == 0 {
            return Err(Error::NoFsGsBase);
        }
        if !host::has_xsave() || host::layout().size(host::components()) > XSAVE_SIZE {
            return Err(Error::NoXsave);
        }
        // SAFETY: a new anonymous mapping, zero-filled, which is a value of `Shared`.
        let shared = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if shared == libc::MAP_FAILED {
            return Err(system("map the shared batch"));
        }
        let mut worker = Worker { shared: shared.cast(), process: None };
        worker.process = Some(worker.fork()?);
        let idle = worker.run(&[0; crate::layout::DATA_SIZE], &[], || ())?;
        debug_assert!(idle.is_empty());
        Ok(worker)
    }

    /// Runs up to [`BATCH`] cases natively, each from the same `image` of the data pages, and calls `meanwhile`
    /// once they are under way. A case that takes the worker down is [`Ending::Lost`]; the others still run.
    ///
    /// # Errors
    /// If the worker cannot be started again.
    pub fn run(
        &mut self,
        image: &Image,
        cases: &[Case],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<Outcome>, Error> {
        let count = cases.len().min(BATCH);
        // SAFETY: the worker process waits for its byte, so nothing else touches the batch.
        let shared = unsafe { &mut *self.shared };
        shared.progress.store(0, Relaxed);
        shared.count = count;
        shared.image = *image;
        shared.cases[..count].copy_from_slice(&cases[..count]);
        for raw in &mut shared.outcomes[..count] {
            raw.signal = LOST;
        }
        let mut finished = self.send()?;
        meanwhile();
        loop {
            finished = finished && self.wait();
            if finished {
                break;
            }
            finished = self.skip_the_culprit()?;
        }
        // SAFETY: the worker sent its byte and is idle.
        let shared = unsafe { &*self.shared };
        Ok(shared.outcomes[..count].iter().map(outcome).collect())
    }

    /// Wakes the worker; false if it is gone.
    fn send(&mut self) -> Result<bool, Error> {
        if self.process.is_none() {
            self.process = Some(self.fork()?);
        }
        let Some(process) = &self.process else { return Ok(false) };
        // SAFETY: one byte from a literal. A closed pipe gives EPIPE (MSG_NOSIGNAL), not a signal.
        let sent = unsafe { libc::send(process.socket, b"g".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
        Ok(sent == 1)
    }

    /// Waits for the end of the batch; false if the worker died or a case hangs.
    fn wait(&mut self) -> bool {
        let Some(process) = &self.process else { return false };
        let patience = c_int::try_from(PATIENCE.as_millis()).unwrap_or(c_int::MAX);
        loop {
            let before = self.progress();
            let mut poll = libc::pollfd { fd: process.socket, events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, one byte into a live local.
            unsafe {
                let ready = libc::poll(&raw mut poll, 1, patience);
                if ready > 0 {
                    let mut byte = 0_u8;
                    return libc::read(process.socket, (&raw mut byte).cast(), 1) == 1;
                }
            }
            if self.progress() == before {
                return false;
            }
        }
    }

    fn progress(&self) -> u32 {
        // SAFETY: the field is atomic, and the mapping lives as long as `self`.
        unsafe { (*self.shared).progress.load(Relaxed) }
    }

    /// Ends the worker and starts another on the case after the one that did not end.
    fn skip_the_culprit(&mut self) -> Result<bool, Error> {
        let status = self.process.take().map(Process::end);
        // SAFETY: there is no worker process now.
        let shared = unsafe { &mut *self.shared };
        let culprit = shared.progress.load(Relaxed);
        if shared.count == 0 {
            return Err(Error::Start(match status {
                Some(status::NO_PAGES) => "its fixed pages could not be mapped",
                Some(status::NO_SIGNALS) => "its signal handlers could not be installed",
                Some(status::NO_FILTER) => "its system call filter could not be installed",
                _ => "it dies before its first case",
            }));
        }
        if let Some(raw) = shared.outcomes.get_mut(culprit as usize) {
            raw.signal = LOST;
        }
        shared.progress.store(culprit.saturating_add(1), Relaxed);
        self.send()
    }

    fn fork(&self) -> Result<Process, Error> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: `ends` has room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(system("make a socket pair"));
        }
        let extended = Extended { layout: host::layout(), components: host::components() };
        // SAFETY: the child calls only what is safe after a fork and never returns; descriptors are our own.
        unsafe {
            match libc::fork() {
                -1 => Err(system("fork the worker process")),
                0 => {
                    libc::close(ends[0]);
                    child::main(self.shared, ends[1], extended)
                }
                id => {
                    libc::close(ends[1]);
                    Ok(Process { id, socket: ends[0] })
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.take().map(Process::end);
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.shared.cast(), size_of::<Shared>()) };
    }
}

impl Process {
    /// Ends the process; its exit status if it had ended by itself.
    fn end(self) -> c_int {
        let mut status = 0;
        // SAFETY: the process is our child and the descriptor ours; both are given up here.
        unsafe {
            libc::close(self.socket);
            libc::kill(self.id, libc::SIGKILL);
            libc::waitpid(self.id, &raw mut status, 0);
        }
        libc::WEXITSTATUS(status)
    }
}

fn system(what: &'static str) -> Error {
    Error::System { what, source: io::Error::last_os_error() }
}

fn outcome(raw: &Raw) -> Outcome {
    const PAGE_FAULT: u64 = 14;
    let ending = match raw.signal {
        0 => Ending::Completed,
        LOST => Ending::Lost,
        libc::SIGSYS => Ending::SystemCall,
        _ => Ending::Fault {
            vector: u8::try_from(raw.vector).unwrap_or(u8::MAX),
            error: u32::try_from(raw.error).unwrap_or(u32::MAX),
            address: if raw.vector == PAGE_FAULT { raw.address } else { 0 },
        },
    };
    let writes = if ending == Ending::Lost { Writes::default() } else { raw.writes };
    Outcome { ending, state: raw.state, writes }
}
