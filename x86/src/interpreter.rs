//! The software CPU: runs decoded blocks, counts, and says why it stopped.
//!
//! [`Interpreter::run`] looks the block at rip up (`cache`) and runs its steps (`step`), all of them or as many as the bounds
//! allow. When they are left it counts them, and does what no step can do: the traps, the instructions that end a block
//! without being a jump, those with a REP prefix. [`Interpreter::step`] is the plain way: it decodes one instruction and
//! runs its general description, whatever blocks there are.
//!
//! Whoever compiles blocks runs [`Interpreter::run_cold`] instead, which comes back at a block that has run often.

use crate::block::{Bytes, Ender, NoBlock, decode_one};
use crate::bus::Bus;
use crate::cache::{Cache, Found};
use crate::cpu::Cpu;
use crate::machine::{Flow, FlowOf, Handler, MachineRead, Trap};
use crate::op::{BranchKind, Op, Rep};
use crate::step::{self, Step, Why};

/// What has retired since the interpreter was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Counters {
    /// Instructions. A string instruction with a REP prefix counts once, when it completes, as on hardware.
    pub instructions: u64,
    /// Branches taken, of every kind but SYSCALL.
    pub taken: u64,
    /// Conditional branches, taken or not: what rr counts (BR_INST_RETIRED.CONDITIONAL).
    pub conditionals: u64,
}

/// How far to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until<'a> {
    /// Stop as soon as [`Counters::instructions`] is this, exactly. A string instruction with a REP prefix is
    /// never divided by this bound.
    pub instructions: u64,
    /// Stop as soon as control stands before the instruction at one of these addresses, with [`Stop::At`]. They are in order. Where
    /// the run begins does not count, so that each run from a visit goes on to the next one.
    ///
    /// After any other [`Stop`] rip may be at one, too, and the next run leaves it without a stop: a caller that looks
    /// for every visit compares rip itself when it has served a system call or a trap. [`Stop::Budget`] never hides a
    /// visit: where both bounds are reached, the stop is [`Stop::At`].
    pub at: &'a [u64],
}

impl Until<'_> {
    /// No bound.
    pub const EVENT: Until<'static> = Until { instructions: u64::MAX, at: &[] };

    /// The bound of [`Until::instructions`] alone.
    #[must_use]
    pub const fn retired(instructions: u64) -> Until<'static> {
        Until { instructions, at: &[] }
    }
}

/// Why the run ended.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// [`Until::instructions`] is reached.
    Budget,
    /// One of [`Until::at`] is reached: rip is that address, and its instruction has not run.
    At,
    /// String instructions have gone through as many bytes as [`Cpu::allow_strings`] let them. Nothing else has happened: another run
    /// goes on.
    Strings,
    /// A SYSCALL retired: rip is behind it; rcx and r11 are for whoever serves it to write.
    Syscall,
    /// An instruction that reads the machine retired: rip is behind it, and its results are missing.
    /// [`crate::sem::system::supply`] writes them.
    MachineRead {
        /// Which.
        read: MachineRead,
        /// The instruction.
        op: Op,
    },
    /// A trap. rip is the instruction that raised it; but behind it for INT3 and INT1, which retire.
    /// [`Cpu::last_page_fault`] has the details of [`Trap::Page`].
    Trap {
        /// What.
        trap: Trap,
        /// The address of the instruction.
        at: u64,
    },
    /// The instruction at rip gives another result on other processors, and is left to one of them
    /// ([`Cpu::leave_differing`]).
    Differing,
    /// The instruction at rip depends on more than a program's state: privilege, selectors, the interrupt flag. Its
    /// effect on a CPU with a system ([`Cpu::give_system`]) is in the crate `x86-system`.
    System,
    /// A valid instruction without semantics, at rip.
    NoSemantics {
        /// Its address.
        at: u64,
        /// Its bytes.
        bytes: Bytes,
    },
}

/// Hears of each taken branch.
pub trait Observer {
    /// Whether it does: code that reports no branch may run where nobody listens.
    const LISTENS: bool = true;

    /// Control went from the branch at `from` to `to`.
    fn branch(&mut self, from: u64, to: u64, kind: BranchKind);
}

/// Nobody listens; costs nothing.
impl Observer for () {
    const LISTENS: bool = false;

    #[inline(always)]
    fn branch(&mut self, _from: u64, _to: u64, _kind: BranchKind) {}
}

/// A [`Cpu`] and its decoded blocks.
pub struct Interpreter<B: Bus> {
    cpu: Cpu<B>,
    cache: Cache<B>,
}

