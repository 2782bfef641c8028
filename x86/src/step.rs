//! How a block runs: its instructions are steps, and each step that is done calls the next.
//!
//! The call is the last act of a step, which a compiler makes a jump, so that control goes from one instruction straight
//! to the next one, and the driver in [`crate::interpreter`] is asked only when a block is left. Nothing depends on it:
//! where it stays a call, the stack is as deep as a block is long.
//!
//! A step is of one of two kinds. [`general`] runs the description of its instruction on the [`Cpu`], and what traps
//! leaves the block. The hot forms (`table::hot`) run the same description on a [`Quick`] machine, whose memory is
//! what the caches of translations hold. What that machine has not (another page, a trap) ends the description with an
//! error, and then the instruction, which has left no trace, is run again by the general step: so a hot form calls
//! nothing but the next step, and needs no stack of its own.
//!
//! A comparison and the branch behind it may be one step ([`then_branch`]): the descriptions of both, one after the
//! other, so that the compiler sees what the flags are made of. The branch keeps its own step, which is run where a
//! block is cut between the two.
//!
//! A block goes on behind a conditional branch: taken, it leaves the block, else the next step runs. Branches are
//! counted when they run, instructions when a block is left, by how many steps are left over.

use crate::bus::Bus;
use crate::cpu::Cpu;
use crate::machine::{Body, Exec, Flow, FlowOf};
use crate::op::Op;
use crate::quick::Quick;

/// An instruction in a block.
pub(crate) struct Step<B: Bus> {
    pub(crate) run: Run<B>,
    /// Its description; `None` where it does not fall through.
    pub(crate) body: Option<Body<Cpu<B>>>,
    pub(crate) op: Op,
}

/// Runs the first of these steps and those behind it.
pub(crate) type Run<B> = fn(&mut Cpu<B>, &[Step<B>]) -> Exit;

/// How a block is left, and how many steps were left over. One number: what is taken apart when it is handed on
/// would keep the calls from being jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit(usize);

/// What [`Exit`] says of the step that left the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It was the last. rip is still what it was.
    Through,
    /// It was a branch, and is taken: counted, and rip is its target.
    Taken,
    /// It is the last instruction, which no step can run.
    Ender,
    /// It traps, as [`Cpu::trapped`] has it; or, where that has nothing, another processor is to execute it. rip is still
    /// what it was.
    Trap,
}

impl Exit {
    const KINDS: [Why; 4] = [Why::Through, Why::Taken, Why::Ender, Why::Trap];

    #[inline(always)]
    fn new<B: Bus>(why: Why, rest: &[Step<B>]) -> Exit {
        Exit(rest.len() * Self::KINDS.len() + why as usize)
    }

    #[inline(always)]
    pub(crate) fn why(self) -> Why {
        Self::KINDS[self.0 % Self::KINDS.len()]
    }

    /// How many steps are behind the one that left the block.
    #[inline(always)]
    pub(crate) fn left(self) -> usize {
        self.0 / Self::KINDS.len()
    }
}

/// Runs what is left of a block.
#[inline(always)]
pub(crate) fn run<B: Bus>(cpu: &mut Cpu<B>, steps: &[Step<B>]) -> Exit {
    match steps {
        [next, ..] => (next.run)(cpu, steps),
        [] => Exit::new(Why::Through, steps),
    }
}

/// Any instruction that falls through; and the last of a block, for which it leaves it.
#[inline(never)]
pub(crate) fn general<B: Bus>(cpu: &mut Cpu<B>, steps: &[Step<B>]) -> Exit {
    let [step, rest @ ..] = steps else { return run(cpu, steps) };
    let Some(body) = step.body else { return Exit::new(Why::Ender, rest) };
    match body(cpu, &step.op) {
        Ok(()) => run(cpu, rest),
        Err(trap) => {
            cpu.trapped = Some(trap);
            Exit::new(Why::Trap, rest)
        }
    }
}

/// An instruction whose result differs between processors ([`Cpu::leave_differing`]).
pub(crate) fn differing<B: Bus>(cpu: &mut Cpu<B>, steps: &[Step<B>]) -> Exit {
    match steps {
        [_, rest @ ..] if cpu.leaves_differing => {
            cpu.trapped = None;
            Exit::new(Why::Trap, rest)
        }
        _ => general(cpu, steps),
    }
}

/// An instruction whose description is that of a program under Linux ([`crate::decode::depends_on_the_system`]).
pub(crate) fn of_system<B: Bus>(cpu: &mut Cpu<B>, steps: &[Step<B>]) -> Exit {
    match steps {
        [_, rest @ ..] if cpu.has_system => {
            cpu.trapped = None;
            Exit::new(Why::Trap, rest)
        }
        _ => general(cpu, steps),
    }
}

/// What a hot form could not do.
#[cold]
#[inline(never)]
fn again<B: Bus>(cpu: &mut Cpu<B>, steps: &[Step<B>]) -> Exit {
    general(cpu, steps)
}

/// A hot form that falls through.
#[inline(always)]
pub(crate) fn fall_through<B: Bus>(
    cpu: &mut Cpu<B>,
    steps: &[Step<B>],
    description: impl FnOnce(&mut Quick<'_, B>, &Op) -> Exec,
) -> Exit {
    let [step, rest @ ..] = steps else { return again(cpu, steps) };
    match description(&mut Quick { cpu }, &step.op) {
        Ok(()) => run(cpu, rest),
        Err(_) => again(cpu, steps),
    }
}

/// A conditional branch.
#[inline(always)]
pub(crate) fn branch<B: Bus>(
    cpu: &mut Cpu<B>,
    steps: &[Step<B>],
    description: impl for<'c> FnOnce(&mut Quick<'c, B>, &Op) -> Exec<FlowOf<Quick<'c, B>>>,
) -> Exit {
    let [step, rest @ ..] = steps else { return again(cpu, steps) };
    let Ok(Flow::Branch { taken, to }) = description(&mut Quick { cpu }, &step.op) else {
        return again(cpu, steps);
    };
    cpu.retired.conditionals += 1;
    if taken {
        cpu.retired.taken += 1;
        cpu.rip = to;
        return Exit::new(Why::Taken, rest);
    }
    run(cpu, rest)
}

/// A hot form with the conditional branch behind it.
#[inline(always)]
pub(crate) fn then_branch<B: Bus>(
    cpu: &mut Cpu<B>,
    steps: &[Step<B>],
    first: impl FnOnce(&mut Quick<'_, B>, &Op) -> Exec,
    second: impl for<'c> FnOnce(&mut Quick<'c, B>, &Op) -> Exec<FlowOf<Quick<'c, B>>>,
) -> Exit {
    let [step, rest @ ..] = steps else { return again(cpu, steps) };
    if rest.is_empty() {
        return again(cpu, steps);
    }
    match first(&mut Quick { cpu }, &step.op) {
        Ok(()) => branch(cpu, rest, second),
        Err(_) => again(cpu, steps),
    }
}

/// A jump, call or return: the last of its block.
#[inline(always)]
pub(crate) fn jump<B: Bus>(
    cpu: &mut Cpu<B>,
    steps: &[Step<B>],
    description: impl for<'c> FnOnce(&mut Quick<'c, B>, &Op) -> Exec<FlowOf<Quick<'c, B>>>,
) -> Exit {
    let [step, rest @ ..] = steps else { return again(cpu, steps) };
    let Ok(Flow::Jump(to)) = description(&mut Quick { cpu }, &step.op) else { return again(cpu, steps) };
    cpu.retired.taken += 1;
    cpu.rip = to;
    Exit::new(Why::Taken, rest)
}
