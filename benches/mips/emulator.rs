//! What is measured of an emulator: it loads pieces of memory, runs, and asks whoever serves its system calls.

use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Stop, Until};
use x86::op::Gpr;
use x86::state::Regs;
use x86_jit::{Jit, Tuning};

/// A stretch of memory at the start; its address and its size are whole pages.
pub(crate) struct Piece {
    pub(crate) at: u64,
    /// What it holds, zeros to its end.
    pub(crate) bytes: Vec<u8>,
}

/// A program as it is before its first instruction. It ends with the system call `exit`.
pub(crate) struct Image {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) entry: u64,
    pub(crate) stack: u64,
}

/// The state of a guest that waits for the result of a system call.
pub(crate) trait Guest {
    /// A general register.
    fn reg(&mut self, r: Gpr) -> u64;
    /// Writes a general register.
    fn set_reg(&mut self, r: Gpr, v: u64);
    /// Writes the base of FS.
    fn set_fs_base(&mut self, base: u64);
    /// Reads memory that is there.
    fn read(&mut self, at: u64, to: &mut [u8]);
    /// Writes memory that is there.
    fn write(&mut self, at: u64, from: &[u8]);
}

/// Serves a system call; `false` when it was the last.
pub(crate) type Serve<'a> = dyn FnMut(&mut dyn Guest) -> bool + 'a;

/// Runs `image` on the software CPU to its end, compiling as `tuning` says; the number of instructions.
pub(crate) fn run_on_ours(
    image: &Image,
    tuning: Option<Tuning>,
    serve: &mut Serve<'_>,
) -> Result<u64, String> {
    let mut memory = Flat::new();
    for piece in &image.pieces {
        memory.map(piece.at, &piece.bytes, Protection::ALL);
    }
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: image.entry, rflags: 0x202, ..Regs::default() };
    regs.gpr[usize::from(Gpr::RSP.0)] = image.stack;
    cpu.set_regs(&regs);
    let mut jit = Jit::new(cpu, tuning);
    loop {
        match jit.run(Until::EVENT, &mut ()) {
            Stop::Syscall if serve(jit.cpu_mut()) => {}
            Stop::Syscall => return Ok(jit.counters().instructions),
            stop => return Err(format!("the software CPU stopped: {stop:x?}")),
        }
    }
}

impl Guest for Cpu<Flat> {
    fn reg(&mut self, r: Gpr) -> u64 {
        self.regs().gpr[usize::from(r.0)]
    }

    fn set_reg(&mut self, r: Gpr, v: u64) {
        let mut regs = self.regs();
        regs.gpr[usize::from(r.0)] = v;
        self.set_regs(&regs);
    }

    fn set_fs_base(&mut self, base: u64) {
        let mut regs = self.regs();
        regs.fs_base = base;
        self.set_regs(&regs);
    }

    fn read(&mut self, at: u64, to: &mut [u8]) {
        for (at, to) in (at..).zip(to) {
            *to = self.bus().byte(at).expect("the guest reads what is mapped");
        }
    }

    fn write(&mut self, at: u64, from: &[u8]) {
        for (at, byte) in (at..).zip(from) {
            assert!(self.bus_mut().set_byte(at, *byte), "the guest writes what is mapped");
        }
    }
}

impl Piece {
    /// The same, with zeros to the end of its last page.
    pub(crate) fn whole_pages(mut self) -> Piece {
        self.bytes.resize(self.bytes.len().next_multiple_of(4096), 0);
        self
    }
}
