//! What of an instruction does not depend on the point of the past at which it runs.

use super::machine::{StepMachine, Written};
use super::snapshot::{CONTROL_WIDTHS, Snapshot, Vectors};
use crate::term::Terms;
use iced_x86::{Instruction, Mnemonic};
use std::rc::Rc;
use x86::machine::{Body, Exec, FlowOf, Handler, Last};
use x86::op::{BranchKind, Loc, Op};

/// How an instruction is run backwards.
#[derive(Clone, Copy)]
pub enum Effect {
    /// It falls through.
    Body(Body<StepMachine>),
    /// It ends a block.
    Last(Last<StepMachine>),
    /// It does nothing: a repeated string instruction whose count is zero.
    Skip,
    /// The kernel runs in between.
    Syscall,
    /// It asks of what is outside of the processor: a kernel's RDTSC, RDTSCP, IN.
    Asks,
    /// No instruction: another thread had the processor before. The instruction is that at which this one stood.
    Switch,
    /// No instruction: a signal was delivered. The instruction is that before which it came.
    Signal,
    /// The search does not go past it: no semantics, it reads the machine, or it always traps.
    Barrier(&'static str),
}

/// An instruction of the program, ready to be prepended to a path.
#[derive(Clone, Copy)]
pub struct Prepared {
    /// As decoded.
    pub instruction: Instruction,
    /// As the semantics sees it.
    pub op: Op,
    /// How it runs.
    pub effect: Effect,
    /// Its kind in a branch record when it is taken.
    pub branch: Option<BranchKind>,
    /// What it writes.
    pub written: Written,
    /// What it adds to the x87 TOP, modulo 8.
    pub top_change: u8,
    /// Whether another thread of the program may get the processor here: a system call, or PAUSE.
    pub yields: bool,
    /// Whether it makes TOP zero, as MMX does, or restores it: that it was the same before is assumed.
    pub assumes_top: bool,
}

impl Prepared {
    /// Prepares `instruction`: looks its semantics up and runs it once on unknowns to see what it writes.
    #[must_use]
    pub fn new(terms: &Rc<Terms>, instruction: Instruction) -> Prepared {
        let mut prepared = Prepared {
            instruction,
            op: x86::decode::op(&instruction),
            effect: Effect::Barrier("no semantics"),
            branch: None,
            written: Written::default(),
            top_change: 0,
            yields: matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Pause),
            assumes_top: false,
        };
        let Some((handler, op)) = x86::table::lookup::<StepMachine>(&instruction) else {
            return prepared;
        };
        prepared.op = op;
        prepared.assumes_top = instruction.mnemonic() == Mnemonic::Emms || has_mmx(&op);
        let before = terms.mark();
        let mut machine = StepMachine::new(Rc::clone(terms), unknown(terms));
        let ran: Exec<Option<FlowOf<StepMachine>>> = match handler {
            Handler::Body(body) => {
                prepared.effect = Effect::Body(body);
                body(&mut machine, &op).map(|()| None)
            }
            Handler::Last(last, branch) => {
                prepared.effect = Effect::Last(last);
                prepared.branch = branch;
                last(&mut machine, &op).map(Some)
            }
        };
        match ran {
            Err(_) => prepared.effect = Effect::Barrier("always traps"),
            Ok(Some(x86::machine::Flow::Syscall)) => prepared.effect = Effect::Syscall,
            Ok(Some(x86::machine::Flow::MachineRead(_))) => {
                prepared.effect = Effect::Barrier("reads the machine")
            }
            Ok(_) => {}
        }
        terms.forget(before);
        prepared.written = machine.written;
        prepared.top_change = machine.now.x87_top;
        prepared.assumes_top |= machine.assumed_top;
        if machine.assumed_top && !restores_x87(&instruction) {
            prepared.effect = Effect::Barrier("an x87 TOP that depends on a result");
        } else if prepared.written.x87 | prepared.written.controls != 0 && sets_top(&instruction) {
            prepared.effect = Effect::Barrier("an x87 reset");
        }
        prepared
    }

    /// The same repeated string instruction, as it runs where its count is zero.
    #[must_use]
    pub fn skipping(&self) -> Prepared {
        Prepared { effect: Effect::Skip, written: Written::default(), ..*self }
    }

    /// A switch from the thread that stands before `instruction`.
    #[must_use]
    pub fn switching(instruction: Instruction) -> Prepared {
        Prepared::between(instruction, Effect::Switch)
    }

    /// The delivery of a signal that came before `instruction`, or at it.
    #[must_use]
    pub fn delivering(instruction: Instruction) -> Prepared {
        Prepared::between(instruction, Effect::Signal)
    }

