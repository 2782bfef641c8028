//! Linux programs as a guest: a machine, a kernel, and the loop between them.
//!
//! [`Process::step`] runs the processor to its next exit, [`exit::decide`] says what the exit means, and the process
//! carries that out. System calls, signals and tasks are [`crate::linux`].
//!
//! Example: RDTSC in the program was rewritten to UD2, and leaves the processor as an exception #UD. `decide` says
//! `Action::MachineRead`, [`machine_reads`] asks the gate for the time, and rdx:rax get it, with rip behind the
//! instruction. Then [`schedule`] delivers a signal or changes tasks where that is due, and the processor runs again.
//!
//! | part | modules |
//! | --- | --- |
//! | instructions carried out here | [`machine_reads`] (CPUID, RDTSC and their like, made deterministic), [`extended_state`] (XSAVE, XRSTOR), [`x87_pointers`] (FXSAVE and its like), [`selectors`] (LAR and its like), [`refused_call`] (the call of an address that is none), [`misjudged`] (#GP that KVM has made #UD of) |
//! | which processor runs | [`processors`], [`choice`] (the one that costs less), [`lent`] (the software CPU in place of KVM), [`kicker`] (the thread that interrupts it) |
//! | who runs next | [`schedule`] (before the processor runs again), [`preempt`] (a task interrupted between two instructions), [`spin`] (a task that waits by looking), [`turn`] (one turn of its loop), [`death`] (a signal delivered, a process ended), [`oom`] (a process killed for memory) |
//! | what time it is | [`clock_call`] (the vDSO asks where the program has computed for long), [`stretch`] (the thread that notices it) |
//! | the whole program as it was | [`checkpoint`], [`checkpoint_cost`] (what that costs the program), [`stored`] (as bytes), [`excursion`] (run from one, and back), [`digests`] |
//! | for who looks at it | [`happening`] (what is told), [`noted`] (what of that a debugger stops at), [`view`] and [`others`] (what can be asked of it, and of any process), [`trace`], [`profile`] |
//!
//! The name is that of the simplest case: one program. Its children are part of it; [`Process::pid`] says whose registers
//! are loaded.

pub mod checkpoint;
mod checkpoint_cost;
mod choice;
mod clock_call;
mod death;
mod digests;
mod excursion;
pub mod exit;
pub mod extended_state;
pub mod happening;
mod kicker;
mod lent;
pub mod machine_reads;
mod misjudged;
mod noted;
mod oom;
mod others;
mod preempt;
mod processors;
pub mod profile;
mod refused_call;
mod schedule;
mod selectors;
mod spin;
pub(crate) mod stored;
mod stretch;
mod trace;
mod turn;
mod view;
mod walked;
mod x87_pointers;

use crate::cpu_model::Model;
use crate::engine::{EngineError, Exception, Exit, Machine, Until};
pub use crate::failure::ProcessError;
use crate::gate::{AtExit, Event, Gate};
use crate::journal::schema::digest_executable;
use crate::linux::load::{self, Program};
use crate::linux::time_of_guest;
use crate::linux::{Guarded, Guest, Kernel, Spaces, Start};
use crate::memory::space::Access;
pub use crate::memory::{AddressSpace, MappingInfo, Rights};
pub use crate::position::comparable;
use crate::position::{ARITHMETIC_FLAGS, Position};
pub use crate::program::{Capabilities, Ids, Inherited, Interpreter, Launch, Parents, Streams};
use crate::ram::Virt;
pub use crate::signal::Death;
pub use checkpoint::Checkpoint;
pub(crate) use checkpoint_cost::CheckpointCost;
use choice::Choice;
use exit::{Action, decide};
use lbr::{Armed, crumb};
pub use noted::Noted;
use noted::Notes;
pub use others::Standing;
use preempt::Pace;
use profile::Profile;
use std::sync::Arc;
use std::time::Instant;
pub use trace::Tell;
use trace::Trace;
use walked::Walked;
use x86::state::{MxcsrMask, Regs};

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An exit was served; there is more to run.
    Running,
    /// The program ended with this status (0 to 255).
    Exited(i32),
    /// A signal ended it; the registers and the memory are those of that moment.
    Killed(Death),
    /// A signal ended a process, and there are others, or it was not the first. Its registers and memory are those of that
    /// moment until the next step.
    Died(Death),
    /// The processor was interrupted from outside.
    Interrupted,
    /// The bound of [`crate::engine::Until`] is reached.
    Budget,
}