impl<B: Bus> Interpreter<B> {
    /// An interpreter with nothing decoded.
    #[must_use]
    pub fn new(cpu: Cpu<B>) -> Interpreter<B> {
        Interpreter { cpu, cache: Cache::new() }
    }

    /// The CPU.
    pub fn cpu(&self) -> &Cpu<B> {
        &self.cpu
    }

    /// The CPU, to change.
    pub fn cpu_mut(&mut self) -> &mut Cpu<B> {
        &mut self.cpu
    }

    /// What has retired.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.cpu.retired
    }

    /// Sets the counters, as when a checkpoint is loaded.
    pub fn set_counters(&mut self, counters: Counters) {
        self.cpu.retired = counters;
    }

    /// Runs until the bound, or until something happens that the program cannot do by itself.
    pub fn run<O: Observer>(&mut self, until: Until<'_>, observer: &mut O) -> Stop {
        if self.cpu.narrow {
            return self.run_narrow(until, observer);
        }
        loop {
            // Where heat does not matter there is always a stop.
            if let Some(stop) = self.run_for::<O, false>(until, observer) {
                return stop;
            }
        }
    }

    /// [`Interpreter::run`] of 32-bit code, from no block.
    fn run_narrow<O: Observer>(&mut self, until: Until<'_>, observer: &mut O) -> Stop {
        let begin = self.cpu.retired.instructions;
        loop {
            let has_moved = self.cpu.retired.instructions != begin;
            if has_moved && until.at.binary_search(&self.cpu.rip).is_ok() {
                return Stop::At;
            }
            if self.cpu.retired.instructions >= until.instructions {
                return Stop::Budget;
            }
            if let Some(stop) = self.step(observer) {
                return stop;
            }
            self.cpu.rip &= 0xffff_ffff;
        }
    }

    /// [`Interpreter::run`], but `None` as soon as the block at rip is hot: it has run as often as
    /// [`Interpreter::set_patience`] or [`Interpreter::wait_until_hot`] said.
    pub fn run_cold<O: Observer>(&mut self, until: Until<'_>, observer: &mut O) -> Option<Stop> {
        self.run_for::<O, true>(until, observer)
    }

    /// How often each block may run before it is hot, from its decoding on.
    pub fn set_patience(&mut self, runs: u32) {
        self.cache.set_patience(runs);
    }

    /// Lets blocks that begin at these addresses, and are decoded from now on, run no more than so often before they are hot.
    pub fn set_eager(&mut self, starts: impl Iterator<Item = u64>, runs: u32) {
        self.cache.set_eager(starts.collect(), runs);
    }

    /// Lets the block at rip run so often before it is hot.
    pub fn wait_until_hot(&mut self, runs: u32) {
        if let Ok(found) = self.cache.find(&mut self.cpu) {
            self.cache.refill(found, runs);
        }
    }

    /// Lets the block at `rip` run so many times less before it is hot.
    pub fn hasten(&mut self, rip: u64, runs: u32) {
        self.cache.hasten(rip, runs);
    }

    /// Whether the block at `rip` has run often, though not as often as a hot one.
    pub fn is_warm(&mut self, rip: u64) -> bool {
        self.cache.is_warm(&mut self.cpu, rip)
    }

    /// Runs the block at rip once, hot or not, but not beyond the bounds. `None`: go on at rip.
    pub fn run_block<O: Observer>(&mut self, until: Until<'_>, observer: &mut O) -> Option<Stop> {
        let left = until.instructions.saturating_sub(self.cpu.retired.instructions);
        if left == 0 {
            return Some(Stop::Budget);
        }
        let stopped = match (self.cache.find(&mut self.cpu), until.at) {
            (Ok(found), []) => self.run_found::<O, false, true>(found, left, &[], observer),
            (Ok(found), at) => self.run_found::<O, true, true>(found, left, at, observer),
            (Err(no_block), _) => Some(self.no_block(&no_block)),
        };
        self.unless_store_to_code(stopped?, observer)
    }

    fn run_for<O: Observer, const COLD: bool>(&mut self, until: Until<'_>, observer: &mut O) -> Option<Stop> {
        match until.at {
            [] => self.run_until::<O, false, COLD>(until.instructions, &[], observer),
            at => self.run_until::<O, true, COLD>(until.instructions, at, observer),
        }
    }

    /// [`Interpreter::run`], compiled once with and once without the bound `at`, so that no run pays for a bound that
    /// it does not have; and with and without an eye on heat (`COLD`): then `None` is a hot block.
    fn run_until<O: Observer, const AT: bool, const COLD: bool>(
        &mut self,
        bound: u64,
        at: &[u64],
        observer: &mut O,
    ) -> Option<Stop> {
        let begin = self.cpu.retired.instructions;
        loop {
            // A string instruction that goes on in its midst is no visit of it.
            let has_moved = self.cpu.retired.instructions != begin;
            if AT && has_moved && at.binary_search(&self.cpu.rip).is_ok() {
                return Some(Stop::At);
            }
            let left = bound.saturating_sub(self.cpu.retired.instructions);
            if left == 0 {
                return Some(Stop::Budget);
            }
            if has_moved && self.cpu.strings_are_over() {
                return Some(Stop::Strings);
            }
            let stopped = match self.cache.find(&mut self.cpu) {
                Ok(found) if COLD && !self.cache.spend(found) => return None,
                Ok(found) => self.run_found::<O, AT, COLD>(found, left, at, observer),
                Err(no_block) => Some(self.no_block(&no_block)),
            };
            if let Some(stop) = stopped
                && let Some(stop) = self.unless_store_to_code(stop, observer)
            {
                return Some(stop);
            }
        }
    }

    /// Runs the one instruction at rip; `None` when it retired and nothing else happened, or when it is a string instruction that has
    /// stored into its own page and is to go on ([`Cpu::run_string`]).
    pub fn step<O: Observer>(&mut self, observer: &mut O) -> Option<Stop> {
        loop {
            let stopped = match decode_one(&mut self.cpu) {
                Ok((Handler::Body(run), op)) => match run(&mut self.cpu, &op) {
                    Ok(()) => {
                        self.cpu.rip = op.next;
                        self.cpu.retired.instructions += 1;
                        None
                    }
                    Err(trap) => Some(trapped(&mut self.cpu, trap, &op)),
                },
                Ok((Handler::Last(run, kind), op)) => end(&mut self.cpu, &Ender { run, op, kind }, observer),
                Err(no_block) => Some(self.no_block(&no_block)),
            };
            match stopped {
                Some(stop) if self.store_to_code(&stop) => {}
                other => return other,
            }
        }
    }

    /// Runs a block of the cache as long as it leads to its own start, and that is no bound of `at` (if `AT`); once where each run
    /// counts, or compiled code may go on (`COLD`); not more than `left` instructions, at least one. `None`: go on at rip.
    #[inline(always)]
    fn run_found<O: Observer, const AT: bool, const COLD: bool>(
        &mut self,
        found: Found,
        left: u64,
        at: &[u64],
        observer: &mut O,
    ) -> Option<Stop> {
        let cpu = &mut self.cpu;
        let (start, block) = self.cache.steps(found);
        let mut left = if AT { left.min(steps_before(start, block, at)) } else { left };
        loop {
            let steps = prefix(block, left);
            let exit = step::run(cpu, steps);
            let done = steps.len() - exit.left().min(steps.len());
            cpu.retired.instructions += done as u64;
            let step = steps.get(done.wrapping_sub(1))?;
            if exit.why() != Why::Taken {
                return leave(cpu, exit.why(), step, self.cache.last(found), observer);
            }
            left -= done as u64;
            // One that is not the last of its block is conditional.
            let kind = match self.cache.last(found) {
                Some(last) if done == block.len() => last.kind,
                _ => Some(BranchKind::Conditional),
            };
            if let Some(kind) = kind {
                observer.branch(step.op.start(), cpu.rip, kind);
            }
            if COLD || cpu.rip != start || left == 0 || AT && at.binary_search(&start).is_ok() {
                return None;
            }
        }
    }

    /// `stop`, unless it is only a store to a frame with decoded instructions: then that instruction runs.
    #[inline(always)]
    fn unless_store_to_code<O: Observer>(&mut self, stop: Stop, observer: &mut O) -> Option<Stop> {
        match self.store_to_code(&stop) {
            true => self.step(observer),
            false => Some(stop),
        }
    }

    /// Whether `stop` is only a store to a frame with decoded instructions. If so they are forgotten, and the
    /// instruction, which has left no trace, can run again.
    #[cold]
    fn store_to_code(&mut self, stop: &Stop) -> bool {
        match (stop, self.cpu.code_store.take()) {
            (Stop::Trap { trap: Trap::Page, .. }, Some(frame)) => {
                self.cpu.frames.changed(frame);
                true
            }
            _ => false,
        }
    }

    #[cold]
    fn no_block(&mut self, no_block: &NoBlock) -> Stop {
        let at = self.cpu.rip;
        match *no_block {
            NoBlock::Trap(trap) => Stop::Trap { trap, at },
            NoBlock::NoSemantics(bytes) => Stop::NoSemantics { at, bytes },
            NoBlock::System => Stop::System,
        }
    }
}

