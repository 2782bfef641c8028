//! Who is at the other end of a unix socket (SO_PEERCRED, SCM_CREDENTIALS). The host takes every process of the guest for
//! gretel; which one it is, is kept here.
//!
//! Connections are accepted in the order in which they were made, so that a queue for each listener's name is enough.

use super::Endpoint;
use super::address::Key;
use crate::linux::host::sockets;
use crate::linux::{Kernel, Served, capabilities, errno};
use crate::plain::plain;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::RawFd;

/// A process as a socket tells it: `struct ucred`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ucred {
    pub(super) pid: i32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

plain!(struct Ucred { pid, uid, gid });

impl Ucred {
    pub(super) const SIZE: usize = 12;
    /// What is told of a message whose sender nobody asked for: no process, and the overflow ids.
    pub(super) const UNKNOWN: Ucred = Ucred { pid: 0, uid: 65534, gid: 65534 };

    pub(super) fn bytes(self) -> Vec<u8> {
        [self.pid.to_le_bytes(), self.uid.to_le_bytes(), self.gid.to_le_bytes()].concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Ucred> {
        let [pid, uid, gid] = *bytes.as_chunks::<4>().0.first_chunk::<3>()?;
        let (uid, gid) = (u32::from_le_bytes(uid), u32::from_le_bytes(gid));
        Some(Ucred { pid: i32::from_le_bytes(pid), uid, gid })
    }

    /// Whether the host means us, and so some process of the guest.
    pub(super) fn is_inside(self) -> bool {
        is_ours(self.pid)
    }
}

/// Whether the other end of a unix socket of the host is in the guest.
pub(super) fn is_inside(socket: RawFd) -> bool {
    sockets::peer(socket).is_some_and(is_ours)
}

fn is_ours(pid: i32) -> bool {
    u32::try_from(pid) == Ok(std::process::id())
}

/// What is known of an end.
#[derive(Clone, Debug, Default)]
struct End {
    /// Its name.
    key: Key,
    peer: Option<Ucred>,
}
plain!(struct End { key, peer });

/// A name that is listened at.
#[derive(Clone, Debug)]
struct Listener {
    owner: Ucred,
    /// Those that have connected and were not accepted.
    waiting: VecDeque<Ucred>,
}
plain!(struct Listener { owner, waiting });

/// The ends of unix sockets in the guest.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    all: BTreeMap<u64, End>,
    listeners: BTreeMap<Key, Listener>,
    /// Whether anyone has ever asked to be told of senders (SO_PASSCRED).
    pub(super) senders_wanted: bool,
    /// How many there were when those that are gone were last forgotten.
    swept: usize,
}

plain!(struct Ends { all, listeners, senders_wanted, swept });

impl Ends {
    pub(super) fn named(&mut self, end: Endpoint, key: Key) {
        self.all.entry(end.object).or_default().key = key;
    }

    pub(super) fn listens(&mut self, end: Endpoint, owner: Ucred) {
        let end = self.all.entry(end.object).or_default();
        end.peer = Some(owner);
        if !end.key.is_empty() {
            self.listeners
                .entry(end.key.clone())
                .or_insert(Listener { owner, waiting: VecDeque::new() })
                .owner = owner;
        }
    }

    /// An end connects to a name: to a listener in the guest, or to one outside.
    pub(super) fn connected(&mut self, end: Endpoint, to: &Key, own: Ucred) {
        if let Some(listener) = self.listeners.get_mut(to) {
            listener.waiting.push_back(own);
            self.all.entry(end.object).or_default().peer = Some(listener.owner);
        }
    }

    /// A listener accepts a connection of the guest: `new` is this end of it.
    pub(super) fn accepted(&mut self, listener: Endpoint, new: Endpoint) {
        let key = self.all.get(&listener.object).map(|end| &end.key);
        let peer = key.and_then(|key| self.listeners.get_mut(key)?.waiting.pop_front());
        self.all.entry(new.object).or_default().peer = peer;
    }

    /// An end of a pair that a process has made.
    pub(super) fn joined(&mut self, end: Endpoint, own: Ucred) {
        self.all.entry(end.object).or_default().peer = Some(own);
    }

