//! The kernel's perf events: counters, branch stacks, and a flight recorder of samples.
//!
//! Reading order: [`event`] (what is counted or sampled, and why it cannot be), [`group`] (counters that are read
//! together), [`page`] (a counter that is read without a system call), [`ring`] (what the bytes of a ring buffer say),
//! [`recorder`] (the two ways of using one), [`retired`] (which event counts what on which processor),
//! [`guest`] (what a guest has retired). `sys` has the
//! system calls, the shared memory and all the unsafe code.
//!
//! Sources: man page perf_event_open(2); Linux, include/uapi/linux/perf_event.h.

pub mod event;
pub mod group;
pub mod guest;
pub mod page;
pub mod recorder;
pub mod retired;
pub mod ring;
#[allow(unsafe_code, reason = "system calls and memory that the kernel writes")]
mod sys;

pub use event::{Event, OpenError, Sampling, Scope, What};
pub use group::{Group, ReadError, Reading};
pub use guest::{GuestCounters, NoCounters};
pub use page::SelfCounter;
pub use recorder::{FlightRecorder, Stream};
