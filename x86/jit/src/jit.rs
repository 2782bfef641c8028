//! The driver: interprets what is cold, has compiled what is hot, and goes from one to the other.

use std::collections::VecDeque;
use std::io;

use rustc_hash::FxHashSet;
use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::interpreter::{Counters, Interpreter, Observer, Stop, Until};
use x86::machine::Machine;

use crate::codes::{Codes, Known, Plan, plan};
use crate::compiler::{Compiler, NoCompiler};
use crate::context::{Context, Counts, LONGEST_STAY, Stored, Why};
use crate::kept::Kept;
use crate::native::{Code, Gate, make_bits};
use crate::region::{MAX_RUN, Sought};
use crate::worker::{Progress, Worker};

/// When code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How often the interpreter runs a block before it is hot.
    pub patience: u32,
    /// How many instructions the interpreter has to have run for each that is compiled, but for the first [`FREE`].
    pub price: u64,
    /// The guest waits for the compiler, so that from then on its code is surely run. For tests.
    pub waits: bool,
    /// Memory for code at most, in bytes. When it is full, all code is forgotten.
    pub room: usize,
}

/// Room for the code of a large program: gcc's compiler proper has 110 MB when it compiles a few hundred lines. What is not used costs
/// nothing.
const ROOM: usize = 256 << 20;

/// Instructions that are compiled whatever has run: a program that is one loop soon is fast.
const FREE: u64 = 60;

impl Tuning {
    /// Everything, before it runs more than `patience` times.
    #[must_use]
    pub const fn eager(patience: u32) -> Tuning {
        Tuning { patience, price: 0, waits: true, room: ROOM }
    }

    /// Whether more may be compiled now.
    fn affords(&self, work: &Work) -> bool {
        let spent = work.interpreted + work.lacks * LACK;
        work.compiled.saturating_sub(FREE).saturating_mul(self.price) <= spent
    }
}

impl Default for Tuning {
    /// An instruction costs about as much to compile as to interpret 5,000 times. So no less often does a block run before: then
    /// compiling never takes more than the interpreter has taken for the same code. The price keeps a program that has just begun, and
    /// goes through much code, from having all of that compiled.
    fn default() -> Tuning {
        Tuning { patience: 5_000, price: 1_000, waits: false, room: ROOM }
    }
}

/// What compiled code has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Work {
    /// Regions that were compiled.
    pub regions: u64,
    /// Their instructions, with those that there was no code for after all.
    pub compiled: u64,
    /// Instructions that the interpreter has run.
    pub interpreted: u64,
    /// The bytes of their code.
    pub bytes: u64,
    /// Instructions that ran as compiled code.
    pub instructions: u64,
    /// How often the driver went into compiled code.
    pub stays: u64,
    /// How often it was left for a block that has none yet.
    pub lacks: u64,
    /// Regions whose code was there: an earlier run had made it, or this one before their pages were exchanged.
    pub taken: u64,
}

impl<B: Bus> Drop for Jit<B> {
    fn drop(&mut self) {
        if self.work.stays > 0 {
            tracing::debug!("compiled code: {:?}", self.work());
        }
    }
}

/// To leave compiled code for a block without any costs what so many instructions cost the interpreter.
const LACK: u64 = 50;
/// A block for which compiled code was left counts as if it had run so many times more: the way out and back costs that.
const LEFT_FOR_IT: u32 = 4;
/// So often does the interpreter run a block whose code is being compiled, or must not run now, before it is asked for again.
const SOON: u32 = 500;
/// So few instructions, to a stop among them, are interpreted: what is known of code, and of what it goes on as, is for runs that stop
/// at the same instructions, and would all have to be found again, now and for the next run.
const SHORT: u64 = 1 << 9;
/// So often does a block run before code of an earlier run is looked for: about what it costs to look, compare and install.
const EAGER: u32 = 50;

