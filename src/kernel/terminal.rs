//! Standard input and output as the far end of COM1. A terminal is raw meanwhile, so that each key goes to the guest.

use board::record::Terminal;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};
use vmm::interrupt;

/// Ctrl-A: the next key is for gretel.
const ESCAPE: u8 = 1;
/// Signals are looked for so often while the guest waits.
const GLANCE: Duration = Duration::from_millis(20);

/// The terminal.
pub(super) struct Console {
    bytes: Receiver<Vec<u8>>,
    typed: VecDeque<u8>,
    /// Standard input has ended.
    is_over: bool,
    wants_end: bool,
    /// The last key was Ctrl-A.
    is_escaped: bool,
    /// What the terminal was before, if it is one.
    before: Option<Termios>,
}

impl Console {
    /// Takes over standard input, and has a terminal there be raw.
    pub(super) fn open() -> io::Result<Console> {
        let (to, bytes) = mpsc::channel();
        // It ends with the process: nobody can interrupt a read.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = io::stdin().read(&mut piece) {
                if to.send(piece[..n].to_vec()).is_err() {
                    return;
                }
            }
        })?;
        let before = if io::stdin().is_terminal() { Some(make_raw()?) } else { None };
        let typed = VecDeque::new();
        Ok(Console { bytes, typed, is_over: false, wants_end: false, is_escaped: false, before })
    }

    /// Whether it is a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.before.is_some()
    }

    fn receive(&mut self, bytes: &[u8]) {
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
            match self.bytes.try_recv() {
                Ok(bytes) => self.receive(&bytes),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_over = true;
                    return;
                }
            }
        }
    }
}

impl Terminal for Console {
    fn take(&mut self, most: usize) -> Vec<u8> {
        self.look();
        let most = most.min(self.typed.len());
        self.typed.drain(..most).collect()
    }

    fn has_typed(&mut self) -> bool {
        self.look();
        !self.typed.is_empty()
    }

    fn wait(&mut self, at_most: Option<Duration>) -> bool {
        let end = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        loop {
            if self.has_typed() || self.is_over || self.wants_end() {
                return false;
            }
            let left = end.map_or(GLANCE, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return true;
            }
            match self.bytes.recv_timeout(left.min(GLANCE)) {
                Ok(bytes) => self.receive(&bytes),
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
        let shown = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush());
        // Who closes the pipe does not want the output; the guest goes on.
        shown.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // There is nobody to tell.
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
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
