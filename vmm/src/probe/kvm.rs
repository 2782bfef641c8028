//! What KVM offers, tried with a few instructions in a process guest.

use crate::cpu_model::Model;
use crate::engine::kvm::{KvmCpu, Landing};
use crate::engine::{Cpu, Exit, Until, Virt};
use crate::ram::paging::Rights;
use crate::sandbox::{Sandbox, SandboxError};
use lbr::perf::NoCounters;
use lbr::perf::retired::Counted;
use lbr::{Armed, Filter, Provenance};
use std::time::Instant;
use x86::op::Gpr;
use x86::state::{RFLAGS_FIXED, RFLAGS_IF, Regs};

const CODE: Virt = 0x40_0000;
const DATA: Virt = 0x60_0000;
/// Where nothing is mapped.
const NOTHING: Virt = 0x70_0000;
/// Enough for a few pages.
const MEMORY: u64 = 1 << 20;
/// A batch is short, so that many of them see no interruption; the least of them is the cost.
const BATCHES: u32 = 60;
const PER_BATCH: u32 = 15;

/// What KVM offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Kvm {
    /// Where SYSCALL goes.
    pub landing: Landing,
    /// What an exit costs.
    pub cost: ExitCost,
    /// Whether CPUID gives what the model says rather than what the host has.
    pub traps_cpuid: bool,
    /// Whether RDTSC traps.
    pub traps_tsc: bool,
    /// The CPU models that programs can be shown.
    pub models: Vec<Model>,
    /// Whether the dirty log tells a written page.
    pub dirty_log: bool,
    /// The number of the processor's branch records, or why there are none.
    pub branch_records: Result<u32, String>,
    /// What the processor counts of the guest, or why nothing.
    pub counters: Result<Vec<Counted>, String>,
}

/// The least time of a batch, divided by its exits, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExitCost {
    /// A system call of the guest, out and in again.
    pub syscall: f64,
    /// A page fault of the guest, out and in again.
    pub page_fault: f64,
    /// A system call of this process, to compare with.
    pub native_syscall: f64,
}

/// Tries everything.
///
/// # Errors
/// If /dev/kvm cannot be used, or not for a process guest.
pub fn probe_kvm() -> Result<Kvm, SandboxError> {
    let (machine, armed) = KvmCpu::recording(MEMORY, Filter::ANY)?;
    let mut sandbox = Sandbox::new(machine)?;
    sandbox.map(DATA, &[0; 64], Rights { write: true, execute: false })?;
    Ok(Kvm {
        landing: sandbox.cpu().landing(),
        cost: ExitCost::measure(&mut sandbox)?,
        traps_cpuid: traps_cpuid(&mut sandbox)?,
        traps_tsc: !matches!(run(&mut sandbox, RDTSC)?, Exit::Syscall),
        models: models(sandbox.cpu()),
        dirty_log: dirty_log(&mut sandbox)?,
        branch_records: armed
            .map_err(|e| e.to_string())
            .and_then(|armed| branch_records(&mut sandbox, armed)),
        counters: counters(&mut sandbox).map_err(|e| e.to_string()),
    })
}

/// SYSCALL; JMP back to it.
const SYSCALL_LOOP: &[u8] = &[0x0f, 0x05, 0xeb, 0xfc];
/// MOV RAX, [RBX].
const LOAD: &[u8] = &[0x48, 0x8b, 0x03];
/// RDTSC; SYSCALL.
const RDTSC: &[u8] = &[0x0f, 0x31, 0x0f, 0x05];
/// MOV EAX, 0x80000002 (the brand string); CPUID; SYSCALL.
const CPUID: &[u8] = &[0xb8, 0x02, 0x00, 0x00, 0x80, 0x0f, 0xa2, 0x0f, 0x05];
/// JMP over a byte; JMP over a byte; SYSCALL.
const TWO_JUMPS: &[u8] = &[0xeb, 0x01, 0x90, 0xeb, 0x01, 0x90, 0x0f, 0x05];
/// JZ to the next instruction; SYSCALL.
const ONE_CONDITIONAL: &[u8] = &[0x74, 0x00, 0x0f, 0x05];
/// MOV [RBX], RAX; SYSCALL.
const STORE: &[u8] = &[0x48, 0x89, 0x03, 0x0f, 0x05];

