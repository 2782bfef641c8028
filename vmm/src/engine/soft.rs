//! The software CPU as an engine: the same guests without /dev/kvm, with exact counts.
//!
//! It walks the same page tables in the same memory as KVM would, so the personality cannot tell them apart. The interpreter
//! wants to own the bytes, so they are moved into it while it runs ([`Memory::swap_ram`]). [`memory`] is how it sees them,
//! [`kept`] compiled code on disk, [`watch`] how accesses to data are seen, [`selectors`] what it does about loads of segment
//! registers.

pub mod kept;
mod memory;
mod selectors;
mod watch;

use super::runs::{Both, Runs};
use super::{
    Accessed, Counters, Cpu, EngineError, EngineKind, Exception, Exit, Interrupter, Lookout, Machine, Phys,
    Run, Until, Virt,
    code::{fetch, software_interrupt},
    flags::user_rflags,
};
use crate::ram::{Memory, PAGE, Ram};
use lbr::model::{Event, Model, Processor, Transfer};
use memory::PagedRam;
use std::path::PathBuf;
use std::time::Instant;
use watch::Watching;
use x86::bus::PageFault;
use x86::interpreter::{self, Stop};
use x86::machine::Trap;
use x86::state::{Fpu, MxcsrMask, Regs};
use x86_jit::{Jit, Sought, Tuning};

/// Instructions between two looks at the interrupter: some 50 µs where they are compiled.
const SLICE: u64 = 1 << 16;
/// Bytes that string instructions go through between two looks: about as long. One with a REP prefix is not divided, and may take longer.
const SLICE_OF_STRINGS: u64 = 1 << 18;
/// Where branch records say that a system call or an exception went, and where it came back from: the program's
/// kernel, which on this engine has no address.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// Its vector.
const DEBUG_EXCEPTION: u8 = 1;
/// The length of SYSCALL.
const SYSCALL_LEN: u64 = 2;

/// One software CPU.
pub struct SoftCpu {
    interpreter: Jit<PagedRam>,
    /// The registers as of the last exit, or as set since.
    regs: Regs,
    interrupter: Interrupter,
    /// When to come back, though nothing interrupts.
    come_back_by: Option<Instant>,
    branches: Model,
    /// The last exit went to the kernel by a far transfer, and the way back is one too.
    in_kernel: bool,
    /// The access that the last run came back for.
    seen: Option<Accessed>,
    /// What runs, if somebody wants to know.
    runs: Option<Runs>,
    /// Where compiled code is kept for the next run.
    kept: Option<PathBuf>,
}

impl Drop for SoftCpu {
    fn drop(&mut self) {
        if let (Some(file), Some(code)) = (&self.kept, self.interpreter.kept()) {
            kept::save(file, code);
        }
    }
}

impl SoftCpu {
    /// A processor that has run nothing.
    ///
    /// # Errors
    /// When the host does not give the little memory that it needs itself.
    pub fn new() -> Result<SoftCpu, EngineError> {
        SoftCpu::tuned(Some(Tuning::default()))
    }

    /// The same that compiles as `tuning` says; with `None` never.
    ///
    /// # Errors
    /// As [`SoftCpu::new`].
    pub fn tuned(tuning: Option<Tuning>) -> Result<SoftCpu, EngineError> {
        let regs = Regs { rflags: user_rflags(0), ..Regs::default() };
        // The guest's bytes are moved in while it runs.
        let interpreter = Jit::new(
            x86::cpu::Cpu::new(PagedRam { ram: Ram::new(PAGE)?, root: 0, watching: Watching::default() }),
            tuning,
        );
        let branches = Model::new(Processor::Skylake);
        Ok(SoftCpu {
            interpreter,
            regs,
            interrupter: Interrupter::new(),
            come_back_by: None,
            branches,
            in_kernel: false,
            seen: None,
            runs: None,
            kept: None,
        })
    }

    /// A processor with `bytes` of memory.
    ///
    /// # Errors
    /// When the host does not give them.
    pub fn machine(bytes: u64) -> Result<Machine<SoftCpu>, EngineError> {
        let memory = Memory::new(bytes)?;
        let cpu = Box::new(SoftCpu::new()?);
        Ok(Machine { memory, cpu, kvm: None })
    }

