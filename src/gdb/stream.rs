//! The two ends of a connection with a debugger, and who hears that it wants the program to stop.

use super::packet::{Decoder, Heard, framed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// So often is looked whether the debugger has said something.
const LOOK: Duration = Duration::from_millis(20);
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A connection with a debugger.
pub(super) struct Stream {
    from: File,
    to: File,
    decoder: Decoder,
    /// Whether each end says that a packet has arrived.
    acknowledges: bool,
    /// The last packet, for a debugger that did not get it.
    last: Vec<u8>,
    /// Set while the program runs and the debugger waits.
    runs: Arc<AtomicBool>,
    /// What ends the run that goes on, or was last.
    asks: Arc<Mutex<Arc<AtomicBool>>>,
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
        Stream {
            from: from.into(),
            to: to.into(),
            decoder: Decoder::default(),
            acknowledges: true,
            last: Vec::new(),
            runs: Arc::default(),
            asks: Arc::default(),
        }
    }

    /// Asks for a stop from now on whenever the program runs and the debugger says something: it is waiting, so that can only be that it
    /// wants one.
    pub(super) fn hear(&mut self) -> io::Result<()> {
        let (from, runs, asks) = (self.from.try_clone()?, Arc::clone(&self.runs), Arc::clone(&self.asks));
        thread::Builder::new().name("debugger".to_owned()).spawn(move || {
            loop {
                thread::sleep(LOOK);
                if runs.load(Ordering::Acquire) && is_readable(&from, &NOW) {
                    set(&asks, true);
                }
            }
        })?;
        Ok(())
    }

    /// The next packet, or Ctrl-C; `None` when the debugger has gone.
    pub(super) fn next(&mut self) -> io::Result<Option<Heard>> {
        loop {
            match self.decoder.next() {
                Some(Heard::Again) => self.to.write_all(&self.last)?,
                Some(Heard::Damaged) => self.to.write_all(b"-")?,
                Some(Heard::Packet(body)) => {
                    if self.acknowledges {
                        self.to.write_all(b"+")?;
                    }
                    return Ok(Some(Heard::Packet(body)));
                }
                Some(heard) => return Ok(Some(heard)),
                None => {
                    let mut bytes = [0; 4096];
                    match self.from.read(&mut bytes)? {
                        0 => return Ok(None),
                        len => self.decoder.push(&bytes[..len]),
                    }
                }
            }
        }
    }

    /// Whether the debugger says nothing for this long.
    pub(super) fn is_silent(&self, long: Duration) -> bool {
        let long = Timespec { tv_sec: 0, tv_nsec: long.subsec_nanos().into() };
        !self.decoder.has_more() && !is_readable(&self.from, &long)
    }

    /// Sends a packet.
    pub(super) fn send(&mut self, body: &[u8]) -> io::Result<()> {
        self.last = framed(body);
        self.to.write_all(&self.last)
    }

    /// Neither end says from now on that a packet has arrived.
    pub(super) fn leave_out_acknowledgements(&mut self) {
        self.acknowledges = false;
    }

    /// The program runs while `run` does, and ends when `asks` is set. A Ctrl-C that comes meanwhile is answered by its stop, whatever
    /// that is for.
    pub(super) fn while_running<T>(&mut self, asks: Arc<AtomicBool>, run: impl FnOnce() -> T) -> T {
        *self.asks.lock().unwrap_or_else(PoisonError::into_inner) = asks;
        // What it said before was not a wish to stop; what came with the packet is.
        set(&self.asks, self.decoder.has_more());
        self.runs.store(true, Ordering::Release);
        let result = run();
        self.runs.store(false, Ordering::Release);
        if !self.decoder.has_more() && is_readable(&self.from, &NOW) {
            let mut byte = [0];
            // An end of the stream is found by who reads next.
            if let Ok(1) = self.from.read(&mut byte) {
                self.decoder.push(&byte);
            }
        }
        self.decoder.take_interrupt();
        result
    }
}

fn set(asks: &Mutex<Arc<AtomicBool>>, value: bool) {
    asks.lock().unwrap_or_else(PoisonError::into_inner).store(value, Ordering::Relaxed);
}

/// Whether there is something to read, or the other end is closed, within this time.
fn is_readable(file: &File, within: &Timespec) -> bool {
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(within)).is_ok_and(|ready| ready > 0)
}
