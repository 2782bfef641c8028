//! The two ends of a connection with a debugger, and who hears that it wants the program to stop.

use gdbstub::conn::{Connection, ConnectionExt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// So often is looked whether the debugger has said something.
const LOOK: Duration = Duration::from_millis(20);

/// A connection with a debugger.
pub(super) struct Stream {
    from: File,
    to: File,
    out: Vec<u8>,
    next: Option<u8>,
}

impl Stream {
    /// Our own standard streams: the debugger has started us.
    pub(super) fn standard() -> io::Result<Stream> {
        Ok(Stream::of(io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn tcp(socket: TcpStream) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        let other = socket.try_clone()?;
        Ok(Stream::of(socket.into(), other.into()))
    }

    fn of(from: OwnedFd, to: OwnedFd) -> Stream {
        Stream { from: from.into(), to: to.into(), out: Vec::new(), next: None }
    }

    /// Sets `asks` whenever `runs` is set and the debugger says something: it is waiting, so that can only be that it wants a stop.
    pub(super) fn hear(&self, runs: Arc<AtomicBool>, asks: Arc<AtomicBool>) -> io::Result<()> {
        let from = self.from.try_clone()?;
        thread::Builder::new().name("debugger".to_owned()).spawn(move || {
            loop {
                thread::sleep(LOOK);
                if runs.load(Ordering::Acquire) && is_readable(&from) {
                    asks.store(true, Ordering::Relaxed);
                }
            }
        })?;
        Ok(())
    }
}

impl Connection for Stream {
    type Error = io::Error;

    fn write(&mut self, byte: u8) -> io::Result<()> {
        self.out.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }
}

impl ConnectionExt for Stream {
    fn read(&mut self) -> io::Result<u8> {
        if let Some(byte) = self.next.take() {
            return Ok(byte);
        }
        let mut byte = [0];
        match self.from.read(&mut byte)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(byte[0]),
        }
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.next.is_none() && is_readable(&self.from) {
            self.next = Some(self.read()?);
        }
        Ok(self.next)
    }
}

/// Whether there is something to read, or the other end is closed.
fn is_readable(file: &File) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