/// A running program, with its children.
pub struct Process {
    machine: Machine,
    gate: Box<dyn Gate>,
    spaces: Spaces,
    /// The loaded address space.
    space: u32,
    kernel: Kernel,
    model: Model,
    /// What FXSAVE stores as MXCSR_MASK.
    mxcsr_mask: MxcsrMask,
    /// A digest of its first program.
    program: u64,
    /// What carries out FXSAVE and its like.
    room: x87_pointers::Room,
    /// The page fault that was served last, if nothing else happened since, and how often.
    faults: Option<(Exception, Regs, u32)>,
    /// The branch records of the processor, if they are to be of one task.
    records: Option<Armed>,
    /// How often a store found its page shared.
    copy_faults: u64,
    /// How often they were emptied because another task got the processor.
    emptied: u64,
    /// When tasks are preempted.
    pace: Pace,
    /// Which processor runs, where two take turns.
    choice: Option<Choice>,
    /// Where its time goes, if that is asked.
    profile: Option<Profile>,
    /// How many events had begun at the last that was served, and what had retired then.
    events: u64,
    retired_at_event: u64,
    /// The processor's counts do not begin with the program, but with a checkpoint of one that did not count.
    counts_late: bool,
    /// The process whose registers are loaded was ended by this signal, and is looked at.
    dying: Option<Death>,
    /// How the first process died, if a signal ended it before others.
    first_death: Option<Death>,
    /// Tells what happens, if somebody wants to know.
    trace: Option<Trace>,
    /// Of what a debugger may stop at.
    notes: Notes,
    /// How it ended.
    end: Option<Step>,
}

/// A page fault that is served as often as this, and comes again with nothing changed, would come for ever. Once is
/// enough for every engine; the rest is for those that fault without need.
const SAME_FAULTS: u32 = 100;

