//! Runs a Linux program as a process guest, records it and replays it.
//!
//! Reading order: [`host`] (the processor that this runs on), [`ram`] (guest-physical memory and page tables), [`engine`] (what
//! executes instructions: KVM or the software CPU, one interface), [`memory`] (address spaces), [`gate`] (the one place where
//! non-determinism enters) with [`position`] and [`signal`] (plain data), [`elf`] and [`program`] (what is started), [`linux`] (the
//! personality: tasks, processes, system calls) with [`syscalls`] (the table of Linux's system calls), [`process`] (the driver: one
//! loop over processor and personality), [`journal`] (what the gate wrote) with [`contents`] (the files that recordings share),
//! [`recording`] (its folder), [`crumbs`] (a note of every exit) with [`stack`] (who called whom), [`record`] and [`replay`],
//! [`travel`] (a recording as a debugger wants it), [`slice`] (where a value comes from), [`elfcore`] (core files), [`dump`] and
//! [`trail`] (what a crash leaves: its core, its last branches). [`confine`] is what gretel itself may no longer do meanwhile.
//!
//! The loop (run the engine), the match on the exit, and the effect are three functions; the match is a free
//! function on the least state, so it is tested without a virtual machine.

pub mod checkpoints;
pub mod confine;
pub mod contents;
pub mod cpu_model;
pub mod crumbs;
pub mod dump;
pub mod elf;
pub mod elfcore;
pub mod engine;
pub mod failure;
mod found;
pub mod gate;
pub mod host;
pub mod interrupt;
pub mod journal;
pub mod launch;
pub mod linux;
pub mod listing;
pub mod memory;
pub mod pack;
mod plain;
pub mod position;
pub mod probe;
pub mod process;
pub mod program;
pub mod ram;
pub mod record;
pub mod recording;
pub mod replay;
pub mod sandbox;
pub mod signal;
pub mod slice;
pub mod stack;
pub mod syscalls;
pub mod tap;
mod tape;
pub mod timeline;
pub mod trail;
pub mod travel;

pub use ram::paging;
