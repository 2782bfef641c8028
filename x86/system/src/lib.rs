//! The software CPU as a kernel sees it: rings, control registers, descriptors, paging, delivery of exceptions and
//! interrupts.
//!
//! No instruction that a program has is described here. The interpreter and the compiler run blocks as ever; what they
//! cannot do ends a run, and [`System::serve`] looks at it: an instruction of the system is executed, an exception goes
//! through the IDT, a device is asked of [`Outside`].
//!
//! Example: CLI is a #GP to the table of instructions. `serve` finds CLI at rip. In ring 0 it clears IF and counts one
//! instruction; in ring 3 it delivers the #GP.
//!
//! The map, in reading order:
//!
//! | part | modules |
//! | --- | --- |
//! | the state | [`registers`] |
//! | from addresses to RAM and devices | [`paging`], [`memory`] |
//! | segments and gates | [`descriptors`], [`segments`] |
//! | exceptions and interrupts: IDT, IST, double fault | [`delivery`] |
//! | IRET, SYSCALL, far transfers | [`transfer`] |
//! | CR, DR, MSRs, tables | [`control`] |
//! | from an instruction to one of these, or to #UD | [`execute`], [`absent`] |
//!
//! Code of 32 bits runs in flat segments: without paging, as a boot loader enters kernels
//! (docs/decisions/0063-multiboot.md), and in long mode.
//!
//! What is not served is refused by name ([`Refused`]), never guessed: 16-bit code, segments of 32-bit code with a base,
//! its own page tables, its exceptions in ring 3, task switches, five-level paging, the x87 under CR0.TS, hardware breakpoints on ports
//! (docs/decisions/0052-system-side.md).
#![forbid(unsafe_code)]

mod absent;
mod control;
mod delivery;
mod descriptors;
mod execute;
pub mod memory;
pub mod paging;
pub mod registers;
mod segments;
mod transfer;

pub use memory::Physical;
pub use registers::{Registers, Segment, TableRegister};

use paging::Paging;
use registers::debug;
use x86::bus::PageFault;
use x86::cpu::Cpu;
use x86::interpreter::Stop;
use x86::machine::{Machine, MachineRead, Trap};
use x86::sem::system::supply;
use x86::state::{RFLAGS_IF, RFLAGS_TF};

/// The CPU that a system belongs to.
pub type SystemCpu = Cpu<Physical>;

/// What is outside of the processor: ports, devices in memory, the machine's own registers, its clock.
pub trait Outside {
    /// IN of 8, 16 or 32 bits.
    fn port_in(&mut self, port: u16, width: u32) -> u32;
    /// OUT.
    fn port_out(&mut self, port: u16, width: u32, value: u32);
    /// RDMSR of a register that is not the processor's own; `None` is #GP.
    fn read_msr(&mut self, index: u32) -> Option<u64>;
    /// WRMSR of one; `None` is #GP.
    fn write_msr(&mut self, index: u32, value: u64) -> Option<()>;
    /// CPUID: eax, ebx, ecx, edx.
    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> [u32; 4];
    /// The time-stamp counter when `retired` instructions have run.
    fn time_stamp(&mut self, retired: u64) -> u64;
    /// CR8, the task priority.
    fn task_priority(&mut self) -> u64;
    /// Writes CR8.
    fn set_task_priority(&mut self, priority: u64);
}

/// What is next when a stop was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The CPU runs on.
    Run,
    /// It is halted until an interrupt.
    Halt,
    /// The instruction at rip wants a device: it runs in a window ([`Physical::open_window`]).
    Device(memory::DeviceAccess),
    /// A triple fault.
    Shutdown,
}

/// The guest does what is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {at:#x}: {what}")]
pub struct Refused {
    /// Where it stands.
    pub at: u64,
    /// What it wants.
    pub what: String,
}

/// An exception: its vector and error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    vector: u8,
    /// Zero where the exception has none.
    code: u32,
}

impl Fault {
    const INVALID_OPCODE: Fault = Fault { vector: 6, code: 0 };

    const fn general(code: u32) -> Fault {
        Fault { vector: 13, code }
    }
}

/// An exception that an instruction has raised, before anything of its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Which.
    pub vector: u8,
    /// Its error code; zero where it has none.
    pub code: u32,
    /// The address of a page fault.
    pub address: Option<u64>,
    /// Where: the instruction, or behind it where that has retired (INT3, INT n).
    pub rip: u64,
    /// The stack pointer there.
    pub rsp: u64,
    /// The level there.
    pub privilege: u8,
}

/// How an instruction of the system fails.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Fault(Fault),
    Refused(String),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

/// The outcome of a part of an instruction of the system.
pub(crate) type Part<T = ()> = Result<T, Failure>;

/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;

