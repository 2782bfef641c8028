//! Signals that tell of files: that one is ready (O_ASYNC), and that something in a directory has changed (F_NOTIFY).
//!
//! Linux sends them the moment that it happens. Here the host is looked at where the personality has the processor anyway: at the end of
//! calls, when all wait, and when a task that computes is preempted. What was found is an input; who gets which signal is
//! computed. For readiness the host's side is an epoll that tells of each edge, for a directory an inotify ([`watch`]); [`calls`] are the
//! commands of fcntl and ioctl. That a lease is to be given up ([`super::leases`]) is told in the same way.
//!
//! Example: a server sets O_ASYNC on its socket and computes. A byte comes; within 5 ms the server is preempted, the socket's edge is
//! told, and its handler of SIGIO runs.

pub(super) mod calls;
mod watch;

use super::descriptors::{Detached, OpenFile};
use super::wait::LOOK_AT_FILES;
use super::{Guest, Kernel, Stop};
use crate::failure::ProcessError;
use crate::plain::plain;
use crate::signal::{Cause, Raised};
use std::rc::{Rc, Weak};
use watch::Watch;

/// To whom the signals of a file go; nobody, if the id is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owner {
    kind: Kind,
    id: i32,
    /// Who said so: its real and effective user.
    users: [u32; 2],
}
plain!(struct Owner { kind, id, users });

/// What an owner's id is of; in the order of F_OWNER_TID and its kin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Task,
    Process,
    ProcessGroup,
}
plain!(enum Kind { 0 = Task, 1 = Process, 2 = ProcessGroup });

/// An open file for which something of this is set.
#[derive(Clone)]
struct Asked {
    file: Weak<OpenFile>,
    owner: Owner,
    /// The signal that F_SETSIG chose, or zero: SIGIO that says no more.
    signal: i32,
    /// O_ASYNC is set.
    ready: Option<Watch>,
    /// F_NOTIFY waits for a change.
    changes: Option<Watch>,
    /// It is a socket with an owner, who is told of urgent data whatever else is set.
    urgent: Option<Watch>,
}
plain!(struct Asked { file, owner, signal, ready, changes, urgent });

impl Asked {
    fn watches(&self) -> impl Iterator<Item = &Watch> {
        [&self.ready, &self.changes, &self.urgent].into_iter().flatten()
    }
}

/// All such files.
#[derive(Clone, Default)]
pub(super) struct Sigio {
    files: Vec<Asked>,
    /// When the host was looked at last, by the monotonic clock.
    looked: u64,
}
plain!(struct Sigio { files, looked });

impl Sigio {
    /// The same with no host's files.
    pub(super) fn detached(&self, copies: &mut Detached) -> Sigio {
        let mut copy = self.clone();
        for asked in &mut copy.files {
            let file = asked.file.upgrade().map(|file| Rc::downgrade(&copies.file(&file)));
            asked.file = file.unwrap_or_default();
            for watch in [&mut asked.ready, &mut asked.changes, &mut asked.urgent].into_iter().flatten() {
                *watch = watch.detached(copies);
            }
        }
        copy
    }

    /// Whether the host is to be looked at.
    pub(super) fn watches(&self) -> bool {
        self.files.iter().any(|asked| asked.watches().next().is_some())
    }

    /// What to poll in the host so that no change is slept through.
    pub(super) fn polled(&self) -> Vec<libc::pollfd> {
        self.all().flat_map(|(file, watch)| watch.polled(&file)).collect()
    }

    /// All watches with their files, in order.
    fn all(&self) -> impl Iterator<Item = (Rc<OpenFile>, &Watch)> {
        let of = |asked: &Asked| asked.file.upgrade();
        self.files
            .iter()
            .flat_map(move |asked| asked.watches().filter_map(move |watch| Some((of(asked)?, watch))))
    }

    fn find(&self, file: &Rc<OpenFile>) -> Option<&Asked> {
        self.files.iter().find(|asked| std::ptr::eq(asked.file.as_ptr(), Rc::as_ptr(file)))
    }

    /// What is set for a file, to be changed.
    fn entry(&mut self, file: &Rc<OpenFile>) -> &mut Asked {
        let known = self.files.iter().position(|asked| std::ptr::eq(asked.file.as_ptr(), Rc::as_ptr(file)));
        let at = known.unwrap_or_else(|| {
            let file = Rc::downgrade(file);
            let owner = Owner::default();
            self.files.push(Asked { file, owner, signal: 0, ready: None, changes: None, urgent: None });
            self.files.len() - 1
        });
        &mut self.files[at]
    }
}

/// A signal that is to be sent: to whom, F_SETSIG's choice, the descriptor, and what happened.
struct News {
    owner: Owner,
    signal: i32,
    number: i32,
    code: i32,
}

impl Kernel {
    /// Looks at the host at the end of a call: of whoever is told of files at each, of the others when it has not been looked at for
    /// a while. A server's workers do not pay for what its master wants to know.
    pub(super) fn tell_of_files_after_call(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        let is_due = self.clock.shown().monotonic >= self.sigio.looked.saturating_add(LOOK_AT_FILES);
        if is_due || self.is_told_of_files() { self.tell_of_files(guest) } else { Ok(()) }
    }

