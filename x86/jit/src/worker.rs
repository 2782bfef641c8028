//! The thread that compiles, one region at a time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use crate::compiler::{Compiled, Compiler};
use crate::native::without_signals;
use crate::region::Region;

pub(crate) struct Worker {
    work: Sender<Region>,
    done: Receiver<Option<Compiled>>,
    is_busy: bool,
}

/// What has become of the region that a worker was given.
pub(crate) enum Progress {
    /// There is none, or it is still being compiled.
    Nothing,
    /// It is compiled, or cannot be.
    Done(Option<Compiled>),
}

impl Worker {
    /// Starts the thread; it ends when the worker is dropped.
    ///
    /// # Errors
    /// When the host gives no thread.
    pub(crate) fn start(mut compiler: Compiler) -> io::Result<Worker> {
        let (work, regions) = channel::<Region>();
        let (results, done) = channel();
        let thread = std::thread::Builder::new().name("compiler".to_owned());
        without_signals(|| {
            thread.spawn(move || {
                for region in regions {
                    if results.send(compiler.compile(&region)).is_err() {
                        break;
                    }
                }
            })
        })?;
        Ok(Worker { work, done, is_busy: false })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Gives it a region, when it is not busy.
    pub(crate) fn give(&mut self, region: Region) {
        self.is_busy = self.work.send(region).is_ok();
    }

    /// What has become of it; with `wait`, in the end.
    pub(crate) fn look(&mut self, wait: bool) -> Progress {
        if !self.is_busy {
            return Progress::Nothing;
        }
        let result = match wait {
            true => self.done.recv().map_err(|_| TryRecvError::Disconnected),
            false => self.done.try_recv(),
        };
        match result {
            Ok(compiled) => {
                self.is_busy = false;
                Progress::Done(compiled)
            }
            Err(TryRecvError::Empty) => Progress::Nothing,
            // A compiler that has panicked compiles no more; what it was given stays the interpreter's.
            Err(TryRecvError::Disconnected) => {
                self.is_busy = false;
                Progress::Done(None)
            }
        }
    }
}