/// An [`Interpreter`] that has compiled what it runs often, and otherwise is one.
pub struct Jit<B: Bus> {
    interpreter: Interpreter<B>,
    tuning: Tuning,
    native: Native<B>,
    work: Work,
}

/// What compiled code needs.
enum Native<B: Bus> {
    /// Nothing has been hot yet; the code of earlier runs.
    Unmade(Option<Kept>),
    Made(Box<Made<B>>),
    /// The host has not given it, or nobody wants it.
    Off,
}

struct Made<B: Bus> {
    context: Context,
    gate: Gate<B>,
    codes: Codes<B>,
    worker: Worker,
    /// Of the regions that are being compiled, in order.
    plans: VecDeque<Plan<B>>,
    /// Where code was kept of something else than is there now.
    missed: FxHashSet<u64>,
    /// Before which instruction code was left last for the interpreter.
    left_before: u64,
}

impl<B: Bus> Made<B> {
    fn new(kept: Option<Kept>, room: usize) -> Result<Made<B>, NoCompiler> {
        let mut compiler = Compiler::new()?;
        let gate =
            compiler.gate().ok_or_else(|| io::Error::other("Cranelift compiles no way into its code"))?;
        let (codes, gate) = Codes::new(&gate, kept, room)?;
        let worker = Worker::start(compiler)?;
        Ok(Made {
            context: Context::new(make_bits),
            gate: Gate::new(gate),
            codes,
            worker,
            plans: VecDeque::new(),
            missed: FxHashSet::default(),
            left_before: 0,
        })
    }
}

/// How a stay in compiled code ended.
enum After {
    /// The interpreter looks what comes next.
    GoOn,
    /// It runs the block at rip.
    Interpret,
    Stopped(Stop),
}

impl<B: Bus> Jit<B> {
    /// Compiles as `tuning` says; with `None` never.
    #[must_use]
    pub fn new(cpu: Cpu<B>, tuning: Option<Tuning>) -> Jit<B> {
        let mut interpreter = Interpreter::new(cpu);
        let native = if tuning.is_some() { Native::Unmade(None) } else { Native::Off };
        let tuning = tuning.unwrap_or_default();
        interpreter.set_patience(tuning.patience);
        Jit { interpreter, tuning, native, work: Work::default() }
    }

    /// The CPU.
    pub fn cpu(&self) -> &Cpu<B> {
        self.interpreter.cpu()
    }

    /// The CPU, to change.
    pub fn cpu_mut(&mut self) -> &mut Cpu<B> {
        self.interpreter.cpu_mut()
    }

