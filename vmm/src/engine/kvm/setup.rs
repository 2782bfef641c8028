//! Makes the virtual machine: memory slot, system registers, and a look at where SYSCALL lands.

use super::layout::{self, Door};
use super::records::{self, Refused};
use super::slots::Slots;
use super::{KvmCpu, Landing, cpuid, failed, msr_entry};
use crate::engine::flags::user_rflags;
use crate::engine::{Cpu, EngineError, Interrupter, Virt};
use crate::host;
use crate::ram::{Memory, PAGE};
use kvm_bindings::{Msrs, kvm_segment, kvm_sregs, kvm_xcr, kvm_xcrs};
use kvm_ioctls::{Kvm, SyncReg, VcpuFd, VmFd};
use lbr::perf::{GuestCounters, NoCounters};
use lbr::{Armed, Filter};
use std::time::{Duration, Instant};
use x86::state::Regs;
use x86::xsave::component;

/// Where KVM may put three pages for real mode on old Intel processors: behind all but very large memories.
const REAL_MODE_TSS: u64 = 0xfffb_d000;
/// PE, MP, ET, NE, WP, AM, PG (Intel SDM vol. 3, 2.5).
const CR0: u64 = 0x8005_0033;
/// PAE, OSFXSR, OSXMMEXCPT, and TSD, so that RDTSC traps. Not FSGSBASE, not SMEP (the gate belongs to ring 3 until the
/// landing is known).
const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 2;
/// OSXSAVE: XCR0 says which vector registers there are.
const CR4_OSXSAVE: u64 = 1 << 18;
/// SCE, LME, LMA, NXE.
const EFER: u64 = 1 | 1 << 8 | 1 << 10 | 1 << 11;
const MSR_STAR: u32 = 0xc000_0081;
const MSR_LSTAR: u32 = 0xc000_0082;
const MSR_FMASK: u32 = 0xc000_0084;
/// What SYSCALL clears: TF, IF, DF, NT, AC.
const FMASK: u64 = 0x4_4700;

/// Opens the device that GRETEL_KVM_DEVICE names, by default /dev/kvm.
fn open_device() -> Result<Kvm, EngineError> {
    let device = std::env::var_os("GRETEL_KVM_DEVICE").unwrap_or_else(|| "/dev/kvm".into());
    let open = |path: Vec<u8>| Ok(Kvm::new_with_path(std::ffi::CString::new(path)?)?);
    open(device.as_encoded_bytes().to_vec())
        .map_err(|error| EngineError::KvmUnavailable { device: device.into(), error })
}

/// KVM, of which nothing is used yet but the device: for a program that may never need more.
pub struct Waiting {
    device: Kvm,
    every: Option<u32>,
}

impl Waiting {
    /// Opens the device.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn open() -> Result<Waiting, EngineError> {
        Ok(Waiting { device: open_device()?, every: None })
    }

    /// Takes turns with the software CPU after so many exits, whatever they cost: for tests.
    #[must_use]
    pub fn every(self, exits: u32) -> Waiting {
        Waiting { every: Some(exits), ..self }
    }

    /// After how many exits it takes turns, if that does not go by cost.
    pub(crate) fn takes_turns_every(&self) -> Option<u32> {
        self.every
    }

    /// Whether this host's processor could record the branches of a guest.
    ///
    /// # Errors
    /// Why not.
    pub fn records_branches(&self) -> Result<(), Refused> {
        records::offered(&self.device)
    }

    /// Whether this host's processor counts what a guest executes, as far as that is known without one.
    #[must_use]
    pub fn counts(&self) -> bool {
        GuestCounters::start(&host::host()).is_ok()
    }

    /// Memory in which a vCPU finds its own pages free, whenever it is made.
    ///
    /// # Errors
    /// When the host does not give it.
    pub fn memory(bytes: u64) -> Result<Memory, EngineError> {
        let mut memory = Memory::new(bytes.max(layout::END))?;
        reserve(&mut memory);
        Ok(memory)
    }

    /// Makes the vCPU, for memory of [`Waiting::memory`]. Its processor's counters are left alone.
    ///
    /// # Errors
    /// When KVM refuses.
    pub fn start(&self, memory: &mut Memory) -> Result<KvmCpu, EngineError> {
        let mut cpu = unused(&self.device, memory)?;
        cpu.landing = look_where_syscall_lands(&mut cpu, memory)?;
        Ok(cpu)
    }
}

