//! Taking checkpoints of a program that is being recorded, or replayed.
//!
//! The program stops for as long as it takes to fork its address spaces and to encode the kernel. A thread of its own
//! ([`super::worker`]) then compares, compresses and writes pages, out of frames that stay as they are ([`crate::process::stored`]);
//! the checkpoint before is kept until then, so that it is known which pages are the same. The program does not see any of it, and
//! the journal only in that a frame begins there.
//!
//! A flight recorder begins a new segment with a checkpoint when the current one has grown by an eighth of the room. Once that
//! checkpoint is on disk, the oldest segments go, until there is room for what may come before the next look: an eighth of this
//! segment, the next checkpoint, and an eighth while that is written. There the program waits. If the disk has no room for the
//! checkpoint, the segment is begun without, none goes, and the next is begun when there is room again ([`super::stall`]).

use super::stall::Stall;
use super::worker::{Done, Flight, Job, SEGMENTS, Unwritten, Where, Worker};
use super::{About, Rate, identity};
use crate::gate::clock;
use crate::journal::reader::Place;
use crate::journal::{Header, Writer};
use crate::position::Position;
use crate::process::{Checkpoint, CheckpointCost, Process, ProcessError};
use crate::recording::Segment;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A checkpoint that could not be taken is tried again after this.
const AGAIN: Duration = Duration::from_millis(500);
/// One that is due while another one is written is tried again no sooner than this.
const SOON: Duration = Duration::from_millis(1);

/// The journal that a checkpoint belongs to.
pub(crate) enum Journal<'a> {
    /// It is being written.
    Written(&'a Writer),
    /// It is being played, and goes on here.
    Played(Place),
}

/// Takes checkpoints.
pub(crate) struct Keeper {
    rate: Rate,
    /// A flight recorder's window, and the number of its segment.
    flight: Option<(Flight, u64)>,
    worker: Worker,
    /// The newest checkpoint, which is being written or was.
    held: Option<Checkpoint>,
    writes: bool,
    /// The one before was given back before there was another: its frames may hold something else.
    forget: bool,
    /// Writing has failed, and no more is tried.
    failed: bool,
    /// A flight recorder's window does not move.
    stall: Option<Stall>,
    due: Instant,
    /// No segment begins before this: there was no memory for its checkpoint.
    not_before: Instant,
    /// When the last was taken, and what it costs.
    last: (Instant, CheckpointCost),
    /// Where.
    taken: Option<Position>,
    /// How many were written.
    count: u64,
    /// How many bytes the file of checkpoints has, and how many of a segment are its first checkpoint.
    size: u64,
    first: u64,
    /// Nobody else has the processor come back.
    kicks: bool,
    is_told: bool,
}

impl Keeper {
    /// Checkpoints in a file, which is made with the first of them, for the journal with this header. If nobody else has the
    /// processor come back now and then, this does.
    pub(crate) fn new(path: PathBuf, header: &Header, rate: Rate, kicks: bool) -> io::Result<Keeper> {
        Keeper::start(path, header, rate, None, kicks)
    }

    /// Those of a flight recorder.
    pub(crate) fn of_flight(flight: Flight, header: &Header, rate: Rate, kicks: bool) -> io::Result<Keeper> {
        let first = flight.recording.segment(0).checkpoints();
        Keeper::start(first, header, Rate { most: u64::MAX, ..rate }, Some(flight), kicks)
    }

    fn start(
        path: PathBuf,
        header: &Header,
        rate: Rate,
        flight: Option<Flight>,
        kicks: bool,
    ) -> io::Result<Keeper> {
        let worker = Worker::start(path, identity(header), rate.room, flight.clone())?;
        Ok(Keeper {
            rate,
            flight: flight.map(|flight| (flight, 0)),
            worker,
            held: None,
            writes: false,
            forget: false,
            failed: false,
            stall: None,
            due: after(Instant::now(), rate.every),
            not_before: Instant::now(),
            last: (Instant::now(), CheckpointCost::default()),
            taken: None,
            count: 0,
            size: 0,
            first: 0,
            kicks,
            is_told: false,
        })
    }