    /// What has retired.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.interpreter.counters()
    }

    /// Sets the counters, as when a checkpoint is loaded.
    pub fn set_counters(&mut self, counters: Counters) {
        self.interpreter.set_counters(counters);
    }

    /// Runs that are to stop at an instruction pass it from now on where it is that of the state that is searched for and the
    /// general registers are others; or at times they still stop. `None` ends that.
    pub fn seek(&mut self, sought: Option<Sought>) {
        if let Native::Made(made) = &mut self.native {
            made.codes.seek(sought);
        }
    }

    /// Takes code of earlier runs, and keeps what is made in this one ([`Jit::kept`]); before anything has run.
    pub fn keep(&mut self, kept: Kept) {
        if let Native::Unmade(unmade) = &mut self.native {
            self.interpreter.set_eager(kept.heads(), EAGER.min(self.tuning.patience));
            *unmade = Some(kept);
        }
    }

    /// The code of this run and of those before it, if code is kept.
    #[must_use]
    pub fn kept(&self) -> Option<&Kept> {
        match &self.native {
            Native::Unmade(kept) => kept.as_ref(),
            Native::Made(made) => made.codes.kept(),
            Native::Off => None,
        }
    }

    /// What compiled code has done.
    #[must_use]
    pub fn work(&self) -> Work {
        let taken = if let Native::Made(made) = &self.native { made.codes.taken() } else { 0 };
        Work { taken, ..self.work }
    }

    /// Like [`Interpreter::run`]: nothing but the time tells that code was compiled. Where an observer listens it is the
    /// interpreter that runs, since compiled code reports no branches.
    pub fn run<O: Observer>(&mut self, until: Until<'_>, observer: &mut O) -> Stop {
        let is_short = until.instructions.saturating_sub(self.counters().instructions) <= SHORT;
        let is_brief = is_short && !until.at.is_empty();
        if O::LISTENS || is_brief || matches!(self.native, Native::Off) || self.cpu().is_narrow() {
            return self.interpreter.run(until, observer);
        }
        loop {
            let before = self.interpreter.counters().instructions;
            let stopped = self.interpreter.run_cold(until, observer);
            self.work.interpreted += self.interpreter.counters().instructions - before;
            if let Some(stop) = stopped {
                return stop;
            }
            let stopped = match self.run_hot(until) {
                After::GoOn => None,
                After::Interpret => self.run_block(until, observer),
                After::Stopped(stop) => Some(stop),
            };
            if let Some(stop) = stopped {
                return stop;
            }
        }
    }

    /// Has the interpreter run the block at rip, or some of it: that ends before the bounds `at`, but may end there.
    fn run_block<O: Observer>(&mut self, until: Until<'_>, observer: &mut O) -> Option<Stop> {
        let before = self.counters().instructions;
        let stopped = self.interpreter.run_block(until, observer);
        // A string instruction that goes on in its midst is no visit of it.
        if stopped.is_some() || self.counters().instructions == before {
            return stopped;
        }
        let is_at = until.at.binary_search(&self.cpu().rip()).is_ok();
        is_at.then_some(Stop::At).or_else(|| self.cpu().strings_are_over().then_some(Stop::Strings))
    }

    /// Runs the code for rip, if there is some; else has it compiled, and lets the interpreter go on for a while.
    fn run_hot(&mut self, until: Until<'_>) -> After {
        let rip = self.cpu().rip();
        let Some(made) = self.native.get(self.tuning.room) else {
            self.interpreter.wait_until_hot(u32::MAX);
            return After::GoOn;
        };
        made.take_compiled(self.tuning.waits, &mut self.work);
        match made.codes.find(self.interpreter.cpu_mut(), rip, until.at) {
            Known::Code(code) => return made.stay(&mut self.interpreter, &mut self.work, until, code),
            Known::Never => self.interpreter.wait_until_hot(u32::MAX),
            Known::NotNow => self.interpreter.wait_until_hot(SOON),
            Known::Nothing if made.is_first_miss(rip) => {
                self.interpreter.wait_until_hot(self.tuning.patience)
            }
            Known::Nothing => {
                if self.tuning.affords(&self.work) {
                    made.have_compiled(&mut self.interpreter, rip, &mut self.work);
                }
                if !self.tuning.waits {
                    self.interpreter.wait_until_hot(SOON);
                }
            }
        }
        After::GoOn
    }
}

impl<B: Bus> Native<B> {
    /// Made now, if it was not, with so much room for code.
    fn get(&mut self, room: usize) -> Option<&mut Made<B>> {
        if let Native::Unmade(kept) = self {
            *self = match Made::new(kept.take(), room) {
                Ok(made) => Native::Made(Box::new(made)),
                Err(why) => {
                    tracing::warn!("guest code is not compiled but interpreted: {why}");
                    Native::Off
                }
            };
        }
        match self {
            Native::Made(made) => Some(made),
            Native::Unmade(_) | Native::Off => None,
        }
    }
}

impl<B: Bus> Made<B> {
    /// Whether an earlier run had code at `rip`, but of something else, and that was not yet known: the block has run a few times only.
    fn is_first_miss(&mut self, rip: u64) -> bool {
        self.codes.may_have_kept(rip) && self.missed.insert(rip)
    }