    /// Forgets what is no longer true of the memory.
    fn forget(&mut self, memory: &mut Memory) {
        if !memory.is_stale() {
            return memory.reuse_tables();
        }
        let stale = memory.take_stale();
        let cpu = self.interpreter.cpu_mut();
        if stale.all {
            cpu.flush_tlb();
        }
        if stale.all || stale.all_rewritten {
            cpu.written(0, memory.ram().size());
        } else if stale.code_unseen {
            cpu.compare_code(memory.ram().bytes());
        }
        for frame in stale.rewritten {
            cpu.written(frame, PAGE);
        }
        for page in stale.pages {
            cpu.invalidate_page(page.page);
            cpu.written(page.frame, PAGE);
        }
        memory.reuse_tables();
    }

    /// Runs until the bound or a stop, looking at the interrupter now and then.
    fn run_sliced(&mut self, bound: u64, at: &[Virt]) -> Result<Stop, Exit> {
        let mut has_run = false;
        loop {
            if self.interrupter.is_raised() && self.interrupter.take() {
                return Err(Exit::Interrupted);
            }
            if self.interrupter.is_kicked() && self.interrupter.take_kick() {
                return Err(Exit::Kicked);
            }
            // Not before the first slice: most runs have no other.
            if has_run && self.come_back_by.is_some_and(|time| Instant::now() >= time) {
                self.come_back_by = None;
                return Err(Exit::Kicked);
            }
            has_run = true;
            let slice = self.interpreter.counters().instructions.saturating_add(SLICE);
            let until = interpreter::Until { instructions: bound.min(slice), at };
            self.interpreter.cpu_mut().allow_strings(SLICE_OF_STRINGS);
            let stop = match (&mut self.runs, self.branches.is_enabled()) {
                (Some(runs), true) => self.interpreter.run(until, &mut Both(runs, &mut self.branches)),
                (Some(runs), false) => self.interpreter.run(until, runs),
                (None, true) => self.interpreter.run(until, &mut self.branches),
                (None, false) => self.interpreter.run(until, &mut ()),
            };
            let stop = match self.load_selector(stop) {
                Some(stop) => stop,
                None if at.binary_search(&self.interpreter.cpu().rip()).is_ok() => return Ok(Stop::At),
                None => continue,
            };
            match stop {
                Stop::Budget if until.instructions < bound => {}
                Stop::Strings => {}
                Stop::Trap { trap: Trap::Page, .. } if watch::take_stopped(&mut self.interpreter) => {
                    match self.run_guarded() {
                        Stop::Budget if self.seen.is_some() => return Err(Exit::Seen),
                        Stop::Budget if at.binary_search(&self.interpreter.cpu().rip()).is_ok() => {
                            return Ok(Stop::At);
                        }
                        Stop::Budget => {}
                        stop => return Ok(stop),
                    }
                }
                stop => return Ok(stop),
            }
        }
    }

    /// Carries out a load of a segment register ([`selectors`]), if the processor stopped at one; else gives why it did.
    fn load_selector(&mut self, stop: Stop) -> Option<Stop> {
        let Stop::NoSemantics { at, bytes } = &stop else { return Some(stop) };
        let at = *at;
        match selectors::load(self.interpreter.cpu_mut(), bytes.as_slice()) {
            None => Some(stop),
            Some(Err(trap)) => Some(Stop::Trap { trap, at }),
            Some(Ok(())) => {
                let mut counters = self.interpreter.counters();
                counters.instructions += 1;
                self.interpreter.set_counters(counters);
                None
            }
        }
    }

    /// Runs the one instruction that was kept from a page that is watched.
    fn run_guarded(&mut self) -> Stop {
        let (stop, seen) = match (&mut self.runs, self.branches.is_enabled()) {
            (Some(runs), true) => {
                watch::run_guarded(&mut self.interpreter, &mut Both(runs, &mut self.branches))
            }
            (Some(runs), false) => watch::run_guarded(&mut self.interpreter, runs),
            (None, true) => watch::run_guarded(&mut self.interpreter, &mut self.branches),
            (None, false) => watch::run_guarded(&mut self.interpreter, &mut ()),
        };
        // One that did not retire is run again.
        self.seen = seen.filter(|_| matches!(stop, Stop::Budget));
        stop
    }

