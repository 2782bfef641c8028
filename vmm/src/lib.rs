//! Runs a Linux program as a process guest, records it and replays it.
//!
//! Example: the program calls `read(0, buffer, 100)`. SYSCALL leaves the [`engine`] as `Exit::Syscall`; [`process`] matches
//! the exit and hands the call to [`linux`], which asks the [`gate`] for its result. While recording, the gate reads from
//! the host, and the [`journal`] gets the event: 3, and three bytes for `buffer`. While replaying, the gate takes both from
//! the journal, and the host is not asked. Either way rax is 3, the bytes are in guest memory, and the engine runs on.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | this host: its processor, what it offers (found by trying), a TAP interface of it | [`host`], [`probe`], [`tap`] |
//! | signals to gretel | [`interrupt`] |
//! | guest memory, physical and by address spaces | [`ram`], [`memory`] |
//! | what executes instructions: KVM or the software CPU, one interface; bare code on it; the processor that the guest sees | [`engine`]; [`sandbox`]; [`cpu_model`] |
//! | where non-determinism enters, with plain data | [`gate`]; [`position`], [`signal`], [`signal_frame`] |
//! | what is started, and with which surroundings | [`elf`], [`program`], [`launch`] |
//! | the personality: tasks, processes, system calls; and the table of Linux's calls | [`linux`], [`syscalls`] |
//! | the driver: one loop over processor and personality; why a program cannot go on | [`process`]; [`failure`] |
//! | what the gate wrote, and the files that recordings share | [`journal`], [`contents`] |
//! | a recording's folder; what there is to say of those in a folder; one as a file | [`recording`]; [`listing`]; [`pack`] |
//! | states of the program on disk, and how types become bytes | [`checkpoints`]; [`mod@plain`] |
//! | a note of every exit, and who called whom | [`crumbs`], [`stack`] |
//! | the two ways of running; the gate of a replay; where replays found preemptions | [`record`], [`replay`]; [`tape`]; [`found`] |
//! | any position of a recording; a recording as a debugger wants it; where a value comes from | [`timeline`]; [`travel`]; [`mod@slice`] |
//! | core files; what a crash leaves: its core, its last branches; those at other times | [`elfcore`]; [`dump`], [`trail`]; [`samples`] |
//! | what gretel itself may no longer do meanwhile | [`confine`] |
//!
//! The loop (run the engine), the match on the exit, and the effect are three functions; the match is a free function on
//! the least state, so it is tested without a virtual machine.

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
pub mod samples;
pub mod sandbox;
pub mod signal;
pub mod signal_frame;
pub mod slice;
pub mod stack;
pub mod syscalls;
pub mod tap;
mod tape;
pub mod timeline;
pub mod trail;
pub mod travel;

pub use ram::paging;