impl Process {
    /// Loads the program and stands at its first instruction.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(machine: Machine, gate: Box<dyn Gate>, launch: &Launch) -> Result<Process, ProcessError> {
        Process::start_with(machine, gate, launch, Streams::Inherited)
    }

    /// Loads the program with these standard streams; at replay there are none.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_with(
        mut machine: Machine,
        gate: Box<dyn Gate>,
        launch: &Launch,
        streams: Streams,
    ) -> Result<Process, ProcessError> {
        machine.cpu.require(launch.cpu)?;
        machine.cpu.set_mxcsr_mask(launch.mxcsr_mask);
        let program = digest_executable(&launch.executable);
        machine.cpu.expect_program(program);
        let choice = machine.kvm.take().map(Choice::new);
        let clock = time_of_guest();
        let executable = Arc::new(launch.executable.clone());
        let interpreter = launch.interpreter.as_ref();
        let interpreter = interpreter.map(|it| (it.path.as_str(), Arc::new(it.executable.clone())));
        let loaded = Program {
            path: &launch.path,
            name: &launch.name,
            executable: &executable,
            interpreter: interpreter.as_ref().map(|(path, file)| (*path, file)),
            argv: &launch.argv,
            envp: &launch.envp,
            random: launch.random,
            ids: launch.ids,
            cpu: launch.cpu,
            time: clock.page(),
        };
        let (space, regs) = load::load(&mut machine.memory, &loaded)?;
        let begin = Start::read(&space, &machine.memory, regs.gpr[4]);
        machine.cpu.set_page_table(space.root());
        machine.cpu.set_regs(&regs)?;
        machine.cpu.set_fpu(&x86::state::Fpu::default())?;
        if launch.memory != 0 && !gate.replaying() {
            machine.memory.frames_mut().set_limit(launch.memory);
        }
        let mut spaces = Spaces::default();
        let space = spaces.insert(space);
        let interrupter = machine.cpu.interrupter();
        let mut kernel = Kernel::new(launch, streams, gate.replaying(), interrupter, space, clock)?;
        kernel.begins_with(begin);
        let retired_at_event = machine.cpu.counters().map_or(0, |counters| counters.instructions);
        Ok(Process {
            machine,
            gate,
            spaces,
            space,
            kernel,
            model: launch.cpu,
            mxcsr_mask: launch.mxcsr_mask,
            program,
            room: None,
            faults: None,
            records: None,
            copy_faults: 0,
            emptied: 0,
            pace: Pace::default(),
            choice,
            profile: None,
            events: 0,
            retired_at_event,
            counts_late: false,
            dying: None,
            first_death: None,
            trace: None,
            notes: Notes::default(),
            end: None,
        })
    }

    /// Keeps the program from these files.
    pub(crate) fn guard(&mut self, files: Guarded) {
        self.kernel.guard(files);
    }

    /// Runs to the next exit, and serves it.
    ///
    /// # Errors
    /// When the program cannot go on.
    pub fn step(&mut self) -> Result<Step, ProcessError> {
        self.step_until(Until::Exit)
    }

    /// Runs to the next exit or bound, and serves it. A program that has ended stays as it is.
    ///
    /// # Errors
    /// When the program cannot go on.
    pub fn step_until(&mut self, until: Until) -> Result<Step, ProcessError> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        let before = self.profile.as_ref().map(|profile| (Instant::now(), profile.guest()));
        let step = match self.dying.take() {
            Some(death) => self.bury(death)?,
            None if self.waits() => self.wait()?,
            None => self.run(until)?,
        };
        if let (Some((start, guest)), Some(profile)) = (before, &mut self.profile) {
            profile.stepped(start.elapsed(), profile.guest() - guest);
        }
        if matches!(step, Step::Exited(_) | Step::Killed(_)) {
            self.end = Some(step);
        }
        Ok(step)
    }

    /// Begins an event of the loaded task.
    fn begin(&mut self, event: Event) -> Result<(), ProcessError> {
        let regs = *self.machine.cpu.regs();
        self.gate.begin(event, self.kernel.tasks.id(), &regs)?;
        self.at_event();
        Ok(())
    }

    /// Notes that an event has begun here.
    fn at_event(&mut self) {
        self.events += 1;
        self.kernel.event_begins();
        self.retired_at_event = self.retired();
        self.pace.segment_begins = true;
        self.pace.spin.segment_begins();
        let exactly = self.machine.cpu.counters().map(|counters| counters.conditional_branches);
        self.pace.counted_at_event = exactly.or(self.pace.counted);
        self.pace.signal_by = None;
    }

    fn retired(&self) -> u64 {
        self.machine.cpu.counters().map_or(0, |counters| counters.instructions)
    }

    /// Where it stands; on processors that do not count, right behind the last event.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { event: self.events, retired: self.retired().saturating_sub(self.retired_at_event) }
    }

    /// Whether the counts of a processor that counts begin behind the program's start.
    #[must_use]
    pub fn counts_late(&self) -> bool {
        self.counts_late
    }

    /// Serves an exit.
    fn serve_exit(&mut self, exit: Exit) -> Result<Step, ProcessError> {
        let exit = self.judged(exit)?;
        let rip = self.machine.cpu.regs().rip;
        let rewritten = matches!(exit, Exit::Exception(_)) && self.space().sites().contains(rip);
        let action = decide(exit, rip, rewritten);
        self.tell(&action);
        self.perform(action)
    }

    /// Tells the gate of an exit.
    fn tell(&mut self, action: &Action) {
        self.pace.counted = self.counts().conditional_branches;
        if let Some(exit) = action.crumb(self.machine.cpu.regs()) {
            self.leave_crumb(exit);
        }
    }

    /// Tells the gate why the loaded task does not go on.
    fn leave_crumb(&mut self, exit: crumb::Exit) {
        let counts = self.counts();
        let space = Walked::new(self.spaces.get(self.space), &self.machine.memory);
        self.gate.exit(&AtExit {
            exit,
            thread: self.kernel.tasks.id().unsigned_abs(),
            regs: self.machine.cpu.regs(),
            counts,
            space: &space,
        });
    }

    /// Carries out what an exit asks for.
    fn perform(&mut self, action: Action) -> Result<Step, ProcessError> {
        let faults = self.faults.take();
        match action {
            Action::Syscall => self.syscall(),
            Action::Touch { address, access, exception } => self.touch(address, access, exception, faults),
            Action::MachineRead => self.machine_read(),
            Action::Signal(death) => {
                if exit::is_32_bit_call(&death) {
                    self.kernel.report_32_bit_call();
                }
                if death.exception.is_some_and(|exception| exception.vector == exit::vector::GENERAL) {
                    self.store_refused_call()?;
                }
                self.fault(death)
            }
            Action::FloatingPoint(exception) => {
                let fpu = self.machine.cpu.fpu()?;
                let death = exit::floating_point(exception, self.machine.cpu.regs().rip, &fpu);
                self.fault(death)
            }
            Action::Stop(step) => Ok(step),
            Action::NoSemantics { bytes, len } => {
                let bytes = bytes[..usize::from(len).min(bytes.len())].iter();
                let bytes: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
                Err(ProcessError::NoSemantics { rip: self.machine.cpu.regs().rip, bytes: bytes.join(" ") })
            }
        }
    }

    /// Serves a page fault; where there is no memory for it, that comes first.
    fn touch(
        &mut self,
        address: Virt,
        access: Access,
        exception: Exception,
        before: Option<(Exception, Regs, u32)>,
    ) -> Result<Step, ProcessError> {
        if self.lacks_memory_for(address, access) {
            return self.give_way(before.map(|(_, at, _)| at));
        }
        let space = self.spaces.get_mut(self.space);
        let copied = self.machine.memory.copied();
        let left_alone = space.code_left_alone();
        let touched = match access {
            Access::Execute => space.fetch(&mut self.machine.memory, address, self.machine.cpu.regs().rip)?,
            _ => space.touch(&mut self.machine.memory, address, access)?,
        };
        if space.code_left_alone() > left_alone {
            self.kernel.report_code_left_alone();
        }
        self.copy_faults += u64::from(self.machine.memory.copied() > copied);
        match touched {
            Ok(()) => self.fault_served(exception, before),
            Err(refusal) => self.fault(exit::refused(refusal, exception)),
        }
    }

    /// Sees to it that the program gets on behind a page fault that was served.
    fn fault_served(
        &mut self,
        exception: Exception,
        before: Option<(Exception, Regs, u32)>,
    ) -> Result<Step, ProcessError> {
        let regs = *self.machine.cpu.regs();
        let same = before.filter(|(fault, at, _)| (fault, at) == (&exception, &regs));
        let times = same.map_or(1, |(_, _, times)| times + 1);
        if times > SAME_FAULTS {
            let engine = self.machine.cpu.kind().name();
            return Err(ProcessError::NoProgress {
                engine,
                rip: regs.rip,
                address: exception.address,
                times,
            });
        }
        self.faults = Some((exception, regs, times));
        Ok(Step::Running)
    }

    /// The registers at a system call, with the arithmetic flags cleared for good. Multiplications and shifts
    /// leave some of them undefined, which processors fill differently, and SYSCALL copies them to r11; to a
    /// program both are scratch, so clearing them is what keeps engines and hosts equal.
    fn defined_regs(&mut self) -> Result<(), EngineError> {
        let mut regs = comparable(self.machine.cpu.regs());
        regs.gpr[11] &= !ARITHMETIC_FLAGS;
        self.machine.cpu.set_regs(&regs)
    }

    /// An exception of the instruction at rip.
    fn raise(&mut self, vector: u8, error_code: u32, address: Virt) -> Result<Step, ProcessError> {
        let exception = Exception { vector, error_code, address };
        let rip = self.machine.cpu.regs().rip;
        self.perform(decide(crate::engine::Exit::Exception(exception), rip, false))
    }

    /// The personality, and what it works on.
    fn guest(&mut self) -> (&mut Kernel, Guest<'_>) {
        let guest = Guest {
            cpu: &mut *self.machine.cpu,
            memory: &mut self.machine.memory,
            spaces: &mut self.spaces,
            space: &mut self.space,
            gate: &mut *self.gate,
            model: self.model,
        };
        (&mut self.kernel, guest)
    }
}
