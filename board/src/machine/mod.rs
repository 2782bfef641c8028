//! The machine: a processor, its system side, its devices, and the loop that runs them.
//!
//! [`Machine::run`] goes on to a number of instructions and says where it stands: there, halted, or at the end. It does the same each
//! time from the same state; what is not its own doing comes from outside between two calls, and is given to it
//! ([`Machine::take_in`]) or waited for ([`Machine::wait_until`]). `state` is all that it is made of, and how that is taken and put back; `seen` is how a
//! debugger has it stop; `code` what is compiled; [`happening`] what a list of events has, `exceptions` and `exits` the newest of these; `inputs` what it takes
//! from outside and gives there. Example: a kernel halts for 4 ms. `run` returns
//! [`Pause::Idle`], whoever drives it waits, types a byte 1 ms later, and runs on: the interrupt of COM1 is the next thing that the kernel sees.

mod code;
mod debug;
mod exceptions;
mod exits;
pub mod happening;
mod inputs;
mod seen;
mod state;

use crate::boot::{BootError, Booted, Setup, boot};
use crate::devices::disk::Image;
use crate::devices::virtio::Dma;
use crate::devices::{Devices, Ended, Sent};
use crate::memory::{Dirty, PAGE};
use debug::Breakpoints;
pub use exceptions::Exception;
use exceptions::Exceptions;
use exits::Exits;
use happening::{Happening, What};
use lbr::crumb::Exit;
pub(crate) use seen::Look;
pub use seen::Seen;
pub use state::Digests;
use std::collections::BTreeSet;
use std::path::PathBuf;
use x86::guard::Watched;
use x86::interpreter::{Stop, Until};
use x86::state::Regs;
use x86_jit::{Jit, Tuning};
use x86_system::memory::DeviceAccess;
use x86_system::{Next, Physical, Refused, Registers, System, SystemCpu};

/// A moment: what has retired, and the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Instructions.
    pub retired: u64,
    /// Nanoseconds.
    pub time: u64,
}

/// How a machine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It switched itself off.
    PowerOff,
    /// It reset itself.
    Reset,
    /// It ended with a status, by the port of isa-debug-exit.
    Exit(u32),
    /// The kernel panicked; the reason that it gave.
    Panic(String),
    /// An exception in the delivery of a double fault, here.
    TripleFault(u64),
    /// It halted with interrupts off.
    Halted,
    /// The guest does what the machine does not serve.
    Refused(Refused),
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// At the number of instructions that was asked for.
    There,
    /// Halted, until a timer at this time if there is one.
    Idle(Option<u64>),
    /// The machine has ended.
    Ended(End),
    /// At something that was looked for.
    Seen(Seen),
}

/// A place in a run: between two of them an instruction has retired, or an exception or interrupt was delivered, or both. Later ones are
/// greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Instructions.
    pub retired: u64,
    /// Exceptions and interrupts.
    pub delivered: u64,
}

impl Position {
    /// Where so many instructions have retired first.
    #[must_use]
    pub const fn at(retired: u64) -> Position {
        Position { retired, delivered: 0 }
    }
}

/// DR6.BS: the CPU steps.
const STEP: u64 = 1 << 14;
/// So many exceptions and interrupts may come one after another without an instruction that retires.
const MOST_IN_A_ROW: u64 = 1 << 16;

/// A machine.
pub struct Machine {
    processor: Jit<Physical>,
    /// Where compiled code is kept for the next machine.
    code_file: Option<PathBuf>,
    system: System,
    devices: Devices,
    is_halted: bool,
    end: Option<End>,
    /// Frames that devices have written since the digest before.
    by_devices: BTreeSet<u64>,
    /// What has changed up to that digest, and nobody has saved yet.
    unsaved: Dirty,
    /// What the guest has armed.
    breakpoints: Breakpoints,
    /// Data that a debugger looks for.
    looked_for: Vec<Watched>,
    /// What has happened, if somebody observes.
    happenings: Option<Vec<Happening>>,
    /// What the guest has sent, if somebody takes it.
    sent: Option<Sent>,
    /// The newest exceptions that instructions have raised.
    exceptions: Exceptions,
    /// The newest exits.
    exits: Exits,
    /// Where as many instructions had retired as now, before anything was delivered there.
    progress: Position,
    /// What had been delivered where the loop was last.
    delivered: u64,
}

