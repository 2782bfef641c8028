//! Runs a machine with a terminal, a network and other programs of the host, and writes down what comes from them.
//!
//! Between two slices of instructions these are asked. A guest that halts waits in real time for as long as
//! somebody may type or a frame may come; else its clock goes to the next timer at once. Checkpoints are taken at distances that
//! grow, before the first byte is typed, and where a recording ends of which the machine would go on. Example: `sleep 10` in a shell
//! takes ten seconds at a terminal, and none with `</dev/null`; the guest sees ten seconds of its own either way.

use crate::checkpoints;
use crate::devices::console::Size;
use crate::devices::net::FRAME;
use crate::journal::{End, Input, Record, Writer};
use crate::machine::{Machine, Moment, Pause};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So many instructions run before the terminal is asked.
const SLICE: u64 = 1 << 20;
/// So many instructions run before a check is written: a replay that differs is told soon, and a debugger that goes back begins there.
pub(crate) const CHECK: u64 = SLICE << 4;
/// So many instructions are between two checkpoints, or an eighth of all before the second, if that is more.
const SPACING: u64 = 1 << 30;
const SHARE: u64 = 8;
/// So long after it has a driver is a console of virtio ready, unless the guest halts before.
const SETTLING: u64 = 100_000_000;
/// So many nanoseconds of its time a guest that takes nothing may wait at least while something is left to be typed. An initial file
/// system may sleep before there is a shell that takes it.
const UNTAKEN: u64 = 60_000_000_000;
/// Checkpoints take no more on disk.
const ROOM: u64 = 1 << 30;

/// What the guest takes now. Frames are taken at any time: those that it has no room for are lost.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// Bytes that are typed.
    pub typed: bool,
    /// Packets of its vsock.
    pub packets: bool,
}

/// What is outside: where bytes are typed and shown, and where frames and packets come from and go to.
pub trait Terminal {
    /// What was typed, at most so many bytes.
    fn take(&mut self, most: usize) -> Vec<u8>;
    /// Whether there is any of that, or a frame, or a packet, that the guest takes now.
    fn has_news(&mut self, takes: Takes) -> bool;
    /// Waits until there is, or an end is wanted, or so long; whether the time is over.
    fn wait(&mut self, at_most: Option<Duration>, takes: Takes) -> bool;
    /// Whether nothing will be typed any more.
    fn is_over(&self) -> bool;
    /// How many bytes were typed that nobody has taken, if no more will come.
    fn left(&self) -> Option<usize> {
        self.is_over().then_some(0)
    }
    /// Whether the recording is to end.
    fn wants_end(&self) -> bool;
    /// Whether a network is at the other end of the machine's card.
    fn is_connected(&self) -> bool {
        false
    }
    /// The next frame that has come.
    fn take_frame(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// Sends a frame, or loses it.
    fn send(&mut self, _frame: &[u8]) {}
    /// The size of the terminal now; zeros where it has none.
    fn size(&mut self) -> Size {
        Size::default()
    }
    /// So many random bytes.
    ///
    /// # Errors
    /// When the host has none.
    fn random(&mut self, length: usize) -> io::Result<Vec<u8>>;
    /// Whether programs of the host may come to the other end of the machine's vsock.
    fn has_peers(&self) -> bool {
        false
    }
    /// The next packet for the guest.
    fn take_packet(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// Takes a packet of the guest's.
    fn send_packet(&mut self, _packet: &[u8]) {}
    /// The guest has no driver for its vsock: its connections are gone.
    fn lose_peers(&mut self) {}
    /// Shows what the guest printed.
    ///
    /// # Errors
    /// When it cannot be written.
    fn show(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Why a recording could not go on. What is in the journal stays usable.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The journal cannot be written.
    #[error("cannot write the journal {} from offset {offset:#x} on: {error}; what was recorded before stays usable{}",
        path.display(), if has_no_room(error) {
            "; free some space there, or record to another disk with -o"
        } else {
            ""
        })]
    Journal {
        /// The file.
        path: PathBuf,
        /// How many bytes it has.
        offset: u64,
        /// Why not.
        error: io::Error,
    },
    /// What the guest prints cannot be shown.
    #[error("cannot write to stdout: {0}")]
    Shown(io::Error),
    /// The host has no random bytes.
    #[error("the host gives no random bytes: {0}")]
    Random(io::Error),
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// How it ended.
    pub end: End,
    /// When.
    pub at: Moment,
    /// Frames that the guest had no room for while its network card was up.
    pub lost: u64,
    /// Checkpoints that could not be written.
    pub left_out: u64,
}

/// Runs a machine to its end. Once the terminal is over, a guest that has waited for so many nanoseconds of its time and printed
/// nothing is at its end, too; also one that takes nothing of what is left to be typed, after a minute of waiting at the soonest.
///
/// # Errors
/// When something cannot be written.
pub fn record(
    machine: &mut Machine,
    writer: &mut Writer,
    checkpoints: &mut checkpoints::Writer,
    terminal: &mut impl Terminal,
    patience: u64,
) -> Result<Recorded, RecordError> {
    let mut recorder = Recorder {
        machine,
        writer,
        checkpoints,
        terminal,
        patience,
        active: 0,
        waited: 0,
        was_typed: false,
        ready: None,
        was_told_size: false,
        lost: 0,
        tried: 0,
        left_out: 0,
    };
    if recorder.terminal.is_connected() || recorder.machine.has_vsock() {
        recorder.machine.connect();
    }
    let ran = recorder.run();
    // What was printed before an error is shown before that is told.
    let shown = recorder.show();
    let (end, lost, left_out) = (ran?, recorder.lost, recorder.left_out);
    shown?;
    let at = machine.moment();
    let record = Record::End { at, digests: machine.digests_of_all(), end: end.clone() };
    writer.put(&record).and_then(|()| writer.flush()).map_err(|error| unwritten(writer, error))?;
    Ok(Recorded { end, at, lost, left_out })
}

struct Recorder<'r, T> {
    machine: &'r mut Machine,
    writer: &'r mut Writer,
    checkpoints: &'r mut checkpoints::Writer,
    terminal: &'r mut T,
    patience: u64,
    /// When the guest last printed, or was typed to, by its clock.
    active: u64,
    /// How long it has waited since, by its clock. One that computes for long before it listens has not.
    waited: u64,
    /// Something was typed.
    was_typed: bool,
    /// When the console of virtio is ready to be typed to, once it has a driver.
    ready: Option<u64>,
    /// The driver of the console was told the terminal's size.
    was_told_size: bool,
    /// Frames that the guest had no room for.
    lost: u64,
    /// How many instructions had retired when a checkpoint was last written, or was not.
    tried: u64,
    /// Checkpoints that could not be written.
    left_out: u64,
}

