//! A machine at a position of its recording, as `gretel replay --to` shows it: `gretel core --at` without the stack and the log.

use super::core::of_place;
use super::{seconds, sentence};
use crate::core_file::{REGISTERS, hex};
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::print;
use crate::{Outcome, sandbox};
use board::Machine;
use board::journal::End;
use board::linux::Linux;
use board::linux::tasks::Task;
use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;
use vmm::position::Position;
use vmm::recording::Recording;

/// What a machine is at a moment.
struct Moment {
    /// Instructions that have retired.
    retired: u64,
    /// Exceptions and interrupts that were delivered.
    delivered: u64,
    nanoseconds: u64,
    /// The privilege level.
    ring: u8,
    registers: Vec<(&'static str, u64)>,
    control: [(&'static str, u64); 5],
    /// Of Linux: what runs, and where in the kernel.
    task: Option<Task>,
    function: Option<String>,
    end: Option<End>,
}

/// Goes to a position, which is a count of instructions, and shows the machine there.
pub(crate) fn show(recording: &Recording, to: Position, as_json: bool) -> Outcome {
    if to.retired != 0 {
        let why = format!("a machine's position is a count of instructions, not `{to}`");
        return Err(Failure::new(Code::Usage, why));
    }
    let to = to.event;
    sandbox::enter();
    let (travel, damage) = super::subject::travel(recording, Some(to))?;
    let moment = Moment::of(travel.machine(), travel.ended());
    if as_json {
        print(format_args!("{}\n", moment.as_json()))?;
    } else {
        print(format_args!("{moment}"))?;
    }
    damage.iter().for_each(|damage| say!("gretel: {damage}"));
    if moment.retired == to {
        return Ok(ExitCode::SUCCESS);
    }
    if moment.retired < to {
        say!("gretel: the recording ends at {}, before {to}", moment.retired);
    } else {
        say!("gretel: the recording begins at {}, behind {to}", moment.retired);
    }
    Ok(Code::Damaged.into())
}

impl Moment {
    fn of(machine: &Machine, end: Option<&End>) -> Moment {
        let (regs, system) = (machine.regs(), machine.system_registers());
        let general = REGISTERS.into_iter().zip(regs.gpr);
        let rest = [
            ("rip", regs.rip),
            ("rflags", regs.rflags),
            ("fs_base", regs.fs_base),
            ("gs_base", regs.gs_base),
        ];
        let description = machine.description();
        let linux = description.as_deref().and_then(|description| Linux::new(machine, description).ok());
        let place = linux
            .as_ref()
            .and_then(|linux| linux.symbols().ok()?.place(regs.rip))
            .filter(|_| system.privilege == 0);
        Moment {
            retired: machine.position().retired,
            delivered: machine.position().delivered,
            nanoseconds: machine.moment().time,
            ring: system.privilege,
            registers: general.chain(rest).collect(),
            control: [
                ("cr0", system.cr0),
                ("cr2", system.cr2),
                ("cr3", system.cr3),
                ("cr4", system.cr4),
                ("efer", system.efer),
            ],
            task: linux.as_ref().and_then(|linux| linux.task(0).ok()),
            function: place.as_ref().map(of_place),
            end: end.cloned(),
        }
    }

    /// The same for scripts.
    fn as_json(&self) -> Value {
        let named = |all: &[(&'static str, u64)]| -> Value {
            let all = all.iter().map(|(name, value)| ((*name).to_owned(), hex(*value)));
            all.collect::<serde_json::Map<_, _>>().into()
        };
        json!({
            "position": self.retired.to_string(),
            "instructions": self.retired,
            "delivered": self.delivered,
            "nanoseconds": self.nanoseconds,
            "ring": self.ring,
            "task": self.task.as_ref().map(|it| json!({ "id": it.id, "process": it.process, "name": it.name })),
            "function": self.function,
            "registers": named(&self.registers),
            "control": named(&self.control),
            "ended": self.end.is_some(),
        })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "position {}: ring {}, ", self.retired, self.ring)?;
        write!(f, "{} exceptions and interrupts, ", self.delivered)?;
        write!(f, "{} s by the guest's clock", seconds(self.nanoseconds))?;
        match &self.end {
            Some(end) => writeln!(f, ", at the recording's end: {}", sentence(end))?,
            None => writeln!(f)?,
        }
        if let Some(task) = &self.task {
            writeln!(f, "task {}: {}", task.id, task.name)?;
        }
        if let Some(function) = &self.function {
            writeln!(f, "at {function}")?;
        }
        for row in self.registers.chunks(4).chain(self.control.chunks(4)) {
            let cells = row.iter().map(|(name, value)| format!("{name:<7} {value:016x}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
