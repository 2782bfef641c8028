//! How the guest's registers get into the vCPU, and what the vCPU has when the guest came out.
//!
//! Registers travel in the page that the vCPU shares with KVM ("sync regs"): each ioctl less is 5 µs less on
//! kvm_pvm.

use super::layout::{self, Door};
use super::{KvmCpu, Landing, failed};
use crate::engine::EngineError;
use crate::ram::Memory;
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::{SyncReg, VcpuExit};
use std::fmt;
use x86::state::Regs;

/// Why KVM_RUN came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// An OUT to this port.
    Out(u16),
    /// An IN, a HLT or an access to no memory: nothing that the stub does.
    Foreign,
    /// A signal, or `immediate_exit`.
    Signal,
    /// Anything else, described.
    Other(String),
}

/// The vCPU as it came out.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub(super) reason: Reason,
    /// The vCPU's own: in the stub, those of the stub.
    pub(super) regs: Regs,
    /// CR2.
    pub(super) fault_address: u64,
    /// The privilege level.
    pub(super) level: u8,
}

impl Left {
    /// The door of the stub through which the guest left, if it was one.
    pub(super) fn door(&self) -> Option<Door> {
        match self.reason {
            Reason::Out(port) => layout::door(self.regs.rip, port),
            _ => None,
        }
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at rip {:#x}, ring {}", self.reason, self.regs.rip, self.level)
    }
}

impl KvmCpu {
    /// Loads the guest's registers and runs the vCPU once.
    pub(super) fn enter(&mut self, memory: &mut Memory) -> Result<Left, EngineError> {
        self.load(memory);
        self.resume()
    }

    /// Runs the vCPU once, from where it stands.
    pub(super) fn resume(&mut self) -> Result<Left, EngineError> {
        let reason = self.kvm_run()?;
        let sync = self.vcpu.sync_regs();
        self.level = sync.sregs.cs.dpl;
        Ok(Left {
            reason,
            regs: from_kvm(&sync.regs, &sync.sregs),
            fault_address: sync.sregs.cr2,
            level: self.level,
        })
    }

    /// Finishes an I/O instruction that KVM has half done, without running the guest; gives the registers then.
    pub(super) fn finish_io(&mut self) -> Result<Regs, EngineError> {
        self.vcpu.set_kvm_immediate_exit(1);
        let left = self.resume();
        self.vcpu.set_kvm_immediate_exit(0);
        Ok(left?.regs)
    }

    fn kvm_run(&mut self) -> Result<Reason, EngineError> {
        Ok(match self.vcpu.run() {
            Ok(VcpuExit::IoOut(port, _)) => Reason::Out(port),
            Ok(VcpuExit::IoIn(..) | VcpuExit::Hlt | VcpuExit::MmioRead(..) | VcpuExit::MmioWrite(..)) => {
                Reason::Foreign
            }
            Ok(VcpuExit::Intr) => Reason::Signal,
            Ok(other) => Reason::Other(format!("{other:?}")),
            Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => Reason::Signal,
            Err(error) => return Err(failed("KVM_RUN")(error)),
        })
    }

    /// Puts the guest's registers where the next KVM_RUN takes them, and the vCPU into ring 3: it is there already,
    /// or an IRETQ of the stub brings it there, or its segments are replaced. IRETQ is the cheapest where ring 0 is
    /// the processor's; where it is emulated, and where bases or page tables change anyway, replacing is.
    fn load(&mut self, memory: &mut Memory) {
        let by_iretq = self.level != 3 && self.landing == Landing::Ring0 && self.user_loaded;
        let replace = !by_iretq && (self.level != 3 || !self.user_loaded);
        let mut regs = self.regs;
        if by_iretq {
            let [_, _, _, _, rsp, ..] = self.regs.gpr;
            regs.gpr[4] = layout::write_return_frame(memory.ram_mut(), regs.rip, regs.rflags, rsp);
            regs.rip = layout::IRETQ;
            regs.rflags = 2;
        }
        let sync = self.vcpu.sync_regs_mut();
        sync.regs = to_kvm(&regs);
        if replace {
            sync.sregs = self.user;
            self.vcpu.set_sync_dirty_reg(SyncReg::SystemRegister);
        }
        self.vcpu.set_sync_dirty_reg(SyncReg::Register);
        self.user_loaded = true;
    }
}

fn to_kvm(regs: &Regs) -> kvm_regs {
    let [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15] = regs.gpr;
    let (rip, rflags) = (regs.rip, regs.rflags);
    kvm_regs { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags }
}

fn from_kvm(r: &kvm_regs, s: &kvm_sregs) -> Regs {
    Regs {
        gpr: [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ],
        rip: r.rip,
        rflags: r.rflags,
        fs_base: s.fs.base,
        gs_base: s.gs.base,
    }
}
