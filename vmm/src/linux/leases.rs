//! Leases on files (F_SETLEASE): who has one on a file is told by a signal before another opens the file in a way that does not go
//! with it; the other waits until the lease is given up, or until its time is over (fs/locks.c).
//!
//! They are kept here, among the guest's processes. The host knows nothing of them: it would tell of who opens a file, and make it
//! wait, at no moment that the journal could name. So a process outside opens a leased file at once.
//!
//! Example: a process has a lease to write, and its child opens the file to read. The file's inode is in the list, so the parent gets
//! SIGIO and the child waits ([`On::Lease`]). The parent writes back what it had kept, and calls F_SETLEASE with F_UNLCK; the child's
//! open is served again, and finds no lease.

use super::capabilities::LEASE;
use super::descriptors::{Detached, OpenFile};
use super::proc::Place;
use super::sharing::Inode;
use super::time::NANOSECONDS;
use super::wait::{Deadline, Interrupted, On, Wait, Why, wait};
use super::{Guest, Kernel, Served, busy, errno, host, word};
use crate::plain::plain;
use std::rc::{Rc, Weak};

/// How many seconds a lease lasts when it is to be given up, where the host does not say (`lease_break_time` of fs/locks.c).
const BREAK_SECONDS: i64 = 45;

/// A lease that an open file has.
#[derive(Clone)]
struct Lease {
    file: Weak<OpenFile>,
    inode: Inode,
    write: bool,
    /// The descriptor that its signal names.
    number: i32,
    /// Somebody waits to write, or to read: when it goes, or is one to read, by itself, by the monotonic clock.
    ends: Option<u64>,
    shrinks: Option<u64>,
}
plain!(struct Lease { file, inode, write, number, ends, shrinks });

impl Lease {
    /// Whether an open for this goes with it.
    fn allows(&self, writes: bool) -> bool {
        !self.write && !writes
    }

    fn is_of(&self, file: &Rc<OpenFile>) -> bool {
        std::ptr::eq(self.file.as_ptr(), Rc::as_ptr(file))
    }
}

/// All leases, in the order in which they were taken.
#[derive(Clone, Default)]
pub(super) struct Leases {
    all: Vec<Lease>,
}
plain!(struct Leases { all });

impl Leases {
    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Leases {
        let mut copy = self.clone();
        for lease in &mut copy.all {
            let file = lease.file.upgrade().map(|file| Rc::downgrade(&files.file(&file)));
            lease.file = file.unwrap_or_default();
        }
        copy
    }
}

/// What the host says of a file that somebody wants a lease on.
struct About {
    inode: Option<Inode>,
    owner: u32,
}

impl About {
    fn of(guest: &mut Guest<'_>, file: &OpenFile) -> Served<About> {
        let told = guest.input_bytes(&mut || {
            let owner = host::owner(file.host())?;
            Ok([owner.to_le_bytes().to_vec(), Inode::bytes_of(file.host())].concat())
        })?;
        let (owner, inode) = told.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let owner = u32::try_from(u64::from_le_bytes(*owner)).unwrap_or(u32::MAX);
        Ok(About { inode: Inode::from_bytes(inode), owner })
    }
}

/// F_GETLEASE: what a file's lease is, or is about to be.
pub(super) fn get(kernel: &mut Kernel, file: &Rc<OpenFile>) -> u64 {
    kernel.end_late_leases();
    let kind = match kernel.leases.all.iter().find(|lease| lease.is_of(file)) {
        Some(Lease { ends: None, shrinks: None, write: true, .. }) => libc::F_WRLCK,
        Some(Lease { ends: None, .. }) => libc::F_RDLCK,
        _ => libc::F_UNLCK,
    };
    word(kind.into())
}

/// F_SETLEASE.
pub(super) fn set(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    file: &Rc<OpenFile>,
    kind: i32,
) -> Served {
    let write = match kind {
        libc::F_UNLCK => None,
        libc::F_RDLCK => Some(false),
        libc::F_WRLCK => Some(true),
        _ => return errno(libc::EINVAL),
    };
    let about = About::of(guest, file)?;
    let credentials = &kernel.group().credentials;
    if credentials.uid[3] != about.owner && !credentials.has(LEASE) {
        return errno(libc::EACCES);
    }
    let Some(inode) = about.inode else { return errno(libc::EINVAL) };
    kernel.end_late_leases();
    let own = kernel.leases.all.iter().position(|lease| lease.is_of(file));
    match (write, own) {
        (None, None) => return errno(libc::EAGAIN),
        (None, Some(own)) => {
            kernel.leases.all.remove(own);
            kernel.disown_leased(file);
            kernel.wake_openers(inode);
            return Ok(0);
        }
        (Some(_), _) => {}
    }
    let write = write == Some(true);
    kernel.may_lease(guest, file, inode, write)?;
    match own {
        Some(own) => {
            let lease = &mut kernel.leases.all[own];
            lease.write = write;
            if !write {
                lease.shrinks = None;
            }
            kernel.wake_openers(inode);
        }
        None => {
            let file = Rc::downgrade(file);
            kernel.leases.all.push(Lease { file, inode, write, number, ends: None, shrinks: None });
        }
    }
    kernel.own_leased(file);
    Ok(0)
}

