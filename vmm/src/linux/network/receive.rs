//! Receiving: recvfrom, and what recvmsg and read do too.

use super::credentials::Ucred;
use super::flight::{Token, token_from, token_of};
use super::{Endpoint, address, or_would_wait};
use crate::gate::{Input, MemoryWrite};
use crate::linux::descriptors::OpenFile;
use crate::linux::host::sockets::{self, Control, Incoming};
use crate::linux::sharing::Inode;
use crate::linux::transfer::{LONGEST, Segment, usable};
use crate::linux::wait::WOULD_WAIT;
use crate::linux::{Guest, Kernel, Served, Stop, int};
use crate::memory::space::Access;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

/// What was received.
#[derive(Default)]
pub(super) struct Received {
    /// How many bytes, as the call returns it.
    pub(super) count: usize,
    pub(super) details: Details,
}

/// What comes with the bytes.
#[derive(Default)]
pub(super) struct Details {
    pub(super) flags: i32,
    /// From whom.
    pub(super) name: Vec<u8>,
    /// Control messages as the host gave them.
    pub(super) control: Vec<Control>,
    /// The process that sent it, if the program asked.
    pub(super) sender: Option<Ucred>,
    pub(super) files: Vec<Rc<OpenFile>>,
}

pub(super) fn recvfrom(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let (wanted, done) = (a[4] != 0, kernel.again.done);
    let segments = [(a[1], a[2])];
    let received = receive(kernel, guest, (&file, endpoint), &segments, int(a[3]), wanted, done)?;
    if wanted {
        address::write(guest, &received.details.name, a[4], a[5])?;
    }
    Ok(received.count as u64)
}

/// Receives a message or the bytes of a stream, of which `done` bytes are there; with what comes with them, if asked for.
pub(super) fn receive(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    (file, endpoint): (&Rc<OpenFile>, Endpoint),
    segments: &[Segment],
    flags: i32,
    detailed: bool,
    mut done: usize,
) -> Served<Received> {
    let segments = match endpoint.drops(flags) {
        true => vec![(0, wanted(segments))],
        false => usable(guest, segments, Access::Write)?,
    };
    let total: usize = segments.iter().map(|(_, length)| length).sum();
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0 && endpoint.is_stream();
    loop {
        let rest = behind(&segments, done);
        match receive_some(kernel, guest, (file, endpoint), &rest, flags & !libc::MSG_WAITALL, detailed) {
            Ok(received) => {
                done = done.saturating_add(received.count);
                let goes_on = all && received.count > 0 && done < total && received.details.files.is_empty();
                if !goes_on {
                    return Ok(Received { count: done, ..received });
                }
            }
            Err(Stop::Errno(WOULD_WAIT)) => {
                let count = kernel.wait_for_socket(guest, file, libc::POLLIN, done, libc::EAGAIN)?;
                let count = usize::try_from(count).unwrap_or(done);
                return Ok(Received { count, details: Details::default() });
            }
            Err(Stop::Errno(_)) if done > 0 => {
                return Ok(Received { count: done, details: Details::default() });
            }
            Err(stop) => return Err(stop),
        }
    }
}

/// How many bytes are asked for.
fn wanted(segments: &[Segment]) -> usize {
    let sum = segments.iter().fold(0, |sum: u64, (_, length)| sum.saturating_add(*length));
    usize::try_from(sum.min(LONGEST)).expect("at most LONGEST")
}

/// The buffers behind their first bytes.
fn behind(segments: &[(u64, usize)], mut done: usize) -> Vec<(u64, usize)> {
    let mut rest = Vec::with_capacity(segments.len());
    for &(address, length) in segments {
        let skipped = done.min(length);
        done -= skipped;
        rest.push((address.saturating_add(skipped as u64), length - skipped));
    }
    rest
}

/// Receives what there is.
fn receive_some(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    (file, endpoint): (&Rc<OpenFile>, Endpoint),
    segments: &[(u64, usize)],
    flags: i32,
    detailed: bool,
) -> Served<Received> {
    let socket = file.host();
    let room = segments.iter().map(|(_, length)| length).sum();
    let mut incoming = Incoming::new(room);
    // Neither errors nor urgent data are waited for.
    let never = flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0;
    let count = guest.input(&mut || {
        let result = sockets::receive(socket, &mut incoming, flags, detailed);
        let result = or_would_wait(socket, result, if never { libc::MSG_DONTWAIT } else { flags });
        let length = usize::try_from(result).unwrap_or(0).min(room);
        let given = if endpoint.drops(flags) { &[] } else { &incoming.bytes[..length] };
        Input::Bytes { result, writes: scatter(given, segments) }
    })?;
    let count = usize::try_from(count).unwrap_or(0);
    if !detailed {
        return Ok(Received { count, details: Details::default() });
    }
    let details = details(kernel, guest, incoming, endpoint, flags)?;
    Ok(Received { count, details })
}

/// The bytes, put into the buffers in order.
fn scatter(bytes: &[u8], segments: &[(u64, usize)]) -> Vec<MemoryWrite> {
    let mut rest = bytes;
    let mut writes = Vec::new();
    for &(address, length) in segments {
        let (part, behind) = rest.split_at(rest.len().min(length));
        rest = behind;
        if !part.is_empty() {
            writes.push(MemoryWrite { address, bytes: part.to_vec() });
        }
    }
    writes
}