    /// The process at the other end.
    pub(super) fn peer(&self, end: Endpoint) -> Ucred {
        self.all.get(&end.object).and_then(|end| end.peer).unwrap_or(Ucred::UNKNOWN)
    }

    /// Whether a name is one of the guest's sockets.
    pub(super) fn is_named(&self, key: &Key) -> bool {
        !key.is_empty() && self.all.values().any(|end| end.key == *key)
    }

    /// Forgets all but these.
    fn keep(&mut self, living: &BTreeSet<u64>) {
        self.all.retain(|object, _| living.contains(object));
        let names: BTreeSet<&Key> = self.all.values().map(|end| &end.key).collect();
        self.listeners.retain(|key, _| names.contains(key));
        self.swept = self.all.len();
    }
}

impl Kernel {
    /// The process that runs, by its effective ids.
    pub(super) fn effective(&self) -> Ucred {
        let credentials = &self.group().credentials;
        Ucred { pid: self.pid(), uid: credentials.uid[1], gid: credentials.gid[1] }
    }

    /// The process that runs, by its real ids: as a sender.
    pub(super) fn real(&self) -> Ucred {
        let credentials = &self.group().credentials;
        Ucred { pid: self.pid(), uid: credentials.uid[0], gid: credentials.gid[0] }
    }

    /// That the process that runs may say it is this one.
    pub(super) fn may_claim(&self, claimed: Ucred) -> Served<()> {
        let own = &self.group().credentials;
        let pid = claimed.pid == self.pid() || own.has(capabilities::SYS_ADMIN);
        let uid = own.uid[..3].contains(&claimed.uid) || own.has(capabilities::SETUID);
        let gid = own.gid[..3].contains(&claimed.gid) || own.has(capabilities::SETGID);
        if !(pid && uid && gid) {
            return errno(libc::EPERM);
        }
        if self.groups.get(claimed.pid).is_none() { errno(libc::ESRCH) } else { Ok(()) }
    }

    /// Forgets ends that nobody has open any more, now and then.
    pub(super) fn sweep_ends(&mut self) {
        if self.network.ends.all.len() < 2 * self.network.ends.swept + 16 {
            return;
        }
        let living = self.open_files().filter_map(|file| Some(file.endpoint()?.object)).collect();
        self.network.ends.keep(&living);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(object: u64) -> Endpoint {
        Endpoint { family: libc::AF_UNIX, kind: libc::SOCK_STREAM, object }
    }

    fn process(pid: i32) -> Ucred {
        Ucred { pid, uid: 1000, gid: 100 }
    }

    #[test]
    fn each_end_knows_the_other_ones_process() {
        let (mut ends, name) = (Ends::default(), b"\0name".to_vec());
        ends.named(end(1), name.clone());
        ends.listens(end(1), process(10));
        ends.connected(end(2), &name, process(20));
        ends.connected(end(3), &name, process(30));
        ends.connected(end(4), &b"\0another".to_vec(), process(40));
        ends.accepted(end(1), end(5));
        ends.accepted(end(1), end(6));
        let peers = [1, 2, 3, 4, 5, 6].map(|object| ends.peer(end(object)).pid);
        assert_eq!(peers, [10, 10, 10, 0, 20, 30]);
    }

    #[test]
    fn what_is_closed_is_forgotten_with_its_name() {
        let (mut ends, name) = (Ends::default(), b"\0name".to_vec());
        ends.named(end(1), name.clone());
        ends.listens(end(1), process(10));
        ends.joined(end(2), process(10));
        ends.keep(&BTreeSet::from([2]));
        assert!(!ends.is_named(&name) && ends.listeners.is_empty());
        assert_eq!((ends.peer(end(1)), ends.peer(end(2))), (Ucred::UNKNOWN, process(10)));
    }

    #[test]
    fn a_process_is_written_as_the_kernel_does() {
        let bytes = process(7).bytes();
        assert_eq!((bytes.len(), Ucred::from_bytes(&bytes)), (Ucred::SIZE, Some(process(7))));
        assert_eq!(Ucred::from_bytes(&bytes[..11]), None);
    }
}