/// Keeps the frames of the engine's own pages.
fn reserve(memory: &mut Memory) {
    memory.reserve(layout::END, layout::kernel_entry());
}

/// A vCPU that runs against `memory`, standing in ring 3.
pub(super) fn vcpu(memory: &mut Memory) -> Result<KvmCpu, EngineError> {
    reserve(memory);
    let mut cpu = unused(&open_device()?, memory)?;
    look_around(&mut cpu, memory)?;
    Ok(cpu)
}

/// The same, recording its branches, or saying why it cannot.
pub(super) fn recording(
    memory: &mut Memory,
    filter: Filter,
) -> Result<(KvmCpu, Result<Armed, Refused>), EngineError> {
    let device = open_device()?;
    reserve(memory);
    let mut cpu = unused(&device, memory)?;
    let armed = records::arm(&device, &mut cpu, filter);
    look_around(&mut cpu, memory)?;
    // What was executed to look around is not the guest's.
    let cleared = armed.and_then(|armed| {
        armed.clear::<dyn Cpu>(&mut cpu)?;
        Ok(armed)
    });
    Ok((cpu, cleared))
}

/// A vCPU that has not run yet, in memory that has the room for its own pages.
fn unused(kvm: &Kvm, memory: &mut Memory) -> Result<KvmCpu, EngineError> {
    let vm = kvm.create_vm().map_err(failed("KVM_CREATE_VM"))?;
    layout::write(memory.ram_mut());
    let slots = set_memory(&vm, memory)?;
    let mut vcpu = vm.create_vcpu(0).map_err(failed("KVM_CREATE_VCPU"))?;
    let (user, components) = set_state_components(&vcpu)?;
    vcpu.set_sync_valid_reg(SyncReg::Register);
    vcpu.set_sync_valid_reg(SyncReg::SystemRegister);
    let immediate_exit = &raw mut vcpu.get_kvm_run().immediate_exit;
    Ok(KvmCpu {
        vcpu,
        vm,
        slots,
        regs: Regs { rflags: user_rflags(0), ..Regs::default() },
        user,
        user_loaded: true,
        level: 3,
        landing: Landing::Ring3,
        exit_cost: Duration::ZERO,
        interrupter: Interrupter::new(),
        immediate_exit,
        components,
        counters: Err(NoCounters::NoGuest),
    })
}

/// Looks where SYSCALL lands, and whether the processor counts what the guest executes.
fn look_around(cpu: &mut KvmCpu, memory: &mut Memory) -> Result<(), EngineError> {
    let counters = GuestCounters::start(&host::host());
    cpu.landing = look_where_syscall_lands(cpu, memory)?;
    cpu.counters = match (counters, cpu.landing) {
        (Ok(_), Landing::Ring3) => Err(NoCounters::NoGuest),
        (Ok(counters), Landing::Ring0) => match counters.read().ok().and_then(|c| c.conditional_branches) {
            Some(layout::PROBE_CONDITIONALS) => Ok(counters),
            other => Err(NoCounters::Wrong(other)),
        },
        (Err(why), _) => Err(why),
    };
    Ok(())
}

/// Gives the virtual machine its memory: what is given out of it so far, on the second mapping.
fn set_memory(vm: &VmFd, memory: &mut Memory) -> Result<Slots, EngineError> {
    let size = memory.ram().size();
    let mut slots = Slots::new(memory.ram_mut().second()?, size);
    slots.cover(vm, memory.frames().given_out())?;
    if size <= REAL_MODE_TSS {
        // Only processors that cannot run real mode as a guest need it; the others do not mind.
        let at = usize::try_from(REAL_MODE_TSS).expect("a 64-bit host");
        vm.set_tss_address(at).map_err(failed("KVM_SET_TSS_ADDR"))?;
    }
    Ok(slots)
}

/// Sets CPUID, the system registers, and all vector registers of the host in XCR0; where KVM refuses these, the xmm
/// registers alone. Gives the system registers as set, and the components.
fn set_state_components(vcpu: &VcpuFd) -> Result<(kvm_sregs, u64), EngineError> {
    let all = cpuid::host_components();
    let tried = (|| {
        vcpu.set_cpuid2(&cpuid::model(all)).map_err(failed("KVM_SET_CPUID2"))?;
        let user = set_system_registers(vcpu, CR4 | CR4_OSXSAVE)?;
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
        xcrs.xcrs[0] = kvm_xcr { xcr: 0, value: all, ..kvm_xcr::default() };
        vcpu.set_xcrs(&xcrs).map_err(failed("KVM_SET_XCRS"))?;
        Ok((user, all))
    })();
    tried.or_else(|error: EngineError| {
        tracing::debug!(%error, "no vector registers but xmm");
        vcpu.set_cpuid2(&cpuid::model(component::LEGACY)).map_err(failed("KVM_SET_CPUID2"))?;
        Ok((set_system_registers(vcpu, CR4)?, component::LEGACY))
    })
}

