//! The native half on hosts that have none: it says so.

use crate::case::{Case, Image, Outcome};
use core::convert::Infallible;

/// The most cases in one batch.
pub const BATCH: usize = 256;

/// Why there is no native half.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only x86-64 Linux runs x86-64 code natively.
    #[error("the oracle is the processor, and this host is not x86-64 Linux: nothing to compare with")]
    NotHere,
}

/// A worker process; there is none.
#[derive(Debug)]
pub struct Worker(Infallible);

impl Worker {
    /// Starts a worker process.
    ///
    /// # Errors
    /// Always.
    pub fn start() -> Result<Worker, Error> {
        Err(Error::NotHere)
    }

    /// Runs cases natively.
    ///
    /// # Errors
    /// None: there is no worker to call this on.
    pub fn run(&mut self, _: &Image, _: &[Case], _: impl FnOnce()) -> Result<Vec<Outcome>, Error> {
        match self.0 {}
    }
}
