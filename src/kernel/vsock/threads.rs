//! The threads that wait for programs of this host: one that listens, and for each connection one that reads and one that writes.
//!
//! They tell what has happened ([`News`]) and decide nothing. One that reads takes no more from its socket than the guest has room for
//! ([`Flow`]); one that writes is given no more than the guest may send without having been told of room. All end with the process.

use board::vsock::MOST_DATA;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Programs that may be asking for a connection at a time.
const ASKING: usize = 64;
/// So long may one take to say which port it wants.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of a connection, which no other has.
pub(in crate::kernel) type Id = u64;

/// What has happened.
pub(in crate::kernel) enum News {
    /// A program of the host wants a port of the guest.
    Asked(UnixStream, u32),
    /// A port of the host was called for the guest, or there is nobody.
    Called(Id, io::Result<UnixStream>),
    /// Bytes for the guest.
    Data(Id, Vec<u8>),
    /// There will be none any more.
    Over(Id),
    /// So many bytes of the guest's are written.
    Written(Id, usize),
    /// Its program does not read any more.
    Failed(Id),
    /// Its program has gone.
    Gone(Id),
}

/// Where news go; whether anybody still takes them.
pub(in crate::kernel) type Tell = Arc<dyn Fn(News) -> bool + Send + Sync>;

/// How much of what a socket has the guest takes, counted since the connection began.
#[derive(Default)]
pub(super) struct Flow {
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Flow {
    /// So many bytes may be read in all.
    pub(super) fn allow(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = state.0.max(bytes);
        self.changed.notify_all();
    }

    /// Nobody takes anything any more.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }

    /// Waits until more than so many bytes may be read: how many more. `None` where it is closed.
    fn wait(&self, read: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *state {
                (_, true) => return None,
                (allowed, false) if allowed > read => return Some(allowed - read),
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Takes the programs that ask for connections.
pub(super) fn listen(listener: UnixListener, tell: Tell) -> io::Result<()> {
    let asking = Arc::new(AtomicUsize::new(0));
    start("vsock", move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Too many files are open, for instance.
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            if asking.fetch_add(1, Ordering::Relaxed) >= ASKING {
                asking.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (tell, done) = (Arc::clone(&tell), Arc::clone(&asking));
            let started = start("vsock-asked", move || {
                if let Some(port) = wanted(&stream) {
                    tell(News::Asked(stream, port));
                }
                done.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                asking.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

/// The port that a program asks for: `CONNECT 52` and a line feed. Nothing behind that is read.
fn wanted(mut stream: &UnixStream) -> Option<u32> {
    const LONGEST: usize = 32;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LONGEST {
        stream.read_exact(&mut byte).ok()?;
        if byte == *b"\n" {
            stream.set_read_timeout(None).ok()?;
            return port(&line);
        }
        line.extend(byte);
    }
    None
}

fn port(line: &[u8]) -> Option<u32> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let is_connect = words.next()?.eq_ignore_ascii_case("connect");
    let port = words.next()?.parse().ok()?;
    (is_connect && words.next().is_none()).then_some(port)
}

/// Calls whoever listens at a path.
pub(super) fn call(path: PathBuf, id: Id, tell: Tell) -> io::Result<()> {
    start("vsock-call", move || {
        tell(News::Called(id, UnixStream::connect(path)));
    })
}

/// Reads for the guest, as far as `flow` lets it.
pub(super) fn read(mut stream: UnixStream, id: Id, flow: Arc<Flow>, tell: Tell) -> io::Result<()> {
    start("vsock-read", move || {
        let mut piece = vec![0; MOST_DATA];
        let mut total = 0;
        while let Some(room) = flow.wait(total) {
            let most = usize::try_from(room).unwrap_or(MOST_DATA).min(MOST_DATA);
            match stream.read(&mut piece[..most]) {
                Ok(n @ 1..) => {
                    total += n as u64;
                    if !tell(News::Data(id, piece[..n].to_vec())) {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    tell(News::Over(id));
                    wait_for_end(&stream);
                    tell(News::Gone(id));
                    return;
                }
            }
        }
    })
}

/// Waits until the program at the other end has closed its socket, or this end is closed in both directions.
fn wait_for_end(stream: &UnixStream) {
    loop {
        let mut polled = [PollFd::new(stream, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Writes what the guest sends, and ends the direction when nothing more comes: who gives it that.
pub(super) fn write(mut stream: UnixStream, id: Id, tell: Tell) -> io::Result<mpsc::Sender<Vec<u8>>> {
    let (to, from): (_, Receiver<Vec<u8>>) = mpsc::channel();
    start("vsock-write", move || {
        for bytes in from {
            if stream.write_all(&bytes).is_err() {
                tell(News::Failed(id));
                break;
            }
            if !tell(News::Written(id, bytes.len())) {
                return;
            }
        }
        // Where it is closed already nothing is left to do.
        let _ = stream.shutdown(Shutdown::Write);
    })?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_asked_for_by_name() {
        assert_eq!(port(b"CONNECT 52"), Some(52));
        assert_eq!(port(b"connect 4294967295\r"), Some(u32::MAX));
        for line in
            [&b""[..], b"CONNECT", b"CONNECT x", b"CONNECT 4294967296", b"CONNECT 1 2", b"GET 1", b"\xff 1"]
        {
            assert_eq!(port(line), None, "{}", line.escape_ascii());
        }
    }
}