    /// Whether the process that runs is told of some file, or nobody is: what happens before there is an owner is lost.
    fn is_told_of_files(&self) -> bool {
        let (pid, process_group) = (self.tasks.current().group, self.group().process_group);
        self.sigio.files.iter().any(|asked| match asked.owner.kind {
            _ if asked.owner.id == 0 => true,
            Kind::Task => self.tasks.get(asked.owner.id).is_some_and(|task| task.group == pid),
            Kind::Process => asked.owner.id == pid,
            Kind::ProcessGroup => asked.owner.id == process_group,
        })
    }

    /// Looks at the host, and sends the signals of what has happened.
    pub(super) fn tell_of_files(&mut self, guest: &mut Guest<'_>) -> Result<(), ProcessError> {
        self.sigio.files.retain(|asked| asked.file.strong_count() > 0);
        if !self.sigio.watches() {
            return Ok(());
        }
        self.sigio.looked = self.clock.shown().monotonic;
        let watches: Vec<_> = self.sigio.all().map(|(file, watch)| (file, watch.clone())).collect();
        let told =
            guest.input_bytes(&mut || Ok(watches.iter().map(|(file, watch)| watch.look(file)).collect()));
        drop(watches);
        let told = match told {
            Ok(told) => told,
            Err(Stop::Fatal(error)) => return Err(error),
            Err(_) => Vec::new(),
        };
        self.take_told(&told).into_iter().for_each(|news| self.send_news(&news));
        Ok(())
    }

    /// Takes a byte for each watch, and gives the signals.
    fn take_told(&mut self, told: &[u8]) -> Vec<News> {
        let (mut told, mut all) = (told.iter().copied(), Vec::new());
        for asked in &mut self.sigio.files {
            let (owner, signal) = (asked.owner, asked.signal);
            for slot in [&mut asked.ready, &mut asked.changes, &mut asked.urgent] {
                let Some(watch) = slot else { continue };
                let (codes, stays) = watch.take(told.next().unwrap_or(0));
                all.extend(codes.into_iter().map(|code| News {
                    owner,
                    signal,
                    number: watch.number(),
                    code,
                }));
                if !stays {
                    *slot = None;
                }
            }
        }
        all
    }

    /// Sends a signal of a file to its owner (`send_sigio` of fs/fcntl.c).
    fn send_news(&mut self, news: &News) {
        let id = news.owner.id;
        match news.owner.kind {
            _ if id == 0 => {}
            Kind::Task => {
                if let Some(pid) =
                    self.tasks.get(id).map(|task| task.group).filter(|pid| self.may_tell(news, *pid))
                {
                    self.signal_task(id, self.signal_of(news, pid));
                }
            }
            Kind::Process => self.tell_process(news, id),
            Kind::ProcessGroup => {
                self.groups.in_process_group(id).into_iter().for_each(|pid| self.tell_process(news, pid));
            }
        }
    }

    /// A file without an owner gets the process that runs: somebody is to be told of its lease.
    pub(super) fn own_leased(&mut self, file: &Rc<OpenFile>) {
        let [real, effective, ..] = self.group().credentials.uid;
        let id = self.pid();
        let asked = self.sigio.entry(file);
        if asked.owner.id == 0 {
            asked.owner = Owner { kind: Kind::Process, id, users: [real, effective] };
        }
    }

    /// Nobody is told of a file any more, and no signal is chosen for it: its lease is gone.
    pub(super) fn disown_leased(&mut self, file: &Rc<OpenFile>) {
        let asked = self.sigio.entry(file);
        (asked.owner, asked.signal) = (Owner::default(), 0);
    }

    /// Tells the owner of a file that its lease is to be given up.
    pub(super) fn tell_of_lease(&mut self, file: &Rc<OpenFile>, number: i32) {
        let (owner, signal) =
            self.sigio.find(file).map(|asked| (asked.owner, asked.signal)).unwrap_or_default();
        self.send_news(&News { owner, signal, number, code: watch::POLL_MSG });
    }

    fn tell_process(&mut self, news: &News, pid: i32) {
        if self.may_tell(news, pid) {
            self.signal_group(pid, self.signal_of(news, pid));
        }
    }

    /// Whether who chose the owner may send it signals (`sigio_perm`).
    fn may_tell(&self, news: &News, pid: i32) -> bool {
        let Some(group) = self.groups.get(pid) else { return false };
        let [real, _, saved, _] = group.credentials.uid;
        let [by_real, by_effective] = news.owner.users;
        by_effective == 0 || [real, saved].contains(&by_real) || [real, saved].contains(&by_effective)
    }

    /// One that F_SETSIG chose says what has happened; where it can no more be queued, SIGIO says that there is something.
    fn signal_of(&self, news: &News, pid: i32) -> Raised {
        if news.code == watch::URGENT {
            return Raised::by_kernel(libc::SIGURG);
        }
        let queued = news.signal >= super::signals::FIRST_REAL_TIME;
        if news.signal == 0 || queued && self.queue_is_full(pid) {
            return Raised::by_kernel(libc::SIGIO);
        }
        let cause = Cause::File { number: news.number, band: watch::band(news.code) };
        Raised::new(news.signal, news.code, cause)
    }
}
