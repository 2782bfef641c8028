//! Waits for what no poll of the host tells: the other end of a FIFO, a lock that somebody else has.
//!
//! An [`Attempt`] is what a task waits for of this kind. While tasks wait, the host is asked now and then whether each would
//! go on ([`Attempt::is_ready`]); other tasks of the guest wake it at once ([`Kernel::wake_attempts`]). Only that it is ready
//! is in the journal.

use super::descriptors::{Detached, OpenFile};
use super::fifo::Opening;
use super::locks::Request;
use super::wait::{On, Why};
use super::{Kernel, host};
use crate::plain::{plain, shared};
use std::rc::Rc;

/// What a task waits for.
#[derive(Debug)]
pub(super) enum Attempt {
    /// To open a FIFO, which another one has to open, too.
    Fifo(Opening),
    /// flock on this file, with this operation.
    Flock(Rc<OpenFile>, i32),
    /// A lock of fcntl.
    Record(Request),
}
plain!(enum Attempt { 0 = Fifo(a), 1 = Flock(a, b), 2 = Record(a) });
shared!(Rc<Attempt>);

impl Attempt {
    /// Whether the call would go on. Asks the host.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Attempt::Fifo(opening) => opening.is_ready(),
            Attempt::Flock(file, operation) => {
                host::flock(file.host(), operation | libc::LOCK_NB) != -i64::from(libc::EWOULDBLOCK)
            }
            Attempt::Record(request) => request.is_free_outside(),
        }
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Attempt {
        match self {
            Attempt::Fifo(opening) => Attempt::Fifo(opening.detached()),
            Attempt::Flock(file, operation) => Attempt::Flock(files.file(file), *operation),
            Attempt::Record(request) => Attempt::Record(request.detached(files)),
        }
    }
}

impl Kernel {
    /// What tasks wait for, each with the task.
    pub(super) fn attempts(&self) -> Vec<(i32, Rc<Attempt>)> {
        let attempt = |task: &super::tasks::Task| match &task.wait()?.on {
            On::Attempt(attempt) => Some(Rc::clone(attempt)),
            _ => None,
        };
        self.tasks.living().filter_map(|(id, task)| Some((id, attempt(task)?))).collect()
    }

    /// Lets the tasks look again that wait for something of the kind.
    pub(super) fn wake_attempts(&mut self, wanted: impl Fn(&Attempt) -> bool) {
        let waiting = self.tasks.waiting(|wait| matches!(&wait.on, On::Attempt(attempt) if wanted(attempt)));
        waiting.into_iter().for_each(|id| self.tasks.wake(id, Why::Ready));
    }
}
