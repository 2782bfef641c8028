//! The thread that writes checkpoints, beside the program: [`super::keeper`] gives it the images, it compares, compresses and writes
//! their pages, and of a flight recorder's window it drops the oldest segments.

use super::About;
use super::store::Store;
use crate::contents;
use crate::journal::Cut;
use crate::journal::reader::Place;
use crate::process::stored::Image;
use crate::ram::View;
use crate::recording::{Recording, Segment};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A flight recorder's segments have one part in so many of its room, besides the checkpoint that they begin with.
pub(super) const SEGMENTS: u64 = 8;

/// Where a journal goes on.
pub(super) enum Where {
    /// It is told.
    Soon(Receiver<Cut>),
    Here(Place),
}

impl Where {
    fn place(self) -> io::Result<(Cut, u64)> {
        match self {
            Where::Soon(told) => {
                let cut = told.recv().map_err(|_| io::Error::other("the journal is not written any more"))?;
                Ok((cut, 0))
            }
            Where::Here(place) => Ok(place.in_file()),
        }
    }
}

/// A flight recorder's window.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// Whose segments there are.
    pub(crate) recording: Recording,
    /// How many bytes they may have.
    pub(crate) room: u64,
    /// The store that has their files as well.
    pub(crate) store: Option<contents::Store>,
}

/// What is to be written.
pub(super) struct Job {
    pub(super) image: Image,
    pub(super) view: View,
    pub(super) about: About,
    pub(super) goes_on: Where,
    /// The segment that begins with it.
    pub(super) segment: Option<Segment>,
    /// The frames of the checkpoint before were given back.
    pub(super) forget: bool,
}

/// What came of it: how long it took and how many bytes the file has, or why it has no more.
pub(super) type Done = Result<(Duration, u64), Unwritten>;

/// A checkpoint that could not be written.
pub(super) struct Unwritten {
    pub(super) error: io::Error,
    /// How many bytes the file had then.
    pub(super) size: u64,
}

/// The thread that writes.
pub(super) struct Worker {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts it on the file at `path`, of the journal with this identity, which may have `room` bytes.
    pub(super) fn start(
        path: PathBuf,
        identity: u64,
        room: u64,
        flight: Option<Flight>,
    ) -> io::Result<Worker> {
        let target = Target { path, identity, room, store: None, flight, said: false };
        let (jobs, todo) = mpsc::channel();
        let (tell, done) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || target.work(&todo, &tell))?;
        Ok(Worker { jobs: Some(jobs), done, thread: Some(thread) })
    }

    /// Gives it a checkpoint to write. Whether it takes any.
    pub(super) fn write(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// What came of the checkpoint, if that is known.
    pub(super) fn look(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    /// The same, once it is known; `None` if the thread has ended.
    pub(super) fn wait(&self) -> Option<Done> {
        self.done.recv().ok()
    }

    /// Has it write what it was given, and ends it.
    pub(super) fn join(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message is on stderr and the file ends with its last whole checkpoint.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.join();
    }
}

/// Where the thread writes to.
struct Target {
    /// The file that is begun with the first checkpoint.
    path: PathBuf,
    identity: u64,
    /// How many bytes the file may have.
    room: u64,
    store: Option<Store>,
    flight: Option<Flight>,
    /// It was said that checkpoints are too large for the room.
    said: bool,
}

impl Target {
    /// Writes until there will be no more.
    fn work(mut self, todo: &Receiver<Job>, tell: &Sender<Done>) {
        while let Ok(job) = todo.recv() {
            let before = Instant::now();
            let done = self.write(job).map(|size| (before.elapsed(), size)).map_err(|error| {
                let why = format!("cannot write {}: {error}", self.path.display());
                // What it knows of the file is not so any more.
                let size = self.store.take().map_or(0, |store| store.size());
                Unwritten { error: io::Error::new(error.kind(), why), size }
            });
            if tell.send(done).is_err() {
                return;
            }
        }
    }

    fn write(&mut self, job: Job) -> io::Result<u64> {
        if let Some(segment) = &job.segment {
            (self.path, self.store) = (segment.checkpoints(), None);
        }
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(Store::create(&self.path, self.identity, self.room)?),
        };
        if job.forget {
            store.forget_frames();
        }
        store.add(&job.image, &job.view, || {
            let (Cut { offset, sequence }, record) = job.goes_on.place()?;
            Ok(About { offset, sequence, record, ..job.about })
        })?;
        let size = store.size();
        if let (Some(flight), Some(segment)) = (&self.flight, &job.segment) {
            store.sync()?;
            let fits = flight.drop_oldest(segment, size)?;
            if !fits && !std::mem::replace(&mut self.said, true) {
                let room = flight.room;
                tracing::warn!(
                    "a checkpoint has {size} bytes: the window is larger than {room} bytes, or has one segment"
                );
            }
        }
        Ok(size)
    }
}

impl Flight {
    /// Removes the oldest segments, until there is room for what may come before the next look: an eighth of the room in this
    /// segment and in the next, and a checkpoint like the one of `checkpoint` bytes that this one begins with. Whether there is.
    fn drop_oldest(&self, current: &Segment, checkpoint: u64) -> io::Result<bool> {
        let Flight { recording, room, store } = self;
        let reserve = room / SEGMENTS * 2 + checkpoint;
        let segments = recording.segments()?;
        let mut total: u64 = segments.iter().map(Segment::size).sum();
        for segment in segments.iter().filter(|segment| segment.number < current.number) {
            if total + reserve <= *room {
                break;
            }
            total -= segment.size().min(total);
            segment.remove(store.as_ref())?;
        }
        Ok(total + reserve <= *room)
    }
}
