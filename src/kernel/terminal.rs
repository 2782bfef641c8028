//! Standard input and output as the far end of COM1, and the network as that of the network card. A terminal is raw meanwhile, so that each
//! key goes to the guest.

use super::network::{Link, Sender};
use super::shown::Shown;
use board::record::Terminal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};
use vmm::interrupt;

/// Ctrl-A: the next key is for gretel.
const ESCAPE: u8 = 1;
/// Signals are looked for so often while the guest waits.
const GLANCE: Duration = Duration::from_millis(20);

/// Frames that wait to be taken, at most.
const WAITING: usize = 256;

/// What comes from outside.
enum Arrived {
    Typed(Vec<u8>),
    /// Standard input has ended.
    Over,
    Frame(Vec<u8>),
}

/// The terminal.
pub(super) struct Console {
    arrived: Receiver<Arrived>,
    typed: VecDeque<u8>,
    frames: VecDeque<Vec<u8>>,
    /// The network, if there is one.
    network: Option<Sender>,
    /// Frames that came faster than they were taken.
    lost: u64,
    /// Standard input has ended.
    is_over: bool,
    wants_end: bool,
    /// The last key was Ctrl-A.
    is_escaped: bool,
    /// What the terminal was before, if it is one.
    before: Option<Termios>,
    shown: Shown,
}

impl Console {
    /// Takes over standard input, and has a terminal there be raw; and the network, if there is one.
    pub(super) fn open(link: Option<Link>) -> io::Result<Console> {
        let (to, arrived) = mpsc::sync_channel(WAITING);
        let network = link.map(|link| listen(link, to.clone())).transpose()?;
        // It ends with the process: nobody can interrupt a read.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = io::stdin().read(&mut piece) {
                if to.send(Arrived::Typed(piece[..n].to_vec())).is_err() {
                    return;
                }
            }
            // Where nobody listens any more, the recording has ended.
            let _ = to.send(Arrived::Over);
        })?;
        let before = if io::stdin().is_terminal() { Some(make_raw()?) } else { None };
        let (typed, frames) = (VecDeque::new(), VecDeque::new());
        Ok(Console {
            arrived,
            typed,
            frames,
            network,
            lost: 0,
            is_over: false,
            wants_end: false,
            is_escaped: false,
            before,
            shown: Shown::default(),
        })
    }

    /// Whether it is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    /// How many frames nobody took: that came, and that were sent.
    pub(super) fn lost(&self) -> (u64, u64) {
        (self.lost, self.network.as_ref().map_or(0, |network| network.lost))
    }

    fn receive(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Typed(bytes) => self.type_bytes(&bytes),
            Arrived::Over => self.is_over = true,
            Arrived::Frame(_) if self.frames.len() >= WAITING => self.lost += 1,
            Arrived::Frame(frame) => self.frames.push_back(frame),
        }
    }

    fn type_bytes(&mut self, bytes: &[u8]) {
        if !self.is_terminal() {
            return self.typed.extend(bytes);
        }
        for byte in bytes {
            match (std::mem::take(&mut self.is_escaped), *byte) {
                (true, b'x') => self.wants_end = true,
                (false, ESCAPE) => self.is_escaped = true,
                (_, byte) => self.typed.push_back(byte),
            }
        }
    }

    /// Takes what has come.
    fn look(&mut self) {
        loop {
            match self.arrived.try_recv() {
                Ok(arrived) => self.receive(arrived),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }
}

/// Has a thread take frames, which ends with the process.
fn listen(link: Link, to: SyncSender<Arrived>) -> io::Result<Sender> {
    let (mut from, sender) = link.split();
    std::thread::Builder::new().name("network".to_owned()).spawn(move || {
        loop {
            // Who was at the other end has gone, and may come again.
            let Ok(frame) = from.receive() else {
                std::thread::sleep(GLANCE);
                continue;
            };
            if to.send(Arrived::Frame(frame)).is_err() {
                return;
            }
        }
    })?;
    Ok(sender)
}

impl Terminal for Console {
    fn take(&mut self, most: usize) -> Vec<u8> {
        self.look();
        let most = most.min(self.typed.len());
        self.typed.drain(..most).collect()
    }

    fn has_news(&mut self) -> bool {
        self.look();
        !self.typed.is_empty() || !self.frames.is_empty()
    }

    fn is_connected(&self) -> bool {
        self.network.is_some()
    }

    fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.look();
        self.frames.pop_front()
    }

    fn send(&mut self, frame: &[u8]) {
        self.network.iter_mut().for_each(|network| network.send(frame));
    }

    fn wait(&mut self, at_most: Option<Duration>) -> bool {
        let end = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        let was_over = self.is_over;
        loop {
            // How long to wait is another question once nothing more is typed, also where frames may come.
            let ends = self.has_news() || self.wants_end();
            if ends || self.is_over && (self.network.is_none() || !was_over) {
                return false;
            }
            let left = end.map_or(GLANCE, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return true;
            }
            match self.arrived.recv_timeout(left.min(GLANCE)) {
                Ok(arrived) => self.receive(arrived),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.is_over = true,
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_over && self.typed.is_empty()
    }

    fn wants_end(&self) -> bool {
        self.wants_end || interrupt::arrived().is_some()
    }

    fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Who closes the pipe does not want the output; the guest goes on.
        self.shown
            .show(bytes)
            .or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // There is nobody to tell.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
        self.shown.finish();
    }
}

/// Has the terminal give each key as it is; what it was before.
fn make_raw() -> io::Result<Termios> {
    let before = tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
    Ok(before)
}
