//! The process guest on KVM: ring 3 alone, every exit through an OUT of the engine's pages.
//!
//! Reading order: [`layout`] (the engine's own pages), [`setup`] (the virtual machine), [`entry`] (how the
//! registers get in, and what they are when the guest came out), [`exit`] (what an exit means), [`cpuid`] (the CPU model),
//! [`slots`] (its memory), [`dirty`] (which frames were written), [`records`] (the processor's branch records).
//!
//! Hosts differ in where SYSCALL lands: hardware virtualization enters ring 0 as the manual says, kvm_pvm stays in
//! ring 3. The engine looks once, when it is made, and chooses its way back by that. It assumes nothing else about
//! the host.

mod cpuid;
mod dirty;
mod entry;
mod exit;
mod layout;
mod records;
mod setup;
mod slots;

pub use records::Refused;
pub use setup::Waiting;

use super::{
    Counters, Cpu, EngineError, EngineKind, Exit, Interrupter, Machine, Phys, Until, flags::user_rflags,
};
use crate::cpu_model::Model;
use crate::ram::{MOST_QUARANTINED, Memory, PAGE};
use kvm_bindings::{Msrs, kvm_msr_entry, kvm_sregs, kvm_xsave};
use kvm_ioctls::{VcpuFd, VmFd};
use lbr::crumb::Counts;
use lbr::perf::retired::Counted;
use lbr::perf::{GuestCounters, NoCounters};
use lbr::{Armed, Filter};
use slots::Slots;
use std::time::Duration;
use x86::state::{Fpu, Regs};
use x86::xsave::component;

/// Where SYSCALL goes on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Ring 0, as the manual says: VMX and SVM.
    Ring0,
    /// Ring 3, with the same code segment: kvm_pvm.
    Ring3,
}

/// One vCPU of KVM. Its virtual machine has one memory, against which alone it runs.
pub struct KvmCpu {
    vcpu: VcpuFd,
    vm: VmFd,
    slots: Slots,
    regs: Regs,
    /// The system registers of ring 3, with the bases and the page table that the guest shall have.
    user: kvm_sregs,
    /// Whether the vCPU has `user`'s bases and page table.
    user_loaded: bool,
    /// The privilege level at which the vCPU stands.
    level: u8,
    landing: Landing,
    exit_cost: Duration,
    interrupter: Interrupter,
    /// That byte of the page that the vCPU shares with KVM.
    immediate_exit: *mut u8,
    /// What counts the guest's instructions and branches.
    counters: Result<GuestCounters, NoCounters>,
    /// The state components that are enabled in XCR0.
    components: u64,
}

impl KvmCpu {
    /// A vCPU with `bytes` of memory.
    ///
    /// # Errors
    /// When KVM cannot be used, or refuses.
    pub fn machine(bytes: u64) -> Result<Machine<KvmCpu>, EngineError> {
        let mut memory = Memory::new(bytes.max(layout::END))?;
        let cpu = Box::new(setup::vcpu(&mut memory)?);
        Ok(Machine { memory, cpu, kvm: None })
    }

    /// The same, with the processor recording the branches that `filter` lets through; or not recording them, and why. They
    /// are read by [`Armed::capture`] through [`Cpu::read_msrs`].
    ///
    /// # Errors
    /// As [`KvmCpu::machine`].
    pub fn recording(
        bytes: u64,
        filter: Filter,
    ) -> Result<(Machine<KvmCpu>, Result<Armed, Refused>), EngineError> {
        let mut memory = Memory::new(bytes.max(layout::END))?;
        let (cpu, armed) = setup::recording(&mut memory, filter)?;
        Ok((Machine { memory, cpu: Box::new(cpu), kvm: None }, armed))
    }

    /// What the processor counts of the guest, or why nothing.
    ///
    /// # Errors
    /// When there are no counters.
    pub fn counted(&self) -> Result<&[Counted], NoCounters> {
        self.counters.as_ref().map(GuestCounters::counted).map_err(Clone::clone)
    }

    /// Where SYSCALL goes on this host.
    #[must_use]
    pub fn landing(&self) -> Landing {
        self.landing
    }
}