/// Sets long mode, ring 3 and the way into the stub; gives the system registers as set.
fn set_system_registers(vcpu: &VcpuFd, cr4: u64) -> Result<kvm_sregs, EngineError> {
    let mut sregs = vcpu.get_sregs().map_err(failed("KVM_GET_SREGS"))?;
    let code = kvm_segment {
        limit: 0xffff_ffff,
        selector: layout::USER_CODE,
        type_: 11,
        present: 1,
        dpl: 3,
        s: 1,
        l: 1,
        g: 1,
        ..kvm_segment::default()
    };
    let data = kvm_segment { selector: layout::USER_DATA, type_: 3, l: 0, db: 1, ..code };
    sregs.cs = code;
    // As Linux has them: a program can read the selectors.
    let null = kvm_segment { unusable: 1, ..kvm_segment::default() };
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (null, null, null, null, data);
    sregs.tr = kvm_segment {
        base: layout::tss_base(),
        limit: layout::TSS_LIMIT,
        selector: layout::TASK,
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    };
    (sregs.gdt.base, sregs.gdt.limit) = (layout::gdt_base(), layout::GDT_LIMIT);
    (sregs.idt.base, sregs.idt.limit) = (layout::idt_base(), layout::IDT_LIMIT);
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, layout::EMPTY_ROOT, cr4, EFER);
    vcpu.set_sregs(&sregs).map_err(failed("KVM_SET_SREGS"))?;
    let entry = [(MSR_STAR, layout::STAR), (MSR_LSTAR, layout::LSTAR), (MSR_FMASK, FMASK)];
    let msrs =
        Msrs::from_entries(&entry.map(|(index, value)| msr_entry(index, value))).expect("three entries");
    match vcpu.set_msrs(&msrs).map_err(failed("KVM_SET_MSRS"))? {
        3 => Ok(sregs),
        done => Err(EngineError::UnexpectedExit(format!("KVM_SET_MSRS refuses MSR {:#x}", entry[done].0))),
    }
}

/// Runs a branch and a SYSCALL of the engine's own and looks at the privilege level behind it. If that is ring 0, the gate page
/// is withdrawn from ring 3.
fn look_where_syscall_lands(cpu: &mut KvmCpu, memory: &mut Memory) -> Result<Landing, EngineError> {
    let before = cpu.regs;
    enter_probe(cpu, memory, layout::PROBE)?;
    cpu.landing = if cpu.level == 3 { Landing::Ring3 } else { Landing::Ring0 };
    cpu.exit_cost = measure_exit(cpu, memory)?;
    cpu.regs = before;
    layout::remove_probe(memory.ram_mut());
    if cpu.landing == Landing::Ring0 {
        let gate = layout::hide_gate(memory.ram_mut());
        memory
            .ram_mut()
            .renew_second(gate, PAGE)
            .map_err(|error| EngineError::Kvm { call: "madvise(MADV_DONTNEED)", error })?;
    }
    Ok(cpu.landing)
}

/// The least of a few system calls: another one may be interrupted, or be the first to touch something.
fn measure_exit(cpu: &mut KvmCpu, memory: &mut Memory) -> Result<Duration, EngineError> {
    const TRIALS: u32 = 4;
    let mut least = Duration::MAX;
    for _ in 0..TRIALS {
        let before = Instant::now();
        enter_probe(cpu, memory, layout::PROBE_SYSCALL)?;
        least = least.min(before.elapsed());
    }
    Ok(least)
}

/// Runs the probe from there to its SYSCALL.
fn enter_probe(cpu: &mut KvmCpu, memory: &mut Memory, rip: Virt) -> Result<(), EngineError> {
    cpu.regs.rip = rip;
    let left = cpu.enter(memory)?;
    match left.door() {
        Some(Door::Syscall) => Ok(()),
        _ => Err(EngineError::UnexpectedExit(format!("{left} at the first SYSCALL"))),
    }
}
