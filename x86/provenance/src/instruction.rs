//! Running one instruction for what its results are made of.

use crate::byte::Byte;
use crate::machine::Tracer;
use crate::origin::{Id, Origin};
use crate::repeat::Copying;
use iced_x86::Instruction;
use std::collections::BTreeMap;
use x86::machine::{Flow, Handler, Machine, MachineRead, Trap};
use x86::op::{Op, Rep};
use x86::sem::string::any_left;
use x86::state::{Fpu, Regs};
use x86::table;

/// So many elements of a comparing string instruction are done one by one.
const LONGEST: u64 = 1 << 20;

/// Memory as it is before an instruction.
pub trait Memory {
    /// Reads bytes; false if not all are there.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// Whether the program may write a byte.
    fn may_write(&self, address: u64) -> bool;
}

/// The state before an instruction.
#[derive(Clone, Copy)]
pub struct Before<'a> {
    /// Integer registers.
    pub regs: &'a Regs,
    /// x87 and vector registers.
    pub fpu: &'a Fpu,
    /// Memory.
    pub memory: &'a dyn Memory,
}

/// Why an instruction did not retire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trapped {
    /// The trap.
    pub trap: Trap,
    /// The address that it tried, if that is why.
    pub address: Option<u64>,
    /// What that address, or the condition of the trap, is made of.
    pub origin: Origin,
}

/// Why nothing can be said of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untraced {
    /// It has no semantics here.
    NoSemantics,
    /// It reads the machine: its results come from nowhere in the state.
    MachineRead(MachineRead),
    /// It is a system call: the kernel writes.
    Syscall,
    /// It traps.
    Trapped(Box<Trapped>),
    /// It is a comparing string instruction with very many elements.
    TooLong,
}

/// What an instruction writes, and what that is made of.
#[derive(Clone, Debug, Default)]
pub struct Provenance {
    /// The bytes that it writes, with their new values. Of those that were asked for, if it is a copying string instruction.
    pub written: BTreeMap<Byte, (u8, Origin)>,
    /// Where control goes from it, if it is a branch: what that is made of.
    pub target: Option<Origin>,
}

/// Says of an instruction what its results are made of. `asked` are the bytes of interest: all others may be missing where there are
/// very many.
///
/// # Errors
/// When nothing can be said.
pub fn trace(instruction: &Instruction, before: Before<'_>, asked: &[Byte]) -> Result<Provenance, Untraced> {
    if let Some(read) = x86::decode::machine_read(instruction) {
        return Err(Untraced::MachineRead(read));
    }
    let (handler, op) = table::lookup::<Tracer<'_>>(instruction).ok_or(Untraced::NoSemantics)?;
    let mut machine = Tracer::new(before);
    let segment = machine.segment_base(op.mem.segment).bits;
    if let (Handler::Last(..), Some(copying)) = (&handler, Copying::of(&op, before, segment)) {
        let origins = &machine.values.origins;
        if let Some(trapped) = copying.trap(origins) {
            return Err(Untraced::Trapped(Box::new(trapped)));
        }
        let written = asked
            .iter()
            .filter_map(|byte| copying.becomes(*byte, origins).map(|it| (*byte, it)))
            .map(|(byte, (value, id))| (byte, (value, (*origins.get(id)).clone())))
            .collect();
        return Ok(Provenance { written, target: None });
    }
    let ran = run(handler, &op, &mut machine);
    if let Some(trapped) = machine.trapped.take() {
        return Err(Untraced::Trapped(Box::new(trapped)));
    }
    let ran = ran?;
    let (values, written) = machine.finish(ran.because);
    let origin = |id: Id| (*values.origins.get(id)).clone();
    let written = written.into_iter().map(|(byte, (value, id))| (byte, (value, origin(id)))).collect();
    Ok(Provenance { written, target: ran.target.map(origin) })
}

/// What is known of an instruction besides what it writes.
#[derive(Default)]
struct Ran {
    /// What the target of a branch, or whether it is taken, is made of.
    target: Option<Id>,
    /// What chose how often it was repeated.
    because: Id,
}

/// Runs it.
fn run<'a>(handler: Handler<Tracer<'a>>, op: &Op, machine: &mut Tracer<'a>) -> Result<Ran, Untraced> {
    let trapped = |trap| {
        let origin = Origin::default();
        Untraced::Trapped(Box::new(Trapped { trap, address: None, origin }))
    };
    let last = match handler {
        Handler::Body(body) => return body(machine, op).map(|()| Ran::default()).map_err(trapped),
        Handler::Last(last, _) => last,
    };
    let mut because = Id::CONSTANT;
    if op.rep != Rep::None {
        let any = any_left(machine, op);
        if !any.holds {
            return Ok(Ran::default());
        }
        because = any.from;
    }
    for _ in 0..LONGEST {
        let target = match last(machine, op).map_err(trapped)? {
            Flow::Jump(to) => machine.d().origins.made(to.from),
            Flow::Branch { taken, .. } => taken.from,
            Flow::Repeat { again } => {
                because = machine.d().origins.made([because, again.from]);
                if again.holds {
                    continue;
                }
                return Ok(Ran { target: None, because });
            }
            Flow::Syscall => return Err(Untraced::Syscall),
            Flow::MachineRead(read) => return Err(Untraced::MachineRead(read)),
        };
        return Ok(Ran { target: Some(target), because });
    }
    Err(Untraced::TooLong)
}