/// What came with the bytes, through the gate: flags, name, credentials, control messages, and of each file what it is.
fn details(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    mut incoming: Incoming,
    endpoint: Endpoint,
    flags: i32,
) -> Served<Details> {
    let is_sender = |it: &Control| (it.level, it.kind) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
    let sender: Vec<Control> =
        incoming.control.extract_if(.., |it| endpoint.is_unix() && is_sender(it)).collect();
    let mut parts = guest.input_parts(&mut || {
        let mut parts = vec![incoming.flags.to_le_bytes().to_vec(), incoming.name.clone()];
        parts.push(sender.first().map_or_else(Vec::new, |it| told(&it.data)));
        parts.push(incoming.control.iter().flat_map(Control::bytes).collect());
        parts.extend(incoming.files.iter().map(|file| Arrived::of(file.as_raw_fd()).bytes()));
        parts
    })?;
    let mut next = || parts.next().unwrap_or_default();
    let (told_flags, name) = (next(), next());
    let (mut sender, control) = (Ucred::from_bytes(&next()), Control::parse(&next()).unwrap_or_default());
    let arrived: Vec<Arrived> = parts.filter_map(|part| Arrived::from_bytes(&part)).collect();
    let token = arrived.first().map(|file| file.token);
    let peeked = flags & libc::MSG_PEEK != 0;
    let files = match token.and_then(|token| kernel.network.flights.land(token, peeked)) {
        Some(cargo) => {
            sender = sender.and(cargo.sender);
            cargo.files
        }
        None => {
            let mut hosts = incoming.files.into_iter();
            arrived.into_iter().map(|file| file.open(kernel, hosts.next())).collect()
        }
    };
    let told_flags = told_flags.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
    let flags = told_flags & !libc::MSG_CMSG_CLOEXEC | flags & libc::MSG_CMSG_CLOEXEC;
    Ok(Details { flags, name, control, sender, files })
}

/// The sender as the guest is told: of its own processes, which one is known by the cargo alone.
fn told(data: &[u8]) -> Vec<u8> {
    let sender = Ucred::from_bytes(data).unwrap_or(Ucred::UNKNOWN);
    if sender.is_inside() { Ucred::UNKNOWN.bytes() } else { sender.bytes() }
}

/// What a file is that came with a message.
struct Arrived {
    token: Token,
    /// Family and kind of a socket.
    socket: Option<(i32, i32)>,
    /// What says which regular file it is.
    inode: Vec<u8>,
}

impl Arrived {
    fn of(file: RawFd) -> Arrived {
        let option = |name| sockets::number_option(file, libc::SOL_SOCKET, name);
        let socket = option(libc::SO_DOMAIN).zip(option(libc::SO_TYPE));
        Arrived { token: token_of(file), socket, inode: Inode::bytes_of(file) }
    }

    fn bytes(&self) -> Vec<u8> {
        let (family, kind) = self.socket.unwrap_or_default();
        let socket = [family.to_le_bytes(), kind.to_le_bytes()].concat();
        [self.token.map(u64::to_le_bytes).concat(), socket, self.inode.clone()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Arrived> {
        let (token, rest) = bytes.split_at_checked(16)?;
        let (socket, inode) = rest.split_at_checked(8)?;
        let [family, kind] =
            [&socket[..4], &socket[4..]].map(|it| it.try_into().map_or(0, i32::from_le_bytes));
        let socket = (family != 0).then_some((family, kind));
        Some(Arrived { token: token_from(token)?, socket, inode: inode.to_vec() })
    }

    /// The open file that it is.
    fn open(self, kernel: &mut Kernel, host: Option<OwnedFd>) -> Rc<OpenFile> {
        match self.socket {
            Some((family, kind)) => OpenFile::of_socket(host, kernel.endpoint(family, kind)),
            None => OpenFile::of_file(host, Inode::from_bytes(&self.inode)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_behind_those_that_are_there() {
        let segments = [(100, 4), (200, 0), (300, 8)];
        let rest = behind(&segments, 6);
        assert_eq!(rest, [(104, 0), (200, 0), (302, 6)]);
        let writes = scatter(b"abc", &rest);
        assert_eq!(writes, [MemoryWrite { address: 302, bytes: b"abc".to_vec() }]);
        let writes = scatter(b"abcdef", &segments);
        let expected = [(100, b"abcd".to_vec()), (300, b"ef".to_vec())];
        assert_eq!(writes, expected.map(|(address, bytes)| MemoryWrite { address, bytes }));
    }

    #[test]
    fn a_file_that_arrived_is_read_as_it_was_written() {
        let arrived =
            Arrived { token: [1, 2], socket: Some((libc::AF_INET, libc::SOCK_DGRAM)), inode: vec![9; 16] };
        let read = Arrived::from_bytes(&arrived.bytes()).expect("all of it");
        assert_eq!((read.token, read.socket, read.inode), (arrived.token, arrived.socket, arrived.inode));
        assert!(Arrived::from_bytes(&[0; 23]).is_none());
    }
}