/// A file is about to be opened with these flags: who has a lease that does not go with it is told, and this one waits.
pub(super) fn before_open(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    place: &Place,
    flags: i32,
) -> Served<()> {
    let makes_new = libc::O_CREAT | libc::O_EXCL;
    if kernel.leases.all.is_empty() || flags & libc::O_PATH != 0 || flags & makes_new == makes_new {
        return Ok(());
    }
    let told =
        guest.input_bytes(&mut || Ok(busy::found(place, flags).map_or_else(Vec::new, Inode::bytes)))?;
    let Some(inode) = Inode::from_bytes(&told) else { return Ok(()) };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    kernel.end_late_leases();
    let is_in_the_way = |lease: &Lease| lease.inode == inode && !lease.allows(writes);
    if !kernel.leases.all.iter().any(is_in_the_way) {
        return Ok(());
    }
    let lasts = guest.input_number(break_seconds)?;
    let ends = match lasts {
        // Nothing but the holder ends it.
        0 => u64::MAX,
        lasts => kernel.clock.shown().monotonic.saturating_add(lasts.saturating_mul(NANOSECONDS)),
    };
    let mut told = Vec::new();
    for lease in kernel.leases.all.iter_mut().filter(|lease| is_in_the_way(lease)) {
        let is_new = lease.ends.is_none() && (writes || lease.shrinks.is_none());
        if is_new {
            *(if writes { &mut lease.ends } else { &mut lease.shrinks }) = Some(ends);
            told.extend(lease.file.upgrade().map(|file| (file, lease.number)));
        }
    }
    told.iter().for_each(|(file, number)| kernel.tell_of_lease(file, *number));
    if flags & libc::O_NONBLOCK != 0 {
        return errno(libc::EWOULDBLOCK);
    }
    let leases = kernel.leases.all.iter().filter(|lease| is_in_the_way(lease));
    let next = leases.flat_map(|lease| [lease.ends, lease.shrinks]).flatten().min();
    let deadline = next.map(|nanoseconds| Deadline { real: false, nanoseconds });
    wait(Wait::new(On::Lease(inode, writes), deadline, Interrupted::MayRestart))
}

/// How long a lease lasts when it is to be given up.
fn break_seconds() -> i64 {
    let said = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    said.ok().and_then(|said| said.trim().parse().ok()).filter(|said| *said >= 0).unwrap_or(BREAK_SECONDS)
}

impl Kernel {
    /// Whether a file may get a lease: EAGAIN where it is open in a way that does not go with it, or others have leases.
    fn may_lease(
        &mut self,
        guest: &mut Guest<'_>,
        file: &Rc<OpenFile>,
        inode: Inode,
        write: bool,
    ) -> Served<()> {
        let mut open = vec![Rc::clone(file)];
        for file in self.open_files().chain(self.shared.file(inode)) {
            if file.inode() == Some(inode) && !open.iter().any(|known| Rc::ptr_eq(known, file)) {
                open.push(Rc::clone(file));
            }
        }
        let told = guest.input_bytes(&mut || {
            Ok(open
                .iter()
                .flat_map(|file| host::fcntl(file.host(), libc::F_GETFL, 0).to_le_bytes())
                .collect())
        })?;
        let flags = |bytes: &[u8; 8]| i32::try_from(u64::from_le_bytes(*bytes)).unwrap_or(0);
        let all: Vec<i32> = told.as_chunks().0.iter().map(flags).collect();
        let [writers, readers] = opened(&all);
        let [own_writers, own_readers] = opened(all.get(..1).unwrap_or(&[]));
        let waiting = |to_write| {
            let wanted =
                |wait: &Wait| matches!(wait.on, On::Lease(of, writes) if of == inode && writes == to_write);
            self.tasks.waiting(wanted).len()
        };
        let is_open = match write {
            false => writers + waiting(true) > 0,
            true => writers + waiting(true) > own_writers || readers + waiting(false) > own_readers,
        };
        let mut others = self.leases.all.iter().filter(|lease| lease.inode == inode && !lease.is_of(file));
        if is_open || others.any(|lease| write || lease.ends.is_some()) {
            errno(libc::EAGAIN)
        } else {
            Ok(())
        }
    }

    /// Leases that were to be given up by now are.
    fn end_late_leases(&mut self) {
        let now = self.clock.shown().monotonic;
        let is_over = |end: Option<u64>| end.is_some_and(|end| end <= now);
        for lease in self.leases.all.iter_mut().filter(|lease| is_over(lease.shrinks)) {
            (lease.write, lease.shrinks) = (false, None);
        }
        let over = self.leases.all.extract_if(.., |lease| is_over(lease.ends));
        let over: Vec<Lease> = over.collect();
        for lease in over {
            if let Some(file) = lease.file.upgrade() {
                self.disown_leased(&file);
            }
            self.wake_openers(lease.inode);
        }
    }

    /// The leases of open files that nobody has open any more end.
    pub(super) fn end_closed_leases(&mut self) {
        let closed: Vec<Lease> =
            self.leases.all.extract_if(.., |lease| lease.file.strong_count() == 0).collect();
        closed.into_iter().for_each(|lease| self.wake_openers(lease.inode));
    }

    /// Who waits to open a file looks again.
    fn wake_openers(&mut self, inode: Inode) {
        let waiting = self.tasks.waiting(|wait| matches!(wait.on, On::Lease(of, _) if of == inode));
        waiting.into_iter().for_each(|id| self.tasks.wake(id, Why::Ready));
    }
}

/// How many of open files with these flags are open to write, and how many only to read.
fn opened(flags: &[i32]) -> [usize; 2] {
    let counted = |writes: bool| {
        let is = |flags: &&i32| {
            *flags & libc::O_PATH == 0 && (*flags & libc::O_ACCMODE != libc::O_RDONLY) == writes
        };
        flags.iter().filter(is).count()
    };
    [counted(true), counted(false)]
}