/// The name of a KVM call that failed, with its error.
fn failed(call: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> EngineError {
    move |error| EngineError::Kvm { call, error: error.into() }
}

impl KvmCpu {
    /// Has KVM forget what is no longer true of the memory. The entries are changed already; KVM forgets what it derived
    /// from a frame when the host's own translation of it goes away (its MMU notifier), on shadow and on nested paging
    /// alike.
    fn forget(&mut self, memory: &mut Memory) -> Result<(), EngineError> {
        let refused = |error| EngineError::Kvm { call: "madvise(MADV_DONTNEED)", error };
        let stale = memory.take_stale();
        if stale.all {
            let size = memory.ram().size();
            memory.ram_mut().renew_second(0, size).map_err(refused)?;
        }
        let mut frames: Vec<Phys> = stale.pages.iter().map(|page| page.frame).collect();
        frames.sort_unstable();
        frames.dedup();
        for run in frames.chunk_by(|a, b| a + PAGE == *b) {
            memory.ram_mut().renew_second(run[0], run.len() as u64 * PAGE).map_err(refused)?;
        }
        if stale.tables || memory.frames().quarantined() > MOST_QUARANTINED {
            self.slots.renew(&self.vm)?;
            memory.frames_mut().end_quarantine();
        }
        Ok(())
    }
}

impl Cpu for KvmCpu {
    fn kind(&self) -> EngineKind {
        EngineKind::Kvm
    }

    fn set_page_table(&mut self, root: Phys) {
        if self.user.cr3 != root {
            self.user.cr3 = root;
            self.user_loaded = false;
        }
    }

    fn regs(&self) -> &Regs {
        &self.regs
    }

    fn set_regs(&mut self, regs: &Regs) -> Result<(), EngineError> {
        self.regs = Regs { rflags: user_rflags(regs.rflags), ..*regs };
        if (regs.fs_base, regs.gs_base) != (self.user.fs.base, self.user.gs.base) {
            self.user.fs.base = regs.fs_base;
            self.user.gs.base = regs.gs_base;
            self.user_loaded = false;
        }
        Ok(())
    }

    fn fpu(&mut self) -> Result<Fpu, EngineError> {
        let xsave = self.vcpu.get_xsave().map_err(failed("KVM_GET_XSAVE"))?;
        let image = xsave.region.map(u32::to_le_bytes);
        let fpu = Fpu::from_xsave(cpuid::host_layout(), image.as_flattened());
        // The last x87 instruction is not part of the state: AMD keeps it only after an exception.
        Ok(Fpu { opcode: 0, instruction: 0, data: 0, ..fpu.unwrap_or_default() })
    }

    fn require(&self, model: Model) -> Result<(), EngineError> {
        cpuid::require(model)?;
        match model.components() & !self.components {
            0 => Ok(()),
            _ => Err(EngineError::Lacks { model, what: "a larger XSAVE state" }),
        }
    }

    fn set_fpu(&mut self, fpu: &Fpu) -> Result<(), EngineError> {
        let mut xsave = kvm_xsave::default();
        let image = fpu.to_xsave(cpuid::host_layout(), component::LEGACY | fpu.wide_components());
        for (word, from) in xsave.region.iter_mut().zip(image.chunks_exact(4)) {
            *word = u32::from_le_bytes(from.try_into().expect("four bytes"));
        }
        // SAFETY: the state has no features enabled whose size goes beyond the 4 KiB of `kvm_xsave`.
        unsafe { self.vcpu.set_xsave(&xsave) }.map_err(failed("KVM_SET_XSAVE"))
    }

    fn run(&mut self, memory: &mut Memory, until: Until) -> Result<Exit, EngineError> {
        debug_assert_eq!(memory.ram().size(), self.slots.size(), "a virtual machine has one memory");
        match until {
            Until::Exit => {
                self.forget(memory)?;
                self.slots.cover(&self.vm, memory.frames().given_out())?;
                self.run_to_exit(memory)
            }
            Until::Retired(_) | Until::At(_) | Until::AtOrRetired(..) | Until::StateOrRetired(..) => {
                Err(EngineError::CannotCount("kvm"))
            }
        }
    }

    fn exit_cost(&self) -> Duration {
        self.exit_cost
    }

    fn counters(&self) -> Option<Counters> {
        None
    }

    /// Counts that were taken away, or have holes, are none.
    fn counts(&self) -> Counts {
        self.counters.as_ref().ok().and_then(|counters| counters.read().ok()).unwrap_or_default()
    }

    fn stop_counting(&mut self) {
        self.counters = Err(NoCounters::NotWanted);
    }

    fn read_msrs(&mut self, indices: &[u32]) -> Result<Vec<u64>, EngineError> {
        let entries: Vec<_> = indices.iter().map(|&index| msr_entry(index, 0)).collect();
        let mut values = Vec::with_capacity(indices.len());
        for part in entries.chunks(MSRS_PER_CALL) {
            let mut msrs = Msrs::from_entries(part).expect("fewer than the limit");
            let done = self.vcpu.get_msrs(&mut msrs).map_err(failed("KVM_GET_MSRS"))?;
            values.extend(msrs.as_slice()[..done].iter().map(|entry| entry.data));
            if done < part.len() {
                break;
            }
        }
        Ok(values)
    }

    fn write_msrs(&mut self, entries: &[(u32, u64)]) -> Result<usize, EngineError> {
        let entries: Vec<_> = entries.iter().map(|&(index, value)| msr_entry(index, value)).collect();
        let mut written = 0;
        for part in entries.chunks(MSRS_PER_CALL) {
            let msrs = Msrs::from_entries(part).expect("fewer than the limit");
            let done = self.vcpu.set_msrs(&msrs).map_err(failed("KVM_SET_MSRS"))?;
            written += done;
            if done < part.len() {
                break;
            }
        }
        Ok(written)
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn set_interrupter(&mut self, interrupter: Interrupter) {
        self.interrupter = interrupter;
    }
}

/// KVM takes fewer than 256 at once.
const MSRS_PER_CALL: usize = 128;

fn msr_entry(index: u32, data: u64) -> kvm_msr_entry {
    kvm_msr_entry { index, data, ..kvm_msr_entry::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Exception, Until};
    use crate::ram::paging::Rights;
    use crate::sandbox::Sandbox;
    use std::io::Write;

    /// The way back by IRETQ is that of hosts where SYSCALL enters ring 0. Exceptions do so on every host, so this one can
    /// be made to take it.
    #[test]
    fn the_way_back_by_iretq_restores_every_register() {
        let mut machine = match KvmCpu::machine(1 << 20) {
            Err(why @ EngineError::KvmUnavailable { .. }) => {
                // Past the capture of test output, so that it is seen.
                let _ = writeln!(std::io::stderr(), "skipped: the way back by IRETQ, since {why}");
                return;
            }
            other => other.unwrap(),
        };
        machine.cpu.landing = Landing::Ring0;
        let mut sandbox = Sandbox::new(machine).unwrap();
        // UD2 twice, with nothing in between.
        sandbox.map(0x40_0000, &[0x0f, 0x0b, 0x0f, 0x0b], Rights { write: false, execute: true }).unwrap();
        let gpr = std::array::from_fn(|n| 0x0101_0101_0101_0101 * (n as u64 + 1));
        let regs = Regs { gpr, rip: 0x40_0000, rflags: 0xad7 | 0x400, fs_base: 5, gs_base: 6 };
        sandbox.cpu_mut().set_regs(&regs).unwrap();
        for at in [0x40_0000, 0x40_0002] {
            let undefined = Exit::Exception(Exception { vector: 6, error_code: 0, address: 0 });
            assert_eq!(sandbox.run(Until::Exit).unwrap(), undefined);
            let here = Regs { rip: at, rflags: regs.rflags | 0x200, ..regs };
            assert_eq!(*sandbox.cpu().regs(), here);
            assert_eq!(sandbox.cpu().level, 0, "the handler runs in ring 0");
            sandbox.cpu_mut().set_regs(&Regs { rip: 0x40_0002, ..here }).unwrap();
        }
    }
}
