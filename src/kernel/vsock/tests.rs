//! The programs of the host are real, and the guest is packets.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to what is wanted of them")]

use super::*;
use board::vsock::{GUEST, HEADER, Header, STREAM, op};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// The guest's end of connections.
struct Guest {
    peers: Peers,
    news: Receiver<News>,
    dir: TempDir,
    /// What it has room for.
    room: u32,
    /// What it has taken.
    taken: u32,
}

const PORT: u32 = 1025;

impl Guest {
    fn new() -> Guest {
        let (dir, (to, news)) = (tempfile::tempdir().unwrap(), channel());
        let socket = Socket::open(&dir.path().join("v")).unwrap();
        let tell: Tell = Arc::new(move |it| to.send(it).is_ok());
        let mut peers = Peers::new(Some(socket), tell).unwrap();
        assert!(peers.take_packet().is_none());
        Guest { peers, news, dir, room: 1 << 16, taken: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sends a packet from [`PORT`] to a port of the host.
    fn send(&mut self, to_port: u32, op: u16, flags: u32, data: &[u8]) {
        let (room, taken) = (self.room, self.taken);
        let header = Header {
            from: GUEST,
            to: 2,
            from_port: PORT,
            to_port,
            length: 0,
            kind: STREAM,
            op,
            flags,
            room,
            taken,
        };
        self.peers.receive(&header.packet(data));
    }

    /// The next packet, once there is one.
    fn next(&mut self) -> (Header, Vec<u8>) {
        loop {
            if let Some(packet) = self.peers.take_packet() {
                let header = Header::of(&packet).unwrap();
                assert_eq!((header.from, header.to), (2, GUEST));
                return (header, packet[HEADER..].to_vec());
            }
            self.wait();
        }
    }

    fn wait(&mut self) {
        self.peers.note(self.news.recv_timeout(Duration::from_secs(20)).expect("something happens"));
    }

    /// So many bytes of data for the guest.
    fn data(&mut self, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            let (header, data) = self.next();
            assert_eq!((header.op, header.length as usize), (op::DATA, data.len()));
            all.extend(data);
        }
        all
    }

    /// Connects to a port of the host, where a program listens: its end.
    fn connect(&mut self, port: u32) -> UnixStream {
        let listener = UnixListener::bind(self.path(&format!("v_{port}"))).unwrap();
        self.send(port, op::REQUEST, 0, &[]);
        let (stream, _) = listener.accept().unwrap();
        let (header, _) = self.next();
        assert_eq!((header.op, header.from_port, header.to_port), (op::RESPONSE, port, PORT));
        stream
    }
}

#[test]
fn the_guest_connects_to_a_program_and_both_end() {
    let mut guest = Guest::new();
    let mut stream = guest.connect(52);
    guest.send(52, op::DATA, 0, b"question");
    let mut read = [0; 8];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"question");
    stream.write_all(b"answer").unwrap();
    assert_eq!(guest.data(6), b"answer");
    stream.shutdown(Shutdown::Write).unwrap();
    let (header, _) = guest.next();
    assert_eq!((header.op, header.flags), (op::SHUTDOWN, 2), "the program sends no more");
    guest.send(52, op::DATA, 0, b"more");
    guest.send(52, op::SHUTDOWN, 3, &[]);
    assert_eq!(guest.next().0.op, op::RESET, "a shutdown of both directions is answered");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "more", "what was sent before is written, and then it is the end");
}

#[test]
fn where_nobody_listens_there_is_a_reset() {
    let mut guest = Guest::new();
    guest.send(52, op::REQUEST, 0, &[]);
    let (header, _) = guest.next();
    assert_eq!((header.op, header.from_port, header.to_port), (op::RESET, 52, PORT));
    for operation in [op::RESPONSE, op::DATA, op::SHUTDOWN, op::CREDIT_UPDATE, op::CREDIT_REQUEST, 99] {
        guest.send(53, operation, 0, &[]);
        assert_eq!(guest.next().0.op, op::RESET, "operation {operation} of no connection");
    }
    guest.send(53, op::RESET, 0, &[]);
    assert!(guest.peers.take_packet().is_none(), "a reset is not answered");
    let mut nobody = Peers::new(None, Arc::new(|_| true)).unwrap();
    let request = Header { from: GUEST, to: 2, kind: STREAM, op: op::REQUEST, ..Header::default() };
    nobody.receive(&request.packet(&[]));
    assert_eq!(
        nobody.take_packet().and_then(|packet| Header::of(&packet)).map(|header| header.op),
        Some(op::RESET)
    );
}

