//! What the guest's vsock is answered: connections, credit and resets (virtio 1.2, 5.10.6).
//!
//! Each packet of the guest comes here, and what comes of it waits to be given to the guest, as input that is recorded. Example: the guest
//! sends `REQUEST` for port 52. A thread calls the socket `PATH_52`; when somebody is there a `RESPONSE` waits, else a `RST`. What that
//! program writes are packets of data, no more of them than the guest has room for.

use super::Socket;
use super::threads::{self, Flow, Id, News, Tell};
use board::vsock::{GUEST, HEADER, Header, STREAM, op};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

/// The address of the host.
const HOST: u64 = 2;
/// Connections at most.
const MOST: usize = 128;
/// What the guest may send on a connection before it has been written.
const ROOM: u32 = 256 << 10;
/// The guest is told of new room when there is so much.
const TOLD: u32 = ROOM / 4;
/// Packets that may wait for a guest that takes none. Data are bounded by the guest's room; what answers each of its packets is not.
const WAITING: usize = 4096;
/// The ports of programs of the host begin here, as Firecracker's do.
const FIRST_PORT: u32 = 1 << 30;

/// Flags of a shutdown.
mod shutdown {
    pub(super) const RECEIVES_NO_MORE: u32 = 1;
    pub(super) const SENDS_NO_MORE: u32 = 2;
    pub(super) const BOTH: u32 = 3;
}

/// The ports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ports {
    host: u32,
    guest: u32,
}

/// How far a connection is.
enum State {
    /// A program of the host has asked for it, and the guest has not answered.
    Asked(UnixStream),
    /// The guest has asked for it, and the program of the host has not answered.
    Called,
    /// It is there: its socket, and who writes to it while the guest may send.
    Open(UnixStream, Option<mpsc::Sender<Vec<u8>>>),
}

/// A connection.
struct Connection {
    id: Id,
    state: State,
    flow: Arc<Flow>,
    /// Bytes that were sent to the guest.
    sent: u64,
    /// What of that the guest has taken.
    taken: u64,
    /// Bytes that the guest has sent, what of that is written, and what of that it was told, modulo 2^32.
    received: u32,
    written: u32,
    told: u32,
    /// What was said of either end in shutdowns.
    by_guest: u32,
    by_host: u32,
}

impl Connection {
    fn new(id: Id, state: State) -> Connection {
        Connection {
            id,
            state,
            flow: Arc::default(),
            sent: 0,
            taken: 0,
            received: 0,
            written: 0,
            told: 0,
            by_guest: 0,
            by_host: 0,
        }
    }

    /// Notes what the guest says of its room; whether that can be.
    fn note_room(&mut self, header: &Header) -> bool {
        let low = u32::try_from(self.taken & u64::from(u32::MAX)).unwrap_or(0);
        let more = u64::from(header.taken.wrapping_sub(low));
        if more > self.sent - self.taken {
            return false;
        }
        self.taken += more;
        // It may say that it has room for gigabytes.
        self.flow.allow(self.taken + u64::from(header.room.min(ROOM)));
        true
    }

    /// Takes data of the guest's; whether it may send that.
    fn take(&mut self, data: &[u8]) -> bool {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let in_flight = self.received.wrapping_sub(self.written);
        let State::Open(_, Some(writer)) = &self.state else { return false };
        if in_flight.saturating_add(length) > ROOM || self.by_guest & shutdown::SENDS_NO_MORE != 0 {
            return false;
        }
        self.received = self.received.wrapping_add(length);
        if !data.is_empty() {
            // Where its thread has ended that has said so, and a reset follows.
            let _ = writer.send(data.to_vec());
        }
        true
    }

    /// Ends it: what the guest has sent is still written.
    fn end(self) {
        self.flow.close();
        match self.state {
            State::Open(stream, _) => drop(stream.shutdown(Shutdown::Read)),
            State::Asked(stream) => drop(stream.shutdown(Shutdown::Both)),
            State::Called => {}
        }
    }
}

/// The programs at the other end.
pub(in crate::kernel) struct Peers {
    /// Where programs of the host ask; without it there are none.
    socket: Option<Socket>,
    tell: Tell,
    connections: BTreeMap<Ports, Connection>,
    /// Packets for the guest.
    waiting: VecDeque<Vec<u8>>,
    next_port: u32,
    next_id: Id,
    /// The guest has a driver.
    is_up: bool,
}

impl Peers {
    /// Those that come to a socket, or nobody. News are told, and come back by [`Peers::note`].
    pub(in crate::kernel) fn new(socket: Option<Socket>, tell: Tell) -> io::Result<Peers> {
        if let Some(socket) = &socket {
            threads::listen(socket.listener.try_clone()?, Arc::clone(&tell))?;
        }
        Ok(Peers {
            socket,
            tell,
            connections: BTreeMap::new(),
            waiting: VecDeque::new(),
            next_port: FIRST_PORT,
            next_id: 0,
            is_up: false,
        })
    }

