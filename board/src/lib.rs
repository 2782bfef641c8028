//! A machine for kernel guests, on the software CPU: it boots a Linux kernel or another ELF program in ring 0, records what
//! it is typed, and runs it again bit for bit.
//!
//! Example: a kernel is booted, and `poweroff` is typed into its shell. The journal has a record for each key: after how
//! many instructions it came, and what the registers and the memory were. A replay types the same bytes after the same
//! instructions, and compares.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | time, made of instructions | [`clock`] |
//! | a PC's devices, as far as Linux asks for them | [`devices`] |
//! | a kernel in memory | [`boot`] |
//! | the loop that runs it all | [`machine`] |
//! | what came from outside, and when; whole states | [`journal`], [`checkpoints`] |
//! | the two ways of running | [`record`], [`replay`] |
//! | any moment of a recording, forwards and backwards; the one where the kernel crashed | [`travel`], [`crash`] |
//! | memory by pages, and state as words | [`memory`], [`mod@saved`] |
//! | memory as a core, for debuggers of kernels | [`vmcore`] |
//! | what a kernel has in it: its log, its stack, its tasks | [`linux`] |
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
pub use devices::Extras;
pub use devices::console::Size;
pub use devices::disk::Image as DiskImage;
pub use devices::vsock;
pub use machine::{End, Exception, Machine, Moment, Pause, Position, Seen, happening};
