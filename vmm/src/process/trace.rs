//! Telling what happens to a program ([`super::happening`]), as it happens: `gretel record --trace`, `gretel events`.

use super::happening::{Call, Happening, Stage, What};
use super::machine_reads::{Kind, Read};
use super::{Noted, Process};
use crate::linux::Outcome;
use crate::ram::Virt;
use crate::syscalls::show::Line;
use std::collections::BTreeMap;
use x86::machine::MachineRead;

/// Is told of everything that happens.
pub type Tell = Box<dyn FnMut(&Happening)>;

/// What the kernel has a call return that is to begin again behind a signal's handler (ERESTARTSYS).
const BEGINS_AGAIN: u64 = 512_u64.wrapping_neg();

/// Who is told, and what of.
pub(super) struct Trace {
    tell: Tell,
    /// The calls that have not returned, by task.
    begun: BTreeMap<i32, Begun>,
}

/// A call that has not returned.
struct Begun {
    number: u64,
    arguments: [u64; 6],
    line: Line,
    /// It has waited, and that was told.
    waited: bool,
}

impl Process {
    /// Tells of everything that happens from now on.
    pub fn trace(&mut self, tell: Tell) {
        self.trace = Some(Trace { tell, begun: BTreeMap::new() });
    }

    /// Tells nobody any more.
    pub fn trace_no_more(&mut self) {
        self.trace = None;
    }

    /// Something has happened to the loaded task; `what` is not called if nobody wants to know.
    pub(super) fn happened(&mut self, what: impl FnOnce(&Process) -> What) {
        let Some(mut trace) = self.trace.take() else { return };
        (trace.tell)(&self.happening(what(self)));
        self.trace = Some(trace);
    }

    fn happening(&self, what: What) -> Happening {
        // Of two that take turns, neither has counted all.
        let counts_all = !self.counts_late && !self.takes_turns();
        let counters = self.machine.cpu.counters().filter(|_| counts_all);
        Happening {
            position: self.position(),
            pid: self.kernel.pid(),
            task: self.kernel.tasks.id(),
            time: self.kernel.now(),
            instructions: counters.map(|counters| counters.instructions),
            what,
        }
    }

    /// The loaded task begins a call.
    pub(super) fn call_begins(&mut self) {
        let Some(mut trace) = self.trace.take() else { return };
        trace.begun.insert(self.kernel.tasks.id(), self.begun(false));
        self.trace = Some(trace);
    }

    /// The call at which the loaded task stands.
    fn begun(&self, waited: bool) -> Begun {
        let (number, arguments) = self.call();
        let read = |at: Virt, bytes: &mut [u8]| self.read_memory(at, bytes);
        Begun { number, arguments, line: Line::begin(number, arguments, &read), waited }
    }

    /// The call of a task, which was loaded when it was served, has come to something.
    pub(super) fn call_comes_to(&mut self, task: i32, outcome: Outcome) {
        let Some(mut trace) = self.trace.take() else { return };
        let read = |at: Virt, bytes: &mut [u8]| self.read_memory(at, bytes);
        // One that waited before anybody was told is as good as begun here.
        let begun = trace.begun.remove(&task).unwrap_or_else(|| self.begun(true));
        let result = match outcome {
            Outcome::Return(value) => value,
            _ => 0,
        };
        let (stage, line) = match (outcome, begun.waited) {
            (Outcome::Return(_) | Outcome::Resumed, true) => {
                (Stage::Resumed(result), begun.line.resume(result, &read))
            }
            (Outcome::Return(_) | Outcome::Resumed, false) => {
                (Stage::Whole(result), begun.line.finish(result, &read))
            }
            (Outcome::Waits, true) => (Stage::Again, begun.line.waits_on()),
            (Outcome::Waits, false) => (Stage::Begun, begun.line.unfinished()),
            (Outcome::Exit(_) | Outcome::TaskEnded, _) => (Stage::Never, begun.line.never()),
        };
        let (number, arguments) = (begun.number, begun.arguments);
        let told = self.happening(What::Call(Call { number, arguments, stage, line }));
        if outcome == Outcome::Waits {
            trace.begun.insert(task, Begun { waited: true, ..begun });
        }
        (trace.tell)(&told);
        self.trace = Some(trace);
    }

    /// A signal has ended the wait of the loaded task's call, which stood behind `rip`.
    pub(super) fn call_is_interrupted(&mut self, rip: Virt) {
        let regs = self.machine.cpu.regs();
        let value = if regs.rip == rip { regs.gpr[0] } else { BEGINS_AGAIN };
        self.call_comes_to(self.kernel.tasks.id(), Outcome::Return(value));
    }

    /// A call has started tasks, if there were fewer before, or another program in the place of its own.
    pub(super) fn tell_what_began(&mut self, started_before: u64, outcome: Outcome, number: u64) {
        if self.kernel.tasks.started() > started_before {
            self.note_start();
            self.happened(|process| {
                let (task, pid) = process.kernel.tasks.newest();
                What::Started { task, pid }
            });
        }
        let executes = [libc::SYS_execve, libc::SYS_execveat].contains(&number.cast_signed());
        if executes && outcome == Outcome::Resumed {
            self.note(Noted::Executed(self.kernel.pid()));
            self.happened(|process| {
                let (path, arguments) = process.kernel.command();
                What::Executed { path: path.to_bytes().to_vec(), arguments: arguments.to_vec() }
            });
        }
    }

    /// A machine read is carried out with this value from outside, if it needs one.
    pub(super) fn tell_of_read(&mut self, read: &Read, value: Option<u64>) {
        self.happened(|process| {
            let [leaf, subleaf] = [0, 1].map(|register| process.cpu().regs().gpr[register] & 0xffff_ffff);
            let instruction = match read.kind {
                Kind::Machine(MachineRead::Cpuid) => format!("cpuid (eax={leaf:#x}, ecx={subleaf:#x})"),
                _ => read.instruction().to_string(),
            };
            What::MachineRead { instruction, value }
        });
    }
}
