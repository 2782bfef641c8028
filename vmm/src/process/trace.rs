//! The system calls as lines of text, as strace prints them: `gretel record --trace`.

use super::Process;
use crate::linux::Outcome;
use crate::ram::Virt;
use crate::syscalls::show::Line;
use std::collections::BTreeMap;

/// Takes the task and the line of a system call.
pub type Print = Box<dyn FnMut(i32, &str)>;

/// The calls that are printed.
pub(super) struct Trace {
    print: Print,
    /// The calls that have not returned, by task, and whether their beginning was printed.
    begun: BTreeMap<i32, (Line, bool)>,
}

impl Process {
    /// Prints each system call from now on.
    pub fn trace(&mut self, print: Print) {
        self.trace = Some(Trace { print, begun: BTreeMap::new() });
    }

    /// A call begins, or is served again.
    pub(super) fn trace_begin(&mut self, number: u64, arguments: [u64; 6]) {
        let Some(mut trace) = self.trace.take() else { return };
        let read = |at: Virt, bytes: &mut [u8]| self.read_memory(at, bytes);
        let task = self.kernel.tasks.id();
        trace.begun.entry(task).or_insert_with(|| (Line::begin(number, arguments, &read), false));
        self.trace = Some(trace);
    }

    /// The call that the task began has come to something.
    pub(super) fn trace_outcome(&mut self, task: i32, outcome: Outcome) {
        let Some(mut trace) = self.trace.take() else { return };
        let read = |at: Virt, bytes: &mut [u8]| self.read_memory(at, bytes);
        if let Some((line, printed)) = trace.begun.remove(&task) {
            let result = match outcome {
                Outcome::Return(value) => Some(value),
                Outcome::Resumed => Some(0),
                Outcome::Waits | Outcome::Exit(_) | Outcome::TaskEnded => None,
            };
            match (result, outcome) {
                (Some(value), _) if printed => (trace.print)(task, &line.resume(value, &read)),
                (Some(value), _) => (trace.print)(task, &line.finish(value, &read)),
                (None, Outcome::Waits) => {
                    if !printed {
                        (trace.print)(task, &line.unfinished());
                    }
                    trace.begun.insert(task, (line, true));
                }
                (None, _) => (trace.print)(task, &line.never()),
            }
        }
        self.trace = Some(trace);
    }
}