/// Whether there is no room: on the disk, in a quota, or below a limit of a file's length.
fn has_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn unwritten(writer: &Writer, error: io::Error) -> RecordError {
    RecordError::Journal { path: writer.path().to_owned(), offset: writer.written(), error }
}

impl<T: Terminal> Recorder<'_, T> {
    fn run(&mut self) -> Result<End, RecordError> {
        // Where it goes on from a checkpoint, the guest knows of peers that are not there.
        if self.machine.is_vsock_up() {
            self.take_in(Input::Severed)?;
        }
        if self.machine.moment().retired == 0 {
            // Before there is a driver: one that reads the size when it starts finds it.
            self.take_size_unless_known()?;
        }
        let end = self.run_to_end()?;
        if matches!(end, End::Stopped | End::Idle) {
            self.checkpoint()?;
        }
        Ok(end)
    }

    fn run_to_end(&mut self) -> Result<End, RecordError> {
        loop {
            let next = (self.machine.moment().retired / SLICE + 1) * SLICE;
            let pause = self.machine.run(next);
            self.show()?;
            self.send();
            match pause {
                Pause::Ended(end) => return Ok(End::Machine(end)),
                _ if self.terminal.wants_end() => return Ok(End::Stopped),
                Pause::There if self.is_time() => self.checkpoint()?,
                Pause::There if next.is_multiple_of(CHECK) => self.check()?,
                Pause::There | Pause::Seen(_) => {}
                Pause::Idle(due) => {
                    if let Some(end) = self.idle(due) {
                        return Ok(end);
                    }
                }
            }
            self.take_size()?;
            self.take_random()?;
            self.take_typed()?;
            self.take_frames()?;
            self.take_packets()?;
            self.written(Writer::tick)?;
        }
    }

    /// The guest prints, or takes something.
    fn act(&mut self) {
        (self.active, self.waited) = (self.machine.moment().time, 0);
    }

    /// The guest halts: it waits for its timer, or for what is typed before.
    fn idle(&mut self, due: Option<u64>) -> Option<End> {
        let before = self.machine.moment().time;
        let end = self.wait(due);
        self.waited = self.waited.saturating_add(self.machine.moment().time - before);
        end
    }

    fn wait(&mut self, due: Option<u64>) -> Option<End> {
        if self.machine.random_wanted() > 0 {
            // It has them at once.
            return None;
        }
        let now = self.machine.moment().time;
        if self.machine.room() > 0 {
            self.ready = Some(now);
        }
        let may_receive = self.terminal.is_connected() && self.machine.is_network_up()
            || self.terminal.has_peers() && self.machine.is_vsock_up();
        let (is_over, latest) = (self.terminal.is_over(), self.active.saturating_add(self.patience));
        // While frames may come the guest waits in real time: what has passed counts, and not the next timer.
        let is_quiet = if may_receive { now > latest } else { due.is_none_or(|due| due > latest) };
        if is_over && is_quiet {
            return Some(End::Idle);
        }
        // Where no more will be typed, and the guest takes nothing of what is left, it would wait for ever.
        let is_deaf = !is_over && self.terminal.left().is_some() && self.machine.room() == 0;
        let rest = self.patience.max(UNTAKEN).checked_sub(self.waited);
        if is_deaf && rest.is_none() {
            return Some(End::Idle);
        }
        if !may_receive && (is_over || self.machine.room() == 0) {
            if due.is_none() {
                return Some(End::Idle);
            }
            due.into_iter().for_each(|due| self.machine.wait_until(due));
            return None;
        }
        let latest = if is_deaf { now.saturating_add(rest.unwrap_or(0)) } else { latest };
        let due = if is_over || is_deaf {
            Some(due.unwrap_or(u64::MAX).min(latest.saturating_add(1)))
        } else {
            due
        };
        let began = Instant::now();
        let takes = Takes { typed: self.machine.room() > 0, packets: self.machine.packet_room() > 0 };
        let is_due = self.terminal.wait(due.map(|due| Duration::from_nanos(due.saturating_sub(now))), takes);
        let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match due {
            Some(due) if is_due => self.machine.wait_until(due),
            // Time passes for what has come; the event has it. Else the guest has not waited.
            _ if self.terminal.has_news(takes) => {
                self.machine.wait_until(due.unwrap_or(u64::MAX).min(now.saturating_add(waited)));
            }
            _ => {}
        }
        None
    }

    /// How many bytes may be typed.
    fn room(&mut self) -> usize {
        let room = self.machine.room();
        if self.machine.console_size().is_none() || self.is_console_ready() { room } else { 0 }
    }

    /// Whether the driver of the console of virtio is ready. Linux's loses what is typed before it is, follows a null pointer if it is
    /// told a size, and does not say when that is over: it has had its time, or has slept, when the guest has halted once (Linux,
    /// drivers/char/virtio_console.c: `config_intr`, `add_port`).
    fn is_console_ready(&mut self) -> bool {
        let now = self.machine.moment().time;
        if self.ready.is_none() && self.machine.room() > 0 {
            self.ready = Some(now.saturating_add(SETTLING));
        }
        self.ready.is_some_and(|ready| now >= ready)
    }

    fn take_typed(&mut self) -> Result<(), RecordError> {
        let room = self.room();
        let bytes = if room > 0 { self.terminal.take(room) } else { Vec::new() };
        if bytes.is_empty() {
            return Ok(());
        }
        // The boot is over; where a recording begins behind one, that is kept already.
        let ran = self.machine.moment().retired - self.checkpoints.last();
        if !std::mem::replace(&mut self.was_typed, true) && (ran >= CHECK || self.checkpoints.count() == 0) {
            self.checkpoint()?;
        }
        self.act();
        self.take_in(Input::Typed(bytes))
    }

    /// Gives the machine what comes from outside, and writes it down.
    fn take_in(&mut self, input: Input) -> Result<(), RecordError> {
        let (at, digests) = (self.machine.moment(), self.machine.digests());
        self.machine.take_in(&input);
        self.put(&Record::Input { at, digests, input })
    }

    /// Tells the driver of the console of virtio how large the terminal is: once, since Linux's takes a size from a change only, and
    /// when that changes.
    fn take_size(&mut self) -> Result<(), RecordError> {
        if self.machine.console_size().is_none() || !self.is_console_ready() {
            return Ok(());
        }
        if std::mem::replace(&mut self.was_told_size, true) {
            return self.take_size_unless_known();
        }
        let size = self.terminal.size();
        if size == Size::default() { Ok(()) } else { self.take_in(Input::Resized(size)) }
    }

    fn take_size_unless_known(&mut self) -> Result<(), RecordError> {
        let Some(known) = self.machine.console_size() else { return Ok(()) };
        let size = self.terminal.size();
        if size == known { Ok(()) } else { self.take_in(Input::Resized(size)) }
    }

    /// Gives the guest the random bytes that it waits for.
    fn take_random(&mut self) -> Result<(), RecordError> {
        match self.machine.random_wanted() {
            0 => Ok(()),
            wanted => {
                let bytes = self.terminal.random(wanted).map_err(RecordError::Random)?;
                self.take_in(Input::Random(bytes))
            }
        }
    }

    /// Takes the packets for the guest that it has room for; the others wait outside.
    fn take_packets(&mut self) -> Result<(), RecordError> {
        if !self.machine.has_vsock() {
            return Ok(());
        }
        if !self.machine.is_vsock_up() {
            self.terminal.lose_peers();
            return Ok(());
        }
        while self.machine.packet_room() > 0 {
            let Some(packet) = self.terminal.take_packet() else { break };
            self.act();
            self.take_in(Input::Packet(packet))?;
        }
        Ok(())
    }

    /// Sends what the guest has sent.
    fn send(&mut self) {
        let (frames, packets) = self.machine.take_sent();
        frames.iter().for_each(|frame| self.terminal.send(frame));
        packets.iter().for_each(|packet| self.terminal.send_packet(packet));
    }

    /// Takes all frames that have come. Those for which the guest has no room are lost, as on a wire.
    fn take_frames(&mut self) -> Result<(), RecordError> {
        while let Some(bytes) = self.terminal.take_frame() {
            if self.machine.frame_room() == 0 || !FRAME.contains(&bytes.len()) {
                self.lost += u64::from(self.machine.is_network_up());
                continue;
            }
            self.act();
            self.take_in(Input::Frame(bytes))?;
        }
        Ok(())
    }

    /// Whether the last checkpoint is long ago.
    fn is_time(&self) -> bool {
        let now = self.machine.moment().retired;
        now - self.checkpoints.last().max(self.tried).min(now) >= SPACING.max(now / SHARE)
    }

    /// Writes a checkpoint, unless they have a gigabyte, or nothing has run since the last one. A replay needs none: one that cannot be
    /// written is left out, and tried again at the distance of the next.
    fn checkpoint(&mut self) -> Result<(), RecordError> {
        self.check()?;
        let is_new = self.checkpoints.count() == 0 || self.machine.moment().retired > self.checkpoints.last();
        if !is_new || self.checkpoints.size() > ROOM {
            return Ok(());
        }
        // No checkpoint is behind what the journal has.
        self.written(Writer::flush)?;
        self.tried = self.machine.moment().retired;
        if let Err(error) = self.checkpoints.add(self.machine, self.writer.records()) {
            self.left_out += 1;
            let path = self.checkpoints.path().display();
            tracing::warn!(
                "a checkpoint is left out, for {path} cannot be written: {error}; the recording goes on"
            );
        }
        if self.checkpoints.size() > ROOM {
            tracing::warn!("the checkpoints have a gigabyte: no more are written");
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), RecordError> {
        let (at, digests) = (self.machine.moment(), self.machine.rest());
        self.put(&Record::Check { at, digests })
    }

    fn put(&mut self, record: &Record) -> Result<(), RecordError> {
        self.written(|writer| writer.put(record))
    }

    fn written(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) -> Result<(), RecordError> {
        write(self.writer).map_err(|error| unwritten(self.writer, error))
    }

    fn show(&mut self) -> Result<(), RecordError> {
        if !self.machine.has_printed() {
            return Ok(());
        }
        self.act();
        let printed = self.machine.take_printed();
        self.terminal.show(&printed).map_err(RecordError::Shown)
    }
}
