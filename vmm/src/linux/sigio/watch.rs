//! What is looked at in the host for the signals of a file.

use super::super::descriptors::{Detached, OpenFile};
use super::super::host;
use crate::plain::plain;
use std::os::fd::RawFd;
use std::rc::Rc;

/// What happened, as `si_code` says it (asm-generic/siginfo.h).
pub(super) const POLL_IN: i32 = 1;
pub(super) const POLL_OUT: i32 = 2;
pub(super) const POLL_MSG: i32 = 3;
pub(super) const POLL_PRI: i32 = 5;
pub(super) const POLL_HUP: i32 = 6;
/// Urgent data has come. No code of Linux: the signal says no more.
pub(super) const URGENT: i32 = 7;
/// The bit beside those in what a look tells: there is no room to write.
const FULL: u8 = 1;

/// The events of poll that go with a code (`band_table` of fs/fcntl.c).
pub(super) fn band(code: i32) -> i64 {
    match code {
        POLL_OUT => 0x304,
        POLL_MSG => 0x441,
        POLL_PRI => 0x82,
        POLL_HUP => 0x18,
        _ => 0x41,
    }
}

/// The descriptor that was named when the watch was set, and what of the host tells.
#[derive(Clone)]
pub(super) struct Watch {
    number: i32,
    /// The host's epoll or inotify.
    teller: Rc<OpenFile>,
    kind: Kind,
}
plain!(struct Watch { number, teller, kind });

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file that may become ready: whether it is a pipe, and whether it had no room when it was looked at last.
    Ready { pipe: bool, full: bool },
    /// A directory that may change: these events (IN_*), more than once.
    Changes { events: u32, often: bool },
    /// A socket to which urgent data may come.
    Urgent,
}
plain!(enum Kind { 0 = Ready { pipe, full }, 1 = Changes { events, often }, 2 = Urgent });

impl Watch {
    /// For a file to become ready.
    pub(super) fn ready(number: i32, teller: Rc<OpenFile>, pipe: bool) -> Watch {
        // Room that is there from the start is no news.
        Watch { number, teller, kind: Kind::Ready { pipe, full: false } }
    }

    /// For something in a directory to change.
    pub(super) fn changes(number: i32, teller: Rc<OpenFile>, events: u32, often: bool) -> Watch {
        Watch { number, teller, kind: Kind::Changes { events, often } }
    }

    /// For urgent data to come to a socket.
    pub(super) fn urgent(teller: Rc<OpenFile>) -> Watch {
        Watch { number: 0, teller, kind: Kind::Urgent }
    }

    /// Which changes of a directory it waits for, and whether for more than one.
    pub(super) fn wanted(&self) -> (u32, bool) {
        match self.kind {
            Kind::Changes { events, often } => (events, often),
            Kind::Ready { .. } | Kind::Urgent => (0, false),
        }
    }

    /// The descriptor that the signals name.
    pub(super) fn number(&self) -> i32 {
        self.number
    }

    pub(super) fn detached(&self, copies: &mut Detached) -> Watch {
        Watch { teller: copies.file(&self.teller), ..self.clone() }
    }

    /// What to poll to learn that a look would tell something.
    pub(super) fn polled(&self, file: &OpenFile) -> Vec<libc::pollfd> {
        let polled = |file: &OpenFile, events| libc::pollfd { fd: file.host(), events, revents: 0 };
        let mut all = vec![polled(&self.teller, libc::POLLIN)];
        if matches!(self.kind, Kind::Ready { full: true, .. }) {
            all.push(polled(file, libc::POLLOUT));
        }
        all
    }

    /// Asks the host what has happened since the last look: a bit for each code, and [`FULL`].
    pub(super) fn look(&self, file: &OpenFile) -> u8 {
        match self.kind {
            Kind::Ready { pipe, .. } => {
                let events = take_edge(self.teller.host());
                let has = |wanted: i32| events & wanted.cast_unsigned() != 0;
                let mut told = 0;
                if has(libc::EPOLLIN | libc::EPOLLRDHUP) || pipe && has(libc::EPOLLHUP) {
                    told |= 1 << POLL_IN;
                }
                if has(libc::EPOLLPRI) {
                    told |= 1 << POLL_PRI;
                }
                if !pipe && has(libc::EPOLLHUP) {
                    told |= 1 << POLL_HUP;
                }
                told | if is_full(file) { FULL } else { 0 }
            }
            Kind::Changes { events, .. } => u8::from(take_changes(&self.teller, events)) << POLL_MSG,
            Kind::Urgent => u8::from(take_edge(self.teller.host()) != 0) << URGENT,
        }
    }

