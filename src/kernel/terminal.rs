//! Standard input and output as the far end of COM1 or of the console, the network as that of the network card, and programs of the host as
//! that of the vsock. A terminal is raw meanwhile, so that each key goes to the guest.

use super::network::{Link, Sender};
use super::shown::Shown;
use super::vsock::{self, Peers, Socket};
use board::Size;
use board::record::{Takes, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::sync::Arc;
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
    Peers(vsock::News),
}

/// What a machine is connected to, beside a terminal.
pub(super) struct Outside {
    /// The network of its card.
    pub(super) link: Option<Link>,
    /// It has a vsock.
    pub(super) has_vsock: bool,
    /// Where programs of the host ask for connections by that.
    pub(super) socket: Option<Socket>,
}

/// The terminal.
pub(super) struct Console {
    arrived: Receiver<Arrived>,
    typed: VecDeque<u8>,
    /// How many bytes of it were taken.
    taken: usize,
    frames: VecDeque<Vec<u8>>,
    /// The network, if there is one.
    network: Option<Sender>,
    /// The programs at the other end of its vsock, if it has one.
    peers: Option<Peers>,
    /// Random bytes of the host's.
    random: File,
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
    /// Takes over standard input, and has a terminal there be raw; and what else there is outside.
    pub(super) fn open(outside: Outside) -> io::Result<Console> {
        let (to, arrived) = mpsc::sync_channel(WAITING);
        let network = outside.link.map(|link| listen(link, to.clone())).transpose()?;
        let news = to.clone();
        let tell: vsock::Tell = Arc::new(move |it| news.send(Arrived::Peers(it)).is_ok());
        let peers = outside.has_vsock.then(|| Peers::new(outside.socket, tell)).transpose()?;
        let random = File::open("/dev/urandom")?;
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
            taken: 0,
            frames,
            network,
            peers,
            random,
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

    /// What was typed that the guest never took, and why, if there is any.
    pub(super) fn untaken(&mut self, is_virtio: bool) -> Option<String> {
        self.look();
        let left = self.typed.len();
        let why = match (self.taken, is_virtio) {
            (0, true) => "the guest has no driver for the console of virtio".to_owned(),
            (0, false) => {
                "the guest has neither switched the receive interrupt of COM1 on nor polled it (Linux listens there with \
                 console=ttyS0 in --cmdline)"
                    .to_owned()
            }
            (taken, _) => format!("the guest took {taken} before them, and no more"),
        };
        (left > 0).then(|| format!("{left} bytes that were typed were never taken: {why}"))
    }

    fn receive(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Typed(bytes) => self.type_bytes(&bytes),
            Arrived::Over => self.is_over = true,
            Arrived::Frame(_) if self.frames.len() >= WAITING => self.lost += 1,
            Arrived::Frame(frame) => self.frames.push_back(frame),
            Arrived::Peers(news) => {
                if let Some(peers) = &mut self.peers {
                    peers.note(news);
                }
            }
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
        self.taken += most;
        self.typed.drain(..most).collect()
    }

    fn has_news(&mut self, takes: Takes) -> bool {
        self.look();
        let has_packet = takes.packets && self.peers.as_ref().is_some_and(Peers::has_packet);
        takes.typed && !self.typed.is_empty() || !self.frames.is_empty() || has_packet
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

    fn wait(&mut self, at_most: Option<Duration>, takes: Takes) -> bool {
        let end = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        let was_over = self.is_over;
        let may_come = self.network.is_some() || self.has_peers();
        loop {
            // How long to wait is another question once nothing more is typed, also where frames or packets may come.
            let ends = self.has_news(takes) || self.wants_end();
            if ends || self.is_over && (!may_come || !was_over) {
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

    fn size(&mut self) -> Size {
        let size = self.before.as_ref().and_then(|_| tcgetwinsize(io::stdin()).ok());
        size.map_or_else(Size::default, |size| Size { columns: size.ws_col, rows: size.ws_row })
    }

    fn random(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.random.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn has_peers(&self) -> bool {
        self.peers.as_ref().is_some_and(Peers::may_come)
    }

    fn take_packet(&mut self) -> Option<Vec<u8>> {
        self.look();
        self.peers.as_mut().and_then(Peers::take_packet)
    }

    fn send_packet(&mut self, packet: &[u8]) {
        self.peers.iter_mut().for_each(|peers| peers.receive(packet));
    }

    fn lose_peers(&mut self) {
        self.look();
        self.peers.iter_mut().for_each(Peers::lose);
    }

    fn is_over(&self) -> bool {
        self.is_over && self.typed.is_empty()
    }

    fn left(&self) -> Option<usize> {
        self.is_over.then_some(self.typed.len())
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
