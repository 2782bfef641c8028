//! Locks on files: fcntl's, of processes and of open files, and flock's.
//!
//! The host sees one process where the guest has many, so fcntl's locks have a table of their own ([`table`]), by file and
//! owner. What the guest holds of a regular file altogether, the host holds for it in locks of one open file ([`Holder`]), so
//! that processes outside are kept out, and keep us out; of who holds what, they see nothing. flock's locks belong to open
//! files, which are the host's: those are taken there alone. Nothing waits in the host ([`super::attempt`]).
//!
//! Example: a process locks bytes 0 to 9 to write, and its child wants byte 5. The table says who has it, so the child waits;
//! when the parent closes any descriptor of the file, its locks go from the table and from the host, and the child is served
//! again.

mod calls;
mod table;

use super::attempt::Attempt;
use super::descriptors::{Detached, OpenFile};
use super::sharing::Inode;
use super::{Kernel, host};
use crate::plain::{In, Out, Plain, plain};
pub(super) use calls::{flock, record};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use table::{Owner, Range, Table};

/// The locks of fcntl, by file.
#[derive(Clone, Default)]
pub(super) struct Locks {
    files: BTreeMap<Inode, Locked>,
}
plain!(struct Locks { files });

/// The locks of a file.
#[derive(Clone)]
struct Locked {
    table: Table,
    holder: Holder,
    /// Open files that were there from the start, of which only a lock tells which file they are.
    known: Vec<Weak<OpenFile>>,
}
plain!(struct Locked { table, holder, known });

/// The open file by which the host holds the guest's locks of one file; one without a host's descriptor holds none, which is so
/// at replay, and of what is no regular file.
#[derive(Clone, Debug)]
struct Holder(Rc<OpenFile>);

impl Plain for Holder {
    fn put(&self, out: &mut Out) {
        self.0.put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Plain::take(from).map(Holder)
    }
}

/// A lock that a task waits for.
#[derive(Debug)]
pub(super) struct Request {
    inode: Inode,
    owner: Owner,
    write: bool,
    range: Range,
    holder: Holder,
    /// Whether it is one of the guest that has it: then there is nothing to ask the host.
    blocked_here: bool,
}
plain!(struct Request { inode, owner, write, range, holder, blocked_here });

impl Request {
    /// Whether nobody outside has it.
    pub(super) fn is_free_outside(&self) -> bool {
        let mut lock = self.range.flock(Some(self.write));
        !self.blocked_here && (!self.holder.ask(&mut lock) || lock[..2] == unlocked())
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Request {
        Request { owner: self.owner.detached(files), holder: self.holder.detached(files), ..*self }
    }
}

/// The type of no lock, as `struct flock` has it.
fn unlocked() -> [u8; 2] {
    [2, 0]
}

impl Holder {
    /// Takes or lets go of locks for the guest: the host's result.
    fn set(&self, kind: Option<bool>, range: Range) -> i64 {
        match self.0.host() {
            ..0 => 0,
            file => host::fcntl_lock(file, libc::F_OFD_SETLK, &mut range.flock(kind)),
        }
    }

    /// Asks who outside has a lock; false if there is nobody to ask.
    fn ask(&self, lock: &mut [u8; 32]) -> bool {
        let file = self.0.host();
        file >= 0 && host::fcntl_lock(file, libc::F_OFD_GETLK, lock) == 0
    }

    fn detached(&self, files: &mut Detached) -> Holder {
        Holder(files.file(&self.0))
    }
}

impl Locked {
    /// Lets the host hold no more than the guest does.
    fn settle(&self, range: Range) {
        for (piece, kind) in self.table.strongest(range) {
            self.holder.set(kind, piece);
        }
    }
}

impl Locks {
    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Locks {
        let mut detached = |locked: &Locked| {
            let known = locked.known.iter().filter_map(Weak::upgrade);
            let known = known.map(|file| Rc::downgrade(&files.file(&file))).collect();
            Locked { table: locked.table.detached(files), holder: locked.holder.detached(files), known }
        };
        Locks { files: self.files.iter().map(|(inode, locked)| (*inode, detached(locked))).collect() }
    }

    /// Takes all locks away that `gone` says; gives the files that had any.
    fn remove(&mut self, gone: impl Fn(Inode, &Owner) -> bool) -> BTreeSet<Inode> {
        let mut changed = BTreeSet::new();
        for (inode, locked) in &mut self.files {
            if locked.table.remove(|owner| gone(*inode, owner)) {
                locked.settle(Range::ALL);
                changed.insert(*inode);
            }
        }
        self.files.retain(|_, locked| !locked.table.is_empty());
        changed
    }
}

impl Kernel {
    /// A process has closed a descriptor: its own locks of the file go, whatever it has of it besides. So do those of open files
    /// that nobody has open any more.
    pub(super) fn unlock_closed(&mut self, file: Rc<OpenFile>) {
        let pid = self.pid();
        let known = || self.locks.files.iter().find(|(_, it)| it.knows(&file)).map(|(inode, _)| *inode);
        let inode = file.inode().or_else(known);
        drop(file);
        self.hang_up_terminals();
        self.unlock(|at, owner| Some(at) == inode && *owner == Owner::Process(pid));
    }

    /// A process has ended, or has lost descriptors.
    pub(super) fn unlock_ended(&mut self, pid: i32) {
        self.hang_up_terminals();
        self.unlock(|_, owner| *owner == Owner::Process(pid));
    }

    /// Takes the locks away of open files that nobody has open any more.
    fn unlock_gone(&mut self) {
        let changed = self.locks.remove(|_, owner| owner.is_gone());
        self.wake_for_records(&changed);
    }

    /// Takes locks away, with those of open files that are closed, and wakes who may have waited for them.
    fn unlock(&mut self, gone: impl Fn(Inode, &Owner) -> bool) {
        let changed = self.locks.remove(|inode, owner| owner.is_gone() || gone(inode, owner));
        self.wake_for_records(&changed);
        self.wake_attempts(|attempt| matches!(attempt, Attempt::Flock(..)));
        self.end_closed_leases();
    }

    fn wake_for_records(&mut self, changed: &BTreeSet<Inode>) {
        self.wake_attempts(
            |attempt| matches!(attempt, Attempt::Record(request) if changed.contains(&request.inode)),
        );
    }
}

impl Locked {
    fn knows(&self, file: &Rc<OpenFile>) -> bool {
        self.known.iter().any(|known| std::ptr::eq(known.as_ptr(), Rc::as_ptr(file)))
    }
}
