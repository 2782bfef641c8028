//! Sockets: the host's own, under the guest's descriptor numbers. A call that would wait makes its task wait, as data
//! ([`super::wait`]); the host is only ever asked without waiting.
//!
//! [`open`] makes them (socket, socketpair, accept), [`connection`] joins them (bind, listen, connect, shutdown, and the names
//! of both ends), [`address`] is the form of names. [`send`] and [`receive`] move bytes, [`message`] is both with a
//! `struct msghdr`, [`control`] its control messages. [`options`] are socket options, [`requests`] those of ioctl.
//!
//! What the host cannot know is ours: which process of the guest is at the other end ([`credentials`]), and the open files
//! that a message carries from one process of the guest to another ([`flight`]).
//!
//! Example: `recv` on a socket with nothing in it gives WOULD_WAIT at the gate; the task waits for POLLIN of the host's
//! socket, and the call is served again when that has come.

mod address;
mod connection;
mod control;
mod credentials;
mod flight;
mod message;
mod open;
mod options;
mod receive;
pub(super) mod requests;
mod send;

use super::descriptors::{Detached, OpenFile};
use super::host::sockets;
use super::transfer::Segment;
use super::wait::{Deadline, Interrupted, On, WOULD_WAIT, Wait, wait};
use super::{Guest, Kernel, Served, errno, int};
use crate::plain::plain;
use std::rc::Rc;

/// A socket, as it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// AF_UNIX and so on.
    family: i32,
    /// SOCK_STREAM and so on.
    kind: i32,
    /// Its own number.
    object: u64,
}

plain!(struct Endpoint { family, kind, object });

impl Endpoint {
    fn is_unix(self) -> bool {
        self.family == libc::AF_UNIX
    }

    /// Whether the host sends and receives through it, once it is open, whoever asks.
    pub(super) fn moves_bytes_for_anyone(self) -> bool {
        matches!(self.family, libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)
    }

    pub(super) fn is_stream(self) -> bool {
        self.kind == libc::SOCK_STREAM
    }

    /// Whether MSG_TRUNC has it drop the bytes that it would give (tcp(7)).
    fn drops(self, flags: i32) -> bool {
        let is_tcp = self.is_stream() && matches!(self.family, libc::AF_INET | libc::AF_INET6);
        is_tcp && flags & (libc::MSG_TRUNC | libc::MSG_ERRQUEUE) == libc::MSG_TRUNC
    }
}

/// What sockets have that is not the host's.
#[derive(Clone, Default)]
pub(super) struct Network {
    ends: credentials::Ends,
    flights: flight::Flights,
}

plain!(struct Network { ends, flights });

impl Network {
    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Network {
        Network { ends: self.ends.clone(), flights: self.flights.detached(files) }
    }
}

super::table::calls! {
    /// Serves a call on sockets.
    fn serve(kernel, guest, call, a) {
        libc::SYS_socket => open::socket(kernel, guest, int(a[0]), int(a[1]), int(a[2])),
        libc::SYS_socketpair => open::pair(kernel, guest, a),
        libc::SYS_accept => open::accept(kernel, guest, a, 0),
        libc::SYS_accept4 => open::accept(kernel, guest, a, int(a[3])),
        libc::SYS_bind => connection::bind(kernel, guest, a),
        libc::SYS_listen => connection::listen(kernel, guest, int(a[0]), int(a[1])),
        libc::SYS_connect => connection::connect(kernel, guest, a),
        libc::SYS_shutdown => connection::shutdown(kernel, guest, int(a[0]), int(a[1])),
        libc::SYS_getsockname | libc::SYS_getpeername => connection::name(kernel, guest, call, a),
        libc::SYS_getsockopt => options::get(kernel, guest, a),
        libc::SYS_setsockopt => options::set(kernel, guest, a),
        libc::SYS_sendto => send::sendto(kernel, guest, a),
        libc::SYS_recvfrom => receive::recvfrom(kernel, guest, a),
        libc::SYS_sendmsg => message::sendmsg(kernel, guest, a),
        libc::SYS_recvmsg => message::recvmsg(kernel, guest, a),
        libc::SYS_sendmmsg => message::sendmmsg(kernel, guest, a),
        libc::SYS_recvmmsg => message::recvmmsg(kernel, guest, a),
    }
}

