//! The kernel as a checkpoint on disk has it: all of it but what is the host's.
//!
//! What is read may be anything, and the kernel relies on some of it without asking: that a task that is there has a process,
//! and that an id that is held names something. [`Kernel::take`] refuses what does not fit together.

use super::tasks::Task;
use super::{Arena, Guarded, Id, Kernel};
use crate::engine::Interrupter;
use crate::plain::{In, Out, Plain};

impl Kernel {
    /// Appends it. What was not served and who was killed is not in it: that is for the recording.
    pub(crate) fn put(&self, out: &mut Out) {
        let Kernel {
            tasks,
            groups,
            tables,
            places,
            handlers,
            timers,
            shared,
            locks,
            leases,
            terminals,
            ipc,
            signal_files,
            sigio,
            proc_files,
            network,
            charged,
            again,
            clock,
            interrupter: _,
            memory,
            guarded: _,
            taken: _,
            recorder,
            first,
            first_ended,
            outside_parent,
            next_object,
            unserved: _,
            killed: _,
            called: _,
            is_silent: _,
        } = self;
        tasks.put(out);
        groups.put(out);
        tables.put(out);
        places.put(out);
        handlers.put(out);
        timers.put(out);
        shared.put(out);
        locks.put(out);
        leases.put(out);
        terminals.put(out);
        ipc.put(out);
        signal_files.put(out);
        sigio.put(out);
        proc_files.put(out);
        network.put(out);
        charged.put(out);
        again.put(out);
        clock.put(out);
        memory.put(out);
        recorder.put(out);
        first.put(out);
        first_ended.put(out);
        outside_parent.put(out);
        next_object.put(out);
    }

    /// Takes one off, for a processor that `interrupter` interrupts; `None` if there is none.
    pub(crate) fn take(from: &mut In<'_>, interrupter: Interrupter) -> Option<Kernel> {
        let kernel = Kernel {
            tasks: Plain::take(from)?,
            groups: Plain::take(from)?,
            tables: Plain::take(from)?,
            places: Plain::take(from)?,
            handlers: Plain::take(from)?,
            timers: Plain::take(from)?,
            shared: Plain::take(from)?,
            locks: Plain::take(from)?,
            leases: Plain::take(from)?,
            terminals: Plain::take(from)?,
            ipc: Plain::take(from)?,
            signal_files: Plain::take(from)?,
            sigio: Plain::take(from)?,
            proc_files: Plain::take(from)?,
            network: Plain::take(from)?,
            charged: Plain::take(from)?,
            again: Plain::take(from)?,
            clock: Plain::take(from)?,
            interrupter,
            memory: Plain::take(from)?,
            guarded: Guarded::default(),
            taken: Default::default(),
            recorder: Plain::take(from)?,
            first: Plain::take(from)?,
            first_ended: Plain::take(from)?,
            outside_parent: Plain::take(from)?,
            next_object: Plain::take(from)?,
            unserved: Vec::new(),
            killed: Vec::new(),
            called: (0, [0; 6]),
            is_silent: true,
        };
        Some(kernel)
    }

    /// Whether what holds an id holds one that names something, `spaces` being the address spaces and `loaded` the one that
    /// the processor has.
    pub(crate) fn fits<T>(&self, spaces: &Arena<T>, loaded: Id) -> bool {
        let holds = |task: &Task| {
            spaces.owners(task.space) > 0
                && self.tables.owners(task.files) > 0
                && self.places.owners(task.place) > 0
                && self.handlers.owners(task.handlers) > 0
                && self.groups.get(task.group).is_some()
        };
        spaces.owners(loaded) > 0
            && self.tasks.fits(|task| task.ended() || holds(task), |id| spaces.owners(id) > 0)
    }
}
