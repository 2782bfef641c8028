//! The system calls: fcntl's commands for locks, and flock.

use super::super::attempt::Attempt;
use super::super::descriptors::OpenFile;
use super::super::sharing::Inode;
use super::super::wait::{Interrupted, On, Wait, wait};
use super::super::{Guest, Kernel, Served, Stop, errno, host};
use super::table::{Owner, Range, Table};
use super::{Holder, Locked, Request, unlocked};
use crate::ram::Virt;
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::rc::Rc;

/// What a lock is asked of: which file it is, its size, the position in it, and how it is open.
struct About {
    inode: Inode,
    regular: bool,
    size: i64,
    position: i64,
    flags: i32,
}

impl About {
    fn of(guest: &mut Guest<'_>, file: &OpenFile) -> Served<About> {
        let bytes = guest.input_bytes(&mut || Ok(look(file.host())?.map(i64::to_le_bytes).concat()))?;
        let mut words =
            bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().expect("eight bytes")));
        let mut next = || words.next().unwrap_or_default();
        let inode = Inode::from_bytes(&[next().to_le_bytes(), next().to_le_bytes()].concat());
        Ok(About {
            inode: inode.ok_or(Stop::Errno(libc::EBADF))?,
            regular: next() == 1,
            size: next(),
            position: next(),
            flags: i32::try_from(next()).unwrap_or_default(),
        })
    }
}

/// The device, the number, whether it is a regular file, its size, the position, the flags.
fn look(file: RawFd) -> Result<[i64; 6], i64> {
    let [device, number, mode, _, size] = host::stat(file)?.map(super::super::long);
    let regular = mode & i64::from(libc::S_IFMT) == i64::from(libc::S_IFREG);
    let position = host::seek(file, 0, libc::SEEK_CUR).max(0);
    Ok([device, number, regular.into(), size, position, host::fcntl(file, libc::F_GETFL, 0)])
}

/// A `struct flock`, as the program gave it.
struct Asked {
    /// To write, to read, or none.
    kind: Option<bool>,
    range: Range,
    pid: i32,
}

impl Asked {
    fn of(bytes: &[u8; 32], about: &About) -> Served<Asked> {
        let half = |at: usize| i32::from(i16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let word = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let kind = match half(0) {
            libc::F_RDLCK => Some(false),
            libc::F_WRLCK => Some(true),
            libc::F_UNLCK => None,
            _ => return errno(libc::EINVAL),
        };
        let base = match half(2) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => about.position,
            libc::SEEK_END => about.size,
            _ => return errno(libc::EINVAL),
        };
        let Some(start) = base.checked_add(word(8)) else { return errno(libc::EOVERFLOW) };
        if start < 0 {
            return errno(libc::EINVAL);
        }
        let range = match word(16) {
            0 => Range { first: start, last: i64::MAX },
            length @ 1.. => match start.checked_add(length - 1) {
                Some(last) => Range { first: start, last },
                None => return errno(libc::EOVERFLOW),
            },
            // A negative length is what lies before the start.
            length if start.checked_add(length).is_some_and(|first| first >= 0) => {
                Range { first: start + length, last: start - 1 }
            }
            _ => return errno(libc::EINVAL),
        };
        let pid = i32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
        Ok(Asked { kind, range, pid })
    }
}

/// F_SETLK, F_SETLKW, F_GETLK, and the same of open files.
pub(in super::super) fn record(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    command: i32,
    address: Virt,
) -> Served {
    let bytes = guest.read_array(address)?;
    let about = About::of(guest, file)?;
    let asked = Asked::of(&bytes, &about)?;
    let of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    let owner = if of_file { Owner::File(Rc::downgrade(file)) } else { Owner::Process(kernel.pid()) };
    if of_file && asked.pid != 0 || about.flags & libc::O_PATH != 0 {
        return errno(if about.flags & libc::O_PATH != 0 { libc::EBADF } else { libc::EINVAL });
    }
    kernel.unlock_gone();
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        return tell(kernel, guest, file, (&about, &asked, &owner), (address, bytes));
    }
    let access = about.flags & libc::O_ACCMODE;
    let allowed = match asked.kind {
        Some(true) => access != libc::O_RDONLY,
        Some(false) => access != libc::O_WRONLY,
        None => true,
    };
    if !allowed {
        return errno(libc::EBADF);
    }
    let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    set(kernel, guest, file, &about, &asked, owner, waits)
}

