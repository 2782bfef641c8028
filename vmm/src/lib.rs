//! Runs a Linux program as a process guest, records it and replays it.
//!
//! Reading order: [`ram`] (guest-physical memory), [`engine`] (what executes instructions: KVM or the software
//! CPU, one interface), [`paging`] (the guest's page tables), [`process`] (address space, ELF, vDSO), [`linux`]
//! (the personality that serves system calls), [`gate`] (the one place where non-determinism enters),
//! [`journal`] (what the gate wrote), [`crumbs`] (a note of every exit) with [`stack`] (who called whom), [`record`]
//! and [`replay`] (the two drivers), [`elfcore`] (core files), [`dump`] and [`trail`] (what a crash leaves: its core, its
//! last branches).
//!
//! The loop (run the engine), the match on the exit, and the effect are three functions; the match is a free
//! function on the least state, so it is tested without a virtual machine.

pub mod cpu_model;
pub mod crumbs;
pub mod dump;
pub mod elfcore;
pub mod engine;
pub mod gate;
pub mod interrupt;
pub mod journal;
pub mod launch;
pub mod linux;
pub mod paging;
mod patience;
pub mod probe;
pub mod process;
pub mod ram;
pub mod record;
pub mod recording;
pub mod replay;
pub mod sandbox;
pub mod stack;
pub mod trail;