/// The system side of one CPU.
#[derive(Default)]
pub struct System {
    /// The registers.
    pub registers: Registers,
    /// Interrupts wait until more than this has retired: STI and loads of SS shield the instruction behind them.
    shielded_at: Option<u64>,
    /// A load of SS keeps the debug exception behind it away: where so many have retired.
    stack_loaded_at: Option<u64>,
    /// How many exceptions and interrupts were delivered. Nothing depends on it: it tells moments apart between which nothing retires.
    pub delivered: u64,
    /// The last exception that an instruction has raised. Nothing depends on it: it is for who looks on, and no part of a state.
    pub raised: Option<Raised>,
    /// Exceptions are only noted as raised, and not delivered: for who runs a piece of code up to where it faults, and looks at the
    /// memory there.
    pub holds_exceptions: bool,
}

impl System {
    /// The system of a CPU that begins in 64-bit mode as `registers` say.
    #[must_use]
    pub fn new(cpu: &mut SystemCpu, registers: Registers) -> System {
        cpu.give_system();
        let mut system = System { registers, ..System::default() };
        system.apply_paging(cpu);
        system.apply_code(cpu);
        system
    }

    /// How many instructions had retired where the one behind them is shielded from interrupts.
    #[must_use]
    pub fn shielded_at(&self) -> Option<u64> {
        self.shielded_at
    }

    /// Goes on with these registers, which are of another moment, and with the shield of that.
    pub fn restore(&mut self, cpu: &mut SystemCpu, registers: Registers, shielded_at: Option<u64>) {
        self.registers = registers;
        self.shielded_at = shielded_at;
        self.apply_paging(cpu);
        self.apply_code(cpu);
        self.set_flags(cpu, cpu.regs().rflags);
    }

    /// Whether an interrupt that is pending would be taken before the next instruction.
    #[must_use]
    pub fn takes_interrupts(&self, cpu: &SystemCpu) -> bool {
        cpu.system_flags() & RFLAGS_IF != 0 && self.shielded_at != Some(cpu.retired())
    }

    /// Whether only the instruction before keeps interrupts away.
    #[must_use]
    pub fn is_shielded(&self, cpu: &SystemCpu) -> bool {
        cpu.system_flags() & RFLAGS_IF != 0 && self.shielded_at == Some(cpu.retired())
    }

    /// Whether an NMI that is pending would be taken before the next instruction.
    #[must_use]
    pub fn takes_nmi(&self, cpu: &SystemCpu) -> bool {
        !self.registers.blocks_nmi && self.shielded_at != Some(cpu.retired())
    }

    /// Delivers an NMI.
    ///
    /// # Errors
    /// As [`System::interrupt`].
    pub fn nmi(&mut self, cpu: &mut SystemCpu) -> Result<Next, Refused> {
        const NMI: u8 = 2;
        self.registers.blocks_nmi = true;
        self.deliver(cpu, delivery::Event::External(NMI))
    }

    /// Whether the debug exception of a step does not follow what has retired last: it loaded SS.
    #[must_use]
    pub fn holds_steps(&self, cpu: &SystemCpu) -> bool {
        self.stack_loaded_at == Some(cpu.retired())
    }

    /// Whether the CPU steps: a debug exception follows the next instruction.
    #[must_use]
    pub fn steps(&self, cpu: &SystemCpu) -> bool {
        cpu.system_flags() & RFLAGS_TF != 0
    }

    /// Delivers the interrupt of a device.
    ///
    /// # Errors
    /// Where the handler is code that is not served.
    pub fn interrupt(&mut self, cpu: &mut SystemCpu, vector: u8) -> Result<Next, Refused> {
        self.deliver(cpu, delivery::Event::External(vector))
    }

    /// Delivers a debug exception before an instruction with a breakpoint, or behind one that was stepped or has accessed armed data:
    /// `causes` are the bits of DR6 for these.
    ///
    /// # Errors
    /// As [`System::interrupt`].
    pub fn debug_exception(&mut self, cpu: &mut SystemCpu, causes: u64) -> Result<Next, Refused> {
        /// Bits of DR6 that each exception writes; the others are set, and never cleared.
        const MET: u64 = 15;
        let [.., status, control] = &mut self.registers.debug;
        *status = *status & !MET | causes;
        // The handler may write debug registers.
        *control &= !debug::GENERAL_DETECT;
        self.deliver(cpu, delivery::Event::Trap(1))
    }