/// Takes a lock, or lets go of one.
fn set(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    about: &About,
    asked: &Asked,
    owner: Owner,
    waits: bool,
) -> Served {
    let (inode, range) = (about.inode, asked.range);
    let Some(write) = asked.kind else {
        if let Some(locked) = kernel.locks.files.get_mut(&inode) {
            locked.table.set(&owner, None, range);
            locked.settle(range);
            kernel.unlocked_in_part(inode);
        }
        return Ok(0);
    };
    let known = kernel.locks.files.get(&inode);
    let blocked_here = known.is_some_and(|it| it.table.conflicts(&owner, write, range).next().is_some());
    let holder = match known {
        Some(locked) => locked.holder.clone(),
        None => Holder(new_holder(guest, file, about)?),
    };
    let taken = match blocked_here {
        true => errno(libc::EAGAIN),
        false => guest.input_number(|| holder.set(Some(write), range)),
    };
    match taken {
        Err(Stop::Errno(libc::EAGAIN | libc::EACCES)) if waits => {
            let request = Request { inode, owner, write, range, holder, blocked_here };
            if kernel.would_deadlock(&request) {
                return errno(libc::EDEADLK);
            }
            let on = On::Attempt(Rc::new(Attempt::Record(request)));
            return wait(Wait::new(on, None, Interrupted::MayRestart));
        }
        taken => taken?,
    };
    let fresh = || Locked { table: Table::default(), holder, known: Vec::new() };
    let locked = kernel.locks.files.entry(inode).or_insert_with(fresh);
    locked.table.set(&owner, Some(write), range);
    if file.inode().is_none() && !locked.knows(file) {
        locked.known.push(Rc::downgrade(file));
    }
    if !write {
        kernel.unlocked_in_part(inode);
    }
    Ok(0)
}

/// The open file by which the host is to hold the locks of a file.
fn new_holder(guest: &mut Guest<'_>, file: &OpenFile, about: &About) -> Served<Rc<OpenFile>> {
    if !about.regular {
        return Ok(OpenFile::new(None));
    }
    let opened = super::super::files::open_host(guest, &mut || host::reopen_for_writing(file.host()))?;
    Ok(OpenFile::new(opened))
}

/// F_GETLK: the first lock that would be in the way.
fn tell(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    (about, asked, owner): (&About, &Asked, &Owner),
    (address, mut bytes): (Virt, [u8; 32]),
) -> Served {
    let Some(write) = asked.kind else { return errno(libc::EINVAL) };
    let known = kernel.locks.files.get(&about.inode);
    let found = known.and_then(|locked| locked.table.conflicts(owner, write, asked.range).next());
    if let Some(lock) = found {
        let pid = if let Owner::Process(pid) = lock.owner { pid } else { -1 };
        let told = lock.range.flock(Some(lock.write));
        bytes[..24].copy_from_slice(&told[..24]);
        bytes[24..28].copy_from_slice(&pid.to_le_bytes());
    } else if about.regular {
        let holder = known.map_or_else(|| Holder(Rc::clone(file)), |locked| locked.holder.clone());
        let outside = guest.input_bytes(&mut || {
            let mut lock = asked.range.flock(asked.kind);
            let asked = holder.ask(&mut lock);
            Ok(if asked && lock[..2] != unlocked() { lock.to_vec() } else { Vec::new() })
        })?;
        match <[u8; 32]>::try_from(outside) {
            Ok(told) => bytes = told,
            Err(_) => bytes[..2].copy_from_slice(&unlocked()),
        }
    } else {
        bytes[..2].copy_from_slice(&unlocked());
    }
    guest.write(address, &bytes)?;
    Ok(0)
}

impl Kernel {
    /// Locks of a file were let go, or may be shared now.
    fn unlocked_in_part(&mut self, inode: Inode) {
        self.locks.files.retain(|_, locked| !locked.table.is_empty());
        self.wake_attempts(|attempt| matches!(attempt, Attempt::Record(request) if request.inode == inode));
    }

    /// Whether those who are in the way of a process wait for it, themselves or through others.
    fn would_deadlock(&self, request: &Request) -> bool {
        let Owner::Process(own) = request.owner else { return false };
        let attempts = self.attempts();
        let (mut seen, mut todo) = (BTreeSet::new(), self.in_the_way(request));
        while let Some(pid) = todo.pop() {
            if pid == own {
                return true;
            }
            if seen.insert(pid) {
                for (_, attempt) in &attempts {
                    if let Attempt::Record(other) = &**attempt
                        && other.owner == Owner::Process(pid)
                    {
                        todo.extend(self.in_the_way(other));
                    }
                }
            }
        }
        false
    }

    /// The processes whose locks are in the way of a request.
    fn in_the_way(&self, request: &Request) -> Vec<i32> {
        let Some(locked) = self.locks.files.get(&request.inode) else { return Vec::new() };
        let conflicts = locked.table.conflicts(&request.owner, request.write, request.range);
        let process = |owner: &Owner| if let Owner::Process(pid) = owner { Some(*pid) } else { None };
        conflicts.filter_map(|lock| process(&lock.owner)).collect()
    }
}

/// flock: the open file's own lock in the host, which is not waited for there.
pub(in super::super) fn flock(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    descriptor: i32,
    operation: i32,
) -> Served {
    let file = kernel.files().get(descriptor)?;
    let first = kernel.again.why.is_none();
    let taken = guest.input_number(|| host::flock(file.host(), operation | libc::LOCK_NB));
    // Another kind of lock is given up even if the new one cannot be had.
    if first && (operation & libc::LOCK_EX == 0 || taken.is_err()) {
        kernel.wake_attempts(|attempt| matches!(attempt, Attempt::Flock(..)));
    }
    match taken {
        Err(Stop::Errno(libc::EWOULDBLOCK)) if operation & libc::LOCK_NB == 0 => {
            let on = On::Attempt(Rc::new(Attempt::Flock(file, operation)));
            wait(Wait::new(on, None, Interrupted::MayRestart))
        }
        taken => taken,
    }
}
