//! Open files on their way from one process of the guest to another, in a message (SCM_RIGHTS).
//!
//! The files are the guest's, and stay here. The host's message carries a token in their place: an end of a pipe that nobody
//! uses. Its number tells which files it stands for when it is received; so a message keeps what belongs to it however it is
//! queued, looked at, or thrown away. We keep the pipe's other end: it tells when the last copy of the token is gone, and
//! then the files close. To a process outside, the host's own files go as they are.

use super::Endpoint;
use super::address::Here;
use super::credentials::{Ucred, is_inside};
use crate::linux::descriptors::{Detached, OpenFile};
use crate::linux::host::{self, sockets};
use crate::linux::{Guest, Kernel, Served};
use crate::plain::plain;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// What a message carries beside its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Cargo {
    pub(super) files: Vec<Rc<OpenFile>>,
    pub(super) sender: Option<Ucred>,
}
plain!(struct Cargo { files, sender });

/// Device and number of a token.
pub(super) type Token = [u64; 2];

/// The token of an open file of the host, if it is one.
pub(super) fn token_of(file: RawFd) -> Token {
    host::stat(file).map_or([0; 2], |[device, number, ..]| [device, number])
}

/// Cargo on its way.
#[derive(Clone, Debug)]
struct Flight {
    cargo: Cargo,
    /// Our end of the token.
    lifeline: Rc<OpenFile>,
}
plain!(struct Flight { cargo, lifeline });

/// All of them, by token.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    all: BTreeMap<Token, Flight>,
}

plain!(struct Flights { all });

impl Flights {
    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Flights {
        let mut copy = self.clone();
        for flight in copy.all.values_mut() {
            flight.lifeline = files.file(&flight.lifeline);
            flight.cargo.files.iter_mut().for_each(|file| *file = files.file(file));
        }
        copy
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Rc<OpenFile>> {
        self.all.values().flat_map(|flight| &flight.cargo.files)
    }

    /// What a token stands for, if it is one. It stays while the message does (`peeked`).
    pub(super) fn land(&mut self, token: Token, peeked: bool) -> Option<Cargo> {
        if peeked {
            return self.all.get(&token).map(|flight| flight.cargo.clone());
        }
        self.all.remove(&token).map(|flight| flight.cargo)
    }
}

/// A message's cargo, while the host is asked to send it.
pub(super) struct Loading<'a> {
    pub(super) cargo: &'a Cargo,
    pub(super) here: Here,
    /// Whether the receiver's name is one of the guest's; asked with its key.
    pub(super) is_ours: &'a dyn Fn(&super::address::Key) -> bool,
    /// The token and our end of it, once it was sent.
    pub(super) sent: Option<(Token, OwnedFd)>,
}

impl Loading<'_> {
    /// The control messages with the cargo or its token, and what has to stay open until they are sent.
    pub(super) fn pack(
        &mut self,
        (socket, endpoint): (RawFd, Endpoint),
        name: &[u8],
    ) -> Result<(Vec<u8>, Option<OwnedFd>), i64> {
        let files: Vec<RawFd>;
        let mut token = None;
        if self.reaches_us(socket, endpoint, name) {
            let [kept, end] = sockets::lifeline()?;
            files = vec![end.as_raw_fd()];
            self.sent = Some((token_of(end.as_raw_fd()), kept));
            token = Some(end);
        } else {
            files = self.cargo.files.iter().map(|file| file.host()).collect();
        }
        if files.is_empty() {
            return Ok((Vec::new(), token));
        }
        let data = files.into_iter().flat_map(i32::to_le_bytes).collect();
        let rights = sockets::Control { level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, data };
        Ok((rights.bytes(), token))
    }

    /// Whether the message goes to a process of the guest.
    fn reaches_us(&self, socket: RawFd, endpoint: Endpoint, name: &[u8]) -> bool {
        if is_inside(socket) {
            return true;
        }
        let named = |name: &[u8]| (self.is_ours)(&self.here.key(name));
        let peer = || sockets::name(libc::SYS_getpeername, socket).unwrap_or_default();
        endpoint.kind == libc::SOCK_DGRAM && if name.is_empty() { named(&peer()) } else { named(name) }
    }
}

impl Kernel {
    /// What was sent is on its way.
    pub(super) fn depart(
        &mut self,
        guest: &mut Guest<'_>,
        cargo: &Cargo,
        sent: Option<(Token, OwnedFd)>,
    ) -> Served<()> {
        let (token, kept) = sent.map_or((None, None), |(token, kept)| (Some(token), Some(kept)));
        let bytes = guest.input_bytes(&mut || {
            Ok(token.map_or_else(Vec::new, |token| token.map(u64::to_le_bytes).concat()))
        })?;
        if let Some(token) = token_from(&bytes) {
            let flight = Flight { cargo: cargo.clone(), lifeline: OpenFile::new(kept) };
            self.network.flights.all.insert(token, flight);
        }
        Ok(())
    }

    /// Closes the files of messages that were thrown away; these may be sockets with such messages in them.
    pub(in crate::linux) fn sweep_flights(&mut self, guest: &mut Guest<'_>) -> Served<()> {
        while !self.network.flights.all.is_empty() {
            let flights = &self.network.flights.all;
            let gone = guest.input_bytes(&mut || {
                let cut = flights.iter().filter(|(_, flight)| sockets::is_cut(flight.lifeline.host()));
                Ok(cut.flat_map(|(token, _)| token.map(u64::to_le_bytes).concat()).collect())
            })?;
            if gone.is_empty() {
                break;
            }
            for token in gone.chunks(16).filter_map(token_from) {
                self.network.flights.all.remove(&token);
            }
        }
        Ok(())
    }
}

/// A token as it stands in the journal.
pub(super) fn token_from(bytes: &[u8]) -> Option<Token> {
    let [device, number] = *bytes.as_chunks::<8>().0.first_chunk::<2>()?;
    Some([u64::from_le_bytes(device), u64::from_le_bytes(number)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_lands_once_unless_it_is_only_looked_at() {
        let mut flights = Flights::default();
        let cargo = Cargo { files: vec![OpenFile::new(None)], sender: None };
        flights.all.insert([1, 2], Flight { cargo, lifeline: OpenFile::new(None) });
        assert!(flights.land([1, 3], false).is_none());
        assert_eq!(flights.land([1, 2], true).map(|cargo| cargo.files.len()), Some(1));
        assert_eq!(flights.land([1, 2], false).map(|cargo| cargo.files.len()), Some(1));
        assert!(flights.land([1, 2], false).is_none());
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        assert_eq!(token_from(&[3_u64, 4].map(u64::to_le_bytes).concat()), Some([3, 4]));
        assert_eq!(token_from(&[]), None);
    }
}
