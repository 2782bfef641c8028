//! Which events are listed.

use crate::events::shown::{Kind, failed};
use crate::exit::{Code, Failure};
use vmm::position::Position;
use vmm::process::happening::{Happening, What};
use vmm::syscalls;

/// What is wanted of a recording's events; without options, all.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Wanted {
    /// Only these kinds
    #[arg(long, value_name = "KIND", value_enum, value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Only system calls of these names
    #[arg(long = "call", value_name = "NAME", value_delimiter = ',', value_parser = number)]
    calls: Vec<u64>,
    /// Only what happened to these tasks; a process has the number of its first
    #[arg(long = "task", value_name = "ID", value_delimiter = ',')]
    tasks: Vec<i32>,
    /// Only system calls that returned an error
    #[arg(long)]
    failed: bool,
    /// Begin at this position, from the nearest checkpoint before it
    #[arg(long, value_name = "POSITION")]
    pub(super) from: Option<Position>,
    /// End behind this position
    #[arg(long, value_name = "POSITION")]
    to: Option<Position>,
}

/// What is wanted of a machine's events.
pub(crate) struct WantedOfMachine {
    /// Only these kinds, if there are any.
    kinds: Vec<Kind>,
    /// From where to where, in instructions.
    from: Option<u64>,
    to: Option<u64>,
}

impl WantedOfMachine {
    /// Whether a kind is wanted. Interrupts are so many that they are only counted where they are not asked for.
    pub(crate) fn has_kind(&self, kind: Kind) -> bool {
        if self.kinds.is_empty() { kind != Kind::Interrupt } else { self.kinds.contains(&kind) }
    }

    /// Whether what is there is to be listed.
    pub(crate) fn has_place(&self, instructions: u64) -> bool {
        self.from.is_none_or(|from| instructions >= from) && !self.is_behind(instructions)
    }

    /// Whether this place is behind all that is wanted.
    pub(crate) fn is_behind(&self, instructions: u64) -> bool {
        self.to.is_some_and(|to| instructions > to)
    }

    /// Whether everything is wanted, and so counts of it, too.
    pub(crate) fn is_all(&self) -> bool {
        self.kinds.is_empty() && self.from.is_none() && self.to.is_none()
    }
}

fn number(name: &str) -> Result<u64, String> {
    syscalls::number(name).ok_or_else(|| format!("no system call is called {name}"))
}

impl Wanted {
    /// Refuses what leaves nothing.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match (self.from, self.to) {
            (Some(from), Some(to)) if from > to => {
                Err(Failure::new(Code::Usage, format!("--from {from} is behind --to {to}")))
            }
            _ => Ok(()),
        }
    }

    /// The same of a machine, whose positions are counts of instructions.
    pub(super) fn of_machine(&self) -> Result<WantedOfMachine, Failure> {
        if self.failed || !self.calls.is_empty() || !self.tasks.is_empty() {
            let why = "--call, --task and --failed are for programs; this is a machine with a kernel";
            return Err(Failure::new(Code::Usage, why));
        }
        let instructions = |position: Option<Position>| match position {
            Some(Position { event, retired: 0 }) => Ok(Some(event)),
            None => Ok(None),
            Some(position) => {
                let why = format!("{position} is no position in a machine, which is a count of instructions");
                Err(Failure::new(Code::Usage, why))
            }
        };
        Ok(WantedOfMachine {
            kinds: self.kind.clone(),
            from: instructions(self.from)?,
            to: instructions(self.to)?,
        })
    }

    /// Whether this and all that follows is behind `--to`.
    pub(super) fn is_behind(&self, happening: &Happening) -> bool {
        self.to.is_some_and(|to| happening.position > to)
    }

    /// Whether it is to be listed.
    pub(super) fn has(&self, happening: &Happening) -> bool {
        let is_of_task = self.tasks.is_empty() || self.tasks.contains(&happening.task);
        let is_of_kind = match &happening.what {
            What::Call(call) => {
                (self.calls.is_empty() || self.calls.contains(&call.number))
                    && (!self.failed || failed(call.stage))
                    && (self.kind.is_empty() || self.kind.contains(&Kind::Syscall))
            }
            what => self.has_kind(Kind::of(what)),
        };
        is_of_task && is_of_kind && self.from.is_none_or(|from| happening.position >= from)
    }

    /// Whether the recording's end, which is at this position, is to be listed.
    pub(super) fn has_end(&self, end: Position) -> bool {
        self.tasks.is_empty() && self.has_kind(Kind::End) && self.from.is_none_or(|from| end >= from)
    }

    /// Whether a kind other than system calls is wanted.
    fn has_kind(&self, kind: Kind) -> bool {
        let of_calls_alone = self.failed || !self.calls.is_empty();
        if self.kind.is_empty() { !of_calls_alone } else { self.kind.contains(&kind) }
    }
}