/// The first `left` steps, or all where there are no more.
#[inline(always)]
fn prefix<T>(steps: &[T], left: u64) -> &[T] {
    match usize::try_from(left) {
        Ok(left) if left < steps.len() => &steps[..left],
        _ => steps,
    }
}

/// How many steps of the block at `start` come before the first instruction behind `start` that is one of `at`; no limit where
/// there is none.
#[inline(always)]
fn steps_before<B: Bus>(start: u64, steps: &[Step<B>], at: &[u64]) -> u64 {
    let len = steps.last().map_or(0, |last| last.op.next.wrapping_sub(start));
    let first = at.partition_point(|at| *at <= start);
    for at in &at[first..] {
        let offset = at.wrapping_sub(start);
        if offset >= len {
            break;
        }
        let n = steps.partition_point(|step| step.op.start().wrapping_sub(start) < offset);
        if steps.get(n).is_some_and(|step| step.op.start() == *at) {
            return n as u64;
        }
    }
    u64::MAX
}

/// Leaves a block behind `step`, or before it, otherwise than by a branch that a step took.
fn leave<B: Bus, O: Observer>(
    cpu: &mut Cpu<B>,
    why: Why,
    step: &Step<B>,
    last: Option<&Ender<Cpu<B>>>,
    observer: &mut O,
) -> Option<Stop> {
    if why == Why::Through {
        cpu.rip = step.op.next;
        return None;
    }
    // It has not retired yet.
    cpu.retired.instructions -= 1;
    match (why, cpu.trapped.take()) {
        (Why::Trap, Some(trap)) => Some(trapped(cpu, trap, &step.op)),
        (Why::Trap, None) => {
            cpu.rip = step.op.start();
            Some(if cpu.has_system { Stop::System } else { Stop::Differing })
        }
        _ => last.and_then(|last| end(cpu, last, observer)),
    }
}