    /// Between two steps of the program, at this time, where the journal is whole: takes a checkpoint if one is due. It stands right
    /// `behind_event`, or further; `comparisons` digests are in the journal.
    pub(crate) fn keep_if_due(
        &mut self,
        process: &mut Process,
        journal: Journal<'_>,
        behind_event: bool,
        comparisons: u64,
        now: Instant,
    ) -> Result<(), ProcessError> {
        self.look_at_worker(process);
        if self.failed {
            return Ok(());
        }
        self.make_room(process);
        let fullness = self.fullness(&journal);
        if self.writes && fullness > 0 {
            // The disk is to be bounded: the program waits.
            self.wait_for_worker(process);
        }
        let begins_segment = (fullness > 0 || self.stall.is_some()) && now >= self.not_before;
        if !begins_segment && now < self.due {
            self.have_it_come_back(process, now);
            return Ok(());
        }
        // Where exactly it is, is known to a processor that counts alone.
        let stands = behind_event || process.cpu().counters().is_some();
        if !stands || self.taken.is_some_and(|taken| process.position() <= taken) {
            return Ok(());
        }
        // What was written last is of no use to a checkpoint behind it: with the next, a segment begins.
        if self.stall.as_mut().is_some_and(|stall| !begins_segment || !stall.is_over(now)) {
            return Ok(());
        }
        if !begins_segment && let Some(later) = self.later(process, now) {
            self.put_off(later);
            return Ok(());
        }
        self.keep(process, &journal, begins_segment, comparisons)
    }

    /// Where the newest one is, if there is any.
    pub(crate) fn taken(&self) -> Option<Position> {
        self.taken
    }

    /// Takes one here, where a processor that counts or an event has brought the program, if the last is as far as two are to be apart:
    /// whatever it costs, since it is the last.
    pub(crate) fn keep_last(
        &mut self,
        process: &mut Process,
        place: Place,
        comparisons: u64,
    ) -> Result<(), ProcessError> {
        if self.writes {
            self.wait_for_worker(process);
        }
        let (at, _) = self.last;
        let is_passed = self.taken.is_some_and(|taken| process.position() <= taken);
        if self.failed || is_passed || at.elapsed() < self.rate.every {
            return Ok(());
        }
        self.keep(process, &Journal::Played(place), false, comparisons)
    }

    /// Gives the frames of the last one back if the program may need them.
    fn make_room(&mut self, process: &mut Process) {
        if self.held.is_none() || !is_scarce(process) {
            return;
        }
        if self.writes {
            self.wait_for_worker(process);
        }
        self.give_back(process);
        self.forget = true;
    }

    /// Has the processor come back when the next one is due, where nobody else does, and where that helps.
    fn have_it_come_back(&mut self, process: &mut Process, now: Instant) {
        if self.kicks && !self.is_told && process.cpu().counters().is_some() {
            self.is_told = true;
            process.come_back_at(Some(clock(libc::CLOCK_MONOTONIC) + nanoseconds(self.due - now)));
        }
    }

    /// When there may be one that is due now, if that is later: another one is being written, the last has cost much, or there
    /// are too many bytes.
    fn later(&self, process: &Process, now: Instant) -> Option<Instant> {
        if self.writes {
            return Some(after(now, self.rate.every.clamp(SOON, AGAIN)));
        }
        if self.size >= self.rate.most {
            return Some(after(now, Duration::MAX));
        }
        let (at, cost) = self.last;
        let free = after(at, cost.so_far(process).saturating_mul(self.rate.share));
        (free > now).then_some(free)
    }

    fn put_off(&mut self, due: Instant) {
        (self.due, self.is_told) = (due, false);
    }

    /// How often the current segment has grown by what a segment is to have.
    fn fullness(&self, journal: &Journal<'_>) -> u64 {
        let (Some((flight, _)), Journal::Written(writer)) = (&self.flight, journal) else { return 0 };
        (writer.size() + self.size - self.first) / (flight.room / SEGMENTS).max(1)
    }