#[test]
fn a_program_connects_to_the_guest() {
    let mut guest = Guest::new();
    let mut stream = UnixStream::connect(guest.path("v")).unwrap();
    // What comes behind the line is data.
    stream.write_all(b"CONNECT 1025\nquestion").unwrap();
    let (header, _) = guest.next();
    assert_eq!((header.op, header.to_port), (op::REQUEST, PORT));
    let port = header.from_port;
    guest.send(port, op::RESPONSE, 0, &[]);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, format!("OK {port}\n"));
    assert_eq!(guest.data(8), b"question");
    guest.send(port, op::DATA, 0, b"answer");
    guest.send(port, op::RESET, 0, &[]);
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "answer");
    // One that is refused is closed.
    let mut refused = UnixStream::connect(guest.path("v")).unwrap();
    refused.write_all(b"CONNECT 1025\n").unwrap();
    let port = guest.next().0.from_port;
    guest.send(port, op::RESET, 0, &[]);
    assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    let mut wrong = UnixStream::connect(guest.path("v")).unwrap();
    wrong.write_all(b"HELLO\n").unwrap();
    assert_eq!(wrong.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_program_that_goes_away_is_told() {
    let mut guest = Guest::new();
    drop(guest.connect(52));
    let flags = [guest.next().0, guest.next().0].map(|header| (header.op, header.flags));
    assert_eq!(flags, [(op::SHUTDOWN, 2), (op::SHUTDOWN, 3)]);
    guest.send(52, op::DATA, 0, b"nobody reads this");
    assert_eq!(guest.next().0.op, op::RESET);
}

#[test]
fn no_more_is_sent_than_the_guest_has_room_for() {
    let mut guest = Guest::new();
    guest.room = 10;
    let mut stream = guest.connect(52);
    stream.write_all(&[7; 100]).unwrap();
    for _ in 0..10 {
        assert_eq!(guest.data(10), [7; 10]);
        assert!(guest.news.recv_timeout(Duration::from_millis(20)).is_err(), "the guest has no room");
        guest.taken += 10;
        guest.send(52, op::CREDIT_UPDATE, 0, &[]);
    }
    // It cannot have taken what was not sent.
    guest.taken += 1;
    guest.send(52, op::CREDIT_UPDATE, 0, &[]);
    assert_eq!(guest.next().0.op, op::RESET);
}

#[test]
fn the_guest_has_so_much_room_and_is_told_of_more() {
    let mut guest = Guest::new();
    let mut stream = guest.connect(52);
    let piece = vec![1; 64 << 10];
    (0..4).for_each(|_| guest.send(52, op::DATA, 0, &piece));
    let mut read = vec![0; 256 << 10];
    stream.read_exact(&mut read).unwrap();
    let told = guest.next().0;
    assert_eq!((told.op, told.room), (op::CREDIT_UPDATE, 256 << 10));
    assert!(told.taken >= 64 << 10, "{told:?}");
    guest.send(52, op::CREDIT_REQUEST, 0, &[]);
    let mut last = told;
    while last.taken < 256 << 10 {
        last = guest.next().0;
    }
    // A program that does not read: what is on its way fills its room and no more.
    let answer = loop {
        guest.send(52, op::DATA, 0, &piece);
        guest.send(52, op::DATA, 0, &piece);
        if let Some(packet) = guest.peers.take_packet() {
            let operation = Header::of(&packet).unwrap().op;
            if operation != op::CREDIT_UPDATE {
                break operation;
            }
        }
    };
    assert_eq!(answer, op::RESET);
}

#[test]
fn a_guest_without_a_driver_has_no_connections() {
    let mut guest = Guest::new();
    let mut stream = guest.connect(52);
    stream.write_all(b"late").unwrap();
    guest.peers.lose();
    assert!(is_gone(&stream.read(&mut [0])));
    let mut asked = UnixStream::connect(guest.path("v")).unwrap();
    asked.write_all(b"CONNECT 1025\n").unwrap();
    asked.set_nonblocking(true).unwrap();
    while !is_gone(&asked.read(&mut [0])) {
        guest.wait();
    }
    assert!(!guest.peers.has_packet());
}

/// Whether the other end has hung up; where it had not read all, Linux calls that a reset.
fn is_gone(read: &io::Result<usize>) -> bool {
    match read {
        Ok(count) => *count == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

/// Whatever packets a guest sends, they are answered, and what waits is bounded.
#[test]
fn no_packet_ends_gretel() {
    let mut guest = Guest::new();
    let _listener = UnixListener::bind(guest.path("v_1")).unwrap();
    let mut seed = 9_u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (seed ^ seed >> 29) % n
    };
    for _ in 0..20_000 {
        let mut packet = Header {
            from: if random(9) == 0 { random(u64::MAX) } else { GUEST },
            to: if random(9) == 0 { random(u64::MAX) } else { 2 },
            from_port: random(3) as u32,
            to_port: random(3) as u32,
            length: 0,
            kind: if random(9) == 0 { random(4) as u16 } else { STREAM },
            op: random(9) as u16,
            flags: random(5) as u32,
            room: random(1 << 32) as u32,
            taken: random(3) as u32,
        }
        .packet(&vec![0; random(100) as usize]);
        if random(9) == 0 {
            packet.truncate(random(60) as usize);
        }
        if random(9) == 0 && packet.len() > 27 {
            packet[24 + random(4) as usize] = random(256) as u8;
        }
        guest.peers.receive(&packet);
        while let Ok(news) = guest.news.try_recv() {
            guest.peers.note(news);
        }
    }
    let mut waiting = 0;
    while guest.peers.take_packet().is_some() {
        waiting += 1;
    }
    assert!((100..10_000).contains(&waiting), "{waiting} packets wait");
}

#[test]
fn a_path_where_nobody_can_listen_is_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let refused = |path: &Path| Socket::open(path).err().expect("it is refused").to_string();
    fs::write(at("file"), "").unwrap();
    assert!(refused(&at("file")).contains("is no socket"), "{}", refused(&at("file")));
    assert!(
        refused(&at("no/v")).contains("no folder") && refused(&at("no/v")).contains("/no: make it first")
    );
    assert!(refused(&at(&"x".repeat(200))).contains("a shorter one"));
    let first = Socket::open(&at("v")).unwrap();
    assert!(refused(&at("v")).contains("another program listens there"));
    drop(first);
    assert!(!at("v").exists());
    drop(UnixListener::bind(at("stale")).unwrap());
    let said = refused(&at("stale"));
    assert!(said.contains("nobody listens there any more: `rm ") && at("stale").exists(), "{said}");
}
