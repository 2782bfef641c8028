//! Sending: sendto, and what sendmsg and write do too.

use super::address::{self, Here};
use super::flight::{Cargo, Loading};
use super::{Endpoint, or_would_wait};
use crate::linux::descriptors::OpenFile;
use crate::linux::host::sockets::{self, Outgoing};
use crate::linux::transfer::{LONGEST, Segment, usable};
use crate::linux::wait::WOULD_WAIT;
use crate::linux::{Guest, Kernel, Served, Stop, errno, int};
use crate::memory::space::Access;
use std::rc::Rc;

/// A message to be sent.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// To whom; empty for the peer.
    pub(super) name: Vec<u8>,
    /// Control messages that the host gets as they are.
    pub(super) control: Vec<u8>,
    pub(super) cargo: Cargo,
}

impl Message {
    /// Bytes alone.
    pub(super) fn plain(bytes: Vec<u8>) -> Message {
        Message { bytes, name: Vec::new(), control: Vec::new(), cargo: Cargo::default() }
    }
}

/// Reads the bytes of a message. Of a stream, those up to the first that cannot be read; else it needs all.
pub(super) fn gather(guest: &mut Guest<'_>, endpoint: Endpoint, segments: &[Segment]) -> Served<Vec<u8>> {
    let readable = usable(guest, segments, Access::Read)?;
    let wanted = segments.iter().fold(0_u64, |sum, (_, length)| sum.saturating_add(*length));
    let total: usize = readable.iter().map(|(_, length)| length).sum();
    if !endpoint.is_stream() && (total as u64) < wanted {
        return errno(if wanted > LONGEST { libc::EMSGSIZE } else { libc::EFAULT });
    }
    let mut bytes = vec![0; total];
    let mut rest = &mut bytes[..];
    for (address, length) in readable {
        let (part, behind) = rest.split_at_mut(length);
        guest.read(address, part)?;
        rest = behind;
    }
    Ok(bytes)
}

pub(super) fn sendto(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let name = if a[4] == 0 { Vec::new() } else { address::read(kernel, guest, a[4], a[5])? };
    let message = Message { name, ..Message::plain(gather(guest, endpoint, &[(a[1], a[2])])?) };
    let done = kernel.again.done;
    send(kernel, guest, (&file, endpoint), &message, int(a[3]), done)
}

/// Sends a message, of which `done` bytes are sent. A stream takes all of it, as long as that may wait.
pub(super) fn send(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    (file, endpoint): (&Rc<OpenFile>, Endpoint),
    message: &Message,
    flags: i32,
    mut done: usize,
) -> Served {
    // Nobody would tell the program when its buffers are free: they are at once.
    let flags = flags & !libc::MSG_ZEROCOPY;
    done = done.min(message.bytes.len());
    loop {
        match send_some(kernel, guest, (file, endpoint), message, flags, done) {
            Ok(count) => {
                done = message
                    .bytes
                    .len()
                    .min(done.saturating_add(usize::try_from(count).unwrap_or(usize::MAX)));
                if count == 0 || done == message.bytes.len() || !endpoint.is_stream() {
                    return Ok(done as u64);
                }
            }
            // The queue of another than the peer is full, and nothing tells when it is not.
            Err(Stop::Errno(WOULD_WAIT)) if endpoint.is_unix() && !message.name.is_empty() => {
                return kernel.try_later();
            }
            Err(Stop::Errno(WOULD_WAIT)) => {
                return kernel.wait_for_socket(guest, file, libc::POLLOUT, done, libc::EAGAIN);
            }
            Err(Stop::Errno(_)) if done > 0 => return Ok(done as u64),
            Err(stop) => {
                let broken = matches!(stop, Stop::Errno(libc::EPIPE)) && endpoint.is_stream();
                if broken && flags & libc::MSG_NOSIGNAL == 0 {
                    kernel.raise_here(libc::SIGPIPE, libc::SI_USER);
                }
                return Err(stop);
            }
        }
    }
}

/// Sends what the host takes at once of the bytes behind `done`; what the message carries goes with the first.
fn send_some(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    (file, endpoint): (&Rc<OpenFile>, Endpoint),
    message: &Message,
    flags: i32,
    done: usize,
) -> Served {
    let (here, socket, ends) = (Here::of(kernel), file.host(), &kernel.network.ends);
    let mut cargo = message.cargo.clone();
    if endpoint.is_unix() && ends.senders_wanted && cargo.sender.is_none() {
        cargo.sender = Some(kernel.real());
    }
    let loaded = done == 0 && (cargo.sender.is_some() || !cargo.files.is_empty());
    let is_ours = |key: &address::Key| ends.is_named(key);
    let mut loading = Loading { cargo: &cargo, here, is_ours: &is_ours, sent: None };
    let sent = guest.input_number(|| {
        let (mut control, mut token) = (message.control.clone(), None);
        if loaded {
            match loading.pack((socket, endpoint), &message.name) {
                Ok((packed, kept)) => {
                    control.extend(packed);
                    token = kept;
                }
                Err(error) => return error,
            }
        }
        let outgoing = Outgoing { bytes: &message.bytes[done..], name: &message.name, control };
        let result = here.call(&message.name, || sockets::send(socket, &outgoing, flags));
        drop(token);
        or_would_wait(socket, result, flags)
    })?;
    let flown = loading.sent;
    if loaded {
        kernel.depart(guest, &cargo, flown)?;
    }
    Ok(sent)
}