    fn keep(
        &mut self,
        process: &mut Process,
        journal: &Journal<'_>,
        segment: bool,
        comparisons: u64,
    ) -> Result<(), ProcessError> {
        let before = Instant::now();
        self.put_off(after(before, self.rate.every));
        if is_scarce(process) && !segment {
            return Ok(());
        }
        let checkpoint = match process.checkpoint() {
            Ok(checkpoint) => checkpoint,
            Err(ProcessError::Memory(_)) => {
                self.put_off(before + AGAIN);
                self.not_before = before + AGAIN;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let image = checkpoint.image(process.memory());
        let about = About {
            position: checkpoint.position(),
            counters: checkpoint.counters().filter(|_| !checkpoint.counts_late()),
            spent: clock(libc::CLOCK_THREAD_CPUTIME_ID),
            comparisons,
            offset: 0,
            sequence: 0,
            record: 0,
        };
        let segment = match segment.then(|| self.next_segment()) {
            None => None,
            Some(Ok(segment)) => segment,
            Some(Err(error)) => {
                process.release(checkpoint);
                self.fail(Unwritten { error, size: 0 });
                return Ok(());
            }
        };
        self.taken = Some(about.position);
        let goes_on = match journal {
            Journal::Written(writer) => Where::Soon(writer.cut(segment.as_ref().map(Segment::journal))),
            Journal::Played(place) => Where::Here(*place),
        };
        if segment.is_some() {
            (self.size, self.first) = (0, 0);
        }
        let forget = std::mem::take(&mut self.forget);
        let job = Job { image, view: process.memory().ram().view(), about, goes_on, segment, forget };
        // The one before is needed no longer: the new one owns all frames of it that are still the same.
        self.give_back(process);
        self.held = Some(checkpoint);
        self.writes = self.worker.write(job);
        let (pause, last) = (before.elapsed(), self.last.1.so_far(process));
        self.last = (before, CheckpointCost::of_taken(process, pause));
        tracing::debug!(position = %about.position, ?pause, cost_of_last = ?last, "checkpoint");
        Ok(())
    }

    /// Makes the folder of the flight recorder's next segment.
    fn next_segment(&mut self) -> io::Result<Option<Segment>> {
        let Some((flight, number)) = self.flight.as_mut() else { return Ok(None) };
        let segment = flight.recording.segment(*number + 1);
        segment.create()?;
        *number += 1;
        Ok(Some(segment))
    }

    fn give_back(&mut self, process: &mut Process) {
        self.held.take().into_iter().for_each(|checkpoint| process.release(checkpoint));
    }

    fn look_at_worker(&mut self, process: &mut Process) {
        if self.writes
            && let Some(done) = self.worker.look()
        {
            self.take(done, process);
        }
    }

    fn wait_for_worker(&mut self, process: &mut Process) {
        match self.worker.wait() {
            Some(done) => self.take(done, process),
            None => self.failed = true,
        }
    }

    fn take(&mut self, done: Done, process: &mut Process) {
        self.writes = false;
        match done {
            Ok((took, size)) => {
                if self.first == 0 && self.flight.as_ref().is_some_and(|(_, number)| *number > 0) {
                    self.first = size;
                }
                self.count += 1;
                self.size = size;
                self.last.1.add(took);
            }
            Err(unwritten) => {
                self.give_back(process);
                return self.fail(unwritten);
            }
        }
        if self.stall.take().is_some() {
            tracing::warn!("there is room for checkpoints again: the flight recorder's window moves");
        }
    }

    /// What could not be written is tried again by a flight recorder, and by nobody else.
    fn fail(&mut self, Unwritten { error, size }: Unwritten) {
        let Some((flight, _)) = &self.flight else {
            tracing::warn!("no more checkpoints are written: {error}");
            self.failed = true;
            return;
        };
        let needs = size + flight.room / SEGMENTS;
        if let Some(stall) = &mut self.stall {
            return stall.go_on(needs);
        }
        tracing::warn!(
            "no checkpoint is written: {error}; the flight recorder's window does not move until one can be: it grows"
        );
        self.stall = Some(Stall::begin(flight.recording.dir(), needs));
    }

    /// How many bytes are on disk when what was taken is written.
    pub(crate) fn written(&mut self, process: &mut Process) -> u64 {
        if self.writes {
            self.wait_for_worker(process);
        }
        self.size
    }

    /// Waits until what was taken is written, and gives its frames back. Gives how many there are, and their bytes.
    pub(crate) fn finish(mut self, process: &mut Process) -> (u64, u64) {
        let bytes = self.written(process);
        self.worker.join();
        self.give_back(process);
        (self.count, bytes)
    }
}

/// Whether less memory is free than in use.
fn is_scarce(process: &Process) -> bool {
    let frames = process.memory().frames();
    frames.available() < frames.used()
}

/// So long after a moment; where no clock goes that far, in a year.
fn after(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(365 * 86_400))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