    /// Takes the registers, as an exit has them, and says what happened.
    fn exit(&mut self, stop: Stop) -> Exit {
        let regs = self.interpreter.cpu().regs();
        self.regs = Regs { rflags: user_rflags(regs.rflags), ..regs };
        match stop {
            Stop::Budget | Stop::At => Exit::Budget,
            Stop::Syscall => {
                self.regs.gpr[1] = self.regs.rip;
                self.regs.gpr[11] = self.regs.rflags;
                let from = self.regs.rip.wrapping_sub(SYSCALL_LEN);
                self.branches.branch(&Transfer::to_kernel(from, KERNEL));
                self.in_kernel = true;
                Exit::Syscall
            }
            Stop::MachineRead { read, op } => {
                self.regs.rip = op.start();
                self.uncount();
                Exit::MachineRead(read)
            }
            Stop::Trap { trap, at } => {
                let exception = self.exception(trap);
                // A debug exception leaves a virtual machine instead of being delivered in it, and then neither
                // makes a record nor switches recording off (Intel SDM vol. 3, "Architectural State Before a VM
                // Exit").
                self.in_kernel = exception.vector != DEBUG_EXCEPTION;
                if self.in_kernel {
                    self.branches.event(Event::Exception(exception.vector), &Transfer::to_kernel(at, KERNEL));
                }
                Exit::Exception(exception)
            }
            Stop::NoSemantics { bytes, .. } => no_semantics(bytes.as_slice()),
            Stop::Differing => Exit::Differing,
            Stop::Strings => unreachable!("a slice goes on"),
            Stop::System => unreachable!("a process guest's CPU has no system"),
        }
    }

    /// The bytes at rip.
    fn code(&self) -> Vec<u8> {
        let PagedRam { ram, root, .. } = self.interpreter.cpu().bus();
        fetch(ram, *root, self.regs.rip)
    }

    /// Takes the last instruction out of the count: it has not happened, whoever serves the exit does it.
    fn uncount(&mut self) {
        let mut counters = self.interpreter.counters();
        counters.instructions -= 1;
        self.interpreter.set_counters(counters);
    }

    /// The exception of a trap; the semantics leaves INT n to the engine, as a #GP.
    fn exception(&mut self, trap: Trap) -> Exception {
        if trap == Trap::General
            && let Some((exception, len)) = software_interrupt(&self.code())
        {
            self.regs.rip = self.regs.rip.wrapping_add(len);
            return exception;
        }
        let vector = match trap {
            Trap::Divide => 0,
            Trap::Debug => DEBUG_EXCEPTION,
            Trap::Breakpoint => 3,
            Trap::Undefined => 6,
            Trap::Stack => 12,
            // Symbolic machines alone call a path infeasible.
            Trap::General | Trap::Infeasible => 13,
            Trap::Page => 14,
            Trap::X87 => 16,
            Trap::Simd => 19,
        };
        match (trap, self.interpreter.cpu().last_page_fault()) {
            (Trap::Page, Some(PageFault { address, error_code })) => {
                Exception { vector, error_code, address }
            }
            _ => Exception { vector, error_code: 0, address: 0 },
        }
    }
}

fn no_semantics(instruction: &[u8]) -> Exit {
    let mut bytes = [0; 15];
    let len = instruction.len().min(bytes.len());
    bytes[..len].copy_from_slice(&instruction[..len]);
    Exit::NoSemantics { bytes, len: u8::try_from(len).expect("at most 15") }
}

impl Cpu for SoftCpu {
    fn kind(&self) -> EngineKind {
        EngineKind::Soft
    }

    fn set_page_table(&mut self, root: Phys) {
        let cpu = self.interpreter.cpu_mut();
        if cpu.bus().root != root {
            cpu.bus_mut().root = root;
            cpu.flush_tlb();
        }
    }

    fn regs(&self) -> &Regs {
        &self.regs
    }

    fn set_regs(&mut self, regs: &Regs) -> Result<(), EngineError> {
        self.regs = Regs { rflags: user_rflags(regs.rflags), ..*regs };
        Ok(())
    }

    fn fpu(&mut self) -> Result<Fpu, EngineError> {
        // As on KVM, the last x87 instruction is not part of the state.
        Ok(Fpu { opcode: 0, instruction: 0, data: 0, ..self.interpreter.cpu().fpu() })
    }

    fn require(&self, _model: crate::cpu_model::Model) -> Result<(), EngineError> {
        Ok(())
    }

    fn set_fpu(&mut self, fpu: &Fpu) -> Result<(), EngineError> {
        self.interpreter.cpu_mut().set_fpu(fpu);
        Ok(())
    }