/// Leaves rip where the trap of `op` has it.
#[cold]
fn trapped<B: Bus>(cpu: &mut Cpu<B>, trap: Trap, op: &Op) -> Stop {
    // INT3 and INT1 are traps, not faults: they retire, and rip is behind them.
    if matches!(trap, Trap::Breakpoint | Trap::Debug) {
        cpu.retired.instructions += 1;
        cpu.rip = op.next;
    } else {
        cpu.rip = op.start();
    }
    Stop::Trap { trap, at: op.start() }
}

/// Runs the instruction that ends a block, and moves rip.
#[inline(always)]
fn end<B: Bus, O: Observer>(cpu: &mut Cpu<B>, last: &Ender<Cpu<B>>, observer: &mut O) -> Option<Stop> {
    let op = &last.op;
    if op.rep != Rep::None {
        return string(cpu, last);
    }
    let (taken, to) = match (last.run)(cpu, op) {
        Ok(Flow::Branch { taken, to }) => {
            cpu.retired.conditionals += 1;
            (taken, to)
        }
        Ok(Flow::Jump(to)) => (true, to),
        Ok(other) => return end_without_branch(cpu, op, other),
        Err(trap) => return Some(trapped(cpu, trap, op)),
    };
    cpu.retired.instructions += 1;
    if taken {
        cpu.retired.taken += 1;
        if let Some(kind) = last.kind {
            observer.branch(op.start(), to, kind);
        }
        cpu.rip = to;
    } else {
        cpu.rip = op.next;
    }
    None
}

/// The ends of a block that are not branches.
#[cold]
#[inline(never)]
fn end_without_branch<B: Bus>(cpu: &mut Cpu<B>, op: &Op, flow: FlowOf<Cpu<B>>) -> Option<Stop> {
    cpu.retired.instructions += 1;
    cpu.rip = op.next;
    match flow {
        Flow::Syscall => Some(Stop::Syscall),
        Flow::MachineRead(read) => Some(Stop::MachineRead { read, op: *op }),
        Flow::Jump(_) | Flow::Branch { .. } | Flow::Repeat { .. } => None,
    }
}

/// Runs a string instruction with a REP prefix, and moves rip behind it when it is at its end.
fn string<B: Bus>(cpu: &mut Cpu<B>, last: &Ender<Cpu<B>>) -> Option<Stop> {
    match cpu.run_string(&last.op, last.run) {
        Ok(true) => {
            cpu.retired.instructions += 1;
            cpu.rip = last.op.next;
        }
        Ok(false) => cpu.rip = last.op.start(),
        Err(trap) => return Some(trapped(cpu, trap, &last.op)),
    }
    None
}