impl Machine {
    /// A machine before the first instruction of its kernel.
    ///
    /// # Errors
    /// When the kernel is none, or does not fit.
    pub fn boot(setup: &Setup) -> Result<Machine, BootError> {
        Machine::tuned(setup, Some(Tuning::default()))
    }

    /// The same that compiles as `tuning` says; with `None` never.
    ///
    /// # Errors
    /// As [`Machine::boot`].
    pub fn tuned(setup: &Setup, tuning: Option<Tuning>) -> Result<Machine, BootError> {
        let Booted { cpu, system, devices, written } = boot(setup)?;
        let unsaved = Dirty { frames: written, ..Dirty::default() };
        let processor = Jit::new(cpu, tuning);
        Ok(Machine {
            processor,
            code_file: None,
            system,
            devices,
            is_halted: false,
            end: None,
            by_devices: BTreeSet::new(),
            unsaved,
            breakpoints: Breakpoints::default(),
            looked_for: Vec::new(),
            happenings: None,
            sent: None,
            exceptions: Exceptions::default(),
            exits: Exits::default(),
            progress: Position::default(),
            delivered: 0,
        })
    }

    /// What has retired, and the time.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let mut clock = self.devices.clock;
        clock.retire_to(self.cpu().retired());
        Moment { retired: self.cpu().retired(), time: clock.now() }
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { retired: self.cpu().retired(), delivered: self.system.delivered }
    }

    /// Runs until so many instructions have retired since the start, or until it halts or ends.
    pub fn run(&mut self, until: u64) -> Pause {
        self.run_looking(Position::at(until), &Look::default())
    }

    /// Runs to a position, or until it halts or ends, or to what is looked for.
    pub(crate) fn run_looking(&mut self, until: Position, look: &Look) -> Pause {
        loop {
            if let Some(end) = &self.end {
                return Pause::Ended(end.clone());
            }
            let here = self.position();
            self.devices.clock.retire_to(here.retired);
            if here >= until {
                return Pause::There;
            }
            if self.is_stuck(here) {
                let what = "exceptions one after another, whose handlers raise them again".to_owned();
                self.end = Some(End::Refused(Refused { at: self.cpu().rip(), what }));
                continue;
            }
            // What is left where as many have retired are deliveries.
            let bound = until.retired.max(here.retired + 1);
            let stepped = self.step(bound, look);
            self.note_exception();
            match stepped {
                Ok(None) => {}
                Ok(Some(pause)) => return pause,
                Err(end) => self.end = Some(end),
            }
            if look.has_code(self.cpu().rip()) && self.position() != here && self.end.is_none() {
                return Pause::Seen(Seen::Code(self.cpu().rip()));
            }
        }
    }

    /// Whether exceptions come without an end before an instruction retires: a processor would go on like that for ever, and nothing that is
    /// typed, nor the end of a recording, would come in between.
    fn is_stuck(&mut self, here: Position) -> bool {
        if here.retired != self.progress.retired {
            // What a turn of the loop delivers comes behind what retires in it: a run that pauses in between has the same place.
            self.progress = Position { delivered: self.delivered, ..here };
        }
        self.delivered = here.delivered;
        here.delivered.saturating_sub(self.progress.delivered) > MOST_IN_A_ROW
    }

    /// Halts until a time, if it halts now: the next timer's or one before it.
    pub fn wait_until(&mut self, time: u64) {
        self.devices.clock.skip_to(time);
    }

    /// Has its disk, if it has one, begin with a copy of the image that it began with.
    pub fn set_disk_image(&mut self, copy: Image) {
        self.devices.disk.iter_mut().for_each(|disk| disk.set_image(copy.clone()));
    }

    /// What the guest has printed since this was called last.
    pub fn take_printed(&mut self) -> Vec<u8> {
        self.devices.take_printed()
    }

    /// Whether there is any.
    #[must_use]
    pub fn has_printed(&self) -> bool {
        self.devices.has_printed()
    }

    /// The integer registers, and those of the system.
    pub(crate) fn registers(&self) -> (Regs, &Registers) {
        (self.cpu().regs(), &self.system.registers)
    }

    /// All memory.
    #[must_use]
    pub fn ram(&self) -> &[u8] {
        self.cpu().bus().ram()
    }

    fn cpu(&self) -> &SystemCpu {
        self.processor.cpu()
    }

    /// Takes an interrupt, or runs to the next thing that has to be served, and serves it.
    fn step(&mut self, until: u64, look: &Look) -> Result<Option<Pause>, End> {
        if self.devices.wants_memory() {
            self.serve_memory()?;
        }
        self.devices.advance();
        if let Some(ended) = self.devices.ended() {
            return Err(ended.into());
        }
        if self.devices.has_nmi() && self.system.takes_nmi(self.cpu()) {
            return self.nmi().map(|()| None);
        }
        let interrupting = self.devices.is_interrupting();
        if interrupting && self.system.takes_interrupts(self.cpu()) {
            return self.interrupt().map(|()| None);
        }
        if self.is_halted {
            return self.idle().map(Some);
        }
        if let Some(causes) = self.meets_instruction() {
            return self.debug_exception(causes).map(|()| None);
        }
        let (before, retired) = (self.position(), self.cpu().retired());
        let stepping = self.system.steps(self.cpu());
        // One that is blocked waits for IRET, which ends the run.
        let waits_for_one = self.devices.has_nmi() && !self.system.registers.blocks_nmi;
        let is_shielded = waits_for_one || interrupting && self.system.is_shielded(self.cpu());
        let bound = match self.devices.due() {
            _ if stepping || is_shielded => retired + 1,
            Some(due) => until.min(self.devices.clock.retired_at(due).max(retired + 1)),
            None => until,
        };
        let guard = &mut self.processor.cpu_mut().bus_mut().guard;
        guard.set_up(guard.is_needed());
        let armed = self.breakpoints.has_code().then(|| self.breakpoints.and_code(&look.code));
        let at = armed.as_ref().unwrap_or(&look.code);
        let stop = self.processor.run(Until { instructions: bound, at }, &mut ());
        let guard = &mut self.processor.cpu_mut().bus_mut().guard;
        guard.set_up(false);
        if guard.take_stopped() {
            return self.run_guarded(look);
        }
        self.serve(&stop)?;
        if stepping { self.end_step(&stop, before, STEP).map(|()| None) } else { Ok(None) }
    }

    /// Lets devices reach memory.
    fn serve_memory(&mut self) -> Result<(), End> {
        let (cpu, mut written) = (self.processor.cpu_mut(), BTreeSet::new());
        let mut memory = Dma { ram: cpu.bus_mut().ram_mut(), written: &mut written };
        let served = self.devices.reach_memory(&mut memory);
        written.iter().for_each(|frame| cpu.written(*frame, PAGE as u64));
        let at = cpu.rip();
        self.by_devices.extend(written);
        self.devices.take_requests().into_iter().for_each(|request| self.happens(What::Disk(request)));
        let sent = served.map_err(|error| {
            let what = format!("the image of its disk cannot be read: {error}");
            End::Refused(Refused { at, what })
        })?;
        self.take_out(sent);
        Ok(())
    }

    fn interrupt(&mut self) -> Result<(), End> {
        let Some(vector) = self.devices.take_interrupt() else { return Ok(()) };
        self.is_halted = false;
        self.leave_exit(Exit::Interrupt { vector });
        self.happens(What::Interrupt(vector));
        let next = self.system.interrupt(self.processor.cpu_mut(), vector);
        self.go_on(next)
    }

    fn nmi(&mut self) -> Result<(), End> {
        const VECTOR: u8 = 2;
        self.devices.take_nmi();
        self.is_halted = false;
        self.leave_exit(Exit::Interrupt { vector: VECTOR });
        self.happens(What::Interrupt(VECTOR));
        let next = self.system.nmi(self.processor.cpu_mut());
        self.go_on(next)
    }

    /// Halted: a panic that halts, or nothing that could wake it, is the end.
    fn idle(&self) -> Result<Pause, End> {
        const INTERRUPTS: u64 = 1 << 9;
        if self.cpu().regs().rflags & INTERRUPTS != 0 {
            return Ok(Pause::Idle(self.devices.due()));
        }
        Err(self.devices.panic().map_or(End::Halted, |reason| End::Panic(reason.to_owned())))
    }

    /// Serves what ended a run.
    fn serve(&mut self, stop: &Stop) -> Result<(), End> {
        self.devices.clock.retire_to(self.cpu().retired());
        if let Stop::Syscall = stop {
            let number = self.cpu().regs().gpr[0];
            self.leave_exit(Exit::Syscall { number });
        }
        let next = self.system.serve(self.processor.cpu_mut(), stop, &mut self.devices);
        self.arm_anew();
        self.go_on(next)
    }

    /// Behind an instruction that began at `before`, for these bits of DR6: the debug exception, if it has retired. One that has led to a
    /// handler has none, and neither has SYSCALL.
    fn end_step(&mut self, stop: &Stop, before: Position, causes: u64) -> Result<(), End> {
        let has_retired = self.position() == Position { retired: before.retired + 1, ..before };
        if !has_retired || matches!(stop, Stop::Syscall) || self.system.holds_steps(self.cpu()) {
            return Ok(());
        }
        self.debug_exception(causes)
    }

    fn debug_exception(&mut self, causes: u64) -> Result<(), End> {
        self.is_halted = false;
        let next = self.system.debug_exception(self.processor.cpu_mut(), causes);
        self.arm();
        self.go_on(next)
    }

    fn go_on(&mut self, next: Result<Next, Refused>) -> Result<(), End> {
        match next.map_err(End::Refused)? {
            Next::Run => Ok(()),
            Next::Halt => {
                self.is_halted = true;
                Ok(())
            }
            Next::Device(access) => self.access(access),
            Next::Shutdown => Err(match self.devices.panic() {
                Some(reason) => End::Panic(reason.to_owned()),
                None => End::TripleFault(self.cpu().rip()),
            }),
        }
    }

    /// Runs the instruction at rip with a device in its memory.
    fn access(&mut self, access: DeviceAccess) -> Result<(), End> {
        let value = self.devices.load(access.physical);
        let cpu = self.processor.cpu_mut();
        cpu.bus_mut().open_window(access, value);
        let before = cpu.retired();
        let stop = self.processor.run(Until::retired(before + 1), &mut ());
        let cpu = self.processor.cpu_mut();
        let written = cpu.bus_mut().close_window(access);
        self.devices.clock.retire_to(cpu.retired());
        if access.is_store && cpu.retired() > before {
            self.devices.store(access.physical, written);
        }
        if matches!(stop, Stop::Budget) {
            return Ok(());
        }
        match self.system.serve(self.processor.cpu_mut(), &stop, &mut self.devices) {
            Ok(Next::Device(_)) => {
                let what = "code in the memory of a device".to_owned();
                Err(End::Refused(Refused { at: self.cpu().rip(), what }))
            }
            next => self.go_on(next),
        }
    }
}

impl From<Ended> for End {
    fn from(ended: Ended) -> End {
        match ended {
            Ended::PowerOff => End::PowerOff,
            Ended::Reset => End::Reset,
            Ended::Exit(status) => End::Exit(status),
            Ended::Panic(reason) => End::Panic(reason),
        }
    }
}