    /// Gives the region of the block at `rip` to the compiler, unless it has that, or enough to do.
    fn have_compiled(&mut self, interpreter: &mut Interpreter<B>, rip: u64, work: &mut Work) {
        if self.worker.is_full() || self.plans.iter().any(|plan| plan.begins_at(rip)) {
            return;
        }
        match plan(interpreter, &self.codes, rip) {
            (plan, Some(region)) => {
                work.compiled += region.len();
                self.plans.push_back(plan);
                self.worker.give(region);
            }
            (plan, None) => self.codes.add(plan, None),
        }
    }

    /// Takes what has been compiled.
    fn take_compiled(&mut self, wait: bool, work: &mut Work) {
        while let Progress::Done(compiled) = self.worker.look(wait) {
            if let Some(compiled) = &compiled {
                work.regions += 1;
                work.bytes += compiled.bytes.len() as u64;
            }
            if let Some(plan) = self.plans.pop_front() {
                self.codes.add(plan, compiled.as_ref());
            }
        }
    }

    /// Runs code, and the code of what follows.
    fn stay(
        &mut self,
        interpreter: &mut Interpreter<B>,
        work: &mut Work,
        until: Until<'_>,
        mut code: Code,
    ) -> After {
        self.context.flags = Stored::of(&interpreter.cpu().flags());
        let after = loop {
            work.stays += 1;
            let (why, has_moved) = self.run_code(interpreter, work, until, code);
            let rip = self.context.rip;
            let left = until.instructions.saturating_sub(interpreter.counters().instructions);
            match why {
                _ if has_moved && until.at.binary_search(&rip).is_ok() => break After::Stopped(Stop::At),
                _ if left == 0 => break After::GoOn,
                Some(Why::GoOn) => {}
                // Only the longest stay is over.
                Some(Why::Budget) if left > MAX_RUN as u64 => {}
                Some(Why::Spread) => {
                    let page = self.context.reached & !(PAGE_SIZE - 1);
                    self.codes.note_spread(rip, page, interpreter.counters().instructions);
                    break After::Interpret;
                }
                Some(Why::Interpret) => {
                    // The interpreter has run that instruction since, and little else.
                    if interpreter.cpu_mut().take_met_watched() {
                        self.codes.note_left_for_watched(self.left_before);
                    }
                    self.left_before = rip;
                    break After::Interpret;
                }
                Some(Why::Budget) | None => break After::Interpret,
            }
            match self.codes.find(interpreter.cpu_mut(), rip, until.at) {
                Known::Code(next) => {
                    self.codes.link(rip, next);
                    code = next;
                }
                Known::Nothing => {
                    work.lacks += 1;
                    interpreter.hasten(rip, LEFT_FOR_IT);
                    break After::GoOn;
                }
                _ => break After::GoOn,
            }
        };
        interpreter.cpu_mut().set_flags(self.context.flags.flags());
        after
    }

    /// Goes into code once: why it was left, and whether anything has run.
    fn run_code(
        &mut self,
        interpreter: &mut Interpreter<B>,
        work: &mut Work,
        until: Until<'_>,
        code: Code,
    ) -> (Option<Why>, bool) {
        let mut counters = interpreter.counters();
        let may_run = until.instructions.saturating_sub(counters.instructions).min(LONGEST_STAY);
        let context = &mut self.context;
        // A search for code may have ended the turn, and with it the code that its links lead to.
        self.codes.point_to_links(context);
        context.counts = Counts::new(may_run);
        context.rip = interpreter.cpu().rip();
        let why = self.gate.enter(context, code, interpreter.cpu_mut());
        let has_run = may_run - context.counts.left();
        work.instructions += has_run;
        counters.instructions += has_run;
        counters.taken += context.counts.taken();
        counters.conditionals += context.counts.conditionals();
        interpreter.set_counters(counters);
        interpreter.cpu_mut().set_rip(context.rip);
        (why, has_run > 0)
    }
}
