//! A virtual processor of the host's KVM in the state of a [`World`], run to its first HLT.

use crate::world::World;
use kvm_bindings::{kvm_dtable, kvm_regs, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use memmap2::MmapMut;
use x86::state::Regs;
use x86_system::{Registers, Segment, TableRegister};

/// One virtual machine, used for all cases.
pub(crate) struct Native {
    vcpu: VcpuFd,
    /// The machine is kept as long as its memory.
    _vm: VmFd,
    memory: MmapMut,
}

/// What a run has come to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// At HLT.
    Halted,
    /// A triple fault.
    Shutdown,
    /// Something that neither is.
    Other(String),
}

impl Native {
    /// `None` where there is no KVM that this user may open.
    pub(crate) fn open(size: usize) -> Option<Native> {
        let kvm = Kvm::new().ok()?;
        let vm = kvm.create_vm().expect("a machine");
        let memory = MmapMut::map_anon(size).expect("memory");
        let region = kvm_userspace_memory_region {
            memory_size: size as u64,
            userspace_addr: memory.as_ptr() as u64,
            ..Default::default()
        };
        // SAFETY: the mapping is kept as long as the machine, and nobody else looks at it while that runs.
        unsafe { vm.set_user_memory_region(region) }.expect("a slot");
        let vcpu = vm.create_vcpu(0).expect("a processor");
        let cpuid = kvm.get_supported_cpuid(kvm_bindings::KVM_MAX_CPUID_ENTRIES).expect("its model");
        vcpu.set_cpuid2(&cpuid).expect("its model is taken");
        Some(Native { vcpu, _vm: vm, memory })
    }

    /// Goes to the state of a world.
    pub(crate) fn go_to(&mut self, world: &World) {
        self.memory.copy_from_slice(world.cpu.bus().ram());
        let (regs, registers) = (world.cpu.regs(), &world.system.registers);
        let mut sregs = self.vcpu.get_sregs().expect("registers");
        let [es, cs, ss, ds, fs, gs] = registers.segments.map(|it| segment(&it));
        (sregs.es, sregs.cs, sregs.ss, sregs.ds) = (es, cs, ss, ds);
        (sregs.fs, sregs.gs) =
            (kvm_segment { base: regs.fs_base, ..fs }, kvm_segment { base: regs.gs_base, ..gs });
        (sregs.tr, sregs.ldt) = (segment(&registers.tr), segment(&registers.ldtr));
        (sregs.gdt, sregs.idt) = (table(registers.gdtr), table(registers.idtr));
        (sregs.cr0, sregs.cr2, sregs.cr3, sregs.cr4) =
            (registers.cr0, registers.cr2, registers.cr3, registers.cr4);
        sregs.efer = registers.efer;
        self.vcpu.set_sregs(&sregs).expect("registers are taken");
        self.vcpu.set_regs(&general(&regs)).expect("registers are taken");
        self.vcpu.set_debug_regs(&Default::default()).expect("debug registers are taken");
    }

    /// Runs to the first HLT.
    pub(crate) fn run(&mut self) -> End {
        match self.vcpu.run() {
            Ok(VcpuExit::Hlt) => End::Halted,
            Ok(VcpuExit::Shutdown) => End::Shutdown,
            Ok(exit) => End::Other(format!("{exit:?}")),
            Err(error) => End::Other(error.to_string()),
        }
    }

    /// What it has: rip, rflags, rax to r15, by name.
    pub(crate) fn state(&self) -> Vec<(&'static str, u64)> {
        let (regs, sregs) =
            (self.vcpu.get_regs().expect("registers"), self.vcpu.get_sregs().expect("registers"));
        let selectors = [
            ("es", sregs.es),
            ("cs", sregs.cs),
            ("ss", sregs.ss),
            ("ds", sregs.ds),
            ("fs", sregs.fs),
            ("gs", sregs.gs),
            ("tr", sregs.tr),
            ("ldtr", sregs.ldt),
        ];
        let general = [
            ("rip", regs.rip),
            ("rflags", regs.rflags),
            ("rax", regs.rax),
            ("rcx", regs.rcx),
            ("rdx", regs.rdx),
            ("rbx", regs.rbx),
            ("rsp", regs.rsp),
            ("cr0", sregs.cr0),
            ("cr2", sregs.cr2),
            ("cr3", sregs.cr3),
            ("cr4", sregs.cr4),
            ("efer", sregs.efer),
            ("fs_base", sregs.fs.base),
            ("gs_base", sregs.gs.base),
        ];
        let selectors = selectors.map(|(name, it)| (name, u64::from(it.selector)));
        general.into_iter().chain(selectors).collect()
    }

    /// Memory.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }
}

fn general(regs: &Regs) -> kvm_regs {
    let [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15] = regs.gpr;
    let (rip, rflags) = (regs.rip, regs.rflags);
    kvm_regs { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags }
}

fn table(it: TableRegister) -> kvm_dtable {
    kvm_dtable { base: it.base, limit: it.limit, ..Default::default() }
}

fn segment(it: &Segment) -> kvm_segment {
    let bits = |at: u16, n: u16| u8::try_from(it.attributes >> at & ((1 << n) - 1)).expect("a byte");
    kvm_segment {
        base: it.base,
        limit: it.limit,
        selector: it.selector,
        type_: bits(0, 4),
        s: bits(4, 1),
        dpl: bits(5, 2),
        present: bits(7, 1),
        avl: bits(12, 1),
        l: bits(13, 1),
        db: bits(14, 1),
        g: bits(15, 1),
        unusable: u8::from(it.attributes == 0),
        ..Default::default()
    }
}

/// The same of a world.
pub(crate) fn state_of(world: &World) -> Vec<(&'static str, u64)> {
    let (regs, it): (Regs, Registers) = (world.cpu.regs(), world.system.registers);
    let names = ["es", "cs", "ss", "ds", "fs", "gs", "tr", "ldtr"];
    let segments = it.segments.iter().chain([&it.tr, &it.ldtr]);
    let selectors = names.into_iter().zip(segments.map(|it| u64::from(it.selector)));
    let general = [
        ("rip", regs.rip),
        ("rflags", regs.rflags),
        ("rax", regs.gpr[0]),
        ("rcx", regs.gpr[1]),
        ("rdx", regs.gpr[2]),
        ("rbx", regs.gpr[3]),
        ("rsp", regs.gpr[4]),
        ("cr0", it.cr0),
        ("cr2", it.cr2),
        ("cr3", it.cr3),
        ("cr4", it.cr4),
        ("efer", it.efer),
        ("fs_base", regs.fs_base),
        ("gs_base", regs.gs_base),
    ];
    general.into_iter().chain(selectors).collect()
}

/// The first address at which memory differs, and what is there; but for accessed bits of tables above the last.
pub(crate) fn first_difference(native: &[u8], world: &World) -> Option<(usize, u8, u8)> {
    const ACCESSED: u8 = 1 << 5;
    const ENTRIES: [usize; 4] = [0x1000, 0x2000, 0x3000, 0x3008];
    let ours = world.cpu.bus().ram();
    let differs = |at: usize| {
        let open = if ENTRIES.contains(&at) { ACCESSED } else { 0 };
        (native[at] | open) != (ours[at] | open)
    };
    (0..ours.len()).find(|at| differs(*at)).map(|at| (at, native[at], ours[at]))
}
