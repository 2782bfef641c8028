//! The thread that compiles, one region after the other. Some wait for it, so that it need not be woken for each: on a busy machine that
//! takes longer than compiling one.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use crate::compiler::{Compiled, Compiler};
use crate::native::without_signals;
use crate::region::Region;

/// So many regions wait for their code at most.
const MOST: usize = 64;

pub(crate) struct Worker {
    work: Sender<Region>,
    done: Receiver<Option<Compiled>>,
    /// How many regions it was given that it has not given back.
    waiting: usize,
}

/// What has become of the first region that a worker was given and has not given back.
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
        Ok(Worker { work, done, waiting: 0 })
    }

    /// Whether it takes no more for now.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting >= MOST
    }

    /// Gives it a region, which it will give back behind those that it has.
    pub(crate) fn give(&mut self, region: Region) {
        // One that is gone is found to be so when it is looked at.
        let _ = self.work.send(region);
        self.waiting += 1;
    }

    /// What has become of the first one; with `wait`, in the end.
    pub(crate) fn look(&mut self, wait: bool) -> Progress {
        if self.waiting == 0 {
            return Progress::Nothing;
        }
        let result = match wait {
            true => self.done.recv().map_err(|_| TryRecvError::Disconnected),
            false => self.done.try_recv(),
        };
        let compiled = match result {
            Ok(compiled) => compiled,
            Err(TryRecvError::Empty) => return Progress::Nothing,
            // A compiler that has panicked compiles no more; what it was given stays the interpreter's.
            Err(TryRecvError::Disconnected) => None,
        };
        self.waiting -= 1;
        Progress::Done(compiled)
    }
}