    /// Whether anybody may come.
    pub(in crate::kernel) fn may_come(&self) -> bool {
        self.socket.is_some()
    }

    /// Whether a packet waits for the guest.
    pub(in crate::kernel) fn has_packet(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next packet for the guest.
    pub(in crate::kernel) fn take_packet(&mut self) -> Option<Vec<u8>> {
        self.is_up = true;
        self.waiting.pop_front()
    }

    /// The guest has no driver any more, or not yet.
    pub(in crate::kernel) fn lose(&mut self) {
        self.is_up = false;
        self.waiting.clear();
        std::mem::take(&mut self.connections).into_values().for_each(Connection::end);
    }

    /// A packet of the guest's.
    pub(in crate::kernel) fn receive(&mut self, packet: &[u8]) {
        self.is_up = true;
        let (Some(header), Some(data)) = (Header::of(packet), packet.get(HEADER..)) else { return };
        let ports = Ports { host: header.to_port, guest: header.from_port };
        let is_ours = (header.from, header.to, header.kind) == (GUEST, HOST, STREAM);
        // Data beyond what the header says are none.
        let data = usize::try_from(header.length).ok().and_then(|length| data.get(..length));
        let (true, Some(data)) = (is_ours, data) else { return self.refuse(&header) };
        match self.connections.get_mut(&ports) {
            None if header.op == op::REQUEST => self.call(ports, &header),
            None => self.refuse(&header),
            Some(connection) => {
                if !connection.note_room(&header) || !self.serve(ports, &header, data) {
                    self.reset(ports);
                }
            }
        }
    }

    /// Does what a packet of a connection asks for; whether that can be.
    fn serve(&mut self, ports: Ports, header: &Header, data: &[u8]) -> bool {
        let Some(connection) = self.connections.get_mut(&ports) else { return false };
        let is_open = matches!(connection.state, State::Open(..));
        match header.op {
            op::RESPONSE => return matches!(connection.state, State::Asked(_)) && self.open_asked(ports),
            op::RESET => self.forget(ports),
            _ if !is_open => return false,
            op::DATA => return connection.take(data),
            op::SHUTDOWN => self.shut(ports, header.flags),
            op::CREDIT_REQUEST if self.waiting.len() < WAITING => self.send(ports, op::CREDIT_UPDATE, 0, &[]),
            op::CREDIT_UPDATE | op::CREDIT_REQUEST => {}
            _ => return false,
        }
        true
    }

    /// The guest asks for a port of the host.
    fn call(&mut self, ports: Ports, header: &Header) {
        let path = self.socket.as_ref().filter(|_| self.connections.len() < MOST).map(|socket| {
            let mut path = socket.path.clone().into_os_string();
            path.push(format!("_{}", ports.host));
            PathBuf::from(path)
        });
        let id = self.next_id;
        self.next_id += 1;
        let called = path.is_some_and(|path| threads::call(path, id, Arc::clone(&self.tell)).is_ok());
        if !called {
            return self.refuse(header);
        }
        let mut connection = Connection::new(id, State::Called);
        connection.note_room(header);
        self.connections.insert(ports, connection);
    }

    /// A program of the host asks for a port of the guest.
    fn ask(&mut self, stream: UnixStream, guest: u32) {
        if !self.is_up || self.connections.len() >= MOST {
            // It finds its socket closed.
            return;
        }
        let mut host = self.next_port;
        while self.connections.contains_key(&Ports { host, guest }) {
            host = host.wrapping_add(1).max(FIRST_PORT);
        }
        self.next_port = host.wrapping_add(1).max(FIRST_PORT);
        let ports = Ports { host, guest };
        self.connections.insert(ports, Connection::new(self.next_id, State::Asked(stream)));
        self.next_id += 1;
        self.send(ports, op::REQUEST, 0, &[]);
    }

    /// The guest takes what a program of the host has asked for.
    fn open_asked(&mut self, ports: Ports) -> bool {
        let Some(Connection { state: State::Asked(stream), .. }) = self.connections.get(&ports) else {
            return false;
        };
        let told = stream.try_clone().and_then(|mut stream| {
            writeln!(stream, "OK {}", ports.host)?;
            Ok(stream)
        });
        told.is_ok_and(|stream| self.open(ports, stream))
    }

    /// Begins to carry bytes; whether it could.
    fn open(&mut self, ports: Ports, stream: UnixStream) -> bool {
        let Some(connection) = self.connections.get_mut(&ports) else { return false };
        let (id, flow) = (connection.id, Arc::clone(&connection.flow));
        let opened = stream.try_clone().and_then(|from| {
            let writer = threads::write(stream.try_clone()?, id, Arc::clone(&self.tell))?;
            threads::read(from, id, flow, Arc::clone(&self.tell))?;
            Ok(writer)
        });
        match opened {
            Ok(writer) => {
                connection.state = State::Open(stream, Some(writer));
                true
            }
            Err(_) => false,
        }
    }

    /// The guest sends no more, or receives no more, or both: that is the end, and is answered by a reset.
    fn shut(&mut self, ports: Ports, flags: u32) {
        let Some(connection) = self.connections.get_mut(&ports) else { return };
        connection.by_guest |= flags & shutdown::BOTH;
        if connection.by_guest == shutdown::BOTH {
            return self.reset(ports);
        }
        let State::Open(stream, writer) = &mut connection.state else { return };
        if connection.by_guest & shutdown::SENDS_NO_MORE != 0 {
            *writer = None;
        }
        if connection.by_guest & shutdown::RECEIVES_NO_MORE != 0 {
            connection.flow.close();
            // Where it is closed already nothing is left to do.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Something has happened at a socket.
    pub(in crate::kernel) fn note(&mut self, news: News) {
        let id = match &news {
            News::Asked(..) => {
                if let News::Asked(stream, port) = news {
                    self.ask(stream, port);
                }
                return;
            }
            News::Called(id, _) | News::Data(id, _) | News::Over(id) | News::Written(id, _) => *id,
            News::Failed(id) | News::Gone(id) => *id,
        };
        // One that has ended meanwhile is no more.
        let found = self.connections.iter_mut().find(|(_, connection)| connection.id == id);
        let Some((&ports, connection)) = found else { return };
        match news {
            News::Called(_, called) => match called.is_ok_and(|stream| self.open(ports, stream)) {
                true => self.send(ports, op::RESPONSE, 0, &[]),
                false => self.reset(ports),
            },
            News::Failed(_) => self.reset(ports),
            News::Data(_, bytes) => {
                connection.sent += bytes.len() as u64;
                self.send(ports, op::DATA, 0, &bytes);
            }
            News::Over(_) => self.shut_by_host(ports, shutdown::SENDS_NO_MORE),
            News::Gone(_) => self.shut_by_host(ports, shutdown::BOTH),
            News::Written(_, bytes) => {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                connection.written = connection.written.wrapping_add(bytes);
                if connection.written.wrapping_sub(connection.told) >= TOLD {
                    self.send(ports, op::CREDIT_UPDATE, 0, &[]);
                }
            }
            News::Asked(..) => {}
        }
    }

    fn shut_by_host(&mut self, ports: Ports, flags: u32) {
        let Some(connection) = self.connections.get_mut(&ports) else { return };
        if connection.by_host | flags != connection.by_host {
            connection.by_host |= flags;
            let flags = connection.by_host;
            self.send(ports, op::SHUTDOWN, flags, &[]);
        }
    }

    /// Ends a connection, and says so to the guest.
    fn reset(&mut self, ports: Ports) {
        self.send(ports, op::RESET, 0, &[]);
        self.connections.remove(&ports).into_iter().for_each(Connection::end);
    }

    /// Ends a connection that the guest has ended; it takes nothing of it any more.
    fn forget(&mut self, ports: Ports) {
        self.connections.remove(&ports).into_iter().for_each(Connection::end);
        let is_of_it = |header: Header| (header.from_port, header.to_port) == (ports.host, ports.guest);
        self.waiting.retain(|packet| !Header::of(packet).is_some_and(is_of_it));
    }

    /// A packet for the guest.
    fn send(&mut self, ports: Ports, op: u16, flags: u32, data: &[u8]) {
        let taken = self.connections.get_mut(&ports).map_or(0, |connection| {
            connection.told = connection.written;
            connection.written
        });
        let header = Header {
            from: HOST,
            to: GUEST,
            from_port: ports.host,
            to_port: ports.guest,
            length: 0,
            kind: STREAM,
            op,
            flags,
            room: ROOM,
            taken,
        };
        self.waiting.push_back(header.packet(data));
    }

    /// Answers a packet that belongs to nothing: a reset is not answered.
    fn refuse(&mut self, header: &Header) {
        if header.op == op::RESET || self.waiting.len() >= WAITING {
            return;
        }
        let answer = Header {
            from: header.to,
            to: header.from,
            from_port: header.to_port,
            to_port: header.from_port,
            kind: header.kind,
            op: op::RESET,
            ..Header::default()
        };
        self.waiting.push_back(answer.packet(&[]));
    }
}
