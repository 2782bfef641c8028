//! What the parent and the worker process share.

use crate::case::{Case, Image, Writes};
use core::sync::atomic::AtomicU32;
use x86::state::State;

/// The most cases in one batch.
pub const BATCH: usize = 256;

/// `signal` of an outcome that the worker never wrote.
pub(super) const LOST: i32 = -1;

/// One batch of work.
#[repr(C)]
pub(super) struct Shared {
    /// The case that is running, or `count`.
    pub(super) progress: AtomicU32,
    /// How many cases there are.
    pub(super) count: usize,
    /// The data pages before each case.
    pub(super) image: Image,
    /// The cases.
    pub(super) cases: [Case; BATCH],
    /// What became of them.
    pub(super) outcomes: [Raw; BATCH],
}

/// An outcome as the worker writes it: numbers only, so that whatever a stray store of a case does to it, it is
/// a value of its type.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    /// The signal, 0 if the case ran to its end, or [`LOST`].
    pub(super) signal: i32,
    /// The exception vector of the signal.
    pub(super) vector: u64,
    /// Its error code.
    pub(super) error: u64,
    /// CR2.
    pub(super) address: u64,
    /// The state after.
    pub(super) state: State,
    /// What changed in memory.
    pub(super) writes: Writes,
}
