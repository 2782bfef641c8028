//! Messages of the Debug Adapter Protocol over pipes, or a socket in their place: a header with the length, and JSON.
//!
//! Until the recording is open, messages are read where they are answered. Then a thread reads them, so that `pause` is heard while the
//! program runs: it sets [`vmm::travel::Travel::asks`]. It is started behind the sandbox, and so is in it.

use super::protocol::{Request, answered};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// No message of an editor is longer.
const LONGEST: usize = 1 << 24;
/// No line of a header is.
const LONGEST_LINE: u64 = 1 << 12;

/// What comes from the editor: a request, or what is wrong with a message.
pub(super) type Heard = Result<Request, String>;

/// A connection with an editor.
pub(super) struct Connection {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
}

impl Connection {
    /// Our own standard streams.
    pub(super) fn standard() -> io::Result<Connection> {
        Ok(Connection::of(
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
        ))
    }

    fn of(from: OwnedFd, to: OwnedFd) -> Connection {
        Connection {
            incoming: Incoming::Here(BufReader::new(from.into())),
            outgoing: Outgoing { to: to.into(), sent: 0 },
        }
    }
}

/// Where messages come from.
pub(super) enum Incoming {
    /// From the stream.
    Here(BufReader<File>),
    /// From the thread that reads the stream.
    Thread(Thread),
    /// From nowhere any more.
    Closed,
}

/// What a thread reads.
pub(super) struct Thread {
    heard: Receiver<io::Result<Heard>>,
    /// What was received, and is not answered yet.
    first: Option<io::Result<Heard>>,
    stops: Arc<Stops>,
}

/// Requests that want the program to stop, and that were not answered yet.
struct Stops {
    waiting: AtomicUsize,
    /// Whether every message ends what runs: nobody waits for it.
    yields: Mutex<bool>,
    asks: Arc<AtomicBool>,
}

impl Stops {
    fn add(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.asks.store(true, Ordering::SeqCst);
    }

    /// The program is about to run: what asks for a stop is only what nobody has answered.
    fn begin(&self) {
        self.asks.store(false, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.asks.store(true, Ordering::SeqCst);
        }
    }

    /// A message was sent on.
    fn heard(&self) {
        // What is asked in between is asked of what runs then, so nothing else may begin before.
        let yields = self.yields.lock().unwrap_or_else(PoisonError::into_inner);
        if *yields {
            self.asks.store(true, Ordering::SeqCst);
        }
    }

    fn have_yield(&self, does: bool) {
        let mut yields = self.yields.lock().unwrap_or_else(PoisonError::into_inner);
        *yields = does;
        self.begin();
    }
}