/// read and its kin.
pub(super) fn read(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    endpoint: Endpoint,
    segments: &[Segment],
    positioned: bool,
) -> Served {
    if positioned {
        return errno(libc::ESPIPE);
    }
    if segments.iter().all(|(_, length)| *length == 0) {
        return Ok(0);
    }
    let done = kernel.again.done;
    Ok(receive::receive(kernel, guest, (file, endpoint), segments, 0, false, done)?.count as u64)
}

/// write and its kin.
pub(super) fn write(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    endpoint: Endpoint,
    segments: &[Segment],
    positioned: bool,
) -> Served {
    if positioned {
        return errno(libc::ESPIPE);
    }
    let message = send::Message::plain(send::gather(guest, endpoint, segments)?);
    let done = kernel.again.done;
    send::send(kernel, guest, (file, endpoint), &message, 0, done)
}

/// How long a call waits before it tries again, where the host cannot tell when it should, in nanoseconds.
const LATER: u64 = 2_000_000;

/// The host's result, or that the call would wait: unless it was told not to.
fn or_would_wait(socket: i32, result: i64, flags: i32) -> i64 {
    const WAITS: [i32; 3] = [libc::EAGAIN, libc::EINPROGRESS, libc::EALREADY];
    let would = WAITS.iter().any(|error| result == -i64::from(*error));
    if would && flags & libc::MSG_DONTWAIT == 0 && sockets::waits(socket) {
        -i64::from(WOULD_WAIT)
    } else {
        result
    }
}

impl Kernel {
    /// All open files of the guest, those among them that are on their way between processes; one may come more than once.
    pub(super) fn open_files(&self) -> impl Iterator<Item = &Rc<OpenFile>> {
        let open = self.tables.iter().flat_map(|(_, table)| table.iter()).map(|(_, file)| file);
        open.chain(self.network.flights.files())
    }

    /// The socket of a descriptor.
    fn socket(&self, number: i32) -> Served<(Rc<OpenFile>, Endpoint)> {
        let file = self.files().get(number)?;
        match file.endpoint() {
            Some(endpoint) => Ok((file, endpoint)),
            None => errno(libc::ENOTSOCK),
        }
    }

    /// Makes the call wait for an event of a socket, as long as the option says (SO_RCVTIMEO or SO_SNDTIMEO); then it fails
    /// with `late`, or tells what is done.
    fn wait_for_socket(
        &mut self,
        guest: &mut Guest<'_>,
        socket: &Rc<OpenFile>,
        events: i16,
        done: usize,
        late: i32,
    ) -> Served {
        let option = if events == libc::POLLIN { libc::SO_RCVTIMEO } else { libc::SO_SNDTIMEO };
        let limit = match self.again.why {
            Some(_) => 0,
            None => guest.input_number(|| sockets::time_limit(socket.host(), option).max(0))?,
        };
        let deadline = self.limit(guest, (limit > 0).then_some(limit))?;
        if deadline.is_some_and(|at| self.has_passed(at)) {
            return if done > 0 { Ok(done as u64) } else { errno(late) };
        }
        let interrupted = if deadline.is_some() { Interrupted::Fails } else { Interrupted::MayRestart };
        let on = On::Files(vec![(Rc::clone(socket), events)]);
        wait(Wait { done, ..Wait::new(on, deadline, interrupted) })
    }

    /// Makes the call wait a moment, where no event of a file tells when it can go on.
    fn try_later<T>(&mut self) -> Served<T> {
        let deadline = Deadline::after(self.now(), LATER);
        wait(Wait::new(On::Nothing, Some(deadline), Interrupted::MayRestart))
    }
}