    /// Serves what a run ended with.
    ///
    /// # Errors
    /// What is not served.
    pub fn serve(
        &mut self,
        cpu: &mut SystemCpu,
        stop: &Stop,
        outside: &mut impl Outside,
    ) -> Result<Next, Refused> {
        match stop {
            Stop::Budget | Stop::At | Stop::Strings | Stop::Differing => Ok(Next::Run),
            Stop::Syscall => {
                let served = self.system_call(cpu);
                self.finish(cpu, served.map(|()| Next::Run))
            }
            Stop::MachineRead { read, op } => {
                let served = self.machine_read(cpu, *read, op, outside);
                self.finish(cpu, served.map(|()| Next::Run))
            }
            Stop::Trap { trap: Trap::Page, .. } => {
                if let Some(access) = cpu.bus_mut().take_device_access() {
                    return Ok(Next::Device(access));
                }
                let fault = page_fault(cpu);
                self.deliver(cpu, delivery::Event::Fault(fault))
            }
            Stop::Trap { trap: Trap::Breakpoint, at } => {
                self.deliver_retired(cpu, delivery::Event::Software(3), *at)
            }
            Stop::Trap { trap: Trap::Debug, at } => self.deliver_retired(cpu, delivery::Event::Trap(1), *at),
            Stop::Trap { trap: trap @ (Trap::General | Trap::Undefined), .. } => {
                match self.execute_at_rip(cpu, outside) {
                    Some(done) => self.finish(cpu, done),
                    None => self.deliver(cpu, delivery::Event::Fault(plain(*trap))),
                }
            }
            Stop::Trap { trap, .. } => self.deliver(cpu, delivery::Event::Fault(plain(*trap))),
            Stop::System | Stop::NoSemantics { .. } => match self.execute_at_rip(cpu, outside) {
                Some(done) => self.finish(cpu, done),
                None if cpu.instruction().is_some_and(|i| absent::is_absent(&i)) => {
                    self.deliver(cpu, delivery::Event::Fault(Fault::INVALID_OPCODE))
                }
                None => Err(Refused { at: cpu.rip(), what: no_semantics(cpu, stop) }),
            },
        }
    }

    /// Delivers INT3 or INT1 at `at`, which has retired. What fails on the way is a fault of the instruction, which has not retired
    /// then.
    fn deliver_retired(
        &mut self,
        cpu: &mut SystemCpu,
        event: delivery::Event,
        at: u64,
    ) -> Result<Next, Refused> {
        let entered = self.enter_once(cpu, event);
        if entered.is_err() {
            cpu.unretire(1);
            cpu.set_rip(at);
        }
        self.finish(cpu, entered.map(|()| Next::Run))
    }

    /// Delivers the exception of an instruction that failed.
    fn finish(&mut self, cpu: &mut SystemCpu, done: Part<Next>) -> Result<Next, Refused> {
        match done {
            Ok(next) => Ok(next),
            Err(Failure::Fault(fault)) => self.deliver(cpu, delivery::Event::Fault(fault)),
            Err(Failure::Refused(what)) => Err(Refused { at: cpu.rip(), what }),
        }
    }

    /// Supplies the results of an instruction that reads the machine; it has retired.
    fn machine_read(
        &mut self,
        cpu: &mut SystemCpu,
        read: MachineRead,
        op: &x86::op::Op,
        outside: &mut impl Outside,
    ) -> Part {
        let low = |r: usize| u32::try_from(cpu.regs().gpr[r] & 0xffff_ffff).unwrap_or(0);
        let halves = |v: u64| [v & 0xffff_ffff, v >> 32];
        let values = match read {
            MachineRead::Cpuid => outside.cpuid(low(0), low(1)).map(u64::from),
            MachineRead::Rdtsc | MachineRead::Rdtscp => {
                const TSD: u64 = 1 << 2;
                if self.registers.cr4 & TSD != 0 && self.registers.privilege == 3 {
                    return self.take_back(cpu, op, Fault::general(0));
                }
                let [low, high] = halves(outside.time_stamp(cpu.retired()));
                [low, high, self.registers.tsc_aux, 0]
            }
            MachineRead::Rdpid => [self.registers.tsc_aux, 0, 0, 0],
            // The model has none of them, and CR4.OSXSAVE stays clear.
            MachineRead::Rdrand
            | MachineRead::Rdseed
            | MachineRead::Xgetbv
            | MachineRead::Transaction
            | MachineRead::ExtendedState => return self.take_back(cpu, op, Fault::INVALID_OPCODE),
        };
        supply(cpu, op, read, values).map_err(|trap| Failure::Fault(plain(trap)))
    }

    /// An instruction that was counted faults after all.
    fn take_back(&mut self, cpu: &mut SystemCpu, op: &x86::op::Op, fault: Fault) -> Part {
        cpu.unretire(1);
        cpu.set_rip(op.start());
        Err(fault.into())
    }
}