    /// Takes what a look told: the codes of the signals, and whether it goes on.
    pub(super) fn take(&mut self, told: u8) -> (Vec<i32>, bool) {
        let mut codes: Vec<i32> = (POLL_IN..=URGENT).filter(|code| told >> code & 1 == 1).collect();
        match &mut self.kind {
            Kind::Ready { full, .. } => {
                let before = std::mem::replace(full, told & FULL != 0);
                if before && !*full {
                    codes.push(POLL_OUT);
                }
                (codes, true)
            }
            Kind::Urgent => (codes, true),
            Kind::Changes { often, .. } => {
                let stays = *often || codes.is_empty();
                (codes, stays)
            }
        }
    }
}

/// The events of a file whose edge an epoll has seen since it was asked last.
pub(super) fn take_edge(epoll: RawFd) -> u32 {
    let mut event = [0; 12];
    match host::epoll_wait(epoll, &mut event) {
        1 => u32::from_le_bytes([event[0], event[1], event[2], event[3]]),
        _ => 0,
    }
}

/// Whether a write would find no room.
fn is_full(file: &OpenFile) -> bool {
    host::poll(&mut [libc::pollfd { fd: file.host(), events: libc::POLLOUT, revents: 0 }]) == 0
}

/// Whether an inotify has some of these events; all that it has are taken away.
fn take_changes(inotify: &OpenFile, wanted: u32) -> bool {
    let mut bytes = [0; 4096];
    let mut any = false;
    while let Ok(length @ 1..) = usize::try_from(host::read(inotify.host(), &mut bytes, None)) {
        any |= has_event(bytes.get(..length).unwrap_or_default(), wanted);
    }
    any
}

/// Whether one of a row of `struct inotify_event`s is wanted, or some were lost. That the directory itself is gone is told, too,
/// and is no change in it.
fn has_event(mut row: &[u8], wanted: u32) -> bool {
    while let Some((head, behind)) = row.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(4) & (wanted | libc::IN_Q_OVERFLOW) != 0 {
            return true;
        }
        let name = usize::try_from(word(12)).unwrap_or(usize::MAX);
        row = behind.get(name..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_news_where_there_was_none() {
        let mut watch = Watch::ready(3, OpenFile::new(None), true);
        assert_eq!(watch.take(0), (vec![], true));
        assert_eq!(watch.take(FULL), (vec![], true));
        assert_eq!(watch.take(1 << POLL_IN), (vec![POLL_IN, POLL_OUT], true));
        assert_eq!(watch.take(0), (vec![], true));
    }

    #[test]
    fn events_that_nobody_wants_are_no_change() {
        let event = |mask: u32, name: &[u8]| {
            let words = [1, mask, 0, u32::try_from(name.len()).expect("short")];
            [words.map(u32::to_le_bytes).as_flattened(), name].concat()
        };
        let row = [
            event(libc::IN_IGNORED, b""),
            event(libc::IN_CREATE, b"name\0\0\0\0"),
            event(libc::IN_DELETE, b""),
        ]
        .concat();
        assert!(has_event(&row, libc::IN_DELETE) && has_event(&row, libc::IN_CREATE));
        assert!(!has_event(&row, libc::IN_ACCESS) && !has_event(&[], u32::MAX));
        assert!(has_event(&event(libc::IN_Q_OVERFLOW, b""), libc::IN_ACCESS));
    }

    #[test]
    fn a_change_is_told_once_unless_all_are_wanted() {
        let mut once = Watch::changes(3, OpenFile::new(None), 1, false);
        assert_eq!(once.take(0), (vec![], true));
        assert_eq!(once.take(1 << POLL_MSG), (vec![POLL_MSG], false));
        let mut often = Watch::changes(3, OpenFile::new(None), 1, true);
        assert_eq!(often.take(1 << POLL_MSG), (vec![POLL_MSG], true));
    }
}