    fn between(instruction: Instruction, effect: Effect) -> Prepared {
        Prepared {
            instruction,
            op: x86::decode::op(&instruction),
            effect,
            branch: None,
            written: Written::default(),
            top_change: 0,
            yields: false,
            assumes_top: false,
        }
    }

    /// Whether it is one that finds its count to be zero.
    #[must_use]
    pub fn skips(&self) -> bool {
        matches!(self.effect, Effect::Skip)
    }

    /// Whether it is an instruction that retires.
    #[must_use]
    pub fn is_instruction(&self) -> bool {
        !matches!(self.effect, Effect::Switch | Effect::Signal)
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.instruction.ip()
    }
}

/// Whether an operand is an MMX register.
fn has_mmx(op: &Op) -> bool {
    [op.a, op.b].iter().any(|loc| matches!(loc, Loc::Mmx(_)))
}

/// Whether the instruction loads the x87 state that another one saved.
#[must_use]
pub fn restores_x87(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Fxrstor | Mnemonic::Fxrstor64 | Mnemonic::Frstor | Mnemonic::Fldenv
    )
}

/// Whether the instruction sets TOP rather than changing it by a fixed amount: what it was before is then lost.
fn sets_top(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Fninit | Mnemonic::Finit | Mnemonic::Fnsave | Mnemonic::Fsave)
}

/// The x87 control word of every program that does not change it: all exceptions masked.
const USUAL_X87_CONTROL: u64 = 0x37f;

/// A snapshot of which nothing is known, but that TOP is 0 and that x87 exceptions are masked, so that the change of
/// TOP is a constant.
pub(super) fn unknown(terms: &Terms) -> Snapshot {
    let mut controls = CONTROL_WIDTHS.map(|w| terms.fresh(w));
    controls[1] = terms.lit_term(CONTROL_WIDTHS[1], USUAL_X87_CONTROL);
    Snapshot {
        gpr: std::array::from_fn(|_| terms.fresh(64)),
        flags: std::array::from_fn(|_| terms.fresh(0)),
        flags_observed: true,
        direction: terms.fresh(0),
        interrupts: None,
        access: None,
        segment_bases: [terms.fresh(64), terms.fresh(64)],
        inactive_gs: None,
        vector: Vectors::new(|_, _| terms.fresh(64), |_| terms.fresh(64)),
        x87: std::array::from_fn(|_| (terms.fresh(64), terms.fresh(16))),
        controls,
        x87_top: 0,
    }
}

impl Snapshot {
    /// The registers before an instruction that writes `written`, if `self` is what it left: what it wrote was
    /// overwritten, hence unknown.
    #[must_use]
    pub fn before(&self, terms: &Terms, written: &Written, top_change: u8) -> Snapshot {
        let mut before = self.clone();
        for (n, gpr) in before.gpr.iter_mut().enumerate() {
            if written.gpr >> n & 1 == 1 {
                *gpr = terms.fresh(64);
            }
        }
        if written.flags {
            before.flags = std::array::from_fn(|_| terms.fresh(0));
            before.flags_observed = false;
        }
        if written.direction {
            before.direction = terms.fresh(0);
        }
        if let Some(interrupts) = before.interrupts.as_mut().filter(|_| written.interrupts) {
            *interrupts = terms.fresh(0);
        }
        if let Some(access) = before.access.as_mut().filter(|_| written.access) {
            *access = terms.fresh(0);
        }
        for (n, base) in before.segment_bases.iter_mut().enumerate() {
            if written.segments >> n & 1 == 1 {
                *base = terms.fresh(64);
            }
        }
        if let Some(inactive) = before.inactive_gs.as_mut().filter(|_| written.inactive_gs) {
            *inactive = terms.fresh(64);
        }
        for (n, part) in written.parts() {
            before.vector.set_part(n, part, terms.fresh(64));
        }
        for n in written.opmasks() {
            before.vector.set_opmask(n, terms.fresh(64));
        }
        for (n, x87) in before.x87.iter_mut().enumerate() {
            if written.x87.rotate_left(u32::from(self.top_before(top_change))) >> n & 1 == 1 {
                *x87 = (terms.fresh(64), terms.fresh(16));
            }
        }
        for (n, control) in before.controls.iter_mut().enumerate() {
            if written.controls >> n & 1 == 1 {
                *control = terms.fresh(CONTROL_WIDTHS[n]);
            }
        }
        before.x87_top = self.top_before(top_change);
        before
    }

    fn top_before(&self, top_change: u8) -> u8 {
        self.x87_top.wrapping_sub(top_change) & 7
    }
}