/// What cannot be run, in words.
fn no_semantics(cpu: &mut SystemCpu, stop: &Stop) -> String {
    let bytes = match stop {
        Stop::NoSemantics { bytes, .. } => format!("{:02x?}", bytes.as_slice()),
        _ => String::new(),
    };
    let name = cpu.instruction().map(|i| i.to_string()).unwrap_or_default();
    format!("an instruction without semantics: {name} {bytes}")
}

/// The exception of a trap that carries nothing.
fn plain(trap: Trap) -> Fault {
    let vector = match trap {
        Trap::Divide => 0,
        Trap::Debug => 1,
        Trap::Breakpoint => 3,
        Trap::Undefined => 6,
        Trap::Stack => 12,
        // Symbolic machines alone call a path infeasible.
        Trap::General | Trap::Infeasible => 13,
        Trap::Page => PAGE_FAULT,
        Trap::X87 => 16,
        Trap::Simd => 19,
    };
    Fault { vector, code: 0 }
}

/// The page fault that the last access met. CR2 is written when it is delivered.
fn page_fault(cpu: &SystemCpu) -> Fault {
    let code = cpu.last_page_fault().map_or(0, |PageFault { error_code, .. }| error_code);
    Fault { vector: PAGE_FAULT, code }
}

impl System {
    /// Loads `w` bits at a linear address, as code of the current level does.
    fn load(&self, cpu: &mut SystemCpu, w: u32, va: u64) -> Part<u64> {
        cpu.load(w, va).map_err(|trap| failed_access(cpu, trap))
    }

    /// Stores `w` bits.
    fn store(&self, cpu: &mut SystemCpu, w: u32, va: u64, v: u64) -> Part {
        loop {
            let Err(trap) = cpu.store(w, va, v) else { return Ok(()) };
            // Instructions that were decoded from its frame are forgotten now.
            if !cpu.take_store_to_code() {
                return Err(failed_access(cpu, trap));
            }
        }
    }

    /// Does `access` as the processor itself does: with the rights of the kernel, whatever level runs, and with SMAP, whatever
    /// RFLAGS.AC is (Intel SDM vol. 3, 4.6.1: implicit accesses).
    fn as_supervisor<T>(
        &mut self,
        cpu: &mut SystemCpu,
        access: impl FnOnce(&mut Self, &mut SystemCpu) -> T,
    ) -> T {
        let (privilege, paging) = (self.registers.privilege, cpu.bus().paging);
        self.registers.privilege = 0;
        go_to(cpu, Paging { user: false, access: false, ..paging });
        let result = access(self, cpu);
        self.registers.privilege = privilege;
        go_to(cpu, paging);
        result
    }

    /// Has code run with the bits that CS says, which was loaded.
    fn apply_code(&self, cpu: &mut SystemCpu) {
        cpu.set_narrow(self.registers.is_narrow());
    }

    /// Goes to another privilege level.
    fn set_privilege(&mut self, cpu: &mut SystemCpu, level: u8) {
        self.registers.privilege = level;
        let paging = Paging { user: level == 3, ..cpu.bus().paging };
        go_to(cpu, paging);
    }

    /// Writes RFLAGS whole.
    fn set_flags(&mut self, cpu: &mut SystemCpu, rflags: u64) {
        const AC: u64 = 1 << 18;
        let regs = x86::state::Regs { rflags, ..cpu.regs() };
        cpu.set_regs(&regs);
        let paging = Paging { access: rflags & AC != 0, ..cpu.bus().paging };
        go_to(cpu, paging);
    }
}

/// Has walks depend on this from now on, with the cached translations of its mode: of programs, of the kernel, or of the kernel with
/// SMAP lifted.
fn go_to(cpu: &mut SystemCpu, paging: Paging) {
    let before = std::mem::replace(&mut cpu.bus_mut().paging, paging);
    let (was_lifted, is_lifted) = (before.is_lifted(), paging.is_lifted());
    if was_lifted && !is_lifted {
        cpu.exchange_lifted_translations();
    }
    if before.user != paging.user {
        cpu.exchange_translations();
    }
    if is_lifted && !was_lifted {
        cpu.exchange_lifted_translations();
    }
}

/// An access that an instruction of the system made, and that failed.
fn failed_access(cpu: &mut SystemCpu, trap: Trap) -> Failure {
    if trap != Trap::Page {
        return plain(trap).into();
    }
    match cpu.bus_mut().take_device_access() {
        Some(access) => Failure::Refused(format!(
            "an instruction of the system reaches a device at {:#x} in memory",
            access.physical
        )),
        None => page_fault(cpu).into(),
    }
}

/// A physical address as an index. RAM is a slice, so addresses inside it fit.
#[expect(clippy::cast_possible_truncation, reason = "gretel runs on 64-bit hosts only")]
pub(crate) const fn index(address: u64) -> usize {
    address as usize
}