    fn run(&mut self, memory: &mut Memory, until: Until) -> Result<Exit, EngineError> {
        let (bound, asked) = match until {
            Until::Exit => (u64::MAX, None),
            Until::Retired(bound) => (bound, None),
            Until::At(at) => (u64::MAX, Some(at)),
            Until::AtOrRetired(at, bound) | Until::StateOrRetired(at, _, bound) => (bound, Some(at)),
        };
        let lookout = self.interpreter.cpu().bus().watching.lookout();
        let mut at = Vec::new();
        if !lookout.at.is_empty() || asked.is_some() {
            at.extend(lookout.at.iter().copied().chain(asked));
            at.sort_unstable();
            at.dedup();
        }
        self.seen = None;
        self.interpreter.seek(match until {
            Until::StateOrRetired(rip, gpr, _) => Some(Sought { rip, gpr }),
            _ => None,
        });
        self.forget(memory);
        memory.swap_ram(&mut self.interpreter.cpu_mut().bus_mut().ram);
        self.interpreter.cpu_mut().set_regs(&self.regs);
        if std::mem::take(&mut self.in_kernel) {
            self.branches.branch(&Transfer::to_user(KERNEL, self.regs.rip));
        }
        if let Some(runs) = &mut self.runs {
            runs.begin(self.regs.rip);
        }
        let exit = match self.run_sliced(bound, &at) {
            Ok(Stop::At) if asked != Some(self.interpreter.cpu().rip()) => {
                self.exit(Stop::At);
                Exit::Seen
            }
            Ok(stop) => self.exit(stop),
            Err(exit) => {
                let regs = self.interpreter.cpu().regs();
                self.regs = Regs { rflags: user_rflags(regs.rflags), ..regs };
                exit
            }
        };
        memory.swap_ram(&mut self.interpreter.cpu_mut().bus_mut().ram);
        if let Some(runs) = &mut self.runs {
            runs.come_back(self.regs.rip);
        }
        Ok(exit)
    }

    fn counters(&self) -> Option<Counters> {
        let counters = self.interpreter.counters();
        Some(Counters {
            instructions: counters.instructions,
            taken_branches: counters.taken,
            conditional_branches: counters.conditionals,
        })
    }

    fn set_counters(&mut self, counters: Counters) {
        self.interpreter.set_counters(interpreter::Counters {
            instructions: counters.instructions,
            taken: counters.taken_branches,
            conditionals: counters.conditional_branches,
        });
    }

    fn read_msrs(&mut self, indices: &[u32]) -> Result<Vec<u64>, EngineError> {
        Ok(indices.iter().map_while(|index| self.branches.read(*index)).collect())
    }

    fn write_msrs(&mut self, entries: &[(u32, u64)]) -> Result<usize, EngineError> {
        Ok(entries.iter().take_while(|(index, value)| self.branches.write(*index, *value)).count())
    }

    fn take_written(&mut self) -> Option<Vec<Phys>> {
        Some(self.interpreter.cpu_mut().take_written())
    }

    fn set_mxcsr_mask(&mut self, mask: MxcsrMask) {
        self.interpreter.cpu_mut().set_mxcsr_mask(mask);
    }

    fn expect_program(&mut self, digest: u64) {
        self.kept = kept::file(digest);
        if let Some(file) = &self.kept {
            self.interpreter.keep(kept::load(file));
        }
    }

    fn leave_differing(&mut self, leave: bool) {
        self.interpreter.cpu_mut().leave_differing(leave);
    }

    fn look_out(&mut self, lookout: &Lookout) -> Result<(), EngineError> {
        let cpu = self.interpreter.cpu_mut();
        cpu.bus_mut().watching.set(lookout);
        cpu.flush_tlb();
        Ok(())
    }

    fn seen(&self) -> Option<Accessed> {
        self.seen
    }

    fn note_runs(&mut self, note: bool) -> Result<(), EngineError> {
        self.runs = note.then(Runs::default);
        Ok(())
    }

    fn take_runs(&mut self) -> Vec<(Run, u64)> {
        self.runs.as_mut().map(Runs::take).unwrap_or_default()
    }

    fn come_back_by(&mut self, time: Option<Instant>) {
        self.come_back_by = time;
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn set_interrupter(&mut self, interrupter: Interrupter) {
        self.interrupter = interrupter;
    }
}