impl ExitCost {
    /// Measures the exits of any engine. `sandbox` loses its registers and what is at 0x400000.
    pub fn measure<C: Cpu + ?Sized>(sandbox: &mut Sandbox<C>) -> Result<ExitCost, SandboxError> {
        stand(sandbox, SYSCALL_LOOP, DATA)?;
        let syscall = least_micros(|| sandbox.run(Until::Exit))?;
        stand(sandbox, LOAD, NOTHING)?;
        let page_fault = least_micros(|| sandbox.run(Until::Exit))?;
        // SAFETY: getppid has no argument and cannot fail.
        let native_syscall =
            least_micros(|| Ok::<_, SandboxError>(unsafe { libc::syscall(libc::SYS_getppid) }))?;
        Ok(ExitCost { syscall, page_fault, native_syscall })
    }
}

fn least_micros<T, E>(mut once: impl FnMut() -> Result<T, E>) -> Result<f64, E> {
    let mut least = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..PER_BATCH {
            once()?;
        }
        least = least.min(begun.elapsed().as_secs_f64() * 1e6 / f64::from(PER_BATCH));
    }
    Ok(least)
}

fn models(engine: &KvmCpu) -> Vec<Model> {
    Model::ALL.into_iter().filter(|model| engine.require(*model).is_ok()).collect()
}

fn traps_cpuid(sandbox: &mut Sandbox<KvmCpu>) -> Result<bool, SandboxError> {
    Ok(match run(sandbox, CPUID)? {
        Exit::Syscall => {
            let regs = sandbox.cpu().regs();
            let model = Model::V2.cpuid(0x8000_0002, 0);
            [Gpr::RAX, Gpr::RBX].map(|r| regs.gpr[usize::from(r.0)]) == [model.eax, model.ebx].map(u64::from)
        }
        _ => true,
    })
}

fn dirty_log(sandbox: &mut Sandbox<KvmCpu>) -> Result<bool, SandboxError> {
    if sandbox.cpu_mut().set_dirty_log(true).is_err() {
        return Ok(false);
    }
    let frame = sandbox.frame(DATA)?;
    run(sandbox, STORE)?;
    let dirty = sandbox.cpu_mut().take_dirty_log();
    sandbox.cpu_mut().set_dirty_log(false)?;
    Ok(dirty.is_ok_and(|frames| frames.contains(&frame)))
}

/// Executes two jumps, which must be the newest two records then.
fn branch_records(sandbox: &mut Sandbox<KvmCpu>, armed: Armed) -> Result<u32, String> {
    run(sandbox, TWO_JUMPS).map_err(|error| error.to_string())?;
    let engine: &mut dyn Cpu = sandbox.cpu_mut();
    let trail = armed.capture(engine, Provenance::Hardware).map_err(|error| error.to_string())?;
    let found: Vec<_> = trail.newest(2).records.iter().map(|record| (record.from, record.to)).collect();
    match found == [(CODE, CODE + 3), (CODE + 3, CODE + 6)] {
        true => Ok(armed.depth()),
        false => Err(format!("two jumps at {CODE:#x} were executed, and the newest records are {found:x?}")),
    }
}

/// Executes one conditional branch, which must count as one.
fn counters(sandbox: &mut Sandbox<KvmCpu>) -> Result<Vec<Counted>, NoCounters> {
    let counted = sandbox.cpu().counted()?.to_vec();
    let count = |sandbox: &Sandbox<KvmCpu>| sandbox.cpu().counts().conditional_branches;
    let before = count(sandbox);
    let ran = run(sandbox, ONE_CONDITIONAL).is_ok();
    match count(sandbox).zip(before).and_then(|(after, before)| after.checked_sub(before)) {
        Some(1) if ran => Ok(counted),
        other => Err(NoCounters::Wrong(other)),
    }
}

/// Runs `code` to its first exit, with rbx at the page of data.
fn run<C: Cpu + ?Sized>(sandbox: &mut Sandbox<C>, code: &[u8]) -> Result<Exit, SandboxError> {
    stand(sandbox, code, DATA)?;
    sandbox.run(Until::Exit)
}

fn stand<C: Cpu + ?Sized>(sandbox: &mut Sandbox<C>, code: &[u8], rbx: u64) -> Result<(), SandboxError> {
    sandbox.map(CODE, code, Rights { write: false, execute: true })?;
    let mut regs = Regs { rip: CODE, rflags: RFLAGS_FIXED | RFLAGS_IF, ..Regs::default() };
    regs.gpr[usize::from(Gpr::RBX.0)] = rbx;
    Ok(sandbox.cpu_mut().set_regs(&regs)?)
}
