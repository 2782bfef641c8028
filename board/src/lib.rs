//! A machine for kernel guests, on the software CPU: it boots a Linux kernel or another ELF program in ring 0, records what it is
//! typed, and runs it again bit for bit.
//!
//! Reading order: [`clock`] (time is made of instructions), `devices` (a PC's, as far as Linux asks for them), [`boot`] (a kernel in
//! memory), [`machine`] (the loop that runs it all); then [`journal`] (what came from outside, and when), [`checkpoints`], [`record`]
//! and [`replay`]; [`travel`] (any moment of a recording, forwards and backwards); [`crash`] (the one where the kernel crashed); [`vmcore`] (memory as a core, for debuggers of
//! kernels) and [`linux`] (what a kernel has in it: its log, its stack, its tasks).
//!
//! Example: a kernel is booted, and `poweroff` is typed into its shell. The journal has ten events, one for each byte: after how many
//! instructions it came, and what the registers and the memory were. A replay types the same bytes after the same instructions, and
//! compares.
//!
//! Nothing here knows the Linux personality of `vmm`, which serves programs without a kernel.
#![forbid(unsafe_code)]

pub mod boot;
pub mod checkpoints;
pub mod clock;
pub mod crash;
mod devices;
pub mod journal;
pub mod linux;
pub mod machine;
mod memory;
pub mod record;
pub mod replay;
mod saved;
pub mod travel;
pub mod vmcore;

pub use boot::{BootError, Setup};
pub use devices::disk::Image as DiskImage;
pub use machine::{End, Exception, Machine, Moment, Pause, Position, Seen, happening};