impl Thread {
    /// Whether nothing comes for so long.
    fn is_silent(&mut self, time: Duration) -> bool {
        if self.first.is_none() {
            match self.heard.recv_timeout(time) {
                Ok(heard) => self.first = Some(heard),
                Err(RecvTimeoutError::Timeout) => return true,
                // `next` says that the editor has gone.
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        false
    }

    fn next(&mut self) -> io::Result<Option<Heard>> {
        match self.first.take().map_or_else(|| self.heard.recv(), Ok) {
            Err(_) => Ok(None),
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Ok(Err(error)) => Err(error),
            Ok(Ok(heard)) => {
                if wants_stop(&heard) {
                    self.stops.waiting.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(Some(heard))
            }
        }
    }
}

impl Incoming {
    /// The next message; `None` when the editor has gone.
    pub(super) fn next(&mut self) -> io::Result<Option<Heard>> {
        match self {
            Incoming::Closed => Ok(None),
            Incoming::Here(stream) => match read(stream) {
                Ok(heard) => Ok(Some(heard)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
                Err(error) => Err(error),
            },
            Incoming::Thread(thread) => thread.next(),
        }
    }

    /// Has a thread read from now on, which sets `asks` when the editor wants the program to stop.
    pub(super) fn hear(&mut self, asks: Arc<AtomicBool>) -> io::Result<()> {
        let Incoming::Here(mut stream) = std::mem::replace(self, Incoming::Closed) else { return Ok(()) };
        let stops = Arc::new(Stops { waiting: AtomicUsize::new(0), yields: Mutex::new(false), asks });
        let (send, heard) = channel();
        *self = Incoming::Thread(Thread { heard, first: None, stops: Arc::clone(&stops) });
        let listen = move || while hear_one(&mut stream, &send, &stops) {};
        thread::Builder::new().name("editor".to_owned()).spawn(listen)?;
        Ok(())
    }

    /// If nothing comes for so long, this runs; what then comes sets `asks`, and is answered behind it.
    pub(super) fn while_silent<T>(&mut self, time: Duration, run: impl FnOnce() -> T) -> Option<T> {
        let Incoming::Thread(thread) = self else { return None };
        if !thread.is_silent(time) {
            return None;
        }
        thread.stops.have_yield(true);
        // What has come since is sent already, and would not be heard of.
        let ran = thread.is_silent(Duration::ZERO).then(run);
        thread.stops.have_yield(false);
        ran
    }

    /// To be called before the program runs.
    pub(super) fn begin_run(&self) {
        if let Incoming::Thread(thread) = self {
            thread.stops.begin();
        }
    }
}

/// Reads a message and sends it on; false when there are no more.
fn hear_one(stream: &mut impl BufRead, send: &Sender<io::Result<Heard>>, stops: &Stops) -> bool {
    let heard = read(stream);
    let ends = heard.is_err();
    // An editor that has gone waits for nothing.
    if ends || heard.as_ref().is_ok_and(wants_stop) {
        stops.add();
    }
    let is_sent = send.send(heard).is_ok();
    stops.heard();
    is_sent && !ends
}

fn wants_stop(heard: &Heard) -> bool {
    heard.as_ref().is_ok_and(|it| matches!(it.command.as_str(), "pause" | "disconnect" | "terminate"))
}

/// Reads a request, or what is wrong with a message. Answers to requests of ours are passed over, but for those that refuse.
fn read(stream: &mut impl BufRead) -> io::Result<Heard> {
    loop {
        let text = message(stream)?;
        match answered(&text) {
            Some(Ok(())) => {}
            Some(Err(why)) => return Ok(Err(why)),
            None => return Ok(Request::parse(&text)),
        }
    }
}

/// Reads a message. What is in it may be wrong; where it ends must be right, or nothing behind it can be read.
fn message(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut length = None;
    loop {
        let line = header_line(stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>().ok().filter(|length| *length <= LONGEST);
        }
    }
    let wrong = "a message without a Content-Length that is a number of bytes up to 16 MiB: nothing behind it can be read";
    let length = length.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, wrong))?;
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(text)
}

fn header_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(match line.len() as u64 == LONGEST_LINE {
            true => io::Error::new(ErrorKind::InvalidData, "a header that is too long"),
            false => ErrorKind::UnexpectedEof.into(),
        });
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Where messages go.
pub(super) struct Outgoing {
    to: File,
    sent: u64,
}

impl Outgoing {
    /// Sends a message, with the next number.
    pub(super) fn send(&mut self, mut message: Value) -> io::Result<()> {
        self.sent += 1;
        message["seq"] = self.sent.into();
        let text = message.to_string();
        self.to.write_all(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_up_to_where_they_end() {
        let text = "Content-Length: 50\r\nOther: x\r\n\r\n{\"seq\":1,\"type\":\"request\",\"command\":\"threads\"}    \
                    content-length:2\r\n\r\n{}";
        let mut stream = text.as_bytes();
        assert_eq!(read(&mut stream).unwrap().unwrap().command, "threads");
        assert!(read(&mut stream).unwrap().is_err(), "{{}} is no request");
        assert_eq!(read(&mut stream).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_length_that_is_none_ends_the_connection() {
        for text in ["Content-Length: x\r\n\r\n", "\r\n", "Content-Length: 99999999999\r\n\r\n"] {
            assert_eq!(read(&mut text.as_bytes()).unwrap_err().kind(), ErrorKind::InvalidData, "{text:?}");
        }
        let long = "x".repeat(10_000);
        assert_eq!(read(&mut long.as_bytes()).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
